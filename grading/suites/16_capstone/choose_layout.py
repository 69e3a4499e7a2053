"""choose_layout: it fits, and its score is within 5 % of the best of all that fit."""

from __future__ import annotations

import math
from typing import Any

from course_lib.grade.suite import Exercise, Run, because, check, diagnosis
from grading.references.planning.layout_choice import (
    Case,
    Layout,
    Search,
    candidates,
    misfit,
    price,
)

EXERCISE = Exercise(
    title="Choose a layout",
    core=False,
    minutes=30,
    order=40,
    library=("model.ModelConfig",),
    hints=(
        "Write it as a search: all layouts that fit, the price of each, the lowest score of those "
        "within the budget. Leave nothing out because it looks bad: the score decides.",
        "pp is a divisor of the layers, tp one of the greatest common divisor of everything that "
        "it cuts, ep one of the experts. dp is the number of ranks divided by these three, if "
        "that is a whole number. The number of micro-batches is a divisor of batch // (dp · ep).",
        "`for pp, tp, ep in product(divisors(layers), divisors(gcd(...)), divisors(experts))`, "
        "`dp, rest = divmod(world, pp * tp * ep)`, skip if rest or not dp or batch % (dp * ep); "
        "inside, loop over micro-batches and zero in (1, 3), and keep the lowest score.",
    ),
)

MARGIN = 1.05  # how far from the best a score may be
TOO_MANY = (
    "most of the layouts that you try cannot fit: pp is a divisor of the layers, ep of the "
    "experts, tp of all that it cuts, and dp follows from these three"
)


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[dict[str, Any]]) -> list[Any]:
    """The layout of each case, as a list of numbers; None where none was found."""
    found = []
    for given in cases:
        case = Case(**given)
        layout = learner.choose_layout(
            case.config, case.world, case.ranks_per_node, case.batch, case.budget
        )
        plain = isinstance(layout, (tuple, list)) and all(isinstance(n, int) for n in layout)
        found.append([int(n) for n in layout] if plain else layout and repr(layout))
    return found


# --- cases ---------------------------------------------------------------------------------------
def _case(
    run: Run, world: int, per_node: int, batch: int, moe: list[int], *, room: float, **shape: int
) -> Case:
    """A question with hidden sizes; a part `room` of all layouts is within its budget."""
    sizes = {"hidden": 64 * shape["heads"], "ffn": 96 * run.number(8, 60),
             "vocabulary": 384 * run.number(40, 300), "sequence": 256 * run.number(2, 13),
             **shape}  # fmt: skip
    case = Case(sizes, moe, world, per_node, batch, math.inf)
    peaks = sorted(p.peak for _, p in candidates(case))
    return case._replace(budget=peaks[int(room * (len(peaks) - 1))])


def _cases(run: Run) -> list[Case]:
    """Powers of two, and not; with and without experts; one node, one rank, one sequence.

    In the last three there are fewer sequences than ranks, one micro-batch is best, tp reaches
    beyond a node or divides the heads and not what else it cuts.
    """
    odd_ffn, odd_vocabulary = 4 * run.number(40, 400) + 2, 16 * run.number(375, 3750) + 8
    return [
        _case(run, 32, 8, 64, [], room=0.06, layers=24, heads=16, kv_heads=4),
        _case(run, 64, 8, 256, [16, 2], room=0.3, layers=16, heads=16, kv_heads=8),
        _case(run, 16, 4, 512, [8, 2], room=0.1, layers=8, heads=8, kv_heads=8, sequence=64),
        _case(run, 36, 6, 144, [12, 3], room=0.1, layers=18, heads=12, kv_heads=6),
        _case(run, 24, 8, 96, [], room=0.5, layers=12, heads=24, kv_heads=3),
        _case(run, 32, 8, 1, [], room=0.5, layers=32, heads=8, kv_heads=1),
        _case(run, 1, 8, 8, [4, 1], room=0.5, layers=2, heads=2, kv_heads=2),
        _case(run, 32, 8, 4096, [], room=0.3, layers=32, heads=8, kv_heads=8, sequence=32),
        _case(run, 24, 4, 12, [24, 2], room=0.05, layers=24, heads=8, kv_heads=4, ffn=odd_ffn,
              sequence=1024),
        _case(run, 96, 4, 4, [12, 3], room=0.2, layers=6, heads=32, kv_heads=16,
              vocabulary=odd_vocabulary, sequence=256),
        _case(run, 128, 1, 12, [24, 2], room=0.05, layers=8, heads=32, kv_heads=16, sequence=64),
    ]  # fmt: skip


