"""The picture of a softmax in blocks: what it keeps is what a softmax of all would find."""

from __future__ import annotations

import pytest
import torch

from course_lib.plot import running_softmax_steps
from course_lib.plot.attention.running_softmax import kept
from course_lib.trace import Refusal

SCORES, VALUES = [[1.0, -2.0], [3.0, 0.5], [0.0]], [[1.0, 2.0], [-1.0, 0.0], [4.0]]


def test_after_the_last_block_it_is_the_softmax_of_all():
    flat = torch.tensor([s for block in SCORES for s in block])
    values = torch.tensor([v for block in VALUES for v in block])
    most, total, result = kept(SCORES, VALUES)
    assert (most, total) == (3.0, pytest.approx((flat - 3).exp().sum().item()))
    assert result == pytest.approx((flat.softmax(0) @ values).item())


def test_a_larger_score_shrinks_what_was_kept():
    frames = running_softmax_steps(SCORES, VALUES).frames
    assert [frame.caption.count("multiplied by 0.135") for frame in frames] == [0, 1, 0]
    assert frames[2].caption.endswith("multiplied by 1.000.")
    assert [frame.parts[1].count("<rect") for frame in frames] == [2, 4, 5]


def test_scores_without_their_values_are_refused():
    with pytest.raises(Refusal, match="each key"):
        running_softmax_steps(SCORES, VALUES[:2])
