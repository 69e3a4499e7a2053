"""What a rank holds between two steps, by memory class, measured on the tensors themselves."""

from __future__ import annotations

from typing import Any

from torch import nn

from course_lib.trace.memory import held_by_class


def memory_by_class(model: nn.Module, optimizer: Any) -> dict[str, int]:
    """Bytes of this rank's parameters, gradients and optimizer state, each storage once.

    Args:
        model: as the strategy returned it.
        optimizer: the same; one that wraps another (`Zero1`) is looked into, since the pieces that
            it updates, their gradients and their state are the inner one's.
    """
    return held_by_class(model.parameters(), [optimizer])
