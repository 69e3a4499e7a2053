"""find_desync: the logs of many small jobs that were played out, and of a real run."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib.comm import all_reduce
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import FlightLog, flight_log
from grading.references.debugging.flight_logs import (
    DTYPES,
    OPS,
    RIGHT,
    SHAPES,
    WRONG,
    Log,
    Reader,
    jobs,
)

EXERCISE = Exercise(
    title="Which call diverged, and on which rank",
    core=True,
    minutes=40,
    order=20,
    defines=("difference", "lacking", "never_coming", "find_desync"),
    library=(),
    hints=(
        "A call is known by its group and its number, never by its place in a log. Put all records "
        "into a dict from (group, seq) to a dict from rank to record, and the rest is looking at "
        "one call at a time. Whether a rank has begun a call stands in `made`, not in `records`.",
        "`never_coming`: begin with all ranks. Take out those whose program runs and that stand "
        "still in no call, or only in one that no rank still in the set lacks. Do it again, until "
        "nobody can be taken out: what is left is ended, or waits for such, or waits in a circle.",
        "`difference`: for each feature a dict from value to its ranks, in ascending order; with "
        "more than one value the usual side is max(..., key=len). `find_desync`: for each call "
        "append (sort, smallest begin, Finding) to a list: 1 if there is a difference, else 2 if "
        "lacking & ended, else 3 if lacking & never_coming. The answer is the smallest of them.",
    ),
)

FEATURES = ("op", "dtype", "shape")


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_calls(learner: Any, group: Any, calls: list[dict[int, Any]]) -> list[Any]:
    """What differs in each call."""
    return [_plain(learner, learner.difference(dict(made))) for made in calls]


def drive_lacking(learner: Any, group: Any, asked: list[Any]) -> list[Any]:
    """Who lacks a call."""
    return [learner.lacking(of, seq, logs) for of, seq, logs in asked]


def drive(learner: Any, group: Any, cases: list[list[Log]], what: str) -> list[Any]:
    """One function of the learner, for the logs of every job, which must stay as they are."""
    found = []
    for logs in cases:
        before = copy.deepcopy(logs)
        answer = getattr(learner, what)(logs)
        if what == "find_desync" and isinstance(answer, tuple):
            answer = answer if isinstance(answer, learner.Finding) else f"no Finding: {answer}"
        found.append(_plain(learner, answer) if logs == before else "the logs were changed")
    return found


def _plain(learner: Any, answer: Any) -> Any:
    return tuple(answer) if isinstance(answer, learner.Finding) else answer


def drive_real(learner: Any, group: Any, last: int) -> list[dict[str, Any]]:
    """This rank's log at three moments: all is well; rank 2 gives up; rank 1 turned a tensor."""
    pair = group.split([[0, 1], [2]], "pair")
    tensor = torch.arange(24.0).view(4, 6)
    for _ in range(3):
        all_reduce(tensor, group)
        all_reduce(tensor, pair)
    logs = [flight_log(group.ledger, last).to_dict()]
    # Ranks 0 and 1 go on; rank 2 does not, and its log is what it would leave behind.
    work = None if group.rank == 2 else all_reduce(tensor, group, async_op=True)
    state = "raised" if group.rank == 2 else "running"
    logs.append(flight_log(group.ledger, last, state).to_dict())
    work = work or all_reduce(tensor, group, async_op=True)
    work.wait()
    all_reduce(tensor.t() if group.rank == 1 else tensor, group)  # gloo sums it all the same
    all_reduce(tensor.view(-1), group)
    logs.append(flight_log(group.ledger, last, "finished").to_dict())
    return logs


# --- comparing -----------------------------------------------------------------------------------
def _words(logs: Sequence[Log]) -> str:
    states = ", ".join(f"{log['rank']} {log['state']}" for log in sorted(logs, key=_rank))
    return f"for logs of ranks {states}; at most {max(len(log['records']) for log in logs)} records"


def _rank(log: Log) -> int:
    return int(log["rank"])


def _judge(
    run: Run,
    found: list[Any],
    right: list[Any],
    wrong: Callable[[Reader], list[Any]],
    what: Callable[[int], str],
    only: Callable[[Any], bool] = lambda answer: True,
) -> None:
    """All answers as they should be; else the way of reading that explains most of them."""
    bad = [n for n, answer in enumerate(right) if only(answer) and found[n] != answer]
    if not bad:
        return
    first = bad[0]
    fits = {}
    for cause, reader in WRONG.items():
        same = [a == b for a, b in zip(found, wrong(reader), strict=True)]
        fits[cause] = (sum(same), sum(same[n] for n in bad))
    best = max(fits, key=lambda cause: fits[cause])
    cause = best if 2 * fits[best][1] > len(bad) else ""
    run.fail(
        f"{what(first)} is not what it should be",
        expected=repr(right[first]),
        measured=repr(found[first]),
        cause=_form(found[first], right[first]) or cause,
    )


def _form(found: Any, right: Any) -> str:
    """What is wrong with the form of an answer, if that is all."""
    try:
        same = right is not None and [*found][:-1] == [*right][:-1]
        if same and not isinstance(right, set) and set(found[-1]) == set(right[-1]):
            return "give the ranks as a tuple, in ascending order"
    except TypeError:
        pass
    return ""


