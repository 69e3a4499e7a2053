"""What the README counts is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from course_lib.grade.catalog import entries

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
NUMBERS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"]


def test_the_exercises_of_each_lesson() -> None:
    said = dict(re.findall(r"^\| (\d\d) \|.*\| (\d+) \|$", README, re.M))
    lessons = [entry.lesson[:2] for entry in entries()]
    assert said == {lesson: str(lessons.count(lesson)) for lesson in lessons}


def test_all_exercises_and_their_hours() -> None:
    core = [entry for entry in entries() if entry.exercise.core]
    hours = [round(sum(e.exercise.minutes for e in some) / 60) for some in (core, entries())]
    assert f"There are {len(entries())} exercises. The {len(core)} that" in README
    assert f"(★) take about {hours[0]} hours, all of them {hours[1]}" in README
    measured = sum(entry.exercise.scale is not None for entry in entries())
    assert f"{NUMBERS[measured - 10].title()} of the exercises are *open*" in README
