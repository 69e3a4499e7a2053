"""A program that is run again is held against its record, and stopped where it leaves it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import RanksError
from course_lib.replay import (
    Difference,
    RankLog,
    Recorder,
    Recording,
    first_difference,
    read_recording,
    record,
    replay,
)
from course_lib.trace import Refusal
from tests.replay.programs import train

Ranks = Callable[..., list[Any]]
FAULTS = [("weights", 1, 2), ("batch", 2, 0), ("part", 0, 3), ("message", 3, 1), ("loss", 1, 1)]
KINDS = {"weights": "compute", "part": "compute", "message": "compute"}


def test_a_replay_is_equal_or_names_the_place(ranks: Ranks, tmp_path: Any) -> None:
    def run(group: Group) -> list[Difference | None]:
        with record(tmp_path, group) as recorder:
            train(recorder, group)
        comm.barrier(group)  # all files are whole
        then = read_recording(tmp_path)
        found = [replay(partial(train, group=group), then, group)]
        for fault in FAULTS:
            torch.rand(group.rank + 1)  # where the generators stand does not matter

            def again(recorder: Recorder, fault: Any = fault) -> None:
                train(recorder, group, *fault)

            found.append(replay(again, then, group))
        assert group.ledger.listener is None
        return found

    for found in ranks(run, 4):
        assert found[0] is None
        for (fault, step, rank), one in zip(FAULTS, found[1:], strict=True):
            assert one is not None
            assert (one.kind, one.step, one.ranks) == (KINDS.get(fault, fault), step, (rank,))
            assert "to its end" not in repr(one)


def test_it_stops_at_the_end_of_the_step(ranks: Ranks) -> None:
    def run(group: Group) -> tuple[int, str]:
        made = []

        def program(recorder: Recorder, wrong: int = -1) -> None:
            for step in range(6):
                recorder.step(step)
                made.append(step)
                comm.all_reduce(torch.ones(2) * (step == wrong), group)

        with record(None, group) as recorder:
            program(recorder)
        logs = as_all(recorder, group)
        made.clear()
        found = replay(lambda r: program(r, 2), logs, group)
        return len(made), found.kind if found else ""

    assert ranks(run, 2) == [(3, "compute")] * 2


def as_all(recorder: Recorder, group: Group) -> Recording:
    """What all ranks, which do the same, have noted."""
    log = RankLog.of(recorder.entries)
    each = [replace(log.start, rank=rank) for rank in range(group.size)]
    return Recording([RankLog(start, log.entries) for start in each])


def test_random_numbers_are_those_of_then(ranks: Ranks) -> None:
    def run(group: Group) -> bool:
        drawn = []

        def program(recorder: Recorder) -> None:
            drawn.append(torch.rand(3))
            comm.all_reduce(drawn[-1].clone(), group)

        torch.manual_seed(8)
        with record(None, group) as recorder:
            program(recorder)
        torch.manual_seed(9)
        assert replay(program, as_all(recorder, group), group) is None
        return torch.equal(*drawn)

    assert ranks(run, 2) == [True, True]


def test_generators_that_nobody_uses_do_not_count(ranks: Ranks) -> None:
    """Whether they stand where the run began, or elsewhere because nobody has seeded them."""

    def run(group: Group) -> list[str]:
        kept = []
        for number in range(3):
            with record(None, group) as recorder:
                torch.manual_seed(8)  # the second time it stands there already
                random.seed(number if number == 2 else None)
                recorder.step(0)
            kept.append(as_all(recorder, group))
        unused = []
        for _ in range(2):
            random.seed()
            with record(None, group) as recorder:
                recorder.step(0)
            unused.append(as_all(recorder, group))
        pairs = (kept[:2], (kept[0], kept[2]), unused)
        return [found.text if (found := first_difference(*pair)) else "" for pair in pairs]

    for seeded, other, unused in ranks(run, 2):
        # It was seeded, with something else.
        assert "generators are in a different state (python)" in seeded
        assert "generators are in a different state (python)" in other
        assert unused == ""


def test_a_program_that_ends_early_or_late_is_found(ranks: Ranks) -> None:
    def run(group: Group) -> list[str]:
        def program(recorder: Recorder, calls: int = 3) -> None:
            for _ in range(calls):
                comm.barrier(group)

        with record(None, group) as recorder:
            program(recorder)
        then = as_all(recorder, group)
        found = [replay(lambda r, n=n: program(r, n), then, group) for n in (2, 3, 4)]
        return [one.kind if one else "" for one in found]

    assert ranks(run, 2) == [["program", "", "program"]] * 2


def test_another_call_stops_its_rank_before_it_is_made(ranks: Ranks) -> None:
    def run(group: Group) -> None:
        with record(None, group) as recorder:
            comm.all_reduce(torch.ones(2), group)
        then = as_all(recorder, group)
        replay(lambda _: comm.all_reduce(torch.ones(2 + group.rank), group), then, group)

    with pytest.raises(RanksError, match="the program is another one"):
        ranks(run, 2)


def test_a_record_of_another_world_is_refused(ranks: Ranks) -> None:
    def run(group: Group) -> None:
        with record(None, group) as recorder:
            pass
        own = RankLog.of(recorder.entries)
        wider = Recording([RankLog(replace(own.start, world=3), own.entries)])
        for wrong in (Recording([own]), wider):
            with pytest.raises(Refusal, match="own log"):
                replay(lambda _: None, wrong, group)

    ranks(run, 2)
