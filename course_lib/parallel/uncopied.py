"""What cannot be made, or kept, equal on all ranks by a broadcast and by averages of gradients.

Notebook: 02 Data parallel (what the wrappers refuse).
Source: torch.nn.functional.embedding, which writes to its weight when `max_norm` is given.
Costs a look at each tensor and each module when a wrapper is made.
The production version (DDP) ends in an error of its broadcast for the first, and does not see the
second: the replicas part.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from course_lib.comm import CommError


def refuse_unsent(asked: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Stops parameters and buffers that no broadcast can send.

    Args:
        asked: the first line of the error.
        tensors: by name.

    Raises:
        CommError: one has no shape yet, or is sparse.
    """
    for name, tensor in tensors.items():
        if is_lazy(tensor):
            raise CommError(
                asked,
                f"{name} has no shape yet",
                "a lazy module gets its parameters in the first forward: call it once before",
            )
        if tensor.layout is not torch.strided:
            raise CommError(
                asked,
                f"{name}, of layout {tensor.layout}",
                "ranks may have other places in it: keep it dense, or as a plain attribute",
            )


def refuse_max_norm(asked: str, module: nn.Module) -> None:
    """Stops embeddings that scale rows of their weight down in the forward.

    Each rank would scale those that its own tokens are in; under FSDP what is written is lost.

    Args:
        asked: the first line of the error.
        module: the whole.

    Raises:
        CommError: there is one.
    """
    for name, table in module.named_modules():
        if isinstance(table, nn.Embedding | nn.EmbeddingBag) and table.max_norm is not None:
            raise CommError(
                asked,
                f"{name or type(table).__name__} with max_norm, which writes to its weight in the "
                "forward",
                "each rank would scale the rows of its own tokens: scale what comes out of it, or "
                "all rows after each step",
            )
