"""Hidden traces for explain_trace, what they say, and what people read in them instead.

Paper: Chowdhery et al., "PaLM" (2022), appendix B, for MFU and HFU.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

from course_lib.grade.suite import Run

TICK = 2.0**-20  # seconds; with whole ticks sums of times are exact
MESSAGES = ("send", "recv")
COUNT = 80  # traces
KINDS = ("compute", "communication", "copy")
Row = tuple[Any, ...]
Spans = list[tuple[float, float]]


class Given(NamedTuple):
    """A trace as it travels: the fields of its stretches, all ranks, and a `Job`."""

    rows: list[Row]
    ranks: list[int]
    job: tuple[float, float, bool, float] = (1e9, 1e6, True, 1e18)


# --- hidden traces -------------------------------------------------------------------------------
def traces(run: Run) -> list[Given]:
    """Many small ones: subgroups, messages, marks, idle ranks, any numbers of ranks."""
    rng = random.Random(run.number(0, 2**31))
    return [_trace(rng) for _ in range(COUNT)]


def _trace(rng: random.Random) -> Given:
    world, origin = rng.randint(1, 5), rng.randint(1 << 10, 1 << 15)
    ranks = sorted(rng.sample(range(12), world))
    rows: list[Row] = []

    def add(rank: int, kind: str, name: str, begin: int, end: int, *of_call: Any) -> None:
        rows.append((rank, kind, name, origin + begin * TICK, origin + end * TICK, *of_call))

    busy = ranks[:-1] if world > 2 and rng.random() < 0.3 else ranks
    for rank in busy:
        for kind, count in (("compute", rng.randint(1, 5)), ("copy", rng.randint(0, 3))):
            for _ in range(count):
                begin = rng.randrange(1 << 19)
                add(rank, kind, "kernel", begin, begin + rng.randrange(1 << 17))
    groups = [g for g in combinations(busy, 2) if g != tuple(busy) and rng.random() < 0.5]
    for group in (tuple(busy), *groups) if world > 1 else ():
        for seq in range(rng.randint(1, 3)):
            begins = {rank: rng.randrange(1 << 19) for rank in group}
            end = max(begins.values()) + rng.randrange(1 << 16)
            for rank, begin in begins.items():
                add(rank, "communication", "all_reduce", begin, end, group, seq)
        sender, receiver = rng.sample(group, 2)
        at = rng.randrange(1 << 19)
        add(sender, "communication", "send", at, at + (1 << 17), tuple(busy), 0, receiver)
        add(receiver, "communication", "recv", 0, at + (1 << 17), tuple(busy), 0, sender)
    first, last = min(row[3] for row in rows), max(row[4] for row in rows)
    rows.append((busy[0], "step", "step 0", first, last))
    rng.shuffle(rows)
    parameters, tokens = rng.randint(10**8, 10**11), rng.randint(10**5, 10**7)
    peak = 6 * parameters * tokens / world / rng.uniform(0.1, 0.3)  # so that MFU is below 1
    return Given(rows, ranks, (parameters, tokens, rng.random() < 0.5, peak))


def close_calls() -> list[Given]:
    """All come at once; who comes early computes; one is a quarter of a tick late, or four."""
    found = []
    for late, work in ((0, 0), (64, 64), (0.25, 0), (4, 0)):
        rows: list[Row] = [
            (r, "communication", "all_reduce", 8 + r * late * TICK, 9.0, (0, 1), 0) for r in (0, 1)
        ]
        rows += [(0, "compute", "kernel", 7.0, 8.0 + work * TICK)]
        found.append(Given([*rows, (1, "compute", "kernel", 7.0, 7.5)], [0, 1]))
    return found


# --- what they must bring back, by cutting the time at every beginning and end -------------------
def length(spans: Spans) -> float:
    """Seconds covered, piece by piece."""
    cuts = sorted({at for span in spans for at in span})
    inside = [0] * len(cuts)
    for begin, end in spans:
        for place in range(bisect_left(cuts, begin), bisect_left(cuts, end)):
            inside[place] = 1
    return sum(b - a for a, b, some in zip(cuts, cuts[1:], inside, strict=False) if some)


def summed(spans: Spans) -> float:
    """What they add up to: wrong, if they overlap."""
    return sum(end - begin for begin, end in spans)


def both(first: Spans, second: Spans) -> Spans:
    """Every overlap of one of the first with one of the second."""
    pairs = [(max(a, c), min(b, d)) for a, b in first for c, d in second]
    return [(begin, end) for begin, end in pairs if begin < end]


def spans(given: Given, rank: int, *kinds: str, messages: bool = True) -> Spans:
    """When a rank did something of these kinds."""
    return [
        (row[3], row[4])
        for row in given.rows
        if row[0] == rank and row[1] in kinds and (messages or row[2] not in MESSAGES)
    ]


def step(given: Given) -> float:
    """From the first beginning to the last end."""
    return max(row[4] for row in given.rows) - min(row[3] for row in given.rows)


def right_shares(given: Given, rank: int) -> dict[str, float]:
    """Of one rank."""
    compute, calls, copies = (spans(given, rank, kind) for kind in KINDS)
    hidden = length(both(compute, calls))
    covered = length(compute + calls)
    busy = length(compute + calls + copies)
    return {"compute": length(compute), "exposed": length(calls) - hidden, "hidden": hidden,
            "copy": busy - covered, "idle": step(given) - busy}  # fmt: skip


def wrong_shares(given: Given, rank: int) -> dict[str, dict[str, float]]:
    """Known wrong numbers of one rank, for each of its shares."""
    compute, calls, copies = (spans(given, rank, kind) for kind in KINDS)
    of_calls = spans(given, rank, "communication", messages=False)
    right, everything = right_shares(given, rank), [*compute, *calls, *copies]
    own = max((e for _, e in everything), default=0) - min((b for b, _ in everything), default=0)
    overlaps = "intervals that overlap are summed: a moment counts once"
    return {
        "compute": {overlaps: summed(compute)},
        "exposed": {
            "this is all communication: take off what computation hides": length(calls),
            "messages are communication too":
                length(of_calls) - length(both(compute, of_calls)),
            "idle time is not exposed: nothing is communicated in it":
                right["exposed"] + right["idle"],
            "lengths are subtracted: take off only the computing beside communication":
                max(0.0, length(calls) - right["compute"]),
            "copies do not hide communication: it is exposed where nothing is computed":
                length(compute + calls + copies) - length(compute + copies),
            overlaps: summed(calls) - right["hidden"],
        },
        "hidden": {
            "messages are communication too": length(both(compute, of_calls)),
            "this is all communication: only what goes on beside computation is hidden":
                length(calls),
            "at most that much can be hidden: look at when they go on":
                min(length(calls), right["compute"]),
            overlaps: summed(both(compute, calls)),
        },
        "copy": {"copies beside computation or communication do not count": length(copies),
                 overlaps: summed(copies)},
        "idle": {
            "the step is the same for all ranks: from any rank's first beginning to any rank's "
            "last end": own - step(given) + right["idle"],
            "the clock did not begin at 0": max(r[4] for r in given.rows) - step(given)
                                            + right["idle"],
            "copies are no idle time": right["idle"] + right["copy"],
            "who communicates is not idle": step(given) - right["compute"],
            overlaps: max(0.0, step(given) - summed(everything)),
        },
    }  # fmt: skip


def right_share(given: Given) -> float:
    """Exposed, on average over the ranks."""
    exposed = [right_shares(given, rank)["exposed"] for rank in given.ranks]
    return sum(exposed) / len(given.ranks) / step(given)


def wrong_share(given: Given) -> dict[str, float]:
    """Known wrong exposed shares."""
    shares = [right_shares(given, rank) for rank in given.ranks]
    exposed, seconds = [share["exposed"] for share in shares], step(given)
    calls = sum(share["exposed"] + share["hidden"] for share in shares)
    return {
        "divide by the time of the step, not by that of communication":
            sum(exposed) / calls if calls else 0.0,
        "it is the mean over the ranks, not the worst of them": max(exposed) / seconds,
        "it is the mean over the ranks, not their sum": sum(exposed) / seconds,
        "all ranks are meant, also those that did nothing":
            sum(exposed) / seconds / len({row[0] for row in given.rows}),
        "idle time is not exposed": right_share(given)
            + sum(share["idle"] for share in shares) / len(shares) / seconds,
        "these are percent: give a share, 0 to 1": 100 * right_share(given),
        "this is in seconds": sum(exposed) / len(shares),
    }  # fmt: skip


def rates(given: Given, model: int = 3, hardware: int = 4, able: float = 0.0) -> list[float]:
    """MFU and HFU.

    Args:
        given: the trace.
        model: how many forwards the model needs.
        hardware: how many are carried out with recomputation.
        able: operations that the devices could have done.
    """
    parameters, tokens, recompute, peak = given.job
    able = able or step(given) * len(given.ranks) * peak
    forwards = (model, hardware if recompute else model)
    return [2 * parameters * tokens * count / able for count in forwards]


def wrong_rates(given: Given) -> dict[str, list[float]]:
    """Known wrong pairs."""
    peak, seconds = given.job[3], step(given)
    compute = sum(right_shares(given, rank)["compute"] for rank in given.ranks)
    right = rates(given)
    return {
        "these are the operations of the forward alone": rates(given, 1, 2),
        "it is 3 forwards: a backward takes twice as many operations as a forward":
            rates(given, 2, 3),
        "one addition and one multiplication: that is 2 operations": [x / 2 for x in right],
        "these are percent: give shares, 0 to 1": [100 * x for x in right],
        "MFU and HFU are swapped": right[::-1],
        "HFU counts what is carried out, recomputation included": [right[0], right[0]],
        "MFU counts what the model needs: recomputation is not part of it": [right[1], right[1]],
        "recomputation is one more forward, not a backward": rates(given, 3, 5),
        "nothing is recomputed unless job.recompute says so": [right[0], right[0] * 4 / 3],
        "each rank has a device: this is the peak of one": rates(given, able=seconds * peak),
        "all ranks have a device, also those that did nothing":
            rates(given, able=seconds * peak * len({row[0] for row in given.rows})),
        "the time is that of the step, not only that in which ranks compute":
            rates(given, able=compute * peak),
    }  # fmt: skip


def of_call(row: Row) -> Any:
    """What the rows of one call have in common."""
    return row[5], row[6]


def collectives(
    given: Given, key: Callable[[Row], Any] = of_call, messages: bool = False
) -> list[list[Row]]:
    """The rows of each call."""
    calls: dict[Any, list[Row]] = {}
    for row in given.rows:
        if row[1] == "communication" and (messages or row[2] not in MESSAGES):
            calls.setdefault(key(row), []).append(row)
    return list(calls.values())


def losses(
    given: Given,
    key: Callable[[Row], Any] = of_call,
    *,
    messages: bool = False,
    hides: bool = True,
    own: bool = False,
    once: bool = True,
) -> int | None:
    """The straggler; the options are what can go wrong.

    Args:
        given: the trace.
        key: what the rows of one call have in common.
        messages: count messages as calls.
        hides: time in which the one who waits computes is not lost.
        own: charge who waits and not who comes late.
        once: count a moment once.
    """
    waits: dict[Any, tuple[int, int, Spans]] = {}
    for number, call in enumerate(collectives(given, key, messages)):
        last = max(call, key=lambda row: row[3])
        for row in call:
            place = (last[0], row[0]) if once else (last[0], row[0], number)
            waits.setdefault(place, (last[0], row[0], []))[2].append((row[3], last[3]))
    lost = dict.fromkeys(given.ranks, 0.0)
    for late, rank, times in waits.values():
        work = spans(given, rank, "compute") if hides else []
        seconds = length(times + work) - length(work)
        lost[rank if own else late] += seconds
    worst = max(given.ranks, key=lambda rank: lost[rank])
    return worst if lost[worst] >= 1e-6 else None


def most_often(given: Given) -> int | None:
    """The rank that is the last of most calls: wrong, since a call may cost much or little."""
    last = Counter(max(call, key=lambda row: row[3])[0] for call in collectives(given))
    return max(given.ranks, key=lambda rank: last[rank]) if last else None


WRONG_STRAGGLERS: dict[str, Callable[[Given], int | None]] = {
    "this is the rank that waits longest: the others wait for the one that waits least":
        lambda given: losses(given, own=True),
    "numbers count again in every group: calls of different groups are taken for one":
        lambda given: losses(given, lambda row: row[6]),
    "a group makes many calls, each with its number: they are taken for one":
        lambda given: losses(given, lambda row: row[5]),
    "messages are no collectives": lambda given: losses(given, messages=True),
    "who computes while it waits loses nothing": lambda given: losses(given, hides=False),
    "a moment counts once, also if a rank waits in two calls": lambda given: losses(
        given, once=False),
    "this is the rank that comes last most often: count the seconds lost":
        most_often,
    "this is the rank that computes longest":
        lambda given: max(given.ranks, key=lambda rank: length(spans(given, rank, "compute"))),
}  # fmt: skip
