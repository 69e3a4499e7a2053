"""Starters from solutions: what lies between two marks is cut out, and an error stands there."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import textwrap
from pathlib import Path

from course_lib.grade.catalog import Entry, entries
from course_lib.grade.report import write_atomically
from course_lib.trace import Refusal

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
EQUIVALENT = "# mutate: same"  # a line with this comment is left alone by `course dev mutate`
GIVEN = "#:"
WIDTH = 100
DIGESTS = "exercises/starters.sha256"
BLOCK = re.compile(rf"^(?P<indent>[ \t]*){BEGIN}[^\n]*\n.*?^[ \t]*{END}[^\n]*\n", re.M | re.S)


class BuildError(ValueError):
    """A solution that no starter can be made of."""


def starter(entry: Entry) -> str:
    """The starter's text, made of the solution.

    Every block becomes a `NotImplementedError` that names the exercise, and, where a block has text
    after its mark (`# BEGIN SOLUTION: the second pass`), that text. A block whose lines in part
    begin with `#:` becomes those lines instead: code with a fault, for the reader to repair. Marks
    for `course dev mutate` go: they would tell a reader nothing.

    Raises:
        BuildError: the solution has no block, or one that does not end.
    """
    text = entry.solution.read_text(encoding="utf-8")
    found = BLOCK.findall(text)
    if not found or len(found) != text.count(BEGIN) or len(found) != text.count(END):
        raise BuildError(f"{entry.solution.name} needs pairs of {BEGIN!r} and {END!r}")

    def replace(match: re.Match[str]) -> str:
        first, *lines = match.group(0).splitlines()
        given = [line for line in lines if line.lstrip().startswith(GIVEN)]
        if given:
            return "".join(re.sub(rf"{GIVEN} ?", "", line, count=1) + "\n" for line in given)
        note = first.partition(BEGIN)[2].strip(" :") or "write your answer here"
        return f'{match["indent"]}raise NotImplementedError("{entry.name}: {note}")\n'

    text = re.sub(rf" *{re.escape(EQUIVALENT)}$", "", BLOCK.sub(replace, text), flags=re.M)
    return _with_rules(text, entry.exercise.allowed)


def _with_rules(text: str, allowed: str) -> str:
    """The starter with a last paragraph in its docstring, if it has one: what answers may use."""
    tree = ast.parse(text)
    if ast.get_docstring(tree) is None:
        return text
    docstring, lines = tree.body[0], text.splitlines(keepends=True)
    end = (docstring.end_lineno or 1) - 1  # the line with the closing quotes
    last = lines[end].rstrip().removesuffix('"""')
    rules = textwrap.fill(allowed, WIDTH, break_long_words=False, break_on_hyphens=False)
    lines[end] = f'{last}\n\n{rules}\n"""\n' if last else f'\n{rules}\n"""\n'
    return "".join(lines)


def starter_text(entry: Entry) -> str:
    """The starter, made from the solution; a student's copy of the course has it as a file.

    Raises:
        Refusal: there is neither.
    """
    if entry.solution.exists():
        return starter(entry)
    if entry.starter.exists():
        return entry.starter.read_text(encoding="utf-8")
    raise Refusal(
        f"the starter of {entry.name}",
        "neither it nor the solution here",
        "a starter is made from its solution",
    )


def untouched_course(root: Path, folder: Path) -> Path:
    """Makes the course as nobody has worked on it: fresh starters, no progress, links to the rest.

    Args:
        root: the course.
        folder: an empty folder for it; it is returned.
    """
    for source in root.resolve().iterdir():
        if source.name not in ("exercises", ".course"):
            (folder / source.name).symlink_to(source)
    for entry in entries(root):
        place = folder / entry.path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(starter_text(entry), encoding="utf-8")
    return folder


def is_given(text: str) -> bool:
    """Whether a starter is code to repair: it runs and is wrong, where others are not written."""
    return "raise NotImplementedError(" not in text


def build(entry: Entry, *, force: bool = False) -> str:
    """Writes the starter to the learner's place.

    Args:
        entry: the exercise.
        force: overwrite a file that is neither missing nor the starter.

    Returns:
        `written`, `unchanged`, or `kept` for a file that somebody has worked on. The starter's
        digest is noted in any case.
    """
    text = starter(entry)
    there = entry.path.read_bytes() if entry.path.is_file() else b""
    untouched = not there or digest(there) == known_digests(entry.root).get(entry.place)
    _note_digest(entry, digest(text.encode("utf-8")))
    if there == text.encode("utf-8"):
        return "unchanged"
    if not (untouched or force):
        return "kept"
    write_atomically(entry.path, text)
    return "written"


# --- which files are starters that nobody has worked on ------------------------------------------
def known_digests(root: Path) -> dict[str, str]:
    """File in `exercises` to the SHA-256 of its starter, as `sha256sum -c starters.sha256` reads.

    The list is committed with the starters: by it, a reader's work is known from a starter that
    is not the one that its solution makes.
    """
    path = root / DIGESTS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: value for value, name in (line.split("  ", 1) for line in lines)}


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _note_digest(entry: Entry, value: str) -> None:
    known = known_digests(entry.root) | {entry.place: value}
    lines = [f"{each}  {name}\n" for name, each in sorted(known.items())]
    write_atomically(entry.root / DIGESTS, "".join(lines))


# --- the learner's file --------------------------------------------------------------------------
def back_up(entry: Entry) -> Path | None:
    """Copies the learner's file to `.course/backup`, under the next free number."""
    if not entry.path.exists():
        return None
    folder = entry.root / ".course" / "backup" / entry.lesson
    folder.mkdir(parents=True, exist_ok=True)
    taken = [path.name.split(".")[-2] for path in folder.glob(f"{entry.name}.*.py")]
    number = 1 + max((int(text) for text in taken if text.isdecimal()), default=0)
    copy = folder / f"{entry.name}.{number}.py"
    shutil.copyfile(entry.path, copy)
    return copy


def save_answer(entry: Entry, text: str) -> Path | None:
    """Writes the learner's file; returns the backup of what was there, if that was another text."""
    data, old = text.encode("utf-8"), None
    if entry.path.exists() and entry.path.read_bytes() != data:
        old = back_up(entry)
    write_atomically(entry.path, text)
    return old
