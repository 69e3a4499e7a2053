"""Compressed means over ranks, played by one process, and the mistakes that are made in them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch

from course_lib.parallel import Compressor, Int8, Sign, TopK

Tensors = list[torch.Tensor]


class Window:
    """A message is a view of one half of the vector; each call takes the other half.

    So it is seen whether the vector changes before its message has been sent, and whether a
    vector is compressed twice.
    """

    def __init__(self) -> None:
        self.calls = 0

    def compress(self, values: torch.Tensor) -> Tensors:
        """Half of the vector, and where it begins."""
        self.calls += 1
        half = len(values) // 2
        begin = 0 if self.calls % 2 else len(values) - half
        return [values[begin : begin + half], torch.tensor([begin])]

    def decompress(self, parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """Zeros, but for that half."""
        vector, begin = torch.zeros_like(like), int(parts[1])
        vector[begin : begin + len(parts[0])] = parts[0]
        return vector

    def nbytes(self, like: torch.Tensor) -> int:
        """Half of the elements, and an int64."""
        return len(like) // 2 * like.itemsize + 8


COMPRESSORS: dict[str, Compressor] = {
    "TopK": TopK(0.3), "Sign": Sign(), "Int8": Int8(block=4), "Window": Window(),
}  # fmt: skip


class Fed(NamedTuple):
    """What became of a sequence of gradients.

    Attributes:
        means: by step.
        errors: by step and rank, what is owed after it.
    """

    means: Tensors
    errors: list[Tensors]


def arrives(compressor: Any, values: torch.Tensor) -> torch.Tensor:
    """What a receiver takes for a vector."""
    found: torch.Tensor = compressor.decompress(compressor.compress(values), values)
    return found


def feed(compressor: Any, gradients: list[Tensors], slip: str = "") -> Fed:
    """Error feedback on every rank.

    Args:
        compressor: of the vectors.
        gradients: by rank and step.
        slip: a mistake, as an answer may make it.
    """
    size = len(gradients)
    compressors = [deepcopy(compressor) for _ in gradients]
    errors = [torch.zeros_like(gradients[0][0]) for _ in gradients]
    means, after = [], []
    for step in range(len(gradients[0])):
        own = [each[step] for each in gradients]
        sign = -1 if slip == "subtracted" else 1
        owed = [g + sign * e for g, e in zip(own, errors, strict=True)]
        sent = [arrives(c, vector) for c, vector in zip(compressors, owed, strict=True)]
        if slip == "sum first":
            sent = [arrives(compressors[0], torch.stack(owed).mean(0))] * size
        mean = torch.stack(sent).sum(0) / (1 if slip == "sum" else size)
        errors = [o - s for o, s in zip(owed, sent, strict=True)]
        if slip == "of the mean":
            errors = [o - mean for o in owed]
        if slip == "gradient alone":
            errors = [g - s for g, s in zip(own, sent, strict=True)]
        if slip == "everything":
            errors = owed
        if slip == "none":
            errors = [torch.zeros_like(o) for o in owed]
        means.append(mean)
        after.append(errors)
    return Fed(means, after)


class Thin(NamedTuple):
    """What became of matrices that travelled in low rank.

    Attributes:
        means: by step.
        errors: by step and rank.
    """

    means: Tensors
    errors: list[Tensors]


def power(matrices: list[Tensors], q: torch.Tensor, slip: str = "") -> Thin:
    """PowerSGD on every rank.

    Args:
        matrices: by rank and step.
        q: the first Q, [columns, r].
        slip: a mistake, as an answer may make it.
    """
    size, first = len(matrices), q
    errors = [torch.zeros_like(matrices[0][0]) for _ in matrices]
    means, after = [], []
    for step in range(len(matrices[0])):
        owed = [each[step] + error for each, error in zip(matrices, errors, strict=True)]
        p = torch.stack([m @ q for m in owed]).mean(0)
        p = p if slip == "no basis" else torch.linalg.qr(p).Q
        bases = [p] * size
        if slip == "own bases":
            bases = [torch.linalg.qr(m @ q).Q for m in owed]
        own = [m.T @ basis for m, basis in zip(owed, bases, strict=True)]
        mean_q = torch.stack(own).mean(0)
        mean = p @ mean_q.T
        if slip == "sum":
            mean = mean * size
        if slip == "own bases":
            mean = torch.stack([b @ o.T for b, o in zip(bases, own, strict=True)]).mean(0)
        errors = [m - b @ o.T for m, b, o in zip(owed, bases, own, strict=True)]
        if slip == "of the mean":
            errors = [m - mean for m in owed]
        if slip == "none":
            errors = [torch.zeros_like(m) for m in owed]
        q = first if slip == "cold" else mean_q
        means.append(mean)
        after.append(errors)
    return Thin(means, after)
