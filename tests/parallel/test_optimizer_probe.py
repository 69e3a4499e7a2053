"""Which optimizers may be given pieces of parameters, found out by trying them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.comm import CommError, Group
from course_lib.model.adamw import AdamW
from course_lib.parallel import FSDP, DevicePool, NvmeOptimizer, NvmeStore, Zero1, Zero2
from course_lib.parallel.offload.optimizer import OffloadedOptimizer
from course_lib.parallel.optimizer_probe import refuse_joint_update, refuse_whole_tensor
from course_lib.precision import MasterWeights


class Written(Optimizer):
    """What a user may write: `update` says how, for one parameter."""

    def __init__(self, params: Any, lr: float = 0.1, **other: Any) -> None:
        super().__init__(params, {"lr": lr, "steps": 0, **other})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for options in self.param_groups:
            options["steps"] += 1
            for p in options["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, options)

    def update(self, p: torch.Tensor, grad: torch.Tensor, options: dict[str, Any]) -> None:
        p.sub_(grad, alpha=options["lr"])


class Lamb(Written):
    def update(self, p: torch.Tensor, grad: torch.Tensor, options: dict[str, Any]) -> None:
        p.sub_(grad * p.norm() / grad.norm(), alpha=options["lr"])


class Normed(Written):
    """The norm of all gradients."""

    def step(self, closure: Any = None) -> None:
        torch.nn.utils.clip_grad_norm_([p for g in self.param_groups for p in g["params"]], 0.1)
        super().step()


class NoDecayOfVectors(Written):
    def update(self, p: torch.Tensor, grad: torch.Tensor, options: dict[str, Any]) -> None:
        p.sub_(grad + (0.1 * p if p.dim() > 1 else 0), alpha=options["lr"])


class OnlyLarge(Written):
    """Factored where a matrix has 128 rows and columns."""

    def update(self, p: torch.Tensor, grad: torch.Tensor, options: dict[str, Any]) -> None:
        large = p.dim() == 2 and min(p.shape) >= 128
        p.sub_(grad - grad.mean(1, keepdim=True) if large else grad, alpha=options["lr"])


class SometimesMatrix(Written):
    """Of whole tensors only where its group says so."""

    def update(self, p: torch.Tensor, grad: torch.Tensor, options: dict[str, Any]) -> None:
        p.sub_(grad / grad.norm() if options["matrix"] else grad, alpha=options["lr"])


class Falling(Written):
    """Counts its own steps."""

    def update(self, p: torch.Tensor, grad: torch.Tensor, options: dict[str, Any]) -> None:
        p.sub_(grad, alpha=options["lr"] / options["steps"])


class Noisy(Written):
    def update(self, p: torch.Tensor, grad: torch.Tensor, options: dict[str, Any]) -> None:
        p.sub_(grad + torch.randn_like(p), alpha=options["lr"])


class NeedsClosure(Written):
    def step(self, closure: Any) -> None:
        closure()
        super().step()


class Strange(Written):
    """Cannot be made again from what it keeps."""

    def __init__(self, params: Any, model: nn.Module) -> None:
        super().__init__(model.parameters())


def pieces() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(5))]


def refused(optimizer: Optimizer, look: Callable[..., None] = refuse_whole_tensor) -> str:
    try:
        look("a step", optimizer)
    except CommError as error:
        return error.found
    return ""


ELEMENTWISE = ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam",
               "RMSprop", "Rprop", "SGD"]  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_torchs_optimizers_of_elements_are_taken(name: str) -> None:
    assert not refused(getattr(torch.optim, name)(pieces(), lr=0.0))
    assert not refused(getattr(torch.optim, name)(pieces(), lr=0.1), refuse_joint_update)


@pytest.mark.parametrize("options", [
    {"foreach": True}, {"fused": True}, {"amsgrad": True}, {"maximize": True}, {"foreach": False},
    {"lr": torch.tensor(0.0)}, {"weight_decay": 0.1, "betas": (0.5, 0.6)},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, AdamW])
def test_with_any_options(kind: Any, options: dict[str, Any]) -> None:
    if kind is AdamW and not options.keys() <= {"betas", "weight_decay"}:
        pytest.skip("the course's own has no such option")
    assert not refused(kind(pieces(), **options))


@pytest.mark.parametrize("optimizer", [
    torch.optim.SGD(pieces(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
    torch.optim.RMSprop(pieces(), centered=True, momentum=0.5), Written(pieces()),
    Falling(pieces()), Noisy(pieces()), NeedsClosure(pieces()), SometimesMatrix(pieces(), matrix=0),
], ids=lambda optimizer: type(optimizer).__name__)  # fmt: skip
def test_more_that_are_taken(optimizer: Optimizer) -> None:
    assert not refused(optimizer)


@pytest.mark.parametrize("kind", [
    torch.optim.Adafactor, torch.optim.LBFGS, Lamb, Normed, NoDecayOfVectors, OnlyLarge,
    partial(SometimesMatrix, matrix=True),
])  # fmt: skip
def test_those_that_see_more_are_refused(kind: Any) -> None:
    optimizer = kind(pieces(), lr=0.0)
    found = refused(optimizer)
    assert found.startswith(f"{type(optimizer).__name__}, whose updates of pieces are not")
    assert "of the update" in found


def test_one_that_takes_matrices_alone_and_one_that_cannot_be_tried() -> None:
    muon = refused(torch.optim.Muon([nn.Parameter(torch.zeros(2, 2))]))
    assert "Muon only supports 2D parameters" in muon
    assert "SparseAdam does not support dense" in refused(torch.optim.SparseAdam(pieces()))
    model = nn.Linear(2, 2)
    assert "of which no trial can be made" in refused(Strange(None, model))


def test_a_group_that_is_added_later_is_tried_too() -> None:
    optimizer = SometimesMatrix(pieces(), matrix=False)
    assert not refused(optimizer)
    optimizer.add_param_group({"params": pieces(), "matrix": True})
    assert refused(optimizer)


def test_steps_of_one_parameter() -> None:
    assert "for one parameter depends on others" in refused(Falling(pieces()), refuse_joint_update)
    assert refused(Normed(pieces()), refuse_joint_update)
    assert not refused(Lamb(pieces()), refuse_joint_update)


def test_nothing_is_disturbed() -> None:
    parameter = nn.Parameter(torch.ones(3))
    for make in (torch.optim.Adam, Noisy):
        optimizer = make([parameter], lr=0.5)
        parameter.grad = torch.ones(3)
        random, before = torch.get_rng_state(), repr(optimizer.state_dict())
        assert not refused(optimizer)
        assert torch.equal(torch.get_rng_state(), random)
        assert repr(optimizer.state_dict()) == before
        assert torch.equal(parameter, torch.ones(3)) and torch.equal(parameter.grad, torch.ones(3))


@pytest.fixture
def pool() -> Iterator[DevicePool]:
    with DevicePool(10**6) as pool:
        yield pool


def test_offload(pool: DevicePool, tmp_path: Path) -> None:
    """The host has whole tensors; with files, it has one of them at a time."""
    matrix = [nn.Parameter(torch.ones(4, 4))]
    held = pool.held
    OffloadedOptimizer(matrix, torch.optim.Adafactor, pool)
    assert pool.held == held + 64, "a trial takes nothing of the pool"
    with NvmeStore(tmp_path) as store:
        NvmeOptimizer(matrix, torch.optim.Adafactor, pool, store)
        with pytest.raises(CommError, match="Falling, whose step for one parameter"):
            NvmeOptimizer(matrix, Falling, pool, store)


@pytest.mark.parametrize("kind", [Zero1, Zero2])
def test_sharded_optimizers_refuse(ranks: Any, kind: Any) -> None:
    makes: dict[str, Callable[..., Any]] = {
        "Lamb": Lamb,
        "Adafactor": torch.optim.Adafactor,
        "Muon": torch.optim.Muon,
        "masters": partial(MasterWeights, optimizer=Lamb),
        "a function": lambda params, **options: Lamb(params, **options),
        "Adam": torch.optim.Adam,
    }

    def run(group: Group) -> Any:
        found = {}
        for name, make in makes.items():
            try:
                kind([nn.Parameter(torch.ones(4, 4))], make, group, lr=0.1)
            except CommError as error:
                found[name] = str(error)
        with pytest.raises(ValueError, match="Invalid learning rate"):
            kind([nn.Parameter(torch.ones(4, 4))], torch.optim.Adam, group, lr=-1.0)
        return found

    for found in ranks(run, 2):
        assert found.keys() == makes.keys() - {"Adam"}
        assert found["Muon"].splitlines()[1].startswith("found: Muon, which takes no pieces")
        assert "Lamb, whose update" in found["masters"]
        assert all(text.startswith(f"asked: {kind.__name__} over") for text in found.values())


def test_fsdp_refuses_in_the_step(ranks: Any) -> None:
    def run(group: Group) -> list[str]:
        class Local(Optimizer):  # made here: torch puts its hooks into a class at its first use
            def __init__(self, params: Any, normed: bool) -> None:
                super().__init__(params, {"normed": normed})

            @torch.no_grad()
            def step(self, closure: Any = None) -> None:
                for options in self.param_groups:
                    for p in options["params"]:
                        p.sub_(p.grad / p.grad.norm() if options["normed"] else p.grad)

        said = []
        for normed in (True, False):
            model = FSDP(nn.Linear(4, 4), group)
            optimizer = Local(model.parameters(), normed)
            model(torch.ones(2, 4)).sum().backward()
            try:
                optimizer.step()
                said.append("")
            except CommError as error:
                said.append(error.found)
        return said

    for normed, plain in ranks(run, 2):
        assert "Local, whose updates of pieces are not" in normed
        assert not plain
