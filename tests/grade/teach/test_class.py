"""A class of submissions, some of them hostile: everybody gets the marks that are due, no more."""

from __future__ import annotations

import csv
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from course_lib.grade import cli
from course_lib.grade.catalog import Entry
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card
from course_lib.grade.teach import commands
from course_lib.grade.teach.handed_in import LARGEST, NotTaken, Submission, submissions
from course_lib.grade.teach.imported import Imported
from course_lib.grade.teach.seed import read_secret, seed_of
from course_lib.ranks import ForkServer
from course_lib.trace import Refusal

RIGHT = "def double(tensor, group):\n    return tensor + tensor\n"
WRONG = "def double(tensor, group):\n    return tensor\n"
PLACE = "exercises/99_test/double.py"


@pytest.fixture
def school(double: Entry, server: ForkServer, tmp_path_factory: pytest.TempPathFactory,
           monkeypatch: pytest.MonkeyPatch) -> Path:  # fmt: skip
    """An empty class of a course with one exercise, worth 3 points."""
    monkeypatch.chdir(double.root)
    monkeypatch.setattr(commands, "ForkServer", lambda: nullcontext(server))
    monkeypatch.setattr(cli, "Grader", lambda: Grader(lambda: server))
    (double.root / "solutions").mkdir()
    (double.root / "solutions" / "double.py").write_text(RIGHT)
    folder = tmp_path_factory.mktemp("term") / "class"
    folder.mkdir()
    return folder


def hand_in(school: Path, student: str, text: str | bytes, place: str = PLACE) -> Path:
    path = school / student / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def marks(school: Path) -> dict[str, dict[str, str]]:
    with (school.with_name("class.grades") / "marks.csv").open() as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def grades(school: Path, student: str) -> dict[str, Any]:
    path = school.with_name("class.grades") / student / "grades.json"
    return dict(json.loads(path.read_text()))


def body(text: str, imports: str = "") -> str:
    lines = "\n".join("    " + line for line in text.splitlines())
    return f"{imports}\n\ndef double(tensor, group):\n{lines}\n"


# student -> (what is handed in, points, status, words of the feedback)
CLASS: dict[str, tuple[str, int, str, str]] = {
    "right": (RIGHT, 3, "full", "All checks passed"),
    "another way": (body("return tensor.mul(2)"), 3, "full", "All checks passed"),
    "prints": (body("print('100 of 100 points')\nreturn 2 * tensor"), 3, "full", ""),
    "wrong": (body("return tensor * tensor"), 1, "failed", "this is the square"),
    "syntax": ("def double(:\n", 0, "no_load", "not valid Python"),
    "empty": ("", 0, "no_load", "does not define"),
    "exits": (body("os._exit(0)", "import os"), 0, "failed", "the process was ended"),
    "loops": (body("while True:\n    pass"), 0, "failed", "last seen in line 4"),
    "patches pytest": (
        body("pytest.main = lambda *_, **__: 0\nrunner.call_runtest_hook = None\nreturn tensor",
             "import pytest\nfrom _pytest import runner"), 1, "failed", "the result"),
    "patches comm": (
        body("return 2 * tensor", "from course_lib import comm\ncomm.send = print"),
        0, "tampered", "tampering"),
    "rewrites the suite": (
        body("open(r'{suite}', 'w').write('')\nreturn 2 * tensor"), 0, "tampered", "tampering"),
    "reads the solution": (
        body("print(open(r'{solution}').read())\nreturn 2 * tensor"), 0, "tampered", "tampering"),
    "reads the neighbour": (
        body("exec(open(r'{neighbour}').read(), globals())\nreturn double(tensor, group)"),
        0, "tampered", "tampering"),
    "writes a result": (
        body("open(r'{result}', 'w').write('full')\nreturn tensor"), 0, "tampered", "tampering"),
}  # fmt: skip


