"""The magics: they grade, save the cell and keep what was there, and never raise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from course_lib.grade import magic
from course_lib.grade.catalog import Entry
from course_lib.grade.magic import GradeMagics
from course_lib.ranks import ForkServer

WRONG = "def double(tensor, group):\n    return tensor\n"


@pytest.fixture
def shell(
    double: Entry, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InteractiveShell]:
    monkeypatch.chdir(double.root)
    shell = InteractiveShell()
    shell.register_magics(GradeMagics(shell, lambda: server))
    yield shell


def cell(shell: Any, text: str) -> str:
    with capture_output() as captured:
        shell.run_cell(text)
    shown = [output.data.get("text/plain", "") for output in captured.outputs]
    return "\n".join([captured.stdout, *shown])


def test_grade_and_progress(shell: InteractiveShell) -> None:
    assert "3 of 3 points" in cell(shell, "%grade double")
    assert "1/1 core" in cell(shell, "%progress")


def test_a_cell_becomes_the_file(shell: InteractiveShell, double: Entry) -> None:
    before = double.path.read_text()
    shown = cell(shell, f"%%grade double\n{WRONG}")
    assert double.path.read_text() == WRONG
    assert "1 of 3 points" in shown
    assert "hint 1 of 3: %hint double" in shown
    kept = double.root / ".course" / "backup" / "99_test" / "double.1.py"
    assert kept.read_text() == before
    assert "double.1.py" in shown
    cell(shell, f"%%grade double\n{WRONG}")
    assert len(list(kept.parent.iterdir())) == 1


def test_wrong_names_and_hints(shell: InteractiveShell) -> None:
    assert "did you mean double?" in cell(shell, "%grade duble")
    assert "As in: %grade ring" in cell(shell, "%grade")
    assert "As in: %hint ring" in cell(shell, "%hint")
    assert "hint 1 of 3: Add." in cell(shell, "%hint double")


def test_both_forms_of_a_card(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(magic, "display", shown.append)
    shell.run_cell("%grade double")
    page = shown[0]._repr_html_()
    assert "3 of 3 points" in repr(shown[0]) and "<table" in page
    assert "<script" not in page and " id=" not in page
