"""offload_plan: a choice for each layer that fits the device; the time of the step is the figure.

Source: Rhu et al., "vDNN" (2016), for activations on the host; Peng et al., "Capuchin" (2020), for
moving some and computing others again. The bound is 1.0: no layer waits, none is computed again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: keep, move or compute again",
    core=False,
    minutes=60,
    order=6,
    open=("times the time of a step that keeps everything", 1.3319, 1.0643),
    library=(),
    hints=(
        "First write a function for the time and the peak memory of a plan. Begin with `again` "
        "for every layer: that is valid. Which layers are most worth their bytes if you keep them?",
        "Keep the layers with the longest forward per byte, as many as fit. Then change one "
        "layer's choice at a time, and accept the change if the plan becomes faster and still "
        "fits.",
        "A single change often does not fit, or gains nothing. Change two layers at once: try all "
        "pairs of layers, each with keep, again, 0, 1, 2 and 4, until no pair helps any more.",
    ),
)


class Case(NamedTuple):
    """The function's arguments: times in µs, sizes in bytes, the rate in bytes in a µs."""

    forward: list[int]
    backward: list[int]
    sizes: list[int]
    budget: int
    rate: int


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The choices of each case."""
    return {"plans": [learner.offload_plan(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """Uneven layers; copying all of them once takes 0.8 to 3 times as long as the forward."""
    count = draw(8, 16, 1)[0]
    forward = draw(20, 100, count)
    backward = [time * draw(150, 251, 1)[0] // 100 for time in forward]
    sizes = [1000 * number for number in draw(50, 400, count)]
    rate = sum(sizes) * 100 // (sum(forward) * draw(80, 300, 1)[0])
    budget = max(sizes) + (sum(sizes) - max(sizes)) * draw(10, 40, 1)[0] // 100
    return Case(forward, backward, sizes, budget, rate)


def _time(run: Run, case: Case, choices: Any) -> float:
    """How long the step takes, in times of all passes, if the choices are valid."""
    run.true(
        isinstance(choices, (list, tuple)) and len(choices) == len(case.sizes),
        "this is not a list with one choice for each layer",
        expected=f"{len(case.sizes)} choices",
        measured=describe(choices),
    )
    for layer, choice in enumerate(choices):
        known = choice in ("keep", "again") if isinstance(choice, str) else type(choice) is int
        run.true(
            known and (isinstance(choice, str) or choice >= 0),
            f"layer {layer}: this is not a valid choice",
            expected="`keep`, `again`, or a whole number k ≥ 0",
            measured=describe(choice),
        )
    time, peak = _on_paper(case, choices)
    run.at_most(peak, case.budget, "the number of bytes on the device at one time")
    return time / sum(case.forward + case.backward)


def _on_paper(case: Case, choices: list[Any]) -> tuple[float, int]:
    """The time of the step, and the most bytes that are there."""
    changes, now, out, back = [], 0.0, 0.0, 0.0
    hosted: dict[int, float] = {}
    for layer, choice in enumerate(choices):
        size = case.sizes[layer]
        changes.append((now, size))
        now += case.forward[layer]
        if choice == "again":
            changes.append((now, -size))
        elif choice != "keep":
            out = max(out, now) + size / case.rate
            hosted[layer] = out
            changes.append((out, -size))
    ends = {len(choices): now}
    for layer in reversed(range(len(choices))):
        choice, size, begin = choices[layer], case.sizes[layer], ends[layer + 1]
        if choice == "again":
            changes.append((begin, size))
            begin += case.forward[layer]
        elif choice != "keep":
            asked = ends[min(layer + choice + 1, len(choices))]
            start = max(back, asked, hosted[layer])
            back = start + size / case.rate
            changes.append((start, size))
            begin = max(begin, back)
        ends[layer] = begin + case.backward[layer]
        changes.append((ends[layer], -size))
    there = peak = 0
    for _, size in sorted(changes):  # at one time, what is freed goes first
        there += size
        peak = max(peak, there)
    return ends[0], peak


@check("one choice for each layer, and never more bytes than the budget", points=3, code="M")
def check_plan(run: Run) -> None:
    """M: hidden layers; room for one layer; room for all; one layer."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(4)]
    cases += [Case([5, 6, 7], [9, 9, 9], [40, 50, 60], 60, 10), Case([4], [8], [7], 7, 1)]
    cases += [Case([5, 6], [9, 9], [40, 50], 90, 10)]
    plans.judged(run, drive, cases, _time)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_time(run: Run) -> None:
    """S: the mean of the step's time."""
    run.figure = plans.figure(run, drive, "offload_plan", _case, _time)
