"""A picture with controls: a still one for those who only read, a live one where a kernel runs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from html import escape

import ipywidgets
from IPython.display import display

from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import ROLE_STYLE


class Explorer(ABC):
    """What a cell shows whose last line makes one.

    First a still picture, then the controls, whose own picture takes the still one's place. Pages
    without a kernel keep the still one. A notebook that is run to be kept (COURSE_LIVE=0) has it
    alone: a widget has a random number. The controls' output has no text, so both are alike.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def html(self) -> str:
        """The still picture, the same each time."""

    @abstractmethod
    def controls(self) -> ipywidgets.Widget:
        """Controls, and a picture whose style hides the still one: both would say the same."""

    def still(self) -> dict[str, str]:
        """The output that is the same each time."""
        return {"text/plain": repr(self), "text/html": self.html()}

    def _ipython_display_(self) -> None:
        """Shows the still picture, and the controls if there is somebody to move them."""
        display(self.still(), raw=True)
        if os.environ.get("COURSE_LIVE", "1") != "0":
            mime = "application/vnd.jupyter.widget-view+json"
            display({mime: self.controls()._repr_mimebundle_()[mime]}, raw=True)


def still_html(name: str, picture: Picture, words: str, lines: float) -> str:
    """The still picture and its caption.

    Args:
        name: of the kind of explorer; its live picture hides this one.
        picture: at the controls' start.
        words: the caption.
        lines: of the longest caption, so that nothing jumps when another is shown.
    """
    return f'<div class="{name} cp">{picture._repr_html_()}{_caption(words, lines)}</div>'


def rules(name: str) -> ipywidgets.HTML:
    """What stays on the page while pictures come and go: their colours, and no still picture.

    Rules that came with each picture would make the browser look at the whole page again.
    """
    # While the live picture is on the page, the still one above it would say the same twice.
    return ipywidgets.HTML(f"<style>.{name}{{display:none}}</style>{ROLE_STYLE}")


def live_html(picture: Picture, words: str = "", lines: float = 0) -> str:
    """A picture without its rules, and a caption if there are words; `lines` as of `still_html`."""
    caption = _caption(words, lines) if words else ""
    return f'<div class="cp">{picture.svg.replace(ROLE_STYLE, "", 1)}{caption}</div>'


def refusal_html(why: str, height: int = 0) -> str:
    """What stands where a picture should be: why there is none, at least `height` pixels high."""
    body = f'<p class="ink" role="status">{escape(why)}</p>'
    return f'<div class="cp" style="min-height:{height}px">{body}</div>'


def _caption(words: str, lines: float) -> str:
    look = f"max-width:760px;min-height:{lines:g}em;margin:0;padding:8px 0;line-height:1.45"
    return f'<p style="{look}">{escape(words)}</p>'
