"""What FSDP refuses of what is done with a model whose parameters are cut.

Notebook: 04 ZeRO (FSDPUnit).
Source: the documentation of torch's FSDP (an optimizer is built after the wrapping).
Costs a look at the units for each step; no communication.
The production version (FSDP2) makes parameters DTensors, which know of what they are pieces.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.comm import CommError, Group
from course_lib.parallel.clip_guard import BY_ANY_NORM, refuse_clipping
from course_lib.parallel.guard import guard_steps, refuse_missing
from course_lib.parallel.one_wrapper import refuse_strangers
from course_lib.parallel.optimizer_probe import refuse_whole_tensor
from course_lib.parallel.scaler_guard import refuse_scaler
from course_lib.parallel.zero.sharded.unit import State, Unit


class UncopiedHook:
    """A hook that belongs to one FSDP: a copy of its module would gather the original's units."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook

    @torch._disable_dynamo
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the hook; where the module is compiled, outside of what is compiled."""
        return self._hook(*args, **kwargs)

    def __deepcopy__(self, _: Any) -> UncopiedHook:
        raise CommError(
            "a copy of a module under FSDP",
            "parameters of which this rank has pieces, and hooks of the original",
            "make the model again, FSDP of it, and load_full_state_dict(full_state_dict())",
        )

    def __reduce__(self) -> Any:
        return self.__deepcopy__(None)


class HasTrained(Protocol):
    """Parameters of which all must get gradients."""

    @property
    def trained(self) -> Sequence[nn.Parameter]:
        """They."""


class ShardGuard:
    """Looks at what is done with an FSDP model, and at every optimizer step that touches it.

    Args:
        owner: the model; the guard goes with it, and does not keep it alive.
        units: its units.
        names: its parameters, and their names.
        group: the ranks that share the shards.

    Raises (in an optimizer's step):
        CommError: the optimizer needs whole tensors, or was used before they were cut; gradients
            of this rank alone would be used, or those of a backward that has raised.
    """

    def __init__(
        self, owner: nn.Module, units: Sequence[Unit], names: Mapping[nn.Parameter, str],
        group: Group,
    ) -> None:  # fmt: skip
        self._units, self._names, self._group, self._rank = units, names, group, group.rank
        self._owner = weakref.ref(owner)

    def watch(self, owner: nn.Module, module: nn.Module) -> None:
        """Begins to look at optimizers, at torch's clipping, and at who saves or loads a state."""
        self._tried: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        guard_steps(owner, self._check_step)
        pieces = [p for unit in self._units for shard in unit.shards for p in shard.parameters]
        found = f"pieces, whose other parts {self._group} has"
        why = "each rank would clip by another norm: call clip_grad_norm of the FSDP"
        refuse_clipping(owner, pieces, BY_ANY_NORM, found, why)
        refuse_scaler(owner, pieces, found)
        cut = set(pieces)
        for part in module.modules():
            if any(p in cut for p in part.parameters(recurse=False)):
                part.register_state_dict_pre_hook(UncopiedHook(self._refuse_saving))
                part.register_load_state_dict_pre_hook(UncopiedHook(self._refuse_loading))
        self._watch_calls(module)

    def _watch_calls(self, module: nn.Module) -> None:
        """Looks at calls of the modules inside the units; a unit itself gathers when it is called.

        First of their hooks, since others may use the weights, as weight_norm's.
        """
        units = {unit.name for unit in self._units[:-1]}
        unit_of = {p: u for u in self._units for shard in u.shards for p in shard.parameters}
        for name, part in module.named_modules():
            owners = {unit_of[p] for p in part.parameters(recurse=False) if p in unit_of}
            if owners and name not in units:
                label = name or type(part).__name__
                refuse = partial(self._refuse_call, label, owners)
                part.register_forward_pre_hook(refuse, prepend=True)

    def _refuse_call(self, name: str, owners: set[Unit], *_: object) -> None:
        if torch.compiler.is_compiling():
            return  # what is compiled would depend on the units' states
        for unit in owners:
            if unit.state is not State.WHOLE:
                raise CommError(
                    f"a call of {name} of FSDP on rank {self._rank}",
                    f"{unit.name}, the unit of its parameters, which is {unit.state.name}",
                    "a unit is gathered for its forward only: call the FSDP, and use "
                    "call_as_forward for another method of a unit",
                )

    def _refuse_saving(self, module: nn.Module, _: str, keep_vars: bool) -> None:
        if not keep_vars:  # with it, what is asked for is the parameters, and not their values
            raise CommError(
                f"state_dict of a {type(module).__name__} under FSDP on rank {self._rank}",
                f"1/{self._group.size} of each parameter, under the name of the whole",
                "call full_state_dict() of the FSDP on all ranks, or save_sharded(hold_fsdp(...))",
            )

    def _refuse_loading(self, module: nn.Module, *_: Any) -> None:
        raise CommError(
            f"load_state_dict of a {type(module).__name__} under FSDP on rank {self._rank}",
            f"1/{self._group.size} of each parameter, under the name of the whole",
            "call load_full_state_dict(state) of the FSDP on all ranks, or load_resharded",
        )

    def refuse_own(self, unit: Unit, outputs: Sequence[torch.Tensor]) -> None:
        """Stops a unit that returns its own parameters, or views of them."""
        if any(unit.owns(tensor) for tensor in outputs):
            raise CommError(
                f"the output of {unit.name} of FSDP on rank {self._rank}",
                "a parameter of its own, or a view of one",
                "it is freed with the unit: return a copy, or leave the parameter whole by "
                "keep_whole",
            )

    def refuse_transformed(self, unit: Unit, tensors: Sequence[torch.Tensor]) -> None:
        """Stops a call of a unit with the tensors of vmap, grad, jvp and their like."""
        if any(torch._C._functorch.is_functorch_wrapped_tensor(t) for t in tensors):
            raise CommError(
                f"a call of {unit.name} of FSDP on rank {self._rank} inside torch.func",
                "tensors of a transformation, such as vmap or grad",
                "a unit is gathered and freed around a call that autograd records: make a unit of "
                "the module around it, or leave its parameters whole by keep_whole",
            )

    def refuse_outside(self, unit: Unit, parameter: nn.Parameter) -> None:
        """Stops what computes with a parameter that is cut, or has a gradient for it."""
        raise CommError(
            f"to use {self._names[parameter]} of FSDP on rank {self._rank}",
            f"{unit.name}, which is {unit.state.name}: nobody has called it, or its backward is "
            "behind",
            "its parameters may be used in its forward only: use call_as_forward for another "
            "method, or leave the parameter whole by keep_whole",
        )

    def refuse_double_backward(self) -> None:
        """Stops a backward of which autograd makes a graph: its hooks run with grad enabled."""
        if torch.is_grad_enabled():
            raise CommError(
                f"a backward of FSDP with create_graph=True on rank {self._rank}",
                "a second backward that would go through this one",
                "parameters are freed behind a backward, and nothing gathers them for one through "
                "it: use BucketedDDP for a penalty on gradients",
            )

    def refuse_missing(self, left: Sequence[HasTrained]) -> None:
        """Stops a backward that has ended, and left parameters of these units without gradient."""
        refuse_missing(
            [self._names[p] for unit in left for p in unit.trained if p.grad is None],
            self._rank,
            "freeze what is never used, or pass find_unused_parameters=True",
        )

    def refuse_moved(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Stops a change of device or dtype, which the shards would not see."""
        for unit in self._units:
            for shard in unit.shards:
                if change(shard.shard).data_ptr() != shard.shard.data_ptr():
                    raise CommError(
                        f"another device or dtype for {unit.name} of FSDP on rank {self._rank}",
                        f"a shard on {shard.shard.device}, {shard.shard.dtype}",
                        "move or cast the module first, and make FSDP of it then",
                    )

    def refuse_other_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Stops the loading of a whole state whose names or shapes are not the model's."""
        shapes = {n: s for unit in self._units for n, s in unit.shapes(self._names).items()}
        shapes = {n: shapes.get(n, p.shape) for p, n in self._names.items()}
        wrong = [n for n, s in shapes.items() if n not in state or state[n].shape != s]
        if wrong:
            raise CommError(
                f"load_full_state_dict on rank {self._rank}",
                f"{len(wrong)} parameters that are missing or of another shape: {wrong[:3]}",
                "the state must be of the same module, as full_state_dict gives it",
            )

    def _check_step(self, optimizer: Optimizer, touched: list[nn.Parameter]) -> None:
        asked = f"an optimizer's step on rank {self._rank}"
        self._try_once(asked, optimizer)
        for unit in self._units:
            if any(shard.unsynchronised for shard in unit.shards):
                raise CommError(
                    asked,
                    f"gradients of {unit.name} that no other rank has seen",
                    "the last backward of a window must be outside no_sync()",
                )
        self._refuse_half_a_backward(asked)
        for unit in self._units:
            unit.free()  # an update of what is whole would be lost
        refuse_strangers(optimizer, [p for p in touched if p in self._names], self._rank)
        for parameter, name in {p: self._names[p] for p in touched}.items():
            for key, value in optimizer.state[parameter].items():
                if torch.is_tensor(value) and value.dim() and value.shape != parameter.shape:
                    raise CommError(
                        asked,
                        f"{key} of shape {tuple(value.shape)} for {name}, of which this rank has "
                        f"{tuple(parameter.shape)}",
                        "the optimizer was built and used before FSDP: build it after",
                    )

    def _try_once(self, asked: str, optimizer: Optimizer) -> None:
        """Tries an optimizer at its first step, and again where groups have been added to it."""
        tried, groups = self._tried.get(optimizer, 0), len(optimizer.param_groups)
        if tried < groups:
            self._refuse_empty(asked, optimizer)
            if not getattr(optimizer, "joins_pieces", False):
                refuse_whole_tensor(asked, optimizer, tried)
            self._tried[optimizer] = groups

    def _refuse_empty(self, asked: str, optimizer: Optimizer) -> None:
        """Whoever sorts parameters by their dims finds no matrix, and so an empty group."""
        if not all(options["params"] for options in optimizer.param_groups):
            raise CommError(
                asked,
                "a parameter group without parameters, and pieces of one dim each in others",
                "whichever dims a parameter has, its piece has one: sort them by name or before "
                "FSDP, and leave out a group that stays empty",
            )

    def _refuse_half_a_backward(self, asked: str) -> None:
        if torch._C._current_graph_task_id() >= 0:
            raise CommError(
                asked,
                "a backward that goes on",
                "its averages are there when it has ended: step after it, and not in a hook",
            )
        if getattr(self._owner(), "unfinished", "") == "backward":
            raise CommError(
                asked,
                "gradients of a backward that has raised",
                "some are averages and some are missing: call zero_grad, and make the step again",
            )
