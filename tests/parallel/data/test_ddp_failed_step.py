"""After a step that failed, data parallelism goes on rightly, or says that it is over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import Group
from course_lib.parallel import BucketedDDP, NaiveDDP, OverlapDDP
from course_lib.ranks import RanksError
from tests.tiers import sampled

KINDS = {"naive": NaiveDDP, "overlap": OverlapDDP, "bucketed": BucketedDDP}


class Fragile(nn.Module):
    """Three layers; `fault` says where its next step raises."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6).double() for _ in range(3))
        self.register_buffer("shift", torch.zeros(6, dtype=torch.float64))
        self.fault = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            hidden = torch.tanh(layer(x))
            if self.fault == f"forward {number}":
                raise ArithmeticError(self.fault)
            if self.fault == f"backward {number}":
                hidden.register_hook(self.give_up)
            x = hidden + self.shift
        return x

    def give_up(self, gradient: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError(self.fault)


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(6, 6, generator=generator, dtype=torch.float64)


def make(kind: str, model: nn.Module, group: Group) -> Any:
    small = (300, 300) if kind == "bucketed" else ()
    return KINDS[kind](model, group, *small)


def step(wrapped: Any, model: nn.Module, optimizer: Any, data: torch.Tensor) -> None:
    optimizer.zero_grad(set_to_none=False)
    wrapped(data).square().mean().backward()
    if isinstance(wrapped, NaiveDDP):
        wrapped.synchronize()
    optimizer.step()


def train(group: Group, kind: str, faults: list[str]) -> Any:
    """A good step, one with this rank's fault, and two good ones; the weights."""
    model = Fragile()
    wrapped = make(kind, model, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    mine = [batch(number).chunk(group.size)[group.index] for number in range(4)]
    step(wrapped, model, optimizer, mine[0])
    model.fault, raised = faults[group.index], ""
    try:
        step(wrapped, model, optimizer, mine[1])
    except ArithmeticError as error:
        raised = str(error)
    assert raised == model.fault
    model.fault = ""
    for number in (2, 3):
        step(wrapped, model, optimizer, mine[number])
    return [p.detach().clone() for p in model.parameters()]


def alone() -> list[torch.Tensor]:
    model = Fragile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in (0, 2, 3):
        step(model, model, optimizer, batch(number))
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("world", sampled([3, 2], 2))
@pytest.mark.parametrize("fault", ["forward 1", "backward 0", "backward 1", "backward 2"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_all_fail_and_go_on(
    ranks: Callable[..., list[Any]], kind: str, fault: str, world: int
) -> None:
    for weights in ranks(train, world, kind, [fault] * world):
        torch.testing.assert_close(weights, alone(), rtol=1e-9, atol=1e-12)


def story(ranks: Callable[..., list[Any]], kind: str, faults: list[str]) -> tuple[str, Any]:
    with pytest.raises(RanksError) as caught:
        ranks(train, 2, kind, faults)
    return str(caught.value), caught.value.outcome.reports


@pytest.mark.parametrize("fault", sampled(["backward 2", "forward 1", "backward 0"], 3))
@pytest.mark.parametrize("kind", list(KINDS))
def test_one_fails_alone_and_says_so(
    ranks: Callable[..., list[Any]], kind: str, fault: str
) -> None:
    told, reports = story(ranks, kind, ["", fault])
    assert "on rank 1 it failed, and not on every other one" in told
    assert "make this wrapper again on each" in told
    assert reports[0]["state"] == "raised", "it must not go on with a batch of rank 1's next step"


def test_failures_at_different_places(ranks: Callable[..., list[Any]]) -> None:
    told, reports = story(ranks, "bucketed", ["backward 0", "backward 2"])
    found = re.search(
        r"it failed, and after different numbers of collectives: \[(\d+), (\d+)]", told
    )
    assert found and int(found[1]) - int(found[2]) == 4, told
    assert [report["state"] for report in reports.values()] == ["raised"] * 2


def test_nothing_of_a_failed_step_is_left_for_a_window(ranks: Callable[..., list[Any]]) -> None:
    def run(group: Group) -> Any:
        model = Fragile()
        wrapped = make("bucketed", model, group)
        model.fault = "backward 0"
        with pytest.raises(ArithmeticError):
            wrapped(batch(0)).square().mean().backward()
        model.fault = ""
        with wrapped.no_sync():  # a window of two micro-batches, the first of which sends nothing
            wrapped(batch(1)).square().mean().backward()
        wrapped(batch(2)).square().mean().backward()
        return [p.grad for p in model.parameters()]

    model = Fragile()
    for number in (1, 2):
        model(batch(number)).square().mean().backward()
    for gradients in ranks(run, 2):
        expected = [p.grad for p in model.parameters()]
        torch.testing.assert_close(gradients, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["overlap", "bucketed"])
def test_what_is_under_way_writes_into_no_later_step(
    ranks: Callable[..., list[Any]], kind: str
) -> None:
    def run(group: Group) -> Any:
        model = Fragile()
        wrapped = make(kind, model, group)
        model.fault = "backward 0"
        with pytest.raises(ArithmeticError):
            wrapped(batch(0)).square().mean().backward()
        assert wrapped._under_way, "all-reduces were begun before it failed"
        model.fault = ""
        wrapped(batch(1).chunk(2)[group.index])
        return len(wrapped._under_way), [p.grad for p in model.parameters()]

    assert ranks(run, 2) == [(0, [None] * 6)] * 2


def test_evaluation_does_not_ask_the_others(ranks: Callable[..., list[Any]]) -> None:
    def run(group: Group) -> bool:
        model = Fragile()
        wrapped = BucketedDDP(model, group)
        model.fault = "forward 0"
        with pytest.raises(ArithmeticError):
            wrapped(batch(0))
        model.fault = ""
        if group.rank == 0:
            wrapped.eval()
            with torch.no_grad():
                wrapped(batch(0))
            wrapped.train()
        wrapped(batch(0)).sum().backward()
        return True

    assert ranks(run, 2) == [True, True]
