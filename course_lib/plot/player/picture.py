"""A still picture as a notebook shows it: an image with a description, that follows the theme."""

from __future__ import annotations

from html import escape

from course_lib.plot.player.live import live_script
from course_lib.plot.player.svg import data_uri

FIT = "max-width:100%;height:auto;display:block"


class Picture:
    """One SVG with its description.

    Args:
        svg: the whole document, from `svg.document`.
        alt: what a reader who cannot see it needs to know, numbers included.
        title: what it is, in a few words.
        measured: whether times are in it, so that it differs from run to run; the image is marked,
            and tests of notebooks can leave it out.
    """

    def __init__(self, svg: str, alt: str, title: str, *, measured: bool = False) -> None:
        self.svg = svg
        self.alt = alt
        self.title = title
        self.measured = measured

    def __repr__(self) -> str:
        return f"Picture({self.title})"

    def image(self) -> str:
        """The `<img>` element that holds the picture."""
        mark = "data-measured " if self.measured else ""
        return f'<img {mark}alt="{escape(self.alt)}" style="{FIT}" src="{data_uri(self.svg)}">'

    def _repr_html_(self) -> str:
        """What the notebook shows.

        Where scripts run, the drawing itself takes the image's place. Where they do not (untrusted
        notebooks, static pages), the image stays: opaque and light.
        """
        return f'<div class="cp-picture">{self.image()}</div>{live_script("picture")}'
