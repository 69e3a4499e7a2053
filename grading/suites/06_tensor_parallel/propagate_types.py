"""propagate_types: the types that real values have, for single lines and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.tensor_parallel import types_by_value as by_value
from grading.references.tensor_parallel.types_by_value import Line, Program

EXERCISE = Exercise(
    title="Types of distributed tensors, line by line",
    core=True,
    minutes=35,
    order=9,
    defines=("propagate_types", "Lost"),
    library=(),
    hints=(
        "Take two ranks and small numbers. For P, say that rank 0 has 1 and rank 1 has 2, so the "
        "true value is 3. What do the two have after the operation, and what would one process "
        "have?",
        "Keep a dict of types and go through the lines. For each operation, only a few "
        "combinations of types are right, and all others lose the true value: write down the "
        "right ones. First come the collectives, with rules of their own; then V; then the rules "
        "for the other operations.",
        "matmul: R·R is R, S(0)·R is S(0), R·S(1) is S(1), S(1)·S(0) is P, P·R and R·P are P. "
        "add: both must have the same type. A sum over the sharded dim makes P. gelu and softmax "
        "refuse P, and softmax refuses the sharded dim. chunk takes only R; all_gather takes "
        "S(dim) or V; all_reduce and reduce_scatter take P or V.",
    ),
)

LOSSES = {
    ("gelu", "P"): "gelu(a + b) is not gelu(a) + gelu(b): sum first",
    ("softmax", "P"): "the softmax of a sum is not the sum of the softmaxes: sum first",
    ("softmax", "S"): "each rank divides by the sum over its own piece only",
    ("add", "P"): "every rank adds the tensor that is not P, so the sum counts it N times",
    ("matmul", "P"): "only P times R is a partial sum: (a + b)(c + d) has four terms, and the "
    "ranks have two",
    ("matmul", "S"): "each rank has one block of the diagonal of the result: gather one of the "
    "two factors",
    ("chunk", "P"): "each rank keeps a part of its own summand, and the sum is missing: "
    "reduce_scatter does both",
    ("chunk", "S"): "each rank keeps a part of its own piece, and the rest of the piece is lost",
    ("all_reduce", "R"): "the sum of a replicated tensor is N times too large",
    ("all_reduce", "S"): "this adds different pieces of a tensor to each other",
    ("all_gather", "R"): "this puts N copies one after another",
    ("all_gather", "P"): "this puts summands one after another, but they must be added",
    ("all_gather", "S"): "this gathers along the other dim, not along the one that is sharded",
    ("reduce_scatter", "R"): "the sum of a replicated tensor is N times too large",
    ("reduce_scatter", "S"): "this adds different pieces of a tensor to each other",
}
RIGHTS = {
    "matmul": "rows come from the left factor, columns from the right one; if the dim that the "
    "product sums over is sharded, each rank has a summand",
    "sum": "if the sharded dim is summed over, each rank has a summand; otherwise each rank has "
    "its piece",
    "t": "rows become columns, so the dim of a shard changes",
    "all_reduce": "the sum is the same on every rank, whatever was added",
    "all_gather": "every rank has the same afterwards, whatever was gathered",
    "reduce_scatter": "each rank has its piece of the sum",
    "add": "the sum of two partial sums is a partial sum, and pieces along the same dim can be "
    "added",
}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> list[dict[str, Any]]:
    """For each program the types, or the tensor that is lost; and what was given, afterwards."""
    found = []
    for types, lines in cases:
        given, same = dict(types), False  # the cases share some of these dicts
        try:
            made: Any = learner.propagate_types(given, [tuple(line) for line in lines])
            same = made is given
        except learner.Lost as error:
            made = f"Lost({error.name!r})"
        found.append({"made": made, "given": given, "same": same})
    return found


# --- what they must bring back -------------------------------------------------------------------
def _compare(run: Run, programs: list[Program]) -> list[tuple[Program, Any]]:
    """The answer after each line of each program, on two ranks; what was given is for later."""
    steps = [step for program in programs for step in program.steps()]
    cases = [[step.given, step.lines + _after(step)] for step in steps]
    result = run(drive, {"cases": cases}, world=2)
    for rank, answers in enumerate(result.outputs):
        for step, found in zip(steps, answers, strict=True):
            if found["made"] != (_lost(step.lost) if step.lost else step.types):
                _explain(run, step, found["made"], rank)
    return list(zip(steps, result.outputs[0], strict=True))


def _after(step: Program) -> list[Line]:
    """A line that gives the name of what is lost to another tensor, which comes too late."""
    late = step.lost and step.lines[1:]
    return [(step.lost, "t", next(iter(step.given)))] if late else []


def _lost(name: str) -> str:
    return f"Lost({name!r})"


def _explain(run: Run, step: Program, made: Any, rank: int) -> None:
    """Fails at the last line, the first whose type is wrong, in words that say why."""
    line, before = step.lines[-1], {**step.given}
    for earlier, kind in zip(step.lines[:-1], step.made, strict=False):
        before[earlier[0]] = kind
    read = [before[each] for each in line[2:] if isinstance(each, str)]
    name = line[0]
    if isinstance(made, dict) and not step.lost and made.get(name) == step.types[name]:
        changed = next((n for n in step.types if made.get(n) != step.types[n]), "")
        run.fail(
            f"the types after {_words(line)}" + _where(step),
            rank=rank,
            expected=f"{step.types[changed]} for {changed}" if changed else str(step.types),
            measured=f"{made.get(changed)} for {changed}" if changed else str(made),
            cause="a line gives a type to its own result, and all others keep theirs",
        )
    old = isinstance(made, dict) and name in before and made.get(name) == before[name]
    cause = _cause(line[1], read, bool(step.lost))
    measured = f"{made.get(name)} for {name}" if isinstance(made, dict) else str(made)
    if isinstance(made, dict) and _after(step):
        measured, cause = "no exception", f"{cause}; raise Lost here, whatever comes next"
    elif step.lost and not isinstance(made, dict):
        cause = f"Lost takes the name of the line's result, which is {name}"
    elif old and not step.lost:
        cause = f"from this line on, {name} is a new tensor with another type"
    run.fail(
        f"{_words(line)} with {' and '.join(read)}" + _where(step),
        rank=rank,
        expected=f"{_lost(name) if step.lost else step.made[-1]} for {name}",
        measured=measured,
        cause=cause,
    )


def _words(line: Line) -> str:
    name, operation, *arguments = line
    return f"{name} = {operation}({', '.join(map(str, arguments))})"


def _where(step: Program) -> str:
    return f", after {'; '.join(map(_words, step.lines[:-1]))}" if step.lines[1:] else ""


def _cause(operation: str, read: Iterable[str], lost: bool) -> str:
    letters = {each[0] for each in read}
    if "V" in letters and not lost and operation not in by_value.MOVING[1:]:
        return "whatever is computed from a V is a V"
    if not lost:
        return RIGHTS.get(
            operation,
            "linear operations keep the type, and everything keeps R; "
            "try it with one number per rank",
        )
    return next(why for (name, x), why in LOSSES.items() if name == operation and x in letters)


@check("the type of a result, for each operation", points=5, code="E")
@diagnosis("write down what each rank has, and what one process would have")
def check_types(run: Run) -> None:
    """E: every operation on R, S(0), S(1), P, where the true value is kept."""
    singles = by_value.single_lines(run)
    _compare(run, [p for p in singles if not p.lost and "V" not in p.given.values()])


@check("Lost where a sum or a gather is missing, or there is one too many", points=5, code="E")
@diagnosis("raise Lost with the name of the line's result")
def check_losses(run: Run) -> None:
    """E: every operation on every type that loses it."""
    _compare(run, [p for p in by_value.single_lines(run) if p.lost])


@check("V stays V until a collective", points=2, code="E")
@diagnosis("what is computed from a V is V; but a collective's result is known on every rank")
def check_varying(run: Run) -> None:
    """E: every operation with a V among its arguments."""
    _compare(run, [p for p in by_value.single_lines(run) if "V" in p.given.values()])


@check("this lesson's feed-forward, with and without its sums", points=2, code="E")
@diagnosis("the first line that loses the true value is the one to name")
def check_block(run: Run) -> None:
    """E: columns then rows; without the sum; with sequence parallelism; a name used again."""
    kinds = {"x": "R", "a": "S(1)", "b": "S(0)", "s": "S(0)"}
    given = {name: by_value.of_type(run, kind) for name, kind in kinds.items()}
    small = {
        name: by_value.Value([x / 9 for x in v.ranks], v.true / 9)
        for name, v in given.items()
        if v.true is not None  # all of them are known
    }
    head: list[Line] = [("z", "matmul", "x", "a"), ("z", "gelu", "z"), ("p", "matmul", "z", "b")]
    tails: list[list[Line]] = [
        [("y", "all_reduce", "p"), ("y", "add", "x", "y"), ("y", "gelu", "y")],
        [("y", "add", "x", "p"), ("y", "all_reduce", "y")],
        [("y", "gelu", "p"), ("y", "all_reduce", "y")],
        [("y", "reduce_scatter", "p", 0), ("y", "add", "y", "s"), ("x", "all_gather", "y", 0)],
        [("y", "all_reduce", "p"), ("y", "all_reduce", "y"), ("w", "add", "x", "x")],
    ]
    programs = [by_value.played(small, head + tail) for tail in tails]
    _compare(run, [program for program in programs if program is not None])


@check("programs of random lines", points=2, code="E")
@diagnosis("types pass from line to line, and a line may give an existing name to a new tensor")
def check_programs(run: Run) -> None:
    """E: hidden programs, checked with values; `given` is as it was; a program of no lines."""
    for step, found in _compare(run, by_value.at_random(run, 25)):
        likely = {"the types of results were written into it: begin with a copy": step.types}
        run.equal(found["given"], step.given, "`given`, after the call,", rank=0, likely=likely)
    [found] = run(drive, {"cases": [[{"x": "R"}, []]]}, world=1).outputs[0]
    run.equal(found["made"], {"x": "R"}, "the types after a program without lines")
    run.true(not found["same"], "a program without lines: the result is `given` itself, no copy")
