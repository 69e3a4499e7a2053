"""sqrt_n_plan: the least peak for equal blocks, and the least time under a budget."""

from __future__ import annotations

from functools import cache
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Which blocks to recompute",
    core=True,
    minutes=35,
    order=2,
    defines=("sqrt_n_plan", "best_segments"),
    library=(),
    hints=(
        "Equal blocks: how long must the longest of k segments be at least? Try all k. With a "
        "budget: how do you get a plan for the first 5 blocks from plans for fewer, and what "
        "must you know of those?",
        "`k + memory * ceil(n / k)`, and `range(n * i // k, n * (i + 1) // k)` cuts n blocks "
        "into k parts that differ by one at most. With a budget: for each `end`, keep a dict "
        "from the memory held to (time, plan), and build it from the dicts of all smaller "
        "`start`.",
        "A recomputed segment `range(start, end)` changes the memory held from h to h + 1, needs "
        "h + 1 + sum(memories[start:end]) within the budget, and costs sum(times[start:end]). A "
        "kept block changes it from h to h + memories[start], needs as much, and costs nothing.",
    ),
)

EQUAL = ((0, 1), (1, 1), (2, 1), (3, 1), (7, 1), (12, 1), (36, 1), (36, 17), (53, 1), (100, 1),
         (1, 30), (5, 30), (24, 30), (96, 34), (40, 3), (11, 2))  # fmt: skip
LARGE = 36  # blocks; more plans than could ever be tried
Plan = list[tuple[list[int], bool]]


# --- what runs on the rank -----------------------------------------------------------------------
def drive_equal(learner: Any, group: Any, cases: list[tuple[int, int]]) -> dict[str, Any]:
    """Plans of equal blocks, each segment as a list of blocks."""
    plans = [learner.sqrt_n_plan(n, memory) for n, memory in cases]
    for plan in plans:
        if not all(isinstance(blocks, range) for blocks in plan):
            raise TypeError(f"a plan of equal blocks must be a list of ranges, not {plan!r}")
    return {
        "plans": [[list(blocks) for blocks in plan] for plan in plans],
        "default": [list(blocks) for blocks in learner.sqrt_n_plan(30)],
    }


def _segment(segment: Any) -> tuple[list[int], bool]:
    """A segment of a plan, if it is one."""
    if isinstance(segment, (tuple, list)) and len(segment) == 2:
        blocks, again = segment
        if isinstance(blocks, range) and isinstance(again, bool):
            return list(blocks), again
    raise TypeError(f"a segment must be a pair (range, bool), not {segment!r}")


