"""A training that goes on as if it had never stopped: all that a step depends on, on every rank.

Notebook: 11 Distributed checkpoint (resume_exact, elastic_restart).
Source: torchrun's elastic restarts; CheckFreq (Mohan et al., 2021) on what else must be saved.
Costs what the sharded save costs, and about 20 kB of JSON a rank for random numbers.
The production version (torchtitan, Megatron-LM) leaves Python's and NumPy's random numbers out, or
keeps those of one rank.

10 steps = 5 + save + 5, bit for bit, on the same number of ranks in the same layout. With another,
the weights, the optimizer and `parts` are the same: the position in the data is one number of the
whole job. Random numbers cannot be, since there are as many streams as ranks:

    an index that was there before    goes on with its default generators
    a new index                       seeds them again, from the step, its index, and index 0's
    `generators` on every rank        stay as they were made: what they share depends on the layout
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict

import torch

from course_lib.checkpoint.agree import together
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.plain import from_plain, to_plain
from course_lib.checkpoint.files.store import complete_steps
from course_lib.checkpoint.layouts import Held, make_states, model_pieces, optimizer_pieces
from course_lib.checkpoint.load import Checkpoint, load_resharded, open_checkpoint
from course_lib.checkpoint.plan import Piece
from course_lib.checkpoint.random_state import random_state, restore_random, seed_random
from course_lib.checkpoint.save import AsyncSaver, save_sharded
from course_lib.comm import Group
from course_lib.parallel.zero.zero1 import ShardedOptimizer
from course_lib.recompute.checkpoint import RandomState


class Stateful(Protocol):
    """What goes on from step to step, and can say where it is."""

    def state_dict(self) -> dict[str, Any]:
        """Where it is, in numbers, texts, lists, tuples, dicts and small tensors."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Goes on from there."""


class Snapshot(TypedDict):
    """What `save_sharded` and `AsyncSaver.save` are given."""

    pieces: list[Piece]
    extra: Any
    rank_extra: Any


@dataclass(frozen=True)
class Training:
    """All that the next step depends on; described once, for saving and for resuming.

    Attributes:
        model: this rank's parameters and buffers, as `hold_whole` or `hold_fsdp` lists them.
        optimizer: the one whose step the loop calls; or several, with the same options, each for
            other parameters. How many there are may change from layout to layout.
        states: what the optimizer's states belong to, if not to `model`: `hold_zero` for ZeRO.
        parts: whatever else goes on from step to step, by name: sampler, schedule, loss scaler. The
            same on every rank.
        generators: random numbers beside the default ones, by name; each rank has its own.
        how: the ranks share the work, if their parts of the tensors do not tell; it must be the
            same again for a training to go on bit for bit.
    """

    model: Sequence[Held]
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
    states: Sequence[Held] | None = None
    parts: Mapping[str, Stateful] = field(default_factory=dict)
    generators: Mapping[str, RandomState] = field(default_factory=dict)
    how: str = ""

    def pieces(self) -> list[Piece]:
        """Model and optimizer state, to be saved or filled."""
        return model_pieces(self.model) + self._state_pieces(self.owners)

    def _state_pieces(self, owners: Sequence[Held]) -> list[Piece]:
        return [piece for inner in self.inner for piece in optimizer_pieces(owners, inner)]

    @property
    def owners(self) -> Sequence[Held]:
        """What the optimizers' states belong to."""
        return self.model if self.states is None else self.states

    @property
    def outer(self) -> list[torch.optim.Optimizer]:
        """The optimizers whose step the loop calls."""
        given = self.optimizer
        return [given] if isinstance(given, torch.optim.Optimizer) else list(given)

    @property
    def inner(self) -> list[torch.optim.Optimizer]:
        """The optimizers that have the states."""
        return [o.inner if isinstance(o, ShardedOptimizer) else o for o in self.outer]

    def snapshot(self, group: Group) -> Snapshot:
        """All of it, now: between two steps, since gradients are not in it. Collective.

        Tensors are not copied, everything else is. A buffer of which ranks have different values,
        as a batch norm's averages, is saved with those of the lowest index that has it, as
        `BucketedDDP` broadcasts them; a random writer's would be another result.

        Raises:
            CheckpointError: a part has a state that JSON cannot hold, or another one on some rank;
                or as `optimizer_pieces` says. On every rank.
        """
        job: dict[str, Any] = {}
        mine: dict[str, Any] = {"layout": self.layout()}

        def look() -> list[Any]:
            self.pieces()  # one that cannot be made is refused here, on all ranks
            job["options"] = _common_options(self.outer)
            job["parts"] = {n: to_plain(p.state_dict(), n) for n, p in self.parts.items()}
            mine["random"] = to_plain(random_state(self.generators), "random")
            seen = {"the optimizer's options": job["options"], **job["parts"]}
            sums = {name: zlib.crc32(json.dumps(state).encode()) for name, state in seen.items()}
            return [sums, [_place(h) for h in self.model if not _is_parameter(h)]]

        answers = together("the state of a training", look, group)
        _check_same([sums for sums, _ in answers])
        saved_by_others = {place for _, buffers in answers[: group.index] for place in buffers}
        own = [h for h in self.model if not h.copy]
        model = [h for h in own if _is_parameter(h) or _place(h) not in saved_by_others]
        states = self._state_pieces([h for h in self.owners if not h.copy])
        pieces = model_pieces(model) + states
        return {"pieces": pieces, "extra": job, "rank_extra": mine}

    def layout(self) -> int:
        """A number that two ranks share only if they have the same parts of the same tensors."""
        places = [_place(h) for h in [*self.model, *self.owners]]
        return zlib.crc32(repr([self.how, *places]).encode())


