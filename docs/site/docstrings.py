"""The course's docstrings are plain text with `code` in single backticks; Sphinx reads more."""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"(`+)(.+?)\1")
MARKUP = re.compile(r"([*|\\])|(?<=\w)(_)(?=\W|$)")


def plain(line: str) -> str:
    """One line in which only code is marked, in Sphinx's own way."""
    parts, end = [], 0
    for code in CODE.finditer(line):
        parts += [MARKUP.sub(r"\\\g<0>", line[end : code.start()]), f"``{code[2]}``"]
        end = code.end()
    return "".join([*parts, MARKUP.sub(r"\\\g<0>", line[end:])])


def _process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = map(plain, lines)


def setup(app: Any) -> dict[str, bool]:
    """Has docstrings rewritten before napoleon takes their sections apart."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
