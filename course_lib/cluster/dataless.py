"""Tensors without data: operations are counted, priced and booked, and nothing is computed.

Notebook: 13 The mesh (a cluster in the cell).
Source: PyTorch's meta device and FakeTensorMode, on which torchtitan estimates a step's memory.
Costs about 10 microseconds an operation: what comes out of an operation on these shapes is looked
up after the first time.
The production version (FakeTensorMode) also pretends that tensors are on a device.

Floats have no values. Integers and flags do, as long as no float decides them, and so do numbers
that the program writes down: counts of tokens, positions and an optimizer's number of steps are
known, a loss is not. One choice by floats is made all the same, a router's: by an expected load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from course_lib.cluster.operations import (
    DRAWS,
    META,
    Form,
    Known,
    draws,
    empty,
    form_of,
    key_of,
    known_form,
    name_of,
    on_device,
    tensors_in,
)
from course_lib.trace import Refusal

CPU = torch.device("cpu")
# What a program can only do with values.
ASKS = (
    "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "_unique2",
    "unique_dim", "unique_consecutive", "allclose", "bincount",
)  # fmt: skip
SAID = {"_local_scalar_dense": "one number, as .item(), float() and if take it"}
TOPK = torch.ops.aten.topk.default
FLAGS = (torch.bool, torch.uint8)
Price = Callable[[Any, Any, Any], float]
Watch = Callable[[Any, float, Any], None]


class Dataless(TorchDispatchMode):
    """Runs operations on shapes alone, in the block.

    Args:
        price: seconds of an operation, from what goes in and what comes out: from the forms alone.
        watch: gets each operation, its seconds and what came out, but for views; None as the
            operation where the host does it, on numbers that are known.
        load: for a choice among so many, how often each is chosen, in proportion; without one for
            their number, all equally often.
    """

    def __init__(self, price: Price, watch: Watch, load: Sequence[float] = ()) -> None:
        super().__init__()
        self._price, self._watch, self._load = price, watch, load
        self._found: dict[Any, tuple[Form | Known, float]] = {}  # with what it takes
        self._random = torch.default_generator.get_state()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and to say so at each operation costs as much as the rest."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """One operation."""
        options = kwargs or {}
        tensors = tensors_in(args)
        if options:
            tensors += tensors_in(options.values())
        if not tensors and not any(each.name == "device" for each in func._schema.arguments):
            return func(*args, **options)
        if not tensors:
            return self._made(func, args, options)
        without = [tensor.is_meta for tensor in tensors]
        if not any(without):
            return self._known(func, args, options)
        if not all(without):
            _refuse_values(func, args, tensors)  # before those that have some look as if not
            args, options = _without_data(func, args, options)
        return self._computed(func, args, options, tensors)

    def _made(self, func: Any, args: Any, options: Mapping[str, Any]) -> Any:
        """A new tensor of nothing: of floats without data, of integers with."""
        there = on_device(META, {"device": META, **options})
        key = key_of(func, args, there)
        form, seconds = self._found.get(key, (None, 0.0))
        if isinstance(form, Form):
            result = empty(form)
        else:
            result = func(*args, **there)
            if not (result.is_floating_point() or result.is_complex()):
                return self._known(func, args, options)
            seconds = self._price(func, (), result)
            if key is not None:
                self._found[key] = form_of(result), seconds
        self._watch(func, seconds, result)
        return result

    def _chosen(self, args: Any, options: Mapping[str, Any]) -> Any:
        """The largest of values that nobody knows: which they are follows the expected load.

        No row chooses one twice, unless an expert is to have more choices than there are rows.
        """
        values, indices = TOPK(*args, **options)
        self._watch(TOPK, self._price(TOPK, args, (values, indices)), (values, indices))
        dim = args[2] if len(args) > 2 else -1
        rows = indices.transpose(dim, -1)
        count = args[0].shape[dim]
        load = self._load if len(self._load) == count else [1.0] * count
        # Where the choices of one end and the next one's begin, if all stand in a line.
        ends = torch.tensor(load, dtype=torch.float64, device=CPU).cumsum(0)
        ends = (ends * rows.numel() / ends[-1]).round().long()
        line = torch.bucketize(torch.arange(rows.numel(), device=CPU), ends, right=True)
        dealt = line.view(rows.shape[-1], -1).T.reshape(rows.shape)
        return values, dealt.transpose(dim, -1)

    def _known(self, func: Any, args: Any, options: Mapping[str, Any]) -> Any:
        """An operation on numbers that are known; the host does it."""
        with self.own_draws() if draws(func) else nullcontext():
            result = func(*args, **on_device(CPU, options))
        if isinstance(result, torch.Tensor):
            self._watch(None, 0.0, result)
        return result

    @contextmanager
    def own_draws(self) -> Iterator[None]:
        """In the block random numbers are this rank's own, whoever else has drawn meanwhile."""
        others = torch.default_generator.get_state()
        torch.default_generator.set_state(self._random)
        try:
            yield
        finally:
            self._random = torch.default_generator.get_state()
            torch.default_generator.set_state(others)

    def _computed(
        self, func: Any, args: Any, options: Mapping[str, Any], tensors: list[torch.Tensor]
    ) -> Any:
        """An operation on tensors without data; what it does is asked once for each form."""
        key = key_of(func, args, options)
        known, seconds = self._found.get(key, (None, 0.0))
        if isinstance(known, Form):
            result = empty(known)
        elif known is Known.IN_PLACE:
            result = args[0]
        elif known is Known.VIEW:
            result = func(*args, **on_device(META, options))
        elif func is TOPK:
            return self._chosen(args, options)
        else:
            _refuse_values(func, args, tensors)
            # For a draw torch would ask its compiler what that does: seconds, to import it.
            result = args[0] if func in DRAWS else func(*args, **on_device(META, options))
            known = known_form(func, args, tensors, result)
            if known is not Known.VIEW:
                seconds = self._price(func, args, result)
            if key is not None and known is not None:
                self._found[key] = known, seconds
        if known is not Known.VIEW:
            self._watch(func, seconds, result)
        return result


