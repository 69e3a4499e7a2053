"""mutant: the activations are still there, hardly anything went down"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch


def activation_offload(
    weights: Sequence[torch.Tensor], link: Any, smallest: int
) -> AbstractContextManager[Any]:
    def keep(tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(keep, keep)
