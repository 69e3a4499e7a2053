"""ZeRO-1 whose gradients are averaged before the step, so that they can be clipped between."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group, all_reduce
from course_lib.parallel import Zero1

MAX_NORM = 0.5


def model_of() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def rows(step: int) -> torch.Tensor:
    return torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(step))


def alone() -> list[torch.Tensor]:
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        for half in rows(step).split(3):
            model(half).pow(2).sum(1).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def sharded(group: Group) -> tuple[list[torch.Tensor], list[str], str]:
    """Two backwards a step, and each averaged: the second average is added to the first."""
    model = model_of()
    optimizer = Zero1(model.parameters(), torch.optim.AdamW, group, lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        for half in rows(step).split(3):
            model(half[group.index :: group.size]).pow(2).sum(1).mean().backward()
            optimizer.reduce_gradients()
        squares = torch.stack([p.grad.pow(2).sum() for p in optimizer.shard()]).sum()
        all_reduce(squares, group)
        for piece in optimizer.shard():
            piece.grad.mul_((MAX_NORM / (squares.sqrt() + 1e-6)).clamp(max=1.0))
        place = group.ledger.place()
        optimizer.step()
    sends = [e.op for e in group.ledger.events[place.events :] if e.parent < 0]
    try:
        optimizer.reduce_gradients()
    except CommError as error:
        return [p.detach() for p in model.parameters()], sends, str(error)
    return [], [], ""


def test_equal_to_one_process_that_clips(ranks: Any) -> None:
    expected = alone()
    for found, sends, refused in ranks(sharded, 3):
        for part, right in zip(found, expected, strict=True):
            torch.testing.assert_close(part, right, rtol=1e-9, atol=1e-12)
        assert sends == ["all_gather"], "the step has nothing left to reduce"
        assert "none for 4 of them" in refused
