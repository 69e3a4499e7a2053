"""Every layout of 4 and of 8 ranks as pp × dp × tp, against PyTorch's own parts on the same mesh.

A GPT of 1.7 M parameters (8 blocks), 16 rows of 32 tokens, AdamW (fused), float32, clipped to norm
1 on both sides. Ours is `lay_out` and `train_step`. The peer is put together as torchtitan does:
`torch.distributed.pipelining` (1F1B, at most 8 micro-batches), `fully_shard` over dp, a DTensor
plan over tp; a part is left out where its axis has one rank. Over dp ours is FSDP too, unless the
name says `zero1`. Layouts for which PyTorch has no part of its own stand alone: experts over ep,
ring attention over cp (its `context_parallel` does not run on a CPU), ZeRO-1 on a mesh.

Both sides are alive in the same processes and take turns, one training step a turn; a turn takes as
long as its slowest rank, and medians are compared. A layout has rows only if the first losses of
both sides are equal to five digits. Ours also adds up loss and tokens over all ranks in every step.
Bytes are what a rank sends in a step, by the formula of each operation (of DTensor without the
three small reductions of its loss, which run where the dispatch mode does not see them). Peak is
the most that is held in a step, parameters, gradients and state included, as in the other
benchmarks. With more ranks than cores, time is mostly what is computed and booked in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.peers.torch_mesh import TorchMesh
from benchmarks.row import Row
from benchmarks.training.turns import (
    SIDES,
    WARM,
    Trainer,
    mean_losses,
    random_batches,
    slowest_ms,
    take_turns,
)
from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig, MoEConfig, Transformer
from course_lib.ranks import ForkServer, Pool
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.trace.memory import held_bytes
from course_lib.train import (
    lay_out,
    make_optimizers,
    own_micro_batches,
    pipeline_stages,
    train_step,
)

WORLDS = (4, 8)
CONFIG = ModelConfig(layers=8, hidden=128, heads=8, kv_heads=8, ffn=352, sequence=32)
EXPERTS = replace(CONFIG, ffn=176, moe=MoEConfig(experts=4, top_k=2))
BATCH, MOST_MICRO = 16, 8
RATE, MAX_NORM = 1e-3, 1.0
ROUNDS = 5
EQUAL = 1e-5  # relative difference of losses
PATIENCE = 60.0  # eight ranks on two cores wait long for a processor; that is no deadlock
PARTS = {"pp": "1F1B", "dp": "FSDP2", "tp": "DTensor"}
NO_EP = "none: no expert parallelism"
NO_CP = "none: no context parallelism on a CPU"
NO_ZERO1 = "none: its ZeRO-1 is for DDP"


@dataclass(frozen=True)
class Case:
    """A layout.

    Attributes:
        sizes: of the axes longer than 1.
        zero: stage of ZeRO over the ranks that have other tokens.
        config: of the model.
        alone: why there is no peer; "" if there is one.
    """

    sizes: dict[str, int]
    zero: int = 0
    config: ModelConfig = CONFIG
    alone: str = ""

    def __str__(self) -> str:
        words = [f"{axis}{size}" for axis, size in self.sizes.items()]
        return " ".join(words + ["zero1"] * (self.zero == 1))

    @property
    def peer(self) -> str:
        """Who the peer is."""
        return self.alone or " × ".join(PARTS[axis] for axis in self.sizes)

    @property
    def schedule(self) -> Schedule:
        """1F1B; one micro-batch without a pipeline."""
        stages = self.sizes.get("pp", 1)
        return one_f_one_b(stages, min(2 * stages, MOST_MICRO) if stages > 1 else 1)


def layouts(world: int) -> list[Case]:
    """All of pp × dp × tp, then some of ours alone."""
    counts = range(1, world + 1)
    grids = [
        {"pp": pp, "dp": dp, "tp": world // (pp * dp)}
        for pp in counts for dp in counts if world % (pp * dp) == 0
    ]  # fmt: skip
    beside = [{axis: size for axis, size in grid.items() if size > 1} for grid in grids]
    cases = [Case(sizes, zero=3 if "dp" in sizes else 0) for sizes in beside]
    return cases + ALONE[world]


ALONE = {
    4: [
        Case({"dp": 2, "tp": 2}, 1, CONFIG, NO_ZERO1),
        Case({"dp": 2, "cp": 2}, 3, CONFIG, NO_CP),
        Case({"cp": 2, "tp": 2}, 0, CONFIG, NO_CP),
        Case({"dp": 2, "ep": 2}, 1, EXPERTS, NO_EP),
    ],
    8: [
        Case({"pp": 2, "dp": 2, "tp": 2}, 1, CONFIG, NO_ZERO1),
        Case({"pp": 2, "cp": 2, "tp": 2}, 0, CONFIG, NO_CP),
        Case({"dp": 2, "cp": 2, "tp": 2}, 3, CONFIG, NO_CP),
        Case({"pp": 2, "dp": 2, "ep": 2}, 1, EXPERTS, NO_EP),
    ],
}


# --- the two sides -------------------------------------------------------------------------------
class OursOnMesh:
    """A model on the course's mesh, its optimizers, and one training step.

    Args:
        case: the layout.
        mesh: of it.
    """

    def __init__(self, case: Case, mesh: Mesh) -> None:
        self.model = lay_out(Transformer(case.config), mesh, case.schedule, zero=case.zero)
        self.optimizers = make_optimizers(self.model, torch.optim.AdamW, lr=RATE, fused=True)

    def step(self, batch: torch.Tensor) -> float:
        """Forward, backward, clipping and update; the mean loss of the whole batch."""
        micro_batches = own_micro_batches(batch[:, :-1], batch[:, 1:], self.model)
        return train_step(self.model, micro_batches, self.optimizers, MAX_NORM).loss

    def held(self) -> dict[str, int]:
        """Bytes of this rank's parameters and their gradients."""
        parameters = self.model.parameters
        tensors = [*parameters, *(p.grad for p in parameters if p.grad is not None)]
        return {"parameters and gradients": held_bytes(tensors)}


