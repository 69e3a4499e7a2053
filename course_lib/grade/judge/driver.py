"""The part of a suite that runs beside an answer: its driver, and what that needs.

Checks, expected values, likely mistakes and references stay with the judge. What goes to the rank
is cut out of the suite's text: the driver's function, the names that it uses, the names that those
use, and so on, through the modules of `grading/` that they come from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = "grading."
SUITE = "course_suite"  # the suite's module in a rank
EVERYTHING = "*"  # of a module that is used as a whole


@dataclass
class _Module:
    """One file that something is cut out of.

    Attributes:
        path: where it lies.
        body: its statements.
        wanted: names that others need of it.
        kept: which statements are taken, by their place.
    """

    path: Path
    body: list[ast.stmt]
    wanted: set[str] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)


def cut(suite: Path, root: Path, drive: str) -> list[dict[str, Any]]:
    """The modules that a driver runs in, those first that others import.

    Args:
        suite: the suite's file.
        root: the course's folder, in which `grading` lies.
        drive: the driver's name.

    Returns:
        For each module its `name`, `path` and `source`. The lines of the source are those of the
        file; what was left out of it is empty lines.
    """
    modules = {SUITE: _read(suite)}
    modules[SUITE].wanted.add(drive)
    changed = True
    while changed:
        sizes = [(len(each.wanted), len(each.kept)) for each in modules.values()]
        for module in list(modules.values()):
            _keep(module)
            for name, wanted in _needs(module, root):
                modules.setdefault(name, _read(_path(root, name))).wanted.update(wanted)
        changed = sizes != [(len(each.wanted), len(each.kept)) for each in modules.values()]
    return [
        {"name": name, "path": str(modules[name].path), "source": _text(modules[name])}
        for name in _in_order(modules, root)
    ]


def _read(path: Path) -> _Module:
    return _Module(path, ast.parse(path.read_text(encoding="utf-8")).body)


def _path(root: Path, name: str) -> Path:
    """The file of a module of `grading`."""
    place = root.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


# --- which statements ----------------------------------------------------------------------------
def _keep(module: _Module) -> None:
    """Takes the statements that define what is wanted, and what they use in turn."""
    pending = set(module.wanted)
    for number in module.kept:
        pending |= _used(module.body[number])
    while pending:
        found = {
            number
            for number, node in enumerate(module.body)
            if number not in module.kept
            and (_defined(node) & pending or EVERYTHING in pending or _is_future(node))
        }
        module.kept |= found
        pending = set().union(*(_used(module.body[number]) for number in found))


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _defined(node: ast.stmt) -> set[str]:
    """Names that a statement at the top of a file defines, or whose value it changes."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return {_root(node.value.func)}
    stored = (each for each in ast.walk(node) if isinstance(getattr(each, "ctx", None), ast.Store))
    return {_root(each) for each in stored}


def _root(node: ast.AST) -> str:
    """The name that an expression such as `name.part[0]` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _used(node: ast.AST) -> set[str]:
    """Names that it looks up when it runs; annotations are never evaluated."""
    return {each.id for each in _evaluated(node) if isinstance(each, ast.Name)}


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _evaluated(each)


# --- from where ----------------------------------------------------------------------------------
def _needs(module: _Module, root: Path) -> Iterator[tuple[str, set[str]]]:
    """Modules of `grading` that the kept statements import, and the names that they need there."""
    used = _names_used(module)
    for number in module.kept:
        node = module.body[number]
        if not isinstance(node, ast.ImportFrom) or not f"{node.module}.".startswith(OURS):
            continue
        for alias in node.names:
            name, part = alias.asname or alias.name, f"{node.module}.{alias.name}"
            if name not in used and EVERYTHING not in module.wanted:
                continue
            if _path(root, part).exists():
                yield part, _attributes(module, name)
            else:
                yield str(node.module), {alias.name}


def _names_used(module: _Module) -> set[str]:
    return module.wanted.union(*(_used(module.body[number]) for number in module.kept))


def _attributes(module: _Module, name: str) -> set[str]:
    """What is used of a module that has this name; everything, if it is handed on as it is."""
    nodes = [each for number in module.kept for each in _evaluated(module.body[number])]
    parts = [
        each
        for each in nodes
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
    ]
    mine = [each for each in parts if isinstance(each.value, ast.Name) and each.value.id == name]
    whole = sum(isinstance(each, ast.Name) and each.id == name for each in nodes)
    return {each.attr for each in mine} if whole == len(mine) else {EVERYTHING}


def _in_order(modules: dict[str, _Module], root: Path) -> list[str]:
    """The names of the modules, each after those that it imports."""
    found: list[str] = []

    def visit(name: str) -> None:
        for needed, _ in _needs(modules[name], root):
            if needed not in found and needed != name:
                visit(needed)
        found.append(name)

    visit(SUITE)
    return list(dict.fromkeys(found))


# --- the text ------------------------------------------------------------------------------------
def _text(module: _Module) -> str:
    """The kept statements, each in its own lines."""
    used = _names_used(module)
    lines = [""] * max((node.end_lineno or 0 for node in module.body), default=0)
    original = module.path.read_text(encoding="utf-8").splitlines()
    for number in module.kept:
        node = module.body[number]
        first, last = _first(node) - 1, node.end_lineno or 0
        if isinstance(node, ast.ImportFrom) and not _is_future(node):
            lines[first] = _import(node, used if EVERYTHING not in module.wanted else set())
        else:
            lines[first:last] = original[first:last]
    return "\n".join(lines) + "\n"


def _import(node: ast.ImportFrom, used: set[str]) -> str:
    """An import of those of its names that are used; of all, if nothing is said."""
    names = [each for each in node.names if not used or (each.asname or each.name) in used]
    return f"from {node.module} import {', '.join(map(ast.unparse, names))}"


def _first(node: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    marks = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(mark.lineno for mark in marks)])
