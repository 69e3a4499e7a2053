"""A still picture as a notebook shows it: an image with a description, that follows the theme.

Notebook: every one of them.
Source: WCAG 2.2, 1.1.1 (text alternatives); IPython's rich display protocol.
Costs: the SVG once, as a data URI; no file, no request.
The production version would serve files; a notebook must be readable alone and untrusted.
"""

from __future__ import annotations

from html import escape

from course_lib.plot.svg import data_uri

# Where scripts run, the image becomes the SVG it holds, which sees the page's light or dark theme.
# Where they do not (untrusted notebooks, static pages), the image stays: opaque and light.
SWAP = (
    "<script>(s=>{const f=s&&s.previousElementSibling,i=f&&f.querySelector('img');if(!i)return;"
    "i.insertAdjacentHTML('afterend',decodeURIComponent(i.src.slice(i.src.indexOf(',')+1)));"
    "i.nextSibling.style.cssText=i.style.cssText;i.remove()})(document.currentScript)</script>"
)
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
        """What the notebook shows."""
        return f"<div>{self.image()}</div>{SWAP}"
