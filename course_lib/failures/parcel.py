"""A training's state on its way: what it consists of, and its numbers in pieces of bounded size.

Notebook: 17 Training through failures (heal).
Source: torchft's checkpoint transports, which stream a state from a living replica.
Costs the state's bytes once; beyond the two states, one piece of memory.
The production version sends from GPU to GPU where it can.

A state is nested dicts, lists and tuples of tensors and plain data: what `state_dict()` returns.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, recv, send

PIECE = 1 << 20  # bytes of a message


class _Slot(NamedTuple):
    """Where a tensor was: its number in the list of tensors."""

    number: int


class Parcel(NamedTuple):
    """A state, taken apart.

    Attributes:
        form: everything but the tensors' numbers, as bytes.
        tensors: contiguous, on the CPU, in the order of the form.
    """

    form: bytes
    tensors: list[torch.Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def pieces(self) -> Iterator[torch.Tensor]:
        """The tensors' memory as uint8, at most `PIECE` bytes at a time."""
        for tensor in self.tensors:
            yield from raw(tensor).split(PIECE)

    def opened(self) -> Any:
        """The state again: a copy, that may be trained on."""
        return _fill(pickle.loads(self.form)[0], [tensor.clone() for tensor in self.tensors])


def wrap(state: Any) -> Parcel:
    """Takes a state apart and copies it: training may go on while the parcel travels."""
    tensors: list[torch.Tensor] = []
    shape = _empty(state, tensors)
    kinds = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    return Parcel(pickle.dumps((shape, kinds)), tensors)


def blank(form: bytes) -> Parcel:
    """A parcel of the same form, whose numbers are still to come."""
    _, kinds = pickle.loads(form)
    return Parcel(form, [torch.empty(shape, dtype=dtype) for shape, dtype in kinds])


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's memory as uint8."""
    return tensor.reshape(-1).view(torch.uint8)


def memory(tensor: torch.Tensor) -> memoryview:
    """The same for a socket, which takes no tensors."""
    view: Any = raw(tensor).numpy()
    return memoryview(view)


def give_state(state: Any, to: int, group: Group) -> None:
    """Sends a state to one member, who calls `take_state`; nobody else does anything.

    Args:
        state: see above; weights, optimizer, position in the data, random numbers.
        to: index of the member.
        group: both are in it.
    """
    parcel = wrap(state)
    form = torch.frombuffer(bytearray(parcel.form), dtype=torch.uint8)
    send(torch.tensor([len(form)]), to, group)
    for piece in (form, *parcel.pieces()):
        send(piece, to, group)


def take_state(source: int, group: Group) -> Any:
    """Receives the state that member `source` gives."""
    size = torch.zeros(1, dtype=torch.int64)
    recv(size, source, group)
    form = torch.zeros(int(size), dtype=torch.uint8)
    recv(form, source, group)
    parcel = blank(form.numpy().tobytes())
    for piece in parcel.pieces():
        recv(piece, source, group)
    return parcel.opened()


def _empty(state: Any, tensors: list[torch.Tensor]) -> Any:
    """`state` with a slot in each tensor's place; copies of these are appended to `tensors`."""
    if isinstance(state, torch.Tensor):
        tensors.append(state.detach().cpu().clone(memory_format=torch.contiguous_format))
        return _Slot(len(tensors) - 1)
    if isinstance(state, dict):
        return {key: _empty(value, tensors) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_empty(value, tensors) for value in state)
    return state


def _fill(shape: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(shape, _Slot):
        return tensors[shape.number]
    if isinstance(shape, dict):
        return {key: _fill(value, tensors) for key, value in shape.items()}
    if type(shape) in (list, tuple):
        return type(shape)(_fill(value, tensors) for value in shape)
    return shape
