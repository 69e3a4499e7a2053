"""Random small programs: modules from building blocks, a group, and perhaps a failure.

A program is drawn from its seed alone, so a failing case is known by one number. Blocks take and
give [4, WIDTH], so that any of them can follow any other, stand in another, or be used again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.utils.checkpoint
from torch import nn

from course_lib.recompute import checkpoint
from tests.parallel.zoo import weights
from tests.parallel.zoo.specimen import WIDTH, Specimen
from tests.parallel.zoo.wrappers import OURS

LEAVES = ("linear", "block", "lora", "norm", "scalars", "tied", "expert", "in place", "transposed")
NESTS = ("chain", "residual", "twice", "shared", "branch", "checkpoint", "torch checkpoint")
PLACES = ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class Node:
    """A block: its kind, what is in it, and whether it is frozen or a unit of FSDP."""

    kind: str
    inside: tuple[Node, ...] = ()
    frozen: bool = False
    unit: bool = False

    def __repr__(self) -> str:
        marks = ["frozen"] * self.frozen + ["unit"] * self.unit
        inside = [repr(node) for node in self.inside]
        return f"{self.kind}({', '.join(inside + marks)})"


@dataclass(frozen=True)
class Failure:
    """Something that raises on some ranks, in a step of the training, before it goes on."""

    place: str
    step: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A random case.

    Attributes:
        seed: what it was drawn from.
        wrapper: one of `OURS`.
        size: ranks of the world.
        members: the group, in its order; the others form a group of their own.
        body: the model.
        micro: backwards a step.
        unused: pass `find_unused_parameters`.
        failure: if there is one.
    """

    seed: int
    wrapper: str
    size: int
    members: tuple[int, ...]
    body: Node
    micro: int
    unused: bool
    failure: Failure | None

    def __repr__(self) -> str:
        return (
            f"seed {self.seed}: {self.wrapper} on {list(self.members)} of {self.size} ranks, "
            f"{self.micro} backwards a step, unused={self.unused}\n  {self.body!r}\n"
            f"  {self.failure or 'no failure'}"
        )


def draw(seed: int) -> Program:
    """The program of a seed."""
    chance = random.Random(seed)
    size = chance.choice((2, 2, 3, 3, 4))
    members = chance.sample(range(size), chance.randint(1, size))
    body = Node("chain", tuple(_node(chance, 2) for _ in range(chance.randint(1, 4))))
    branches = any(node.kind == "branch" for node in _all(body))
    failure = None
    if chance.random() < 0.2:
        hurt = chance.sample(members, chance.randint(1, len(members)))
        failure = Failure(chance.choice(PLACES), chance.randint(0, 1), tuple(sorted(hurt)))
    return Program(
        seed, chance.choice(list(OURS)), size, tuple(members), body, chance.choice((1, 1, 2)),
        branches or chance.random() < 0.2, failure,
    )  # fmt: skip


def _node(chance: random.Random, depth: int) -> Node:
    frozen, unit = chance.random() < 0.2, chance.random() < 0.5
    if not depth or chance.random() < 0.5:
        return Node(chance.choice(LEAVES), (), frozen, unit)
    kind = chance.choice(NESTS)
    count = 2 if kind == "branch" else chance.randint(1, 2)
    inside = tuple(_node(chance, depth - 1) for _ in range(count))
    if kind == "branch":  # FSDP's ranks must call the same units
        return _without_units(Node(kind, inside, frozen))
    return Node(kind, inside, frozen, unit)


def _without_units(node: Node) -> Node:
    return replace(node, unit=False, inside=tuple(_without_units(n) for n in node.inside))


def _all(node: Node) -> list[Node]:
    return [node, *(inner for child in node.inside for inner in _all(child))]


# --- the modules ---------------------------------------------------------------------------------
class Nest(nn.Module):
    """What is done with the blocks inside."""

    def __init__(self, kind: str, inside: list[nn.Module]) -> None:
        super().__init__()
        self.kind, self.blocks = kind, nn.ModuleList(inside)
        if kind == "shared":  # a second block with the weights of the first
            self.again = weights.block()
            self.model_weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "branch":
            return x + self.blocks[0 if x[0, 0] > 0 else 1](x)
        y = x
        for inner in self.blocks:
            y = self._use(inner, y)
        if self.kind == "shared":
            y = torch.tanh(y @ self.model_weight) + self.again(y) @ self.model_weight
        if self.kind == "twice":
            y = self._use(self.blocks[0], y)
        return x + y if self.kind == "residual" else y

    def _use(self, inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "checkpoint" and x.requires_grad:
            return checkpoint(inner, x)
        if self.kind == "torch checkpoint":
            y: torch.Tensor = torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)
            return y
        return inner(x)


def leaf(kind: str) -> nn.Module:
    """A block without blocks in it."""
    made: dict[str, nn.Module] = {
        "linear": nn.Linear(WIDTH, WIDTH),
        "block": weights.block(),
        "lora": weights.Lora(),
        "norm": nn.LayerNorm(WIDTH),
        "scalars": weights.Odd(),
        "tied": weights.Tied(),
        "expert": nn.Sequential(nn.Linear(WIDTH, 7), nn.GELU(), nn.Linear(7, WIDTH)),
        "in place": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(inplace=True)),
        "transposed": weights.Laid(),
    }
    return made[kind]


def build(node: Node, units: list[nn.Module]) -> nn.Module:
    """The module of a node; collects those that are to be units, the outer before the inner."""
    place = len(units)
    inside = [build(child, units) for child in node.inside]
    module = Nest(node.kind, inside) if inside else leaf(node.kind)
    if node.frozen:
        module.requires_grad_(False)
    if node.unit:
        units.insert(place, module)
    return module


class Whole(nn.Module):
    """The body of a program, and a layer that is always trained."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        units: list[nn.Module] = []
        self.body = build(program.body, units)
        self.head = nn.Linear(WIDTH, 3)
        names = {module: name for name, module in self.named_modules()}
        self.unit_names = tuple(names[unit] for unit in units)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(x))
        return y


def specimen(program: Program) -> Specimen:
    """The program's model as a row of the zoo; its rows decide which branches are taken."""
    row = Specimen("random", "", partial(Whole, program))
    return replace(row, units=row.build().unit_names, unused=program.unused,
                   micro=program.micro, tolerance=2e-3)  # fmt: skip


def smaller(program: Program) -> list[Program]:
    """Programs with one thing less, to find a minimal one."""
    less = [replace(program, body=body) for body in _smaller(program.body)]
    if program.failure:
        less.append(replace(program, failure=None))
    if program.micro > 1:
        less.append(replace(program, micro=1))
    return less


def _smaller(node: Node) -> list[Node]:
    bare = [replace(node, **{mark: False}) for mark in ("frozen", "unit") if getattr(node, mark)]
    fewer = [
        replace(node, inside=node.inside[:n] + node.inside[n + 1 :])
        for n in range(len(node.inside))
        if len(node.inside) > 1 and node.kind != "branch"
    ]
    inner = [
        replace(node, inside=(*node.inside[:n], child, *node.inside[n + 1 :]))
        for n, old in enumerate(node.inside)
        for child in [*old.inside, *_smaller(old)]
    ]
    return bare + fewer + inner
