"""The answer that only calls the course's library, made by machine for every exercise."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from course_lib.grade.catalog import PACKAGE


@cache
def public_names(package: Path = PACKAGE) -> dict[str, list[str]]:
    """What the library's rooms show: a name, as `plain` writes it, to where it can be had."""
    found: dict[str, list[str]] = {}
    for room in sorted(package.glob("*/__init__.py")):
        for name in _shown(ast.parse(room.read_text(encoding="utf-8"))):
            found.setdefault(plain(name), []).append(f"{room.parent.name}.{name}")
    return found


def _shown(tree: ast.Module) -> list[str]:
    """The names in a module's `__all__`; none if it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def plain(name: str) -> str:
    """A name as one says it: `OverlapDDP` and `overlap_ddp` are the same."""
    return name.replace("_", "").lower()


def borrowed(source: str, defines: tuple[str, ...]) -> str | None:
    """The solution with the library's own version of what it defines; None if there is none.

    Args:
        source: the solution's text.
        defines: names that an answer must define.
    """
    lines = []
    for name in defines:
        same = public_names().get(plain(name), [])
        for place in sorted(same, key=lambda place: not place.endswith(f".{name}"))[:1]:
            room, _, there = place.partition(".")
            lines.append(f"from course_lib.{room} import {there} as {name}")
    return "\n".join([source, *lines, ""]) if lines else None
