"""What a lesson's notebook says of itself: its title, and how long it takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

TIME = re.compile(r"\*\*Time:\*\* ([^,.*]+)")


class Lesson(NamedTuple):
    """A lesson.

    Attributes:
        title: with its number, `04 · ZeRO and FSDP`.
        time: in words, `4 hours`; "" if it does not say.
        notebook: its file; None where there is none.
    """

    title: str
    time: str
    notebook: Path | None


def lesson_of(folder: str, root: Path) -> Lesson:
    """The lesson that a folder of exercises belongs to, by the number that both begin with.

    Args:
        folder: as `04_zero`.
        root: the course's folder; without a notebook there, the folder's name is the title.
    """
    number = folder.partition("_")[0]
    found = sorted((root / "notebooks").glob(f"{number}_*.ipynb"))
    if not found:
        return Lesson(folder, "", None)
    first = "".join(json.loads(found[0].read_text(encoding="utf-8"))["cells"][0]["source"])
    title = first.splitlines()[0].lstrip("# ").strip()
    time = TIME.search(first)
    return Lesson(title, time[1].strip() if time else "", found[0])
