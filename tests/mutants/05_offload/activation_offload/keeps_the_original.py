"""mutant: the activations are still there"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch


def activation_offload(
    weights: Sequence[torch.Tensor], link: Any, smallest: int
) -> AbstractContextManager[Any]:
    resident = {w.untyped_storage().data_ptr() for w in weights}

    def pack(tensor: torch.Tensor) -> Any:
        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
        return (tensor, None) if stays else (None, link.down(tensor), tensor)

    def unpack(packed: Any) -> torch.Tensor:
        there, host, *_ = packed
        return link.up(host) if there is None else there

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
