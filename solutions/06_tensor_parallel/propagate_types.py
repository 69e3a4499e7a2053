"""propagate_types: derive the types of distributed tensors in a program, before it runs.

Notebook 06, section 10. All tensors are matrices, distributed over the N ≥ 2 ranks of one axis. The
type of a tensor says how its true value follows from what the ranks have:

    "R"              replicated: it is what any rank has
    "S(0)", "S(1)"   sharded: it is the ranks' pieces, concatenated along dim 0 or dim 1
    "P"              partial: it is the sum of what the ranks have
    "V"              varying: there is no true value, the ranks just have different values

You get the types of some tensors and a program. A program is a list of lines (name, operation,
arguments...). The arguments are names of tensors; for some operations, the last one is a dim (0 or
1). The line gives its result the name `name`. If that name is in use already, it stands for the new
tensor from then on.

With these operations, each rank computes from what it has itself. The true value of the result is
what one process would compute from the arguments' true values:
- ("y", "matmul", "a", "b"), ("y", "add", "a", "b"), ("y", "t", "x"): the matrix product, the sum of
  two matrices, the transpose;
- ("y", "gelu", "x"): gelu of each element; ("y", "softmax", "x", dim): softmax along a dim;
- ("y", "sum", "x", dim): the sum over a dim, which stays as a dim of size 1.

The other four are meant to leave the true value as it is, and change only what each rank has of it:
- ("y", "chunk", "x", dim): each rank cuts what it has into N equal parts along the dim, and keeps
  the part at its own index; nothing is sent;
- ("y", "all_reduce", "x"): every rank gets the sum of what the ranks have;
- ("y", "all_gather", "x", dim): every rank gets what the ranks have, concatenated along the dim;
- ("y", "reduce_scatter", "x", dim): the same sum, of which each rank gets its part along the dim.

Rules
- The type of a result is the one of R, S(0), S(1) and P by which its true value follows from what
  the ranks have after the line.
- If it follows by none of them, the true value is lost: a sum or a gather is missing, or there is
  one too many. Raise `Lost(name)`, with the name of the result, at the first such line.
- A V is not an error. Whatever is computed from a V, alone or with other tensors, is V; that
  includes chunk. Only a collective (the last three) ends this: what it computes from a V is the new
  true value, and the result gets the type by which that value follows.
- The shapes of all arguments fit. `given` must not be changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class Lost(Exception):
    """The ranks no longer have the true value.

    Args:
        name: the name of the line's result.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"no type gives the true value of {name}")  # mutate: same
        self.name = name


def propagate_types(given: Mapping[str, str], program: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """Derives the types of all tensors, line by line.

    Args:
        given: the types, by name, of the tensors that exist before the program.
        program: the lines, in order.

    Returns:
        The type that each name has after the last line, in a new dict; those of `given` are in it.

    Raises:
        Lost: the true value of a line's result is lost.
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
