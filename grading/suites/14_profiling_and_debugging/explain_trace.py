"""explain_trace: hidden traces in which everything overlaps, and one of a real run."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.comm import all_reduce, isend, recv
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import Stretch, Timeline
from grading.references.debugging.traces import (
    WRONG_STRAGGLERS,
    Given,
    Row,
    Spans,
    close_calls,
    length,
    losses,
    rates,
    right_share,
    right_shares,
    spans,
    step,
    summed,
    traces,
    wrong_rates,
    wrong_share,
    wrong_shares,
)

EXERCISE = Exercise(
    title="Exposed, hidden, idle; MFU and HFU; the straggler",
    core=True,
    minutes=35,
    order=10,
    defines=("covered", "shares", "exposed_share", "utilisation", "straggler", "explain_trace"),
    library=("trace.Stretch",),
    hints=(
        "In `covered` go through the intervals in the order of their beginnings, and remember how "
        "far the time is covered already: only what reaches beyond that counts. All of `shares` "
        "is differences of `covered` for different kinds; think of two circles that overlap.",
        "covered(compute and communication) - covered(compute) is exposed; what is missing from "
        "covered(compute) + covered(communication) is counted twice, so it is hidden. "
        "With copies too it is all but idle. A forward is 2·parameters·tokens, the whole 3 times "
        "that, with recomputation 4 times; they divide by step · len(ranks) · peak.",
        "`straggler`: gather the stretches of each (group, seq); `last` has the largest begin; put "
        "(s.begin, last.begin) into waits[last.rank, s.rank]. For each such pair the time lost is "
        "covered(waits + compute of s.rank) - covered(compute of s.rank); add that to the late one",
    ),
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_covered(learner: Any, group: Any, cases: list[Spans], once: bool) -> dict[str, Any]:
    """The seconds that each list of intervals covers; `once`: each comes as an iterator."""
    given = [list(case) for case in cases]
    seconds = [learner.covered(iter(case) if once else case) for case in given]
    return {"answers": seconds, "kept": given == cases}


def drive(learner: Any, group: Any, cases: list[tuple[Any, ...]], what: str) -> dict[str, Any]:
    """One function of the learner, for every trace."""
    found, kept = [], True
    for rows, ranks, job in cases:
        stretches = [Stretch(*row) for row in rows]
        trace, numbers = [*stretches], [*ranks]
        more = (learner.Job(*job),) if what in ("utilisation", "explain_trace") else ()
        answer = getattr(learner, what)(trace, numbers, *more)
        kept = kept and (trace, numbers) == (stretches, ranks)
        if what == "shares" and isinstance(answer, dict):
            answer = {
                rank: list(share) if isinstance(share, learner.Shares) else repr(share)
                for rank, share in answer.items()
            }
        found.append(answer)
    return {"answers": found, "kept": kept}


def drive_real(learner: Any, group: Any, late: int) -> None:
    """A step in which rank `late` begins its all-reduce only when all others have begun theirs."""
    tensor, word = torch.ones(1 << 12), torch.zeros(1)
    with group.ledger.span("forward"):
        _work()
    others = [rank for rank in range(group.size) if rank != late]
    if group.rank == late:
        for rank in others:
            recv(word, rank, group)
        with group.ledger.span("extra"):
            _work(30)
        all_reduce(tensor, group)
        return
    sum_of_all = all_reduce(tensor, group, async_op=True)
    told = isend(word, late, group)
    with group.ledger.span("backward"), group.ledger.span("attend"):
        _work()
    told.wait()
    with group.ledger.span("copy"):
        tensor.new_zeros(1 << 16).clone()
    sum_of_all.wait()


def _work(times: int = 3) -> None:
    matrix = torch.eye(192)
    for _ in range(times):
        matrix = matrix @ matrix


# --- checks --------------------------------------------------------------------------------------
def _ask(run: Run, cases: list[Given], what: str) -> list[Any]:
    """What the learner says of every trace."""
    given = [[case.rows, case.ranks, list(case.job)] for case in cases]
    return _answers(run, drive, {"cases": given, "what": what})


def _answers(run: Run, drive: Any, inputs: dict[str, Any]) -> list[Any]:
    """What a driver's calls returned; none of them may have changed a list."""
    found = run(drive, inputs).outputs[0]
    cause = "the caller still needs it in its order: sort with `sorted`"
    run.true(found["kept"], "a list that was given has changed", cause=cause)
    return list(found["answers"])


def _words(case: Given) -> str:
    return f"of a trace with {len(case.rows)} stretches of ranks {case.ranks}"


def _near(found: float, right: float) -> bool:
    return abs(found - right) <= 1e-9 * max(1.0, abs(right))


