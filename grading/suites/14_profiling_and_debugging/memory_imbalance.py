"""memory_imbalance: bytes of each stage, the report, and the best of all cuts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Cut a pipeline by bytes",
    core=False,
    minutes=30,
    order=100,
    defines=("Layer", "Costs", "stage_bytes", "imbalance", "balance"),
    library=(),
    hints=(
        "Write `stage_bytes` first and cut four equal blocks into two stages by hand. For "
        "`balance`: if you know the best cuts of the first 0, 1, 2, ... blocks into k stages, what "
        "are those into k + 1? What a stage holds depends on its place, so go from the first.",
        "Keep a dict from the number of blocks placed to (largest stage so far, cut), beginning "
        "with `{0: (0, [])}`. For each stage make a new one: from every `start` in the old, for "
        "every `end` after it, the larger of what was and of this stage's bytes.",
        "Add the embedding to the first block and the head to the last: they go where these go. "
        "Inside the loops `size += 16 * parameters + activations * min(p - s, m)` for each further "
        "block, and `found[end] = max(before, size), [*cut, end - start]` if that is less.",
    ),
)

Size = Callable[["Case", int, int, int], int]  # case, stage, first block, block after the last


class Case(NamedTuple):
    """A model to cut.

    Attributes:
        ends: embedding and head, each (parameters, activations).
        blocks: the same of each block.
        stages: p.
        micro: m.
    """

    ends: list[tuple[int, int]]
    blocks: list[tuple[int, int]]
    stages: int
    micro: int

    def __str__(self) -> str:
        return f"{len(self.blocks)} blocks on {self.stages} stages, {self.micro} micro-batches"


# --- what runs on the rank -----------------------------------------------------------------------
def _costs(learner: Any, case: list[Any]) -> Any:
    first, last = (learner.Layer(*end) for end in case[0])
    return learner.Costs(first, [learner.Layer(*block) for block in case[1]], last)


def drive_bytes(learner: Any, group: Any, cases: list[list[Any]], cuts: list[Any]) -> Any:
    """The bytes of each stage for each case and cut."""
    return {
        "sizes": [
            list(learner.stage_bytes(_costs(learner, case), cut, case[3]))
            for case, cut in zip(cases, cuts, strict=True)
        ]
    }


def drive_report(learner: Any, group: Any, sizes: list[list[int]]) -> dict[str, Any]:
    """The report for each list of sizes."""
    return {"reports": [learner.imbalance(each) for each in sizes]}


def drive_balance(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The cut of each case."""
    cuts = [learner.balance(_costs(learner, case), case[2], case[3]) for case in cases]
    return {"cuts": [list(cut) for cut in cuts]}


# --- what it must bring back ---------------------------------------------------------------------
def in_flight(p: int, s: int, m: int) -> int:
    """Micro-batches that stage s of p holds under 1F1B."""
    return min(p - s, m)


def stage_size(
    case: Case,
    stage: int,
    start: int,
    end: int,
    *,
    ends: bool = True,
    flying: Callable[[int, int, int], int] = in_flight,
) -> int:
    """Bytes of blocks `start` to `end` - 1 as one stage.

    Args:
        case: the model.
        stage: from 0.
        start: its first block.
        end: the block after its last.
        ends: whether embedding and head count.
        flying: micro-batches in flight, from p, s and m.
    """
    layers = case.blocks[start:end]
    if ends:
        layers = [*case.ends[:1] * (stage == 0), *layers,
                  *case.ends[1:] * (stage == case.stages - 1)]  # fmt: skip
    count = flying(case.stages, stage, case.micro)
    return sum(16 * parameters + activations * count for parameters, activations in layers)


def slips() -> dict[str, Size]:
    """Wrong bytes of a stage, under the sentences that explain them."""

    def by(**known: Any) -> Size:
        return lambda *place: stage_size(*place, **known)

    return {
        "embedding and head are missing: they are on the first and on the last stage":
            by(ends=False),
        "one micro-batch on every stage: 1F1B holds p - s on stage s":
            by(flying=lambda p, s, m: 1),
        "every stage holds as many micro-batches as the first: it is p - s on stage s":
            by(flying=lambda p, s, m: min(p, m)),
        "there are only m micro-batches to hold": by(flying=lambda p, s, m: p - s),
        "all m micro-batches on every stage: that is GPipe's": by(flying=lambda p, s, m: m),
        "one too few in flight: the last stage still holds one":
            by(flying=lambda p, s, m: min(p - s - 1, m)),
        "the wrong end: the first stage waits longest and holds most":
            by(flying=lambda p, s, m: min(s + 1, m)),
        "activations are missing": by(flying=lambda p, s, m: 0),
    }  # fmt: skip


def sizes_of(case: Case, cut: list[int], size: Size) -> list[int]:
    """The bytes of each stage of a cut."""
    ends = [sum(cut[:stage]) for stage in range(len(cut) + 1)]
    return [size(case, stage, *span) for stage, span in enumerate(pairwise(ends))]


def least(case: Case, size: Size = stage_size) -> int:
    """The largest stage of the best cut: of every cut if there are few, else without repeating."""
    n, p = len(case.blocks), case.stages
    if n <= 10:
        every = combinations(range(1, n), p - 1)
        bounds = ([0, *inner, n] for inner in every)
        return min(
            max(size(case, s, *span) for s, span in enumerate(pairwise(bound))) for bound in bounds
        )

    @cache
    def rest(stage: int, start: int) -> int:
        """The largest of this and all later stages."""
        if stage == p - 1:
            return size(case, stage, start, n)
        ends = range(start + 1, n - p + stage + 2)
        return min(max(size(case, stage, start, end), rest(stage + 1, end)) for end in ends)

    return rest(0, 0)


