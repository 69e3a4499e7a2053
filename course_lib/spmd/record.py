"""What a rank writes down of a program: each operation on tensors, forward and backward.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: torch's TorchDispatchMode, which sees every ATen operation, those of autograd as well.
Costs: about 50 microseconds an operation and one pass over its results for a checksum; all memory
that the program uses stays until the record is closed, so that no address means two tensors.
The production version (`spmd_types`) infers types while the program runs, on one rank alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.trace import Event, Ledger
from course_lib.trace.own_line import own_line

SAMPLES = 16  # elements that are looked at to tell a constant
PRECISE = (torch.float32, torch.float64)  # dtypes in which rounding can be told from a difference
SILENT = {
    "is_same_size",
    "_local_scalar_dense",
    "item",
    "equal",
    "_has_compatible_shallow_copy_type",
}


class Recorder(TorchDispatchMode):
    """Records what runs inside `with Recorder(ledger) as record:`.

    Args:
        ledger: this rank's, which says on which axis a collective is.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self._begin = len(ledger.events)
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []  # no storage is freed, so no address is used twice
        self._known: set[int] = set()
        self._unread: set[int] = set()  # results of collectives, which may still be under way
        self._built: tuple[Event, list[int], list[int]] | None = None
        self._begun: Event | None = None  # of comm's, whose operation of the backend comes next
        self.tensors: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []

    def __enter__(self) -> Recorder:
        self.ledger.listener = self
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self.ledger.listener = None
        self._end_built()

    # --- operations ------------------------------------------------------------------------------
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs an operation and writes it down."""
        kwargs = kwargs or {}
        if self._inside():
            return func(*args, **kwargs)
        self._end_built()
        name = str(func).split(".")[1]
        read = [] if name in SILENT else self._read(args, kwargs)
        result = func(*args, **kwargs)
        if name not in SILENT:
            if func.namespace == "c10d":
                self._collective(name, args)
            else:
                self._note(name, func, args, kwargs, read, result)
        return result

    def _note(
        self, name: str, func: Any, args: Any, kwargs: Any, read: list[int], result: Any
    ) -> None:
        schema = func._schema.arguments
        wrote = [
            given
            for given, argument in zip(args, schema, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        outs, targets = _tensors(result), _tensors(wrote)
        grads = _tensors([t.grad for t in targets if _is_trained(t)])
        slots, tensors = [], []
        for slot, given in enumerate([*args, *kwargs.values()]):
            here = _tensors(given)
            slots += [slot] * len(here)
            tensors += here
        self.calls.append({
            "op": name if _all_plain((args, kwargs, result)) else f"sparse {name}",
            "line": own_line(), "in": read, "slots": slots,
            "out": [self.number(t) for t in (outs or targets)],
            "wrote": [self.number(t) for t in targets],
            "trained": [_is_trained(t) for t in tensors],
            "grads": [self.number(t) for t in grads],
            "args": [_plain(each) for each in [*args, *kwargs.values()]],
            "sums": [checksum(t) for t in (outs or targets)],
        })  # fmt: skip
        self._known.update(self.calls[-1]["out"])

    def _read(self, args: Any, kwargs: Any) -> list[int]:
        """Numbers of the tensors among the arguments; a first sight of one is written down."""
        return [self._seen(t) for t in _tensors((args, kwargs))]

    def _seen(self, tensor: torch.Tensor) -> int:
        number = self.number(tensor)
        if number not in self._known or number in self._unread:
            self._known.add(number)
            self._unread.discard(number)
            self.calls.append({"op": "seen", "line": own_line(), "out": [number], "wrote": [],
                               "sums": [checksum(tensor)]})  # fmt: skip
        return number

    # --- communication ---------------------------------------------------------------------------
    def _inside(self) -> bool:
        """Whether this belongs to a collective that is built from messages."""
        return self._built is not None and self._built[0].end is None

    def began(self, event: Event, line: str, given: Any, taken: Any) -> None:
        """The ledger tells of a call; of those built from messages only this knows the tensors."""
        self._begun = event
        if event.algorithm:
            self._end_built()
            read, wrote = tree_leaves(given)[:1], tree_leaves(taken)[:1]
            self._built = event, [self._seen(t) for t in read], [self.number(t) for t in wrote]

    def ended(self, event: Event) -> None:
        """Nothing: an end is seen by the next operation."""

    def _end_built(self) -> None:
        if self._built is not None and self._built[0].end is not None:
            (event, read, wrote), self._built = self._built, None
            self._talked(event.op, event, read, wrote)

    def _collective(self, name: str, args: Any) -> None:
        """An operation of the backend: who takes part, the call that has just begun says.

        Where none has, the program has called torch.distributed past the ledger.
        """
        tensors = [self.number(t) for t in _tensors(args[:2])]
        event, self._begun = self._begun, None
        if event is None:
            self._unread.update(tensors)
        if not tensors or event is None or name in ("send", "barrier"):
            return
        op = "recv" if name.startswith("recv") else event.op
        self._talked(op, event, tensors[-1:], tensors[:1])

    def _talked(self, op: str, event: Event, read: list[int], wrote: list[int]) -> None:
        self._known.update(wrote)
        self._unread.update(wrote)
        self.calls.append({
            "op": f"comm.{op}", "line": own_line(), "in": read, "out": wrote, "wrote": wrote,
            "axis": event.axis, "group": event.group, "reduction": event.reduction,
        })  # fmt: skip

    # --- tensors ---------------------------------------------------------------------------------
    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor: the same for all that show the same elements in the same way."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = len(self._storages)
            self._alive.append(storage)
        place = self._storages[storage._cdata]
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        key = (place, tensor.storage_offset(), shape, stride, tensor.dtype)
        if key not in self._numbers:
            self._numbers[key] = len(self.tensors)
            first = tensor.storage_offset() * tensor.element_size()
            reach = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
            last = first + reach * tensor.element_size() * bool(tensor.numel())
            fine = tensor.dtype == torch.float64
            self.tensors.append({
                "storage": place, "shape": shape, "first": first, "last": last, "fine": fine,
                "dense": tensor.is_contiguous(),
            })  # fmt: skip
        return self._numbers[key]

    def to_dict(self, names: Mapping[str, Any], program: str = "") -> dict[str, Any]:
        """The record as JSON-ready data.

        Args:
            names: the program's variables; those tensors among them, and parameters of modules,
                that it has read or made are named in the report. Groups among them are axes.
            program: file name of the program, whose lines need no file's name.
        """
        events = self.ledger.events[self._begin :]
        groups = [value for value in names.values() if hasattr(value, "ledger")]
        known = {(group.axis, group.ranks) for group in groups if hasattr(group, "axis")}
        found = {
            name: tensor
            for name, tensor in named_tensors(names).items()
            if self.number(tensor) in self._known
        }
        with torch.no_grad():
            variables = {name: self._seen(tensor) for name, tensor in found.items()}
        return {
            "rank": self.ledger.rank,
            "tensors": self.tensors,
            "calls": self.calls,
            "names": variables,
            "program": program,
            "trained": [name for name, tensor in found.items() if tensor.requires_grad],
            "axes": sorted({*known, *((event.axis, event.group) for event in events)}),
        }


def named_tensors(names: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors by name: variables, parameters of modules, and the gradients of both."""
    found: dict[str, torch.Tensor] = {}
    for name, value in names.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, torch.nn.Module):
            found |= {f"{name}.{inner}": p for inner, p in value.named_parameters()}
    for name, value in list(found.items()):
        if value.is_leaf and value.grad is not None:
            found[f"{name}.grad"] = value.grad
    return {name: value for name, value in found.items() if _all_plain(value)}


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors among values that have their elements in memory; sparse ones have not."""
    leaves = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    return [t for t in leaves if t.layout is torch.strided and not t.is_nested]


def _all_plain(tree: Any) -> bool:
    """Whether `_tensors` are all the tensors that there are."""
    return sum(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(tree)) == len(_tensors(tree))


def checksum(tensor: torch.Tensor) -> tuple[int, bool, float, float]:
    """What two tensors must have in common to be the same.

    Returns:
        A number that differs where a bit does; whether all elements are the same; their sum, each
        with a weight of its place, and the sum of their absolute values, which tell rounding from a
        difference.
    """
    if tensor.device.type == "meta" or _is_empty(tensor):
        return 0, True, 0.0, 0.0
    flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    # A copy: memory that numpy has seen cannot be resized any more, and FSDP resizes its own.
    raw: Any = flat.to("cpu", copy=True).view(torch.uint8).numpy()
    some = flat[:: max(1, len(flat) // SAMPLES)]
    total, absolute = 0.0, 0.0
    if flat.dtype in PRECISE:
        values = flat.double()
        weights = torch.arange(len(values), device=values.device, dtype=values.dtype).cos()
        total, absolute = float(values @ weights), float(values.abs().sum())
    return zlib.crc32(memoryview(raw)), bool((some == flat[-1]).all()), total, absolute


def _is_empty(tensor: torch.Tensor) -> bool:
    """Whether there are no elements, or their memory was given back, as FSDP does."""
    return not tensor.numel() or not tensor.untyped_storage().nbytes()


def _is_trained(tensor: torch.Tensor) -> bool:
    return tensor.is_leaf and tensor.requires_grad


def _plain(value: Any) -> Any:
    """An argument as data: None where there is a tensor."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return None if isinstance(value, torch.Tensor) else str(value)
