"""The way so far: what is done, kept so that it is never lost and never graded again.

`.course/progress.json` holds one record an exercise: best (points), points, attempts, finished,
hints, source (SHA-256); for an open exercise also figure, the best one.
`.course/passed/LESSON/NAME.py` is the file that passed. If the first is lost or damaged, it is set
aside and rebuilt from the second.
"""

from __future__ import annotations

import fcntl
import hashlib
import html
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from course_lib.grade.catalog import Entry
from course_lib.grade.checks import Scale
from course_lib.grade.report.card import Card, write_atomically, write_json
from course_lib.grade.report.lessons import Lesson, lesson_of
from course_lib.grade.report.words import bar_of

CHANGED = "progress.json was changed outside the grader."
# The parts of a record; hints taken before the first grading leave no source.
PARTS = {"best": int, "points": int, "attempts": int, "finished": bool, "hints": int}
LEGEND = "✓ done, ◐ begun, · not begun; ◇ an open exercise, which is measured"
BAR = 20  # characters of a full bar


class Progress:
    """The record of one course folder.

    Args:
        root: the course's folder.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root / ".course"
        self.path = self.folder / "progress.json"

    # --- reading ---------------------------------------------------------------------------------
    def records(self) -> dict[str, dict[str, Any]]:
        """Exercise to its record."""
        return dict(self._read()["exercises"])

    def is_sealed(self) -> bool:
        """Whether the file is as the grader wrote it; a hand that changed it left no seal."""
        data = self._read()
        return not data["exercises"] or data.get("seal") == _seal(data["exercises"])

    def finished(self, entry: Entry) -> bool:
        """Whether the exercise was once solved in full."""
        return bool(self.records().get(entry.name, {}).get("finished"))

    def passed_copy(self, entry: Entry) -> Path:
        """Where the copy of the file that passed lies."""
        return self.folder / "passed" / entry.lesson / f"{entry.name}.py"

    def _read(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            if all(map(_is_record, data["exercises"].values())):
                return dict(data)
            raise ValueError("a record that is none")
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
            self._set_aside()
        return {"exercises": self._from_copies()}

    def _from_copies(self) -> dict[str, dict[str, Any]]:
        """What the copies of passed files tell."""
        found = {}
        for copy in sorted((self.folder / "passed").glob("*/*.py")):
            digest = hashlib.sha256(copy.read_bytes()).hexdigest()
            found[copy.stem] = {**_empty(0), "attempts": 1, "finished": True, "source": digest}
        return found

    def _set_aside(self) -> None:
        number = len(list(self.folder.glob("progress.damaged-*.json"))) + 1
        if self.path.exists():
            os.replace(self.path, self.folder / f"progress.damaged-{number}.json")

    # --- writing ---------------------------------------------------------------------------------
    def enter(self, card: Card) -> str:
        """Enters a finished grading. The best score stays; so does what was once finished.

        Returns:
            A warning if the record could not be kept: it costs nobody the card. "" if it was.
        """
        try:
            self._enter(card)
        except OSError as error:
            return f"Your progress was not written down: {error}"
        return ""

    def _enter(self, card: Card) -> None:
        if card.score is None or card.status in ("interrupted", "running"):
            return
        full = card.status == "full"
        with self._locked() as exercises:
            old = exercises.get(card.entry.name, {})
            figure = _better(card.entry.exercise.scale, card.figure, old.get("figure"))
            if full and card.source is not None and figure == card.figure:
                write_atomically(self.passed_copy(card.entry), card.source)
            best = max(card.score, old.get("best", 0))
            better = card.score >= old.get("best", 0)
            exercises[card.entry.name] = {
                "best": best,
                "points": card.points,
                "attempts": old.get("attempts", 0) + 1,
                "finished": full or old.get("finished", False),
                "hints": old.get("hints", 0),
                "source": card.digest if better else old.get("source", ""),
            }
            if figure is not None:
                exercises[card.entry.name]["figure"] = figure

    def take_hint(self, entry: Entry) -> int:
        """Counts one more hint as shown; returns its number, from 1, and stays at the last one."""
        with self._locked() as exercises:
            record = exercises.setdefault(entry.name, _empty(entry.points))
            record["hints"] = min(record.get("hints", 0) + 1, len(entry.exercise.hints))
            return int(record["hints"])

    @contextmanager
    def _locked(self) -> Iterator[dict[str, dict[str, Any]]]:
        """The records, to be changed; written back at the end. One process at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n", encoding="utf-8")
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            exercises = self._read()["exercises"]
            yield exercises
            write_json(self.path, {"exercises": exercises, "seal": _seal(exercises)})


def _better(scale: Scale | None, *figures: float | None) -> float | None:
    """The best figure of an open exercise; None if there is none."""
    known = [figure for figure in figures if figure is not None]
    return max(known, key=scale.share) if known and scale is not None else None