def _numbers(
    run: Run, what: list[str], found: list[Any], right: list[float], wrong: list[dict[str, float]]
) -> None:
    """All right up to rounding; else the cause that explains most of the wrong ones."""
    for place, value in enumerate(found):
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        why = "nothing is returned" if value is None else ""
        run.true(real, f"{what[place]} is not a number", measured=repr(value), cause=why)
    bad = [place for place, value in enumerate(found) if not _near(value, right[place])]
    if bad:
        wrongs = {cause: [each[cause] for each in wrong] for cause in wrong[0]}
        fits = {
            cause: [_near(*pair) for pair in zip(found, numbers, strict=True)]
            for cause, numbers in wrongs.items()
        }
        run.fail(
            f"{what[bad[0]]} is not what it should be",
            expected=f"{right[bad[0]]:.9g}",
            measured=f"{found[bad[0]]:.9g}",
            cause=_cause(fits, bad),
        )


def _cause(fits: dict[str, list[bool]], bad: list[int]) -> str:
    """The slip that explains most of all answers, if it explains most of the wrong ones."""
    if not fits:
        return ""
    best = max(fits, key=lambda cause: sum(fits[cause]))
    return best if 2 * sum(fits[best][place] for place in bad) > len(bad) else ""


def _check_shares(run: Run, cases: list[Given], found: list[Any]) -> None:
    """Five numbers of each rank."""
    places = [(case, rank) for case in cases for rank in case.ranks]
    for case, answer in zip(cases, found, strict=True):
        form = isinstance(answer, dict) and sorted(answer) == case.ranks
        run.true(
            form,
            f"the shares {_words(case)} are no dict with these ranks as keys",
            measured=repr(answer),
        )
        for rank, share in answer.items():
            run.true(
                isinstance(share, list),
                "a rank's shares are no Shares",
                rank=rank,
                measured=str(share),
            )
    rows = [answer[rank] for case, answer in zip(cases, found, strict=True) for rank in case.ranks]
    right = [right_shares(case, rank) for case, rank in places]
    wrong = [wrong_shares(case, rank) for case, rank in places]
    for number, field in enumerate(right[0]):
        what = [f"{field!r} of rank {rank}, in seconds, {_words(case)}," for case, rank in places]
        _numbers(
            run,
            what,
            [row[number] for row in rows],
            [row[field] for row in right],
            [row[field] for row in wrong],
        )


def _check_straggler(run: Run, cases: list[Given], found: list[Any]) -> None:
    """A rank, or None."""
    right = [losses(case) for case in cases]
    bad = [place for place, rank in enumerate(found) if rank != right[place]]
    if bad:
        fits = {
            cause: [wrong(case) == rank for case, rank in zip(cases, found, strict=True)]
            for cause, wrong in WRONG_STRAGGLERS.items()
        }
        run.fail(
            f"the straggler {_words(cases[bad[0]])} is not what it should be",
            expected=repr(right[bad[0]]),
            measured=repr(found[bad[0]]),
            cause=_cause(fits, bad),
        )


@check("seconds that intervals cover", points=3, code="E")
@diagnosis("go through them by their beginnings, keeping how far they cover")
def check_covered(run: Run) -> None:
    """E: any order, inside each other, touching, gaps, none, before 0 too; as an iterator."""
    cases: list[Spans] = [[], [(3.0, 5.0)], [(3.0, 5.0), (3.0, 5.0)], [(3.0, 9.0), (4.0, 5.0)],
                          [(5.0, 6.0), (3.0, 5.0)], [(-9.0, -7.0), (-8.0, -2.0)],
                          [(0.0, 8.0), (1.0, 2.0), (3.0, 4.0), (6.0, 9.0)]]  # fmt: skip
    cases += [spans(case, rank, "compute", "copy") for case in traces(run) for rank in case.ranks]
    found = _answers(run, drive_covered, {"cases": cases, "once": False})
    texts = [", ".join(f"({begin:g}, {end:g})" for begin, end in case[:4]) for case in cases]
    what = [
        f"covered([{text}{', ...' * (len(case) > 4)}])"
        for text, case in zip(texts, cases, strict=True)
    ]
    wrong = [
        {
            "intervals that overlap are summed: a moment counts once": summed(case),
            "gaps between the intervals are not covered": max((e for _, e in case), default=0.0)
            - min((b for b, _ in case), default=0.0),
            "intervals come in any order: sort them": _unsorted(case),
            "one that lies inside another does not end it": _last_end(case),
        }
        for case in cases
    ]
    right = [length(case) for case in cases]
    _numbers(run, what, found, right, wrong)
    found = _answers(run, drive_covered, {"cases": cases, "once": True})
    again = "an iterator can be gone through only once: make a list of it first"
    what = [f"{text}, the list as an iterator," for text in what]
    _numbers(run, what, found, right, [{again: value} for value in found])  # lists were right