def _is_parameter(held: Held) -> bool:
    return isinstance(held.tensor, torch.nn.Parameter)


def _place(held: Held) -> str:
    return f"{held.name} {held.boxes}"


@dataclass(frozen=True)
class Resumed:
    """Where a training goes on, and how exactly.

    Attributes:
        step: after which step it was saved.
        exact: whether it goes on bit for bit: as many ranks as before, in the same layout. (Of
            buffers in which ranks differ, all have index 0's now.)
        seeded: indices whose default generators had to be seeded again.
    """

    step: int
    exact: bool
    seeded: range


def save_training(
    training: Training, target: AsyncSaver | Path | str, group: Group, *, step: int
) -> None:
    """Saves a training between two steps; collective.

    Args:
        training: it.
        target: folder of all checkpoints; or a saver that writes in the background. Its `wait` must
            be called before the program ends; until then, or the next save, the newest complete
            checkpoint may be the one before.
        group: all ranks of the job.
        step: how many steps were made.

    Raises:
        CheckpointError: as `Training.snapshot` and `save_sharded` say, the same on every rank.
    """
    snapshot = training.snapshot(group)
    if isinstance(target, AsyncSaver):
        target.save(**snapshot, step=step)
    else:
        save_sharded(**snapshot, folder=target, group=group, step=step)


def resume_training(training: Training, folder: Path | str, group: Group) -> Resumed | None:
    """Goes on from the newest complete checkpoint; collective. None if there is none yet.

    Call it last, when all that `training` names is made: making a model draws random numbers, and
    making a schedule sets the learning rate.

    Args:
        training: newly made, in any layout.
        folder: of all checkpoints.
        group: all ranks of the job.

    Raises:
        CheckpointError: the same on every rank: the checkpoint is damaged, or is not of this
            training. Before its tensors fit, nothing has been changed.
    """
    asked = f"resume a training from {folder}"
    newest = together(asked, lambda: _newest(folder) if group.index == 0 else None, group)[0]
    if newest is None:
        return None
    checkpoint = open_checkpoint(folder, group, newest)
    together(asked, lambda: _check_fits(checkpoint, training), group)
    together(asked, lambda: _begin_states(checkpoint, training), group)
    load_resharded(training.pieces(), folder, group, step=newest)
    together(asked, lambda: _restore_job(checkpoint.manifest.extra, training), group)
    ranks = checkpoint.manifest.per_rank
    before = ranks[group.index] if group.index < len(ranks) else {}
    alike = together(asked, lambda: before.get("layout") == training.layout(), group)
    exact = len(ranks) == group.size and all(alike)
    generators = training.generators if exact else {}

    def restore_rank() -> None:
        if before:
            restore_random(from_plain(before["random"], "random"), generators)
        else:
            seed_random(newest, group.index, ranks[0]["random"]["torch"])

    together(asked, restore_rank, group)
    return Resumed(newest, exact, range(len(ranks), group.size))


