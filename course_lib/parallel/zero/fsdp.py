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
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from course_lib.comm import Group
from course_lib.parallel.data.unused import agree_used
from course_lib.parallel.failed_step import Together
from course_lib.parallel.guard import weakly
from course_lib.parallel.tensors import find_tensors
from course_lib.parallel.zero.precision import Precision
from course_lib.parallel.zero.sharded.backward import Backward, Wanted
from course_lib.parallel.zero.sharded.cut import cut
from course_lib.parallel.zero.sharded.cuttable import refuse_replicas, refuse_uncuttable
from course_lib.parallel.zero.sharded.order import Order, Use
from course_lib.parallel.zero.sharded.read_guard import RefuseReads
from course_lib.parallel.zero.sharded.shard_guard import UncopiedHook
from course_lib.parallel.zero.sharded.sharded_module import ShardedModule
from course_lib.parallel.zero.sharded.unit import State, Unit


class FSDP(ShardedModule):
    """Shards a module over a group, unit by unit.

    Parameters keep their names and stay the objects that they are, but outside of forward and
    backward each is the *piece* of it that this rank has: one dimension, perhaps no element. So an
    optimizer must work element by element, as SGD and Adam do, and has 1/N of the state.

    Args:
        module: any module; the same on every rank. Index 0's values are taken.
        group: the ranks to shard over.
        units: submodules that are gathered by themselves, such as the blocks. What is left over is
            the root unit, and so is a parameter that several units share. All ranks must call the
            same units in the same order (but see `find_unused_parameters`), by their `forward` (or
            a method of `call_as_forward`), and all that a backward may come from must be in what a
            unit returns; a loss may use the root's parameters as well.
        replicas: for hybrid sharding (HSDP), the ranks that have the same shard.
        reshard: free each unit after its forward (FULL_SHARD); otherwise it stays whole until its
            backward (SHARD_GRAD_OP): one gather less, all parameters in memory.
        prefetch: begin the next unit's all-gather before computing with this one.
        precision: what to compute and communicate in.
        find_unused_parameters: as for `BucketedDDP`; ranks may call different units, such as
            experts. All units are then gathered before a forward and before a backward, and freed
            and reduced after it, the only points that such ranks reach together: in between all
            parameters are in memory.
        keep_whole: parameters that are not cut, such as those of norms and routers. They are made
            equal on all ranks, and their gradients are averaged at the end of each backward.

    Attributes:
        units: what is gathered together, in the order in which it stands in the model, and the
            root, last. Their shards and the layouts of those say what this rank has.

    Raises:
        CommError: the replicas have another shard; a unit is no part of the module, is wrapped
            already, or has no forward; there are no parameters, or some share memory without being
            one; in a forward, a unit returns its own parameters, or a part of it is called past it;
            in backward, a parameter got no gradient, or one while it was cut, or create_graph is
            asked for; in an optimizer's step, the gradients are of this rank alone, or the
            optimizer has a state from before the wrapping. After a forward or backward that raised
            on some ranks only, the next one says that the model must be made again.
        RuntimeError: from autograd, a backward came to a unit by another way than what the unit
            returned, and found weights of another version: they were not there.
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
        keep_whole: Iterable[nn.Parameter] = (),
    ) -> None:
        refuse_replicas(group, replicas)
        super().__init__(module, group, replicas, keep_whole)
        self.reshard, self.prefetch = reshard, prefetch
        self.precision = precision or Precision()
        self.find_unused_parameters = find_unused_parameters
        self._synchronises, self._frees = True, True
        self._order, self._expected = Order(), Order()  # of this forward, and of the one before
        self._backward: Backward | None = None
        self._watched: set[bool] = set()  # whether a forward with gradients, and one without
        self._callback: Callable[[], object] = lambda: None  # autograd's, while it has one
        self.finish_units(self._make_units(list(units)))
        for parameter in self.trained:
            parameter.register_hook(weakly(self._before_gradient))
        self._root = self.units[-1]
        self._together = [Together(g) for g in (group, replicas) if g is not None]

    def _make_units(self, modules: list[nn.Module]) -> list[Unit]:
        """The inner units, in the order in which they stand in the model, and the root, last."""
        refuse_uncuttable(self.module, modules, FSDP)
        units = []
        for module, name, parameters in cut(self.module, modules, set(self._kept.parameters)):
            unit = Unit(name, parameters, self.group, self.replicas, self.precision)
            for parameter in unit.trained:
                parameter.register_post_accumulate_grad_hook(weakly(self._on_gradient))
            if module is not None:
                before = UncopiedHook(partial(self._before_forward, unit))
                after = UncopiedHook(partial(self._after_forward, unit))
                # First, since other hooks of the module may use its weights, as weight_norm's.
                module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
                module.register_forward_hook(after)
            units.append(unit)
        return units

    # --- forward ---------------------------------------------------------------------------------
    @torch._disable_dynamo  # a graph would keep pieces for weights: compile the inside of units
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward, with whole parameters, one unit at a time."""
        if self._running() is not None:
            return self._compute(args, kwargs)  # recomputed, as activation checkpointing does
        self._recover()
        self._expected, self._order = self._order, Order()
        self.unfinished = "forward"
        if self.find_unused_parameters:
            for unit in self.units:
                unit.gather()  # on all ranks, whichever units each of them is about to call
        with self._watching_reads():
            output = self._compute(args, kwargs)
        self._watched.add(torch.is_grad_enabled())
        self.unfinished = ""
        for unit in self.units[:-1]:
            if self.reshard or not torch.is_grad_enabled():
                unit.free()  # gathered, but not used after all
        return output

    def _watching_reads(self) -> AbstractContextManager[object]:
        """The first forward, with gradients and without: later ones run the same code."""
        if torch.is_grad_enabled() in self._watched:
            return nullcontext()
        return RefuseReads(self._unit_of, self._guard.refuse_outside, self.group.rank)

    def _compute(self, args: Any, kwargs: Any) -> Any:
        args, kwargs = self._before_forward(self._root, self.module, args, kwargs)
        output = self.module(*args, **kwargs)
        self._after_forward(self._root, self.module, args, output)
        return output

    def _before_forward(self, unit: Unit, _: nn.Module, args: Any, kwargs: Any) -> Any:
        """SHARDED, GATHERING → WHOLE: the unit is about to compute. The next gather may begin."""
        args, kwargs = self.precision.cast((args, kwargs))
        given = find_tensors((args, kwargs))
        self._guard.refuse_transformed(unit, given)
        unit.gather()
        unit.wait()
        if self._running() is None:
            self._gather_next(unit)
            use: Use | None = self._order.begin(unit)
            unit.begun = time.monotonic()
        else:
            use = self._order.last.get(unit)
        if unit is not self._root and use is not None:
            self._watch(partial(self._after_backward, use), given)
        return args, kwargs

    def _gather_next(self, unit: Unit) -> None:
        """What the forward before used after this one, if the two have gone alike so far."""
        expected, place = self._expected.begun, len(self._order.begun)
        if self.prefetch and expected[place : place + 1] == [unit]:
            for following in expected[place + 1 : place + 2]:
                following.gather()

    def _after_forward(self, unit: Unit, _: nn.Module, __: Any, output: Any) -> None:
        """WHOLE → SHARDED, unless the backward is to find it whole."""
        tensors, backward = find_tensors(output), torch.is_grad_enabled()
        self._guard.refuse_own(unit, tensors)
        recomputed = self._running() is not None
        if recomputed:
            use = self._order.last.get(unit)
        else:
            reached = bool(unit.trained) or any(t.requires_grad for t in tensors)
            use = self._order.end(unit, has_backward=backward and reached)
        if use is not None:
            self._watch(partial(self._before_backward, use), tensors)
        if not recomputed:
            self.group.ledger.add_span(f"forward {unit.name}", unit.begun)
            stays = backward and (not self.reshard or unit is self._root)
            if self.find_unused_parameters and unit is not self._root:
                stays = True  # until the forward ends: ranks would gather it again alone
            if not stays and not self._order.computes(unit):
                unit.free()

    def _watch(self, hook: Callable[[torch.Tensor], None], tensors: list[torch.Tensor]) -> None:
        """Calls a hook when the gradient of one of these tensors is complete.

        A leaf's is complete as soon as its parts are there, whatever else is still to come: of the
        order in which autograd goes, it tells nothing.
        """
        for tensor in tensors:
            if torch.is_grad_enabled() and tensor.grad_fn is not None:
                tensor.register_hook(hook)

    # --- backward --------------------------------------------------------------------------------
    def _running(self) -> Backward | None:
        """The backward that is under way."""
        return self._backward if self._callback() is not None else None

    def _before_backward(self, use: Use, _: torch.Tensor) -> None:
        """SHARDED, GATHERING → WHOLE: a unit is about to compute the gradients of one use of it."""
        (self._running() or self._begin_backward()).arrive(use)

    def _after_backward(self, use: Use, _: torch.Tensor) -> None:
        """WHOLE → SHARDED → REDUCING, if no earlier use is to come."""
        backward = self._running()
        if backward is not None:
            backward.leave(use)

    def _begin_backward(self) -> Backward:
        """Autograd alone holds the callback for the end, and drops it if the backward raises."""
        self._guard.refuse_double_backward()
        self._recover()
        synchronises, at_end = self._synchronises, self.find_unused_parameters
        backward = Backward(self.units, Wanted(self._frees, synchronises, self.prefetch, at_end))
        self._backward, self.unfinished = backward, "backward"
        callback = partial(self._end_backward, backward, synchronises)
        self._callback = weakref.ref(callback, weakly(self._callback_is_gone))
        torch.autograd.Variable._execution_engine.queue_callback(callback)
        return backward

    def _callback_is_gone(self, _: object) -> None:
        self._backward = None
        if self.unfinished == "backward":
            for unit in self.units:
                unit.abandon()

    def _before_gradient(self, _: torch.Tensor) -> None:
        """A loss may use the root's parameters, or those kept whole, and perhaps no output."""
        if self._running() is None:
            self._begin_backward()

    def _on_gradient(self, parameter: nn.Parameter) -> None:
        backward, unit = self._running(), self._unit_of[parameter]
        if backward is not None:
            backward.take_averages()
        # Where a loss has read the piece first, autograd sums whole gradients to its shape.
        (expected,) = get_gradient_edge(parameter).node._input_metadata
        if unit.state is not State.WHOLE or tuple(expected.shape) != parameter.shape:
            self._guard.refuse_outside(unit, parameter)

    def _end_backward(self, backward: Backward, synchronises: bool) -> None:
        """WHOLE → SHARDED → REDUCING → SHARDED for what autograd did not reach, and the root."""
        if synchronises and not self.find_unused_parameters:
            self._guard.refuse_missing([*backward.left(), self._kept])
        used = [p for p in self.trained if p.grad is not None]
        backward.end()
        if synchronises:
            self._kept.average()
            if self.find_unused_parameters:
                self._leave_unused_alone(set(used))
        self._backward, self.unfinished = None, ""

    def _leave_unused_alone(self, used: set[nn.Parameter]) -> None:
        trained = self.trained
        anywhere = agree_used([p in used for p in trained], self.group)
        for parameter, is_used in zip(trained, anywhere, strict=True):
            if is_used:
                continue
            if parameter in self._unit_of:
                self._unit_of[parameter].forget(parameter)
            else:
                parameter.grad = None

    def _recover(self) -> None:
        """After a forward or backward that raised: goes on, if it has raised alike on all ranks."""
        if self.unfinished:
            for together in self._together:
                together.meet()
            for unit in self.units:
                unit.reset()
            self.unfinished = ""

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
