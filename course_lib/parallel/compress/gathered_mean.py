"""The mean over a group of tensors that travel compressed.

Notebook: 18 Less communication (error_feedback, streaming_diloco).
Source: Karimireddy et al. (2019), algorithm 2; the messages cannot be added up on their way, since
the sum of two messages is no message.
Costs an all-gather: (N-1)·B bytes a rank, B those of one rank's message. An all-reduce of the
tensors themselves is 2(N-1)/N·S, so with N ranks B must be below 2S/N to save anything.
The production version (1-bit Adam's) has an owner for each part, which compresses the mean again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_gather
from course_lib.parallel.compress.compressors import Compressor


class GatheredMean:
    """Begins the mean of what `compressor` leaves of `tensors`; collective.

    Args:
        tensors: any shapes, the same on every rank in the same order; they are not changed.
        compressor: is given each of them as a vector.
        group: the ranks.

    Attributes:
        arrives: what the others take for this rank's tensors, in their shapes.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor], compressor: Compressor, group: Group
    ) -> None:
        self._tensors = tensors
        self._like = [_as_vector(tensor.detach()) for tensor in tensors]
        self._compressor, self._group = compressor, group
        self._messages = [compressor.compress(values) for values in self._like]
        parts = [_as_bytes(part) for message in self._messages for part in message]
        if not parts:  # nothing is trained: no message, as in FlatMean
            self.arrives = []
            return
        mine = torch.cat(parts)
        self.arrives = self._read(mine)
        self._all = mine.new_empty(group.size * mine.numel())
        self._work = all_gather(self._all, mine, group, async_op=True)

    def wait(self) -> list[torch.Tensor]:
        """The means in the shapes of the tensors, added up in the same order on every rank."""
        if not self._messages:
            return []
        self._work.wait()
        means = [torch.zeros_like(tensor) for tensor in self._tensors]
        for message in self._all.chunk(self._group.size):
            torch._foreach_add_(means, self._read(message))
        torch._foreach_div_(means, self._group.size)
        return means

    def _read(self, message: torch.Tensor) -> list[torch.Tensor]:
        """Decompresses all tensors of a rank's message."""
        counts = [part.nbytes for parts in self._messages for part in parts]
        pieces = iter(message.split(counts))
        found = []
        for parts, values, tensor in zip(self._messages, self._like, self._tensors, strict=True):
            # A piece may begin at any byte, where no number could; a copy begins at its own memory.
            sent = [next(pieces).clone().view(part.dtype) for part in parts]
            found.append(_in_shape_of(tensor, self._compressor.decompress(sent, values)))
        return found


def _as_vector(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers; those of a complex one are twice as many real ones."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def _in_shape_of(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        values = torch.view_as_complex(values.view(-1, 2))
    return values.view(tensor.shape)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