@pytest.fixture
def graded(school: Path, double: Entry) -> Iterator[tuple[Path, int]]:
    """The class above, and what cannot be graded at all; with the exit code."""
    out = school.with_name("class.grades")
    names = {"suite": double.suite, "solution": double.root / "solutions" / "double.py",
             "neighbour": school / "right" / PLACE,
             "result": out / "right" / "grades.json"}  # fmt: skip
    for student, (text, *_) in CLASS.items():
        for name, path in names.items():
            text = text.replace("{" + name + "}", str(path))
        hand_in(school, student, text)
    hand_in(school, "latin", "# Müller\n".encode("latin-1") + RIGHT.encode())
    hand_in(school, "huge", RIGHT + "#" * LARGEST)
    hand_in(school, "claims", "3 of 3", "results.json")
    (school / "folder" / PLACE).mkdir(parents=True)
    for student, target in (("link", names["neighbour"]), ("up", school / "right" / "exercises")):
        (school / student).mkdir()
        place = school / student / (PLACE if student == "link" else "exercises")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    pipe = hand_in(school, "pipe", "")
    pipe.unlink()
    os.mkfifo(pipe)
    os.mkfifo(school / "zipped pipe.zip")
    yield school, cli.main(["class", str(school)])


def test_everybody_gets_what_is_due(graded: tuple[Path, int], double: Entry) -> None:
    school, code = graded
    table = marks(school)
    for student, (_, points, status, words) in CLASS.items():
        card = grades(school, student)["exercises"][0]
        assert (student, card["status"], card["score"]) == (student, status, points)
        assert table[student]["score"] == table[student]["double"] == str(points)
        feedback = (school.with_name("class.grades") / student / "feedback.txt").read_text()
        assert words in feedback, feedback
    for student, why in (("claims", "not handed in"), ("latin", "utf-8"), ("huge", "larger than"),
                         ("folder", "a folder"), ("link", "is a link"), ("pipe", "not a file"),
                         ("zipped pipe", "not a file"),
                         ("up", "out of the submission")):  # fmt: skip
        card = grades(school, student)["exercises"][0]
        assert (student, card["status"], card["score"]) == (student, "no_load", 0)
        assert why in card["fault"]["message"], card["fault"]
    assert code == 5
    with (school.with_name("class.grades") / "look_at.csv").open() as file:
        odd = {row["student"]: row["why"] for row in csv.DictReader(file)}
    not_taken = {"huge", "folder", "link", "up", "pipe", "zipped pipe"}
    assert set(odd) == not_taken | {name for name, row in CLASS.items() if row[2] == "tampered"}
    assert "tried to read" in odd["reads the neighbour"]
    assert "tried to change" in odd["writes a result"]
    assert double.suite.stat().st_size > 500
    secret = "return tensor + tensor"  # the neighbour's file appears in nobody else's result
    for path in school.with_name("class.grades").rglob("*"):
        assert path.is_dir() or secret not in path.read_text()