# --- checks --------------------------------------------------------------------------------------
def _calls(run: Run) -> list[dict[int, Any]]:
    """Calls of one to six ranks that differ in nothing, in one thing, in several."""
    rng = random.Random(run.number(0, 2**31))
    common = {"group": tuple(range(5)), "seq": 0, "dtype": DTYPES[0], "shape": SHAPES[0],
              "begin": 1.0, "state": "finished"}  # fmt: skip
    # Two sides are equally large, and the lowest rank is on neither of them.
    found = [{rank: {**common, "op": OPS[side]} for rank, side in enumerate((0, 1, 1, 2, 2))}]
    for _ in range(120):
        ranks = rng.sample(range(12), rng.randint(1, 6))
        values = {"op": OPS, "dtype": DTYPES, "shape": SHAPES}
        sides = [{key: rng.choice(values[key]) for key in FEATURES} for _ in range(3)]
        for key in FEATURES:
            if rng.random() < 0.5:
                sides = [{**side, key: sides[0][key]} for side in sides]
        found.append(
            {
                rank: {
                    **rng.choice(sides),
                    "group": tuple(sorted(ranks)),
                    "seq": 3,
                    "begin": rng.random(),
                    "state": "finished",
                }
                for rank in ranks
            }
        )
    return found


@check("what differs in a call, and on which ranks", points=4, code="E")
@diagnosis("feature by feature: which ranks are on which side?")
def check_difference(run: Run) -> None:
    """E: one to six ranks, ties, three sides, nothing."""
    calls = _calls(run)
    found = run(drive_calls, {"calls": calls}).outputs[0]

    def what(number: int) -> str:
        made = calls[number]
        texts = (f"{rank}: {' '.join(str(made[rank][key]) for key in FEATURES)}" for rank in made)
        return f"the difference in the call {{{'; '.join(texts)}}}"

    def read(reader: Reader) -> list[Any]:
        return [reader.difference(made) for made in calls]

    _judge(run, found, read(RIGHT), read, what)


@check("who lacks a call", points=1, code="E")
@diagnosis("ranks of the group whose count in `made` is at most the number")
def check_lacking(run: Run) -> None:
    """E: calls in logs, gone from them, and not yet made."""
    asked = [
        (of, seq, logs)
        for logs in jobs(run)[:60]
        for log in logs[:1]
        for of, count in log["made"].items()
        for seq in (0, count - 1, count)
    ]
    found = run(drive_lacking, {"asked": asked}).outputs[0]

    def read(reader: Reader) -> list[Any]:
        return [reader.lacking(*each) for each in asked]

    def what(number: int) -> str:
        of, seq, logs = asked[number]
        return f"who lacks call {seq} of {of}, {_words(logs)},"

    _judge(run, found, read(RIGHT), read, what)


@check("who never comes", points=4, code="E")
@diagnosis("take out the ranks that can continue, until no more can")
def check_never(run: Run) -> None:
    """E: slow ranks, chains of waiting, ends, circles."""
    cases = jobs(run)
    found = run(drive, {"cases": cases, "what": "never_coming"}).outputs[0]

    def read(reader: Reader) -> list[Any]:
        return [reader.never_coming(logs) for logs in cases]

    _judge(run, found, read(RIGHT), read, lambda n: f"who never comes, {_words(cases[n])},")


def _check_find(run: Run, only: Callable[[Any], bool]) -> None:
    """The answers for the jobs whose right answer is of one sort."""
    cases = jobs(run)
    found = run(drive, {"cases": cases, "what": "find_desync"}).outputs[0]

    def read(reader: Reader) -> list[Any]:
        return [reader.find(logs) for logs in cases]

    _judge(run, found, read(RIGHT), read, lambda n: f"the finding {_words(cases[n])},", only)


@check("None is returned where nothing is wrong", points=2, code="E")
@diagnosis("ranks that are behind and can still come are no fault")
def check_healthy(run: Run) -> None:
    """E: slow ranks and logs that do not reach as far back."""
    _check_find(run, lambda answer: answer is None)


@check("the first call that was made differently", points=3, code="E")
@diagnosis("group by (group, seq); of the calls that differ take the earliest")
def check_mismatch(run: Run) -> None:
    """E: several groups, several faults, ring buffers."""
    _check_find(run, lambda answer: answer is not None and answer[0] in FEATURES)


@check("the first call that some rank will never make", points=3, code="H")
@diagnosis("lacking(...) & ended, then lacking(...) & never_coming(...)")
def check_missing(run: Run) -> None:
    """H: ends, circles, victims."""
    _check_find(run, lambda answer: answer is not None and answer[0] == "missing")


def _converted(data: dict[str, Any]) -> Log:
    """A real log in the words of the exercise."""
    log = FlightLog.from_dict(data)
    records = [
        {
            "group": r.group,
            "seq": r.seq,
            "op": r.op,
            "dtype": r.dtype,
            "shape": r.shape,
            "begin": r.begin,
            "state": r.state,
        }
        for r in log.records
    ]
    made = {channel.group: count for channel, count in log.made.items()}
    return {"rank": log.rank, "state": log.state, "records": records, "made": made}


@check(
    "logs of a real run: in step, a rank that gave up, a tensor that was turned", points=2, code="H"
)
@diagnosis("three moments of three ranks, the last five calls each")
def check_real(run: Run) -> None:
    """H: recorded by the ledger; gloo sums a 4×6 and a 6×4 tensor without a word."""
    logs = run(drive_real, {"last": 5}, world=3).outputs
    cases = [[_converted(each[moment]) for each in logs] for moment in range(3)]
    found = run(drive, {"cases": cases, "what": "find_desync"}).outputs[0]
    everybody = (0, 1, 2)
    right = [None, ("missing", everybody, 3, (2,)), ("shape", everybody, 4, (1,))]

    def read(reader: Reader) -> list[Any]:
        return [reader.find(case) for case in cases]

    _judge(run, found, right, read, lambda n: f"the finding {_words(cases[n])},")
