"""variant: looks at the last step first, then bisects; keeps what it saw"""

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
    def look(step):
        right, other = reference(step), suspect(step)
        return next((n for n in layers if not agree(right[n], other[n], step)), None)

    good, bad, layer = -1, steps - 1, look(steps - 1)
    if layer is None:
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        name = look(middle)
        good, bad, layer = (middle, bad, layer) if name is None else (good, middle, name)
    return bad, layer
