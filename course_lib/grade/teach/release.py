"""The students' copy of the course: all that `make lab` and grading need, and no answer.

Only what is named here is copied, so that nothing of the instructor's gets out by being new.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_lib.grade.author import build
from course_lib.grade.catalog import Entry, entries
from course_lib.grade.report import github
from course_lib.grade.teach.hide import visible
from course_lib.trace import Refusal

FOLDERS = (
    "course_lib",
    "grading",
    "notebooks",
    "benchmarks",
    "tests",
    "docs",
    "examples",
    "binder",
    ".devcontainer",
)
FILES = (
    "README.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "LICENSE",
    "Makefile",
    "Dockerfile",
    "install.py",
    "requirements.txt",
    "constraints.txt",
    "pyproject.toml",
    "conftest.py",
    ".gitignore",
    ".dockerignore",
    ".pre-commit-config.yaml",
)
NEVER = {"__pycache__", ".ipynb_checkpoints", ".course", ".git", ".pytest_cache"}
NOTEBOOK = re.compile(r"(\d|A)\d_\w+\.ipynb")  # the course's; an instructor's have other names
FOR_INSTRUCTORS = "](INSTRUCTORS.md"
ANSWERS = ("solutions", "mutants")  # a test that speaks of these cannot run without them


def release(root: Path, target: Path) -> list[Entry]:
    """Writes the students' copy of the course in `root` to `target`, whole or not at all.

    Args:
        root: the course, with solutions.
        target: a folder that is empty or does not exist yet.

    Returns:
        The exercises of the copy, which say how many checks are hidden.

    Raises:
        Refusal: the target is no place for it, or the course has no solutions.
        SuiteError: a suite cannot do without its hidden checks.
    """
    target = Path(os.path.abspath(target))
    _refuse(root.resolve(), target)
    known = entries(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _fill(root, draft, known)
        os.rename(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return known


def _refuse(root: Path, target: Path) -> None:
    """Raises unless this course can be released into that place."""
    why = ""
    if not (root / "solutions").is_dir():
        found, why = f"{root.name} has no solutions/", "starters are made of the solutions"
    elif target.is_symlink() or (target.exists() and not target.is_dir()):
        found, why = f"{target.name} is a file or a link", "a release is a folder of its own"
    elif target.exists() and any(target.iterdir()):
        found, why = f"{target.name} is not empty", "a release never mixes with what is there"
    elif target.resolve().is_relative_to(root):
        found, why = f"{target.name} lies in the course", "the next release would hold this one"
    if why:
        raise Refusal(f"put the students' copy of the course into {target}", found, why)


def _fill(root: Path, draft: Path, known: Sequence[Entry]) -> None:
    for source in _sources(root):
        place = draft / source.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)
    for entry in known:
        starter = build.starter(entry)
        suite = visible(entry.suite.read_text(encoding="utf-8"))
        for path, text in ((entry.path, starter), (entry.starter, starter), (entry.suite, suite)):
            place = draft / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
    _without_links_for_instructors(draft / "README.md")
    workflow = draft / ".github" / "workflows" / "classroom.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(github.WORKFLOW, encoding="utf-8")


def _sources(root: Path) -> Iterator[Path]:
    """Every file that is copied as it is."""
    yield from (root / name for name in FILES if (root / name).is_file())
    for name in FOLDERS:
        for folder, inner, files in os.walk(root / name):
            inner[:] = [each for each in inner if each not in NEVER]
            yield from (path for file in files if _belongs(path := Path(folder, file), root))


def _belongs(path: Path, root: Path) -> bool:
    """Whether a file of a copied folder is the course's, and of use without the answers."""
    if path.is_symlink() or not path.is_file():
        return False  # a running kernel's sockets, for instance
    room, *inner = path.relative_to(root).parts
    if room == "notebooks" and path.suffix == ".ipynb":
        return bool(NOTEBOOK.fullmatch(path.name))
    if room == "grading":
        return inner[0] != "mutants"
    if room != "tests":
        return True
    if inner[0] in ("grade", "grading"):
        return False
    return path.suffix != ".py" or not any(w in path.read_text("utf-8") for w in ANSWERS)


def _without_links_for_instructors(readme: Path) -> None:
    lines = readme.read_text(encoding="utf-8").splitlines(keepends=True)
    readme.write_text("".join(x for x in lines if FOR_INSTRUCTORS not in x), encoding="utf-8")
