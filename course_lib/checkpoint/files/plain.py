"""Small state as JSON that comes back as it was: tuples as tuples, tensors as tensors.

Notebook: 11 Distributed checkpoint (resume_exact).
Source: the state_dict of torch's schedulers and optimizers, which JSON alone would change: tuples,
counts by number, infinity.
Costs 4/3 of a tensor's bytes.
The production version pickles it, so that reading a stranger's checkpoint may run his code.

What JSON cannot hold becomes an object with one key, its kind: a tuple is {"!tuple": [...]}.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from typing import Any

import torch

from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.manifest import DTYPES
from course_lib.checkpoint.files.write import raw_bytes

MARK = "!"


def to_plain(value: Any, name: str) -> Any:
    """What `json.dumps` takes, and `from_plain` turns back. Tensors are copied.

    Args:
        value: numbers, texts, None, lists, tuples, dicts, Counters and tensors, in any nesting.
        name: what it is, for errors.

    Raises:
        CheckpointError: there is something else in it.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"!float": repr(float(value))}
    if type(value) is list:
        return [to_plain(item, f"{name}[{at}]") for at, item in enumerate(value)]
    if type(value) is tuple:
        return {"!tuple": to_plain(list(value), name)}
    if type(value) in (dict, Counter):
        return _plain_dict(value, name)
    if torch.is_tensor(value) and str(value.dtype).removeprefix("torch.") in DTYPES:
        text = base64.b64encode(raw_bytes(value)).decode()
        dtype = str(value.dtype).removeprefix("torch.")
        return {"!tensor": [dtype, list(value.shape), text]}
    raise CheckpointError(
        f"the state {name} as JSON",
        f"a {type(value).__name__}",
        "a checkpoint is no program: it holds numbers, texts, lists, tuples, dicts and tensors",
    )


def _plain_dict(value: dict[Any, Any], name: str) -> Any:
    texts = all(type(key) is str and not key.startswith(MARK) for key in value)
    if type(value) is dict and texts:
        return {key: to_plain(item, f"{name}.{key}") for key, item in value.items()}
    kind = MARK + type(value).__name__
    return {kind: [to_plain([key, item], f"{name}[{key!r}]") for key, item in value.items()]}


def from_plain(plain: Any, name: str) -> Any:
    """The value that `to_plain` was given; tensors are on the CPU.

    Raises:
        CheckpointError: `plain` is nothing that `to_plain` makes.
    """
    try:
        return _from_plain(plain, name)
    except RecursionError as error:
        why = "it was made by something else, which wanted this program to fail"
        raise CheckpointError(f"the state {name} from JSON", "nesting without end", why) from error


def _from_plain(plain: Any, name: str) -> Any:
    if isinstance(plain, list):
        return [_from_plain(item, f"{name}[{at}]") for at, item in enumerate(plain)]
    if not isinstance(plain, dict):
        return plain
    kind = next(iter(plain), "")
    if not kind.startswith(MARK):
        return {key: _from_plain(item, f"{name}.{key}") for key, item in plain.items()}
    try:
        if len(plain) > 1:
            raise ValueError(f"{len(plain) - 1} keys beside it")
        return _marked(kind, plain[kind], name)
    except (ArithmeticError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"the state {name} from JSON",
            f"{kind}: {type(error).__name__}: {error}",
            "it is not as a checkpoint has it: it was damaged or made by something else",
        ) from error


def _marked(kind: str, content: Any, name: str) -> Any:
    if kind == "!tensor":
        dtype, shape, text = content
        raw = bytearray(base64.b64decode(text, validate=True))
        return torch.tensor(raw, dtype=torch.uint8).view(DTYPES[dtype]).view(shape)
    if kind == "!float":
        return float(content)
    items = _from_plain(content, name)
    if kind == "!Counter":
        return Counter(dict(items))
    return {"!tuple": tuple, "!dict": dict}[kind](items)
