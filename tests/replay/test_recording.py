"""What lies on the disk: of a run that ended, of one that was killed, of one that was changed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import RanksError
from course_lib.replay import first_difference, read_recording, record
from course_lib.trace import Refusal
from tests.replay.programs import CALLS, STEPS, train

Ranks = Callable[..., list[Any]]


def recorded(group: Group, folder: Path) -> None:
    with record(folder, group) as recorder:
        train(recorder, group)


def killed(group: Group, folder: Path) -> None:
    """The same, but rank 2 is killed in its third step, and the others wait for it."""
    with record(folder, group) as recorder:
        step = recorder.step

        def and_then(number: int, batch: Any = None) -> None:
            step(number, batch)
            if number == 2 and group.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        recorder.step = and_then  # type: ignore[method-assign]
        train(recorder, group)


@pytest.fixture(scope="module")
def folder(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recording") / "deep" / "run"
    ranks(recorded, 4, made)
    return made


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_run_is_read_back(folder: Path) -> None:
    run = read_recording(folder)
    assert run.world == 4 and list(run.ranks) == [0, 1, 2, 3] and not list(run.damage)
    for rank, log in run.ranks.items():
        assert log.complete
        assert (len(log.steps), len(log.losses)) == (STEPS, STEPS)
        assert len(log.calls) == len(log.results) == STEPS * CALLS[rank]
        assert {call.line.partition(",")[0] for call in log.calls} == {"programs.py"}
        assert log.start.environment["threads"] >= 1
    assert repr(run) == f"Recording: 4 ranks, 4 steps, {STEPS * sum(CALLS.values())} calls."
    assert first_difference(run, read_recording(folder)) is None


def test_what_a_killed_run_had_done_is_there(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RanksError):
        ranks(killed, 4, tmp_path)
    run = read_recording(tmp_path)
    assert [len(run.ranks[rank].steps) for rank in (2, 0)] == [3, 3]
    assert len(run.ranks[2].calls) == 2 * CALLS[2]
    assert any("Rank 2 did not come to its end" in said for said in run.damage)
    assert first_difference(read_recording(folder), run) is None


@pytest.mark.parametrize("cut", [1, 2, 30, 120])
def test_a_last_line_that_was_cut_off_is_said(folder: Path, copy: Path, cut: int) -> None:
    path = copy / "rank1.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    run = read_recording(copy)
    assert any(said.startswith("Rank 1: line ") and "cut off" in said for said in run.damage)
    assert first_difference(read_recording(folder), run) is None
    assert first_difference(run, read_recording(folder)) is None


def test_a_rank_that_wrote_nothing_is_said(copy: Path) -> None:
    (copy / "rank3.jsonl").write_text('{"kind": "sta')
    assert "Rank 3 has written nothing." in list(read_recording(copy).damage)
    (copy / "rank3.jsonl").unlink()
    assert read_recording(copy).missing == [3]


def edited(line: str, **changes: Any) -> str:
    return json.dumps({**json.loads(line), **changes})


DAMAGE: dict[str, Callable[[list[str]], object]] = {
    "a line in the middle is cut": lambda lines: lines.__setitem__(5, lines[5][:20]),
    "no JSON at the end": lambda lines: lines.__setitem__(-1, "end"),
    "a list": lambda lines: lines.__setitem__(5, "[]"),
    "deep": lambda lines: lines.__setitem__(5, "[" * 100_000),
    "bytes": lambda lines: lines.__setitem__(5, "\udcff"),
    "an unknown kind": lambda lines: lines.__setitem__(5, '{"kind": "x"}'),
    "no kind": lambda lines: lines.__setitem__(5, "{}"),
    "a kind that is no text": lambda lines: lines.__setitem__(5, '{"kind": []}'),
    "a field too many": lambda lines: lines.__setitem__(-1, edited(lines[-1], more=1)),
    "a field too few": lambda lines: lines.__setitem__(1, '{"kind": "step", "number": 0}'),
    "a number as text": lambda lines: lines.__setitem__(1, edited(lines[1], number="0")),
    "a text as number": lambda lines: lines.__setitem__(1, edited(lines[1], batch=0)),
    "random states as a text": lambda lines: lines.__setitem__(1, edited(lines[1], random="x")),
    "a group of texts": lambda lines: lines.__setitem__(2, edited(lines[2], group=["x"])),
    "a loss that is no number": lambda lines: lines.append('{"kind": "loss", "bits": "high"}'),
    "a call is missing": lambda lines: lines.pop(2),
    "the end of no call": lambda lines: lines.append('{"kind": "done", "call": 999, "taken": ""}'),
    "no beginning": lambda lines: lines.pop(0),
    "two beginnings": lambda lines: lines.insert(0, lines[0]),
    "another version": lambda lines: lines.__setitem__(0, edited(lines[0], version=2)),
    "another world": lambda lines: lines.__setitem__(0, edited(lines[0], world=5)),
    "another rank": lambda lines: lines.__setitem__(0, edited(lines[0], rank=0)),
    "no such rank": lambda lines: lines.__setitem__(0, edited(lines[0], rank=9)),
    "no environment": lambda lines: lines.__setitem__(0, edited(lines[0], environment=[])),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_no_run_has_written_is_refused(copy: Path, damage: str) -> None:
    path = copy / "rank1.jsonl"
    lines = path.read_text().splitlines()
    DAMAGE[damage](lines)
    path.write_text("\n".join(lines) + "\n", errors="surrogateescape")
    with pytest.raises(Refusal):
        read_recording(copy)


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(Refusal, match=r"rank0\.jsonl"):
            read_recording(place)


def test_one_recording_at_a_time_and_nothing_is_left_of_it(ranks: Ranks, tmp_path: Path) -> None:
    def run(group: Group) -> str:
        with record(None, group):
            with pytest.raises(Refusal, match="one at a time"), record(tmp_path, group):
                pass
            comm.barrier(group)
        with pytest.raises(KeyError), record(None, group) as recorder:
            raise KeyError
        return f"{group.ledger.listener} {recorder.entries[-1].kind}"

    assert ranks(run, 2) == ["None start", "None start"]


def test_a_second_recording_leaves_the_first_ones_file(ranks: Ranks, tmp_path: Path) -> None:
    def run(group: Group) -> None:
        with record(tmp_path, group):
            with pytest.raises(Refusal, match="one at a time"), record(tmp_path, group):
                pass
            comm.barrier(group)

    ranks(run, 2)
    assert repr(read_recording(tmp_path)) == "Recording: 2 ranks, 0 steps, 2 calls."


def test_what_could_not_be_read_back_is_not_written(ranks: Ranks, tmp_path: Path) -> None:
    def run(group: Group) -> None:
        with record(tmp_path, group) as recorder:
            recorder.step(np.int64(3))  # type: ignore[arg-type]
            recorder.step(torch.tensor(4))  # type: ignore[arg-type]
            for wrong in (5.0, "5"):
                with pytest.raises(TypeError):
                    recorder.step(wrong)  # type: ignore[arg-type]

    ranks(run, 1)
    assert [step.number for step in read_recording(tmp_path).ranks[0].steps] == [3, 4]


def test_a_paused_recorder_notes_nothing(ranks: Ranks) -> None:
    def run(group: Group) -> list[str]:
        with record(None, group) as recorder:
            with recorder.paused():
                comm.barrier(group)
            comm.barrier(group)
        return [entry.kind for entry in recorder.entries]

    assert ranks(run, 2) == [["start", "call", "done", "end"]] * 2
