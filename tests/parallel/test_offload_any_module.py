"""Offload of awkward modules: right, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.parallel import DevicePool, LayerStream, NvmeOptimizer, NvmeStore
from course_lib.parallel.offload.activation_offload import offload_activations
from course_lib.parallel.offload.optimizer import OffloadedOptimizer
from course_lib.trace import Refusal

X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)


@pytest.fixture
def pool() -> Iterator[DevicePool]:
    with DevicePool(10**7) as pool:
        yield pool


def stack(depth: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth))).double()


@pytest.mark.parametrize("order", [(1, 2, 0), (0, 2, 1), (1, 2)])
def test_layers_called_in_another_order_are_refused(pool: DevicePool, order: Any) -> None:
    """Their gradients would be fetched before they are there."""
    layers = stack()
    LayerStream(list(layers), pool)
    with pytest.raises(Refusal, match="in the order in which they were given"):
        nn.Sequential(*(layers[n] for n in order))(X)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2), (0, 1, 0, 1)])
def test_layers_left_out_or_used_again(pool: DevicePool, order: Any) -> None:
    alone, layers = stack(), stack()
    stream = LayerStream(list(layers), pool)
    for model in (alone, layers):
        for _ in range(2):
            nn.Sequential(*(model[n] for n in order))(X).pow(2).sum().backward()
    for master, right in zip(stream.parameters(), alone.parameters(), strict=True):
        if right.grad is not None:
            torch.testing.assert_close(master.grad, right.grad)


def test_what_else_a_stream_refuses(pool: DevicePool) -> None:
    tied = stack(2)
    tied[1].weight.data = tied[0].weight.data
    with pytest.raises(ValueError, match="weight of layer 0 and weight of layer 1, two tensors in"):
        LayerStream(list(tied), pool)
    layer = nn.RNN(4, 4).double()
    LayerStream([layer], pool)
    with pytest.raises(Refusal, match="it returned a tuple"):
        layer(X)


Make = Callable[[Any, Any], Any]


@pytest.fixture(params=["host", "during backward", "files"])
def make(request: Any, pool: DevicePool, tmp_path: Path) -> Iterator[Make]:
    with NvmeStore(tmp_path) as store:
        if request.param == "files":
            yield lambda params, kind: NvmeOptimizer(params, kind, pool, store, lr=0.1)
        else:
            early = request.param == "during backward"
            yield lambda params, kind: OffloadedOptimizer(params, kind, pool, early, lr=0.1)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad])
def test_sparse_gradients(make: Make, kind: Any) -> None:
    found = []
    for optimizer_of in (make, lambda params, kind: kind(params, lr=0.1)):
        torch.manual_seed(0)
        table = nn.Embedding(6, 3, sparse=True)
        optimizer = optimizer_of(list(table.parameters()), kind)
        for _ in range(3):
            optimizer.zero_grad()
            table(torch.tensor([1, 2, 1])).pow(2).sum().backward()
            optimizer.step()
        found.append(table.weight.detach())
    torch.testing.assert_close(*found)


def test_parameters_in_the_same_memory_are_refused(make: Make) -> None:
    tied = stack(2)
    tied[1].weight.data = tied[0].weight.data
    with pytest.raises(ValueError, match="two tensors in the same memory"):
        make(list(tied.parameters()), torch.optim.SGD)


def test_sparse_activations_stay(pool: DevicePool) -> None:
    x = torch.randn(40, 40, requires_grad=True)
    with offload_activations(pool):
        y = torch.sparse.mm(torch.eye(40).to_sparse(), x.sin()).pow(2).sum()
    y.backward()
    torch.testing.assert_close(x.grad, 2 * x.sin() * x.cos())
