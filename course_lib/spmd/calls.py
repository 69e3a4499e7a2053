"""What a collective does to a type, on its own axis and on the others.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: the table of state transitions of `spmd_types`; DTensor's redistribute.
Costs nothing.
The production version asks the caller for the types before and after, and checks them.

    all_reduce, sum or mean    P → R          reduce_scatter    P → S(0)
    all_gather                 S(0) → R       all_to_all        V → V
    broadcast                  any → R        a maximum         any → R
"""

from __future__ import annotations

from course_lib.spmd.rules import Found
from course_lib.spmd.types import Axis, P, R, S, Type, V

LINEAR = ("sum", "avg", "")


def relation(axis: Axis, groups: tuple[tuple[int, ...], ...]) -> str:
    """How a call's groups (one for each rank) lie to an axis.

    Returns:
        `own` if they are the axis's lines, `covers` if they hold these, `inside` if they are parts
        of them, else `across`.
    """
    lines = {rank: set(line) for line in axis.lines for rank in line}
    pairs = [(set(group), lines[rank]) for rank, group in enumerate(groups)]
    if all(group == line for group, line in pairs):
        return "own"
    if all(group >= line for group, line in pairs):
        return "covers"
    return "inside" if all(group <= line for group, line in pairs) else "across"


def collective_rule(op: str, reduction: str, type_: Type, how: str) -> Found:
    """The type after a collective, on an axis to which its groups lie as `relation` says.

    The mistake `counted` is a sum of what is replicated, which comes once from every rank; `pieces`
    adds different pieces of a tensor to each other.
    """
    if how == "across":
        return _across(reduction, type_)
    if how == "inside":
        return Found((R if type_ == R else V,))
    summed = op in ("all_reduce", "reduce_scatter", "reduce") and reduction == "sum"
    mistake = {"R": "counted", "S": "pieces"}.get(type_.letter, "") if summed else ""
    if op in ("all_reduce", "all_gather", "broadcast"):
        return Found((R,), mistake)
    scattered = op == "reduce_scatter" and how == "own"
    return Found((S(0) if scattered else V,), mistake)


def _across(reduction: str, type_: Type) -> Found:
    """On the other axes a collective is an operation like any other: linear, if it adds."""
    if type_ == P and reduction not in LINEAR:
        return Found((V,), "nonlinear")
    return Found((type_,))
