"""Wrong answers made by machine: the slips that people make in distributed code, one at a time."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from course_lib.grade.author.build import BLOCK, EQUIVALENT

SWAPS = {
    "sum": "max",
    "avg": "sum",
    "max": "min",
    "next": "previous",
    "previous": "next",
    "isend": "irecv",
    "irecv": "isend",
    "ones": "zeros",
    "zeros": "ones",
    "rank": "size",
}
TRANSPARENT = ("clone", "contiguous", "detach", "wait", "clone_", "float", "double")
PURE = {"math", "len", "min", "max", "sum", "abs", "int", "float", "list", "tuple", "dict", "range"}
RANK = "int(__import__('os').environ['RANK'])"


@dataclass(frozen=True)
class Mutant:
    """One changed solution.

    Attributes:
        what: what was changed, with the line.
        source: the whole text.
    """

    what: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """All single changes of a solution, each once; those that do not compile are left out.

    Changed are the learner's lines, between the marks of a solution. What one rank does alone is
    changed only where there is a group, and two statements change places only where one may need
    what the other does.

    Args:
        source: the solution's text. Lines that end with `# mutate: same` are left alone: there,
            another text does the same thing.
    """
    tree = ast.parse(source)
    learners = _learners_lines(source)
    seen = {ast.unparse(tree)}
    for operator in (_statements, _swapped, _calls, _words, _numbers, _comparisons):
        for line, what, change in operator(tree):
            changed = copy.deepcopy(tree)
            change(_Finder(tree, changed))
            text = ast.unparse(ast.fix_missing_locations(changed))
            if text not in seen and line in learners and _compiles(text):
                seen.add(text)
                yield Mutant(f"line {line}: {what}", text)


def _learners_lines(source: str) -> set[int]:
    """Numbers of the lines between the marks, without those where another text does the same."""
    found = set()
    for block in BLOCK.finditer(source):
        first = source.count("\n", 0, block.start()) + 1
        lines = enumerate(block.group().splitlines(), first)
        found |= {number for number, line in lines if not line.rstrip().endswith(EQUIVALENT)}
    return found


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class _Finder:
    """Finds the copy of a node in the changed tree: the n-th of both walks."""

    def __init__(self, tree: ast.AST, changed: ast.AST) -> None:
        self._pairs = dict(zip(map(id, ast.walk(tree)), ast.walk(changed), strict=True))

    def __call__(self, node: ast.AST) -> ast.AST:
        return self._pairs[id(node)]


Change = Callable[[_Finder], None]
Found = Iterator[tuple[int, str, Change]]


def _bodies(tree: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    """Lists of statements inside functions, with their owners."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for owner in ast.walk(function):
            for name in ("body", "orelse"):
                body = getattr(owner, name, None)
                if isinstance(body, list) and body and not isinstance(owner, ast.ClassDef):
                    yield owner, name, body


def _is_of_ranks(argument: ast.arg) -> bool:
    """Whether it is a group or a mesh; a tuple may be called a group too, in logs."""
    kind = argument.annotation
    return kind is not None and ast.unparse(kind) in ("Group", "Mesh")


def _statements(tree: ast.AST) -> Found:
    """Delete a statement; where there is a group, do it on all ranks but one, or on one only."""
    ranks = any(isinstance(node, ast.arg) and _is_of_ranks(node) for node in ast.walk(tree))
    by_rank = (
        ("skip on rank 0:", f"if {RANK} != 0:\n    pass"),
        ("only on rank 0:", f"if {RANK} == 0:\n    pass"),
    )
    for owner, name, body in _bodies(tree):
        for place, statement in enumerate(body):
            if isinstance(statement, ast.Pass) or _is_docstring(statement):
                continue
            short = ast.unparse(statement).splitlines()[0][:50]
            for what, new in (("delete", "pass"), *(by_rank if ranks else ())):
                yield statement.lineno, f"{what} `{short}`", _replace(owner, name, place, new)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _replace(owner: ast.AST, name: str, place: int, new: str) -> Change:
    def change(find: _Finder) -> None:
        body = getattr(find(owner), name)
        statement = ast.parse(new).body[0]
        if isinstance(statement, ast.If):
            statement.body = [body[place]]
        body[place] = statement

    return change


def _swapped(tree: ast.AST) -> Found:
    """Two neighbouring statements change places."""
    for owner, name, body in _bodies(tree):
        for place in range(len(body) - 1):
            if _is_docstring(body[place]) or _independent(*body[place : place + 2]):
                continue

            def change(
                find: _Finder, owner: ast.AST = owner, name: str = name, at: int = place
            ) -> None:
                statements = getattr(find(owner), name)
                statements[at], statements[at + 1] = statements[at + 1], statements[at]

            yield body[place].lineno, "swap with the next statement", change


