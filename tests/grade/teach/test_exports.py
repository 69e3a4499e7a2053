"""What other programs read: Gradescope's results and autograder, GitHub Classroom's points."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from course_lib.grade import cli
from course_lib.grade.catalog import PACKAGE, Entry, find, read_suite
from course_lib.grade.faults import Fault
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, github
from course_lib.grade.teach import gradescope

ROOT = PACKAGE.parent
RIGHT = "def double(tensor, group):\n    return tensor + tensor\n"
ONLY_VALUE = (
    "from course_lib.comm import all_reduce\n\n"
    "def double(tensor, group):\n    all_reduce(tensor.clone(), group)\n    return 2 * tensor\n"
)
LATER = '@check("no bytes", points=1, code="B"'


@pytest.fixture
def hiding(double: Entry) -> Entry:
    """`double`, whose second check is hidden."""
    text = double.suite.read_text()
    assert LATER in text
    double.suite.write_text(text.replace(LATER, LATER + ", hidden=True"))
    return read_suite(double.suite, double.root)


def graded(grader: Grader, entry: Entry, text: str) -> Card:
    entry.path.write_text(text)
    return grader.grade(entry)


# --- Gradescope: results.json --------------------------------------------------------------------
TOP = {"score": (int, float), "output": str, "output_format": str, "extra_data": dict,
       "tests": list}  # fmt: skip
TEST = {"name": str, "number": str, "score": (int, float), "max_score": (int, float),
        "status": str, "output": str, "output_format": str, "visibility": str}  # fmt: skip
VISIBILITY = {"hidden", "after_due_date", "after_published", "visible"}
FORMATS = {"text", "html", "simple_format", "md", "ansi"}


def follows_the_specification(data: dict[str, Any]) -> bool:
    """Every field is one of Gradescope's, of its type, and one of its words."""
    assert json.loads(json.dumps(data)) == data
    for fields, found in [(TOP, data), *((TEST, test) for test in data["tests"])]:
        assert set(found) <= set(fields)
        for name, value in found.items():
            assert isinstance(value, fields[name]), name
        assert found["output_format"] in FORMATS
    for test in data["tests"]:
        assert test["status"] in ("passed", "failed")
        assert test["visibility"] in VISIBILITY
        assert 0 <= test["score"] <= test["max_score"]
    return True


def test_a_score_for_each_check(hiding: Entry, grader: Grader) -> None:
    data = gradescope.results([graded(grader, hiding, RIGHT)], 7)
    assert follows_the_specification(data)
    assert (data["score"], data["output"], data["extra_data"]["seed"]) == (3, "", 7)
    assert [test["score"] for test in data["tests"]] == [2, 1]
    assert [test["visibility"] for test in data["tests"]] == ["visible", "after_due_date"]


def test_a_hidden_check_fails_in_silence(hiding: Entry, grader: Grader) -> None:
    data = gradescope.results([graded(grader, hiding, ONLY_VALUE)], 0)
    assert follows_the_specification(data)
    assert [(t["status"], t["visibility"]) for t in data["tests"]] == [
        ("passed", "visible"), ("failed", "after_due_date")]  # fmt: skip
    assert data["output"] == ""
    assert "bytes" in data["tests"][1]["output"]


@pytest.mark.parametrize(("text", "says"), [
    ("def double(:\n", "not valid Python"),
    ("from course_lib import comm\ncomm.send = print\n" + RIGHT, "tampering"),
    ("def double(tensor, group):\n    raise NotImplementedError('double: answer')\n", "written"),
])  # fmt: skip
def test_nothing_for_nothing(hiding: Entry, grader: Grader, text: str, says: str) -> None:
    data = gradescope.results([graded(grader, hiding, text)], 0)
    assert follows_the_specification(data)
    assert data["score"] == sum(test["score"] for test in data["tests"]) == 0
    assert says in data["output"]


def test_what_a_hidden_check_met_is_not_put_into_words(hiding: Entry) -> None:
    """An answer can raise whatever it was given, and so tell what a hidden check gives."""
    card = Card(hiding, source=RIGHT, complete=True)
    card.fault = card.checks[1].fault = Fault("not_written", "given were 7 ranks")
    card.checks[1].state = "failed"
    data = gradescope.results([card], 0)
    assert follows_the_specification(data)
    shown = [data["output"], *(t["output"] for t in data["tests"] if t["visibility"] == "visible")]
    assert "7 ranks" not in " ".join(shown) and "not written yet" in data["output"]


def test_no_score_if_the_grader_broke(hiding: Entry) -> None:
    data = gradescope.results([Card(hiding, internal="the disk is full", complete=True)], 0)
    assert follows_the_specification(data)
    assert "score" not in data
    assert "not your fault" in data["output"] and "disk" not in json.dumps(data)


