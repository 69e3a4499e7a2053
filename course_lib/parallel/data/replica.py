"""A replica of the model: equal at the start, with equal buffers, and what a step's end means.

Notebook: 02 Data parallel (what NaiveDDP, OverlapDDP and BucketedDDP have in common).
Paper: Li et al., "PyTorch Distributed" (2020), section 3.2.
Costs at the start one broadcast of parameters and buffers, and one of the buffers in each forward
of training.
The production version (`torch.nn.parallel.DistributedDataParallel`) compares shapes first.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast
from course_lib.parallel.data.ddp_guard import (
    ReplicaGuard,
    refuse_taken,
    refuse_unlike,
    refused_pickle,
)
from course_lib.parallel.failed_step import Together
from course_lib.parallel.guard import at_backward, weakly, when_accumulated
from course_lib.parallel.one_wrapper import claim, refuse_second
from course_lib.parallel.shared_memory import distinct


class Replica(nn.Module):
    """What the wrappers of data parallelism have in common, and when they synchronise.

    Args:
        module: any module; its parameters stay the objects that they are, so an optimizer may be
            built before or after.
        group: the data-parallel ranks.
        skip: parameters that this wrapper leaves alone, such as experts that other ranks lack.

    A step that failed on all ranks alike, in a forward or in a backward, is forgotten with its
    gradients when the next one begins.

    Raises (in a forward):
        CommError: the step before failed on this rank, and otherwise or not at all on others.

    Raises (in an optimizer's step):
        CommError: gradients of this rank alone would be used.
    """

    def __init__(self, module: nn.Module, group: Group, skip: Iterable[nn.Parameter] = ()) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self._synchronises = True
        self._unfinished = False  # a forward, or a backward that synchronises, has not ended
        self._in_backward = False  # a gradient of such a backward has come
        skipped = set(skip)
        self._names = {p: name for name, p in module.named_parameters() if p not in skipped}
        refuse_unlike(f"{type(self).__name__} of a {type(module).__name__}", module, self._names)
        for tensor in [*self._names, *module.buffers()]:
            broadcast(distinct(tensor), 0, group)
        self._together = Together(group)
        self._watch()
        self.register_load_state_dict_pre_hook(_as_module)

    def _watch(self) -> None:
        """Begins to look at gradients and at optimizers."""
        self._guard = ReplicaGuard(self, self._names, self.group.rank)
        self._claim = claim(self, list(self._names))
        for parameter in self._trained():
            when_accumulated(parameter, weakly(self._on_gradient))

    def __deepcopy__(self, memo: dict[int, Any]) -> Replica:
        """Another replica, with the same values; torch copies no hooks of parameters."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        own = {key: value for key, value in vars(self).items() if key != "_guard"}
        vars(twin).update(copy.deepcopy(own, memo))
        twin._watch()
        return twin

    def __reduce_ex__(self, _: Any) -> Any:
        raise refused_pickle(type(self).__name__)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward, with the buffers of index 0 in training."""
        counts = self.training or torch.is_grad_enabled()  # evaluation sends nothing
        if self._unfinished and counts:
            self._forget_step()
        self._unfinished |= self._synchronises and counts
        if self.training and self._synchronises:
            for buffer in self.module.buffers():
                broadcast(distinct(buffer), 0, self.group)
        output = self.module(*args, **kwargs)
        if counts:
            self._unfinished = False
            at_backward(output, self._on_begin)
        return output

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside only accumulate locally; the next one outside sends the sum."""
        before, self._synchronises = self._synchronises, False
        try:
            yield
        finally:
            self._synchronises = before

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own, with its own names: a checkpoint does not show how it was trained."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Loads what `state_dict` gave, or the bare module's."""
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def _trained(self) -> list[nn.Parameter]:
        """Parameters that need a gradient, each once, the same order on every rank."""
        return [p for p in self._names if p.requires_grad]

    def _forget_step(self) -> None:
        """The step before failed: if it did so on all ranks alike, its gradients are dropped."""
        self._together.meet()
        self._in_backward = False
        for parameter in self._trained():
            parameter.grad = None
        self._guard.clear()

    def _on_begin(self) -> None:
        """A backward has come to an output of the forward."""
        self._guard.begin()
        if self._synchronises and not self._unfinished:
            self._unfinished = True
            torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def _on_gradient(self, parameter: nn.Parameter) -> None:
        """A gradient has been accumulated; the first one of a backward asks for its end."""
        name = self._names[parameter]
        refuse_second(self._claim, parameter, name, self.group.rank)
        refuse_taken(parameter, name, self.group.rank)
        if self._synchronises and not self._in_backward:
            self._in_backward = self._unfinished = True
            torch.autograd.Variable._execution_engine.queue_callback(self._on_all_gradients)
            self._begin()

    def _begin(self) -> None:
        """The first gradient of a backward is there."""

    def _on_end(self) -> None:
        """Backward has ended; if it gave gradients, what is to be done with them comes next."""
        self._unfinished = self._in_backward

    def _on_all_gradients(self) -> None:
        """Backward has ended, and has given gradients."""
        self._unfinished = self._in_backward = False


def _as_module(wrapper: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Where a parent loads its own state, the names are the module's own, as they were saved."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[f"{prefix}module.{name.removeprefix(prefix)}"] = state_dict.pop(name)
