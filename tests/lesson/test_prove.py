"""What `prove`, `learn`, `memory_by_class` and `show` say of right and of wrong strategies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import Group
from course_lib.lesson import largest_gap, learn, memory_by_class, prove, show
from course_lib.parallel import FSDP, BucketedDDP, NaiveDDP, Zero1
from course_lib.ranks import run_on_ranks
from course_lib.schedule import one_f_one_b
from course_lib.trace import Refusal
from course_lib.train import StagedModel
from tests.tiers import sampled

Make = Callable[..., Any]


def ddp(model: nn.Module, group: Group, make: Make) -> tuple[nn.Module, Any]:
    return BucketedDDP(model, group), make(model.parameters())


def naive(model: nn.Module, group: Group, make: Make) -> tuple[nn.Module, Any]:
    return NaiveDDP(model, group), make(model.parameters())


def zero1(model: nn.Module, group: Group, make: Make) -> tuple[nn.Module, Any]:
    return model, Zero1(model.parameters(), make, group)


def zero3(model: nn.Module, group: Group, make: Make) -> tuple[nn.Module, Any]:
    wrapped = FSDP(model, group, units=model.blocks)  # type: ignore[arg-type]
    return wrapped, make(wrapped.parameters())


def apart(model: nn.Module, group: Group, make: Make) -> tuple[nn.Module, Any]:
    """Wrong: nothing is averaged."""
    return model, make(model.parameters())


class Summed(NaiveDDP):
    """Wrong: the sum of the gradients, not their mean."""

    def synchronize(self) -> None:
        super().synchronize()
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad *= self.group.size


def summed(model: nn.Module, group: Group, make: Make) -> tuple[nn.Module, Any]:
    return Summed(model, group), make(model.parameters())


RIGHT = {"DDP": ddp, "naive": naive, "ZeRO-1": zero1, "ZeRO-3": zero3}


def proved(group: Group) -> tuple[Any, Any]:
    right, wrong = prove(RIGHT, group, steps=2), prove({"apart": apart, "summed": summed}, group)
    return (right.largest, repr(right)), wrong.gaps


@pytest.mark.parametrize("world", sampled([3, 1, 2], 3))
def test_right_strategies_are_one_process(world: int) -> None:
    for (largest, words), _ in run_on_ranks(proved, world):
        assert largest < 1e-9
        assert len(words.splitlines()) == 2 * len(RIGHT)
        assert words.count("gradients in parts only") == 2  # ZeRO-1 has no whole gradient


def test_wrong_ones_are_not_and_every_rank_says_so() -> None:
    found = [gaps for _, gaps in run_on_ranks(proved, 2)]
    assert found[0] == found[1]
    gaps = found[0]
    assert gaps["summed", "SGD"].gradients == pytest.approx(1.0)  # twice what it should be
    assert gaps["summed", "AdamW"].gradients == pytest.approx(1.0)
    assert gaps["apart", "SGD"].gradients > 0.1
    assert gaps["apart", "AdamW"].weights > 1e-3


def in_stages(model: Any, group: Group, make: Make) -> tuple[Any, Any]:
    staged = StagedModel(model, one_f_one_b(2, 5), group)  # 12 sequences: unequal micro-batches
    return staged, make(staged.own.values())


def without_its_head(model: Any, group: Group, make: Make) -> tuple[Any, Any]:
    staged, optimizer = in_stages(model, group, make)
    staged.own.pop("head.weight", None)
    return staged, optimizer


def proved_in_stages(group: Group) -> tuple[float, list[float], str]:
    proof = prove({"1F1B": in_stages}, group, steps=2, same_batch=True)
    curves = learn({"1F1B": in_stages}, group, steps=2, same_batch=True)
    gaps = [a - b for a, b in zip(curves["1F1B"], curves["one process"], strict=True)]
    with pytest.raises(Refusal) as refused:
        prove({"headless": without_its_head}, group, steps=1, same_batch=True)
    return proof.largest, gaps, refused.value.found


@pytest.mark.slow
def test_a_pipeline_is_one_process_and_none_of_it_may_be_left_out() -> None:
    for largest, gaps, refused in run_on_ranks(proved_in_stages, 2):
        assert largest < 1e-9
        assert gaps == pytest.approx([0.0, 0.0], abs=1e-5)
        assert refused == "no rank holds head.weight"


def curves(group: Group) -> dict[str, list[float]]:
    return learn({"DDP": ddp, "apart": apart}, group, steps=6)


@pytest.mark.slow
def test_the_curve_of_ddp_is_that_of_one_process() -> None:
    first, second = run_on_ranks(curves, 2)
    assert first == second
    assert first["DDP"] == pytest.approx(first["one process"], abs=1e-5)
    assert first["apart"][-1] != pytest.approx(first["one process"][-1], abs=1e-4)


def held(group: Group) -> dict[str, dict[str, int]]:
    found = {}
    for name, strategy in (("DDP", ddp), ("ZeRO-1", zero1), ("ZeRO-3", zero3)):
        model = nn.Module()
        model.blocks = nn.ModuleList([nn.Linear(8, 8, bias=False) for _ in range(2)])
        model.forward = lambda x, m=model: m.blocks[1](m.blocks[0](x))  # type: ignore[assignment]
        wrapped, optimizer = strategy(model, group, torch.optim.Adam)
        for _ in range(2):
            optimizer.zero_grad()
            wrapped(torch.ones(2, 8)).sum().backward()
            found[name] = memory_by_class(wrapped, optimizer)
            optimizer.step()
    return found


def test_memory_by_class_is_the_formula() -> None:
    whole = 2 * 8 * 8 * 4
    for found in run_on_ranks(held, 2):
        assert list(found["DDP"].values()) == [whole, whole, 2 * whole]
        assert list(found["ZeRO-1"].values()) == [whole, whole, whole]
        assert list(found["ZeRO-3"].values()) == [whole // 2, whole // 2, whole]


def gap_of_one_rank(group: Group) -> float:
    exact = [torch.zeros(3), torch.tensor([4.0])]
    found = [tensor + (group.index == 1) for tensor in exact]
    return largest_gap(found, exact, group)


@pytest.mark.slow
def test_the_gap_of_one_rank_is_everybodys() -> None:
    assert run_on_ranks(gap_of_one_rank, 2) == [0.25, 0.25]


def test_show_gives_the_librarys_lines_and_their_place() -> None:
    source = show(NaiveDDP.synchronize)
    assert source.text.startswith("@torch.no_grad()") or source.text.startswith("def synchronize")
    assert source.file.startswith("course_lib/parallel/data/")
    lines = (show.__code__.co_filename, source._repr_markdown_())
    assert "```python" in lines[1]
    assert source.file in repr(source)


def test_no_number_is_as_far_as_can_be(ranks: Any) -> None:
    """The largest over ranks leaves NaN out, if that comes second."""

    def gaps(group: Group) -> list[float]:
        one, empty = torch.ones(2), torch.zeros(0)
        found = [
            largest_gap([one * torch.nan if group.index == bad else one], [one], group)
            for bad in range(group.size)
        ]
        return [*found, largest_gap([one, empty], [one, empty], group),
                largest_gap([0 * one], [0 * one], group)]  # fmt: skip

    def spoilt(model: nn.Module, group: Group, make: Make) -> tuple[nn.Module, Any]:
        wrapped, optimizer = ddp(model, group, make)

        def spoil(*_: Any) -> None:
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)

        if group.index == 1:
            optimizer.register_step_post_hook(spoil)
        return wrapped, optimizer

    def proof(group: Group) -> float:
        return prove({"spoilt": spoilt}, group, optimizers=("SGD",), steps=1).largest

    assert ranks(gaps, 3) == [[math.inf] * 3 + [0.0, 0.0]] * 3
    assert ranks(proof, 2) == [math.inf] * 2


def test_parts_of_a_batch_that_are_not_equal_prove_nothing(ranks: Any) -> None:
    def proof(group: Group) -> str:
        with pytest.raises(Refusal) as refused:
            prove({"DDP": ddp}, group)
        return refused.value.found

    assert ranks(proof, 5) == ["12 rows in a batch"] * 5


@pytest.mark.parametrize("thing", [len, nn.Linear, FSDP, nn.functional.relu, ddp])
def test_show_refuses_what_is_not_ours_or_too_long(thing: Any) -> None:
    with pytest.raises(Refusal, match="show"):
        show(thing)
