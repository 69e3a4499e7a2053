"""Runs the source of a cell in a rank, as a notebook does: `await` may stand outside functions."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Sequence
from types import CodeType
from typing import Any


def run_source(source: str, name: str, names: dict[str, Any]) -> Any:
    """Runs a cell.

    Args:
        source: Python.
        name: stands as the file name in tracebacks.
        names: its variables, which it changes.

    Returns:
        The value of its last expression; None if the cell ends with something else, or with `;`.
    """
    parts = _parts(source, name)
    if any(_waits(part) for part in parts):
        value = asyncio.run(_in_a_loop(parts, names))
    else:
        value = [eval(part, names) for part in parts][-1]
    return None if source.rstrip().endswith(";") else value


def _parts(source: str, name: str) -> list[CodeType]:
    """The cell's statements, and its last expression if it ends with one."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    # `dont_inherit`: this file's own `from __future__` must not change what a cell means.
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    parts = [compile(tree, name, "exec", flags, dont_inherit=True)]
    if isinstance(last, ast.Expr):
        ending = ast.Expression(last.value)
        parts.append(compile(ending, name, "eval", flags, dont_inherit=True))
    return parts


def _waits(part: CodeType) -> bool:
    return bool(part.co_flags & inspect.CO_COROUTINE)


async def _in_a_loop(parts: Sequence[CodeType], names: dict[str, Any]) -> Any:
    """One loop for the whole cell: its end may wait for a task that its beginning has made."""
    value = None
    for part in parts:
        value = eval(part, names)
        if _waits(part):
            value = await value
    return value


def named_in(source: str, known: dict[str, Any]) -> dict[str, Any]:
    """The variables that a cell speaks of, in its order.

    Args:
        source: of the cell.
        known: all variables.
    """
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    nodes.sort(key=lambda node: (node.lineno, node.col_offset))
    names = dict.fromkeys(node.id for node in nodes)
    return {name: known[name] for name in names if name in known}
