"""mutant: where runs of"""

from collections.abc import Callable, Mapping, Sequence

import torch


def agree(reference: torch.Tensor, suspect: torch.Tensor, step: int) -> bool:
    """Whether rounding alone explains the difference.

    Args:
        reference: finite floats.
        suspect: the same shape; the dtype may be another.
        step: from 0.
    """
    right, other = reference.double(), suspect.double()
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
    return bool((other - right).norm() <= limit)  # with a NaN no comparison holds


def divergence_bisect(
    reference: Callable[[int], Mapping[str, torch.Tensor]],
    suspect: Callable[[int], Mapping[str, torch.Tensor]],
    steps: int,
    layers: Sequence[str],
) -> tuple[int, str] | None:
    """The first step and layer at which two runs do not agree.

    Args:
        reference: replays the run that is right up to a step, from 0 to `steps` - 1; returns what
            every layer held there.
        suspect: the same for the other run.
        steps: how many there are, at least 1.
        layers: all names, in the order of execution.

    Returns:
        The step and the layer's name; None if the runs agree to the end.
    """
    first = None
    low, high = 0, steps  # before low the runs agree; high is bad, or the end
    while low < high:
        step = (low + high) // 2
        right, other = reference(step), suspect(step)
        apart = [name for name in layers if not agree(right[name], other[name], step)]
        if apart:
            high, first = step, first or (step, apart[0])
        else:
            low = step + 1
    return first