def _model(run: Run, n: int, p: int, m: int, *, equal: bool = False) -> Case:
    """Hidden blocks; ends as large as some of them."""

    def draw(count: int, low: int, high: int) -> list[int]:
        return run.integers(low, high, count).tolist()

    blocks = list(zip(draw(n, 20, 90), draw(n, 100, 900), strict=True))
    ends = list(zip(draw(2, 80, 260), draw(2, 50, 700), strict=True))
    return Case(ends, blocks[:1] * n if equal else blocks, p, m)


def _even(case: Case) -> list[int]:
    """The same number of blocks for each stage, the rest to the first ones."""
    n, p = len(case.blocks), case.stages
    return [n // p + (stage < n % p) for stage in range(p)]


@check("stage_bytes: embedding, head, and the micro-batches in flight", points=3, code="E")
@diagnosis("16 · parameters + activations · min(p - s, m), of all that the stage holds")
def check_bytes(run: Run) -> None:
    """E: cuts of hidden models, with fewer and with more micro-batches than stages, and p = 1."""
    shapes = [(8, 4, 16), (7, 3, 2), (5, 5, 3), (6, 1, 4), (9, 2, 1), (run.number(10, 20), 6, 4)]
    cases = [_model(run, *shape) for shape in shapes]
    cuts = [_even(case) for case in cases]
    cuts[0], cuts[1] = [1, 2, 2, 3], [4, 1, 2]
    given = {"cases": [list(case) for case in cases], "cuts": cuts}
    answers = run(drive_bytes, given).outputs[0]["sizes"]
    for case, cut, sizes in zip(cases, cuts, answers, strict=True):
        known = {why: sizes_of(case, cut, size) for why, size in slips().items()}
        what = f"the bytes of {case}, cut as {cut},"
        run.equal(sizes, sizes_of(case, cut, stage_size), what, likely=known)


@check("imbalance: the largest over the mean", points=1, code="E")
@diagnosis("the mean over all stages, the largest included")
def check_report(run: Run) -> None:
    """E: hidden sizes; one stage; equal ones."""
    lists = [run.integers(10, 9_000, n).tolist() for n in (4, 3, 7, 1)] + [[5, 5, 5]]
    for sizes, report in zip(
        lists, run(drive_report, {"sizes": lists}).outputs[0]["reports"], strict=True
    ):
        top, mean, others = max(sizes), sum(sizes) / len(sizes), sorted(sizes)[:-1]
        likely = {
            "the largest over the smallest: the mean is meant": top / min(sizes),
            "the mean over the largest: the other way round": mean / top,
            "the excess alone: 1.0 is even": top / mean - 1,
            "the difference: divide instead": top - mean,
            "a whole number: `//` cuts off": float(top // mean),
            "the mean of the others: the largest counts as well": top
            * len(others)
            / (sum(others) or 1),
        }
        run.close(report, top / mean, f"the imbalance of {sizes}", likely=likely)


def _check_cuts(run: Run, cases: list[Case]) -> None:
    """That each cut is one, and its largest stage the smallest of all cuts."""
    cuts = run(drive_balance, {"cases": [list(case) for case in cases]}, cpu=3.0).outputs[0]["cuts"]
    for case, cut in zip(cases, cuts, strict=True):
        whole = all(type(count) is int and count > 0 for count in cut)
        run.true(
            whole and len(cut) == case.stages and sum(cut) == len(case.blocks),
            f"{case}: this is no cut",
            expected="at least one block on each stage, each block on one",
            measured=str(cut),
        )
    for case, cut in zip(cases, cuts, strict=True):
        sizes, best = sizes_of(case, cut, stage_size), least(case)
        if max(sizes) > best:
            run.fail(
                f"{case}: the largest stage of the cut {cut} could be smaller",
                expected=f"{best:,} bytes",
                measured=f"{max(sizes):,}, of {sizes}",
                cause=_cause(cases, cuts),
            )


def _cause(cases: list[Case], cuts: list[list[int]]) -> str:
    """The slip that explains all the cuts: with its bytes they are all best."""
    if cuts == [_even(case) for case in cases]:
        return "equal numbers of blocks: count bytes"
    for why, size in slips().items():
        if all(
            max(sizes_of(case, cut, size)) == least(case, size)
            for case, cut in zip(cases, cuts, strict=True)
        ):
            return why
    return (
        "filling one stage after the other is not enough: for every number of blocks placed, "
        "compare all ways to end a stage by the largest stage so far"
    )


@check("balance: the best of all cuts", points=4, code="S")
@diagnosis("compare with all cuts of three blocks into two stages")
def check_small(run: Run) -> None:
    """S: hidden models of up to nine blocks, against every cut there is."""
    shapes = [(4, 2, 8), (6, 3, 6), (7, 3, 2), (8, 4, 16), (9, 4, 3), (5, 5, 5), (6, 1, 2),
              (9, 2, 1), (9, 5, 20), (8, 3, 12), (9, 3, 9), (8, 5, 2)]  # fmt: skip
    cases = [_model(run, *shape) for shape in shapes]
    cases += [_model(run, 8, 4, 8, equal=True), _model(run, 9, 3, 1, equal=True)]
    # Ends of which the activations alone are as much as some blocks.
    cases += [
        _model(run, 9, 3, 6)._replace(ends=ends)
        for ends in ([(5, 4000), (5, 10)], [(5, 10), (5, 9000)])
    ]
    _check_cuts(run, cases)


@check("balance: seventy blocks on sixteen stages", points=2, code="S")
@diagnosis("trying all cuts never ends: keep one best cut for each number of blocks placed")
def check_large(run: Run) -> None:
    """S: so many blocks that all cuts cannot be tried."""
    _check_cuts(run, [_model(run, run.number(60, 75), 16, 64), _model(run, 50, 12, 5)])
