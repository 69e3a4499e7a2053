"""A rank that fails alone: no process is killed by it, no number is wrong, and it says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import Group, ring_all_gather, ring_reduce_scatter
from course_lib.parallel import FSDP, Zero2
from course_lib.ranks import RanksError
from course_lib.trace.ledger import Counted


class Planned(Exception):
    """The failure."""


class Deep(nn.Module):
    """Layers of different sizes, so that messages of different calls do not fit each other."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (4, 7, 5, 9, 3)
        self.layers = nn.ModuleList(
            nn.Linear(*pair) for pair in zip(sizes, sizes[1:], strict=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def fail(place: str) -> Callable[..., None]:
    def error(*_: object) -> None:
        raise Planned

    def error_later(_: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        args[0].register_hook(error)

    return error if place == "forward" else error_later


def begin_again(group: Group, kind: str, place: str) -> None:
    """Rank 1 fails in a step, rank 0 does not; both begin it again."""
    model = Deep()
    wrapped: Any = FSDP(model, group, model.layers) if kind == "fsdp" else model
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if kind == "zero2":
        optimizer = Zero2(model.parameters(), torch.optim.SGD, group, cap=200, lr=0.1)
    hook = model.layers[2].register_forward_pre_hook(fail(place)) if group.index else None
    for _ in range(2):
        with suppress(Planned):
            optimizer.zero_grad()
            wrapped(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        if hook is not None:
            hook.remove()


@pytest.mark.parametrize(
    ("kind", "place"), [("fsdp", "forward"), ("fsdp", "backward"), ("zero2", "backward")]
)
def test_one_fails_alone_and_says_so(
    ranks: Callable[..., list[Any]], kind: str, place: str
) -> None:
    with pytest.raises(RanksError) as caught:
        ranks(begin_again, 2, kind, place)
    assert caught.value.outcome.verdict != "died", "gloo ends a process that gets another size"
    assert "on rank 1 it failed, and not on every other one" in str(caught.value)


def call_other(group: Group) -> None:
    """Rank 0 reduces what rank 1 gathers, as it does in a step that it makes twice."""
    if group.index == 0:
        ring_reduce_scatter(torch.ones(8), group)
    else:
        ring_all_gather(torch.ones(8), group)


def test_a_sum_and_a_gather_of_equal_sizes_do_not_meet(ranks: Callable[..., list[Any]]) -> None:
    with pytest.raises(RanksError) as caught:
        ranks(call_other, 2)
    assert caught.value.outcome.verdict == "deadlock"


def fail_alike(group: Group) -> int:
    """By the ledger, rank 1 has begun a collective more, in a cell that was given up before."""
    if group.index:
        sort = Counted(group.ranks, "collective", -1)
        group.ledger.counts[sort] = group.ledger.counts.get(sort, 0) + 1
    model = Deep()
    wrapped = FSDP(model, group, model.layers)
    with suppress(RuntimeError):
        wrapped(torch.ones(2, 5))
    return len(wrapped(torch.ones(2, 4)))


def test_what_was_called_before_the_wrapper_does_not_count(
    ranks: Callable[..., list[Any]],
) -> None:
    assert ranks(fail_alike, 2) == [2, 2]
