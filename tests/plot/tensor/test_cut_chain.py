"""The picture of a tensor's cuts: one more operation in each frame, in the ranks' colours."""

from __future__ import annotations

import pytest

from course_lib.plot import CutLink, cut_chain_steps, rank_color
from course_lib.trace import Refusal

LINKS = [
    CutLink("", "x", "rows"),
    CutLink("all-gather", "all tokens", "whole", sends=True),
    CutLink("· A", "y", "columns"),
    CutLink("· B", "summands", "parts"),
]


def test_each_frame_shows_one_more_tensor_and_how_it_is_cut():
    player = cut_chain_steps(LINKS, rows="tokens", columns="channels", ranks=2)
    shown = [sum(bool(part) for part in frame.parts[1:]) for frame in player.frames]
    assert shown == [1, 2, 3, 4]
    colors = [[part.count(rank_color(r)) for r in (0, 1)] for part in player.frames[-1].parts[1:]]
    assert colors == [[1, 1], [0, 0], [1, 1], [1, 1]]
    assert [frame.caption for frame in player.frames] == [
        "At the start, each rank has some tokens.",
        "After all-gather, every rank has the whole. This operation sends.",
        "After · A, each rank has some channels.",
        "After · B, each rank has one summand of the whole.",
    ]


def test_rows_and_columns_share_the_tensor_evenly():
    parts = cut_chain_steps(LINKS, rows="t", columns="c", ranks=4).frames[-1].parts
    assert parts[1].count('height="27"') == 4 and parts[3].count('width="14.5"') == 4


def test_what_does_not_fit_is_refused():
    with pytest.raises(Refusal, match="room for"):
        cut_chain_steps(LINKS[:1], rows="t", columns="c")
