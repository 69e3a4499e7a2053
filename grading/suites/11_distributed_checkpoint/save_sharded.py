"""save_sharded: every byte once, none on the wire, and a killed rank leaves the old one."""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, RunFault, check, diagnosis, in_part
from grading.references.checkpoint.fsync_watch import watched
from grading.references.checkpoint.saved_state import (
    Given,
    compare_parts,
    cut,
    file_sizes,
    measured_memory,
    newest,
    pieces_of,
    read_parts,
    step_path,
    total_bytes,
)

EXERCISE = Exercise(
    title="A checkpoint that is complete, or not there at all",
    core=True,
    minutes=40,
    order=1,
    defines=("Piece", "save_sharded"),
    hints=(
        "Three parts: agree on who writes which box, write the own file, publish. Between the "
        "second and the third index 0 must hear from everybody, for two reasons: it needs to know "
        "where their boxes are, and that they are on the disk. One `share` does both.",
        "Agree: `share([json.dumps(piece.about()) for piece in pieces], group)`; then every rank "
        "goes through the sorted set of all boxes and gives each to "
        "`min(holders, key=lambda index: load[index])`. All come to the same plan.",
        "Write: note `{**piece.about(), 'file': name, 'at': file.tell()}`, write the bytes; at the "
        "end `file.flush()`, `os.fsync(file.fileno())`, and only then `share` the notes. Publish: "
        "`json.dump` to another name, flush, sync, `os.replace`; and a `barrier` for all.",
    ),
)

PAUSE = 0.06  # seconds of a slow rank; what must wait for it, waits
BIG, MANY = 1 << 15, 5  # numbers in a piece, and pieces, of the save that is measured
FEW = 1 << 15  # bytes: more than names and offsets take
EARLY = "index 0 must hear that every rank has synced, before it gives the manifest its name"
LAST = -1  # in place of a dim: the last rank has all of it; -world: the first one
OLDER = (3, 4, 5)  # steps that were saved before
TOUCHED = "a complete checkpoint was touched: see `start_step`"
IN_PLACE = "it was written in place: write another file, and `os.replace` it"


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, given: list[Given], place: str, earlier: Sequence[Given] = ()
) -> dict[str, Any]:
    """Saves step 20, over what a save that died has left; then saves it again.

    Rank 0 has had the fewest bytes to write, in that save and in an `earlier` one of step 10.
    """
    path = step_path(place, 20)
    path.mkdir(parents=True, exist_ok=True)
    for name in (f"rank-{group.index}.bin", f"rank-{group.size}.bin"):
        (path / name).write_bytes(b"left by another save" * 999 * (group.index + 1))
    (path / "manifest.new").write_bytes(b"left" * 999)
    older = [step_path(place, step) / "manifest.json" for step in OLDER]
    for manifest in older:
        manifest.parent.mkdir(exist_ok=True)
        manifest.write_text("{}")
    if earlier:
        learner.save_sharded(pieces_of(learner, earlier), place, group, 10)
    learner.save_sharded(pieces_of(learner, given), place, group, 20)
    others = [[*about, (values.detach() + 1).to(values.dtype)] for *about, values in given]
    try:
        learner.save_sharded(pieces_of(learner, others), place, group, 20)
    except OSError as error:
        again = type(error).__name__
    else:
        again = "no exception"
    return {"again": again, "kept": all(manifest.exists() for manifest in older)}


def drive_order(learner: Any, group: Any, given: list[Given], place: str) -> dict[str, Any]:
    """Notes when each rank synced, renamed and returned; the last rank and the rename are slow."""
    Path(place).mkdir(exist_ok=True)
    events: list[list[Any]] = []
    slow = "replace" if group.index == 0 else "sync" if group.index == group.size - 1 else ""

    def before(what: str, _: int) -> None:
        if what == slow:
            time.sleep(PAUSE)

    def after(what: str, which: Any) -> None:
        events.append([what, which, time.monotonic()])

    with watched(before, after):
        learner.save_sharded(pieces_of(learner, given), place, group, 20)
    returned = time.monotonic()
    names = [f"rank-{group.index}.bin", "manifest.json"]
    files = [path for path in (step_path(place, 20) / name for name in names) if path.exists()]
    found = {path.name: [path.stat().st_ino, path.stat().st_size] for path in files}
    return {"events": events, "returned": returned, "files": found}


