"""The map of the course: titles and times out of the notebooks, links that lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

from course_lib.grade.catalog import entries
from course_lib.grade.report.lessons import lesson_of
from course_lib.grade.report.progress import Progress, as_html, as_text

ROOT = Path(__file__).resolve().parents[3]


def test_what_a_notebook_says_of_itself(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    cell = {"source": ["# 07 · Some <thing>\n", "\n", "**Time:** 2½ hours, most of it exercises."]}
    path = tmp_path / "notebooks" / "07_thing.ipynb"
    path.write_text(json.dumps({"cells": [cell]}))
    assert lesson_of("07_other_name", tmp_path) == ("07 · Some <thing>", "2½ hours", path)
    assert lesson_of("08_pipeline", tmp_path) == ("08_pipeline", "", None)


def test_every_lesson_has_a_title_a_time_and_links_that_lead_somewhere(untouched: Path) -> None:
    known = entries(untouched)
    for folder in {entry.lesson for entry in known}:
        lesson = lesson_of(folder, ROOT)
        assert lesson.notebook is not None and lesson.time
        assert lesson.title.startswith(f"{folder[:2]} · ")
    page = as_html(known, Progress(untouched))
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) == len(known) + len({entry.lesson for entry in known})
    for link in links:
        place, _, file = link.rpartition("/")
        folder = untouched / "exercises" / Path(place).name if place else untouched / "notebooks"
        assert (folder / file).exists(), link
    assert "04 · ZeRO" in as_text(known, Progress(untouched))
