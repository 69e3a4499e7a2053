"""Data parallelism on models that are not a chain of matrices: as in one process, or refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel import BucketedDDP, NaiveDDP, OverlapDDP

Ranks = Callable[..., list[Any]]
KINDS = {"naive": NaiveDDP, "overlap": OverlapDDP, "bucketed": BucketedDDP}


@dataclass
class Answer:
    """An output that torch's pytrees do not know."""

    inside: dict[str, torch.Tensor]
    note: str = ""


class InDataclass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()

    def forward(self, x: torch.Tensor) -> Answer:
        return Answer({"y": torch.tanh(self.layer(x))})

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex128))
        self.real = nn.Parameter(torch.randn(4, dtype=torch.float64))
        self.single = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.to(self.weight.dtype) @ self.weight
        return (y * torch.conj(y + 1j * self.real)).abs() * self.single.double()


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        conv = nn.Conv2d(2, 3, 2, bias=False).double()
        self.body = nn.Sequential(conv, nn.BatchNorm2d(3).double(), nn.ReLU(), nn.Flatten())
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x.view(-1, 2, 2, 4))


class Twice(nn.Module):
    """One layer used twice, and two parameters that share their storage and not their object."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()
        whole = torch.randn(6, 4, dtype=torch.float64)
        self.front, self.back = nn.Parameter(whole[:4]), nn.Parameter(whole[2:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.layer(x))) @ self.front + x @ self.back


class Joined(nn.Module):
    """Two weights whose gradients are views of one tensor, as autograd leaves them."""

    def __init__(self) -> None:
        super().__init__()
        self.upper = nn.Parameter(torch.randn(2, 3, dtype=torch.float64))
        self.lower = nn.Parameter(torch.randn(2, 3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.cat([self.upper, self.lower])


def part_of(step: int, index: int = 0, size: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    whole = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    return whole.chunk(size)[index]


def loss_of(output: Any) -> torch.Tensor:
    output = output.inside["y"] if isinstance(output, Answer) else output
    return output.abs().square().mean()


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return kind()


def train(model: nn.Module, wrapped: Any, part: Callable[[int], Any], **options: Any) -> Any:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, **options)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(wrapped(part(step))).backward()
        if isinstance(wrapped, NaiveDDP):
            wrapped.synchronize()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("model", [InDataclass, Complex, Twice, Joined])
def test_equal_to_one_process(ranks: Ranks, model: type[nn.Module], kind: str, world: int) -> None:
    def run(group: Group) -> Any:
        mine = made(model)
        wrapped = KINDS[kind](mine, group)
        return train(mine, wrapped, lambda step: part_of(step, group.index, group.size))

    alone = made(model)
    expected = train(alone, alone, part_of)
    for weights in ranks(run, world):
        torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", list(KINDS))
def test_channels_last_under_a_fused_optimizer(ranks: Ranks, kind: str) -> None:
    """A fused step walks through weight and gradient as they lie in memory."""

    def run(group: Group) -> Any:
        mine = made(Pictures)
        return train(mine, KINDS[kind](mine, group), lambda _: part_of(0), fused=True)

    alone = made(Pictures)
    expected = train(alone, alone, lambda _: part_of(0), fused=False)
    for weights in ranks(run, 2):
        torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-12)


def test_an_output_that_is_a_dataclass_keeps_its_wrapper(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        model = made(InDataclass)
        loss_of(BucketedDDP(model, group)(part_of(0, group.index, 2))).backward()
        return model.layer.weight.grad

    alone = made(InDataclass)
    loss_of(alone(part_of(0))).backward()
    for gradient in ranks(run, 2):
        torch.testing.assert_close(gradient, alone.layer.weight.grad)


@pytest.mark.parametrize("kind", ["overlap", "bucketed"])
def test_another_method_than_forward(ranks: Ranks, kind: str) -> None:
    def run(group: Group) -> Any:
        model = made(InDataclass)
        wrapped = KINDS[kind](model, group)
        wrapped.module.encode(part_of(0, group.index, 2)).square().mean().backward()
        return model.layer.weight.grad

    alone = made(InDataclass)
    alone.encode(part_of(0)).square().mean().backward()
    for gradient in ranks(run, 2):
        torch.testing.assert_close(gradient, alone.layer.weight.grad)


# --- sparse gradients ----------------------------------------------------------------------------
class Words(nn.Module):
    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 3, sparse=sparse).double()
        self.bag = nn.EmbeddingBag(50, 3, mode="sum", sparse=sparse).double()
        self.head = nn.Linear(3, 2).double()

    def forward(self, words: torch.Tensor, bag: bool = True) -> torch.Tensor:
        x = self.table(words).mean(1)
        return self.head(x + self.bag(words) if bag else x)


WORDS = torch.tensor([[1, 2, 2], [9, 2, 49], [0, 1, 1], [7, 7, 7]])


@pytest.mark.parametrize("world", [1, 2, 4])
def test_sparse_gradients_are_gathered(ranks: Ranks, world: int) -> None:
    def run(group: Group) -> Any:
        model = made(Words)
        wrapped = BucketedDDP(model, group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            mine = WORDS.chunk(group.size)[group.index]
            with wrapped.no_sync():
                wrapped(mine).square().mean().backward()
            wrapped(mine).square().mean().backward()
            optimizer.step()
        assert model.table.weight.grad is not None
        return model.table.weight.grad.is_sparse, [p.detach() for p in model.parameters()]

    alone = made(Words)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (2 * alone(WORDS).square().mean()).backward()
        optimizer.step()
    for sparse, weights in ranks(run, world):
        assert sparse
        torch.testing.assert_close(weights, [p.detach() for p in alone.parameters()])


def test_a_sparse_table_that_only_some_ranks_use(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        model = made(Words)
        wrapped = BucketedDDP(model, group, find_unused_parameters=True)
        wrapped(WORDS, bag=group.index == 1).sum().backward()
        assert model.bag.weight.grad is not None
        return model.bag.weight.grad.to_dense()

    alone = made(Words)
    (alone(WORDS).sum() / 2).backward()
    assert alone.bag.weight.grad is not None
    for gradient in ranks(run, 2):
        torch.testing.assert_close(gradient, alone.bag.weight.grad.to_dense())


class TiedTable(Words):
    def forward(self, words: torch.Tensor, bag: bool = True) -> torch.Tensor:
        return super().forward(words, bag) @ self.table.weight[:3, :2].t()


class HandMade(nn.Module):
    """A sparse gradient from a function, which no embedding announces."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(5, 3))

    def forward(self, words: torch.Tensor, bag: bool = True) -> torch.Tensor:
        return nn.functional.embedding(words % 5, self.table, sparse=True)