# --- Gradescope: the autograder ------------------------------------------------------------------
@pytest.fixture(scope="module")
def uploaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is uploaded, as Gradescope unpacks it."""
    base = tmp_path_factory.mktemp("autograder")
    (base / "my.secret").write_text("a secret of this term")
    words = ["export", "gradescope", str(base / "upload.zip"), "--exercises", "hello_mesh",
             "--secret-file", str(base / "my.secret")]  # fmt: skip
    assert cli.main(words) == 0
    assert cli.main(words) == 2  # it is never overwritten
    for name in ("source", "submission", "results"):
        (base / name).mkdir()
    with zipfile.ZipFile(base / "upload.zip") as archive:
        assert {"setup.sh", "run_autograder"} <= set(archive.namelist())
        for info in archive.infolist():
            assert not re.search("solutions|mutants|INSTRUCTORS|__pycache__", info.filename)
            archive.extract(info, base / "source")
            os.chmod(base / "source" / info.filename, info.external_attr >> 16 & 0o777)
    return base


def test_its_scripts_are_scripts(uploaded: Path) -> None:
    for name in ("setup.sh", "run_autograder"):
        path = uploaded / "source" / name
        assert os.access(path, os.X_OK) and path.read_text().startswith("#!/usr/bin/env bash\n")
        assert subprocess.run(["bash", "-n", str(path)], timeout=20).returncode == 0
    own = (uploaded / "source" / "course" / "secret").read_text()
    assert len(own) == 64 and "a secret of this term" not in own


@pytest.mark.slow
def test_it_grades_a_submission(uploaded: Path) -> None:
    """Gradescope's folders, here; the course is the one in the upload."""
    users = {"users": [{"email": "b@x.org", "id": 2}, {"email": "a@x.org", "id": 1}]}
    (uploaded / "submission_metadata.json").write_text(json.dumps(users))
    answer = (ROOT / "solutions" / "00_ranks" / "hello_mesh.py").read_text()
    (uploaded / "submission" / "hello_mesh.py").write_text(answer)
    (uploaded / "submission" / "results.json").write_text('{"score": 1000}')
    course = uploaded / "course"
    course.write_text(f'#!/bin/sh\nexec {sys.executable} -m course_lib.grade.cli "$@"\n')
    course.chmod(0o755)
    source = uploaded / "source" / "course"
    done = subprocess.run(
        [str(uploaded / "source" / "run_autograder")], timeout=300, capture_output=True, text=True,
        env={**os.environ, "AUTOGRADER": str(uploaded), "COURSE": str(course),
             "PYTHONPATH": str(source)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads((uploaded / "results" / "results.json").read_text())
    assert follows_the_specification(data)
    assert data["score"] == find("hello_mesh").points
    record = json.loads((uploaded / "graded" / "a@x.org+b@x.org" / "grades.json").read_text())
    assert record["seed"] == data["extra_data"]["seed"] != 0


# --- GitHub Classroom ----------------------------------------------------------------------------
def test_points_for_classroom(hiding: Entry, grader: Grader, tmp_path: Path,
                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(hiding.root)
    monkeypatch.setattr(cli, "Grader", lambda: grader)
    output = tmp_path / "output"
    output.write_text("other=1\n")
    hiding.path.write_text(ONLY_VALUE)
    assert cli.main(["grade", "--all", "--classroom", str(output)]) == 1
    first, line = output.read_text().splitlines()
    assert first == "other=1"
    data = json.loads(base64.b64decode(line.removeprefix("result=")))
    assert (data["version"], data["status"], data["max_score"]) == (1, "fail", 3)
    test = data["tests"][0]
    assert set(test) == {"name", "status", "score", "message", "test_code", "filename",
                         "line_no", "duration"}  # fmt: skip
    assert (test["name"], test["status"], test["score"]) == ("double", "fail", 2)


def test_the_worst_status_is_the_step_s(hiding: Entry) -> None:
    broken = Card(hiding, internal="broke", complete=True)
    syntax = Card(hiding, fault=Fault("syntax", "bad"), complete=True)
    assert github.payload([syntax])["status"] == "fail"
    assert github.payload([syntax, broken])["status"] == "error"
    assert [test["score"] for test in github.payload([syntax, broken])["tests"]] == [0, 0]


def test_the_workflow_says_what_the_reporter_reads() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(github.WORKFLOW)["jobs"]["grade"]
    *_, grading, reporting = job["steps"]
    assert '--classroom "$GITHUB_OUTPUT"' in grading["run"]
    runner = reporting["with"]["runners"]
    assert re.fullmatch("[a-zA-Z0-9]+", runner)  # the reporter refuses any other name
    variable = f"{runner.upper()}_RESULTS"
    assert reporting["env"][variable] == f"${{{{ steps.{grading['id']}.outputs.result }}}}"
    makes = [step["run"] for step in job["steps"] if step.get("run", "").startswith("make ")]
    targets = (ROOT / "Makefile").read_text()
    assert all(f"\n{make.split()[1]}:" in targets for make in makes) and makes
