"""Gradescope: its results.json, and the zip file that makes an autograder of this course."""

from __future__ import annotations

import hmac
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib.grade.catalog import Entry
from course_lib.grade.report import Card, CheckResult, details, fault_lines
from course_lib.grade.teach.release import NEVER
from course_lib.trace import Refusal

ROOMS = ("course_lib", "grading/suites", "grading/references")
LATER = "after_due_date"  # when hidden checks are shown
NEEDED = ("install.py", "requirements.txt", "constraints.txt", "pyproject.toml")

SETUP = """\
#!/usr/bin/env bash
# Runs once, when Gradescope builds the image.
set -euo pipefail
apt-get update
apt-get install -y python3 python3-venv
cd /autograder/source/course
python3 install.py --venv /opt/course --torch cpu
"""

RUN = """\
#!/usr/bin/env bash
# Runs for each submission. The two variables are for trying it out elsewhere.
set -uo pipefail
base=${AUTOGRADER:-/autograder}
course=${COURSE:-/opt/course/bin/course}
student=$(python3 -c 'import json, sys
users = json.load(open(sys.argv[1]))["users"]
print("+".join(sorted(user["email"].replace("/", "_") for user in users)))' \\
    "$base/submission_metadata.json")
cd "$base/source/course"
"$course" class "$base/submission" --student "$student" --out "$base/graded" @OPTIONS@
cp "$base/graded/$student/results.json" "$base/results/results.json"
"""


# --- results.json --------------------------------------------------------------------------------
def results(cards: Sequence[Card], seed: int) -> dict[str, Any]:
    """A student's results in Gradescope's form, one test for each check.

    Where the grader broke there is no score, and Gradescope says so instead of giving a zero.
    """
    tests = [
        _test(card, result, number)
        for card in cards
        for number, result in enumerate(card.checks, 1)
    ]
    data: dict[str, Any] = {
        "output": "\n".join(filter(None, map(_about, cards))),
        "output_format": "text",
        "extra_data": {"seed": seed, "sources": {card.entry.name: card.digest for card in cards}},
        "tests": tests,
    }
    if all(card.score is not None for card in cards):
        data["score"] = sum(card.score or 0 for card in cards)
    return data


def _about(card: Card) -> str:
    """What is wrong with a whole exercise, in a line; "" if only a hidden check knows."""
    words = {
        "broke": "could not be graded, which is not your fault",
        "tampered": "the grader was tampered with",
        "not_written": "not written yet",
    }
    if card.fault is not None:
        hidden = any(r.check.hidden and r.fault == card.fault for r in card.checks)
        # What a hidden check has seen waits for its day; the answer may have put it into words.
        what = card.fault.title if hidden else fault_lines(card.fault)[0]
        return f"{card.entry.name}: {what}"
    return f"{card.entry.name}: {words[card.status]}" if card.status in words else ""


def _test(card: Card, result: CheckResult, number: int) -> dict[str, Any]:
    lines = []
    if result.state == "failed":
        lines = details(result, {}, number)
    elif result.state == "not_run":
        lines = [card.fault.title] if card.fault else ["not run"]
    check = result.check
    return {
        "name": f"{card.entry.name}: {check.title}",
        "number": f"{card.entry.name}.{number}",
        "score": 0 if card.status == "tampered" else result.score,
        "max_score": check.points,
        "status": "passed" if result.state == "passed" else "failed",
        "output": "\n".join(lines),
        "output_format": "text",
        "visibility": LATER if check.hidden else "visible",
    }


# --- the autograder ------------------------------------------------------------------------------
def autograder(root: Path, target: Path, chosen: Sequence[Entry], secret: bytes | None) -> None:
    """Writes the zip file to upload: the grader with all suites, and no solution.

    Args:
        root: the course.
        target: the zip file; must not exist.
        chosen: the exercises to grade.
        secret: what seeds are made of; None for the seed that students have at home.

    Raises:
        Refusal: there is something in the file's place.
    """
    if target.exists():
        raise Refusal(
            f"write the autograder to {target}",
            "the file exists",
            "an older one may be in use: name another, or remove it",
        )
    options = "--exercises " + ",".join(entry.name for entry in chosen)
    options += " --secret-file secret" if secret else ""
    draft = target.with_name(f".{target.name}")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, "setup.sh", SETUP)
            _add(archive, "run_autograder", RUN.replace("@OPTIONS@", options))
            if secret:
                _add(archive, "course/secret", _own_secret(secret, target.name))
            for path in _grader_files(root):
                archive.write(path, f"course/{path.relative_to(root)}")
        draft.rename(target)
    finally:
        draft.unlink(missing_ok=True)


def _own_secret(secret: bytes, name: str) -> bytes:
    """A secret for one autograder: it makes seeds too, and tells nothing about the term's."""
    return hmac.new(secret, f"gradescope {name}".encode(), "sha256").hexdigest().encode()


def _grader_files(root: Path) -> list[Path]:
    files = [root / name for name in NEEDED]
    found = [path for place in ROOMS for path in sorted((root / place).rglob("*"))]
    return files + [path for path in found if path.is_file() and not NEVER & set(path.parts)]


def _add(archive: zipfile.ZipFile, name: str, content: str | bytes) -> None:
    """A file that may be executed."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o755 << 16
    archive.writestr(info, content)
