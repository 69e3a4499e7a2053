"""A value's bits in sixteen hex digits: equal bits have equal digits, and others have others.

Notebook: 14 Profiling and debugging (record and replay).
Source: BLAKE2 (Aumasson et al., 2013), as Python's hashlib has it.
Costs about a millisecond a MiB on the processor, and on a GPU a copy to the host before it.
The production version hashes on the GPU, in the stream of the call.

BLAKE2b needs no special instruction, so it is as fast on any machine; SHA-256 is faster only where
the processor has it built in. A CRC is five times as fast, but with 32 bits one of four billion
differences passes. `torch.hash_tensor` is the exclusive or of all elements: it does not see that
two of them have changed places.

Bits are compared, not numbers: 0.0 and -0.0 differ, and two NaNs are equal if their bits are. Dtype
and shape count. How a tensor lies in memory does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from course_lib.checkpoint.files.write import raw_bytes
from course_lib.trace import Refusal

BYTES = 8
PIECE = 1 << 17  # elements that are copied at a time: what the cache holds


def digest(value: Any) -> str:
    """The digits of a tensor, or of tensors, numbers and texts in lists, tuples and dicts.

    Raises:
        Refusal: there is something else in it, or a tensor that is no block of memory.
    """
    state = hashlib.blake2b(digest_size=BYTES)
    _feed(state, value)
    return state.hexdigest()


def _feed(state: Any, value: Any) -> None:
    if torch.is_tensor(value):
        state.update(f"{value.dtype} {tuple(value.shape)}:".encode())
        for piece in _pieces(value):
            state.update(raw_bytes(piece))
    elif isinstance(value, Mapping):
        state.update(f"{len(value)} named:".encode())
        for name, item in value.items():
            _feed(state, name)
            _feed(state, item)
    elif isinstance(value, list | tuple):
        state.update(f"{len(value)} items:".encode())
        for item in value:
            _feed(state, item)
    elif value is None or isinstance(value, bool | int | float | str | bytes):
        state.update(f"{value!r};".encode())
    else:
        raise Refusal(
            f"the bits of a {type(value).__name__}",
            "no tensor, number or text, and none in lists, tuples and dicts",
            "only what has bits of its own can be held against another run",
        )


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Copies of its elements, in order.

    Copies, because to read a tensor as bytes goes through NumPy, which marks its memory as not to
    be resized, and FSDP frees what it has gathered by just that.
    """
    if tensor.is_meta:
        raise Refusal(
            "the bits of a tensor",
            "a tensor without data, as a simulated cluster has it",
            "record a run on real ranks",
        )
    if tensor.layout is not torch.strided:
        raise Refusal(
            "the bits of a tensor",
            f"one of {tensor.layout}, which is no block of memory",
            "hand over the tensors that it is made of, such as its values and indices",
        )
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    return (piece.cpu().clone() for piece in flat.split(PIECE))
