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
    # BEGIN SOLUTION: the plan
    layers = range(len(sizes))
    plan: list[Choice] = ["again"] * len(sizes)
    for layer in sorted(layers, key=lambda layer: -forward[layer] / sizes[layer]):
        kept = _with(plan, {layer: "keep"})
        if _time_and_peak(forward, backward, sizes, rate, kept)[1] <= budget:
            plan = kept
    best, before = _time_and_peak(forward, backward, sizes, rate, plan)[0], float("inf")
    choices: list[Choice] = ["keep", "again", 0, 1, 2, 4]
    pairs = [*combinations(layers, 2)] or [(0, 0)]
    while best < before:  # two layers at a time: what one gives, another may take
        before = best
        for (a, b), (mine, other) in product(pairs, product(choices, choices)):
            changed = _with(plan, {a: mine, b: other})
            time, peak = _time_and_peak(forward, backward, sizes, rate, changed)
            if peak <= budget and time < best * (1 - 1e-9):
                plan, best = changed, time
    return plan


def _with(plan: list[Choice], changes: dict[int, Choice]) -> list[Choice]:
    return [changes.get(layer, choice) for layer, choice in enumerate(plan)]


def _time_and_peak(
    forward: Sequence[int],
    backward: Sequence[int],
    sizes: Sequence[int],
    rate: int,
    plan: list[Choice],
) -> tuple[float, int]:
    """How long a plan takes, and the most bytes that are there."""
    changes: list[tuple[float, int]] = []  # of memory: (when, bytes); what goes before what comes
    now = link = 0.0
    away: dict[int, float] = {}  # since when a layer is on the host
    for layer, choice in enumerate(plan):
        changes.append((now, sizes[layer]))
        now += forward[layer]
        if choice == "again":
            changes.append((now, -sizes[layer]))
        elif choice != "keep":
            link = away[layer] = max(link, now) + sizes[layer] / rate
            changes.append((link, -sizes[layer]))
    ends, link = [now], 0.0  # of the forward, and of each backward from the last layer's on
    for layer in reversed(range(len(plan))):
        choice, begin = plan[layer], ends[-1]
        if choice == "again":
            changes.append((begin, sizes[layer]))
            begin += forward[layer]
        elif isinstance(choice, int):
            asked = ends[max(0, len(ends) - 1 - choice)]
            start = max(link, asked, away[layer])
            changes.append((start, sizes[layer]))
            link = start + sizes[layer] / rate
            begin = max(begin, link)
        ends.append(begin + backward[layer])
        changes.append((ends[-1], -sizes[layer]))
    there = peak = 0
    for _, size in sorted(changes):
        there += size
        peak = max(peak, there)
    return ends[-1], peak
    # END SOLUTION
