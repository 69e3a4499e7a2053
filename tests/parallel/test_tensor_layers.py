"""Linear layers cut over ranks: what they take over from the whole ones, and how to call them."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    SequenceRegion,
    TensorRegion,
    VocabParallelEmbedding,
    sum_gradients_of,
)
from course_lib.parallel.tensor.tensor_parallel import HeadCut, InnerRegion


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


def test_a_bias_that_sees_a_part_of_the_tokens_has_the_gradient_of_all(ranks: Any) -> None:
    def on_rank(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        first, last = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()
        x = torch.randn(2, 6, 4, dtype=torch.float64)
        region = SequenceRegion(group)
        up, down = ColumnParallelLinear(first, region), RowParallelLinear(last, region)
        last(first(x).tanh()).pow(2).sum().backward()
        down(up(x.chunk(group.size, 1)[group.index]).tanh()).pow(2).sum().backward()
        assert last.bias.grad is not None and down.bias is not None and down.bias.grad is not None
        return last.bias.grad, down.bias.grad

    for whole, summed in ranks(on_rank, 3):
        torch.testing.assert_close(summed, whole)


def test_a_bias_before_its_sum_is_refused(ranks: Any) -> None:
    """Each rank would add it, and the sum that is made further on would have it N times."""

    def on_rank(group: Group) -> None:
        with pytest.raises(CommError, match="add the bias once"):
            RowParallelLinear(nn.Linear(5, 3), InnerRegion(group))
        RowParallelLinear(nn.Linear(5, 3, bias=False), InnerRegion(group))

    ranks(on_rank, 2)


def test_a_copy_of_a_module_has_its_sums_too(ranks: Any) -> None:
    def on_rank(group: Group) -> list[float]:
        norm = nn.Linear(1, 1, bias=False)
        sum_gradients_of(list(norm.parameters()), group)
        found = []
        for module in (norm, copy.deepcopy(norm), copy.deepcopy(copy.deepcopy(norm))):
            module(torch.tensor([1.0 + group.index])).sum().backward()
            assert isinstance(module.weight.grad, torch.Tensor)
            found.append(module.weight.grad.item())
        file = io.BytesIO()
        torch.save([norm.weight], file)
        file.seek(0)
        assert torch.equal(torch.load(file)[0], norm.weight), "no hook is in a file"
        return found

    assert ranks(on_rank, 2) == [[3.0, 3.0, 3.0]] * 2


def test_attention_without_heads_is_refused(ranks: Any) -> None:
    def on_rank(group: Group) -> None:
        for heads, kv_heads in ((4, 0), (0, 1)):
            with pytest.raises(CommError, match="whole heads"):
                HeadCut(heads, kv_heads, group)

    ranks(on_rank, 2)
