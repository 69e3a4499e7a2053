"""nvme_store: the same bits, no torn file accepted or left, one read ahead."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.offload.executor_log import Reader

EXERCISE = Exercise(
    title="State in files that cannot be torn",
    core=True,
    minutes=40,
    order=3,
    defines=("NvmeStore", "TornFile"),
    library=(),
    hints=(
        "Build the file as one `bytes`: checksum, header, data, where the checksum covers "
        "everything after it. When you read, check it before you trust anything in the header. "
        "What in the header distinguishes one tensor's file from another's?",
        "Bytes of any tensor: `tensor.detach().contiguous().view(-1).view(torch.uint8)"
        ".numpy().tobytes()`; `zlib.crc32(body)`; a header in JSON that ends with a newline. Write "
        "to another name, `flush`, `os.fsync(file.fileno())`, and only then `os.replace`.",
        "Stream: keep a list with the read that is under way. In each turn take its `result()`, "
        "submit `self.read` for the next name if there is one, then yield. Put a `try` around the "
        "loop, whose `finally` waits for what is in the list: `read.exception()` waits and does "
        "not raise.",
    ),
)

NAMES = ["layer.0", "layer.1", "norm", "head.exp_avg", "embedding"]
STREAMED: list[list[str]] = [NAMES, NAMES[:1], [], [NAMES[1], NAMES[1], NAMES[0]]]
SLOW = 0.15  # seconds of the read that is under way when the loop is left


# --- what runs on the rank -----------------------------------------------------------------------
@contextmanager
def _store(learner: Any, group: Any, reader: Reader | None = None) -> Iterator[tuple[Any, Path]]:
    folder = Path(f"state{group.rank}")
    folder.mkdir(exist_ok=True)
    with reader or Reader() as executor:
        yield learner.NvmeStore(str(folder), executor), folder


def _told(call: Callable[[], Any]) -> str:
    """What a call ends with, in a line; "" if it raises nothing."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def drive_bits(learner: Any, group: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    """Writes each, reads each with a store that is new; the last one replaces the first."""
    with _store(learner, group) as (store, folder):
        for number, tensor in enumerate(tensors[:-1]):
            given = tensor.clone().requires_grad_(number == 8)
            store.write(f"t{number}", given.t() if given.dim() == 2 else given)
        files = sorted(path.name for path in folder.iterdir())
    with _store(learner, group) as (store, _):
        back = [store.read(f"t{number}") for number in range(len(tensors) - 1)]
        values = [tensor.clone() for tensor in back]
        for tensor in back:
            tensor.zero_()
        again = [store.read(f"t{number}") for number in range(len(tensors) - 1)]
        store.write("t0", tensors[-1])
        values.append(store.read("t0"))
        missing = _told(lambda: store.read("never"))
    return {"values": values, "again": again, "files": files, "missing": missing}


def drive_torn(learner: Any, group: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    """Reads a file after each kind of damage."""
    with _store(learner, group) as (store, folder):
        store.write("layer.7", tensors[0])
        store.write("layer.8", tensors[1])
        path, other = folder / "layer.7", (folder / "layer.8").read_bytes()
        whole = path.read_bytes()
        size = len(whole)
        damaged = {
            f"cut to {keep} of {size} bytes": whole[:keep]
            for keep in sorted({0, 1, size // 2, size - 8, size - 1})
        }
        damaged["one byte longer"] = whole + b"\0"
        damaged["the file of layer.8 under this name"] = other
        for place in [*range(min(120, size)), *range(120, size, 97), size - 1]:
            changed = bytearray(whole)
            changed[place] ^= 1 << place % 8
            damaged[f"one bit of byte {place} changed"] = bytes(changed)
        damaged |= {f"nothing but {count} zeros": bytes(count) for count in (4, 8, size)}
        damaged |= _turned(whole, *tensors[0].shape) | _swapped(whole)
        told = {}
        for what, data in damaged.items():
            path.write_bytes(data)
            told[what] = _told(lambda: store.read("layer.7"))
        path.write_bytes(changed)  # its header is as it was written
        store.write("layer.7", tensors[0])
        again = _told(lambda: store.read("layer.7"))
        path.write_bytes(other)
        store.write("layer.6", tensors[0])
        first = iter(store.stream(["layer.6", "layer.7"]))
        next(first)
        told["read by stream"] = _told(lambda: next(first))
    return {"told": told, "again": again}


def _turned(whole: bytes, rows: int, columns: int) -> dict[str, bytes]:
    """The file with the two sizes of the shape exchanged, however its header writes them."""
    found = {}
    for first, second in ((rows, columns), (ord(str(rows)), ord(str(columns)))):
        header = whole[:120]
        for i in (place for place, byte in enumerate(header) if byte == first):
            for j in (place for place, byte in enumerate(header) if byte == second):
                changed = bytearray(whole)
                changed[i], changed[j] = second, first
                found[f"bytes {i} and {j} exchanged: {rows} and {columns}"] = bytes(changed)
    return found


def _swapped(whole: bytes) -> dict[str, bytes]:
    """The file with two neighbouring groups of 8 bytes exchanged, however the data are aligned."""
    found = {}
    for at in range(len(whole) - 160, len(whole) - 16, 9):
        first, second = whole[at : at + 8], whole[at + 8 : at + 16]
        if first != second:
            what = f"the 8 bytes from {at} on and the next 8 in each other's place"
            found[what] = whole[:at] + second + first + whole[at + 16 :]
    return found


@contextmanager
def _instead(learner: Any, fsync: Any, replace: Any) -> Iterator[None]:
    """Has these two called for those of `os`, also where the answer has imported them by name."""
    real = {os.fsync: fsync, os.replace: replace}
    places = [(os, "fsync", os.fsync), (os, "replace", os.replace)]
    places += [(learner, name, value) for name, value in vars(learner).items()
               if value is os.fsync or value is os.replace]  # fmt: skip
    for where, name, value in places:
        setattr(where, name, real[value])
    try:
        yield
    finally:
        for where, name, value in places:
            setattr(where, name, value)


class PowerCut(OSError):
    """The process dies here."""


def drive_crash(learner: Any, group: Any, old: torch.Tensor, new: torch.Tensor) -> dict[str, Any]:
    """Dies at the sync, or at the replacement, and reads then; then writes to the end."""
    real = os.fsync, os.replace
    seen: dict[str, Any] = {"after": {}, "orders": [], "moves": []}
    synced: list[tuple[int, int]] = []

    def watch_sync(fd: Any) -> None:
        real[0](fd)
        status = os.fstat(fd if isinstance(fd, int) else fd.fileno())
        synced.append((status.st_ino, status.st_size))

    def watch_replace(src: Any, dst: Any, **options: Any) -> None:
        status = os.stat(src)
        seen["orders"].append((status.st_ino, status.st_size) in synced)
        seen["moves"].append(Path(src).resolve().parent == Path(dst).resolve().parent)
        real[1](src, dst, **options)

    def die(*_: Any, **__: Any) -> None:
        raise PowerCut("power cut")

    with _store(learner, group) as (store, folder):
        store.write("x", old)
        before = (folder / "x").read_bytes()
        for when, fakes in (("sync", (die, real[1])), ("replacement", (real[0], die))):
            with _instead(learner, *fakes):
                ended = _told(lambda: store.write("x", new))
            same = (folder / "x").read_bytes() == before
            seen["after"][when] = {"ended": ended, "same": same}
        with _instead(learner, watch_sync, watch_replace):
            store.write("x", new)
        seen["value"] = store.read("x")
    return seen


def drive_stream(learner: Any, group: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    """Streams all names, one, none, one twice; notes the reads at each turn.

    Then leaves a loop, and runs another into a torn file.
    """
    reader, runs = Reader(), []
    with _store(learner, group, reader) as (store, _):
        for name, tensor in zip(NAMES, tensors, strict=True):
            store.write(name, tensor)
        for names in STREAMED:
            reader.started.clear()
            reader.waited.clear()
            turns, pairs = [], []
            for name, tensor in store.stream(names):
                turns.append([len(reader.started), len(set(reader.waited))])
                pairs.append([name, tensor])
            runs.append({"turns": turns, "pairs": pairs})
    reader = Reader(SLOW)
    with _store(learner, group, reader) as (store, folder):
        loop = store.stream(NAMES)
        next(loop)
        loop.close()
        ended = [read.done() for read in reader.started]
        (folder / NAMES[0]).write_bytes(b"torn")
        told = _told(lambda: next(store.stream(NAMES)))
        torn = [read.done() for read in reader.started[len(ended) :]]
    return {"runs": runs, "ended": ended, "told": told, "torn": torn}


# --- what it must bring back ---------------------------------------------------------------------
def _same_bits(run: Run, actual: Any, expected: torch.Tensor, what: str) -> None:
    other = expected.t().contiguous().view(expected.shape) if expected.dim() == 2 else None
    likely = {"its values came back in a different order: make it contiguous first": other}
    run.equal(actual, expected, what, likely=likely)


@check("the same bits, dtype and shape", points=3, code="E")
@diagnosis("the header must keep dtype and shape; the data are the bytes of a contiguous copy")
def check_bits(run: Run) -> None:
    """E: many dtypes, a scalar, an empty tensor, one that needs a gradient, a name used twice."""
    size = run.number(3, 9)
    tensors = [
        run.random((size, 4)), run.random((3, size), torch.bfloat16), run.random(7, torch.float16),
        run.random(()), torch.empty(0, 3), run.integers(-9, 9, 5), run.integers(0, 2, 6).bool(),
        run.integers(0, 99, (2, 2, 2)).to(torch.uint8), run.random(5, torch.float32),
        torch.view_as_complex(run.random((4, 2), torch.float32)),
        run.random(9).to(torch.float8_e5m2), run.integers(0, 1 << 16, 5).to(torch.uint16),
        run.integers(-99, 99, 7).to(torch.int8), run.random((2, size + 1)),
    ]  # fmt: skip
    result = run(drive_bits, {"tensors": tensors}, world=2)
    for output in result.outputs:
        expected = [t.t().contiguous() if t.dim() == 2 else t for t in tensors[:-1]] + tensors[-1:]
        for number, tensor in enumerate(expected):
            shape = "×".join(map(str, tensor.shape)) or "scalar"
            what = f"a tensor of {str(tensor.dtype).removeprefix('torch.')} {shape}"
            _same_bits(run, output["values"][number], tensor, what)
            if number < len(output["again"]):
                shared = "the first one shares memory with the file: return a copy"
                zeros = {shared: torch.zeros_like(tensor)}
                again = output["again"][number]
                run.equal(again, tensor, f"{what}, read after the first was zeroed", likely=zeros)
        names = [f"t{number}" for number in range(len(tensors) - 1)]
        run.equal(output["files"], sorted(names), "the files in the folder")
        run.true(
            output["missing"].startswith("FileNotFoundError"),
            "the read of a name that was never written",
            expected="FileNotFoundError",
            measured=output["missing"] or "no exception",
        )


UNSEEN = {  # by words of the damage; the last is for all others
    "layer.8": "the header must keep the tensor's name",
    "in each other's place": "a sum of bytes is the same in any order: take `zlib.crc32` of them",
    "": "the checksum must cover all bytes, those of the header too",
}


@check("a torn file is refused, with its name", points=4, code="E")
@diagnosis("check size and checksum of all bytes before you trust anything in the header")
def check_torn(run: Run) -> None:
    """E: cut short, made longer, exchanged, one bit changed anywhere."""
    tensors = [run.random((7, 5)), run.random((7, 5))]
    result = run(drive_torn, {"tensors": tensors}, world=2)
    for output in result.outputs:
        for what, answer in output["told"].items():
            if not answer:
                run.fail(
                    f"layer.7 was read, although: {what}",
                    expected="TornFile",
                    measured="a tensor",
                    cause=next(why for words, why in UNSEEN.items() if words in what),
                )
            if not answer.startswith("TornFile"):
                run.fail(
                    f"layer.7 ended with another exception: {what}",
                    expected="TornFile",
                    measured=answer,
                    cause="the header was used before it was checked",
                )
            if "layer.7" not in answer:
                run.fail(
                    f"the message does not name the tensor: {what}",
                    expected="layer.7 in it",
                    measured=answer,
                    cause="somebody will search for the file: begin each message with the name",
                )
        run.true(
            not output["again"],
            "layer.7 was torn and written again, and cannot be read",
            measured=output["again"],
            cause="a header that fits does not say that the file is whole: write it in any case",
        )


@check("a crash while writing leaves the old tensor", points=3, code="E")
@diagnosis("write to another name, sync, then replace")
def check_crash(run: Run) -> None:
    """E: death at the sync and at the replacement; the order of the two."""
    old, new = run.random((9, 4)), run.random((11, 4))
    result = run(drive_crash, {"old": old, "new": new}, world=2)
    for output in result.outputs:
        why = {
            "sync": "without a sync, the name may point to data that never reached the disk",
            "replacement": "os.replace makes the change either completely or not at all",
        }
        place = "the file was written in place: write to another name, sync, and only then replace"
        for when, found in output["after"].items():
            never = "power cut" not in found["ended"]
            run.true(
                not never or (when == "replacement" and not found["same"]),
                f"write never reached its {when}",
                expected="os.fsync, then os.replace",
                measured=found["ended"] or "no exception",
                cause=why[when],
            )
            run.true(found["same"], f"a crash at the {when} has changed the old file", cause=place)
        run.true(
            output["orders"] == [True],
            "the file was replaced by one that was not synced",
            expected="os.fsync of the whole file, then os.replace",
            cause="after a power failure the name would point to a torn file; call `flush` before "
            "the sync, or Python still holds a part of it",
        )
        run.true(
            output["moves"] == [True],
            "the other name is in another folder",
            expected="a name in the tensor's own folder",
            cause="another folder may be on another disk, where `os.replace` cannot move a file",
        )
        run.equal(output["value"], new, "the tensor after a write to the end")


@check("the next one is being read while one is in use", points=3, code="O")
@diagnosis("start the next read before the yield, and wait for it after that")
def check_stream(run: Run) -> None:
    """O: reads started and reads waited for, at each turn."""
    tensors = [run.random(run.number(2, 9)) for _ in NAMES]
    result = run(drive_stream, {"tensors": tensors}, world=2)
    for output in result.outputs:
        for found, names in zip(output["runs"], STREAMED, strict=True):
            count, asked = len(names), [tensors[NAMES.index(name)] for name in names]
            what = f"the names, {count} asked"
            run.equal([pair[0] for pair in found["pairs"]], names, what)
            for place, (_, tensor) in enumerate(found["pairs"]):
                after = {"this is the next one's": asked[(place + 1) % count]}
                run.equal(tensor, asked[place], f"the tensor of turn {place + 1}", likely=after)
                started, waited = found["turns"][place]
                when = f"by turn {place + 1}"
                likely = {
                    "nothing is read ahead: submit the next read before the yield": place + 1,
                    "the reads do not go through the executor": 0,
                    "everything is read at once, which needs memory for everything": count,
                    "two are read ahead: one is enough, and needs less memory": min(
                        place + 3, count
                    ),
                }
                run.equal(started, min(place + 2, count), f"reads started {when}", likely=likely)
                early = "the next read is waited for before this tensor is yielded"
                likely = {early: min(place + 2, count)}
                run.equal(waited, place + 1, f"reads waited for {when}", likely=likely)


@check("leaving the loop leaves no read behind", points=2, code="H")
@diagnosis("put a `finally` around the loop that waits for the read under way")
def check_left(run: Run) -> None:
    """H: the generator is closed while a slow read is under way; another meets a torn file."""
    tensors = [run.random(run.number(2, 9)) for _ in NAMES]
    result = run(drive_stream, {"tensors": tensors}, world=2)
    cause = "wait for it in a `finally`: when it ends, its folder may be gone"
    for output in result.outputs:
        ended = output["ended"]
        run.true(
            bool(ended) and all(ended),
            "a read is under way after the generator was closed",
            measured=f"{ended.count(False)} of {len(ended)} reads have not ended",
            cause=cause,
        )
        run.true(
            output["told"].startswith("TornFile"),
            "a second `stream`, whose first file is torn,",
            expected="TornFile",
            measured=output["told"] or "a tensor",
            cause="the executor belongs to the caller: do not shut it down",
        )
        run.true(
            all(output["torn"]),
            "a read is under way after the read of a torn file has raised",
            measured=f"{output['torn'].count(False)} of {len(output['torn'])} reads have not ended",
            cause=cause,
        )
