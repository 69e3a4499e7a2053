"""ZeRO-3: parameters, gradients and optimizer state are all cut; a unit is whole only while used.

Notebook: 04 ZeRO (FSDPUnit, prefetch, sharded_clip_norm, HSDP).
Paper: Rajbhandari et al., "ZeRO" (2020), section 5.3; Zhao et al., "PyTorch FSDP" (2023).
Costs a step, for units of S bytes together: all-gather before forward, again before backward,
reduce-scatter after it: 3(N-1)/N·S bytes a rank; 2(N-1)/N·S without resharding, and for the root
unit, which stays whole from forward to backward. Memory: everything 1/N, and two units more.
The production version (FSDP2's fully_shard) shards each parameter along dim 0, and runs gathers
and reductions on CUDA streams of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from course_lib.comm import Group, all_reduce, broadcast
from course_lib.parallel.data.unused import agree_used
from course_lib.parallel.guard import weakly
from course_lib.parallel.zero.cut import cut
from course_lib.parallel.zero.flat_shard import Precision
from course_lib.parallel.zero.guard import ShardGuard, refuse_sharded
from course_lib.parallel.zero.reduce_order import ReduceOrder
from course_lib.parallel.zero.unit import Unit


class FSDP(nn.Module):
    """Shards a module over a group, unit by unit.

    Parameters keep their names and stay the objects that they are, but outside of forward and
    backward each is the *piece* of it that this rank has: one dimension, perhaps no element. So an
    optimizer must work element by element, as SGD and Adam do, and has 1/N of the state.

    Args:
        module: any module; the same on every rank. Index 0's values are taken.
        group: the ranks to shard over.
        units: submodules that are gathered by themselves, such as the blocks. What is left over is
            the root unit, and so is a parameter that several units share. All ranks must call the
            same units in the same order.
        replicas: for hybrid sharding (HSDP), the ranks that have the same shard.
        reshard: free each unit after its forward (FULL_SHARD); otherwise it stays whole until its
            backward (SHARD_GRAD_OP): one gather less, all parameters in memory.
        prefetch: begin the next unit's all-gather before computing with this one.
        precision: what to compute and communicate in.
        find_unused_parameters: as for `BucketedDDP`. All units are then reduced after the backward,
            the only point that ranks which use different parameters reach together.

    Attributes:
        units: what is gathered together, in the order in which it stands in the model, and the
            root, last. Their shards and the layouts of those say what this rank has.

    Raises:
        CommError: a unit is no part of the module, is wrapped already, or has no parameters; in
            backward, a parameter got no gradient, or another one after its average; in an
            optimizer's step, the gradients are of this rank alone, or the optimizer has a state
            from before the wrapping.
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group,
        units: Iterable[nn.Module] = (),
        *,
        replicas: Group | None = None,
        reshard: bool = True,
        prefetch: bool = True,
        precision: Precision | None = None,
        find_unused_parameters: bool = False,
    ) -> None:
        super().__init__()
        self.module, self.group, self.replicas = module, group, replicas
        self.reshard, self.prefetch = reshard, prefetch
        self.precision = precision or Precision()
        self.find_unused_parameters = find_unused_parameters
        self._synchronises, self._frees, self._in_backward = True, True, False
        self._names = {p: name for name, p in module.named_parameters()}
        self._order: list[Unit] = []  # by use, in this forward
        self._expected: list[Unit] = []  # the same, of the forward before
        self.units = self._make_units(list(units))
        self._root = self.units[-1]
        self._unit_of = {p: unit for unit in self.units for p in unit.trained}
        for buffer in module.buffers():
            broadcast(buffer, 0, group)
        self._guard = ShardGuard(self, self.units, self._names, group.rank)

    def _make_units(self, modules: list[nn.Module]) -> list[Unit]:
        """The inner units, in the order in which they stand in the model, and the root, last."""
        refuse_sharded(self.module, FSDP)
        units = []
        for module, name, parameters in cut(self.module, modules):
            unit = Unit(name, parameters, self.group, self.replicas, self.precision)
            for parameter in unit.trained:
                parameter.register_post_accumulate_grad_hook(weakly(self._on_gradient))
            if module is not None:
                module.register_forward_pre_hook(self._before_forward(unit), with_kwargs=True)
                module.register_forward_hook(self._after_forward(unit))
            units.append(unit)
        return units

    # --- forward ---------------------------------------------------------------------------------
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward, with whole parameters, one unit at a time."""
        self._in_backward = False
        self._expected, self._order = self._order, []
        args, kwargs = self.precision.cast((args, kwargs))
        self._before(self._root)
        output = self.module(*args, **kwargs)
        for unit in self.units[:-1]:
            if self.reshard or not torch.is_grad_enabled():
                unit.free()  # gathered, but not used after all
        if torch.is_grad_enabled():
            self._watch(self._root, output)
        else:
            self._root.free()
        return output

    def _before_forward(self, unit: Unit) -> Callable[..., Any]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> Any:
            args, kwargs = self.precision.cast((args, kwargs))
            self._before(unit)
            if not unit.trained:
                self._free_behind(unit, (args, kwargs))
            return args, kwargs

        return hook

    def _before(self, unit: Unit) -> None:
        """A unit is about to compute: it must be whole, and the next gather may begin."""
        unit.gather()
        unit.wait()
        if self._in_backward:
            return  # recomputed, as activation checkpointing does
        place = len(self._order)
        self._order.append(unit)
        if self.prefetch and self._expected[place : place + 1] == [unit]:
            for following in self._expected[place + 1 : place + 2]:
                following.gather()
        unit.begun = time.monotonic()

    def _after_forward(self, unit: Unit) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if torch.is_grad_enabled():
                self._watch(unit, output)
            if not self._in_backward:
                self.group.ledger.add_span(f"forward {unit.name}", unit.begun)
                if self.reshard or not torch.is_grad_enabled():
                    unit.free()

        return hook

    def _watch(self, unit: Unit, output: Any) -> None:
        """Registers that this unit's backward begins with the first gradient of its output."""
        use = object()
        for tensor in tree_leaves(output):
            if torch.is_tensor(tensor) and tensor.requires_grad:
                tensor.register_hook(lambda _: self._before_backward(unit, use))

    def _free_behind(self, unit: Unit, inputs: Any) -> None:
        """Frees a frozen unit when the gradients of its inputs are complete."""
        for tensor in tree_leaves(inputs):
            if torch.is_tensor(tensor) and tensor.requires_grad:
                tensor.register_hook(lambda _: unit.free())

    # --- backward --------------------------------------------------------------------------------
    def _before_backward(self, unit: Unit, use: object) -> None:
        """A unit is about to compute the gradients of one use of it."""
        if not self._in_backward:
            self._in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._after_backward)
            self._backward = ReduceOrder(self._order, self.group.rank)
        unit.gather()
        unit.wait()
        self._backward.begin(unit, use)
        if self.prefetch and self._order.count(unit) == 1:
            # Before a block comes the one before it; before the root, which closes, the last.
            self._order[self._order.index(unit) - 1].gather()
        unit.begun = time.monotonic()

    def _on_gradient(self, parameter: nn.Parameter) -> None:
        self._backward.take_averages()
        unit = self._unit_of[parameter]
        self._backward.refuse_late(unit)
        unit.pending.discard(parameter)
        if self._backward.is_complete(unit):
            self._finish_unit(unit)

    def _finish_unit(self, unit: Unit) -> None:
        """All gradients of a unit are there, or will not come: its parameters can be freed."""
        self.group.ledger.add_span(f"backward {unit.name}", unit.begun)
        self._backward.add_complete(unit)
        if self._frees:
            unit.free()
        if not self._synchronises:
            unit.keep_local()
        elif not self.find_unused_parameters:
            self._backward.reduce()

    def _after_backward(self) -> None:
        """The end of a backward: what autograd did not reach, and the last reduction."""
        self._in_backward = False
        left = self._backward.left()
        for unit in left:
            unit.begin_backward()
        if self._synchronises and not self.find_unused_parameters:
            self._guard.refuse_missing(left)
        for unit in left:
            self._finish_unit(unit)
        if self._synchronises:
            self._backward.reduce()
        for unit in self.units:
            if self._frees:
                unit.free()
            unit.finish_reduce()
            unit.in_backward = False
        if self._synchronises and self.find_unused_parameters:
            self._leave_unused_alone()

    def _leave_unused_alone(self) -> None:
        pairs = [(unit, p) for unit in self._backward.units for p in unit.trained]
        used = agree_used([p in self._backward.used for _, p in pairs], self.group)
        for (unit, parameter), anywhere in zip(pairs, used, strict=True):
            if not anywhere:
                unit.forget(parameter)

    @contextmanager
    def no_sync(self, *, reshard: bool = True) -> Iterator[None]:
        """Backwards inside accumulate full gradients and reduce nothing: more memory, fewer bytes.

        Without `reshard` parameters stay until a forward, or a backward outside, frees them.
        """
        before, self._synchronises, self._frees = (self._synchronises, self._frees), False, reshard
        try:
            yield
        finally:
            self._synchronises, self._frees = before

    # --- gradients and state ---------------------------------------------------------------------
    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        """Scales all gradients down together if their norm over all ranks is above `max_norm`.

        Every element is on one rank of the group, so squares add up: one all-reduce of 8 bytes.

        Returns:
            The norm before clipping, float64, the same on every rank.
        """
        grads = [p.grad for p in self._names if p.grad is not None]
        squares = torch.zeros((), dtype=torch.float64, device=self.group.device)
        for grad in grads:
            squares += grad.double().pow(2).sum().to(squares.device)
        all_reduce(squares, self.group)
        norm = squares.sqrt()
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(scale.to(grad.device))
        return norm

    @torch.no_grad()
    def full_gradients(self) -> dict[str, torch.Tensor]:
        """All gradients whole, by name, on the CPU; collective: one all-gather for each unit."""
        whole = {p: t for unit in self.units for p, t in unit.whole(lambda p: p.grad).items()}
        return {name: whole[p] for p, name in self._names.items() if p in whole}

    @torch.no_grad()
    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The module's state as if it had never been cut, on the CPU of every rank.

        Collective: one all-gather for each unit, whose memory is all that is held beside the
        result.
        """
        whole = {p: t for unit in self.units for p, t in unit.whole(lambda p: p.data).items()}
        state = self.module.state_dict(keep_vars=True)  # parameters themselves, under all names
        return {name: whole[t] if t in whole else t.cpu().clone() for name, t in state.items()}

    @torch.no_grad()
    def load_full_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Takes this rank's pieces out of a whole state, which every rank passes.

        Raises:
            CommError: names or shapes are not the module's.
        """
        self._guard.refuse_other_state(state)
        for unit in self.units:
            unit.load({p: state[name] for p, name in self._names.items()})
        for name, buffer in self.module.named_buffers():
            if name in state:
                buffer.copy_(state[name])