def drive_best(learner: Any, group: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """A plan for each case, or None where the learner says that there is none."""
    plans: list[Plan | None] = []
    for case in cases:
        try:
            plan = learner.best_segments(**case)
        except ValueError:
            plans.append(None)
        else:
            plans.append([_segment(segment) for segment in plan])
    return {"plans": plans}


# --- what it must bring back ---------------------------------------------------------------------
def least_time(case: dict[str, Any], one_by_one: bool = False) -> int | None:
    """The least time under a budget, or None if no plan is within it.

    It goes through every plan, block by block from the first; those that meet with the same blocks
    to come and the same memory held go on together, unless each is to be followed `one_by_one`.
    """
    times, memories, budget = case["times"], case["memories"], case["budget"]

    def from_here(start: int, held: int) -> int | None:
        if start == len(times):
            return 0
        options = []
        if held + memories[start] <= budget:
            options.append((0, step(start + 1, held + memories[start])))
        for end in range(start + 1, len(times) + 1):
            if held + 1 + sum(memories[start:end]) <= budget:
                options.append((sum(times[start:end]), step(end, held + 1)))
        return min((here + rest for here, rest in options if rest is not None), default=None)

    step = from_here if one_by_one else cache(from_here)
    return step(0, 0)


def _form(run: Run, plan: list[list[int]], n: int, what: str) -> None:
    """Every block once and in order, no segment empty."""
    run.equal([i for blocks in plan for i in blocks], list(range(n)), f"{what}: the blocks")
    run.true(all(plan), f"{what}: a segment is empty", measured=str(plan))


def _check_plan(run: Run, case: dict[str, Any], plan: Plan | None, least: int | None) -> None:
    """That a plan is one, within its budget, and the best."""
    n, budget = len(case["times"]), case["budget"]
    what = f"{n} blocks of {case['memories']} within {budget}"
    if least is None:
        none = "no plan's peak is within the budget: raise ValueError"
        run.true(
            plan is None,
            f"{what}: there is no plan",
            expected="ValueError",
            measured=str(plan),
            cause=none,
        )
        return
    lost = (
        "a peak equal to the budget is within it; longer segments hold less, and so may plans "
        "for the first blocks that are not the cheapest"
    )
    run.true(plan is not None, f"{what}: there is a plan", measured="ValueError", cause=lost)
    assert plan is not None
    _form(run, [blocks for blocks, _ in plan], n, what)
    held = time = 0
    for blocks, again in plan:
        inside = sum(case["memories"][i] for i in blocks)
        held += 1 if again else inside
        time += sum(case["times"][i] for i in blocks) if again else 0
        peak = held + inside if again else held
        cause = "a recomputed segment needs its input and all its activations in its backward"
        run.at_most(peak, budget, f"{what}: the peak at segment {blocks} of {plan}", cause=cause)
    run.at_most(
        time,
        least,
        f"{what}, of times {case['times']}: the time to recompute",
        cause="a cheaper plan is within the budget: remember the cheapest for everything "
        "that can be held",
    )


def _cases(run: Run, n: int, budgets: list[float]) -> list[dict[str, Any]]:
    """Hidden blocks, with budgets between the least that a recomputed block needs and all kept."""
    times = run.integers(1, 20, n).tolist()
    memories = run.integers(1, 9, n).tolist()
    low, high = max(memories), sum(memories)
    return [
        {"times": times, "memories": memories, "budget": low + round(share * (high - low))}
        for share in budgets
    ]


@check("equal blocks: the least peak", points=5, code="S")
@diagnosis("the peak is the number of segments and `memory` times the longest one's length")
def check_equal(run: Run) -> None:
    """S: no blocks, one, squares and numbers between, activations larger than the input."""
    cases = [*EQUAL, (run.number(40, 90), run.number(2, 40))]
    found = run(drive_equal, {"cases": cases}).outputs[0]
    plans = zip([*cases, (30, 1)], [*found["plans"], found["default"]], strict=True)
    for (n, memory), plan in plans:
        what = f"sqrt_n_plan({n}, {memory})"
        _form(run, plan, n, what)
        peak = len(plan) + memory * max(map(len, plan), default=0)
        least = min((k + memory * -(-n // k) for k in range(1, n + 1)), default=0)
        cut = "lengths that differ by one at most are best; activations count `memory` times"
        run.at_most(peak, least, f"the peak of {what}, cut into {[*map(len, plan)]},", cause=cut)


@check("under a budget: the least time, as in all plans", points=6, code="S")
@diagnosis("compare by hand with all plans of three blocks")
def check_small(run: Run) -> None:
    """S: small cases, some of them hidden, against every plan that there is."""
    cases = [
        {"times": [5, 5, 5], "memories": [4, 4, 4], "budget": budget} for budget in range(3, 14)
    ]
    cases += [{"times": [9, 1, 1, 9], "memories": [3, 5, 5, 3], "budget": b} for b in (9, 11, 12)]
    cases += [{"times": [], "memories": [], "budget": 0}]
    cases += [{"times": [1, 9], "memories": [1, 1], "budget": 2}]
    for n in (1, 2, 3, 4, 5, 6, 7, 7):
        cases += _cases(run, n, [0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0])
    found = run(drive_best, {"cases": cases}).outputs[0]
    for case, plan in zip(cases, found["plans"], strict=True):
        _check_plan(run, case, plan, least_time(case, one_by_one=True))


@check("under a budget: a model of 36 blocks", points=4, code="S")
@diagnosis("trying all plans never ends: remember one plan for each amount that can be held")
def check_large(run: Run) -> None:
    """S: so many blocks that all plans cannot be tried."""
    cases = _cases(run, LARGE, [0.15, 0.3, 0.6])
    found = run(drive_best, {"cases": cases}, cpu=4.0).outputs[0]
    for case, plan in zip(cases, found["plans"], strict=True):
        _check_plan(run, case, plan, least_time(case))
