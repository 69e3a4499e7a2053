"""all_reduce_plan: the plan is run on numbers and priced; what the bound allows is the figure.

Source: Wang et al., "Blink" (2020), for trees packed into the links that are there; Cai et al.,
"Synthesizing Optimal Collective Algorithms" (2021), for rounds found by a solver. The bound is
rarely reached: it leaves out that ranks wait for sums.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: an all-reduce for unequal links",
    core=False,
    minutes=75,
    order=8,
    open=("of the speed that the links allow", 0.10185, 0.5783),
    library=(),
    hints=(
        "One tree that spans all ranks is enough: the sums go up to the root, and the result "
        "comes down again. Write this first, with the same tree for all chunks: it is valid, but "
        "slow.",
        "Different chunks may use different trees with different roots: choose for each chunk a "
        "tree whose links are fast and do not carry much yet. Chunks can also be pipelined: while "
        "one goes up the second link, the next goes up the first.",
        "Fill rounds of a fixed duration: in time t, a link carries t · speed / size chunks. Of "
        "the messages that can be sent now, take those first that have the most steps still ahead "
        "of them. Try several durations of a round, and several penalties for deep trees.",
    ),
)

BASE = 8  # bits that count how often a rank is in a sum


class Case(NamedTuple):
    """The function's arguments."""

    speeds: list[list[int]]
    chunks: int
    size: int
    latency: int


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The rounds of each case."""
    return {"plans": [learner.all_reduce_plan(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """Two islands with slow links between, a ring with shortcuts, or links between all."""
    ranks, kind = draw(4, 9, 1)[0], draw(0, 3, 1)[0]
    speeds = [[0] * ranks for _ in range(ranks)]

    def link(a: int, b: int, speed: int) -> None:
        speeds[a][b] = speeds[b][a] = speed if a != b else 0

    half, every = ranks // 2, list(combinations(range(ranks), 2))
    if kind == 0:
        for (a, b), drawn in zip(every, draw(0, 4, len(every)), strict=True):
            inside = (a < half) == (b < half)
            link(a, b, 80 + 10 * drawn if inside else 30 * (drawn == 0))
        link(0, half, 20)
    elif kind == 1:
        for a, drawn in enumerate(draw(2, 11, ranks)):
            link(a, (a + 1) % ranks, 10 * drawn)
        for drawn in draw(2, 11, half):
            first, second = draw(0, ranks, 2)
            link(first, second, 10 * drawn)
    else:
        for (a, b), drawn in zip(every, draw(1, 11, len(every)), strict=True):
            link(a, b, 10 * drawn)
    return Case(speeds, draw(12, 33, 1)[0], 1000 * draw(1, 9, 1)[0], draw(2, 40, 1)[0])


def _time(run: Run, case: Case, rounds: Any) -> float:
    """How long a plan takes, if it makes the sum: run on numbers that show who is in a sum."""
    ranks = range(len(case.speeds))
    run.true(
        plans.is_whole(rounds, 3) and all(len(message) == 4 for each in rounds for message in each),
        "this is not a list of rounds, each a list of (from, to, chunk, add) in whole numbers",
        measured=describe(rounds),
    )
    held = [[1 << (BASE * rank)] * case.chunks for rank in ranks]
    time = 0.0
    for number, messages in enumerate(rounds):
        sent, got, came = Counter[tuple[int, int]](), Counter[tuple[int, int]](), []
        for a, b, chunk, add in messages:
            said = f"round {number}, {(a, b, chunk, add)}"
            run.true(a in ranks and b in ranks, f"{said}: there is no such rank")
            run.true(case.speeds[a][b] > 0, f"{said}: there is no link from {a} to {b}")
            run.true(chunk in range(case.chunks), f"{said}: there is no chunk {chunk}")
            run.true(add in (0, 1), f"{said}: the last number is neither 0 nor 1")
            sent[a, b] += 1
            got[b, chunk] += 1
            came.append((b, chunk, held[a][chunk], add))
        for b, chunk, value, add in came:
            alone = add or got[b, chunk] == 1
            said = f"round {number}: rank {b}'s chunk {chunk} is replaced"
            run.true(alone, f"{said}, and receives another message as well")
            held[b][chunk] = (held[b][chunk] + value if add else value) % (1 << BASE * len(ranks))
        time += case.latency + max(
            (count * case.size / case.speeds[a][b] for (a, b), count in sent.items()), default=0.0
        )
    _check_sums(run, case, held)
    return time


def _check_sums(run: Run, case: Case, held: list[list[int]]) -> None:
    """That each rank has every rank once in each chunk."""
    for rank, mine in enumerate(held):
        for chunk, value in enumerate(mine):
            for other in range(len(held)):
                times = value >> (BASE * other) & ((1 << BASE) - 1)
                run.equal(times, 1, f"how often rank {rank}'s chunk {chunk} counts rank {other}")


def _share(run: Run, case: Case, rounds: Any) -> float:
    """The bound over the time of a plan."""
    return _bound(case) / _time(run, case, rounds)


def _bound(case: Case) -> float:
    """No plan is faster.

    Any part of the ranks must send out as much as a vector. All messages together are at least
    2(N - 1) vectors. And there are at least as many rounds as links on the longest way.
    """
    ranks = range(len(case.speeds))
    vector = case.chunks * case.size
    least = min(
        sum(case.speeds[a][b] for a in part for b in ranks if b not in part)
        for count in ranks[1:]
        for part in combinations(ranks, count)
    )
    carried = max(vector / least, 2 * (len(ranks) - 1) * vector / sum(map(sum, case.speeds)))
    return case.latency * max(_hops(case, rank) for rank in ranks) + carried


def _hops(case: Case, rank: int) -> int:
    """Links to the rank that is farthest from this one."""
    there, hops = {rank}, 0
    while len(there) < len(case.speeds):
        there |= {b for a in there for b, speed in enumerate(case.speeds[a]) if speed}
        hops += 1
    return hops


@check("every rank has the sum, and every message has a link", points=3, code="E")
def check_sum(run: Run) -> None:
    """E: hidden links; two ranks; one chunk; a chain."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(3)]
    cases += [Case([[0, 5], [5, 0]], 3, 100, 2)]
    cases += [Case([[0, 9, 0], [9, 0, 2], [0, 2, 0]], 1, 50, 4)]
    plans.judged(run, drive, cases, _time)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_time(run: Run) -> None:
    """S: the mean of the bound over the plan's time."""
    run.figure = plans.figure(run, drive, "all_reduce_plan", _case, _share)
