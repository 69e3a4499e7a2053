"""Where this copy of the course can be cloned from: one address, the same in every file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from course_lib.grade.report import write_atomically
from course_lib.trace import Refusal

FILES = ("pyproject.toml", "README.md", "docs/*.md", "notebooks/*.ipynb")
GIVEN = re.compile(r"(?:https://github\.com/|git@github\.com:)?([\w-]+/[\w.-]+?)(?:\.git)?/?")
KEPT = re.compile(r'^Repository = "https://github\.com/([^"]+)"', re.M)
BEFORE = r"(?<=github\.com/)|(?<=/github/)|(?<=/gh/)"  # GitHub's own, Colab's, Binder's


def move(root: Path, given: str | None) -> list[Path]:
    """Writes the copy's address wherever the old one stands; returns the files that changed.

    Args:
        root: the course's folder.
        given: as OWNER/REPO, or an address on GitHub; None for that of the remote `origin`.

    Raises:
        Refusal: it is none. Colab and Binder open notebooks from GitHub.
    """
    asked = given if given is not None else _remote(root)
    found = GIVEN.fullmatch(asked.strip())
    if not found:
        raise Refusal(
            f"{asked.strip() or 'the remote origin'} as the address of this copy",
            "no repository on GitHub",
            "Colab and Binder open lessons from there: `course dev origin OWNER/REPO`",
        )
    old = KEPT.findall((root / "pyproject.toml").read_text(encoding="utf-8"))[0]
    place = re.compile(rf"(?:{BEFORE}){re.escape(old)}(?![\w-])")
    changed = []
    for path in sorted(path for name in FILES for path in root.glob(name)):
        text = path.read_text(encoding="utf-8")
        if (new := place.sub(found[1], text)) != text:
            write_atomically(path, new)
            changed.append(path)
    return changed


def _remote(root: Path) -> str:
    """What git calls `origin`; "" if there is none, or no git."""
    try:
        asked = ["git", "-C", str(root), "remote", "get-url", "origin"]
        return subprocess.run(asked, capture_output=True, text=True).stdout
    except OSError:
        return ""