def _is_record(record: Any) -> bool:
    """Whether each part is there, and of the type that the grader writes."""
    return isinstance(record, dict) and all(
        type(record.get(name)) is kind for name, kind in PARTS.items()
    )


def _empty(points: int) -> dict[str, Any]:
    return {"best": 0, "points": points, "attempts": 0, "finished": False, "hints": 0}


def _seal(exercises: dict[str, Any]) -> str:
    """Tells a changed file from an unchanged one; it is no secret and proves nothing."""
    text = "course_lib.grade.progress" + json.dumps(exercises, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


# --- pictures ------------------------------------------------------------------------------------
def rows(entries: Sequence[Entry], progress: Progress) -> list[dict[str, Any]]:
    """One row a lesson: lesson, core, core_done, count, done, and the state of each exercise.

    Open exercises are neither done nor not: they are in the states alone, as bars.
    """
    records, found = progress.records(), []
    for lesson in sorted({entry.lesson for entry in entries}):
        mine = [entry for entry in entries if entry.lesson == lesson]
        states = {entry.name: _state(entry, records.get(entry.name, {})) for entry in mine}
        core = [entry.name for entry in mine if entry.exercise.core]
        closed = [entry.name for entry in mine if entry.exercise.scale is None]
        found.append(
            {
                "lesson": lesson,
                "states": states,
                "core": len(core),
                "core_done": sum(states[name] == "done" for name in core),
                "count": len(closed),
                "done": sum(states[name] == "done" for name in closed),
            }
        )
    return found


def _state(entry: Entry, record: dict[str, Any]) -> str:
    scale = entry.exercise.scale
    if scale is not None and "figure" in record:
        return bar_of(scale.share(record["figure"]))
    if record.get("finished"):
        return "done"
    if not record.get("attempts"):
        return "not begun" if scale is None else "◇"
    score = f"{record['best']}/{entry.points}"
    return score if scale is None else f"◇ {score}"


def as_text(entries: Sequence[Entry], progress: Progress) -> str:
    """The progress as a table with bars."""
    lines = []
    for row in rows(entries, progress):
        bar = "█" * (BAR * row["core_done"] // max(1, row["core"]))
        lesson = lesson_of(row["lesson"], progress.folder.parent)
        title = lesson.title.partition(":")[0]
        lines.append(
            f"{title:<50} {bar:░<{BAR}} {row['core_done']}/{row['core']} core, "
            f"{row['done']}/{row['count']} with the extra ones"
        )
        lines += [f"    {_mark(state)} {name:<32} {state}" for name, state in row["states"].items()]
    lines += notes(entries, progress)
    return "\n".join(lines)


def notes(entries: Sequence[Entry], progress: Progress) -> list[str]:
    """What is to be said below the table."""
    hidden = sum(entry.exercise.hidden_checks for entry in entries)
    later = [f"Hidden checks, which run when this is handed in: {hidden}."] if hidden else []
    return [LEGEND, *later] + ([] if progress.is_sealed() else [CHANGED])


def _mark(state: str) -> str:
    return {"done": "✓", "not begun": "·", "◇": "·"}.get(state, "◐")


def as_html(entries: Sequence[Entry], progress: Progress) -> str:
    """The map of the course, for a notebook: lessons and exercises with links, and what is done.

    Links are relative to the folder of notebooks, where the page is.
    """
    cell = 'style="text-align:left;vertical-align:top;padding:3px 8px"'
    parts = []
    for row in rows(entries, progress):
        mine = [entry for entry in entries if entry.lesson == row["lesson"]]
        lesson = lesson_of(row["lesson"], progress.folder.parent)
        share = 100 * row["core_done"] // max(1, row["core"])
        bar = (
            '<div style="width:9em;height:8px;border:1px solid #888">'
            f'<div style="width:{share}%;height:100%;background:#0072B2"></div></div>'
        )
        names = ", ".join(_name(entry, row["states"][entry.name]) for entry in mine)
        parts.append(
            f'<tr style="background:none"><td {cell}>{_title(lesson)}</td>'
            f"<td {cell}>{html.escape(lesson.time)}</td><td {cell}>{bar}</td>"
            f"<td {cell}>{row['core_done']}/{row['core']}&nbsp;core</td>"
            f"<td {cell}>{names}</td></tr>"
        )
    below = "".join(f"<div>{note}</div>" for note in notes(entries, progress))
    return f'<table style="border-collapse:collapse">{"".join(parts)}</table>{below}'


def _title(lesson: Lesson) -> str:
    words = html.escape(lesson.title)
    return f'<a href="{lesson.notebook.name}">{words}</a>' if lesson.notebook else words


def _name(entry: Entry, state: str) -> str:
    """An exercise with its mark, its best score if it is not done, and a link to its file."""
    place = f"../exercises/{entry.lesson}/{entry.name}.py"
    score = f" ({state})" if state not in ("done", "not begun") else ""
    return f'{_mark(state)}&nbsp;<a href="{place}">{html.escape(entry.name)}</a>{score}'
