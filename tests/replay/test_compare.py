"""Two runs: equal ones are equal, and each fault is found where it was put."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from course_lib.comm import Group
from course_lib.replay import Call, RankLog, Recording, compared, first_difference, record
from course_lib.replay.entries import Done, End, Entry, Loss, Start, Step
from tests.replay.programs import CALLS, STEPS, train

Ranks = Callable[..., list[Any]]
Place = tuple[str, int, int]  # fault, step, rank
# What each fault does first: kind, steps later, number of the call in the step; None if no call.
SHOWS: dict[str, tuple[str, int, int | None]] = {
    "weights": ("compute", 0, 0),
    "batch": ("batch", 0, None),
    "random": ("random", 1, None),
    "part": ("compute", 0, 3),
    "message": ("compute", 0, 8),
    "loss": ("loss", 0, None),
}
PLACES = [(0, 0), (1, 2), (2, 3), (2, 1)]
FAULTS: list[Place] = [(fault, *place) for fault in SHOWS for place in PLACES]
ON_ALL: list[Place] = [("call", 1, -1), ("weights", 2, -1), ("batch", 3, -1)]


def all_runs(group: Group) -> list[list[Entry]]:
    """The entries of this rank in each run: two right ones, then those with a fault."""
    kept = []
    for fault in [("", -1, -1), ("", -1, -1), *FAULTS, *ON_ALL]:
        with record(None, group) as recorder:
            train(recorder, group, *fault)
        kept.append(recorder.entries)
    return kept


@pytest.fixture(scope="module")
def runs(ranks: Ranks) -> dict[Place, Recording]:
    """By fault; two right ones are ("", 0, 0) and ("", 1, 0)."""
    names: list[Place] = [("", 0, 0), ("", 1, 0), *FAULTS, *ON_ALL]
    each = zip(*ranks(all_runs, 4), strict=True)
    return dict(zip(names, (Recording([RankLog.of(e) for e in run]) for run in each), strict=True))


@pytest.fixture
def right(runs: dict[Place, Recording]) -> Recording:
    return runs["", 0, 0]


def test_equal_runs_are_equal_although_their_buffers_began_with_other_garbage(
    runs: dict[Place, Recording], right: Recording
) -> None:
    assert first_difference(right, runs["", 1, 0]) is None
    calls = STEPS * sum(CALLS.values())
    said = f"Equal to the bit in 4 steps and {calls} calls on 4 ranks."
    assert compared(right, runs["", 1, 0]) == said


@pytest.mark.parametrize("place", FAULTS, ids=str)
def test_a_fault_on_one_rank_is_found_there(
    runs: dict[Place, Recording], right: Recording, place: Place
) -> None:
    fault, step, rank = place
    kind, later, call = SHOWS[fault]
    found = first_difference(right, runs[place])
    assert found is not None
    assert (found.kind, found.step, found.ranks) == (kind, step + later, (rank,)), found
    if call is None:
        assert found.call is None
    else:
        assert found.call is not None
        assert found.call.number == right.ranks[rank].steps[step].calls + call
    if kind == "compute":
        assert 1 <= len(found.reached) <= 3 and rank not in found.reached
    # And the same from the other side.
    back = first_difference(runs[place], right)
    assert back is not None and (back.kind, back.step, back.ranks) == (kind, step + later, (rank,))


@pytest.mark.parametrize("place", ON_ALL, ids=str)
def test_a_fault_on_all_ranks_is_found_on_all(
    runs: dict[Place, Recording], right: Recording, place: Place
) -> None:
    found = first_difference(right, runs[place])
    assert found is not None
    kind = {"call": "program", "weights": "compute", "batch": "batch"}[place[0]]
    assert (found.kind, found.step, found.ranks) == (kind, place[1], (0, 1, 2, 3)), found
    if kind == "program":
        assert "all_reduce of 8 float64 on world" in found.text and "barrier" in found.text


# --- logs that are changed by hand ---------------------------------------------------------------
def changed(run: Recording, change: Callable[[int, Entry], Entry | None]) -> Recording:
    """A copy, each entry as `change(rank, entry)` has it; None leaves it out."""
    logs = []
    for rank, log in run.ranks.items():
        entries = [change(rank, entry) for entry in log.entries]
        logs.append(RankLog(log.start, [e for e in entries if e is not None]))
    return Recording(logs)


@pytest.mark.parametrize("number", [0, 2, 17])
def test_a_sum_that_differs_although_its_parts_do_not(right: Recording, number: int) -> None:
    """The network's doing: in the second run, a call gives its group other bits."""
    call = right.ranks[3].calls[number]

    def change(rank: int, entry: Entry) -> Entry:
        hit = isinstance(entry, Done) and entry.call == number and rank in call.group
        return replace(entry, taken="0" * 16) if hit else entry

    found = first_difference(right, changed(right, change))
    assert found is not None
    assert (found.kind, found.ranks, found.call) == (
        "sum", call.group, right.ranks[call.group[0]].calls[number],
    )  # fmt: skip
    assert "although every rank of the group gave it equal ones" in found.text


