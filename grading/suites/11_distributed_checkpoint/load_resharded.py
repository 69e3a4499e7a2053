"""load_resharded: any layout into any other, no byte too many, found by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, because, check, describe, diagnosis
from course_lib.ranks.system.processes import PROCESSES
from grading.references.checkpoint.saved_state import (
    Given,
    cut,
    measured_memory,
    padded,
    pieces_of,
    step_path,
    write_checkpoint,
)

EXERCISE = Exercise(
    title="Loading into another layout",
    core=True,
    minutes=40,
    order=2,
    defines=("Piece", "load_resharded"),
    hints=(
        "Two boxes of one tensor overlap, in each dim, from the larger of their offsets to the "
        "smaller of their ends; if that is nothing in one dim, they do not overlap. A piece is "
        "filled by all saved boxes that overlap it. Where is the overlap in each of the two?",
        "`first = list(map(max, part['offsets'], piece.offsets))`, `last` in the same way from "
        "`end(...)` of both; then `piece.tensor.detach()[slices(first, last, piece.offsets)]` is "
        "the target, and the source has `part['offsets']` in that place.",
        "`data = numpy.memmap(file, numpy.uint8, 'c', part['at'], (part['bytes'],))` and "
        "`torch.from_numpy(data).view(piece.tensor.dtype).view(part['sizes'])` is the saved box. "
        "Before: compare `file.stat().st_size`. Padding: `zero_()` the piece, then fill it.",
    ),
)

SENTINEL = 77  # what a tensor holds before it is loaded
MATRICES, ROWS, COLUMNS = 3, 8, 16384  # float64, of the load that is measured
NUMBERS = 128  # bytes: two steps, however they are sent
FEW = 1 << 16  # bytes: more than a manifest, and what a buffer reads too much
NEW = 20  # a step
LATER, OLD = 2**24 + 4, 2**24 + 1  # steps; float32 takes OLD for OLD - 1
LEFT = "it is what was in the tensor before: a box is filled by all saved boxes that overlap it"
NONE = "no saved box was found for it: it is zero"
NOT_ZERO = "it was left as it was: set it to 0"
NO_DATA = "padding was loaded as data: read no further than the tensor's end"
PART = "a part of it is zero: it is filled by all saved boxes that overlap it"
ORDER = "its values are in another order: write through a slice of the tensor, not to its memory"
ROWWISE = "values of the whole row: a column cut has only a stretch of each row"


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, wanted: list[Given], folder: str) -> dict[str, Any]:
    """Loads, and returns what is in the tensors then."""
    pieces = pieces_of(learner, wanted, SENTINEL)
    need = [piece.tensor.requires_grad for piece in pieces]
    step = learner.load_resharded(folder, pieces, group)
    same = need == [piece.tensor.requires_grad for piece in pieces]
    return {"values": [piece.tensor.detach() for piece in pieces], "step": step, "same": same}


def drive_memory(learner: Any, group: Any, wanted: list[Given]) -> dict[str, Any]:
    """What a load reads and needs; a first one makes what is made once."""
    pieces = pieces_of(learner, wanted, SENTINEL)
    found: dict[str, Any] = {}
    learner.load_resharded("wide", pieces[:1], group)
    before = PROCESSES.bytes_read()
    with measured_memory(found):
        learner.load_resharded("wide", pieces, group)
    return found | {"read": PROCESSES.bytes_read() - before}


def drive_refused(learner: Any, group: Any, cases: list[tuple[str, list[Given]]]) -> dict[str, Any]:
    """What each load ends with, and what is in its first tensor then."""
    told, first = [], []
    for folder, wanted in cases:
        pieces = pieces_of(learner, wanted, SENTINEL)
        told.append(_told(partial(learner.load_resharded, folder, pieces, group)))
        first.append(pieces[0].tensor.detach())
    return {"told": told, "first": first}


def _told(call: Callable[[], Any]) -> str:
    try:
        call()
    except NotImplementedError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no exception"


# --- what they must bring back -------------------------------------------------------------------
class Layout:
    """Hidden tensors, and along which dim each is cut when it is saved and when it is loaded."""

    def __init__(self, run: Run) -> None:
        rows, columns = 10 + 2 * run.number(1, 4) + 1, 12 + 4 * run.number(1, 4) + 1
        both = (rows, columns)
        self.state = {
            "mask": run.integers(0, 2, rows).bool(),
            "up": run.random(both),
            "up.exp_avg": run.random(both),
            "gate.exp_avg": run.random(both),
            "gate": run.random(both),
            "down": run.random((columns, rows), torch.bfloat16),
            "heads": run.random((3, rows, 6), torch.float32),
            "norm": run.random(columns, torch.bfloat16),
            "few": run.random(3),  # one of 4 ranks has nothing of it
            "step": run.integers(0, 10**12, ()),
            "not wanted": run.random(33),
        }
        self.saved = {"up": 0, "up.exp_avg": 1, "gate.exp_avg": 1, "gate": 1, "down": 0, "heads": 1,
                      "few": 0}  # fmt: skip
        self.loaded = {"up": 1, "up.exp_avg": 1, "gate.exp_avg": 1, "down": 1, "heads": 2,
                       "norm": 0, "few": 0}  # fmt: skip

    def given(self, world: int) -> list[list[Given]]:
        """What each rank of the save has."""
        return [
            [
                cut(name, whole, self.saved.get(name), index, world)
                for name, whole in self.state.items()
            ]
            for index in range(world)
        ]

    def wanted(self, world: int) -> list[list[Given]]:
        """What each rank of the load is to have, in another order; values as they should be."""
        names = [name for name in reversed(self.state) if name != "not wanted"]
        return [
            [cut(name, self.state[name], self.loaded.get(name), index, world) for name in names]
            for index in range(world)
        ]


def _likely(state: dict[str, torch.Tensor], about: Given, value: Any) -> dict[str, torch.Tensor]:
    """Known wrong values of a box, and what the one that is there looks like."""
    name, _, offsets, right = about
    known = {LEFT: torch.full_like(right, SENTINEL), NONE: torch.zeros_like(right)}
    box = tuple(slice(o, o + s) for o, s in zip(offsets, right.shape, strict=True))
    for other, whole in state.items():
        if other != name and (whole.shape, whole.dtype) == (state[name].shape, right.dtype):
            known[f"these are the values of {other}: find tensors by name, not place"] = whole[box]
    if right.dim() == 2:
        start = offsets[0] * state[name].shape[1] + offsets[1]
        flat = state[name].flatten()[start : start + right.numel()]
        known |= {ROWWISE: flat.view(right.shape)} if len(flat) == right.numel() else {}
        known[ORDER] = right.reshape(right.shape[::-1]).t()
    if torch.equal(torch.where(value == 0, value, right), value):
        known[PART] = value
    return known


@check("every box as it was saved, in another layout", points=6, code="E")
@diagnosis("each saved box of that name gives what overlaps; from the place `at`, in its dtype")
def check_values(run: Run) -> None:
    """E: 1 to 4, 4 to 2, 2 to 3 and 3 to 1 ranks; rows to columns and back, replicas, scalars."""
    layout = Layout(run)
    for before, after in ((1, 4), (4, 2), (2, 3), (3, 1)):
        folder = f"{before}-to-{after}"
        write_checkpoint(Path(run.folder) / folder, NEW, layout.given(before))
        wanted = layout.wanted(after)
        inputs = [{"wanted": mine, "folder": folder} for mine in wanted]
        result = run(drive, inputs, world=after, folder=run.folder)
        for rank, mine in enumerate(wanted):
            for about, value in zip(mine, result.outputs[rank]["values"], strict=True):
                what = f"{about[0]} at {about[2]}, {before} ranks to {after}"
                likely = _likely(layout.state, about, value)
                run.equal(value, about[3], what, rank=rank, likely=likely)
        run.equal(result.column("step"), [NEW] * after, "the steps that the ranks return")
        what = "a tensor that needs a gradient needs none after the load, or the other way round"
        run.true(all(result.column("same")), what, cause="write to `tensor.detach()`")


@check("ZeRO's padding is 0, and no data", points=3, code="E")
@diagnosis("a piece that reaches over its tensor's end is 0 there: only the overlap is read")
def check_padding(run: Run) -> None:
    """E: two vectors and a matrix, padded for 4 ranks; other tensors follow them in the file."""
    world = 4
    state = {"flat": run.random(4 * run.number(8, 20) + 1), "few": run.random(5, torch.float32),
             "rows": run.random((7, 3)), "after": run.random(50)}  # fmt: skip
    given = [[cut(name, whole, 0, index, 3) for name, whole in state.items()] for index in range(3)]
    write_checkpoint(Path(run.folder) / "padded", NEW, given)
    aligned = (("few", 8), ("flat", 1), ("rows", 3))
    parts = [padded(name, state[name], world, align) for name, align in aligned]
    ranks = list(zip(*parts, strict=True))
    inputs = [{"wanted": list(mine), "folder": "padded"} for mine in ranks]
    result = run(drive, inputs, world=world, folder=run.folder)
    for rank, mine in enumerate(ranks):
        values = result.outputs[rank]["values"]
        for (name, shape, offsets, right), value in zip(mine, values, strict=True):
            inside = max(0, min(shape[0] - offsets[0], len(right)))
            what = f"{name} at {offsets}, {inside} of {len(right)} inside its tensor"
            run.true(
                value.shape == right.shape and torch.equal(value[:inside], right[:inside]),
                f"{what}: its values",
                rank=rank,
                expected=describe(right[:inside]),
                measured=describe(value),
            )
            padding = value[inside:]
            cause = NOT_ZERO if (padding == SENTINEL).any() else NO_DATA
            run.true(
                not padding.any(),
                f"{what}: the padding is not 0",
                rank=rank,
                measured=describe(padding),
                cause=cause,
            )


@check("a rank reads its own bytes, sends none, and needs no more memory", points=4, code="M")
@diagnosis("only the overlap is looked at: mapped, or row by row with seeks")
def check_memory(run: Run) -> None:
    """M: on 4 ranks, each with a quarter of every row of what one rank has saved."""
    world = 4
    state = {f"w{number}": run.random((ROWS, COLUMNS)) for number in range(MATRICES)}
    given = [[cut(name, whole, None, 0, 1) for name, whole in state.items()]]
    write_checkpoint(Path(run.folder) / "wide", NEW, given)
    inputs = [
        {"wanted": [cut(name, whole, 1, index, world) for name, whole in state.items()]}
        for index in range(world)
    ]
    result = run(drive_memory, inputs, world=world, folder=run.folder)
    one = ROWS * COLUMNS * 8 // world
    for rank, found in enumerate(run.each(result.outputs)):
        sent = result.timeline.sent()[rank]
        cause = (
            "values are sent: a rank read for others, which then needs memory for them"
            if sent > FEW
            else "more than the step is sent: each rank looks into the manifest itself"
        )
        run.at_most(sent, NUMBERS, "bytes sent in two loads", cause=cause)
        cause = "a whole box or a whole file is in memory, of which a part is wanted"
        what = "bytes of memory beside the tensors"
        run.at_most(found["peak"], 3 * one + FEW * 2, what, cause=cause)
        run.at_most(
            found["read"],
            MATRICES * one * 3 // 2 + FEW,
            "bytes read from the files",
            cause="everything is read, and most of it thrown away: seek, and "
            "read the stretches of your own columns",
        )


@check("the newest complete checkpoint, the same on every rank", points=3, code="E")
@diagnosis("index 0 takes the largest of `complete_steps`, and broadcasts it")
def check_newest(run: Run) -> None:
    """E: ranks see different folders, as while a save ends; the newest one is torn."""
    world = 3
    old, new = {"w": run.random((7, 5))}, {"w": run.random((7, 5))}
    ranks = [[[cut("w", whole["w"], 0, index, 2)] for index in range(2)] for whole in (old, new)]
    for rank in range(world):
        view = Path(run.folder) / f"seen-by-{rank}"
        for step in (LATER + 1, LATER, OLD, OLD - 1, OLD - 2):  # the files' dates say nothing
            write_checkpoint(view, step, ranks[step != OLD])
        torn = step_path(view, LATER + 1)
        (torn / "manifest.json").rename(torn / "unfinished")
        if rank == 0:
            step_path(view, LATER).rename(torn / "later")
    wanted = [[cut("w", old["w"], 1, index, world)] for index in range(world)]
    inputs = [{"wanted": mine, "folder": f"seen-by-{rank}"} for rank, mine in enumerate(wanted)]
    result = run(drive, inputs, world=world, folder=run.folder)
    likely = {
        "each rank looked for itself: a newer one was complete when the others looked": [OLD]
        + [LATER] * (world - 1),
        "a torn checkpoint was loaded: without a manifest it does not count": [LATER + 1] * world,
        "it went through float32, which has not every whole number: send an int64": [OLD - 1]
        * world,
        "this is the oldest": [OLD - 2] * world,
    }
    what = "the steps that the ranks return"
    run.equal(result.column("step"), [OLD] * world, what, likely=likely)
    for rank, mine in enumerate(wanted):
        newer = cut("w", new["w"], 1, rank, world)[3]
        likely = {f"these are the values of step {LATER}": newer}
        what = f"w of step {OLD}"
        run.equal(result.outputs[rank]["values"][0], mine[0][3], what, rank=rank, likely=likely)
    _check_step_0(run, ranks[0], wanted)


def _check_step_0(run: Run, ranks: list[list[Given]], wanted: list[list[Given]]) -> None:
    """A checkpoint of step 0 alone."""
    write_checkpoint(Path(run.folder) / "begun", 0, ranks)
    inputs = [{"wanted": mine, "folder": "begun"} for mine in wanted]
    with because(exception="{} Step 0 is a step as well."):
        result = run(drive, inputs, world=len(wanted), folder=run.folder)
    run.equal(result.column("step"), [0] * len(wanted), "the steps that the ranks return")


@check("what does not fit is refused, by its name", points=4, code="E")
@diagnosis(
    "compare name, shape and dtype of all pieces before one is changed; sizes of files before "
    "they are read"
)
def check_refused(run: Run) -> None:
    """E: a missing name, another shape or dtype, as large or not, a truncated file, no checkpoint.

    Padding is checked as well.
    """
    good, long, lost = run.random((6, 4)), run.random((9, 8), torch.float32), run.random((6, 4))
    large = run.random((12, 8))  # before `long` in its file, and longer
    ranks = [
        [["good", [6, 4], [0, 0], good]],
        [["large", [12, 8], [0, 0], large], ["long", [9, 8], [0, 0], long]],
    ]
    for name in ("whole", "cut"):
        write_checkpoint(Path(run.folder) / name, NEW, ranks)
    file = step_path(Path(run.folder) / "cut", NEW) / "rank-1.bin"
    file.write_bytes(file.read_bytes()[:-40])
    fine, columns = ranks[0][0], ["long", [9, 8], [0, 3], long[:, 3:]]
    cases: dict[str, tuple[str, Given]] = {
        "a tensor that was not saved": ("whole", ["good.exp_avg", [6, 4], [0, 0], lost]),
        "a tensor of another shape": ("whole", ["long", [9, 9], [0, 3], long[:, 3:]]),
        "a tensor of another dtype": ("whole", ["long", [9, 8], [0, 3], long[:, 3:].double()]),
        "a tensor of another shape with as many elements": (
            "whole",
            ["long", [8, 9], [0, 0], long.view(8, 9)],
        ),
        "a tensor of another dtype with as many bytes": (
            "whole",
            ["long", [9, 8], [0, 3], long[:, 3:].int()],
        ),
        "a tensor of another dtype, padding alone,": (
            "whole",
            ["long", [9, 8], [9, 0], long.double()],
        ),
        "a file that was cut short": ("cut", columns),
        "a folder in which index 0 sees none": ("empty", columns),
    }
    (Path(run.folder) / "empty").mkdir()
    known = [[folder, [fine, bad]] for folder, bad in cases.values()]
    later = [*known[:-1], ["whole", known[-1][1]]]  # a rank that sees more than index 0
    result = run(drive_refused, [{"cases": known}, {"cases": later}], world=2, folder=run.folder)
    endings = {
        "no exception": "{} was accepted",
        "KeyError": "a KeyError is no ValueError: ask first whether the name is there",
    }
    for output in run.each(result.outputs):
        for what, told, first in zip(cases, output["told"], output["first"], strict=True):
            name = "rank-1.bin" if "file" in what else cases[what][1][0]
            kind = "FileNotFoundError" if "folder" in what else "ValueError"
            run.true(
                told.startswith(kind),
                f"{what}: how the load ends",
                expected=kind,
                measured=told,
                cause=endings.get(told.partition(":")[0], "").format(what),
            )
            run.true(
                name in told or "folder" in what,
                f"{what}: the message does not name it",
                expected=f"{name} in it",
                measured=told,
            )
            unchanged = "tensor" not in what or bool((first == SENTINEL).all())
            cause = "check all pieces before the first one is written to"
            run.true(unchanged, f"{what}: another tensor was changed all the same", cause=cause)
