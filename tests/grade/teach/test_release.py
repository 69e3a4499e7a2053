"""The students' copy: everything to work with, no answer, no hidden check; whole or not there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.grade import cli
from course_lib.grade.author.build import BLOCK, starter
from course_lib.grade.catalog import PACKAGE, Entry, SuiteError, entries, read_suite
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_html, as_text
from course_lib.grade.report.github import payload
from course_lib.grade.teach.hide import visible
from course_lib.grade.teach.release import release
from course_lib.trace import Refusal

ROOT = PACKAGE.parent
SOLUTION = (
    "def double(tensor, group):\n    # BEGIN SOLUTION\n    return 2 * tensor\n    # END SOLUTION\n"
)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
HIDDEN = '''
FACTOR = 2


def helper(run: Any) -> Any:
    """Only the hidden check uses this."""
    return run(drive, {"tensor": FACTOR * run.random(3)}, world=1)


@check("numbers far from one", points=3, code="E", hidden=True)
def check_far(run: Any) -> None:
    """E: scaled."""
    helper(run)
'''


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The students' copy of this course."""
    target = tmp_path_factory.mktemp("students") / "course"
    release(ROOT, target)
    return target


@pytest.fixture
def course(double: Entry, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A small course of an instructor, with one hidden check."""
    double.solution.parent.mkdir(parents=True)
    double.solution.write_text(SOLUTION)
    double.suite.write_text(double.suite.read_text() + HIDDEN)
    (double.root / "README.md").write_text("# Course\n\nTo teach: [kit](INSTRUCTORS.md).\n\nEnd.\n")
    monkeypatch.chdir(double.root)
    return read_suite(double.suite, double.root)


# --- the whole course ----------------------------------------------------------------------------
def test_exercises_are_fresh_starters(released: Path) -> None:
    for entry in entries(ROOT):
        for path in (entry.path, entry.starter):
            assert (released / path.relative_to(ROOT)).read_text() == starter(entry)


def test_no_answer_is_in_it(released: Path) -> None:
    names = {path.relative_to(released).parts[0] for path in released.rglob("*")}
    assert not names & {"solutions", ".git", ".course", ".venv", "INSTRUCTORS.md"}
    assert not (released / "grading" / "mutants").exists()
    handed_out = [*(released / "exercises").rglob("*.py"), *released.glob("notebooks/*.ipynb")]
    text = "\n".join(path.read_text() for path in handed_out)
    for entry in entries(ROOT):
        for block in BLOCK.finditer(entry.solution.read_text()):
            body = [line for line in block[0].splitlines()[1:-1] if "#:" not in line]
            assert len(body) < 4 or "\n".join(body) not in text, entry.name


def test_no_link_is_broken(released: Path) -> None:
    pages = {path: path.read_text() for path in released.glob("*.md")}
    for path in released.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        prose = [cell for cell in cells if cell["cell_type"] == "markdown"]
        pages[path] = "\n".join("".join(cell["source"]) for cell in prose)
    found = [(page, to) for page, text in pages.items() for to in LINK.findall(text)]
    assert len(found) > 100
    assert [(page.name, to) for page, to in found if not (page.parent / to).exists()] == []


def test_the_tests_in_it_can_be_collected(released: Path) -> None:
    """They need nothing that is not there: neither solutions nor each other."""
    for path in (released / "tests").rglob("*.py"):
        ast.parse(path.read_text())
        assert "solutions" not in path.read_text()
    assert (released / "tests" / "conftest.py").exists()


def test_an_answer_is_graded_in_it(released: Path, tmp_path: Path) -> None:
    """With the copy's own library, from its own folder."""
    place = Path("00_ranks") / "hello_mesh.py"
    shutil.copyfile(ROOT / "solutions" / place, released / "exercises" / place)
    done = subprocess.run(
        [sys.executable, "-m", "course_lib.grade.cli", "grade", "hello_mesh",
         "--json", str(tmp_path / "card.json"), "--classroom", str(tmp_path / "output")],
        cwd=released, env={**os.environ, "PYTHONPATH": str(released)}, text=True,
        capture_output=True, timeout=300,
    )  # fmt: skip
    (released / "exercises" / place).write_text(
        (released / "exercises" / ".starters" / place).read_text()
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "card.json").read_text())["status"] == "full"
    assert (tmp_path / "output").read_text().startswith("result=")


