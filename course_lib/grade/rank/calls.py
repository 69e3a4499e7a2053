"""Sees every communication call of a rank, also those that bypass `course_lib.comm`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NAMESPACES = ("c10d", "_c10d_functional", "c10d_functional")
MESSAGES = ("send", "recv_", "recv_any_source_")


@dataclass(frozen=True)
class Call:
    """One operation of torch's communication library.

    Attributes:
        op: the operator's name: `allreduce_`, `send`, `recv_`, ...
        bytes: of all tensors given.
        by: `comm` if course_lib.comm made the call, else `torch`.
        line: the learner's innermost line below it; 0 if there is none.
    """

    op: str
    bytes: int
    by: str
    line: int

    def to_dict(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        return {"op": self.op, "bytes": self.bytes, "by": self.by, "line": self.line}


class CallTrace(TorchDispatchMode):
    """Records the calls made in this thread while it is entered.

    Args:
        path: the learner's file, as its frames name it.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation; records it if it communicates."""
        if func.namespace in NAMESPACES:
            self.calls.append(self._call(func, args))
        return func(*args, **(kwargs or {}))

    def _call(self, func: Any, args: Any) -> Call:
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        by, line, frame = "torch", 0, sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self._path:
                line = frame.f_lineno
                break
            if frame.f_globals.get("__name__", "").startswith("course_lib.comm"):
                by = "comm"
            frame = frame.f_back  # type: ignore[assignment]
        count = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return Call(func._schema.name.partition("::")[2], count, by, line)
