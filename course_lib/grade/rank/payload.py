"""Values between processes as JSON and raw bytes: nothing that arrives can run code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.comm.switch.frames import DTYPES

LONGEST_TEXT = 1 << 23  # bytes of JSON in a message: who reads it makes twenty times as much of it
MOST_RAW = 1 << 27  # other bytes in one: twenty times what a right answer of the course brings back


@dataclass(frozen=True)
class Opaque:
    """Stands for a value that cannot travel, such as an object of the learner's own class.

    Attributes:
        type: name of its type.
        text: the beginning of its repr.
    """

    type: str
    text: str

    def __repr__(self) -> str:
        return f"{self.type} {self.text}"


def pack(value: Any) -> tuple[Any, bytes]:
    """JSON-ready data and raw bytes that `unpack` makes `value` of again.

    Args:
        value: tensors, dtypes, numbers, strings, None, bytes, and dicts, lists, tuples and sets of
            them. Anything else arrives as `Opaque`.
    """
    raw = bytearray()
    return _pack(value, raw), bytes(raw)


def unpack(data: Any, raw: bytes) -> Any:
    """The value that `pack` was given; tensors are new, dense and without gradient.

    Raises:
        LookupError, ValueError: the data are of another form, or of a dtype that does not travel.
    """
    if not isinstance(data, dict):
        return data
    ((kind, body),) = data.items()
    if kind in ("list", "tuple", "set"):
        return {"list": list, "tuple": tuple, "set": set}[kind](unpack(item, raw) for item in body)
    if kind == "dict":
        return {unpack(key, raw): unpack(item, raw) for key, item in body}
    if kind == "tensor":
        return _unpack_tensor(body, raw)
    if kind == "dtype":
        return DTYPES[body]
    if kind == "bytes":
        return raw[body[0] : body[0] + body[1]]
    return Opaque(*body)


def _pack(value: Any, raw: bytearray) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        return _pack_tensor(value, raw)
    if isinstance(value, torch.dtype) and value in DTYPES.values():
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, (bytes, bytearray)):
        raw += value
        return {"bytes": [len(raw) - len(value), len(value)]}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, raw), _pack(item, raw)] for key, item in value.items()]}
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return {kind.__name__: [_pack(item, raw) for item in value]}
    return _opaque(value)


def _pack_tensor(tensor: torch.Tensor, raw: bytearray) -> Any:
    if tensor.is_quantized:
        return _opaque(tensor)
    try:
        # A copy: a slice of one element counts as contiguous whatever its stride is.
        flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError, NotImplementedError):  # sparse, meta, a subclass of its own
        return _opaque(tensor)
    raw += data
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"tensor": [dtype, list(tensor.shape), len(raw) - len(data), len(data)]}


def _unpack_tensor(body: list[Any], raw: bytes) -> torch.Tensor:
    name, shape, begin, count = body
    dtype = DTYPES[name]
    if math.prod(shape) * dtype.itemsize != count or min(shape, default=0) < 0:
        raise ValueError(f"{count} bytes for {name} of shape {shape}")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw[begin : begin + count]), dtype=dtype).reshape(shape)


def _opaque(value: Any) -> Any:
    try:
        text = repr(value)[:200]
    except Exception:  # a learner's __repr__ may do anything
        text = ""
    return {"object": [type(value).__name__, text]}