def torch_on_mesh(case: Case, mesh: Mesh) -> Trainer:
    """The same stage of the same model, and PyTorch's parts around it."""
    shape = [case.sizes.get(axis, 1) for axis in PARTS]
    theirs = init_device_mesh("cpu", tuple(shape), mesh_dim_names=tuple(PARTS))
    [(number, stage)] = pipeline_stages(
        Transformer(case.config), case.schedule, mesh["pp"]
    ).items()  # fmt: skip
    return TorchMesh(number, stage, theirs, case.schedule.micro_batches, RATE, MAX_NORM)


def measure(group: Group, case: Case, rounds: int) -> dict[str, dict[str, Any]]:
    """What each side takes on this rank; all ranks see the same whole batch."""
    mesh = Mesh(group, case.sizes)
    makers: dict[str, Callable[[], Trainer]] = {"ours": partial(OursOnMesh, case, mesh)}
    if not case.alone:
        makers["peer"] = partial(torch_on_mesh, case, mesh)
    return take_turns(makers, random_batches(case.config, BATCH, rounds, seed=0), group)


# --- rows ----------------------------------------------------------------------------------------
def case_rows(case: Case, per_rank: Sequence[dict[str, dict[str, Any]]]) -> Iterator[Row]:
    """Step time, bytes sent and peak of a layout, from what `measure` found on each rank.

    Raises:
        AssertionError: the two sides do not train alike.
    """
    world = prod(case.sizes.values())
    size = sum(p.nbytes for p in Transformer(case.config).parameters())
    sides = [[rank[side] for rank in per_rank] for side in SIDES if side in per_rank[0]]
    note = "" if case.alone else f"losses differ by {_gap(case, *sides):.0e} at first"
    times = [slowest_ms([rank["seconds"] for rank in side]) for side in sides]
    yield _row("step", case, world, size, times, "ms", note)
    for what in ("sent", "peak"):
        most = [round(max(rank[f"{what} MB"] for rank in side), 3) for side in sides]
        yield _row(what, case, world, size, most, "MB")


def _gap(case: Case, ours: list[dict[str, Any]], peer: list[dict[str, Any]]) -> float:
    pairs = zip(mean_losses(ours)[:WARM], mean_losses(peer)[:WARM], strict=True)
    gap = max(abs(mine - other) / other for mine, other in pairs)
    if gap > EQUAL:
        raise AssertionError(f"{case}: losses of ours and of {case.peer} differ by {gap:.0e}")
    return gap


def _row(
    what: str, case: Case, world: int, size: int, values: list[float], unit: str, note: str = ""
) -> Row:
    peer = values[1] if len(values) > 1 else None
    name = f"train {what} {case}"
    return Row("train", name, world, size, values[0], peer, case.peer, unit, note)


def rows() -> Iterator[Row]:
    """Three rows for each layout."""
    yield from measured_rows([case for world in WORLDS for case in layouts(world)], ROUNDS)


def measured_rows(cases: Sequence[Case], rounds: int) -> Iterator[Row]:
    """The rows of some layouts, each world in one pool.

    Args:
        cases: layouts.
        rounds: steps that are timed.
    """
    with ForkServer() as server:
        for world in dict.fromkeys(prod(case.sizes.values()) for case in cases):
            with Pool(world, server, stall=PATIENCE) as pool:
                for case in cases:
                    if prod(case.sizes.values()) == world:
                        per_rank = pool.run(measure, case, rounds, timeout=600)
                        yield from case_rows(case, per_rank)