@pytest.mark.parametrize(
    ("kind", "model", "name"),
    [("naive", Words, "weight"), ("overlap", Words, "weight"),
     ("bucketed", TiedTable, "table.weight"), ("bucketed", HandMade, "table")],
)  # fmt: skip
def test_other_sparse_gradients_are_refused(
    ranks: Ranks, kind: str, model: type[nn.Module], name: str
) -> None:
    def run(group: Group) -> str:
        with pytest.raises(CommError) as caught:
            KINDS[kind](made(model), group)(WORDS).sum().backward()
        return str(caught.value)

    for text in ranks(run, 2):
        assert name in text.splitlines()[0] and "layout" in text and "BucketedDDP averages" in text


# --- buffers, state, and what changes later -----------------------------------------------------
class Buffers(nn.Module):
    KINDS = (torch.bool, torch.int8, torch.int16, torch.uint16, torch.int64, torch.complex64)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2).double()
        for number, kind in enumerate(self.KINDS):
            self.register_buffer(f"b{number}", torch.ones(3).to(kind))
        whole = torch.ones(2, 3)
        self.register_buffer("turned", whole.t())
        self.register_buffer("scalar", torch.tensor(1, dtype=torch.int16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_buffers_of_every_dtype_are_those_of_index_0(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        model = Buffers()
        for buffer in model.buffers():
            buffer.fill_(1 - group.index)
        wrapped = BucketedDDP(model, group)
        begun = [buffer.clone() for buffer in model.buffers()]
        for buffer in model.buffers():
            buffer.fill_(group.index)
        wrapped(part_of(0)).sum().backward()
        same = [bool((b == 1).all()) for b in begun] + [
            bool((b == 0).all()) for b in model.buffers()
        ]
        return same, model.turned.stride()

    for same, stride in ranks(run, 2):
        assert all(same) and stride == (1, 3)


class Parent(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.net, self.head = inner, nn.Linear(2, 2).double()


def test_a_parent_loads_its_own_state(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        bare = Parent(nn.Sequential(nn.Linear(2, 2).double(), nn.BatchNorm1d(2).double()))
        parent = Parent(BucketedDDP(copy.deepcopy(bare.net), group))
        state = parent.state_dict()
        assert list(state) == list(bare.state_dict()), "a checkpoint does not show the wrapper"
        with torch.no_grad():
            for tensor in parent.parameters():
                tensor.zero_()
        kept = {name: value + 1 for name, value in bare.state_dict().items()}
        said = parent.load_state_dict(kept)
        assert not said.missing_keys and not said.unexpected_keys
        loaded = all(value.equal(kept[name]) for name, value in parent.state_dict().items())
        with pytest.raises(RuntimeError, match=r"net.module.0.weight"):
            parent.load_state_dict({k: v for k, v in kept.items() if k != "net.0.weight"})
        return loaded

    assert ranks(run, 2) == [True, True]


@pytest.mark.parametrize("change", ["unfreeze", "replace", "add"])
def test_what_is_trained_later_is_refused(ranks: Ranks, change: str) -> None:
    def run(group: Group) -> str:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double()
        model[0].weight.requires_grad_(False)
        wrapped = BucketedDDP(model, group, find_unused_parameters=True)
        if change == "unfreeze":
            model[0].weight.requires_grad_(True)
        elif change == "replace":
            model[0].weight = nn.Parameter(torch.randn(4, 4, dtype=torch.float64))
        else:
            model.append(nn.Linear(4, 4).double())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapped(part_of(0, group.index, 2)).sum().backward()
        with pytest.raises(CommError, match="frozen or not there when the wrapper was made") as e:
            optimizer.step()
        return str(e.value)

    for text in ranks(run, 2):
        assert ("0.weight" in text) is (change == "unfreeze")


def test_a_lazy_module_is_refused(ranks: Ranks) -> None:
    def run(group: Group) -> str:
        with pytest.raises(CommError) as caught:
            BucketedDDP(nn.Sequential(nn.LazyLinear(3)), group)
        return str(caught.value)

    for text in ranks(run, 2):
        assert "0.weight has no shape yet" in text


def test_complex_gradients_keep_their_imaginary_part_in_another_dtype(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        model = made(Complex)
        wrapped = BucketedDDP(model, group, reduce_dtype=torch.float32)
        loss_of(wrapped(part_of(0, group.index, 2))).backward()
        return model.weight.grad

    alone = made(Complex)
    loss_of(alone(part_of(0))).backward()
    for gradient in ranks(run, 2):
        torch.testing.assert_close(gradient, alone.weight.grad)
