"""A module's parameters, gathered, freed and reduced together: what FSDP calls a unit.

Notebook: 04 ZeRO (FSDPUnit, prefetch).
Paper: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (2023),
section 4.2.
Costs for a unit of S bytes: (N-1)/N·S each time that it is gathered or reduced, in one message for
each kind of parameters that it has: dtypes, trained and frozen, packed and not.
The production version (FSDP2) gives each unit its own place in a pool of buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

import torch
from torch import nn

from course_lib.comm import CommError, Group, Work
from course_lib.parallel.zero.precision import Precision
from course_lib.parallel.zero.sharded.flat_shard import FlatShard, Part


class State(Enum):
    """Where a unit is; each method of `Unit` says between which states it goes.

    SHARDED ──gather──▶ GATHERING ──wait──▶ WHOLE ──free──▶ SHARDED
    SHARDED ──reduce──▶ REDUCING ──finish_reduce──▶ SHARDED
    """

    SHARDED = "this rank has its pieces"
    GATHERING = "the all-gather is on its way"
    WHOLE = "the parameters may be computed with"
    REDUCING = "the reduce-scatter of the gradients is on its way"


def lost_write(name: str, rank: int) -> CommError:
    """The error for a write to parameters that are whole, and are about to be freed."""
    return CommError(
        f"a write to a parameter of {name} of FSDP on rank {rank}",
        "the gathered copy of it, which is freed with the unit",
        "what is written there is lost: write between two steps, or leave the parameter whole by "
        "keep_whole",
    )


class Unit:
    """A module's parameters, of any dtypes, trained and frozen.

    Args:
        name: for errors and marks; the module's name in the model.
        parameters: those that no inner unit has.
        group: as for `FlatShard`.
        replicas: the same.
        precision: the same.

    Attributes:
        state: where it is.
        shards: its parameters, those of one kind together.
        trained: those of its parameters that get gradients.
        begun: when it last began to compute, in seconds on the machine's clock.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[nn.Parameter],
        group: Group,
        replicas: Group | None,
        precision: Precision,
    ) -> None:
        self.name, self.ledger, self._rank = name, group.ledger, group.rank
        kinds: dict[object, list[nn.Parameter]] = {}
        for p in parameters:
            kind = (p.dtype, p.device, p.requires_grad, precision.packs(p))
            kinds.setdefault(kind, []).append(p)
        self.shards = [FlatShard(p, group, replicas, precision) for p in kinds.values()]
        self._shard_of = {p: shard for shard in self.shards for p in shard.parameters}
        self._trained = [shard for shard in self.shards if shard.trained]
        self.trained = [p for shard in self._trained for p in shard.parameters]
        self.state = State.SHARDED
        self.begun = 0.0
        self._arriving: list[Work] = []

    # --- parameters ------------------------------------------------------------------------------
    def gather(self) -> None:
        """SHARDED → GATHERING: begins the all-gather, unless the parameters are here or coming.

        Raises:
            CommError: a parameter is not any more what was cut.
        """
        self.finish_reduce()
        if self.state is State.SHARDED:
            self._refuse_changed()
            self.state = State.GATHERING
            self.ledger.mark(f"gather {self.name}")
            self._arriving = [shard.gather() for shard in self.shards]

    def wait(self) -> None:
        """GATHERING → WHOLE: returns once the parameters may be computed with."""
        if self.state is State.GATHERING:
            for work, shard in zip(self._arriving, self.shards, strict=True):
                work.wait()
                shard.show_full()
            self._arriving = []
            self.state = State.WHOLE
            self.ledger.mark(f"gathered {self.name}")

    def free(self) -> None:
        """GATHERING, WHOLE → SHARDED: goes back to 1/N of the parameters.

        Raises:
            CommError: somebody has written to them meanwhile.
        """
        self.wait()
        if self.state is State.WHOLE:
            written = any(shard.written_since_shown() for shard in self.shards)
            for shard in self.shards:
                shard.free()
            self.state = State.SHARDED
            self.ledger.mark(f"free {self.name}")
            if written:
                raise lost_write(self.name, self._rank)

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the memory that comes and goes."""
        return any(shard.overlaps(tensor) for shard in self.shards)

    def _refuse_changed(self) -> None:
        for shard in self.shards:
            changed = shard.changed_since_cut()
            if changed is not None:
                raise CommError(
                    f"a gather of {self.name} of FSDP on rank {self._rank}",
                    f"a parameter of {changed.numel()} elements here that was moved, cast, "
                    "replaced, frozen or unfrozen since it was cut",
                    "the shard would not see it: do that before FSDP, and make FSDP again",
                )

    # --- gradients -------------------------------------------------------------------------------
    def begin_backward(self) -> None:
        """Makes room for full gradients; the state stays."""
        for shard in self._trained:
            shard.begin_backward()

    def has_gradients(self) -> bool:
        """Whether every trained parameter has one."""
        return all(p.grad is not None for p in self.trained)

    def reduce(self) -> None:
        """SHARDED → REDUCING: begins to average the gradients."""
        self.ledger.mark(f"reduce {self.name}")
        for shard in self._trained:
            shard.reduce()
        self.state = State.REDUCING

    def finish_reduce(self, *, wait: bool = True) -> None:
        """REDUCING → SHARDED: takes the averages; waits for them, or only if they are here.

        With replicas there is one more collective, begun in the same order on all ranks: it waits.
        """
        if self.state is State.REDUCING and (wait or all(s.reduced() for s in self._trained)):
            for shard in self._trained:
                shard.finish_reduce()
            self.state = State.SHARDED

    def keep_local(self) -> None:
        """Leaves full gradients of this rank alone in place, for later backwards to add to."""
        for shard in self._trained:
            shard.keep_local()

    def abandon(self) -> None:
        """A backward has failed: gradients are again what they were before it. The state stays."""
        for shard in self._trained:
            shard.abandon()

    def reset(self) -> None:
        """Any state → SHARDED, after a failure: what is on its way arrives, and is dropped."""
        self.free()
        for shard in self._trained:
            shard.drop_reduce()
        self.state = State.SHARDED

    def forget(self, parameter: nn.Parameter) -> None:
        """Leaves the gradient of a parameter as it was before the last reduce."""
        self._shard_of[parameter].forget(parameter)

    # --- the whole, for checkpoints and comparisons ----------------------------------------------
    def whole(self, part: Part) -> dict[nn.Parameter, torch.Tensor]:
        """What `part` returns for this rank's pieces, joined over all ranks, on the CPU."""
        return {p: t for shard in self.shards for p, t in shard.whole(part).items()}

    def load(self, full: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Copies this rank's pieces out of full tensors."""
        for shard in self.shards:
            shard.load([full[p] for p in shard.parameters])

    def shapes(self, names: Mapping[nn.Parameter, str]) -> dict[str, torch.Size]:
        """The full shape of each parameter, by name."""
        return {
            names[parameter]: shape
            for shard in self.shards
            for parameter, shape in zip(shard.parameters, shard.layout.shapes, strict=True)
        }