def drive_killed(
    learner: Any, group: Any, old: list[Given], new: list[Given], place: str, victim: int, at: int
) -> dict[str, Any]:
    """Saves step 10; in the save of step 20 a rank dies at a sync, with half a file on the disk."""
    Path(place).mkdir(exist_ok=True)
    learner.save_sharded(pieces_of(learner, old), place, group, 10)
    syncs = []

    def before(what: str, number: int) -> None:
        syncs.append(what == "sync")
        if group.index != victim or sum(syncs) < at:
            return
        end = time.monotonic() + PAUSE
        while time.monotonic() < end and newest(place) == 10:
            time.sleep(0.005)  # for the others: they must not publish what is not there
        os.ftruncate(number, os.fstat(number).st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)

    with watched(before):
        learner.save_sharded(pieces_of(learner, new), place, group, 20)
    return {}


def drive_memory(learner: Any, group: Any, given: list[Given], place: str) -> dict[str, Any]:
    """The most memory that a save uses, beside the tensors."""
    Path(place).mkdir(exist_ok=True)
    pieces = pieces_of(learner, given)
    found: dict[str, Any] = {}
    learner.save_sharded(pieces[:1], place, group, 10)  # what is made once, is made here
    with measured_memory(found):
        learner.save_sharded(pieces, place, group, 20)
    return found


# --- what they must bring back -------------------------------------------------------------------
def _state(run: Run, world: int) -> tuple[dict[str, torch.Tensor], dict[str, int | None]]:
    """Hidden tensors, and along which dim each is cut; sizes that no world divides."""
    rows, columns = 12 + run.number(1, 6) * 2 + 1, 12 + run.number(1, 5) * 4 - 1
    state = {
        "up.weight": run.random((rows, columns)),
        "down.weight": run.random((columns, rows), torch.bfloat16),
        "up.weight.exp_avg": run.random((rows, columns), torch.float32),
        "flat": run.random(world * 25 + 2, torch.float32),
        "few": run.random(3),  # one of 4 ranks has nothing of it
        "norm": run.random(rows, torch.bfloat16),
        "early": run.random((3, 4)),
        "late": run.random((3, 4)),
        "mask": run.integers(0, 2, 7).bool(),
        "bias": run.random(columns, torch.float32),
        "step": run.integers(0, 10**12, ()),
    }
    cuts = {"up.weight": 1, "down.weight": 0, "up.weight.exp_avg": 0, "flat": 0, "few": 0}
    cuts |= {"early": -world, "late": LAST}
    return state, {name: cuts.get(name) for name in state}


def _box(name: str, whole: torch.Tensor, dim: int | None, index: int, world: int) -> Given:
    """The box that one rank has; all that one rank has begins where the others' empty ones do."""
    if dim is None or dim >= 0:
        return cut(name, whole, dim, index, world)
    mine = whole if index == world + dim else whole[:0]
    return [name, list(whole.shape), [0] * whole.dim(), mine]


def _given(state: dict[str, torch.Tensor], cuts: dict[str, Any], world: int) -> list[list[Given]]:
    """What each rank has; not in the same order everywhere."""
    ranks = [
        [_box(name, whole, cuts[name], index, world) for name, whole in state.items()]
        for index in range(world)
    ]
    return [pieces[index:] + pieces[:index] for index, pieces in enumerate(ranks)]


