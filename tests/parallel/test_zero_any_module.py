"""ZeRO-1 and 2 on awkward parameters, on any group, and after failures: right, or refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel import Zero1, Zero2

BOTH = pytest.mark.parametrize("kind", [Zero1, Zero2])
SGD = {"lr": 0.1, "momentum": 0.9}


class Sparse(nn.Module):
    """An embedding with sparse gradients, a layer, complex numbers, and a parameter without any."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(9, 4, sparse=True).double()
        self.layer = nn.Linear(4, 3).double()
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex128))
        self.nothing = nn.Parameter(torch.zeros(0, 3, dtype=torch.float64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        turned = self.layer(self.table(tokens)) * self.phase
        return turned.abs().square().mean() + turned.real.mean() + self.nothing.sum()


def tokens_of(step: int, index: int) -> torch.Tensor:
    return torch.randint(9, (2, 5), generator=torch.Generator().manual_seed(10 * step + index))


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def alone(world: int, steps: int, name: str, options: dict[str, Any]) -> list[torch.Tensor]:
    model = Sparse()
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    for step in range(steps):
        optimizer.zero_grad()
        for index in range(world):
            (model(tokens_of(step, index)) / world).backward()
        if name != "SGD":  # which alone takes sparse gradients
            model.table.weight.grad = model.table.weight.grad.to_dense()
        optimizer.step()
    return weights(model)


@BOTH
@pytest.mark.parametrize(("name", "options"), [("SGD", SGD), ("AdamW", {"lr": 0.05})])
def test_equal_to_one_process_saved_and_resumed(
    ranks: Any, kind: Any, name: str, options: dict[str, Any]
) -> None:
    """On a group of two of three ranks, whose order is not that of the world."""

    def run(world: Group) -> Any:
        group = world.split([[2, 0], [1]], "dp")
        if group.size == 1:
            return None

        def train(model: nn.Module, optimizer: Any, steps: range) -> None:
            for step in steps:
                optimizer.zero_grad()
                model(tokens_of(step, group.index)).backward()
                optimizer.step()

        model, again = Sparse(), Sparse()
        optimizer = kind(model.parameters(), getattr(torch.optim, name), group, cap=100, **options)
        train(model, optimizer, range(3))
        other = kind(again.parameters(), getattr(torch.optim, name), group, cap=100, **options)
        again.load_state_dict(model.state_dict())
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        train(model, optimizer, range(3, 5))
        train(again, other, range(3, 5))
        return weights(model), weights(again)

    expected = alone(2, 5, name, options)
    first, _, third = ranks(run, 3)
    for found, resumed in (first, third):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(resumed, found, rtol=0, atol=0)


def tied_parameters() -> tuple[nn.Module, list[Any]]:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight.data = model[0].weight.data
    return model, [{"params": [model[0].weight]}, {"params": (p for p in [model[1].weight])}]


def a_view_as_buffer() -> tuple[nn.Module, list[Any]]:
    model = nn.Linear(3, 3)
    model.register_buffer("row", model.weight.data[1])
    return model, list(model.parameters())


def a_frozen_copy() -> tuple[nn.Module, list[Any]]:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False))
    model[1].bias.data = model[0].bias.data
    return model, list(model[0].named_parameters())


@BOTH
@pytest.mark.parametrize("make", [tied_parameters, a_view_as_buffer, a_frozen_copy])
def test_ties_by_memory_are_refused(ranks: Any, kind: Any, make: Any) -> None:
    def run(group: Group) -> str:
        model, parameters = make()
        try:
            kind(parameters, torch.optim.SGD, group, lr=0.1)
        except CommError as error:
            return f"{error}, {type(model)}"
        return ""

    for said in ranks(run, 2):
        assert "of a Linear" in said and "two tensors in the same memory" in said


@BOTH
def test_memory_that_only_a_person_holds_is_no_tie(ranks: Any, kind: Any) -> None:
    def run(group: Group) -> int:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[1].weight = model[0].weight
        kept = [model.state_dict(), [p.detach() for p in model.parameters()]]
        for _ in range(2):  # the second finds flat memory, which the parameters share
            kind(model.parameters(), torch.optim.SGD, group, lr=0.1)
        return len(kept)

    assert ranks(run, 2) == [2, 2]


def stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))).double()


X = torch.ones(2, 4, dtype=torch.float64)


def after_one_step() -> list[torch.Tensor]:
    model = stack()
    model(X).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return weights(model)


@pytest.mark.parametrize("unused", [False, True])
def test_after_a_backward_that_raised_zero2_wants_zero_grad(ranks: Any, unused: bool) -> None:
    def run(group: Group) -> Any:
        model = stack()
        optimizer = Zero2(model.parameters(), torch.optim.SGD, group, cap=200, lr=0.1,
                          find_unused_parameters=unused)  # fmt: skip
        broken = model[1].register_full_backward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(X).sum().backward()
        broken.remove()
        said = []
        for call in (lambda: model(X).sum().backward(), optimizer.step):
            try:
                call()
            except CommError as error:
                said.append(str(error))
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()
        return said, weights(model)

    for said, found in ranks(run, 2):
        assert len(said) == 2 and all("call zero_grad of the Zero2" in text for text in said)
        torch.testing.assert_close(found, after_one_step(), rtol=1e-12, atol=1e-12)


def test_zero1_goes_on_after_a_backward_that_raised(ranks: Any) -> None:
    def run(group: Group) -> Any:
        model = stack()
        optimizer = Zero1(model.parameters(), torch.optim.SGD, group, lr=0.1)
        broken = model[1].register_full_backward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(X).sum().backward()
        broken.remove()
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()
        return weights(model)

    for found in ranks(run, 2):
        torch.testing.assert_close(found, after_one_step(), rtol=1e-12, atol=1e-12)


@BOTH
def test_after_an_update_that_raised_the_optimizer_is_over(ranks: Any, kind: Any) -> None:
    """Some pieces may be updated and others not, and no rank has got them."""

    def run(group: Group) -> str:
        model = stack()
        optimizer = kind(model.parameters(), torch.optim.SGD, group, lr=0.1)
        broken = optimizer.inner.register_step_post_hook(lambda *_: 1 / 0)
        model(X).sum().backward()
        with pytest.raises(ZeroDivisionError):
            optimizer.step()
        broken.remove()
        optimizer.zero_grad()
        model(X).sum().backward()
        try:
            optimizer.step()
        except CommError as error:
            return str(error)
        return ""

    for said in ranks(run, 2):
        assert "half updated" in said and "into a new optimizer" in said
