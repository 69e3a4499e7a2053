"""A module of which each rank has pieces, as a whole: its state, its gradients and their norm.

Notebook: 04 ZeRO (sharded_clip_norm), 11 Distributed checkpoint.
Paper: Zhao et al., "PyTorch FSDP" (2023), section 4.1.
Costs an all-gather for each unit where something whole is asked for; clipping 8 bytes.
The production version (FSDP2) has DTensors in the module's own state_dict, and `full_tensor()`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast
from course_lib.parallel.matrix.owners import Cut
from course_lib.parallel.one_wrapper import claim
from course_lib.parallel.shared_memory import distinct
from course_lib.parallel.zero.clip import clip_shards
from course_lib.parallel.zero.sharded.kept_whole import KeptWhole
from course_lib.parallel.zero.sharded.shard_guard import ShardGuard
from course_lib.parallel.zero.sharded.unit import Unit

EXTRA = "_extra_state"  # what torch's state_dict calls it


class ShardedModule(nn.Module):
    """What FSDP is between two steps.

    Args:
        module: whose parameters are cut.
        group: the ranks that share the shards.
        replicas: the ranks that have the same shard.
        keep_whole: parameters that are not cut.

    Attributes:
        units: what is gathered together; the root is last.
        unfinished: "forward" or "backward", if one has begun and not ended.
    """

    units: list[Unit]

    def __init__(
        self,
        module: nn.Module,
        group: Group,
        replicas: Group | None,
        keep_whole: Iterable[nn.Parameter],
    ) -> None:
        super().__init__()
        self.module, self.group, self.replicas = module, group, replicas
        self.unfinished = ""
        self._names = {p: name for name, p in module.named_parameters()}
        self._kept = KeptWhole(list(keep_whole), [g for g in (group, replicas) if g is not None])

    def finish_units(self, units: list[Unit]) -> None:
        """The parameters are cut now: buffers are made equal, and guards begin to look."""
        self.units = units
        self._unit_of = {p: unit for unit in units for p in unit.trained}
        for buffer in self.module.buffers():
            broadcast(distinct(buffer), 0, self.group)
        self._guard = ShardGuard(self, units, self._names, self.group)
        self._guard.watch(self, self.module)
        claim(self, list(self._names))

    @property
    def trained(self) -> list[nn.Parameter]:
        """All parameters that get gradients; the same order on every rank."""
        return [*self._unit_of, *self._kept.trained]

    def free(self) -> None:
        """Goes back to this rank's pieces, where a forward has left parameters whole."""
        for unit in self.units:
            unit.free()

    def cuts(self) -> dict[nn.Parameter, Cut]:
        """How each trained parameter is cut, for optimizers that must join the pieces."""
        return {
            parameter: Cut(tuple(shard.layout.shapes[number]), shard.layout.ranges(number))
            for unit in self.units
            for shard in unit.shards
            for number, parameter in enumerate(shard.parameters)
            if shard.trained
        }

    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        """Scales all gradients down together if their norm over all ranks is above `max_norm`.

        Every element is on one rank of the group, so squares add up: one all-reduce of 8 bytes.
        Torch's own would see a norm of this rank alone, and refuses.

        Returns:
            The norm before clipping, float64, the same on every rank.
        """
        cut = (p.grad for p in self._unit_of if p.grad is not None)
        whole = (p.grad for p in self._kept.trained if p.grad is not None)
        return clip_shards(cut, max_norm, self.group, whole)

    @torch.no_grad()
    def full_gradients(self) -> dict[str, torch.Tensor]:
        """All gradients whole, by name, on the CPU; collective: one all-gather for each unit."""
        self.free()
        whole = {p: t for unit in self.units for p, t in unit.whole(lambda p: p.grad).items()}
        whole |= {p: p.grad.cpu().clone() for p in self._kept.trained if p.grad is not None}
        return {name: whole[p] for p, name in self._names.items() if p in whole}

    @torch.no_grad()
    def full_state_dict(self) -> dict[str, Any]:
        """The module's state as if it had never been cut, on the CPU of every rank.

        Collective: one all-gather for each unit, whose memory is all that is held beside the
        result.
        """
        self.free()
        whole = {p: t for unit in self.units for p, t in unit.whole(lambda p: p.data).items()}

        def one(value: Any) -> Any:
            if not torch.is_tensor(value):
                return copy.deepcopy(value)  # get_extra_state's, of any type
            if isinstance(value, nn.Parameter) and value in whole:
                return whole[value]
            return value.cpu().clone()

        state = self.module.state_dict(keep_vars=True)  # parameters themselves, under all names
        return {name: one(value) for name, value in state.items()}

    @torch.no_grad()
    def load_full_state_dict(self, state: dict[str, Any]) -> None:
        """Takes this rank's pieces out of a whole state, which every rank passes.

        Raises:
            CommError: names or shapes are not the module's.
        """
        self.free()
        self._guard.refuse_other_state(state)
        for unit in self.units:
            unit.load({p: state[name] for p, name in self._names.items()})
        for parameter in self._kept.parameters:
            parameter.copy_(state[self._names[parameter]])
        for name, buffer in self.module.named_buffers():
            if name in state:
                buffer.copy_(state[name])
        for name, part in self.module.named_modules():
            extra = f"{name}.{EXTRA}" if name else EXTRA
            if extra in state:
                part.set_extra_state(state[extra])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """`to`, `cuda`, `double` and the like, where they change nothing but buffers."""
        self.free()
        self._guard.refuse_moved(fn)
        return super()._apply(fn, recurse)
