"""The library's own lines on the page, with the name of the file that they stand in."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import course_lib
from course_lib.trace import Refusal

LONGEST = 30  # lines that a reader takes in at once


@dataclass(frozen=True)
class Source:
    """Code of the library.

    Attributes:
        name: what it is called.
        file: where it stands, from the repository's folder.
        line: of its first line.
        text: the code, without its docstring's indentation.
    """

    name: str
    file: str
    line: int
    text: str

    def __repr__(self) -> str:
        return f"# {self.file}, line {self.line}\n{self.text}"

    def _repr_markdown_(self) -> str:
        return f"`{self.file}`, line {self.line}:\n```python\n{self.text}\n```"


def show(thing: Callable[..., Any] | type) -> Source:
    """The source of a function, a method or a class of `course_lib`.

    Raises:
        Refusal: it is not the library's, or too long to be read on a page.
    """
    name = getattr(thing, "__qualname__", str(thing))
    home = Path(course_lib.__file__).resolve().parent
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(thing)) or "").resolve()
        file = Path(home.name, path.relative_to(home)).as_posix()
        lines, line = inspect.getsourcelines(thing)
    except (TypeError, ValueError, OSError):
        raise Refusal(
            f"show {name}", "no source in course_lib", "these are the library's own lines"
        ) from None
    if len(lines) > LONGEST:
        raise Refusal(
            f"show {name}", f"{len(lines)} lines in {file}",
            f"more than {LONGEST} are not read on a page: show one of its methods",
        )  # fmt: skip
    return Source(name, file, line, textwrap.dedent("".join(lines)).rstrip())