def _newest(folder: Path | str) -> int | None:
    return max(complete_steps(folder), default=None)


def _options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The options of each parameter group: a schedule writes the learning rate there."""
    own = ("params", "param_names")
    return [{k: v for k, v in g.items() if k not in own} for g in optimizer.param_groups]


def _common_options(optimizers: Sequence[torch.optim.Optimizer]) -> Any:
    """The options that all optimizers have, as JSON; refuses to save those of one for all."""
    seen = [to_plain(_options(optimizer), "optimizer options") for optimizer in optimizers]
    for number, options in enumerate(seen):
        if options != seen[0]:
            raise CheckpointError(
                f"save the options of {len(seen)} optimizers once",
                f"optimizer 0 has {str(seen[0])[:80]}, optimizer {number} {str(options)[:80]}",
                "another layout may have another number of optimizers: set the options of all",
            )
    return seen[0]


def _check_same(seen: Sequence[Mapping[str, int]]) -> None:
    """Refuses a part that differs between ranks: index 0's alone would be saved."""
    for index, numbers in enumerate(seen):
        for name in {**seen[0], **numbers}:
            if numbers.get(name) != seen[0].get(name):
                raise CheckpointError(
                    f"save the state of {name} once for all ranks",
                    f"another one on index {index} than on index 0",
                    "the job has one position in its data, one schedule, one scale: only random "
                    "numbers differ between ranks",
                )


def _check_fits(checkpoint: Checkpoint, training: Training) -> None:
    """Refuses a checkpoint of another training before anything is changed."""
    job, ranks = checkpoint.manifest.extra, checkpoint.manifest.per_rank
    if not isinstance(job, dict) or job.keys() != {"options", "parts"} or not all(ranks):
        raise CheckpointError(
            f"resume a training from {checkpoint.folder}",
            "weights alone, or something else",
            "it was not saved by save_training: load_resharded gets the weights out of it",
        )
    for what, given, saved in (
        ("parts", training.parts, job["parts"]),
        ("generators", training.generators, ranks[0]["random"]["generators"]),
    ):
        if given.keys() != saved.keys():
            raise CheckpointError(
                f"resume a training with the {what} {', '.join(sorted(given)) or '(none)'}",
                f"{', '.join(sorted(saved)) or '(none)'} in {checkpoint.folder}",
                "what is saved and not restored, or the reverse, begins again without a word",
            )
    for outer in training.outer:
        if len(outer.param_groups) != len(job["options"]):
            raise CheckpointError(
                f"resume an optimizer with {len(outer.param_groups)} groups of parameters",
                f"{len(job['options'])} groups in {checkpoint.folder}",
                "options such as the learning rate are kept by group, in their order",
            )
    checkpoint.check(model_pieces(training.model))


def _begin_states(checkpoint: Checkpoint, training: Training) -> None:
    for inner in training.inner:
        make_states(training.owners, inner, checkpoint.manifest)


def _restore_job(job: Mapping[str, Any], training: Training) -> None:
    options = from_plain(job["options"], "optimizer options")
    for outer, inner in zip(training.outer, training.inner, strict=True):
        _set_options(inner, options)
        if inner is not outer:
            for own, saved in zip(outer.param_groups, options, strict=True):
                own.update(saved)  # the outer groups are the ones that a schedule writes to
    for name, part in training.parts.items():
        part.load_state_dict(from_plain(job["parts"][name], name))


def _set_options(optimizer: torch.optim.Optimizer, options: Sequence[dict[str, Any]]) -> None:
    """Through the optimizer's own loading, so that one with masters takes them as well."""
    now, states = optimizer.state_dict(), {p: dict(s) for p, s in optimizer.state.items()}
    groups = [{**own, **saved} for own, saved in zip(now["param_groups"], options, strict=True)]
    optimizer.load_state_dict({"state": now["state"], "param_groups": groups})
    for parameter, state in states.items():  # torch casts a state to its parameter's dtype
        loaded = optimizer.state[parameter]
        loaded.update({k: v for k, v in state.items() if loaded[k].dtype != v.dtype})
