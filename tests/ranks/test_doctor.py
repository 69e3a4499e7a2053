"""The doctor: what it finds on this machine, and what it says where something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from course_lib.grade.cli import main
from course_lib.ranks import doctor
from course_lib.ranks.doctor import MARKS, Finding, Report, examine
from course_lib.ranks.forkserver import start_method

ROOT = Path(__file__).resolve().parents[2]


def found(report: Report) -> dict[str, Finding]:
    return {one.what: one for one in report.findings}


def test_this_machine() -> None:
    """What the tests run on is healthy, or they would not have come here."""
    report = examine(ROOT)
    assert report.healthy, report
    assert found(report)["packages"].state == "ok"
    said, _, spawned = found(report)["ranks"].found.partition("; ")
    assert said == "two processes started, and added 0 and 1"
    assert bool(spawned) == (start_method() == "spawn")
    assert len(repr(report).splitlines()) >= len(report.findings) == len(found(report))


def test_other_versions_are_named(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        f"# a comment\ntorch=={torch.__version__.partition('+')[0]}\nnumpy==1.0.0\nno-such==2.0\n"
    )
    wrong = found(examine(tmp_path))["packages"]
    assert wrong.state == "problem"
    assert "numpy" in wrong.found and "instead of 1.0.0" in wrong.found
    assert "no-such is not installed" in wrong.found and "torch" not in wrong.found
    assert wrong.advice == "make clean, then make lab: it installs these"


def test_without_pins_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert found(examine(tmp_path))["packages"].state == "note"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    report = examine(tmp_path / "gone")
    assert found(report)["folder"].state == "problem" and not report.healthy
    assert "→ copy the course to a folder that you may write to" in repr(report)


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Little:
        available = 1 << 29

    monkeypatch.setattr(psutil, "virtual_memory", Little)
    memory = found(examine(tmp_path))["memory"]
    assert (memory.state, memory.found) == ("problem", "0.5 GiB free")


def test_what_no_kernel_does_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for lacks, state in (("", "ok"), ("no kernel limits this", "note")):
        monkeypatch.setattr(doctor, "LACKS", lacks)
        limits = found(examine(tmp_path))["limits"]
        assert limits.state == state and lacks in limits.found


def fail(*args: Any) -> float:
    raise RuntimeError("no such interface")


def test_ranks_that_cannot_reach_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_sum_of_indices", fail)
    ranks = found(examine(tmp_path))["ranks"]
    assert ranks.state == "problem" and "GLOO_SOCKET_IFNAME" in ranks.advice


def test_text_and_html_say_the_same() -> None:
    report = Report((Finding("a", "ok", "all <well>"), Finding("b", "note", "odd", "do this")))
    text, html = repr(report), report._repr_html_()
    assert text.splitlines()[0].startswith(f"{MARKS['ok']} a ") and "→ do this" in text
    assert "all &lt;well&gt;" in html and "→ do this" in html


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "two processes started" in capsys.readouterr().out