def without_data(tree: Any) -> Any:
    """The same tree, with tensors of floats that have no data."""
    return tree_map_only(
        torch.Tensor, lambda t: t.to(META) if t.is_floating_point() or t.is_complex() else t, tree
    )


def _without_data(func: Any, args: Any, options: Any) -> tuple[Any, Any]:
    """All tensors as those without data, so that an operation finds them in one place.

    Flags that choose elements become the numbers of those that they choose, which are known.
    """
    if "index" in func._schema.name and len(args) > 1:
        args = (args[0], _numbers(args[1]), *args[2:])
    return tree_map_only(torch.Tensor, lambda t: t.to(META), (args, options))


def _numbers(indices: Any) -> Any:
    if not isinstance(indices, list | tuple):
        return indices
    found: list[Any] = []
    for index in indices:
        flags = isinstance(index, torch.Tensor) and index.dtype in FLAGS
        found += index.nonzero(as_tuple=True) if flags and not index.is_meta else [index]
    return found


def refuse_values(what: str, tensor: torch.Tensor) -> None:
    """Says that a program cannot have the values of a tensor without data.

    Raises:
        Refusal: always.
    """
    raise Refusal(
        f"{what}: that needs the values of a tensor of shape {tuple(tensor.shape)}",
        "simulated ranks, whose floats have no values",
        "what a program decides by values, as by .item(), cannot be simulated: take the number "
        "from the shapes, or set it",
    )


def _refuse_values(func: Any, args: Any, tensors: list[torch.Tensor]) -> None:
    name = name_of(func)
    if name in ASKS:
        refuse_values(SAID.get(name, name), next(t for t in tensors if t.is_meta))
    if name == "index":
        for flags in tensors_in(args[1]):
            if flags.is_meta and flags.dtype in FLAGS:
                refuse_values("elements that flags choose", flags)
    in_place = name.endswith("_") and func._schema.is_mutable and isinstance(args[0], torch.Tensor)
    if in_place and not args[0].is_meta:
        raise Refusal(
            f"{name} into known numbers of shape {tuple(args[0].shape)}",
            "a tensor without data",
            "numbers would become unknown: begin with a tensor of floats, as torch.zeros makes it",
        )
