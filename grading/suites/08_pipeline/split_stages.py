"""split_stages: the best cut of all, and one gradient for a weight with two homes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Stages of equal cost",
    core=True,
    minutes=30,
    order=1,
    defines=("split_stages", "sum_tied_gradient"),
    hints=(
        "If you knew where the first stage ends, the rest would be the same task with fewer "
        "layers and one stage fewer. The cost of the slowest stage is then the larger of two: "
        "that of the first stage, and that of the slowest stage of the rest.",
        "Write `best(first, stages)` for the layers from `first` on: try every end of the first "
        "stage that leaves a layer for each of the others, and keep the cheapest. "
        "`functools.cache` makes it fast: there are only n·p different calls. For the weight: a "
        "sum over two ranks is a collective that *both* must call, whatever gradient they have.",
        "With one stage, `best` is `sum(costs[first:])`. Else `cut` goes from first + 1 to "
        "n - stages + 1, and the value is `max(sum(costs[first:cut]), best(cut, stages - 1))`. "
        "For the weight: `if weight.grad is None: weight.grad = torch.zeros_like(weight)`, then "
        "`all_reduce(weight.grad, pair)`.",
    ),
)

Case = dict[str, Any]  # costs, p
LARGE = 2.0**26  # float32 cannot tell it from the next three whole numbers
SHAPE = (6, 5)  # of the tied weight: an even number of elements


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Case]) -> dict[str, Any]:
    """The stages of every second case, each as begin, end and step of its range."""
    mine = cases[group.index :: group.size]
    before = [list(case["costs"]) for case in mine]
    stages = [_as_data(learner.split_stages(**case)) for case in mine]
    return {"stages": stages, "kept": before == [case["costs"] for case in mine]}


def _as_data(stages: Any) -> Any:
    if not isinstance(stages, (list, tuple)) or not all(isinstance(r, range) for r in stages):
        return repr(stages)[:150]
    return [[layers.start, layers.stop, layers.step] for layers in stages]


def drive_few(learner: Any, group: Any, cases: list[Case]) -> dict[str, Any]:
    """What is said to fewer layers than stages: the text of a ValueError, and what came instead."""
    texts, returned = [], []
    for case in cases[group.index :: group.size]:
        try:
            returned.append(repr(learner.split_stages(**case))[:100])
            texts.append("")
        except ValueError as error:
            returned.append("")
            texts.append(str(error))
    return {"texts": texts, "returned": returned}


def drive_tied(
    learner: Any, group: Any, weight: torch.Tensor, grads: list[torch.Tensor | None]
) -> dict[str, Any]:
    """The first and the last rank hold the weight, the ranks between them do not."""
    ends = sorted({0, group.size - 1})
    between = [index for index in range(group.size) if index not in ends]
    pair = group.split([ends, between] if between else [ends], "tied")
    if group.index in between:
        return {}
    mine = torch.nn.Parameter(weight.clone())
    mine.grad = grads[pair.index]
    if pair.index and mine.grad is not None:  # as the transposed product leaves it
        mine.grad = mine.grad.t().contiguous().t()
    learner.sum_tied_gradient(mine, pair)
    return {"grad": mine.grad, "weight": mine.detach()}


# --- what they must bring back: the cut ----------------------------------------------------------
def cheapest(costs: Sequence[float], p: int) -> float:
    """The slowest stage of the best cut, by trying all of them."""
    upto = [0.0, *accumulate(costs)]
    every = ([0, *cuts, len(costs)] for cuts in combinations(range(1, len(costs)), p - 1))
    return min(
        max(upto[b] - upto[a] for a, b in zip(ends, ends[1:], strict=False)) for ends in every
    )


def cheapest_of_many(costs: Sequence[float], p: int) -> float:
    """The same for sizes where all cuts are too many: stage by stage."""
    upto = [0.0, *accumulate(costs)]
    n = len(costs)
    best = [float("inf"), *upto[1:]]  # of the first i layers in one stage
    for stages in range(2, p + 1):
        best = [
            min(
                (max(best[a], upto[b] - upto[a]) for a in range(stages - 1, b)),
                default=float("inf"),
            )
            for b in range(n + 1)
        ]
    return best[n]


def _costs(run: Run, n: int) -> list[float]:
    return [float(cost) / 4 for cost in run.integers(1, 40, n)]


def _cases(run: Run) -> list[Case]:
    """Equal costs, an expensive end, an expensive beginning, hidden ones; 1 to 5 stages."""
    layers = [1.0, 1.0, 2.0, 3.0, 3.0, 1.0]
    cases = [{"costs": costs, "p": 3} for costs in (layers, layers[::-1], [2.0] * 7)]
    cases += [{"costs": [cost / 64 for cost in layers], "p": 3}]  # none is near a whole number
    cases += [{"costs": [1.0] * 8 + [4.5], "p": 4}, {"costs": [9.0, *[1.0] * 7], "p": 4}]
    cases += [{"costs": [0.0, 0.0, 1.0, 0.0, 0.0], "p": 4}, {"costs": [3.0, 1.0, 2.0], "p": 3}]
    large = [LARGE, LARGE, LARGE + 3]
    cases += [{"costs": costs, "p": 2} for costs in (large, large[::-1])]
    sizes = ((5, 1), (9, 2), (10, 3), (11, 4), (12, 5), (8, 5))
    return cases + [{"costs": _costs(run, n), "p": p} for n, p in sizes]


def _name(case: Case) -> str:
    costs = " ".join(f"{cost:g}" for cost in case["costs"][:12])
    more = " ..." if len(case["costs"]) > 12 else ""
    return f"{len(case['costs'])} layers of costs {costs}{more}, p = {case['p']}"


def _cut(run: Run, cases: list[Case]) -> list[tuple[Case, list[tuple[int, int]]]]:
    """Begin and end of each stage, for each case; fails if they are no cut of the layers."""
    outputs = run(drive, {"cases": cases}, world=2, cpu=2.0).outputs
    cause = "the caller may still need them: work on a copy"
    run.true(all(output["kept"] for output in outputs), "the costs were changed", cause=cause)
    found = [outputs[place % 2]["stages"][place // 2] for place in range(len(cases))]
    for case, stages in zip(cases, found, strict=True):
        _check_form(run, case, stages)
    return [
        (case, [(a, b) for a, b, _ in stages]) for case, stages in zip(cases, found, strict=True)
    ]


def _check_form(run: Run, case: Case, stages: Any) -> None:
    what, n, p = _name(case), len(case["costs"]), case["p"]
    run.true(
        isinstance(stages, list),
        f"{what}: the result is not a list of ranges",
        measured=str(stages),
        expected="[range(0, ...), ...]",
    )
    shown = ", ".join(f"range({a}, {b})" for a, b, _ in stages)
    run.true(len(stages) == p, f"{what}: {len(stages)} stages", expected=f"{p}", measured=shown)
    run.true(
        all(step == 1 for *_, step in stages),
        f"{what}: a stage is not contiguous",
        measured=f"{stages[0]}",
        cause="a stage is a range with step 1",
    )
    empty = next((stage for stage, (a, b, _) in enumerate(stages) if a >= b), None)
    cause = "each stage needs at least one layer, even if the layers before are expensive"
    run.true(empty is None, f"{what}: stage {empty} is empty", measured=shown, cause=cause)
    begins, ends = [0, *(b for _, b, _ in stages)], [*(a for a, _, _ in stages), n]
    run.true(
        begins == ends,
        f"{what}: the stages do not follow one another from 0 to {n}",
        measured=shown,
        expected="each layer in exactly one stage, in order",
        cause="each stage begins where the one before ends, and the last ends at n",
    )


def _check_best(run: Run, case: Case, stages: list[tuple[int, int]], best: float) -> None:
    sums = [sum(case["costs"][a:b]) for a, b in stages]
    counts = [b - a for a, b in stages]
    cause = "closing a stage once it has its share misses better cuts"
    if max(counts) - min(counts) <= 1:
        cause = "the stages have equal numbers of layers: it is the costs that must be even"
    if LARGE in case["costs"]:
        cause = "are costs added up in float32? it is too narrow for these numbers"
    run.true(
        max(sums) <= best * (1 + 1e-9),
        f"{_name(case)}: the slowest stage is too slow",
        expected=f"at most {best:g}",
        cause=cause,
        measured=f"{max(sums):g}; the stages cost " + ", ".join(f"{s:g}" for s in sums),
    )


@check(
    "p stages that follow one another, with all layers, and none of them empty", points=3, code="E"
)
@diagnosis("one range for each stage")
def check_cut(run: Run) -> None:
    """E: 3 to 12 layers on 1 to 5 stages; also as many layers as stages."""
    _cut(run, _cases(run))


@check("the slowest stage is as fast as possible", points=3, code="E")
def check_best(run: Run) -> None:
    """E: against every cut there is."""
    for case, stages in _cut(run, _cases(run)):
        _check_best(run, case, stages, cheapest(case["costs"], case["p"]))


@check("100 layers on 16 stages", points=1, code="E")
@diagnosis("remember results: there are only n·p different calls")
def check_many(run: Run) -> None:
    """E: too many cuts to try; two sizes."""
    cases = [{"costs": _costs(run, 100), "p": 16}, {"costs": [1.0] * 81 + [5.5], "p": 12}]
    for case, stages in _cut(run, cases):
        _check_best(run, case, stages, cheapest_of_many(case["costs"], case["p"]))


@check("fewer layers than stages is a ValueError that names both numbers", points=2, code="E")
@diagnosis("check it first: `if len(costs) < p: raise ValueError(...)`")
def check_few(run: Run) -> None:
    """E: three sizes: eleven layers, a single one, none."""
    cases: list[Case] = [{"costs": _costs(run, 11), "p": 12}, {"costs": [2.5], "p": 3}]
    cases.append({"costs": [], "p": 2})
    outputs = run(drive_few, {"cases": cases}, world=len(cases)).outputs
    texts, answers = ([text for o in outputs for text in o[name]] for name in ("texts", "returned"))
    for case, text, returned in zip(cases, texts, answers, strict=True):
        n, p = len(case["costs"]), case["p"]
        what = f"{n} layers on {p} stages"
        run.true(not returned, f"{what}: no ValueError", measured=f"returned {returned}")
        run.true(
            str(n) in text and str(p) in text,
            f"{what}: the error's text does not help",
            expected=f"a text with {n} and {p} in it",
            measured=repr(text),
            cause="the reader wants to know what was asked for and what was found",
        )


# --- the tied weight -----------------------------------------------------------------------------
def _tied(run: Run, grads: list[torch.Tensor | None], weight: torch.Tensor, world: int) -> Any:
    """Runs it and compares the gradients; returns the run's result."""
    result = run(drive_tied, {"weight": weight, "grads": grads}, world=world)
    total = torch.stack([grad for grad in grads if grad is not None]).sum(0)
    ends = sorted({0, world - 1})
    for rank, own in zip(ends, grads, strict=True):
        likely = {"this is the mean of both: a weight that is used twice gets the sum": total / 2}
        if own is not None and len(ends) == 2:
            likely = {
                "it is still this rank's own gradient: nothing was added": own,
                "this rank's own gradient is in it twice": total + own,
            } | likely
        what = "the gradient of the tied weight"
        run.close(result.outputs[rank]["grad"], total, what, rank=rank, likely=likely)
        run.true(
            torch.equal(result.outputs[rank]["weight"], weight),
            "the weight was changed",
            rank=rank,
            cause="only the gradient is summed; the optimizer steps later",
        )
    return result


