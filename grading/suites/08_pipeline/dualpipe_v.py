"""dualpipe_v: a V of stages, waits of (p-1)/2, forwards beside backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.schedule import Action, Costs
from grading.references.pipeline import schedule_texts
from grading.references.pipeline.schedule_texts import Plan, Sizes

EXERCISE = Exercise(
    title="A pipeline that fills from both ends",
    core=False,
    minutes=40,
    order=8,
    library=(),
    hints=(
        "Every phase of the text is one entry of the list, except the sixth, which is three: "
        "whole pairs, one pair of a whole and a half if r+1 is odd, and half pairs. Write the "
        "numbers that the text gives, and leave that of the middle open.",
        "Chunk 0 has m forwards: 2·late in phase 1, r+1 in phase 2, and the rest in the middle. "
        "Count chunk 1's forwards as a check: r+1, late, the middle, late.",
        'The middle is ("F0 B1 F1 B0", m - 2 * late - rank - 1). The sixth phase, with '
        'half, odd = divmod(rank + 1, 2): ("B1 B0", half), ("B1 I0", odd), ("I1 I0", half).',
    ),
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Sizes]) -> dict[str, Any]:
    """The lists of this rank's share of the pipelines' ranks."""
    return {"plans": schedule_texts.ask(learner.dualpipe_v, group, cases)}


# --- what they must bring back -------------------------------------------------------------------
def _plans(run: Run) -> list[Plan]:
    hidden = run.number(4, 7)
    sizes = [(2, 4), (1, 2), (2, 5), (3, 6), (3, 10), (hidden, 2 * hidden + run.number(1, 6))]
    cases = [{"p": p, "m": m} for p, m in sizes]
    return schedule_texts.read(
        run, drive, cases, "FBIW", lambda r, sizes: [r, 2 * sizes["p"] - 1 - r]
    )


def _why(plan: Plan) -> str:
    """On which rank the first backward comes too early or too late."""
    p = plan.sizes["p"]
    for rank, line in enumerate(plan.schedule.actions):
        found = next(place for place, action in enumerate(line) if action.sends_back)
        wanted = 2 * p + (rank == p - 1)
        if found != wanted:
            return (
                f"rank {rank} runs {found} forwards before its first backward; phases 1 and 2 "
                f"make it {wanted}"
            )
    return "the beginning is right; compare the later phases: which backwards must be whole?"


def beside(line: Sequence[Action]) -> int:
    """How often an F of one chunk stands beside a B or I of the other, without overlap."""
    count = place = 0
    while place + 1 < len(line):
        one, two = line[place : place + 2]
        mixed = one.kind == "F" and two.sends_back or one.sends_back and two.kind == "F"
        paired = mixed and one.stage != two.stage
        count += paired
        place += 2 if paired else 1
    return count


@check(
    "each micro-batch goes through each of the 2p stages forward and backward", points=2, code="S"
)
@diagnosis("count each chunk's forwards and backwards over the phases: there are m of each")
def check_complete(run: Run) -> None:
    """S: one to six ranks."""
    _plans(run)


@check("no deadlock: ranks never wait for each other in a circle", points=2, code="H")
def check_ends(run: Run) -> None:
    """H: on paper."""
    for plan in _plans(run):
        plan.simulate()


@check("no rank waits longer than p-1", points=3, code="S")
def check_time(run: Run) -> None:
    """S: with F, I and W of a stage taking 1 each."""
    for plan in _plans(run):
        p, m = plan.sizes["p"], plan.sizes["m"]
        plan.ends_by(Costs(), 6 * m + p - 1, "6m + p-1", _why(plan))


@check("no rank holds more than 2p+1 forwards of a chunk", points=2, code="M")
def check_memory(run: Run) -> None:
    """M: half a micro-batch of 1F1B's each."""
    for plan in _plans(run):
        p = plan.sizes["p"]
        plan.holds([2 * p + 1] * p, "2p+1", "forwards (of both chunks)", _why(plan))


@check("forwards of one chunk next to backwards of the other", points=2, code="O")
@diagnosis("the middle is F0 B1 F1 B0: a forward, then a backward of the other chunk")
def check_beside(run: Run) -> None:
    """O: two pairs in each round of the middle phase."""
    for plan in _plans(run):
        p, m = plan.sizes["p"], plan.sizes["m"]
        for rank, line in enumerate(plan.schedule.actions):
            wanted = 2 * (m - 2 * p + rank + 1)
            found = beside(line)
            run.true(
                found >= wanted,
                f"{plan.title}: rank {rank} has {found} pairs of a forward "
                "and a backward of the other chunk",
                expected=f"at least {wanted}",
                measured=schedule_texts.lines([line], rank),
            )
