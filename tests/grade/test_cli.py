"""The command: exit codes, one clear sentence for a wrong word, and never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from course_lib.grade import cli
from course_lib.grade.author import build
from course_lib.grade.catalog import PACKAGE, Entry, find
from course_lib.grade.grader import Grader
from course_lib.grade.report.progress import Progress
from course_lib.ranks import ForkServer

RIGHT = "def double(tensor, group):\n    return tensor + tensor\n"
WRONG = "def double(tensor, group):\n    return tensor\n"
SOLUTION = (
    "def double(tensor, group):\n    # BEGIN SOLUTION\n    return 2 * tensor\n    # END SOLUTION\n"
)
ANSWERS = """
from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("square", ["this is the square"], "-    return 2 * tensor\\n+    return tensor * tensor"),
    Wrong("wrongly_named", ["deadlock"], "-    return 2 * tensor\\n+    return tensor"),
]
RIGHT = []
"""


@pytest.fixture
def course(double: Entry, server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entry]:
    """A course folder with one exercise, as the command sees it."""
    double.solution.parent.mkdir(parents=True)
    double.solution.write_text(SOLUTION)
    monkeypatch.chdir(double.root)
    monkeypatch.setattr(cli, "Grader", lambda: Grader(lambda: server))
    yield double


@pytest.mark.parametrize(
    ("text", "code"),
    [(RIGHT, 0), (WRONG, 1), ("def double(:", 3),
     ("from course_lib import comm\ndef double(tensor, group):\n"
      "    comm.send = print\n    return 2 * tensor\n", 5)],
)  # fmt: skip
def test_exit_codes(course: Entry, text: str, code: int) -> None:
    course.path.write_text(text)
    assert cli.main(["grade", "double"]) == code


def test_a_wrong_name_is_told_the_near_one(
    course: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["grade", "duoble"]) == 2
    assert capsys.readouterr().err == (
        "course: asked: the exercise 'duoble'\n"
        "  found: no exercise of that name\n"
        "  why: did you mean double?\n"
    )


@pytest.mark.parametrize("words", [["grade"], ["grade", "double", "--all"], ["nothing"], []])
def test_wrong_usage(course: Entry, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["grade", "double", "--file", "nowhere.py"],
        ["grade", "double", "--file", "."],
        ["grade", "double", "--json", "a-folder"],
        ["grade", "double", "--json", "a-file/out.json"],
        ["grade", "double", "--junit", "a-folder"],
        ["class", "nowhere"],
        ["class", "a-folder", "--secret-file", "nowhere"],
        ["export", "gradescope", "a-file/out.zip", "--exercises", "double"],
    ],
    ids=" ".join,
)
def test_a_wrong_path_is_wrong_usage(
    course: Entry, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a-folder", "ann").mkdir(parents=True)
    Path("a-file").touch()
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("course: ") and "Traceback" not in said


def test_an_earlier_result_is_never_shown(course: Entry) -> None:
    assert cli.main(["grade", "double", "--json", "out.json"]) == 0
    assert cli.main(["grade", "duoble", "--json", "out.json"]) == 2
    assert not Path("out.json").exists()


def test_the_card_is_shown_before_the_progress_is_written(
    course: Entry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (course.root / ".course").write_text("a file in its place")
    assert cli.main(["grade", "double"]) == 0
    said = capsys.readouterr()
    assert "3 of 3 points" in said.out
    assert "not written down" in said.err


def test_json_and_junit(course: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    course.path.write_text(WRONG)
    assert cli.main(["grade", "--all", "--json", "out.json", "--junit", "out.xml"]) == 1
    data = json.loads(Path("out.json").read_text())
    card = data["exercises"][0]
    assert (card["schema"], card["status"], card["score"]) == ("course-grade/1", "failed", 1)
    assert [check["state"] for check in card["checks"]] == ["failed", "passed"]
    tree = ElementTree.parse("out.xml").getroot()
    assert tree[0].attrib["failures"] == "1"
    assert "0 of 1 exercises in full, 1 of 3 points" in capsys.readouterr().out


def test_json_alone_on_standard_output(course: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", "double", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "full"


def test_json_is_written_after_every_check(course: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(cli, "write_json", lambda path, data: seen.append(data))
    cli.main(["grade", "double", "--json", "out.json"])
    states = [[check["state"] for check in data["checks"]] for data in seen]
    assert ["passed", "not_run"] in states
    assert states[-1] == ["passed", "passed"]
    assert [data["status"] for data in seen][0] == "running"


def test_the_solution_is_shown_once_it_is_earned(
    course: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["solution", "double"]) == 2
    assert "not solved yet" in capsys.readouterr().err
    assert cli.main(["solution", "double", "--anyway"]) == 0
    assert cli.main(["grade", "double"]) == 0
    capsys.readouterr()
    assert cli.main(["solution", "double"]) == 0
    assert capsys.readouterr().out == SOLUTION


def test_reset_keeps_what_was_there(course: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    course.path.write_text(WRONG)
    assert cli.main(["reset", "double"]) == 0
    assert 'NotImplementedError("double: write your answer here")' in course.path.read_text()
    kept = course.root / ".course" / "backup" / "99_test" / "double.1.py"
    assert kept.read_text() == WRONG
    course.path.write_text(RIGHT)
    cli.main(["reset", "double"])
    assert kept.read_text() == WRONG
    assert kept.with_name("double.2.py").read_text() == RIGHT


def test_hints_and_progress(course: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["hint", "double"])
    cli.main(["hint", "double"])
    assert "hint 2 of 3: Add it to itself." in capsys.readouterr().out
    cli.main(["grade", "double"])
    cli.main(["progress"])
    assert "1/1 core" in capsys.readouterr().out
    cli.main(["list"])
    assert "double" in capsys.readouterr().out


def test_build_never_overwrites_work(course: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dev", "build"]) == 0
    assert "kept" in capsys.readouterr().out
    assert course.path.read_text() == RIGHT
    cli.main(["dev", "build", "--force"])
    assert "written" in capsys.readouterr().out
    cli.main(["dev", "build"])
    assert "unchanged" in capsys.readouterr().out


def test_build_knows_an_untouched_starter(
    course: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["dev", "build", "--force"])
    course.solution.write_text(SOLUTION.replace("BEGIN SOLUTION", "BEGIN SOLUTION: again"))
    capsys.readouterr()
    assert cli.main(["dev", "build"]) == 0
    assert "written" in capsys.readouterr().out and "again" in course.path.read_text()
    course.path.write_bytes(b"\xff mine")
    cli.main(["dev", "build"])
    assert "kept" in capsys.readouterr().out and course.path.read_bytes() == b"\xff mine"


def test_the_environment_says_where_the_course_is(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do notebooks under test grade starters, whatever a reader has written."""
    monkeypatch.setenv("COURSE_ROOT", str(untouched))
    entry = find("hello_mesh")
    assert entry.path.read_text() == build.starter_text(entry)
    assert not Progress(entry.root).records()
    assert find("hello_mesh", PACKAGE.parent).root == PACKAGE.parent


