"""Find where two runs diverge: the first step and the first layer, with few replays.

Notebook 14. A run on eight GPUs should do the same as a run on one, but after a thousand steps its
loss is different. Recordings do not help, because their calls differ and their bits never agree.
But both runs can be replayed: `probe(step)` runs again from the start up to a step and returns what
every layer held there. A replay is expensive, so you cannot look at all thousand steps. Runs that
have diverged stay apart, so you can search for the first bad step as in a telephone book.

Small differences are not a fault: two orders of summation round differently, and the differences
accumulate. Rounding errors grow like a random walk, with the square root of the number of steps. So
two tensors of step s (counted from 0) *agree* if

    ‖suspect - reference‖ ≤ 4 · √(s + 1) · eps · ‖reference‖

with the Euclidean norm of all elements, and eps of the dtype (`torch.finfo(dtype).eps`); where the
two have different dtypes, of the coarser one. A NaN or an infinity never agrees with the reference,
whose values are all finite. Compute in float64: the square of a small float32 number is 0.

Rules
- Find the first step at which any layer disagrees, and at that step the first layer in the order of
  execution that does, because later layers only received its values. `layers` has that order; the
  dict that a probe returns is sorted by name, as files are in a folder.
- Runs that disagree at one step disagree at all later ones.
- Make at most ⌈log2(steps)⌉ + 1 calls of each probe, even to find that the runs never diverge.
- Use plain Python and torch; nothing is sent.
"""

from collections.abc import Callable, Mapping, Sequence

import torch


def agree(reference: torch.Tensor, suspect: torch.Tensor, step: int) -> bool:
    """Whether rounding alone explains the difference.

    Args:
        reference: finite floats.
        suspect: the same shape; the dtype may be another.
        step: from 0.
    """
    # BEGIN SOLUTION: is it rounding?
    right, other = reference.double(), suspect.double()
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
    return bool((other - right).norm() <= limit)  # with a NaN no comparison holds
    # END SOLUTION


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
    # BEGIN SOLUTION: the search
    first = None
    low, high = 0, steps  # before low the runs agree; high is bad, or the end
    while low < high:
        step = (low + high) // 2
        right, other = reference(step), suspect(step)
        apart = [name for name in layers if not agree(right[name], other[name], step)]
        if apart:
            high, first = step, (step, apart[0])
        else:
            low = step + 1
    return first
    # END SOLUTION
