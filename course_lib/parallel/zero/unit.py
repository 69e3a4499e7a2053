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

import torch
from torch import nn

from course_lib.comm import Group, Work
from course_lib.parallel.zero.flat_shard import FlatShard, Part, Precision


class Unit:
    """A module's parameters, of any dtypes, trained and frozen.

    Args:
        name: for errors and marks; the module's name in the model.
        parameters: those that no inner unit has.
        group: as for `FlatShard`.
        replicas: the same.
        precision: the same.

    Attributes:
        resident: whether the parameters are full, or on their way.
        in_backward: whether this backward has come to it.
        begun: when it last began to compute, in seconds on the machine's clock.
        pending: trained parameters whose gradient has not come yet in this backward.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[nn.Parameter],
        group: Group,
        replicas: Group | None,
        precision: Precision,
    ) -> None:
        self.name, self.ledger = name, group.ledger
        kinds: dict[object, list[nn.Parameter]] = {}
        for p in parameters:
            kind = (p.dtype, p.device, p.requires_grad, precision.packs(p))
            kinds.setdefault(kind, []).append(p)
        self.shards = [FlatShard(p, group, replicas, precision) for p in kinds.values()]
        self._shard_of = {p: shard for shard in self.shards for p in shard.parameters}
        self.trained = [p for shard in self.shards if shard.trained for p in shard.parameters]
        self.pending: set[nn.Parameter] = set()
        self.resident = self.in_backward = False
        self.begun = 0.0
        self._arriving: list[Work] = []

    def gather(self) -> None:
        """Begins the all-gather, unless the parameters are here or on their way."""
        if not self.resident:
            self.resident = True
            self.ledger.mark(f"gather {self.name}")
            self._arriving = [shard.gather() for shard in self.shards]

    def wait(self) -> None:
        """Returns once the parameters are full and may be computed with."""
        if self._arriving:
            for work, shard in zip(self._arriving, self.shards, strict=True):
                work.wait()
                shard.show_full()
            self._arriving = []
            self.ledger.mark(f"gathered {self.name}")

    def free(self) -> None:
        """Goes back to 1/N of the parameters."""
        if self.resident:
            self.wait()
            for shard in self.shards:
                shard.free()
            self.resident = False
            self.ledger.mark(f"free {self.name}")

    def begin_backward(self) -> None:
        """The first gradient of the unit's output is here; does nothing when called again."""
        if not self.in_backward:
            self.in_backward = True
            self.pending = set(self.trained)
            for shard in self.shards:
                if shard.trained:
                    shard.begin_backward()

    def reduce(self) -> None:
        """Begins to average the gradients."""
        self.ledger.mark(f"reduce {self.name}")
        for shard in self.shards:
            if shard.trained:
                shard.reduce()

    def finish_reduce(self, *, wait: bool = True) -> None:
        """Takes the averages and gives the buffers back; waits for them, or only if they are here.

        With replicas there is one more collective, begun in the same order on all ranks: it waits.
        """
        for shard in self.shards:
            if wait or shard.reduced():
                shard.finish_reduce()

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

    def keep_local(self) -> None:
        """Leaves full gradients of this rank alone in place, for later backwards to add to."""
        for shard in self.shards:
            shard.unsynchronised = shard.trained
