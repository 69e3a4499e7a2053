"""What types say is wrong with a program, in words.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: the errors of `spmd_types`; the pitfalls of this course's lessons, which these name.
Costs nothing.
The production version refuses at the first; here the program ran, and all are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from course_lib.spmd.types import Axis, P, Value

WORDS = {
    "nonlinear": "{op} of a partial sum on {axis}: sum first, since f(a + b) is not f(a) + f(b)",
    "product": "{op} of two partial sums on {axis}: sum one first, since (a + b)(c + d) is not "
    "ac + bd",
    "shard": "{op} along a dim that is sharded on {axis}: each rank takes only its own piece",
    "counted": "{op} over {axis} sums what is replicated there: it is counted {size} times"
    "{partial}",
    "added": "{op} over {axis}: a replicated summand went into this partial sum on {where}, and "
    "is counted {size} times; add it after the sum",
    "gradient": "{op} is replicated on {axis}, and its gradient is {type}: a sum over {axis} is "
    "missing",
    "update": "the step makes {op} differ on {axis}: its gradient is {type} there, a sum over "
    "{axis} is missing",
    "pieces": "{op} over {axis} adds different pieces of a sharded tensor to each other",
    "cut": "each rank takes its own piece of a partial sum on {axis}: sum first",
    "start": "{op} differs on {axis}, and its gradient was summed over {axis}: either it should "
    "be made equal before the first step, or the gradient not be summed",
    "torn": "{op} was the same on {axis}, and each rank has updated a part of it: gather the parts",
}
ABOUT_PARAMETERS = ("gradient", "update", "start", "torn")
NAMES = {"R": "replicated", "S": "sharded", "P": "a partial sum", "V": "different on each rank"}


class Finding(NamedTuple):
    """One thing that cannot be meant.

    Attributes:
        kind: a key of `WORDS`.
        line: where in the program.
        axis: name of the mesh axis.
        text: what it is, and what to do.
    """

    kind: str
    line: str
    axis: str
    text: str

    def __str__(self) -> str:
        return f"{self.line}: {self.text}"


class Findings:
    """Findings in the order in which they came, each cause once.

    Args:
        axes: of the mesh.
    """

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.axes = axes
        self._found: dict[tuple[str, object], Finding] = {}

    def add(
        self, kind: str, read: Sequence[Value], *, op: str, axis: int, line: str, where: str = ""
    ) -> None:
        """Notes a finding.

        Args:
            kind: as in `Finding`.
            read: the values that it is about.
            op: the operation, or the parameter's name.
            axis: number of the axis.
            line: of the program.
            where: another line that has to do with it.
        """
        on = self.axes[axis]
        value = next((each for each in read if each.types[axis] == P), read[0])
        others = [
            self.axes[n].name for n, type_ in enumerate(value.types) if type_ == P and n != axis
        ]
        partial = f"; it is a partial sum on {others[0]}" if others else ""
        text = WORDS[kind].format(
            op=op, axis=on.name, size=on.size, where=where, partial=partial,
            type=NAMES[value.types[axis].letter],
        )  # fmt: skip
        about = op if kind in ABOUT_PARAMETERS else id(value)  # a backward reads it again
        self._found.setdefault((kind, about), Finding(kind, line, on.name, text))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found.values())
