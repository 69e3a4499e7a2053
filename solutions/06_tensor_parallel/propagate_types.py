"""propagate_types: follow the types of distributed tensors through a program, before it runs.

Notebook 06, section 10. All tensors are matrices on one axis of ranks, and have a type: "R"
(replicated), "S(0)" or "S(1)" (sharded along a dim), "P" (partial) or "V" (varying).

A program is a list of lines (name, operation, arguments...): names of tensors, then perhaps a dim.
A line may give a name a new tensor. Each rank computes with what it has:
- ("y", "matmul", "x", "w"), ("y", "add", "a", "b"), ("y", "t", "x"): product, sum, transposed;
- ("y", "gelu", "x"), of each element; ("y", "softmax", "x", dim);
- ("y", "sum", "x", dim): over a dim, which stays there with size 1;
- ("y", "chunk", "x", dim): of what this rank has, the part at this rank's place.

Three operations are collectives: ("y", "all_reduce", "x"), a sum; ("y", "all_gather", "x", dim);
and ("y", "reduce_scatter", "x", dim), a sum that is cut.

The true value of a result is what one process computes from the true values; "chunk" and
collectives are there to keep it. Rules
- A result has the type by which the true value follows from what the ranks have.
- If it follows by none of R, S(0), S(1), P, a sum or a gather is missing, or one too many. Raise
  `Lost(name)` for the first such line.
- A "V" has no true value, and neither has what is computed from it: that is V. But what a
  collective makes of a V is known again.
- The arguments of every line have shapes that fit. `given` stays as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class Lost(Exception):
    """The ranks no longer have the true value.

    Args:
        name: of the tensor that the line makes.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"no type gives the true value of {name}")  # mutate: same
        self.name = name


def propagate_types(given: Mapping[str, str], program: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """The types of all tensors after the program.

    Args:
        given: types of the tensors that are there before.
        program: the lines.

    Raises:
        Lost: a line makes something that has no type.
    """
    # BEGIN SOLUTION: line after line
    types = dict(given)
    for name, operation, *arguments in program:
        read = [types[each] if isinstance(each, str) else f"S({each})" for each in arguments]
        made = _made(operation, *read)
        if made == "":  # mutate: same
            raise Lost(name)
        types[name] = made
    return types


PRODUCTS = {
    ("R", "R"): "R",
    ("S(0)", "R"): "S(0)",  # rows
    ("R", "S(1)"): "S(1)",  # columns
    ("S(1)", "S(0)"): "P",  # X A = X_0 A_0 + X_1 A_1
    ("P", "R"): "P",  # linear in each factor
    ("R", "P"): "P",
}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def _made(operation: str, x: str, other: str = "") -> str:
    """The type of a result, "" if there is none; `other` is a type, or S(dim) for a dim."""
    if operation in COLLECTIVES:
        return _collected(operation, x, other)
    if "V" in (x, other):
        return "V"
    if operation == "matmul":
        return PRODUCTS.get((x, other), "")
    if operation == "add":
        return x if x == other else ""
    if operation == "t":
        return {"S(0)": "S(1)", "S(1)": "S(0)"}.get(x, x)
    if operation == "sum":
        return "P" if x == other else x
    if operation == "chunk":
        return other if x == "R" else ""
    return "" if x in ("P", other) else x  # gelu, softmax


def _collected(operation: str, x: str, dim: str) -> str:
    if operation == "all_gather":  # mutate: same
        return "R" if x in (dim, "V") else ""
    summed = "R" if operation == "all_reduce" else dim
    return summed if x in ("P", "V") else ""
    # END SOLUTION
