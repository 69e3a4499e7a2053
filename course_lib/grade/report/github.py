"""Points for GitHub Classroom: a workflow that grades on every push, and what it reports."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib.grade.report.card import Card
from course_lib.grade.report.words import headline, hidden_line

STATUS = {"full": "pass", "broke": "error"}  # everything else has failed

WORKFLOW = """\
# Grades every exercise on each push, and reports the points to GitHub Classroom.
# These are the checks that are in this repository; hidden ones run when it is collected.
name: grade
on: [push, workflow_dispatch]
permissions:
  contents: read
  checks: write
  actions: read
jobs:
  grade:
    runs-on: ubuntu-latest
    if: github.actor != 'github-classroom[bot]'
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
          cache-dependency-path: requirements.txt
      - run: make .venv/ready
      - id: course
        run: |
          .venv/bin/course grade --all --classroom "$GITHUB_OUTPUT" > cards.txt || true
          sed 's/^/| /' cards.txt  # a line that began with :: would be a command to the runner
          { echo '```'; cat cards.txt; echo '```'; } >> "$GITHUB_STEP_SUMMARY"
      - uses: classroom-resources/autograding-grading-reporter@v1
        env:
          COURSE_RESULTS: "${{ steps.course.outputs.result }}"
        with:
          runners: course
"""


def payload(cards: Sequence[Card]) -> dict[str, Any]:
    """What the reporter takes: one test for each exercise, with its points."""
    states = [STATUS.get(card.status, "fail") for card in cards]
    worst = "error" if "error" in states else "fail" if "fail" in states else "pass"
    tests = [
        {
            "name": card.entry.name,
            "status": state,
            "score": card.score or 0,
            "message": f"{headline(card)} {hidden_line(card)}".strip(),
            "test_code": f"course grade {card.entry.name}",
            "filename": card.entry.path.name,
            "line_no": 0,
            "duration": sum(result.seconds for result in card.checks),
        }
        for card, state in zip(cards, states, strict=True)
    ]
    most = sum(card.points for card in cards)
    return {"version": 1, "status": worst, "max_score": most, "tests": tests}


def write(path: Path, cards: Sequence[Card]) -> None:
    """Adds the step's output `result` to the file that GitHub reads outputs from."""
    text = base64.b64encode(json.dumps(payload(cards)).encode()).decode()
    with path.open("a", encoding="utf-8") as file:
        file.write(f"result={text}\n")
