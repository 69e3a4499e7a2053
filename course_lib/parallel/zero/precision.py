"""What FSDP computes and communicates in, which need not be what it keeps.

Notebook: 09 Mixed precision and FP8 (reduce_dtype, fp8_all_gather).
Source: MixedPrecisionPolicy of torch's fully_shard.
Costs nothing by itself; gathers in bfloat16 have half the bytes of float32.
The production version (FSDP2) casts outputs too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.parallel.tensors import map_tensors

Unpack = Callable[[int, torch.Tensor], torch.Tensor]


class Pack(Protocol):
    """What goes over the wire instead of some parameters, such as 8-bit numbers and their scale."""

    @property
    def parameters(self) -> Collection[nn.Parameter]:
        """Those that are packed; the others are gathered as they are."""

    def __call__(
        self, parts: Sequence[torch.Tensor], group: Group
    ) -> tuple[Sequence[torch.Tensor], Unpack]:
        """Packs what this rank has; may be collective, since all ranks do it at the same time.

        Args:
            parts: what this rank's shard has of each parameter: one dimension, perhaps no element.
            group: the ranks that share the shards.

        Returns:
            For each part a tensor of numbers, all of one dtype and equally long on every rank; and
            a function that makes a parameter's values, from its number and from what all ranks have
            sent for it.
        """


@dataclass(frozen=True)
class Precision:
    """What a unit computes and communicates in; None keeps the parameters' own dtype.

    Attributes:
        parameters: dtype of gathered parameters, and so of the all-gather and the computation.
        gradients: dtype of the reduce-scatter; sums are made in the shard's dtype.
        pack: for parameters that are gathered in another form than they are computed with.
    """

    parameters: torch.dtype | None = None
    gradients: torch.dtype | None = None
    pack: Pack | None = None

    def packs(self, parameter: nn.Parameter) -> bool:
        """Whether a parameter is packed."""
        return self.pack is not None and parameter in self.pack.parameters

    def computes(self, dtype: torch.dtype) -> torch.dtype:
        """What a parameter of `dtype` is computed in: complex numbers and integers stay."""
        return self.parameters or dtype if dtype.is_floating_point else dtype

    def reduces(self, dtype: torch.dtype) -> torch.dtype:
        """What gradients of a parameter of `dtype` are sent in."""
        return self.gradients or self.computes(dtype) if dtype.is_floating_point else dtype

    def cast(self, inputs: Any) -> Any:
        """A tree of inputs, its floating tensors in the dtype that is computed in."""

        def one(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(self.parameters) if tensor.is_floating_point() else tensor

        return map_tensors(one, inputs) if self.parameters else inputs
