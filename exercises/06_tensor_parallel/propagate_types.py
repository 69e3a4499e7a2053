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

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class Lost(Exception):
    """The ranks no longer have the true value.

    Args:
        name: of the tensor that the line makes.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"no type gives the true value of {name}")
        self.name = name


def propagate_types(given: Mapping[str, str], program: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """The types of all tensors after the program.

    Args:
        given: types of the tensors that are there before.
        program: the lines.

    Raises:
        Lost: a line makes something that has no type.
    """
    raise NotImplementedError("propagate_types: line after line")