def test_a_message_that_changed_on_its_way(right: Recording) -> None:
    received = next(c for c in right.ranks[2].calls if c.op == "recv")

    def change(rank: int, entry: Entry) -> Entry:
        hit = isinstance(entry, Done) and entry.call == received.number and rank == 2
        return replace(entry, taken="0" * 16) if hit else entry

    found = first_difference(right, changed(right, change))
    assert found is not None and (found.kind, found.ranks) == ("sum", (2,))


def test_without_the_log_of_a_rank_it_is_said_that_it_cannot_be_told(
    runs: dict[Place, Recording], right: Recording
) -> None:
    bad = runs["weights", 2, 1]
    partly = Recording([log for rank, log in bad.ranks.items() if rank != 1])
    found = first_difference(right, partly)
    assert found is not None
    assert (found.kind, found.step, found.ranks) == ("received", 2, (0, 2, 3))
    assert "cannot be told" in found.text and "Rank 1 has written nothing." in repr(found)


def test_two_causes_are_both_named(right: Recording) -> None:
    """Rank 0 reads other bits in step 1, and rank 3 in step 2, before it has received them."""

    def change(rank: int, entry: Entry) -> Entry:
        at = right.ranks[rank].steps
        if isinstance(entry, Call) and rank in (0, 3):
            hit = entry.number == (at[1].calls if rank == 0 else at[2].calls)
            return replace(entry, given="0" * 16) if hit else entry
        return entry

    found = first_difference(right, changed(right, change))
    assert found is not None and (found.step, found.ranks) == (1, (0,))
    assert "Independently of it, rank 3 at step 2 differs by itself." in found.text


def test_a_run_that_ends_early_by_itself_is_another_program(right: Recording) -> None:
    last = right.ranks[0].steps[-1]

    def change(rank: int, entry: Entry) -> Entry | None:
        log = right.ranks[rank]
        cut = log.entries.index(log.steps[-1])
        return entry if log.entries.index(entry) < cut or isinstance(entry, End) else None

    short = changed(right, change)
    for pair, words in (((right, short), "fewer steps"), ((short, right), "call 39")):
        found = first_difference(*pair)
        assert found is not None and found.kind == "program", found
        assert words in found.text
    assert last.calls == 39


def test_a_run_that_was_killed_is_compared_as_far_as_it_goes(right: Recording) -> None:
    def change(rank: int, entry: Entry) -> Entry | None:
        log = right.ranks[rank]
        return entry if log.entries.index(entry) < 50 + rank else None

    killed = changed(right, change)
    for pair in ((right, killed), (killed, right)):
        assert first_difference(*pair) is None
        assert "did not come to its end" in compared(*pair)


def test_other_numbers_of_ranks_are_compared_by_loss(right: Recording) -> None:
    def on_two(factor: float) -> Recording:
        logs = []
        for rank in (0, 1):
            start = replace(right.ranks[rank].start, world=2)
            entries = [
                Loss((e.value * factor).hex()) if isinstance(e, Loss) else e
                for e in right.ranks[rank].entries
            ]
            logs.append(RankLog(start, entries))
        return Recording(logs)

    assert first_difference(right, on_two(1.0)) is None
    assert "only losses can be compared" in compared(right, on_two(1.0))
    assert first_difference(right, on_two(1 + 1e-9), loss_within=1e-8) is None
    found = first_difference(right, on_two(1 + 1e-9))
    assert found is not None and (found.kind, found.step, found.ranks) == ("loss", 0, ())
    assert "4 against 2 ranks" in found.text


def told(world: int, *losses: float | None) -> Recording:
    """A run without calls that tells of its loss in some steps."""
    entries: list[Entry] = [Start(0, world)]
    for step, loss in enumerate(losses):
        entries.append(Step(step, 0, "", {}, ()))
        entries += [] if loss is None else [Loss(float(loss).hex())]
    return Recording([RankLog.of([*entries, End()])])


@pytest.mark.parametrize("world", [1, 2])
def test_a_loss_is_compared_with_that_of_its_own_step(world: int) -> None:
    every, some = told(1, 1.0, 2.0, 3.0, 4.0), told(world, None, 2.0, None, 4.0)
    for first, second in ((every, some), (some, every)):
        assert first_difference(first, second) is None
    found = first_difference(every, told(world, None, 2.0, None, 5.0))
    assert found is not None and (found.kind, found.step) == ("loss", 3)


def test_on_other_numbers_of_ranks_a_nan_agrees_with_a_nan_alone() -> None:
    nan, inf = float("nan"), float("inf")
    assert first_difference(told(1, nan, inf), told(2, nan, inf)) is None
    for other in (1.0, nan):
        found = first_difference(told(1, inf), told(2, other), loss_within=0.5)
        assert found is not None and found.step == 0
    assert "agree in 0 steps" in compared(told(1, None, 1.0), told(2, 1.0, None))


def test_other_machines_are_named(right: Recording) -> None:
    logs = [
        RankLog(replace(log.start, environment=log.start.environment | {"threads": 7}), log.entries)
        for log in right.ranks.values()
    ]
    assert "The environments differ: threads 1 and 7." in compared(right, Recording(logs))