def test_what_was_handed_in_and_not_taken_is_said(
    school: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_in(school, "ann", RIGHT)
    hand_in(school, "fay", RIGHT, "src/Double (1).py")
    with zipfile.ZipFile(school / "gil.zip", "w") as archive:
        archive.writestr("work/my-double.py", RIGHT)
        archive.writestr("work/other.py", RIGHT)
    for name in ("cyd.zip", "dan_double.py", "eve.tar.gz", ".DS_Store"):
        (school / name).write_bytes(b"no zip")
    cli.main(["class", str(school)])
    said = capsys.readouterr().out
    with (school.with_name("class.grades") / "look_at.csv").open() as file:
        odd = {row["student"]: (row["exercise"], row["why"]) for row in csv.DictReader(file)}
    for name in ("dan_double.py", "eve.tar.gz"):
        assert odd.pop(name) == ("", "neither a folder nor a .zip file")
        assert f"not taken: {name}" in said
    assert odd.pop("fay") == ("double", "not where the file belongs: src/Double (1).py")
    assert odd.pop("gil") == ("double", "not where the file belongs: work/my-double.py")
    assert odd.pop("cyd")[0] == "double" and marks(school)["cyd"]["look at"] == "double no_load"
    assert not odd and marks(school)["ann"]["look at"] == ""


# --- resuming ------------------------------------------------------------------------------------
class Counting(Grader):
    """Counts what is really graded, and fails as it is told."""

    graded: list[str] = []
    broken: BaseException | None = None

    def grade(self, entry: Entry, path: Path | None = None, **words: Any) -> Card:
        assert path is not None
        text = path.read_text()
        if "fails here" in text and self.broken is not None:
            raise self.broken
        Counting.graded.append(text)
        return super().grade(entry, path, **words)


@pytest.fixture
def count(school: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(Counting, "graded", [])
    monkeypatch.setattr(Counting, "broken", None)
    monkeypatch.setattr(commands, "Grader", Counting)
    return Counting.graded


def test_what_is_finished_is_not_graded_again(
    school: Path, double: Entry, count: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    hand_in(school, "ada", RIGHT)
    hand_in(school, "bob", WRONG)
    hand_in(school, "cyd", "def double(:\r\n")
    assert cli.main(["class", str(school)]) == 0
    assert len(count) == 3
    before = {student: grades(school, student) for student in ("ada", "bob", "cyd")}
    hand_in(school, "bob", RIGHT)
    assert cli.main(["class", str(school)]) == 0
    assert len(count) == 4
    assert grades(school, "ada") == before["ada"] and grades(school, "cyd") == before["cyd"]
    assert (before["bob"]["score"], marks(school)["bob"]["score"]) == (1, "3")
    assert "(as before)" in capsys.readouterr().out
    double.suite.write_text(double.suite.read_text() + "\n# changed\n")
    cli.main(["class", str(school)])
    assert len(count) == 7  # another suite: everything again
    path = school.with_name("class.grades") / "ada" / "grades.json"
    path.write_text(path.read_text()[:-9])
    assert cli.main(["class", str(school)]) == 0
    assert len(count) == 8  # a damaged record is none


def test_students_graded_one_by_one_are_collected(school: Path, count: list[str]) -> None:
    """As in containers: each on its own, then the class, which grades nothing again."""
    out = ["--out", str(school.with_name("class.grades"))]
    for student in ("ada", "bob"):
        hand_in(school, student, RIGHT)
        assert cli.main(["class", str(school / student), "--student", student, *out]) == 0
    assert list(marks(school)) == ["bob"]
    assert cli.main(["class", str(school)]) == 0
    assert (len(count), list(marks(school))) == (2, ["ada", "bob"])


def test_a_crash_stops_nobody_else_and_is_tried_again(
    school: Path, count: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "broken", RuntimeError("the disk is full"))
    hand_in(school, "ada", RIGHT + "# fails here\n")
    hand_in(school, "bob", RIGHT)
    assert cli.main(["class", str(school)]) == 4
    assert (marks(school)["ada"]["double"], marks(school)["bob"]["double"]) == ("", "3")
    assert "the disk is full" in (school.with_name("class.grades") / "look_at.csv").read_text()
    monkeypatch.setattr(Counting, "broken", None)
    assert cli.main(["class", str(school)]) == 0
    assert (len(count), marks(school)["ada"]["double"]) == (2, "3")


def test_an_interrupted_class_goes_on_where_it_was(
    school: Path, count: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "broken", KeyboardInterrupt())
    for student in ("ada", "bob", "cyd"):
        hand_in(school, student, RIGHT + "# fails here\n" * (student == "bob"))
    assert cli.main(["class", str(school)]) == 130
    assert list(marks(school)) == ["ada"]
    monkeypatch.setattr(Counting, "broken", None)
    assert cli.main(["class", str(school)]) == 0
    assert (len(count), list(marks(school))) == (3, ["ada", "bob", "cyd"])


# --- what cannot be believed ---------------------------------------------------------------------
def test_a_record_without_the_seal_is_graded_anew(
    school: Path, count: list[str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of this term\n")
    command = ["class", str(school), "--secret-file", str(secret)]
    hand_in(school, "ada", WRONG)
    assert cli.main(command) == 0
    path = school.with_name("class.grades") / "ada" / "grades.json"
    data = grades(school, "ada")
    data["exercises"][0]["score"] = 3
    path.write_text(json.dumps(data))
    assert cli.main(command) == 0
    assert (len(count), marks(school)["ada"]["score"]) == (2, "1")
    assert "not as it was written" in look_at(school)
    assert cli.main(command) == 0
    assert len(count) == 2 and "not as it was written" not in look_at(school)


def test_a_container_needs_no_secret(school: Path, count: list[str], tmp_path: Path) -> None:
    """It gets the seed; what it has graded is sealed outside, when it is collected."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of this term\n")
    hand_in(school, "ada", RIGHT)
    out = ["--out", str(school.with_name("class.grades"))]
    seed = str(seed_of("ada", b"a secret of this term"))
    assert cli.main(["class", str(school / "ada"), "--student", "ada", "--seed", seed, *out]) == 0
    assert "seal" not in grades(school, "ada")
    command = ["class", str(school), "--secret-file", str(secret)]
    assert cli.main([*command, "--collect"]) == 0
    assert (len(count), len(grades(school, "ada")["seal"])) == (1, 64)
    assert cli.main(command) == 0
    assert len(count) == 1


def test_code_that_changes_stops_the_class(
    school: Path, double: Entry, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    class Changing(Grader):
        def grade(self, entry: Entry, path: Path | None = None, **words: Any) -> Card:
            (double.root / "grading" / "new.py").write_text("x = 1")
            return super().grade(entry, path, **words)

    monkeypatch.setattr(commands, "Grader", Changing)
    for student in ("ada", "bob"):
        hand_in(school, student, RIGHT)
    assert cli.main(["class", str(school)]) == 5
    assert list(marks(school)) == ["ada"]
    assert "grading/new.py" in look_at(school) and "stopped" in capsys.readouterr().out


def test_bytecode_that_appears_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    old, new = (tmp_path / "__pycache__" / f"{name}.pyc" for name in ("old", "new"))
    old.write_bytes(b"as it was")
    code = Imported([tmp_path])
    new.write_bytes(b"planted")
    old.write_bytes(b"another")
    assert code.changed() == []
    assert not new.exists() and not old.exists()
    (tmp_path / "planted.py").touch()
    assert code.changed() == [str(tmp_path / "planted.py")]


def look_at(school: Path) -> str:
    return (school.with_name("class.grades") / "look_at.csv").read_text()


# --- seeds ---------------------------------------------------------------------------------------
def test_a_seed_for_each_student_that_repeats(school: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of this term\n")
    hand_in(school, "ada", RIGHT)
    hand_in(school, "bob", RIGHT)
    assert cli.main(["class", str(school), "--secret-file", str(secret)]) == 0
    seeds = [grades(school, student)["seed"] for student in ("ada", "bob")]
    assert seeds == [seed_of(student, b"a secret of this term") for student in ("ada", "bob")]
    card = grades(school, "ada")["exercises"][0]
    file = str(school / "ada" / PLACE)
    again = ["grade", "double", "--file", file, "--seed", str(seeds[0]), "--json", "again.json"]
    assert cli.main(again) == 0
    repeated = json.loads(Path("again.json").read_text())
    assert (repeated["seed"], repeated["source"]) == (seeds[0], card["source"])


def test_seeds_are_hmac() -> None:
    """The numbers are written down, since old verdicts are repeated with them."""
    assert seed_of("ada", b"0123456789abcdef") == 145061237882954
    assert seed_of("ada", b"0123456789abcdeF") != 145061237882954
    assert len({seed_of(f"s{n}", b"0123456789abcdef") for n in range(1000)}) == 1000


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1234\n")
    with pytest.raises(Refusal, match="4 bytes"):
        read_secret(tmp_path / "secret")


# --- what is handed in ---------------------------------------------------------------------------
def read(path: Path, entry: Entry) -> bytes | None:
    with Submission("ada", path).opened() as file_of:
        return file_of(entry)


@pytest.mark.parametrize("place", [PLACE, "99_test/double.py", "double.py",
                                   f"term-main/{PLACE}", "term-main/double.py"])  # fmt: skip
@pytest.mark.parametrize("form", ["folder", "zip"])
def test_where_a_file_may_lie(double: Entry, tmp_path: Path, place: str, form: str) -> None:
    base = tmp_path / "handed_in"
    path = hand_in(base, "ada", RIGHT, place)
    hand_in(base, "ada", "1", ".vscode/settings.json")
    found = base / "ada"
    if form == "zip":
        with zipfile.ZipFile(base / "ada.zip", "w") as archive:
            archive.write(path, place)
            archive.writestr("__MACOSX/._double.py", b"junk")
        found = base / "ada.zip"
    assert read(found, double) == RIGHT.encode()


def test_starters_and_copies_are_not_taken_for_answers(double: Entry, tmp_path: Path) -> None:
    for place in ("exercises/.starters/99_test/double.py", ".course/passed/99_test/double.py"):
        hand_in(tmp_path / "class", "ada", RIGHT, place)
    assert read(tmp_path / "class" / "ada", double) is None


def damaged(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04 and then nothing")


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("double.py", b" " * (64 << 20))


def packed_hard(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("double.py", b" " * (64 << 20))


def outwards(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../double.py", RIGHT)


@pytest.mark.parametrize(("make", "why"), [(damaged, "cannot be read"), (bomb, "larger than"),
                                           (packed_hard, "not usual"), (outwards, "")])  # fmt: skip
def test_zip_files(double: Entry, tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "ada.zip")
    if not why:
        assert read(tmp_path / "ada.zip", double) is None
        return
    with pytest.raises(NotTaken, match=why):
        read(tmp_path / "ada.zip", double)


def test_a_zip_file_is_opened_once(
    double: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as archive:
        archive.writestr("double.py", RIGHT)
    opened = []

    class Counted(zipfile.ZipFile):
        def __init__(self, file: Any) -> None:
            opened.append(file)
            super().__init__(file)

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    with Submission("ada", tmp_path / "ada.zip").opened() as file_of:
        assert [file_of(double) for _ in range(3)] == [RIGHT.encode()] * 3
    assert len(opened) == 1


def test_a_zip_file_that_lists_too_many_files(double: Entry, tmp_path: Path) -> None:
    count, kind = 180_000, b"PK\1\2" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"x"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFE, 0xFFFE, count * len(kind), 0, 0)
    (tmp_path / "ada.zip").write_bytes(kind * count + end)
    with pytest.raises(NotTaken, match="lists too many files"):
        read(tmp_path / "ada.zip", double)


def test_a_name_that_is_no_folders(tmp_path: Path) -> None:
    for name in ("\x01" * 200, "ann\nbob"):
        (tmp_path / name).mkdir()
    long, lines = (each.student for each in submissions(tmp_path))
    (tmp_path / long).mkdir()
    assert lines == "ann\\nbob"


def test_who_is_in_the_class(tmp_path: Path) -> None:
    for name in ("bob", "ada", ".git", "__MACOSX"):
        (tmp_path / name).mkdir()
    (tmp_path / "cyd.zip").touch()
    (tmp_path / "list.csv").touch()
    assert [each.student for each in submissions(tmp_path)] == ["ada", "bob", "cyd"]
    os.mkdir(os.fsencode(tmp_path) + b"/dot\xff\x1b[2J")
    assert submissions(tmp_path)[-1].student == "dot\\udcff\\x1b[2J"
    (tmp_path / "look_at.csv").mkdir()
    with pytest.raises(Refusal, match="called look_at.csv"):
        submissions(tmp_path)
    (tmp_path / "look_at.csv").rmdir()
    (tmp_path / "ada.zip").touch()
    with pytest.raises(Refusal, match="two submissions of ada"):
        submissions(tmp_path)


@pytest.mark.parametrize("words", [["nowhere"], ["class", "--out", "class/out"],
                                   ["class", "--out", "."], ["class", "--student", "../ada"],
                                   ["class", "--exercises", "triple"], ["class"]])  # fmt: skip
def test_what_is_refused(school: Path, words: list[str], capsys: pytest.CaptureFixture[str],
                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    if len(words) > 1:
        hand_in(school, "ada", RIGHT)
    monkeypatch.chdir(school.parent)
    assert cli.main(["class", *words]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and len(said.strip().splitlines()) in (1, 3)


# --- files for other programs --------------------------------------------------------------------
def test_tables_and_junit(school: Path) -> None:
    hand_in(school, "=1+1", WRONG)
    cli.main(["class", str(school)])
    out = school.with_name("class.grades")
    assert (out / "marks.csv").read_text() == (
        "student,seed,score,points,double,look at\n'=1+1,0,1,3,1,\n"
    )
    assert (out / "look_at.csv").read_text() == "student,exercise,status,why\n"
    assert ElementTree.parse(out / "=1+1" / "junit.xml").getroot()[0].attrib["failures"] == "1"
