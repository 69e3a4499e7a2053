"""Grading inside the notebook: %grade, %%grade, %hint, %progress and %doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import display

from course_lib.grade.author.build import save_answer
from course_lib.grade.catalog import (
    Entry,
    checkout,
    entries,
    find,
    find_root,
)
from course_lib.grade.cli import hint_text
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_html, as_text, progress
from course_lib.grade.report.progress import Progress
from course_lib.ranks.doctor import Report, examine
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.trace import Refusal


class Shown:
    """Something with a text and an HTML form.

    Args:
        text: for terminals and for comparing runs.
        html: for the notebook.
    """

    def __init__(self, text: str, html: str) -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


@magics_class
class GradeMagics(Magics):
    """The magics of the grader.

    Args:
        shell: the running IPython.
        server_factory: returns a live preloaded process; None lets the grader start its own.
    """

    def __init__(self, shell: Any, server_factory: Callable[[], ForkServer] | None = None) -> None:
        super().__init__(shell)
        self._grader = Grader(server_factory)
        self._server_factory = server_factory

    @line_magic("grade")
    def grade(self, line: str) -> None:
        """%grade NAME: grades the exercise's file."""
        entry = _entry("%grade", line)
        if entry is not None:
            self._grade(entry)

    @cell_magic("grade")
    def grade_cell(self, line: str, cell: str) -> None:
        """%%grade NAME: saves the cell as the exercise's file, whole, and grades it."""
        entry = _entry("%%grade", line)
        if entry is None:
            return
        try:
            kept = save_answer(entry, cell if cell.endswith("\n") else cell + "\n")
        except (OSError, UnicodeEncodeError) as error:
            print(f"The cell was not saved as {entry.path.name}, and not graded: {error}")
            return
        self._grade(entry)
        if kept is not None:
            print(f"The file that was there is kept as {kept.relative_to(entry.root)}.")

    @line_magic("hint")
    def hint(self, line: str) -> None:
        """%hint NAME: one more hint."""
        entry = _entry("%hint", line)
        if entry is not None:
            print(hint_text(entry))

    @line_magic("progress")
    def progress(self, line: str) -> Shown | None:
        """%progress: what is done."""
        try:
            return progress_table()
        except Refusal as error:
            print(error)
            return None

    @line_magic("doctor")
    def doctor(self, line: str) -> Report:
        """%doctor: whether the course can run here, and what to do if not."""
        server = self._server_factory() if self._server_factory else None
        return examine(checkout(), server)

    def _grade(self, entry: Entry) -> None:
        """Shows the card, and then enters it: a record that cannot be kept costs nobody a card."""
        card = self._grader.grade(entry)
        _show(card)
        if warning := Progress(entry.root).enter(card):
            print(warning)


def progress_table() -> Shown:
    """The way so far, for notebook 00."""
    known, record = entries(), Progress(find_root())
    return Shown(progress.as_text(known, record), progress.as_html(known, record))


def _entry(magic: str, line: str) -> Entry | None:
    """The exercise named in a magic's line; None, with a sentence printed, if there is none."""
    if not line.strip():
        print(f"Which exercise? As in: {magic} ring_all_reduce")
        return None
    try:
        return find(line.strip())
    except Refusal as error:
        print(error)
        return None


def _show(card: Card) -> None:
    text = as_text(card, hint="%hint")
    display(Shown(text, as_html(card, hint="%hint")))


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext course_lib.grade.magic`; shares the process that `%%ranks` has preloaded."""
    factory = getattr(shell, "course_server", None)
    shell.register_magics(GradeMagics(shell, factory))
