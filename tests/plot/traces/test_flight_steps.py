"""The flight recorder's picture: a column for each call, and the verdict of the comparison."""

from __future__ import annotations

from itertools import permutations

import pytest

from course_lib.plot import flight_steps
from course_lib.plot.player.style import VERMILLION
from course_lib.plot.traces.flight_steps import SHOWN
from course_lib.trace import FlightLog, Ledger, find_desync, flight_log

WORLD = (0, 1, 2)


def log(rank: int, *ops: str, finished: int, group: tuple[int, ...] = WORLD) -> FlightLog:
    """A rank that made these calls, and stands in what it has not finished."""
    ledger = Ledger(rank)
    for number, op in enumerate(ops):
        event = ledger.begin(op, axis="world", group=group, payload=8, shape=(2,), dtype="float32")
        event.begin = event.waited = float(number)
        if number < finished:
            event.end = number + 0.5
    return flight_log(ledger)


def test_the_call_that_is_not_the_same_everywhere() -> None:
    logs = [log(rank, "all_reduce", "barrier" if rank == 1 else "broadcast", finished=1)
            for rank in (2, 0, 1)]  # fmt: skip
    player = flight_steps(logs)
    first, second, last = (frame.caption for frame in player.frames)
    assert first == "world [0,1,2], call 0. ranks 0, 1, 2: all_reduce of [2]."
    assert "ranks 0, 2: broadcast of [2], and is still in it; rank 1: barrier" in second
    finding = find_desync(logs)
    assert finding is not None and last == finding.text == player.alt
    assert player.frames[-1].parts[0].count(f'stroke="{VERMILLION}"') == 1
    assert all(f'stroke="{VERMILLION}"' not in frame.parts[0] for frame in player.frames[:-1])


def test_a_rank_that_never_called() -> None:
    logs = [log(0, "all_reduce", "all_reduce", finished=1), log(1, "all_reduce", finished=1)]
    logs.append(log(2, "all_reduce", "all_reduce", finished=1))
    logs[1].state = "raised"
    player = flight_steps(logs)
    assert player.frames[1].caption.endswith("rank 1: never called.")
    assert player.frames[1].parts[0].count("stroke-dasharray") == 1


def test_calls_of_others_are_no_gap() -> None:
    logs = [log(0, "send", finished=1), log(1, finished=0), log(2, "all_reduce", finished=1,
            group=(1, 2))]  # fmt: skip
    dashed = [frame.parts[0].count("stroke-dasharray") for frame in flight_steps(logs).frames]
    assert dashed[-1] <= 2, "rank 1 alone has made neither"


def test_only_the_last_calls_are_drawn() -> None:
    logs = [log(rank, *["all_reduce"] * 20, finished=20) for rank in WORLD]
    player = flight_steps(logs)
    assert len(player.frames) == SHOWN + 1
    assert player.frames[-1].caption == "All ranks made the same calls."
    assert player.frames[0].caption.startswith(f"world [0,1,2], call {20 - SHOWN}.")


def test_the_words_do_not_depend_on_who_came_first() -> None:
    """Ranks of two groups overtake each other; the same programs are the same picture."""

    def made(*late: int) -> str:
        logs = []
        for rank in range(4):
            pair = (0, 1) if rank < 2 else (2, 3)
            ledger = Ledger(rank)
            for number, op in enumerate(("all_reduce", "broadcast" if rank == 2 else "barrier")):
                event = ledger.begin(op, axis="dp", group=pair, payload=8, shape=(2,))
                event.begin = event.waited = number + 0.1 * late.index(rank)
            logs.append(flight_log(ledger))
        player = flight_steps(logs)
        return player.background + "".join(f"{f.caption}{f.parts}" for f in player.frames)

    assert len({made(*late) for late in permutations(range(4))}) == 1
    assert "dp [2,3], call 1. rank 2: broadcast" in made(3, 2, 1, 0)


def test_no_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="flight logs"):
        flight_steps([log(0, finished=0)])
