"""Models whose forward or backward is awkward: what goes in, comes out, is used twice or not."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from course_lib.recompute import checkpoint
from tests.parallel.zoo.specimen import WIDTH, bare, rows
from tests.parallel.zoo.weights import block, chain

Pair = namedtuple("Pair", ["left", "right"])


class Through(nn.Module):
    """Hands its input on beside its result, as T5's blocks do with the positions' bias."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = block()

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + self.inner(x + bias), bias


class HandsThrough(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Through() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.bias(x)
        for inner in self.blocks:
            x, bias = inner(x, bias)
        return x * bias


@dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class Speaks(nn.Module):
    """A block and a model that answer in one of the forms of `FORMS`."""

    def __init__(self, form: str, depth: int = 2) -> None:
        super().__init__()
        self.form = form
        self.inner: nn.Module = Speaks(form, depth - 1) if depth else block()
        self.outer = block()

    def forward(self, x: torch.Tensor) -> Any:
        x = self.inner(x)
        return FORMS[self.form](self.outer(value_of(x)), None)


FORMS: dict[str, Any] = {
    "dataclass": Answer,
    "dict": lambda y, none: {"logits": y, "cache": [none, (y * 2,)]},
    "namedtuple": Pair,
}


def value_of(answer: Any) -> torch.Tensor:
    """The tensor in an answer of any form."""
    if torch.is_tensor(answer):
        return answer
    if isinstance(answer, dict):
        return answer["logits"]
    return answer.logits if isinstance(answer, Answer) else answer.left


def answered(model: Any, x: torch.Tensor) -> torch.Tensor:
    return value_of(model(x)).pow(2).mean()


class Keywords(nn.Module):
    """Everything by name, nested, with integers and None among it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Named(), Named()

    def forward(self, *, batch: dict[str, Any], times: int = 1) -> torch.Tensor:
        x = self.first(hidden=batch["x"], mask=batch["mask"], times=times)
        return self.last(hidden=x, mask=None)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = block()

    def forward(self, *, hidden: torch.Tensor, mask: Any, times: int = 1) -> torch.Tensor:
        y = self.inner(hidden) * times
        return y if mask is None else y.masked_fill(mask, 0.0)


def by_keyword(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(batch={"x": x, "mask": x > 1}, times=2).pow(2).mean()


class Methods(nn.Module):
    """Used by other methods than forward: `encode` of the model, `score` of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = chain(block(), block()), Scores()

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.head.score(self.body(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head.score(self.body(x))


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def score(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score(x) * 2


def encoded(model: Any, x: torch.Tensor) -> torch.Tensor:
    return bare(model).encode(x).pow(2).mean()


class Twice(nn.Module):
    """A block that is used twice in a forward, with another between."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.between, self.last = block(), block(), nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.again(self.between(self.again(x))))


class Branches(nn.Module):
    """Which expert is used depends on the data, and so on the rank."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = block(), block(), block()
        self.never = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        taken = self.left if x[0, 0] > 0 else self.right
        return taken(self.first(x))


def branching(step: int, part: int) -> torch.Tensor:
    """Ranks part in the second step: there, parts of odd number go the other way."""
    x = rows(step, part)
    x[0, 0] = -1.0 if step == 1 and part % 2 else 1.0
    return x


class Spare(nn.Module):
    """Gives two results, of which the loss takes one: the last unit has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.used, self.unused = block(), block(), block()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.body(x)
        return self.used(x), self.unused(x)


def first_of_two(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x)[0].pow(2).mean()


def gradient_penalty(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A backward through a backward, as WGAN-GP makes it (Gulrajani et al., 2017)."""
    x = x.requires_grad_()
    y = model(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y.pow(2).mean() + (slope.pow(2).sum(-1) - 1).pow(2).mean()


class Recomputed(nn.Module):
    """Each block under activation checkpointing: ours, or torch's of one of its two kinds."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for inner in self.blocks:
            if self.how == "ours":
                x = x + checkpoint(inner, x)
            else:
                x = x + torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=self.how == "old")
        return self.last(x)


def recomputed_by_us() -> nn.Module:
    return Recomputed("ours")


def recomputed_by_torch() -> nn.Module:
    return Recomputed("new")


def recomputed_reentrant() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Recomputed("old"))


def in_place() -> nn.Module:
    """What comes out of a unit is changed in place by the module after it."""
    return chain(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH)),
        nn.Hardtanh(inplace=True),
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(inplace=True)),
    )


def hooked() -> nn.Module:
    """The user's own hooks: before and after a forward, after a backward, and on a parameter."""
    model = chain(block(), block())
    model[0].register_forward_pre_hook(lambda _, args: (args[0] * 0.5,))
    model[0].register_forward_hook(lambda _, __, output: output + 1)
    model[1].register_full_backward_hook(lambda _, given, __: (given[0] * 2,))
    model[2].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return model


class Doubling(torch.autograd.Function):
    """A product whose backward reads the weight that its forward saved."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return 2 * x @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight = ctx.saved_tensors
        return 2 * grads[0] @ weight.t(), 2 * x.t() @ grads[0]


class Handmade(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Doubling.apply(x, self.weight)
        return torch.tanh(y)


def handmade() -> nn.Module:
    return chain(Handmade(), block(), Handmade())


def compiled() -> nn.Module:
    """Compiled with the backend that only captures graphs."""
    model = chain(block(), block())
    model[0] = torch.compile(model[0], backend="eager")
    return model


def cross_entropy(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A loss against classes, outside of the model."""
    target = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return F.cross_entropy(model(x).double(), target)


class PerExample(nn.Module):
    """Computes with one example at a time, by vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = block(), nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda row: self.last(self.inner(row)))(x)


def scripted() -> nn.Module:
    """A unit that torch.jit has traced."""
    model = chain(block(), block())
    model[1] = torch.jit.trace(model[1], torch.ones(2, WIDTH))
    return model
