"""Peers under our faults: their logs as records, what is measured of them, and real ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.fault_tolerance import checked, no_step_kept, to_return, version
from benchmarks.peers.disturbed import as_record, made, parsed, torchft, torchrun
from course_lib.failures import Counted, Fault, Record
from course_lib.failures.record import Happening

SETTINGS = {"ranks": 2, "step": 0.02, "size": 20_000, "silent": 1.0, "every": 10}


def step(rank: int, number: int, time: float, attempt: int = 0, **other: Any) -> dict[str, Any]:
    line = {"say": "step", "rank": rank, "step": number, "begin": time - 1.0, "time": time,
            "batch": 2 * number + rank, "attempt": attempt, "loss": 0.5, "counts": True,
            "mine": True, "present": 1}  # fmt: skip
    return line | other


def test_a_step_that_was_made_again_counts_once_and_as_it_was_made_last() -> None:
    lines = [step(0, 0, 11.0), step(1, 0, 11.5), step(0, 1, 12.0),  # rank 1 is killed in step 1
             step(0, 1, 20.0, 1), step(1, 1, 20.5, 1)]  # fmt: skip
    record = as_record(2, lines, 10.0)
    assert [(s.begin, s.end, s.batches) for s in record.counted] == [
        (0.0, 1.5, {0: 0, 1: 1}),
        (9.0, 10.5, {0: 2, 1: 3}),
    ]
    assert (record.lost, record.seconds) == (1, 10.5)


def test_a_rank_that_gets_its_state_or_did_not_commit_adds_no_batch() -> None:
    lines = [step(0, 0, 11.0), step(1, 0, 11.0, mine=False), step(0, 1, 12.0),
             step(1, 1, 12.0, counts=False)]  # fmt: skip
    assert [s.batches for s in as_record(2, lines, 10.0).counted] == [{0: 0}, {0: 2}]


def test_a_rank_that_was_killed_after_the_sum_has_its_batch_in_the_step() -> None:
    begun = [{"say": "batch", "rank": r, "step": 0, "batch": r, "attempt": 0} for r in (0, 1)]
    record = as_record(2, [*begun, step(0, 0, 11.0, present=2)], 10.0)
    assert record.counted[0].batches == {0: 0, 1: 1}


def test_a_line_that_a_kill_has_torn_spoils_no_other() -> None:
    assert parsed('{"say": "batch", "ti{"say": "hello", "rank": 1}') == {"say": "hello", "rank": 1}


def test_failures_are_measured_to_the_steps_around_them() -> None:
    record = Record(2, seconds=9.0)
    for number, (end, batches) in enumerate([(1.0, {0: 0, 1: 1}), (4.0, {0: 2}), (9.0, {1: 4})]):
        record.counted.append(Counted(end - 0.5, end, number, batches, {}))
    record.happenings = [Happening(1.5, 1, "kill"), Happening(3.0, 1, "over"),
                         Happening(8.8, 0, "freeze")]  # fmt: skip
    assert no_step_kept("kill", record) == [2.5]  # from 1 to 4, less a step
    assert to_return("kill", record) == [6.0]  # rank 1's next batch ends at 9
    assert to_return("freeze", record) == []  # it was not over at the end


def test_without_torchft_one_sentence_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COURSE_PEERS_PYTHON", raising=False)
    assert version() == ("", "", "not measured: COURSE_PEERS_PYTHON names no interpreter "
                                 "with torchft")  # fmt: skip


# --- real ranks ----------------------------------------------------------------------------------
@pytest.mark.slow
def test_torchrun_goes_back_to_its_checkpoint_and_counts_each_batch_once(tmp_path: Path) -> None:
    record = torchrun(tmp_path, [Fault(0.5, "kill", 1, 0.1)], batches=60, **SETTINGS)
    assert sorted(record.batches) == list(range(60))
    assert [h.what for h in record.happenings][:2] == ["kill", "over"]
    assert made(tmp_path / "log") > 60  # some were made again
    assert checked(record) < 1e-12


@pytest.mark.slow
def test_torchft_goes_on_without_a_rank_and_gives_it_the_state(tmp_path: Path) -> None:
    python, _, why = version()
    if not python:
        pytest.skip(why)
    record = torchft(tmp_path, python, [Fault(0.5, "kill", 1, 0.1)], batches=200, **SETTINGS)
    assert min(len(each.batches) for each in record.counted) == 1
    assert len(record.states) == 2, "rank 1 is back"
    assert checked(record) < 1e-12
