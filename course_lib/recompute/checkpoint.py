"""Activation checkpointing: forget what a block saved for its backward, and compute it again then.

Notebook: 10 Activation checkpointing (checkpoint, recompute_under_parallelism).
Paper: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); the hooks are PyTorch's
`torch.autograd.graph.saved_tensors_hooks`.
Costs: a block keeps its inputs instead of its activations, and its forward runs once more, up to
the last tensor that its backward needs; collectives up to there are issued again, on every rank.
The production version (torch.utils.checkpoint with use_reentrant=False) works in this way, too.

The block's own graph stays, with a numbered slot where each saved tensor was. The first slot that
a backward opens runs the block again and fills them all; what is not used is gone when that
backward ends, also if the graph stays for another one. So gradients flow as if nothing had been
forgotten: hooks on parameters run once a backward, also if several blocks share them, which DDP
and FSDP rely on. (A backward called inside an autograd function's backward would end early for
them: they take the end of the inner one for the end of all.)
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._pytree import tree_flatten, tree_unflatten

from course_lib.trace.refusal import Refusal

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]


class RandomState(Protocol):
    """A source of random numbers whose state can be saved and restored: a torch.Generator."""

    def get_state(self) -> Any:
        """Its state."""

    def set_state(self, state: Any) -> Any:
        """Goes on from that state."""


class Recompute:
    """A way to checkpoint: call it with a function and its arguments.

    Args:
        generators: what the function draws random numbers from, beside torch's default generators.
        contexts: makes two contexts for each call: the first is active while the function runs, the
            second while it runs again.
    """

    def __init__(
        self, generators: Sequence[RandomState] = (), contexts: Contexts | None = None
    ) -> None:
        self._generators = tuple(generators)
        self._contexts = contexts or (lambda: (nullcontext(), nullcontext()))

    def __call__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`fn(*args, **kwargs)`, as `checkpoint` says."""
        if not torch.is_grad_enabled():
            return fn(*args, **kwargs)
        first, again = self._contexts()
        block = _Block(fn, args, kwargs, _Surroundings(self._generators), again)
        with saved_tensors_hooks(block.reserve, _Slot.open), first:
            return fn(*args, **kwargs)


