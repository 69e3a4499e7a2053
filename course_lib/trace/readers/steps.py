"""The log of a training run: a line of JSON for each step, whatever has happened to the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The rows of a log, in its order.

    A line that is no row is left out, and the others stay: the last one may be cut off by a crash,
    and a disk that was full or an editor leaves worse.

    Args:
        path: of the file; one that is not there has no rows.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [row for line in lines if (row := _row(line)) is not None]


def _row(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or type(found.get("step")) is not int:
        return None
    return found if all(map(_is_number, found.values())) else None


def _is_number(value: object) -> bool:
    """Also nan, and true; but nothing that no float can hold."""
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 64)
