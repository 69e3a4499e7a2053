"""Linear layers cut over ranks: what they take over from the whole ones, and how to call them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    TensorRegion,
    VocabParallelEmbedding,
    sum_gradients_of,
)


def test_what_is_frozen_stays_so(ranks: Any) -> None:
    """Under LoRA the base is frozen; a step over all that is trained would move it."""

    def on_rank(group: Group) -> list[bool]:
        region = TensorRegion(group)
        first, last, table = nn.Linear(4, 5), nn.Linear(5, 3), nn.Embedding(7, 4)
        for full in (first.weight, last.bias, table.weight):
            full.requires_grad_(False)
        cut = nn.ModuleList(
            [
                ColumnParallelLinear(first, region),
                RowParallelLinear(last, region),
                VocabParallelEmbedding(table, region),
            ]
        )
        sum_gradients_of(list(cut.parameters()), group)
        return [p.requires_grad for p in cut.parameters()]

    assert ranks(on_rank, 2) == [[False, True, True, False, False]] * 2


class FeedForward(nn.Module):
    """Its first argument enters the region once, for both matrices."""

    def __init__(self, region: TensorRegion) -> None:
        super().__init__()
        torch.manual_seed(0)
        full = nn.Linear(4, 6).double(), nn.Linear(4, 6).double(), nn.Linear(6, 3).double()
        self.gate, self.up = (ColumnParallelLinear(f, region, entered=True) for f in full[:2])
        self.down = RowParallelLinear(full[2], region)
        region.entered_by(self)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.down(self.gate(x).sigmoid() * self.up(x)) * scale


def test_a_module_may_be_entered_by_keyword(ranks: Any) -> None:
    def on_rank(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        module, slopes = FeedForward(TensorRegion(group)), []
        for keyword in (False, True):
            x = torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4).requires_grad_()
            y = module(scale=2.0, x=x) if keyword else module(x, scale=2.0)
            y.pow(2).sum().backward()
            assert x.grad is not None
            slopes.append(x.grad)
        return slopes[0], slopes[1]

    for by_place, by_keyword in ranks(on_rank, 3):
        assert by_place.abs().sum() > 0 and torch.equal(by_place, by_keyword)
