"""What a program makes of real values: of the ranks' tensors, and of one process's.

No rule about types is in here. Each rank computes with what it has, one process with the true
values, and the type of a result is looked up by comparing the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch.nn.functional import gelu

from course_lib.grade.suite import Run

RANKS = 3
TYPES = ("R", "S(0)", "S(1)", "P", "V")
LOCAL: dict[str, Callable[..., torch.Tensor]] = {
    "matmul": torch.mm,
    "add": torch.add,
    "t": torch.t,
    "gelu": gelu,
    "softmax": torch.softmax,
    "sum": lambda x, dim: x.sum(dim, keepdim=True),
}
MOVING = ("chunk", "all_reduce", "all_gather", "reduce_scatter")
Line = tuple[Any, ...]


class Value(NamedTuple):
    """A distributed tensor.

    Attributes:
        ranks: what each rank has.
        true: what one process has; None if nobody can say.
    """

    ranks: list[torch.Tensor]
    true: torch.Tensor | None


def of_type(run: Run, kind: str, shape: tuple[int, int] = (6, 6)) -> Value:
    """Random numbers of a type.

    Args:
        run: whose seed they are drawn from.
        kind: one of TYPES.
        shape: of the whole, or of what each rank has if it varies.
    """
    parts = [run.random(shape) for _ in range(RANKS)]
    if kind == "V":
        return Value(parts, None)
    if kind == "P":
        return Value(parts, torch.stack(parts).sum(0))
    true = parts[0]
    if kind == "R":
        return Value([true.clone() for _ in range(RANKS)], true)
    return Value(list(true.chunk(RANKS, 0 if kind == "S(0)" else 1)), true)


def made(operation: str, values: Sequence[Value], dims: Sequence[int]) -> Value | None:
    """What an operation makes of values; None if shapes do not fit."""
    if operation in MOVING:
        return _moved(operation, values[0], *dims)
    if not _fits(operation, values, dims):
        return None
    function = LOCAL[operation]
    ranks = [function(*each, *dims) for each in zip(*(v.ranks for v in values), strict=True)]
    true = [v.true for v in values if v.true is not None]
    return Value(ranks, function(*true, *dims) if len(true) == len(values) else None)


def _fits(operation: str, values: Sequence[Value], dims: Sequence[int]) -> bool:
    """Whether shapes do, and the result says something.

    A softmax over one number is 1, and where gelu and softmax saturate, a wrong argument does
    nothing to the result.
    """
    ranks, true = [v.ranks[0] for v in values], [v.true for v in values if v.true is not None]
    sides = [ranks, true] if len(true) == len(values) else [ranks]
    if operation == "matmul":
        return all(x.shape[1] == y.shape[0] for x, y in sides)
    if operation in ("gelu", "softmax"):
        large = max(float(x.abs().max()) for v in values for x in v.ranks)
        return large < 5 and sides[-1][0].shape[dims[0] if dims else 0] > len(dims)
    return all(x.shape == some[0].shape for some in sides for x in some)


def _moved(operation: str, value: Value, dim: int = 0) -> Value | None:
    """A part of what a rank has, or a collective; the true value is to stay."""
    ranks, true = value
    total = torch.stack(ranks).sum(0)
    if operation in ("chunk", "reduce_scatter") and total.shape[dim] % RANKS:
        return None
    if operation == "chunk":
        return Value([x.chunk(RANKS, dim)[rank] for rank, x in enumerate(ranks)], true)
    whole = torch.cat(ranks, dim) if operation == "all_gather" else total
    true = whole if true is None else true
    if operation == "reduce_scatter":
        return Value(list(whole.chunk(RANKS, dim)), true)
    return Value([whole.clone() for _ in range(RANKS)], true)


def type_of(value: Value) -> str:
    """By which type the true value follows from the ranks'; "" if by none."""
    if value.true is None:
        return "V"
    found = {
        "R": [*value.ranks],
        "S(0)": [torch.cat(value.ranks, 0)],
        "S(1)": [torch.cat(value.ranks, 1)],
        "P": [torch.stack(value.ranks).sum(0)],
    }
    return next((k for k, some in found.items() if all(_same(x, value.true) for x in some)), "")


