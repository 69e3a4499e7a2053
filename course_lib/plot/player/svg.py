"""The few SVG marks that pictures are made of, and pictures as data URIs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from course_lib.plot.player.style import ROLE_STYLE

Point = tuple[float, float]


def number(value: float) -> str:
    """A coordinate as text, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def text(
    x: float,
    y: float,
    words: str,
    *,
    kind: str = "ink",
    size: float = 12,
    anchor: str = "middle",
    color: str = "",
    bold: bool = False,
) -> str:
    """Words with their baseline at (x, y); `kind` is a role of the style, `color` overrides it."""
    look = f'fill="{color}"' if color else f'class="{kind}"'
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" {look}{weight} '
        f'text-anchor="{anchor}">{escape(words, quote=False)}</text>'
    )


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    kind: str = "",
    fill: str = "",
    radius: float = 4,
    edge: float = 0,
) -> str:
    """A rectangle: of a colour (`fill`), of a role (`kind`), or an outline `edge` pixels thick."""
    look = f'fill="{fill}"' if fill else f'class="{kind}"'
    stroke = f' stroke-width="{number(edge)}"' if edge else ""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" '
        f'rx="{number(radius)}" {look}{stroke}/>'
    )


def line(
    points: Sequence[Point],
    *,
    kind: str = "ink-edge",
    color: str = "",
    width: float = 2,
    dashed: bool = False,
) -> str:
    """A line through points, its corners rounded."""
    look = f'fill="none" stroke="{color}"' if color else f'class="{kind}"'
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{_rounded(points)}" {look} stroke-width="{number(width)}"{dash}/>'


def arrow(points: Sequence[Point], *, color: str = "", dashed: bool = False) -> str:
    """A line through points with a head at the last one. The last stretch must be over 9 pixels."""
    (x0, y0), (x1, y1) = points[-2], points[-1]
    span = math.hypot(x1 - x0, y1 - y0)
    dx, dy = (x1 - x0) / span, (y1 - y0) / span
    neck = (x1 - 8 * dx, y1 - 8 * dy)
    look = f'fill="{color}"' if color else 'class="ink"'
    tip = [(x1, y1), (neck[0] - 5 * dy, neck[1] + 5 * dx), (neck[0] + 5 * dy, neck[1] - 5 * dx)]
    head = " ".join(f"{number(x)},{number(y)}" for x, y in tip)
    shaft = line([*points[:-1], neck], color=color, dashed=dashed)
    return f'{shaft}<polygon points="{head}" {look}/>'


def pill(x: float, y: float, words: str, color: str, on: str, width: float = 56) -> str:
    """Words on a coloured capsule whose middle is at (x, y)."""
    return box(x - width / 2, y - 10, width, 20, fill=color, radius=10) + text(
        x, y + 4.2, words, color=on, bold=True
    )


def document(width: float, height: float, body: str, alt: str) -> str:
    """A whole picture: opaque, of the page's theme, with its description."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cp" viewBox="0 0 {number(width)} '
        f'{number(height)}" width="{number(width)}" height="{number(height)}" role="img" '
        f'aria-label="{escape(alt)}">{ROLE_STYLE}'
        f"{box(0, 0, width, height, kind='paper', radius=6)}{body}</svg>"
    )


def data_uri(svg: str) -> str:
    """The picture as an address that holds all of it, safe between double quotes."""
    return "data:image/svg+xml," + quote(svg, safe=" =:/;,()'!*+?@[]{}|^~$")


def _rounded(points: Sequence[Point], radius: float = 6) -> str:
    """The path through `points`, each corner a curve of at most `radius`."""
    path = f"M{number(points[0][0])} {number(points[0][1])}"
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        enter, leave = _towards(here, before, radius), _towards(here, after, radius)
        path += f"L{number(enter[0])} {number(enter[1])}"
        path += "Q" + " ".join(number(v) for v in (*here, *leave))
    return path + f"L{number(points[-1][0])} {number(points[-1][1])}"


def _towards(here: Point, there: Point, distance: float) -> Point:
    """The point `distance` away from `here` towards `there`, half the way at most."""
    span = math.hypot(there[0] - here[0], there[1] - here[1])
    part = min(distance / span, 0.5) if span else 0.0
    return here[0] + part * (there[0] - here[0]), here[1] + part * (there[1] - here[1])
