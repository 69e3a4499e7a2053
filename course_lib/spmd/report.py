"""The types of a cell's tensors as a table, and what is wrong with them.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: the array types that JAX prints with sharding in types: f32[8, 16@tp].
Costs nothing.
The production version logs each operation's types as a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.spmd.findings import Finding
from course_lib.spmd.types import Axis, Value

MOST = 24  # rows that are shown
FEW = 6  # findings that are shown


class Row(NamedTuple):
    """A named tensor at the end of the program.

    Attributes:
        name: the variable, the parameter, or its gradient.
        shape: on rank 0.
        value: its types, and what made it.
    """

    name: str
    shape: Sequence[int]
    value: Value


class Report(NamedTuple):
    """What was found.

    Attributes:
        axes: of the mesh, in the order of each value's types.
        rows: named tensors.
        findings: what is wrong, in the order in which it happened.
        parted: why the ranks could not be followed to the end; "" if they could.
    """

    axes: Sequence[Axis]
    rows: Sequence[Row]
    findings: Sequence[Finding]
    parted: str = ""

    def type_of(self, name: str, axis: str) -> str:
        """`R`, `S(0)`, `P` or `V`: the type of a named tensor on one axis.

        Raises:
            KeyError: there is no such tensor or axis.
        """
        number = [each.name for each in self.axes].index(axis)
        return {row.name: str(row.value.types[number]) for row in self.rows}[name]

    def table(self) -> str:
        """The table, and below it the findings."""
        head = ["tensor", "shape", *(axis.name for axis in self.axes), "made by"]
        body = [self._cells(row) for row in self.rows[:MOST]]
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            for cells in [head, *body]
        ]
        if len(self.rows) > MOST:
            lines.append(f"... and {len(self.rows) - MOST} more")
        return "\n".join([*lines, "", *self._words()])

    def _cells(self, row: Row) -> list[str]:
        value = row.value
        shape = "×".join(map(str, row.shape)) or "number"
        made = f"{value.made}, {value.line}" if value.line else value.made
        return [row.name, shape, *map(str, value.types), made]

    def _words(self) -> list[str]:
        said = [f"! {finding}" for finding in self.findings[:FEW]]
        if len(self.findings) > FEW:
            said.append(f"... and {len(self.findings) - FEW} more")
        if self.parted:
            said.append(f"Not followed to the end: {self.parted}.")
        return said or ["No sum is missing, and none is made twice."]
