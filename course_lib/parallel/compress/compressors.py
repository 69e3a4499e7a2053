"""Compressors: a vector as fewer bytes, and what the receiver takes for it.

Notebook: 18 Less communication (error_feedback).
Paper: Stich et al., "Sparsified SGD with Memory" (2018), for the largest elements; Karimireddy et
al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes" (2019), for signs with
a scale; Dettmers, "8-Bit Approximations for Parallelism in Deep Learning" (2016).
Costs for n elements of s bytes: TopK k·(s + 4), Sign n/8 + s, Int8 n + s for each block.
The production version (DeepSpeed's 1-bit kernels) packs bits on the GPU.

None of them gives its input back. `ErrorFeedback` keeps what was lost and sends it later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch.nn.functional import pad

from course_lib.comm import CommError

BITS = 8  # of a byte


class Compressor(Protocol):
    """Makes a message of a vector. Sizes depend on its length and dtype alone."""

    def compress(self, values: torch.Tensor) -> list[torch.Tensor]:
        """What is sent for `values`, a vector of n elements."""

    def decompress(self, parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """What the receiver takes for the vector; `like` has its length and dtype."""

    def nbytes(self, like: torch.Tensor) -> int:
        """Bytes of the message for a tensor like this one."""


class TopK:
    """The elements of largest size, with their places; zero for the others.

    Args:
        fraction: k/n, of which at least one element is sent.

    Raises:
        CommError: the fraction is not in (0, 1].
    """

    def __init__(self, fraction: float) -> None:
        if not 0 < fraction <= 1:
            raise CommError(
                f"TopK({fraction})", "a part outside of (0, 1]", "it is the part that is sent"
            )
        self.fraction = fraction

    def compress(self, values: torch.Tensor) -> list[torch.Tensor]:
        """[k] values and [k] places, int32."""
        places = values.abs().topk(self._count(values)).indices
        return [values[places], places.to(torch.int32)]

    def decompress(self, parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """The values at their places."""
        values, places = parts
        return torch.zeros_like(like).index_copy_(0, places.long(), values)

    def nbytes(self, like: torch.Tensor) -> int:
        """k·(s + 4)."""
        return self._count(like) * (like.element_size() + 4)

    def _count(self, like: torch.Tensor) -> int:
        return min(max(1, round(self.fraction * like.numel())), like.numel())


class Sign:
    """One bit for each element, and one scale for all: the mean of their sizes."""

    def compress(self, values: torch.Tensor) -> list[torch.Tensor]:
        """[n/8] bytes and [1] scale."""
        bits = pad((values >= 0).to(torch.uint8), (0, -values.numel() % BITS)).view(-1, BITS)
        weights = 2 ** torch.arange(BITS, dtype=torch.uint8, device=values.device)
        return [(bits * weights).sum(1, dtype=torch.uint8), values.abs().mean().view(1)]

    def decompress(self, parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """The scale, with the signs."""
        packed, scale = parts
        places = torch.arange(BITS, dtype=torch.uint8, device=packed.device)
        bits = (packed[:, None] >> places) & 1
        return (bits.view(-1)[: like.numel()].to(like.dtype) * 2 - 1) * scale

    def nbytes(self, like: torch.Tensor) -> int:
        """n/8, rounded up, and s."""
        return math.ceil(like.numel() / BITS) + like.element_size()


class Int8:
    """A byte for each element, and a scale for each block: its largest size is 127.

    Args:
        block: elements that share a scale.

    Raises:
        CommError: the block is empty.
    """

    def __init__(self, block: int = 256) -> None:
        if block < 1:
            raise CommError(f"Int8(block={block})", "no elements in a block", "a scale is for some")
        self.block = block

    def compress(self, values: torch.Tensor) -> list[torch.Tensor]:
        """[n] int8 and [n/block] scales."""
        blocks = self._blocks(values)
        scales = blocks.abs().amax(1) / 127
        steps = torch.where(scales > 0, scales, 1)[:, None]
        # In 16 bits a scale may be rounded down so far that 128 steps fit, which int8 has not.
        numbers = (blocks / steps).round().clamp(-127, 127).to(torch.int8)
        return [numbers.view(-1)[: values.numel()], scales]

    def decompress(self, parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """Each number times its block's scale."""
        numbers, scales = parts
        return (self._blocks(numbers.to(like.dtype)) * scales[:, None]).view(-1)[: like.numel()]

    def nbytes(self, like: torch.Tensor) -> int:
        """n, and s for each block."""
        return like.numel() + math.ceil(like.numel() / self.block) * like.element_size()

    def _blocks(self, values: torch.Tensor) -> torch.Tensor:
        return pad(values, (0, -values.numel() % self.block)).view(-1, self.block)
