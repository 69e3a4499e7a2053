"""The picture of the cut of heads: what each rank has, and which gradients are summed."""

from __future__ import annotations

import pytest

from course_lib.plot import head_cut_steps
from course_lib.plot.tensor.head_cut import sharers
from course_lib.trace import Refusal

OWN = [([0, 1], [0]), ([2, 3], [1])]
SHARED = [([0, 1], [0]), ([2, 3], [0])]


def test_heads_stand_on_their_ranks_and_shared_ones_are_summed():
    player = head_cut_steps({"2 key-value heads": OWN, "1 key-value head": SHARED})
    own, shared = (frame.parts[0] for frame in player.frames)
    assert all(own.count(f">{words}<") == 1 for words in ("q0", "q3", "k0, v0", "k1, v1"))
    assert "sum the gradients" not in own and "nothing is shared" in player.frames[0].caption
    assert shared.count(">k0, v0<") == 2
    assert shared.count(">sum the gradients of k0, v0<") == 1
    assert "2 ranks hold a copy" in player.frames[1].caption


def test_only_heads_of_several_ranks_are_shared():
    assert sharers(OWN) == {} and sharers(SHARED) == {0: [0, 1]}


def test_frames_of_different_worlds_are_refused():
    with pytest.raises(Refusal, match="same ranks"):
        head_cut_steps({"two": OWN, "one": OWN[:1]})
