"""One set of rules: what they say is what the library can do, and what its cuts are."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.layout import Layout, cut_misfits, misfits, tokens_of_ranks, uneven_batch
from course_lib.model import ModelConfig, MoEConfig
from course_lib.parallel import SequenceLayout
from course_lib.trace import Refusal

DENSE = ModelConfig(4, 64, 4, 2, 96, sequence=24)
EXPERTS = ModelConfig(4, 64, 4, 2, 96, sequence=24, moe=MoEConfig(4, 2))


def whys(model: ModelConfig, **degrees: object) -> str:
    return "; ".join(refusal.why for refusal in misfits(model, Layout(**degrees)))  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, 5, 6, 7, 24, 127])
@pytest.mark.parametrize("cp", [1, 2, 3, 4, 6])
def test_tokens_are_those_that_the_ranks_have(length: int, cp: int) -> None:
    if length >= cp:
        dealt = SequenceLayout.zigzag(length, cp)
        assert tokens_of_ranks(length, cp) == [dealt.count(index) for index in range(cp)]


@pytest.mark.parametrize(
    "degrees",
    [
        {}, {"tp": 4}, {"tp": 2, "sequence": True}, {"cp": 24}, {"pp": 4}, {"dp": 7},
        {"pp": 2, "schedule": "ZB-V"}, {"cp": 3, "tp": 4, "sequence": True},
        {"pp": 2, "chunks": 2, "schedule": "interleaved 1F1B"},
        {"pp": 4, "chunks": 9},  # not interleaved: nobody asks for its chunks
    ],
    ids=str,
)  # fmt: skip
def test_what_can_be_is_not_refused(degrees: dict[str, object]) -> None:
    assert whys(DENSE, **degrees) == ""


@pytest.mark.parametrize(
    ("model", "degrees", "why"),
    [
        (DENSE, {"tp": 3}, "tp divides the 4 heads of queries"),
        (DENSE, {"tp": 8}, "tp divides the 4 heads of queries"),
        (DENSE, {"cp": 25}, "24 tokens are fewer than cp 25"),
        (DENSE, {"cp": 5, "tp": 2, "sequence": True}, "24 tokens do not divide over cp 5 and tp 2"),
        (DENSE, {"ep": 2}, "a dense model has no experts for ep 2"),
        (EXPERTS, {"ep": 8}, "4 experts for ep 8: every rank has one or more"),
        (EXPERTS, {"tp": 2, "sequence": True}, "an expert's rows are of many sequences"),
        (DENSE, {"pp": 8}, "4 blocks are fewer than 8 stages"),
        (DENSE, {"pp": 4, "schedule": "DualPipeV"}, "4 blocks are fewer than 8 stages"),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(model: ModelConfig, degrees: dict[str, object], why: str) -> None:
    assert why in whys(model, **degrees)


@pytest.mark.parametrize(
    "given",
    [{"dp": 1.5}, {"tp": "2"}, {"cp": 0}, {"pp": float("nan")}, {"zero": 1.5}, {"zero": 4},
     {"recompute": "ful"}, {"precision": "tf32"}],
    ids=str,
)  # fmt: skip
def test_what_is_no_layout(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="whole numbers from 1 on"):
        Layout(**given)


def test_a_matrix_has_a_part_for_each_rank() -> None:
    small = ModelConfig(1, 128, 64, 64, 32, vocabulary=48)
    found = [refusal.found for refusal in cut_misfits(small, 64, sequence=False)]
    assert found == ["32 inner channels", "48 tokens to know"]


def test_a_batch_is_cut_evenly() -> None:
    layout = Layout(dp=2, ep=3, micro_batches=4)
    assert uneven_batch(24, layout, 4) is None
    refusal = uneven_batch(30, layout, 4)
    assert refusal is not None and refusal.found == "6 ranks (dp × ep) with 4 micro-batches each"