def _unsorted(case: Spans) -> float:
    total, until = 0.0, float("-inf")
    for begin, end in case:
        total, until = total + max(0.0, end - max(begin, until)), max(until, end)
    return total


def _last_end(case: Spans) -> float:
    total, until = 0.0, float("-inf")
    for begin, end in sorted(case):
        total, until = total + max(0.0, end - max(begin, until)), end
    return total


@check("compute, exposed, hidden, copy and idle of every rank", points=5, code="E")
@diagnosis("draw one rank's stretches: shares are differences of covered times")
def check_shares(run: Run) -> None:
    """E: hidden traces; subgroups, messages, marks, ranks that did nothing."""
    cases = traces(run)
    _check_shares(run, cases, _ask(run, cases, "shares"))


@check("the exposed share of the step", points=1, code="E")
@diagnosis("exposed seconds, as a mean over all ranks, divided by the step's")
def check_exposed(run: Run) -> None:
    """E: the same traces."""
    cases = traces(run)
    what = [f"the exposed share {_words(case)}" for case in cases]
    _numbers(
        run,
        what,
        _ask(run, cases, "exposed_share"),
        [right_share(case) for case in cases],
        [wrong_share(case) for case in cases],
    )


def _check_rates(run: Run, cases: list[Given], found: list[Any]) -> None:
    """MFU and HFU together, so that a swap is seen; and of one with, and one without a rerun."""
    for case, pair in zip(cases, found, strict=True):
        run.true(
            isinstance(pair, (tuple, list)) and len(pair) == 2,
            f"the utilisation {_words(case)} is not a pair",
            measured=repr(pair),
        )
    places = [(case, number) for case in cases for number in (0, 1)]
    what = [
        f"the {('MFU', 'HFU')[number]} {_words(case)}, {'' if case.job[2] else 'not '}recomputed,"
        for case, number in places
    ]
    _numbers(
        run,
        what,
        [number for pair in found for number in pair],
        [rates(case)[number] for case, number in places],
        [{why: pair[number] for why, pair in wrong_rates(case).items()} for case, number in places],
    )


@check("MFU and HFU", points=3, code="E")
@diagnosis("operations of all ranks in the step, by what all devices could do")
def check_utilisation(run: Run) -> None:
    """E: with and without recomputation, any number of ranks."""
    cases = traces(run)
    _check_rates(run, cases, _ask(run, cases, "utilisation"))


@check("the straggler", points=4, code="E")
@diagnosis("charge the last of each call with what others lost until it came")
def check_straggler(run: Run) -> None:
    """E: overlapping calls of several groups, messages beside them, and waits that are hidden."""
    cases = [*traces(run), *close_calls()]
    _check_straggler(run, cases, _ask(run, cases, "straggler"))


def _recorded(timeline: Timeline) -> Given:
    """The ledgers of a run as stretches."""
    rows: list[Row] = []
    for book in timeline.ledgers:
        rows += [
            (book.rank, "communication", call.op, call.begin, call.over, call.group, call.seq)
            for call in book.calls()
            if call.over is not None
        ]
        rows += [
            (
                book.rank,
                "copy" if span.name == "copy" else "compute",
                span.name,
                span.begin,
                span.end,
            )
            for span in book.spans
        ]
    return Given(rows, timeline.ranks)


@check("a real step of three ranks, one of them late", points=2, code="E")
@diagnosis("the functions above, applied to what a ledger recorded")
def check_real(run: Run) -> None:
    """E: recorded on ranks, explained by one process; against the suite's own arithmetic."""
    case = _recorded(run(drive_real, {"late": 1}, world=3).timeline)
    _check_shares(run, [case], _ask(run, [case], "shares"))
    report = _ask(run, [case], "explain_trace")[0]
    names = ("seconds", "exposed_share", "mfu", "hfu", "straggler")
    run.true(
        isinstance(report, dict) and set(report) == set(names),
        "the report of explain_trace has the wrong entries",
        expected=", ".join(names),
        measured=repr(report),
    )
    for name, right in (("seconds", step(case)), ("exposed_share", right_share(case))):
        _numbers(run, [f"{name!r} {_words(case)}"], [report[name]], [right], [{}])
    _check_rates(run, [case], [(report["mfu"], report["hfu"])])
    _check_straggler(run, [case], [report["straggler"]])
