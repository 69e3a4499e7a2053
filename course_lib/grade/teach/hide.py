"""A suite without its hidden checks: their lines go, and two numbers say how many they were."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from course_lib.grade.catalog import SuiteError, check_of
from course_lib.grade.checks import Check

WIDTH = 100


def visible(text: str) -> str:
    """A suite's text as students get it; the same text if it hides nothing.

    What only hidden checks used goes with them: drivers, formulas and constants would tell what
    they look at.

    Raises:
        SuiteError: all checks are hidden, or EXERCISE does not end in a line of its own.
    """
    tree = ast.parse(text)
    known = {node: check for node in tree.body for check in check_of(node)}
    hidden = [node for node, check in known.items() if check.hidden]
    if not hidden:
        return text
    if len(hidden) == len(known):
        raise SuiteError("all checks are hidden: a student would have nothing to work with")
    lines = text.splitlines()
    _say(lines, tree, [check for check in known.values() if check.hidden])
    gone = _with_orphans(tree, hidden)
    for node in reversed(tree.body):  # from below, so that the lines above keep their numbers
        if node in gone:
            lines[_first(node) - 1 : node.end_lineno] = []
        elif isinstance(node, ast.ImportFrom):
            lines[node.lineno - 1 : node.end_lineno] = _still_imported(node, tree, gone, lines)
    left = re.sub(r"\n{3,}(?=from |import )", "\n\n", "\n".join(lines))
    return re.sub(r"\n{4,}", "\n\n\n", left).rstrip() + "\n"


def _say(lines: list[str], tree: ast.Module, hidden: Sequence[Check]) -> None:
    """Enters what is hidden in EXERCISE, without moving a line."""
    calls = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == ["EXERCISE"]
    ]
    last = (calls[0].end_lineno or 0) - 1
    if lines[last].strip() != ")":
        raise SuiteError("EXERCISE = Exercise(...) must end with `)` in a line of its own")
    points = sum(check.points for check in hidden)
    lines[last] = f"    hidden_checks={len(hidden)},\n    hidden_points={points},\n)"


def _with_orphans(tree: ast.Module, hidden: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Hidden checks, and what only hidden code uses."""
    gone = list(hidden)
    while True:
        left = [node for node in tree.body if node not in gone]
        lost = set().union(*(_used(node) for node in gone))
        more = [
            node
            for node in left
            if _names(node)
            and _names(node) <= lost
            and not any(_names(node) & _used(other) for other in left if other is not node)
        ]
        if not more:
            return gone
        gone += more


def _still_imported(
    node: ast.ImportFrom, tree: ast.Module, gone: Sequence[ast.stmt], lines: Sequence[str]
) -> list[str]:
    """An import's lines without the names that only hidden checks used."""
    lost = set().union(*(_used(each) for each in gone))
    kept = set().union(*(_used(each) for each in tree.body if each not in gone))
    names = [
        ast.unparse(alias)
        for alias in node.names
        if (alias.asname or alias.name) not in lost - kept
    ]
    if len(names) == len(node.names):
        return list(lines[node.lineno - 1 : node.end_lineno])
    line = f"from {node.module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return [line]
    return [f"from {node.module} import (", *(f"    {name}," for name in names), ")"]


def _names(node: ast.stmt) -> set[str]:
    """What a statement of a suite defines; empty for what must stay."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {
            name.id
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return set()


def _used(node: ast.stmt) -> set[str]:
    return {
        name.id
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
    }


def _first(node: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    marks = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(mark.lineno for mark in marks)])
