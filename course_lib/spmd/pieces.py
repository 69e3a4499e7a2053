"""Slices that differ from rank to rank: when they are the pieces of one tensor.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: Shard(dim) of DTensor, here found in what `A.chunk(N, dim)[rank]` does.
Costs nothing.
The production version is told by the program, which calls `convert(R, S(dim))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from course_lib.spmd import operations as ops
from course_lib.spmd import rules
from course_lib.spmd.aligned import Record
from course_lib.spmd.types import Axis, Piece, R, S, Type, V, Value

Span = tuple[int, int, int]


def sliced(
    call: rules.Call, some: Sequence[Record], read: Sequence[Value], axis: int, on: Axis
) -> tuple[Type, ...] | None:
    """The type of a slice whose place depends on the rank; None if it does not on this axis."""
    if call.name != "slice":
        return None
    dim, spans = _slice_of(call, some)
    if on.holds(list(spans)):
        return None
    size = call.shapes[0][dim]
    whole = read[0].types[axis] == R and _covers(spans, size, on)
    return (S(dim) if whole else V,)


def own_piece(
    call: rules.Call, some: Sequence[Record], read: Sequence[Value]
) -> list[Piece | None] | None:
    """Which part of another tensor each result is; None if none is."""
    if call.name == "slice":
        dim, spans = _slice_of(call, some)
        return [Piece(id(read[0]), dim, call.shapes[0][dim], spans)]
    if call.name in ("split", "split_with_sizes"):
        dim = (call.args[2] if len(call.args) > 2 else 0) % len(call.shapes[0])
        ends = [sum(out[dim] for out in call.outs[: n + 1]) for n in range(len(call.outs))]
        return [
            Piece(id(read[0]), dim, ends[-1], ((end - out[dim], end, 1),) * len(some))
            for out, end in zip(call.outs, ends, strict=True)
        ]
    if call.name in ops.MOVES and call.name not in ops.SUMS and read and read[0].piece:
        return [_carried(read[0].piece, call)]
    return None


def merged(values: Sequence[Value], axes: Sequence[Axis]) -> Value:
    """What the ranks read where each reads a tensor of its own: `parts[rank]`.

    They are a sharded tensor if they are the pieces of one, in the order of the ranks.
    """
    pieces = [value.piece for value in values]
    alike = len({piece and piece[:3] for piece in pieces}) == 1
    types = []
    for number, axis in enumerate(axes):
        held = {value.types[number] for value in values}
        if axis.holds([id(value) for value in values]) and len(held) == 1:
            types.append(held.pop())
        elif None in pieces or not alike or len(held) > 1:
            types.append(V)
        else:
            types.append(_together([p for p in pieces if p], held.pop(), axis))
    zero = all(value.zero for value in values)
    return replace(values[0], types=tuple(types), zero=zero, piece=None)


def _together(pieces: Sequence[Piece], held: Type, axis: Axis) -> Type:
    spans = tuple(piece.spans[rank] for rank, piece in enumerate(pieces))
    if axis.holds(list(spans)):
        return held
    whole = held == R and _covers(spans, pieces[0].size, axis)
    return S(pieces[0].dim) if whole else V


def _covers(spans: Sequence[Span], size: int, axis: Axis) -> bool:
    """Whether the ranks of each group have the whole dim together, in their order or by turns."""
    return all(_is_whole([spans[rank] for rank in line], size) for line in axis.lines)


def _is_whole(spans: Sequence[Span], size: int) -> bool:
    if {step for _, _, step in spans} == {len(spans)} and len(spans) > 1:
        return [first for first, _, _ in spans] == list(range(len(spans)))
    ends = [0, *(last for _, last, _ in spans)]
    in_turn = [first for first, _, _ in spans] == ends[:-1]
    return in_turn and ends[-1] == size and {step for _, _, step in spans} == {1}


def _slice_of(call: rules.Call, some: Sequence[Record]) -> tuple[int, tuple[Span, ...]]:
    """The dim of a slice, and what each rank takes."""
    dim = (call.args[1] if len(call.args) > 1 else 0) % len(call.shapes[0])
    size = call.shapes[0][dim]
    return dim, tuple(_span(each["args"][2:], size) for each in some)


def _span(args: Sequence[int | None], size: int) -> Span:
    first, last, step = (*args, *(None,) * 3)[:3]
    return slice(first, last, step).indices(size)


def _carried(piece: Piece, call: rules.Call) -> Piece | None:
    """The same part after a view or a copy, if its dim is still there."""
    before, after = call.shapes[0], call.outs[0]
    place = ops.MOVES[call.name](piece.dim, before, after, call.args)
    if place is None or before[piece.dim] != after[place]:
        return None
    return piece._replace(dim=place)