def _large(run: Run) -> list[Case]:
    """27720 = 2³ · 3² · 5 · 7 · 11 ranks: 96 divisors."""
    return [_case(run, 27720, 8, 221760, [40, 4], room=0.02, layers=60, heads=48, kv_heads=24)]


def _ask(run: Run, cases: list[Case], cpu: float = 5.0) -> list[Any]:
    given = {"cases": [case._asdict() for case in cases]}
    answers: list[Any] = run(drive, given, cpu=cpu, wall=6 * cpu).outputs[0]
    return answers


def _fitting(run: Run, case: Case, answer: Any) -> Layout:
    """The answer, if it is a layout that can be."""
    if answer is None:
        search = Search(case)
        run.fail(
            f"no layout was found ({case.words})",
            measured="None",
            expected=f"one of the {len(search.fit)} layouts that fit",
            cause=search.cause_of_none(),
        )
    why = misfit(case, answer)
    run.true(
        not why, f"this is not a layout that fits ({case.words})", cause=why, measured=str(answer)
    )
    return Layout(*answer)


def _near_the_best(run: Run, case: Case, answer: Any) -> None:
    """Within the margin; the message says where another score is lower."""
    layout, search = _fitting(run, case, answer), Search(case)
    best, lowest = search.best
    found = price(case.config, layout, case.ranks_per_node, case.batch)
    within = found.peak <= case.budget
    run.true(
        within and found.score <= MARGIN * lowest.score,
        f"a different layout is better ({case.words})"
        if within
        else f"the budget is exceeded ({case.words})",
        measured=f"{_said(layout)}: {found.score / lowest.score:.2f} times the lowest score",
        expected=f"at most {MARGIN}; {_said(best)} has 1",
        cause=search.cause(layout) if within else _over(layout, search),
    )


def _over(layout: Layout, search: Search) -> str:
    lowest = min(search.all, key=lambda pair: pair[1].score)[0]
    ignored = (
        "this is the lowest score of all layouts, including those that do not fit: check the budget"
    )
    return ignored if layout == lowest else "its peak is above the budget"


def _said(layout: Layout) -> str:
    return ", ".join(f"{name} {n}" for name, n in zip(layout._fields, layout, strict=True))


# --- checks --------------------------------------------------------------------------------------
@check("every size divides", points=2, code="S")
@diagnosis("see the rules: what pp, tp, ep and the micro-batches divide")
def check_fits(run: Run) -> None:
    """S: the budget aside."""
    cases = _cases(run)
    for case, answer in zip(cases, _ask(run, cases), strict=True):
        _fitting(run, case, answer)


@check("within the budget, and within 5 % of the best", points=4, code="M")
@diagnosis("of all that fit, the lowest score")
def check_best(run: Run) -> None:
    """M: against a search."""
    cases = _cases(run)
    for case, answer in zip(cases, _ask(run, cases), strict=True):
        _near_the_best(run, case, answer)


@check("a budget that one layout meets, and one that none does", points=2, code="M")
@diagnosis("a peak equal to the budget is within it; None if there is no such layout")
def check_tight(run: Run) -> None:
    """M: the smallest peak, and a byte less."""
    case = _cases(run)[0]
    least = min(p.peak for _, p in candidates(case))
    cases = [case._replace(budget=least), case._replace(budget=least - 1)]
    exact, none = _ask(run, cases)
    run.true(
        exact is not None,
        "no layout was found, although one needs exactly the budget",
        cause="a peak equal to the budget is within it: <=, not <",
    )
    _near_the_best(run, cases[0], exact)
    run.true(
        none is None,
        "a layout was returned where none is within the budget",
        expected="None",
        measured=str(none),
    )


@check("27720 ranks in two seconds", points=3, code="H")
@diagnosis("make only layouts that divide: dp follows from the other three")
def check_large(run: Run) -> None:
    """H: in processor time."""
    cases = _large(run)
    with because(cpu=TOO_MANY):
        answer = _ask(run, cases, cpu=2.0)[0]
    _near_the_best(run, cases[0], answer)
