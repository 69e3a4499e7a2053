"""mutant: was kept"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch


def activation_offload(
    weights: Sequence[torch.Tensor], link: Any, smallest: int
) -> AbstractContextManager[Any]:
    resident = {w.untyped_storage().data_ptr() for w in weights}
    back = link.__dict__.setdefault("back", {})

    def pack(tensor: torch.Tensor) -> Any:
        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
        return (tensor, None) if stays else (None, link.down(tensor))

    def unpack(packed: Any) -> torch.Tensor:
        there, host = packed
        if there is not None:
            return there
        if id(host) not in back:
            back[id(host)] = host, link.up(host)
        return back[id(host)][1]

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
