"""From records to types: walks through what all ranks did, and holds each claim against the values.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: abstract interpretation (Cousot and Cousot, 1977) with types for values, beside a real run.
Costs: a few microseconds an operation and rank.
The production version checks types alone; here the ranks' values are there to contradict them.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.spmd.aligned import Record, parting, side_by_side
from course_lib.spmd.pieces import merged
from course_lib.spmd.report import Report, Row
from course_lib.spmd.types import Axis, R, Value
from course_lib.spmd.walk import Walk


def types_of(records: Sequence[Record], axes: Sequence[Axis] = ()) -> Report:
    """The types of a program's tensors, and what its types say is wrong.

    Args:
        records: of all ranks, in order, as `Recorder.to_dict` makes them.
        axes: of the mesh; if none are given, those on which something was sent.

    Returns:
        The report: a row for each named tensor, and findings in the order in which they came.
    """
    walk = Walk(records, list(axes) or axes_of(records))
    for moment in side_by_side(records):
        walk.step(moment)
    rows = _rows(walk)
    judge_the_end(walk, {row.name: row.value for row in rows})
    return Report(walk.axes, rows, list(walk.findings), parting(records))


def axes_of(records: Sequence[Record]) -> list[Axis]:
    """The axes of the groups that the ranks have named or talked in; `world` if there are none.

    A name counts if its groups hold every rank once. What lies like another axis is left out.
    """
    names = {axis for record in records for axis, _ in record["axes"]}
    found = []
    for name in sorted(names):
        lines = {tuple(g) for record in records for axis, g in record["axes"] if axis == name}
        members = sorted(rank for line in lines for rank in line)
        if members == list(range(len(records))) and len(lines) < len(records):
            found.append(Axis(name, tuple(sorted(lines))))
    found = list({axis.lines: axis for axis in reversed(found)}.values())[::-1]
    return found or [Axis("world", (tuple(range(len(records))),))]


def _rows(walk: Walk) -> list[Row]:
    """What the program's named tensors are at its end, where all ranks have them."""
    first, rows = walk.records[0], []
    for name in first["names"]:
        numbers = [record["names"].get(name, -1) for record in walk.records]
        held = [walk.state.get(rank, number) for rank, number in enumerate(numbers)]
        values = [value for value in held if value is not None]
        if len(values) == len(held):
            value = values[0] if len({*map(id, values)}) == 1 else merged(values, walk.axes)
            rows.append(Row(name, first["tensors"][numbers[0]]["shape"], value))
    return rows


def judge_the_end(walk: Walk, values: dict[str, Value]) -> None:
    """What parameters that all ranks have lack: a sum of gradients, a gathering of parts."""
    for name in walk.records[0]["trained"]:
        held, grad = values.get(name), values.get(f"{name}.grad")
        if held is None:
            continue
        for axis in range(len(walk.axes)):
            if axis in held.torn:
                walk.findings.add("torn", [held], op=name, axis=axis, line=held.line)
            elif held.types[axis] == R and grad is not None and id(grad) not in walk.sent[axis]:
                walk.judge_gradient("gradient", held, grad, axis, grad.line, name)