def checkpoint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function, forgets its activations, and computes them again in backward.

    Args:
        fn: a module or any function that does the same when it is called again. What it changes
            on the way (a batch norm's averages) is changed twice.
        args: its arguments. Tensors in them are kept, also inside lists, tuples and dicts; they
            need not require gradients. Everything else is passed again as it is.
        kwargs: more of them.

    Returns:
        What `fn` returns: tensors, in any nesting, and anything else.

    Raises:
        Refusal: (in backward) the second run saved other tensors than the first.
        RuntimeError: (in backward) a second backward through a graph that was not retained, or an
            input that was changed in place, as torch raises it for any operation.
    """
    return Recompute()(fn, *args, **kwargs)


def checkpoint_module(module: nn.Module, how: Callable[..., Any] = checkpoint) -> None:
    """Checkpoints a module's forward, in place; names of parameters stay as they are.

    Hooks of the module run outside, once a forward: those of an FSDP unit gather its parameters
    for both runs.

    Args:
        module: its `forward` is replaced.
        how: `checkpoint`, a `Recompute`, or what `selective` returns.
    """
    module.forward = partial(how, module.forward)


# --- what is needed to run again ------------------------------------------------------------------
class _Kept(torch.autograd.Function):
    """An operation that only saves tensors.

    So an input is kept as autograd keeps any saved tensor: a change in place is noticed, and the
    hooks of an outer checkpoint, or of offloading, treat it as one of theirs.
    """

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return token.clone()


class _Surroundings:
    """What a function's results depend on beside its arguments.

    Random numbers, autocast, and modes that see each call of torch's functions, such as a default
    device, or what splits a linear layer's backward in two.
    """

    def __init__(self, generators: Sequence[RandomState]) -> None:
        self._generators: list[RandomState] = [torch.default_generator, *generators]
        devices = ["cpu"]
        if torch.cuda.is_initialized():
            devices.append("cuda")
            current = torch.cuda.current_device()
            self._generators.append(torch.cuda.default_generators[current])
        self._states = [generator.get_state() for generator in self._generators]
        self._modes = _get_current_function_mode_stack()
        self._cache = torch.is_autocast_cache_enabled()
        self._autocast = [
            (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
            for device in devices
        ]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restores it for a while; random numbers go on afterwards as if nothing had happened."""
        now = [generator.get_state() for generator in self._generators]
        here = _get_current_function_mode_stack()
        with ExitStack() as stack:
            for mode in self._modes:
                if mode not in here:
                    stack.enter_context(mode)
            for device, dtype, on in self._autocast:
                stack.enter_context(
                    torch.autocast(device, dtype=dtype, enabled=on, cache_enabled=self._cache)
                )
            self._set(self._states)
            try:
                yield
            finally:
                self._set(now)

    def _set(self, states: list[Any]) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


class _Enough(BaseException):
    """Every slot is filled: the rest of the second run would be thrown away.

    No `Exception`, of which a function may catch any that it meets.
    """


class _Slot:
    """Where a saved tensor was; it is freed when autograd no longer needs that tensor."""

    def __init__(self, block: _Block, tensor: torch.Tensor) -> None:
        self._block = block
        self.like = (tuple(tensor.shape), tensor.dtype, tensor.device)

    def open(self) -> torch.Tensor:
        """The tensor, computed again if this backward has not done so for another slot."""
        return self._block.value_of(self)


class _Values(weakref.WeakKeyDictionary[_Slot, torch.Tensor]):
    """What a second run has saved, until its slot is opened, or freed, or the backward ends."""

    def keep_for_this_backward(self) -> None:
        """Has the backward that runs now hold it; outside of one, the caller alone does."""
        if torch._C._current_graph_task_id() != -1:
            torch.autograd.Variable._execution_engine.queue_callback(partial(_nothing, self))


def _nothing(_values: _Values) -> None:
    return


class _Block:
    """One call of a checkpointed function."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        surroundings: _Surroundings,
        again: AbstractContextManager[Any],
    ) -> None:
        self._fn, self._surroundings, self._again = fn, surroundings, again
        self._leaves, self._spec = tree_flatten((args, kwargs))
        self._places = [i for i, leaf in enumerate(self._leaves) if torch.is_tensor(leaf)]
        tensors = [self._leaves[i] for i in self._places]
        self._needed = [tensor.requires_grad for tensor in tensors]
        for place in self._places:
            self._leaves[place] = None
        # Never run backwards: its node, which lives as long as it, is asked for what it has saved.
        self._kept = _Kept.apply(torch.zeros((), requires_grad=True), *tensors)
        self._slots: list[weakref.ref[_Slot]] = []
        self._values: Callable[[], _Values | None] = lambda: None

    def reserve(self, tensor: torch.Tensor) -> _Slot:
        """Takes a number instead of a tensor that is to be saved."""
        slot = _Slot(self, tensor)
        self._slots.append(weakref.ref(slot))
        return slot

    def value_of(self, slot: _Slot) -> torch.Tensor:
        """The tensor of a slot, which has it no longer afterwards."""
        values = self._values()
        if values is None or slot not in values:
            values = self._run_again()
        return values.pop(slot)

    def _run_again(self) -> _Values:
        """Computes the block once more, and fills the slots that are still needed.

        Raises:
            Refusal: it saves other tensors than before.
        """
        args, kwargs = self._inputs()
        numbers = itertools.count()
        values = _Values()
        self._values = weakref.ref(values)
        values.keep_for_this_backward()

        def fill(tensor: torch.Tensor) -> torch.Tensor:
            number = next(numbers)
            self._fill(values, number, tensor)
            if number + 1 == len(self._slots):
                raise _Enough
            return tensor.detach()

        with self._surroundings.restored(), torch.enable_grad():
            try:
                with saved_tensors_hooks(fill, lambda tensor: tensor), self._again:
                    self._fn(*args, **kwargs)
            except _Enough:
                return values
        raise Refusal(
            f"the activations of {_name(self._fn)}, computed again for its backward",
            f"{next(numbers)} saved tensors, where the first run saved {len(self._slots)}",
            "a checkpointed function must do the same when it is called again",
        )

    def _inputs(self) -> Any:
        """The arguments, cut off from the graph that they came from."""
        leaves = list(self._leaves)
        saved = self._kept.grad_fn.saved_tensors
        for place, tensor, needed in zip(self._places, saved, self._needed, strict=True):
            leaves[place] = tensor.detach().requires_grad_(needed)
        return tree_unflatten(leaves, self._spec)

    def _fill(self, values: _Values, number: int, tensor: torch.Tensor) -> None:
        slot = self._slots[number]()
        if slot is None:
            return  # backward is past it
        found = (tuple(tensor.shape), tensor.dtype, tensor.device)
        if found != slot.like:
            raise Refusal(
                f"saved tensor {number + 1} of {_name(self._fn)}, computed again for its backward",
                f"{_describe(*found)}, where the first run saved {_describe(*slot.like)}",
                "a checkpointed function must do the same when it is called again",
            )
        values[slot] = tensor.detach()


def _describe(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    return f"shape {shape}, {dtype} on {device}"


def _name(fn: Callable[..., Any]) -> str:
    """What an error calls it: a module's class for its forward, else the function's name."""
    owner = getattr(fn, "__self__", fn)
    return (
        type(owner).__name__ if isinstance(owner, nn.Module) else getattr(fn, "__name__", str(fn))
    )