# --- whole or not there --------------------------------------------------------------------------
@pytest.mark.parametrize("place", ["full", "inside", "file"])
def test_what_is_refused(course: Entry, tmp_path: Path, place: str,
                         capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    target = course.root / "students" if place == "inside" else tmp_path.parent / f"to_{place}"
    if place == "full":
        target.mkdir(exist_ok=True)
        (target / "mine.txt").write_text("mine")
    elif place == "file":
        target.write_text("mine")
    before = sorted(target.parent.rglob("*"))
    assert cli.main(["release", str(target)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3
    assert sorted(target.parent.rglob("*")) == before


def test_nothing_is_left_of_a_failure(
    course: Entry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    course.solution.write_text("def double(tensor, group):\n    return 2 * tensor\n")  # no marks
    place = tmp_path_factory.mktemp("out")
    assert cli.main(["release", str(place / "students")]) == 4
    assert list(place.iterdir()) == []


# --- hidden checks -------------------------------------------------------------------------------
@pytest.fixture
def students(course: Entry, tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """The exercise in the students' copy of the small course."""
    target = tmp_path_factory.mktemp("small") / "students"
    release(course.root, target)
    return read_suite(target / course.suite.relative_to(course.root), target)


def test_a_hidden_check_is_gone_with_all_that_only_it_used(course: Entry, students: Entry) -> None:
    text = students.suite.read_text()
    assert not any(word in text for word in ("far", "helper", "FACTOR", "hidden=True"))
    assert [check.name for check in students.checks] == ["check_value", "check_bytes"]
    assert (students.exercise.hidden_checks, students.exercise.hidden_points) == (1, 3)
    assert (course.points, students.points) == (6, 3)
    without = course.suite.read_text().replace(HIDDEN, "")
    assert text.replace("    hidden_checks=1,\n    hidden_points=3,\n", "") == without
    assert "INSTRUCTORS" not in (students.root / "README.md").read_text()


def test_a_student_is_never_told_that_all_is_well(students: Entry, grader: Grader) -> None:
    students.path.write_text("def double(tensor, group):\n    return tensor + tensor\n")
    card = grader.grade(students)
    assert card.status == "full"
    assert card.to_dict()["hidden"] == {"checks": 1, "points": 3}
    for text in (as_text(card), as_html(card)):
        assert "3 of 3 points here" in text
        assert "1 hidden check (3 points) runs when this is handed in." in text
        assert "All checks passed" not in text
    assert "hidden" in payload([card])["tests"][0]["message"]


def test_the_copy_says_kindly_what_it_has_not(
    students: Entry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(students.root)
    for words in (["solution", "double"], ["dev", "build"], ["dev", "zoo"], ["dev", "mutate"],
                  ["release", "elsewhere"]):  # fmt: skip
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert "solutions" in said and "Traceback" not in said
    students.path.write_text("lost")
    assert cli.main(["reset", "double"]) == 0
    assert students.path.read_text() == students.starter.read_text()
    cli.main(["progress"])
    assert "Hidden checks, which run when this is handed in: 1." in capsys.readouterr().out


def test_in_the_whole_course_every_check_runs(
    course: Entry, grade: Callable[[str], Card], grader: Grader
) -> None:
    card = grader.grade(course)
    assert [result.state for result in card.checks] == ["passed"] * 3
    assert "All checks passed." in as_text(card)


def test_a_suite_must_show_something() -> None:
    text = (Path(__file__).parents[1] / "suites" / "99_test" / "double.py").read_text()
    with pytest.raises(SuiteError, match="all checks are hidden"):
        visible(text.replace('code="E"', 'hidden=True, code="E"').replace(
            'code="B"', 'hidden=True, code="B"'))  # fmt: skip
    assert visible(text) == text


def marked(text: str, name: str) -> str:
    """A suite with `hidden=True` written behind the last word about one of its checks."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    mark = next(node for node in nodes if node.name == name).decorator_list[0]
    assert isinstance(mark, ast.Call)
    last = mark.keywords[-1].value
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    row, column = (last.end_lineno or 0) - 1, last.end_col_offset or 0
    lines[row] = lines[row][:column] + b", hidden=True" + lines[row][column:]
    return b"".join(lines).decode()


@pytest.mark.slow
def test_every_suite_can_hide_its_last_check(tmp_path: Path) -> None:
    """Whatever an instructor marks: what is left is a suite, and says how much is missing."""
    for entry in entries(ROOT):
        last = entry.checks[-1]
        if len(entry.checks) == 1:
            continue
        suite = tmp_path / entry.lesson / entry.suite.name
        suite.parent.mkdir(exist_ok=True)
        suite.write_text(visible(marked(entry.suite.read_text(), last.name)))
        left = read_suite(suite, ROOT)
        assert left.checks == entry.checks[:-1]
        assert left.exercise.hidden_points == last.points
        names = {node.id for node in ast.walk(ast.parse(suite.read_text()))
                 if isinstance(node, ast.Name)}  # fmt: skip
        assert last.name not in names


def test_refusal_is_one_of_its_own() -> None:
    with pytest.raises(Refusal, match="has no solutions"):
        release(ROOT / "notebooks", Path("nowhere"))
