"""A matplotlib figure as a picture of the course: its colours, its font, the same bytes always."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib import style as styles
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font, ttfFontProperty

from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import INK, LINE, PANEL, PAPER, ROLE_STYLE, SOFT
from course_lib.trace import Refusal

# The font that lies in matplotlib itself, under a name that no other has: a system's DejaVu Sans
# may be another version, whose outlines have other numbers.
FONT = "DejaVu Sans of matplotlib"
FONT_FILES = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")

LOOK: dict[Any, Any] = {
    "font.family": FONT,
    "svg.hashsalt": "course",  # ids in the SVG come from its content alone
    "svg.fonttype": "path",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "legend.frameon": False,
}
NO_DATES = {"Date": None, "Creator": None, "Format": None, "Type": None}
BY_ROLE = {INK: "ink", SOFT: "soft", LINE: "line", PANEL: "panel", PAPER: "paper"}


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, `width` by `height` inches, in the course's look.

    Give it back to `as_picture`; both must be called inside `style()`.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def style() -> AbstractContextManager[None]:
    """The look of a chart inside a `with` block, whatever the user's matplotlibrc says."""
    if FONT not in {entry.name for entry in fontManager.ttflist}:
        fontManager.ttflist += [
            replace(ttfFontProperty(get_font(f"{mpl.get_data_path()}/fonts/ttf/{file}")), name=FONT)
            for file in FONT_FILES
        ]
    return styles.context(["default", LOOK])


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """A legend in rows under the axes."""
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=min(len(handles), 9),
        fontsize=9,
        handlelength=1.0,
        handleheight=1.0,
        columnspacing=1.2,
    )


def nothing_recorded(asked: str, found: str) -> Refusal:
    """The refusal to draw an empty chart."""
    return Refusal(asked, found, "an empty chart would say nothing")


def as_picture(figure: Figure, title: str, alt: str, *, measured: bool = False) -> Picture:
    """The figure as SVG, its greys taken from the page's theme where there is one."""
    for artist in figure.findobj():
        artist.set_clip_on(False)  # no clip paths: their ids would clash between pictures
    sink = io.StringIO()
    figure.savefig(sink, format="svg", metadata=NO_DATES)
    drawing = sink.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    for color, role in BY_ROLE.items():
        drawing = re.sub(f"(fill|stroke): {color}", rf"\1: var(--cp-{role})", drawing)
    head = f'<svg class="cp" role="img" aria-label="{escape(alt)}" '
    drawing = drawing.replace("<svg ", head, 1)
    drawing = drawing.replace(">", f">{ROLE_STYLE}", 1)
    return Picture(re.sub(r"\n\s*", " ", drawing), alt, title, measured=measured)
