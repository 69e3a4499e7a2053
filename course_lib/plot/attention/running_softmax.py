"""A softmax whose scores come in blocks: what is kept of the blocks before, and how it shrinks.

Paper: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import rank_color
from course_lib.trace import Refusal

WIDTH, HEIGHT, LEFT, FOOT, TALL, RIGHT = 800, 250, 24, 206, 130, 470
Blocks = Sequence[Sequence[float]]


def running_softmax_steps(scores: Blocks, values: Blocks) -> Player:
    """A player with one frame for each block of keys that one query has seen.

    Args:
        scores: of the query with the keys, block by block.
        values: one number for each key, block by block.

    Raises:
        Refusal: there is no score, or the values are not those of the scores.
    """
    if not scores or [len(b) for b in scores] != [len(b) for b in values] or not all(scores):
        raise Refusal(
            f"a softmax over {len(scores)} blocks of scores",
            f"scores {[len(b) for b in scores]}, values {[len(b) for b in values]}",
            "each key has a score and a value, and no block is empty",
        )
    frames = [_frame(scores, values, seen) for seen in range(1, len(scores) + 1)]
    return Player(
        (WIDTH, HEIGHT),
        svg.line([(LEFT, FOOT), (RIGHT - 30, FOOT)], width=1),
        [(LEFT, 28), (LEFT, FOOT), (RIGHT, 80)],
        frames,
        title=f"a softmax over {len(scores)} blocks",
        alt=" ".join(frame.caption for frame in frames),
        still=min(1, len(frames) - 1),  # the first block that may change the old sums
    )


def kept(scores: Blocks, values: Blocks) -> tuple[float, float, float]:
    """The largest score, the sum of exponentials relative to it, and the weighted mean."""
    flat = [score for block in scores for score in block]
    most = max(flat)
    exponentials = [math.exp(score - most) for score in flat]
    total = sum(exponentials)
    flat_values = [value for block in values for value in block]
    result = sum(e * v for e, v in zip(exponentials, flat_values, strict=True)) / total
    return most, total, result


def _frame(scores: Blocks, values: Blocks, seen: int) -> Frame:
    most, total, result = kept(scores[:seen], values[:seen])
    head = f"after block {seen - 1}: {seen} of {len(scores)} blocks seen"
    rows = [("largest score m", most), ("sum of exp(score − m)", total), ("result", result)]
    words = f"Block {seen - 1}: m = {most:.2f}, the sum is {total:.2f}, the result {result:.3f}."
    if seen > 1:
        before, _, _ = kept(scores[: seen - 1], values[: seen - 1])
        shrink = math.exp(before - most)
        rows.insert(1, ("the old sum shrinks by exp(m_old − m)", shrink))
        words += f" What was kept before is multiplied by {shrink:.3f}."
    table = "".join(
        svg.text(0, 26 * n, name, size=12.5, anchor="start")
        + svg.text(300, 26 * n, f"{value:.3f}", size=12.5, anchor="end", bold=True)
        for n, (name, value) in enumerate(rows)
    )
    title = svg.text(0, 0, head, size=15, anchor="start", bold=True)
    return Frame((title, _bars(scores, seen, most), table), words)


def _bars(scores: Blocks, seen: int, most: float) -> str:
    """exp(score − m) of each key that was seen, in the colour of its block."""
    wide = (RIGHT - 30 - LEFT) / sum(len(block) for block in scores)
    out, place = [], 0
    for number, block in enumerate(scores):
        for score in block:
            x = place * wide
            if number < seen:
                high = max(1.0, TALL * math.exp(score - most))
                color = rank_color(number)
                out.append(svg.box(x + 3, -high, wide - 6, high, fill=color, radius=2))
            out.append(svg.text(x + wide / 2, 17, f"{score:.1f}", size=11.5, kind="soft"))
            place += 1
    return "".join(out) + svg.text(0, 36, "scores", size=11.5, kind="soft", anchor="start")