def _independent(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two assignments to plain names do the same in either order."""
    for one, other in ((first, second), (second, first)):
        if not isinstance(one, ast.Assign):
            return False
        targets = [n for target in one.targets for n in ast.walk(target) if isinstance(n, ast.expr)]
        if not all(isinstance(node, ast.Name | ast.Tuple) for node in targets):
            return False
        written = {node.id for node in targets if isinstance(node, ast.Name)}
        if written & {node.id for node in ast.walk(other) if isinstance(node, ast.Name)}:
            return False
    return _pure(first) or _pure(second)


def _pure(statement: ast.stmt) -> bool:
    """Whether it calls nothing that could change anything."""
    calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return all(ast.unparse(call).split(".")[0] in PURE for call in calls)


def _calls(tree: ast.AST) -> Found:
    """Drop a call such as `.clone()` or `.wait()`; drop a keyword argument."""
    for node in _in_functions(tree, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in TRANSPARENT:
            yield node.lineno, f"drop .{node.func.attr}()", _unwrap(tree, node)
        for place, word in enumerate(node.keywords):
            if word.arg:
                yield node.lineno, f"drop {word.arg}=", _drop_keyword(node, place)


def _unwrap(tree: ast.AST, call: ast.Call) -> Change:
    def change(find: _Finder) -> None:
        copied = find(call)
        assert isinstance(copied, ast.Call) and isinstance(copied.func, ast.Attribute)
        inner = copied.func.value
        for parent in ast.walk(find(tree)):
            for name, value in ast.iter_fields(parent):
                if value is copied:
                    setattr(parent, name, inner)
                elif isinstance(value, list) and copied in value:
                    value[value.index(copied)] = inner

    return change


def _drop_keyword(call: ast.Call, place: int) -> Change:
    def change(find: _Finder) -> None:
        copied = find(call)
        assert isinstance(copied, ast.Call)
        del copied.keywords[place]

    return change


def _words(tree: ast.AST) -> Found:
    """A wrong word of the field: sum for avg, next for previous, ..."""
    for node in _in_functions(tree, (ast.Attribute, ast.Constant, ast.Name)):
        field = {ast.Attribute: "attr", ast.Constant: "value", ast.Name: "id"}[type(node)]
        word = getattr(node, field)
        if isinstance(word, str) and word in SWAPS:

            def change(find: _Finder, node: ast.AST = node, field: str = field) -> None:
                setattr(find(node), field, SWAPS[getattr(node, field)])

            yield node.lineno, f"{SWAPS[word]} for {word}", change


def _numbers(tree: ast.AST) -> Found:
    """Off by one, in both directions; and an operator for another."""
    for node in _in_functions(tree, ast.Constant):
        if type(node.value) is int:
            for step in (1, -1):

                def shift(find: _Finder, node: ast.Constant = node, step: int = step) -> None:
                    find(node).value = node.value + step  # type: ignore[attr-defined,operator]

                yield node.lineno, f"{node.value + step} for {node.value}", shift
    pairs = {
        ast.Add: ast.Sub,
        ast.Sub: ast.Add,
        ast.Mult: ast.Div,
        ast.Div: ast.Mult,
        ast.FloorDiv: ast.Mult,
        ast.Mod: ast.FloorDiv,
    }
    for node in _in_functions(tree, (ast.BinOp, ast.AugAssign)):
        other = pairs.get(type(node.op))
        if other is not None:

            def change(find: _Finder, node: ast.AST = node, op: type = other) -> None:
                find(node).op = op()  # type: ignore[attr-defined]

            yield node.lineno, f"{other.__name__} for {type(node.op).__name__}", change


def _comparisons(tree: ast.AST) -> Found:
    """The opposite of a condition."""
    for node in _in_functions(tree, (ast.If, ast.While, ast.IfExp)):

        def change(find: _Finder, node: ast.AST = node) -> None:
            copied = find(node)
            copied.test = ast.UnaryOp(ast.Not(), copied.test)  # type: ignore[attr-defined]

        yield node.lineno, f"not ({ast.unparse(node.test)})", change


def _in_functions(tree: ast.AST, kinds: type | tuple[type, ...]) -> Iterator[Any]:
    """Nodes of some kinds inside functions, without signatures' annotations."""
    seen: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    if isinstance(node, kinds) and id(node) not in seen:
                        seen.add(id(node))
                        yield node