def _same(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.shape == y.shape and torch.allclose(x, y, rtol=1e-9, atol=1e-12)


class Program(NamedTuple):
    """A program with what it must make.

    Attributes:
        given: types of the tensors before.
        lines: of the program.
        types: of all tensors after it, or until the line that has none.
        made: the type of what each line makes.
        lost: the tensor that has none; "" if all have one.
    """

    given: dict[str, str]
    lines: list[Line]
    types: dict[str, str]
    made: list[str]
    lost: str

    def steps(self) -> list[Program]:
        """The program's first line alone, its first two, and so on."""
        found, types = [], dict(self.given)
        for place, (line, kind) in enumerate(zip(self.lines, self.made, strict=True), 1):
            types = {**types, line[0]: kind} if kind else types
            lines, made = self.lines[:place], self.made[:place]
            found.append(Program(self.given, lines, types, made, "" if kind else line[0]))
        return found


def played(given: dict[str, Value], lines: Sequence[Line]) -> Program | None:
    """A program that is run with values; None if shapes do not fit."""
    values, types = dict(given), {name: type_of(value) for name, value in given.items()}
    before, found = dict(types), list[str]()
    for place, (name, operation, *arguments) in enumerate(lines, 1):
        read = [values[each] for each in arguments if isinstance(each, str)]
        result = made(operation, read, [each for each in arguments if isinstance(each, int)])
        if result is None:
            return None
        found.append(type_of(result))
        if not found[-1]:
            return Program(before, [*lines[:place]], types, found, name)
        values[name], types[name] = result, found[-1]
    return Program(before, [*lines], types, found, "")


def single_lines(run: Run) -> list[Program]:
    """Every operation on every type, as far as shapes fit."""
    a, b = ({kind: of_type(run, kind) for kind in TYPES} for _ in range(2))
    lines: list[Line] = [("y", name, "a", "b") for name in ("matmul", "add")]
    lines += [("y", name, "a") for name in ("t", "gelu", "all_reduce")]
    dims = ("softmax", "sum", "chunk", "all_gather", "reduce_scatter")
    lines += [("y", name, "a", dim) for name in dims for dim in (0, 1)]
    asked = [
        played({"a": a[x], "b": b[y]}, [line])
        for line, x, y in product(lines, TYPES, TYPES)
        if "b" in line or y == "R"
    ]
    return [program for program in asked if program is not None]


def at_random(run: Run, count: int, length: int = 7) -> list[Program]:
    """Programs of random lines that go well for at least two."""
    found: list[Program] = []
    while len(found) < count:
        kinds = [TYPES[place] for place in run.integers(0, len(TYPES), 4).tolist()]
        given = {name: of_type(run, kind) for name, kind in zip("abcd", kinds, strict=True)}
        program = _grown(run, given, length)
        if len(program.lines) > 2:
            found.append(program)
    return found


def _grown(run: Run, given: dict[str, Value], length: int) -> Program:
    """Lines are added as long as nothing is lost."""
    program, operations = Program({}, [], {}, [], ""), [*LOCAL, *MOVING]
    while len(program.lines) < length and not program.lost:
        what, first, second, dim, name = run.integers(0, 840, 5).tolist()
        operation, names = operations[what % len(operations)], [*given, *program.types]
        line: Line = ("efga"[name % 4], operation, names[first % len(names)])
        if operation in ("matmul", "add"):
            line += (names[second % len(names)],)
        elif operation not in ("t", "gelu", "all_reduce"):
            line += (dim % 2,)
        program = played(given, [*program.lines, line]) or program
    return program