@pytest.mark.slow
def test_zoo_and_mutate(course: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    course.mutants.parent.mkdir(parents=True)
    course.mutants.write_text(ANSWERS)
    assert cli.main(["dev", "zoo"]) == 1
    out = capsys.readouterr().out
    assert "✓ double: mutant   square.py" in out
    assert "✗ double: mutant   wrongly_named.py" in out and "1 of 4 verdicts are wrong" in out
    assert cli.main(["dev", "zoo", "double", "square"]) == 0
    out = capsys.readouterr().out
    assert "mutant   square.py" in out and "0 of 1 verdicts are wrong" in out
    assert cli.main(["dev", "zoo", "double", "cube"]) == 2
    assert "found: 3 others in grading/mutants/99_test/double.py" in capsys.readouterr().err
    assert cli.main(["dev", "zoo", "--right", "--seeds", "0-1,5", "--jobs", "2", "double"]) == 0
    out = capsys.readouterr().out
    assert [line.split("seed ")[1] for line in out.splitlines()[:-1]] == [
        f"{seed}  full" for seed in (0, 1, 5)
    ]
    assert "mutant" not in out and "0 of 3 verdicts are wrong" in out
    assert cli.main(["dev", "mutate", "double", "--most", "3"]) == 0
    assert "killed" in capsys.readouterr().out


def test_an_author_looks_at_an_answer(course: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    course.mutants.parent.mkdir(parents=True)
    course.mutants.write_text(ANSWERS)
    assert cli.main(["dev", "show", "double", "square"]) == 0
    assert capsys.readouterr().out == SOLUTION.replace("2 * tensor", "tensor * tensor")
    assert cli.main(["dev", "show", "double"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["solution  double", "mutant    square", "mutant    wrongly_named"]
    assert cli.main(["dev", "show", "double", "cube"]) == 2
    assert "found: 3 others in grading/mutants/99_test/double.py" in capsys.readouterr().err


@pytest.mark.slow
def test_the_users_pytest_options_are_not_the_graders(
    course: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p nothing_of_that_name --collect-only")
    monkeypatch.setenv("PYTEST_PLUGINS", "nothing_of_that_name")
    with Grader() as own:  # its preloaded process starts with these
        assert own.grade(course).status == "full"


def test_watch_grades_on_save(
    course: Entry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = threading.Event()

    class Once(Grader):
        def grade(self, entry: Entry, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            card = super().grade(entry)
            card.interrupted = True
            graded.set()
            return card

    server = cli.Grader()._server()
    monkeypatch.setattr(cli, "Grader", lambda: Once(lambda: server))

    def save() -> None:
        while not graded.is_set():
            course.path.write_text(WRONG + "# saved\n" * (time.monotonic_ns() % 7))
            time.sleep(0.5)

    saver = threading.Thread(target=save)
    saver.start()
    assert cli.main(["watch", "double"]) == 130
    saver.join()
    assert "double · Twice as much" in capsys.readouterr().out


def test_the_command_as_a_process(tmp_path: Path, untouched: Path) -> None:
    """From the shell, without any set-up: the real starter fails with its friendly card."""
    command = [sys.executable, "-m", "course_lib.grade.cli", "grade", "ring_all_reduce"]
    starter = untouched / "exercises" / "01_collectives" / "ring_all_reduce.py"
    done = subprocess.run(
        [*command, "--file", str(starter), "--json", str(tmp_path / "card.json")],
        cwd=PACKAGE.parent, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Nothing is written yet" in done.stdout
    assert done.stderr == ""
    assert json.loads((tmp_path / "card.json").read_text())["status"] == "not_written"


def test_a_terminal_without_stars(tmp_path: Path) -> None:
    """In a locale of ASCII alone the list stays a list."""
    done = subprocess.run(
        [sys.executable, "-m", "course_lib.grade.cli", "list"],
        cwd=PACKAGE.parent, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("? 00_ranks")


@pytest.mark.slow
def test_half_an_answer_gets_its_points(tmp_path: Path) -> None:
    """The first function is written, the second not: the card shows both."""
    solution = PACKAGE.parent / "solutions" / "06_tensor_parallel" / "f_and_g.py"
    done, begin, rest = solution.read_text().partition("        # BEGIN SOLUTION: g forward\n")
    half = tmp_path / "half.py"
    error = 'NotImplementedError("f_and_g: g forward")'
    half.write_text(f"{done}{begin}        raise {error}\n{rest}")
    command = [sys.executable, "-m", "course_lib.grade.cli", "grade", "f_and_g", "--file"]
    graded = subprocess.run(
        [*command, str(half)], cwd=PACKAGE.parent, capture_output=True, text=True, timeout=60
    )
    said = graded.stdout
    assert graded.returncode == 1 and "✓ 1." in said
    assert "Not all is written yet" in said and "Nothing" not in said
