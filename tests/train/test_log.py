"""What a run writes while it goes on."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from course_lib.comm import Group
from course_lib.trace import Ledger
from course_lib.train import read_log
from course_lib.train.command.log import JsonLines, TensorBoard
from course_lib.train.command.progress import Progress, WaitWatch


def row(step: int, loss: float = 1.0) -> dict[str, float]:
    return {"step": step, "loss": loss}


def test_lines_of_steps_made_again_go(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    first = JsonLines(path, 0)
    for step in (1, 2, 3):
        first.add(row(step))
        assert read_log(path)[-1] == row(step), "on the disk at once"
    first.close()
    path.write_text(path.read_text() + '{"step": 4, "lo')  # killed while it wrote
    assert [r["step"] for r in read_log(path)] == [1, 2, 3]
    again = JsonLines(path, 2)
    again.add(row(3, 2.0))
    again.close()
    assert read_log(path) == [row(1), row(2), row(3, 2.0)]


def test_lines_that_are_no_rows_take_no_others_along(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = "".join(f"{json.dumps(row(step))}\n" for step in (1, 2, 3))
    path.write_bytes(
        b'\xff\xfe\n3\n[1]\n{}\n{"step": null}\n{"step": 1, "loss": "a"}\n'
        + whole.encode()
        + b"\0" * 9
    )
    assert read_log(path) == [row(1), row(2), row(3)]
    log = JsonLines(path, 2)
    assert log.cut == 1
    log.close()
    assert read_log(path) == [row(1), row(2)]
    assert read_log(tmp_path / "none.jsonl") == []


def test_a_long_wait_is_said_now_and_then() -> None:
    now = [0.0]
    book = Ledger(0, lambda: now[0])
    watch = WaitWatch(cast(Group, SimpleNamespace(ledger=book, rank=0)), 20.0)
    call = book.begin("all_reduce", axis="dp", group=(0, 2), payload=8)
    said = {}
    for now[0] in range(1, 100):
        if text := watch.news():
            said[int(now[0])] = text
    assert list(said) == [21, 40, 80]
    assert said[40] == "rank 0 has waited for 40 s in all_reduce over dp (ranks 0, 2)"
    book.finish(call)
    assert watch.news() == ""
    book.begin("barrier", axis="world", group=(0, 1, 2), payload=0)
    now[0] += 21
    assert "21 s in barrier over world" in watch.news()


def test_progress_in_a_terminal_and_in_a_file() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    for out, anew in ((terminal, True), (file, None)):
        progress = Progress(20, out, anew=anew)
        for step in range(1, 21):
            progress.add(row(step, 1 / step))
        progress.close()
    lines = terminal.getvalue().split("\r")
    assert len(lines) == 21 and lines[10].startswith("█" * 12 + "·" * 12)
    assert lines[-1] == "█" * 24 + " step 20/20  loss 0.050\n"
    assert len(file.getvalue().splitlines()) == 10 and "\r" not in file.getvalue()
    slow = Progress(100, out := io.StringIO())
    for step in range(1, 7):
        slow.add({**row(step), "seconds": 12.0})
    assert [line[:8] for line in out.getvalue().splitlines()] == ["step   3", "step   6"]


class Gone(io.StringIO):
    """A pipe whose reader has ended."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_run_goes_on_when_nobody_reads_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(4, Gone())
    for step in range(1, 5):
        progress.add(row(step))
    progress.close()
    said = capsys.readouterr().err
    assert said.count("cannot be shown any more") == 1 and "the run goes on" in said


def test_progress_without_a_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    progress = Progress(4)
    progress.add(row(1))
    progress.close()


def test_a_log_that_was_removed_is_no_log(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl", 0)
    log.add(row(1))
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match="was removed"):
        log.add(row(2))
    log.close()


def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path, 0)
    for step in (1, 2):
        board.add(row(step, 1 / step))
    board.close()
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(1, 1.0), (2, 0.5)]