@check("both ranks get the sum of the tied weight's gradients", points=3, code="E")
def check_tied(run: Run) -> None:
    """E: with a stage between them, without one, and on one rank alone."""
    weight, first, last = run.random(SHAPE), run.random(SHAPE), run.random(SHAPE)
    for world in (3, 2):
        _tied(run, [first, last], weight, world)
    _tied(run, [first], weight, 1)


@check("a rank without a gradient counts as zeros", points=2, code="H")
@diagnosis("the other rank waits for this one: use zeros, and take part in the sum")
def check_none(run: Run) -> None:
    """H: the first, then the last rank has none; in bf16."""
    weight, grad = run.random(SHAPE, torch.bfloat16), run.random(SHAPE, torch.bfloat16)
    _tied(run, [None, grad], weight, 2)
    _tied(run, [grad, None], weight, 2)


@check("each rank sends its gradient once", points=1, code="B")
def check_bytes(run: Run) -> None:
    """B: S bytes, exact, in bf16."""
    weight, first, last = (run.random(SHAPE, torch.bfloat16) for _ in range(3))
    size = weight.nbytes
    likely = {
        "twice as much: is it both gathered and summed, or is the weight sent as well?": [
            2 * size,
            0,
            2 * size,
        ]
    }
    run.bytes(_tied(run, [first, last], weight, 3), [size, 0, size], likely=likely)
