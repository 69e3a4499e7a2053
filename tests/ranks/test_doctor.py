"""The doctor: what it finds on this machine, and what it says where something is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from packaging.requirements import Requirement

from course_lib.grade.cli import main
from course_lib.ranks import ForkServer, doctor
from course_lib.ranks.doctor import MARKS, Finding, Report, examine
from course_lib.ranks.start.launch import start_method

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


@pytest.mark.parametrize(("wanted", "words"), [("cuda", "no GPU"), ("gpu", "auto, cpu and cuda")])
def test_a_device_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, server: ForkServer, wanted: str, words: str
) -> None:
    """Said, and nothing else is left out."""
    monkeypatch.setenv("COURSE_DEVICE", wanted)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    report = examine(None, server)
    assert found(report)["devices"].state == found(report)["ranks"].state == "problem"
    assert words in found(report)["devices"].found
    assert f"the device {wanted!r}" in found(report)["ranks"].found.replace("cuda", "'cuda'")


def versions_with(*needs: str) -> Finding:
    return doctor.versions([Requirement(need) for need in needs])


def test_what_was_tested_is_said_in_one_place() -> None:
    """And the pinned versions, which the tests run with, are inside it."""
    needs = {need.name: need.specifier for need in doctor.tested()}
    pins = re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    held = {name: version for name, version in pins if name in needs}
    assert set(held) == set(needs) and "torch" in needs
    assert all(held[name] in needs[name] for name in held), held


def test_newer_than_tested_is_a_note_and_older_a_problem() -> None:
    inside = versions_with("torch>=2,<99", "numpy>=1")
    assert inside.state == "ok" and torch.__version__ in inside.found
    newer = versions_with("torch>=1,<2", "numpy>=1")
    assert newer.state == "note" and newer.found.startswith("newer than what was tested: torch 2.")
    assert "numpy" not in newer.found
    older = versions_with("torch>=99,<100", "numpy>=1,<2")
    assert older.state == "problem" and "is older than what the course" in older.found
    missing = versions_with("no-such>=2")
    assert (missing.state, missing.found) == ("problem", "no-such is not installed")


@pytest.mark.slow
def test_without_a_course_only_the_folder_is_different() -> None:
    report = examine(None)
    assert report.healthy
    assert found(report)["folder"].state == "note"


@pytest.mark.slow
def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    report = examine(tmp_path / "gone")
    assert found(report)["folder"].state == "problem" and not report.healthy
    assert "→ copy the course to a folder that you may write to" in repr(report)


@pytest.mark.slow
def test_too_little_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Little:
        available = 1 << 29

    monkeypatch.setattr(psutil, "virtual_memory", Little)
    memory = found(examine(tmp_path))["memory"]
    assert (memory.state, memory.found) == ("problem", "0.5 GiB free")


def test_what_no_kernel_does_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for lacks, state in (("", "ok"), ("no kernel limits this", "note")):
        monkeypatch.setattr(doctor, "LACKS", lacks)
        limits = doctor._limits()
        assert limits.state == state and lacks in limits.found


def test_a_kernel_without_a_wall_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing, state in (((), "ok"), (("other files (no Landlock)",), "note")):
        monkeypatch.setattr(doctor, "lacks", lambda found=missing: found)
        wall = doctor._wall()
        assert wall.state == state and all(word in wall.found for word in missing)


def fail(*args: Any) -> float:
    raise RuntimeError("no such interface")


@pytest.mark.slow
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
