"""What becomes of numbers in a format, and how it looks: hollow, striped, plain or checked."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.style import BLUE, ORANGE, VERMILLION
from course_lib.plot.precision.number_range import NumberRange

Box = tuple[float, float, float, float]  # x, y, width, height

LOST, SUBNORMAL, NORMAL, LARGE = "become 0", "subnormal", "normal", "too large"
FATES = (LOST, SUBNORMAL, NORMAL, LARGE)
LOOK = {
    LOST: 'class="paper" style="stroke:var(--cp-ink)"',
    SUBNORMAL: f'fill="{ORANGE}"',
    NORMAL: f'fill="{BLUE}"',
    LARGE: f'fill="{VERMILLION}"',
}
BLACK = 'stroke="#000" fill="none"'
UPRIGHT = {SUBNORMAL: 4, LARGE: 8}  # pixels from stripe to stripe
LEVEL = {LOST: ('class="ink-edge"', 3), LARGE: (BLACK, 4.5)}


def fate(value: float, each: NumberRange) -> str:
    """One of FATES: what a positive number becomes.

    A number that rounds to zero is lost, one that rounds to more than the largest is too large.
    `value` stands for a bin that it begins: exactly halfway, the larger number counts.
    """
    if value >= each.limit:
        return LARGE
    if value < each.smallest / 2:
        return LOST
    return SUBNORMAL if value < each.normal and each.subnormals else NORMAL


def painted(name: str, boxes: Sequence[Box]) -> str:
    """Rectangles of a fate; if they are LOST or LARGE, all are equally wide."""
    edges = "".join(
        f"M{svg.number(x)} {svg.number(y)}h{svg.number(w)}v{svg.number(h)}h{svg.number(-w)}z"
        for x, y, w, h in boxes
    )
    out = f'<path d="{edges}" {LOOK[name]}/>'
    if name in UPRIGHT:
        out += _upright(boxes, UPRIGHT[name])
    if name in LEVEL:
        out += _level(boxes, *LEVEL[name])
    return out


def _upright(boxes: Sequence[Box], pitch: float) -> str:
    """Stripes from foot to head."""
    marks = ""
    for x, y, w, h in boxes:
        count = max(1, round(w / pitch))
        for part in range(count):
            marks += f"M{svg.number(x + (part + 0.5) * w / count)} {svg.number(y)}v{svg.number(h)}"
    return f'<path d="{marks}" {BLACK} stroke-width="1"/>'


def _level(boxes: Sequence[Box], look: str, pitch: float) -> str:
    """Stripes from side to side: each box is one broad dashed line."""
    wide = boxes[0][2]
    marks = "".join(
        f"M{svg.number(x + wide / 2)} {svg.number(y + h)}v{svg.number(-h)}" for x, y, _, h in boxes
    )
    dashes = f'stroke-width="{svg.number(wide)}" stroke-dasharray="1 {svg.number(pitch)}"'
    return f'<path d="{marks}" {look} {dashes}/>'
