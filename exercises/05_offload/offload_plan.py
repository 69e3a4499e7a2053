"""offload_plan: keep each layer's activations, compute them again, or move them to the host.

Notebook 05. This exercise is open: it has no single right answer. Valid plans are compared by the
time of a step.

Forward runs through the layers from the first to the last, then backward runs from the last to the
first. The activations of a layer take up memory on the device when the layer's forward begins. You
choose for each layer what happens then:
- `"keep"`: they stay on the device until the layer's backward has ended.
- `"again"`: they are freed when the layer's forward ends. Its backward first runs that forward once
  more; they take up memory from the beginning of this second forward to the end of the backward.
- a whole number k ≥ 0: after the layer's forward they are copied to the host, and freed when that
  copy ends. Later they are copied back: they take up memory from the beginning of this copy to the
  end of the layer's backward, which waits for the copy.

k says how early layer i is copied back: when the backward of layer i + k + 1 has ended or, if there
is no such layer, when all forwards have. With k = 0, nothing hides the copy. A copy takes
sizes[i] / `rate`. Each direction makes one copy at a time: out in the order of the forward, back in
the order of the backward. A copy back also waits until the same layer's copy out has ended.

A plan is valid if
- it has one choice for each layer, in the order of the forward;
- the activations on the device never exceed `budget` bytes. If one layer frees memory at the moment
  at which another takes some, the freeing comes first;
- two ranks that get the same arguments return the same plan: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the time of the step, divided by its time if everything is kept; less is better. The
figure is the mean over twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence
from itertools import combinations, product

Choice = str | int


def offload_plan(
    forward: Sequence[int], backward: Sequence[int], sizes: Sequence[int], budget: int, rate: int
) -> list[Choice]:
    """Chooses what happens to each layer's activations.

    Args:
        forward: µs that each layer's forward takes.
        backward: µs that each layer's backward takes, without a second forward.
        sizes: bytes of each layer's activations.
        budget: bytes that fit on the device, at least as many as the largest layer has.
        rate: bytes per µs of a copy, in each direction.

    Returns:
        A list with "keep", "again" or k for each layer.
    """
    raise NotImplementedError("offload_plan: the plan")