@check("every element is on the disk once, bit for bit", points=5, code="E")
@diagnosis("each box's bytes, from a contiguous tensor, and where they begin in which file")
@in_part
def check_values(run: Run) -> None:
    """E: rows, columns, stretches, replicas, scalars, on 1, 3 and 4 ranks."""
    for world in (1, 3, 4):
        state, cuts = _state(run, world)
        inputs = [{"given": given, "place": f"on-{world}"} for given in _given(state, cuts, world)]
        result = run(drive, inputs, world=world, folder=run.folder)
        for again in run.each(result.column("again")):
            what = "how a second save of the same step ends"
            run.equal(again, "FileExistsError", what, likely={TOUCHED: "no exception"})
        kept = all(result.column("kept"))
        run.true(kept, "the checkpoint of an earlier step is gone", cause="it is never touched")
        parts = read_parts(run, step_path(Path(run.folder) / f"on-{world}", 20))
        compare_parts(run, parts, state)
        others = {part["file"] for part in parts} - {f"rank-{index}.bin" for index in range(world)}
        run.true(
            not others,
            f"a file that is not one of rank-0.bin to rank-{world - 1}.bin",
            measured=", ".join(sorted(others)),
            cause="a file has the index of its rank in the group",
        )


@check("in each rank's own file, replicas shared out by their bytes", points=3, code="B")
@diagnosis("each rank writes what it alone has; of the rest, each box goes to who has least")
def check_files(run: Run) -> None:
    """B: bytes of each file; replicas of very different sizes."""
    world = 3
    size = run.number(40, 60) * 8
    names = [f"layer.{i:02}" for i in range(12)]
    state = {name: run.random(size // (8 if i % world else 1)) for i, name in enumerate(names)}
    state["own"] = run.random((world, 5))
    cuts = {name: 0 if name == "own" else None for name in state}
    inputs = []
    for index, given in enumerate(_given(state, cuts, world)):
        values = run.random(4096 if index else 1)
        earlier = [[f"of rank {index}", list(values.shape), [0], values]]
        inputs.append({"given": given, "place": "files", "earlier": earlier})
    run(drive, inputs, world=world, folder=run.folder)
    path = step_path(Path(run.folder) / "files", 20)
    sizes, whole = file_sizes(path, world), total_bytes(list(state.values()))
    copies = total_bytes([values for name, values in state.items() if name != "own"])
    causes = {
        whole: "one rank writes what all have, so the other disks are idle",
        copies + 40: "replicas are written by every rank that has them",
    }
    run.true(
        sum(sizes) == whole,
        "bytes in all files rank-0.bin, rank-1.bin, ...",
        expected=f"{whole:,}: each value once",
        measured=f"{sum(sizes):,}: {sizes}",
        cause=causes[copies + 40] if min(sizes) >= copies else "",
    )
    for part in read_parts(run, path):
        if part["name"] == "own":
            rank = part["offsets"][0]
            what = "where a box lies that one rank alone has"
            run.equal(part["file"], f"rank-{rank}.bin", what, rank=rank)
    limit = whole // world + size * 8
    run.at_most(
        max(sizes),
        limit,
        "the largest file, in bytes",
        rank=sizes.index(max(sizes)),
        cause=causes[whole]
        if max(sizes) >= copies
        else "count bytes and not boxes, those of this save alone: give "
        "each replica to the holder with the fewest bytes so far",
    )


@check("no values are sent, and copies of one piece at a time", points=3, code="M")
@diagnosis("write each piece from where it is; tell the others names and offsets only")
def check_memory(run: Run) -> None:
    """M: the peak of what is new, and bytes sent."""
    world = 3
    state = {f"w{i}": run.random((world * 8, BIG // 8)) for i in range(MANY)}
    cuts: dict[str, Any] = dict.fromkeys(state, 0)
    inputs = [{"given": given, "place": "wide"} for given in _given(state, cuts, world)]
    result = run(drive_memory, inputs, world=world, folder=run.folder)
    gathered = "values are sent: gathered on one rank, they need its memory and its disk"
    for sent in run.each(result.timeline.sent()):
        run.at_most(sent, FEW, "bytes sent in a save of some MB", cause=gathered)
    for peak in run.each(result.column("peak")):
        cause = "copies of many pieces are in memory at once: write one after another"
        run.at_most(peak, 3 * BIG * 8 + 8 * FEW, "bytes of memory beside the tensors", cause=cause)


@check("synced, then published, then all ranks return", points=4, code="O")
@diagnosis("own file: flush, sync. All agree. Manifest: flush, sync, replace. All wait for it")
def check_order(run: Run) -> None:
    """O: on three ranks, of which the last is slow to sync; the rename is slow as well."""
    world = 3
    state, cuts = _state(run, world)
    inputs = [{"given": given, "place": "order"} for given in _given(state, cuts, world)]
    result = run(drive_order, inputs, world=world, folder=run.folder)
    moves = [event for event in result.outputs[0]["events"] if event[0] == "replace"]
    run.true(bool(moves), "index 0 never called os.replace", rank=0, cause=IN_PLACE)
    published = moves[-1][2]
    for rank, output in enumerate(run.each(result.outputs)):
        synced = {tuple(which): at for what, which, at in output["events"] if what == "sync"}
        for name, which in output["files"].items():
            if name == "manifest.json" and rank:
                continue
            sizes = [size for number, size in synced if number == which[0]]
            run.true(
                tuple(which) in synced,
                f"{name} was not synced, or not all of it",
                expected=f"os.fsync of its {which[1]} bytes",
                measured=f"syncs of it when it had {sizes} bytes" if sizes else "no sync",
                cause="`flush` before the sync, or Python still holds a part of it"
                if sizes
                else "after a power cut its name would lead to nothing",
            )
            run.true(
                synced[tuple(which)] < published,
                f"{name} was synced after the manifest had its name",
                cause=EARLY,
            )
        run.true(
            output["returned"] > published,
            "save_sharded returned before the checkpoint was complete",
            cause="a barrier after the manifest's rename",
        )


@check("a rank is killed while it saves: the old checkpoint is the newest", points=5, code="E")
@diagnosis("nothing of an older step is touched, and the manifest comes last")
def check_killed(run: Run) -> None:
    """E: one rank at the sync of its values, index 0 at that of the manifest."""
    world = 3
    old, cuts = _state(run, world)
    new = {name: (values.float() * 2).to(values.dtype) for name, values in old.items()}
    pairs = list(zip(_given(old, cuts, world), _given(new, cuts, world), strict=True))
    for victim, at, what in ((1, 1, "its values"), (0, 2, "the manifest")):
        place = f"killed-{victim}"
        inputs = [
            {"old": before, "new": after, "place": place, "victim": victim, "at": at}
            for before, after in pairs
        ]
        fault = run.attempt(drive_killed, inputs, world=world, folder=run.folder).fault
        if fault is not None and fault.kind != "killed":
            raise RunFault(fault)
        run.true(
            fault is not None,
            f"rank {victim} never synced {what}, where it was to be killed",
            cause="os.fsync: until then nothing is on the disk",
        )
        _compare_killed(run, Path(run.folder) / place, victim, what)
        compare_parts(run, read_parts(run, step_path(Path(run.folder) / place, 10)), old)


def _compare_killed(run: Run, folder: Path, victim: int, what: str) -> None:
    """What the save in which a rank was killed has left."""
    died = f"after rank {victim} was killed at the sync of {what}"
    run.true(
        newest(folder) != 20,
        f"{died}, the torn checkpoint counts as complete",
        rank=victim,
        expected="no manifest.json in step-00000020",
        cause=EARLY if victim else IN_PLACE,
    )
    run.true(
        newest(folder) == 10,
        f"{died}, there is no complete checkpoint any more",
        rank=victim,
        cause="the old one was removed before the new one was complete",
    )
