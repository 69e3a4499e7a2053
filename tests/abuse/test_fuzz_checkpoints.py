"""Whatever a checkpoint's files hold: it loads exactly right, or the error names the file."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import resource
import shutil
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from course_lib.checkpoint import Box, CheckpointError, Piece, find_checkpoint, save_sharded
from course_lib.checkpoint import boxes as boxes_module
from course_lib.checkpoint.files.distrust import LONGEST, MOST_DIMS
from course_lib.checkpoint.files.plain import from_plain, to_plain
from course_lib.checkpoint.files.read import Reader
from course_lib.checkpoint.files.store import begin, complete_steps
from course_lib.checkpoint.formats.safetensors import NAMES, export_safetensors, open_safetensors
from course_lib.checkpoint.formats.torch_format import _unpickle, open_torch_checkpoint

VALUES = {
    "model.w": torch.arange(12, dtype=torch.float32).view(4, 3),
    "model.b": torch.arange(6, dtype=torch.bfloat16),
    "model.s": torch.tensor(7),
}
STATE = {"position": 3, "pair": (1, "two"), "speed": float("inf"), "t": torch.tensor([1.5, 2.0])}
ROOM = 1 << 29  # bytes that a load of a few hundred may take at most
FORBIDDEN = ("secret", "/etc/passwd", "/dev/zero", "/dev/full")
RUNS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "os.mkdir",
        "os.chmod", "socket.connect")  # fmt: skip

Files = dict[str, bytes]


class Witness:
    """Sees what a load opens and starts, and gives it little memory."""

    def __init__(self, listen: Any) -> None:
        self._heard = listen(forbidden)

    @contextmanager
    def look(self) -> Iterator[None]:
        """Nothing foreign is opened or run inside, and no memory taken beyond `ROOM`."""
        before = resource.getrlimit(resource.RLIMIT_AS)
        with suppress(OSError):  # where there is /proc
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
        try:
            with self._heard.look():
                yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def forbidden(event: str, args: tuple[Any, ...]) -> bool:
    return event in RUNS or (event == "open" and str(args[0]).endswith(FORBIDDEN))


@pytest.fixture(scope="module")
def witness(listen: Any) -> Witness:
    return Witness(listen)


# --- good checkpoints ----------------------------------------------------------------------------
def whole(name: str, tensor: torch.Tensor) -> Piece:
    return Piece(name, tuple(tensor.shape), Box.whole(tensor.shape), tensor)


def save(group: Any, folder: Path) -> None:
    """`w` cut over two ranks, the others on the second alone."""
    w = VALUES["model.w"]
    half = slice(2 * group.index, 2 * group.index + 2)
    pieces = [Piece("model.w", (4, 3), Box((2 * group.index, 0), (2, 3)), w[half].clone())]
    if group.index:
        pieces += [whole(name, VALUES[name]) for name in ("model.b", "model.s")]
    save_sharded(pieces, folder, group, step=4, extra=to_plain(STATE, "state"))


def files_in(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def ours(ranks: Any, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("ours")
    ranks(save, 2, folder)
    return files_in(folder / "step-00000004")


@pytest.fixture(scope="module")
def tensors_file(ours: Files, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    root = tmp_path_factory.mktemp("exported")
    write(root / "step-00000004", ours)
    export_safetensors(find_checkpoint(root), root / "model.safetensors")
    return (root / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> Files:
    import torch.distributed.checkpoint as dcp

    folder = tmp_path_factory.mktemp("torchs")
    model = {name.removeprefix("model."): tensor for name, tensor in VALUES.items()}
    dcp.save({"model": model, "step": 3, "notes": ["a", {"b": 1.5}]}, checkpoint_id=folder)
    return files_in(folder)


def write(folder: Path, files: Files) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def load(open_it: Callable[[], Any]) -> dict[str, torch.Tensor]:
    """The three tensors, by whatever reads them."""
    found = {name: torch.full_like(tensor, 99) for name, tensor in VALUES.items()}
    open_it().read([whole(name, tensor) for name, tensor in found.items()])
    return found


def alike(found: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(found[name], VALUES[name]) for name in VALUES)


def refused(error: CheckpointError, *names: str) -> None:
    """Three lines, not a book, with the name of a file, and memory was not what ran out."""
    text = str(error)
    assert len(text.splitlines()) == 3 and len(text) < 2000, text[:3000]
    assert any(name in text for name in names), text
    assert "MemoryError" not in text, text


# --- generators ----------------------------------------------------------------------------------
JUNK: list[Callable[[Random], Any]] = [
    lambda dice: dice.choice([None, True, False, 0, 1, -1, 2, 3, 4, 12, 24, 1.5, -0.0, 1e308]),
    lambda dice: dice.choice([2**31, 2**62, 2**63, 2**64, 10**30, 10**4000, -(2**63)]),
    lambda dice: dice.choice(["", "a", "../secret", "/etc/passwd", "rank-00000.bin", "\0", "é",
                              "float32", "float64", "object", "\ud800", "x" * 10**5, "F32"]),
    lambda dice: dice.choice([[], {}, [[]], [0], [4, 3], [3, 4], [0, 0], [2, 3], {"a": 1}, [[0]]]),
    lambda dice: [1] * dice.choice([65, 300, 3000]),
    lambda dice: [2**61] * dice.choice([2, 64, 300]),
    lambda dice: nested(dice.choice([10, 300, 960])),
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@contextmanager
def deep() -> Iterator[None]:
    """Room for recursion, for what writes a tree; what reads it has no more than usual."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@deep()
def dumps(tree: Any) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()


def with_checksum(manifest: Any) -> bytes:
    text = dumps(manifest)
    return b'{"crc32":%d,"manifest":%s}' % (zlib.crc32(text), text)


def places_of(tree: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON tree, with a key of it."""
    keys = tree.keys() if isinstance(tree, dict) else range(len(tree))
    below = [p for k in keys if isinstance(tree[k], dict | list) for p in places_of(tree[k])]
    return [(tree, key) for key in keys] + below


@deep()
def mutate_json(tree: Any, dice: Random) -> None:
    """One change of a tree: another value, a key gone, doubled or renamed, two values swapped."""
    places = places_of(tree)
    if not places:
        return
    (home, key), (other, its) = dice.choice(places), dice.choice(places)
    kind = dice.randrange(8)
    if kind < 4:
        home[key] = dice.choice(JUNK)(dice)
    elif kind == 4:
        del home[key]
    elif kind == 5 and isinstance(home, dict):
        home[dice.choice(["../secret", "/etc/passwd", "", "a\0b", "é", "c"])] = home.pop(key)
    elif kind == 5:
        home.insert(key, copy.deepcopy(home[key]))
    elif kind == 6 and type(home[key]) is int:
        home[key] += dice.choice([-1, 1, 8, -12, 2**32])
    else:
        home[key], other[its] = copy.deepcopy(other[its]), copy.deepcopy(home[key])


def damage(data: bytes, dice: Random) -> bytes:
    """Flipped bits, a part cut out, doubled, zeroed, or something added."""
    raw = bytearray(data)
    at = dice.randrange(len(raw) + 1)
    length = dice.choice([1, 1, 2, 4, 8, 64])
    kind = dice.randrange(7)
    if kind < 3:
        for _ in range(dice.choice([1, 1, 1, 3])):
            place = dice.randrange(len(raw))
            raw[place] = dice.choice([raw[place] ^ 1 << dice.randrange(8), 0, 255, 114, 139])
    elif kind == 3:
        del raw[at:]
    elif kind == 4:
        del raw[at : at + length]
    elif kind == 5:
        raw[at:at] = raw[at : at + length]
    else:
        raw[at:at] = bytes(dice.randrange(256) for _ in range(length))
    return bytes(raw)


def replace_file(path: Path, secret: Path, dice: Random) -> bool:
    """Puts something that is no such file in its place; False if the place is as good as before."""
    data = path.read_bytes() if path.is_file() else b""
    secret.write_bytes(data)
    path.unlink()
    kind = dice.randrange(7)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.symlink_to(secret)
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        os.mkfifo(path)
    elif kind == 4:
        path.symlink_to(path.name)
    elif kind == 5:
        with open(path, "wb") as file:  # a hole of a terabyte takes no room on the disk
            file.truncate(1 << 40)
    return True


# --- our own format ------------------------------------------------------------------------------
def test_damaged_bytes_are_found(fuzz: Any, ours: Files, witness: Witness, tmp_path: Path) -> None:
    def case(dice: Random) -> None:
        name = dice.choice(sorted(ours))
        bad = {**ours, name: damage(ours[name], dice)}
        write(tmp_path / "step-00000004", bad)
        try:
            with witness.look():
                found = load(lambda: find_checkpoint(tmp_path))
        except CheckpointError as error:
            refused(error, name)
        else:
            assert alike(found)

    fuzz(150, case)


def test_lies_of_a_manifest_are_found(
    fuzz: Any, ours: Files, witness: Witness, tmp_path: Path
) -> None:
    """The checksum is right: whoever can write a manifest can compute one."""
    good = json.loads(ours["manifest.json"])["manifest"]

    def case(dice: Random) -> None:
        manifest = copy.deepcopy(good)
        for _ in range(dice.choice([1, 1, 1, 2, 4])):
            mutate_json(manifest, dice)
        write(tmp_path / "step-00000004", {**ours, "manifest.json": with_checksum(manifest)})
        try:
            with witness.look():
                checkpoint = find_checkpoint(tmp_path)
                found = load(lambda: checkpoint)
                export_safetensors(checkpoint, tmp_path / "out.safetensors")
        except CheckpointError as error:
            refused(error, "manifest.json", "step-00000004")
        else:
            assert alike(found)
        with suppress(CheckpointError):
            from_plain(manifest.get("extra"), "state")

    fuzz(250, case)


def test_other_things_in_the_place_of_files(
    fuzz: Any, ours: Files, witness: Witness, tmp_path: Path
) -> None:
    def case(dice: Random) -> None:
        folder = tmp_path / "root" / "step-00000004"
        write(folder, ours)
        for extra in ("step-00000009", "step-٣٣٣٣٣٣٣٣", "step-99999999999999999999", "a\nb"):
            (folder.parent / extra).mkdir(exist_ok=True)
        (folder / "more.bin").write_bytes(b"of no interest")
        assert alike(load(lambda: find_checkpoint(folder.parent)))
        name = dice.choice(sorted(ours))
        replace_file(folder / name, tmp_path / "secret", dice)
        try:
            with witness.look():
                load(lambda: find_checkpoint(folder.parent))
        except CheckpointError as error:
            refused(error, name, "none that is complete")
        else:
            raise AssertionError(f"{name} was no file, and was read")

    fuzz(60, case)


def test_files_that_change_while_they_are_read(
    fuzz: Any, ours: Files, witness: Witness, tmp_path: Path
) -> None:
    """After the manifest was checked, before the data are read."""

    def case(dice: Random) -> None:
        folder = tmp_path / "step-00000004"
        write(folder, ours)
        checkpoint = find_checkpoint(tmp_path)
        name = dice.choice(sorted(n for n in ours if n.endswith(".bin")))
        replace_file(folder / name, tmp_path / "secret", dice)
        try:
            with witness.look():
                load(lambda: checkpoint)
        except CheckpointError as error:
            refused(error, name)
        else:
            raise AssertionError(f"{name} was no file, and was read")

    fuzz(60, case)


def test_states_come_back_or_are_refused(fuzz: Any) -> None:
    good = to_plain(STATE, "state")

    def case(dice: Random) -> None:
        plain = copy.deepcopy(good)
        for _ in range(dice.choice([0, 1, 1, 2])):
            mutate_json(plain, dice)
        try:
            value = from_plain(plain, "state")
        except CheckpointError as error:
            refused(error, "state")
            return
        with deep():
            assert repr(from_plain(to_plain(value, "state"), "state")) == repr(value)

    fuzz(150, case)


# --- safetensors ---------------------------------------------------------------------------------
def by_the_book(raw: bytes) -> dict[str, torch.Tensor]:
    """The tensors in a file, read a second way; an exception of any kind if it is none."""
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    codes = {code: getattr(torch, dtype) for dtype, code in NAMES.items()}
    found, spans = {}, []
    for name, entry in header.items():
        if name != "__metadata__":
            first, behind = entry["data_offsets"]
            part = torch.tensor(bytearray(data[first:behind]), dtype=torch.uint8)
            found[name] = part.view(codes[entry["dtype"]]).view(entry["shape"])
            spans += range(first, behind)
    assert sorted(spans) == list(range(len(data)))
    return found


def test_safetensors_files(
    fuzz: Any, tensors_file: bytes, witness: Witness, tmp_path: Path
) -> None:
    (length,) = struct.unpack("<Q", tensors_file[:8])
    good, data = json.loads(tensors_file[8 : 8 + length]), tensors_file[8 + length :]
    path = tmp_path / "model.safetensors"

    def case(dice: Random) -> None:
        raw = damage(tensors_file, dice)
        if dice.random() < 0.7:
            header = copy.deepcopy(good)
            for _ in range(dice.choice([1, 1, 2])):
                mutate_json(header, dice)
            text = dumps(header)
            raw = struct.pack("<Q", len(text)) + text + data
        path.write_bytes(raw)
        try:
            with witness.look():
                checkpoint = open_safetensors(path)
                tensors = checkpoint.manifest.tensors
                found = {
                    name: torch.full(entry.shape, 99, dtype=getattr(torch, entry.dtype))
                    for name, entry in tensors.items()
                    if len(entry.shape) < 10 and max(entry.shape, default=0) < 10**6
                }
                checkpoint.read([whole(name, tensor) for name, tensor in found.items()])
        except CheckpointError as error:
            refused(error, path.name)
            return
        expected = by_the_book(raw)
        for name, tensor in found.items():
            other = expected[name.removeprefix("model.")]
            assert tensor.shape == other.shape
            assert torch.equal(tensor.view(-1).view(torch.uint8), other.view(-1).view(torch.uint8))

    fuzz(200, case)


# --- torch's own format --------------------------------------------------------------------------
def test_torch_checkpoints(fuzz: Any, torchs: Files, witness: Witness, tmp_path: Path) -> None:
    """The format has no checksums that it compares: numbers may change, nothing else may happen."""

    def case(dice: Random) -> None:
        name = dice.choice([".metadata", ".metadata", *sorted(torchs)])
        write(tmp_path / "root", {**torchs, name: damage(torchs[name], dice)})
        if dice.random() < 0.1:
            replace_file(tmp_path / "root" / name, tmp_path / "secret", dice)
        try:
            with witness.look():
                load(lambda: open_torch_checkpoint(tmp_path / "root"))
        except CheckpointError as error:
            refused(error, name, "root")

    fuzz(200, case)


class Evil:
    """Unpickled by pickle itself, it would run something."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


def some_object(dice: Random, depth: int = 0) -> Any:
    """Values, containers and calls, nested at random."""
    kind = dice.randrange(9 if depth < 4 else 3)
    inner = [some_object(dice, depth + 1) for _ in range(dice.randrange(3))] if kind > 2 else []
    return [
        lambda: dice.choice([0, -1, 2**70, "state_dict_metadata", "model.w", None, True, 1.5]),
        lambda: dice.choice(["../secret", "a" * 99, b"bytes", bytearray(9), torch.float32]),
        lambda: torch.Size((4, 3)),
        lambda: inner,
        lambda: tuple(inner),
        lambda: {dice.choice(["storage_data", "chunks", "size"]): value for value in inner},
        lambda: Evil(os.system, "touch secret"),
        lambda: Evil(dice.choice([os.mkdir, eval, print, getattr, type, list]), *inner),
        lambda: inner * 3,
    ][kind]()


def test_pickles_run_nothing(fuzz: Any, torchs: Files, witness: Witness, tmp_path: Path) -> None:
    def case(dice: Random) -> None:
        index = pickle.dumps(some_object(dice), protocol=dice.randrange(6))
        if dice.random() < 0.3:
            index = damage(index, dice)
        write(tmp_path / "root", {**torchs, ".metadata": index})
        try:
            with witness.look():
                load(lambda: open_torch_checkpoint(tmp_path / "root"))
        except CheckpointError as error:
            refused(error, ".metadata", "root")
        else:
            raise AssertionError("a checkpoint of nothing was loaded")

    fuzz(150, case)


# --- defects that these tests, or reading for them, have found ------------------------------------
def with_manifest(files: Files, change: Callable[[Any], None]) -> Files:
    manifest = json.loads(files["manifest.json"])["manifest"]
    change(manifest)
    return {**files, "manifest.json": with_checksum(manifest)}


@pytest.mark.parametrize("value", [[2**61] * 300, [1] * (MOST_DIMS + 1), nested(960)])
def test_a_shape_that_cannot_even_be_printed(ours: Files, tmp_path: Path, value: Any) -> None:
    bad = with_manifest(ours, lambda m: m["tensors"]["model.w"].__setitem__(0, value))
    write(tmp_path / "step-00000004", bad)
    with pytest.raises(CheckpointError) as error:
        find_checkpoint(tmp_path)
    refused(error.value, "manifest.json")


def test_a_pipe_for_a_manifest_is_not_waited_for(ours: Files, tmp_path: Path) -> None:
    write(tmp_path / "step-00000004", ours)
    path = tmp_path / "step-00000004" / "manifest.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="not an ordinary file"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("target", ["/dev/zero", "secret"])
def test_a_link_for_a_manifest_is_not_followed(ours: Files, tmp_path: Path, target: str) -> None:
    write(tmp_path / "step-00000004", ours)
    path = tmp_path / "step-00000004" / "manifest.json"
    path.rename(tmp_path / "secret")
    path.symlink_to(tmp_path / target)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("kind", ["link", "pipe", "gone"])
def test_a_file_that_is_replaced_after_the_check(ours: Files, tmp_path: Path, kind: str) -> None:
    write(tmp_path / "step-00000004", ours)
    checkpoint = find_checkpoint(tmp_path)
    path = tmp_path / "step-00000004" / "rank-00001.bin"
    path.rename(tmp_path / "secret")
    {"link": lambda: path.symlink_to(tmp_path / "secret"), "pipe": lambda: os.mkfifo(path),
     "gone": lambda: None}[kind]()  # fmt: skip
    with pytest.raises(CheckpointError, match=r"rank-00001\.bin"):
        load(lambda: checkpoint)


def test_a_key_that_is_there_twice(ours: Files, tensors_file: bytes, tmp_path: Path) -> None:
    text = ours["manifest.json"].replace(b'"step":4', b'"step":9,"step":4')
    write(tmp_path / "step-00000004", {**ours, "manifest.json": text})
    with pytest.raises(CheckpointError, match="keys"):
        find_checkpoint(tmp_path)
    (length,) = struct.unpack("<Q", tensors_file[:8])
    header = tensors_file[8 : 8 + length].replace(b'{"__meta', b'{"b":0,"__meta', 1)
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + tensors_file[8 + length :])
    with pytest.raises(CheckpointError, match="keys"):
        open_safetensors(path)


def test_a_step_is_the_one_in_the_folders_name(ours: Files, tmp_path: Path) -> None:
    write(tmp_path / "step-00000007", ours)
    with pytest.raises(CheckpointError, match="manifest of step 4"):
        find_checkpoint(tmp_path)
    write(tmp_path / "step-٣٣٣٣٣٣٣٣", ours)
    assert list(complete_steps(tmp_path)) == [7]


@pytest.mark.parametrize("step", [-1, LONGEST + 1, 10**25])
def test_a_step_that_could_not_be_found_again_is_not_saved(tmp_path: Path, step: int) -> None:
    with pytest.raises(CheckpointError, match="no whole number from 0"):
        begin(tmp_path, step)


def test_many_columns_are_compared_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of 20 000 boxes: compared along the rows, that would be 200 million pairs."""
    compared = []
    before = Box.intersect
    monkeypatch.setattr(Box, "intersect", lambda a, b: compared.append(0) or before(a, b))
    columns = [Box((0, n), (1, 1)) for n in range(20_000)]
    boxes_module.check_cover("w", (1, 20_000), columns)
    assert len(compared) < 40_000
    with pytest.raises(CheckpointError, match="overlap"):
        boxes_module.check_cover("w", (1, 20_000), [*columns[:-1], columns[0]])


def test_a_state_without_end_and_one_with_two_marks() -> None:
    for plain in (nested(5000), {"!tuple": nested(5000)}, {"!float": "1", "x": 0}):
        with pytest.raises(CheckpointError):
            from_plain(plain, "state")


def refuse_index(witness: Witness, files: Files, folder: Path, index: bytes, words: str) -> None:
    write(folder, {**files, ".metadata": index})
    with witness.look(), pytest.raises(CheckpointError, match=words) as error:
        open_torch_checkpoint(folder)
    refused(error.value, ".metadata")


def test_a_pickle_that_asks_for_room(torchs: Files, witness: Witness, tmp_path: Path) -> None:
    """A place of 2³² in the list of what is remembered, and 2³⁵ bytes that do not follow."""
    put = b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b"."
    array = b"\x80\x05\x96" + struct.pack("<Q", 2**35) + b"."
    refuse_index(witness, torchs, tmp_path, put, "a pickle of a list")
    refuse_index(witness, torchs, tmp_path, array, "KeyError")


def test_a_pickle_that_takes_a_life_to_hash(
    torchs: Files, witness: Witness, tmp_path: Path
) -> None:
    tower: Any = ()
    for _ in range(60):
        tower = (tower, tower)
    refuse_index(witness, torchs, tmp_path, pickle.dumps([tower]), "too long or too deep")
    refuse_index(witness, torchs, tmp_path, pickle.dumps([(0,) * 100]), "too long or too deep")


def test_a_bomb_in_a_zip_beside_the_tensor(torchs: Files, witness: Witness, tmp_path: Path) -> None:
    """A byte order of a gigabyte, that deflate makes a megabyte of."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"", zipfile.ZIP_STORED)
        with archive.open("archive/byteorder", "w", force_zip64=True) as file:
            for _ in range(1024):
                file.write(bytes(1 << 20))
        archive.writestr("archive/data/0", b"", zipfile.ZIP_STORED)
    index = _unpickle(torchs[".metadata"])
    names = {record["relative_path"] for record in index["storage_data"].values()}
    raw = {name: bomb.getvalue() if name in names else data for name, data in torchs.items()}
    write(tmp_path, raw)
    with witness.look(), pytest.raises(CheckpointError) as error:
        open_torch_checkpoint(tmp_path)
    refused(error.value, *names)


def test_a_reader_says_what_it_cannot_open(ours: Files, tmp_path: Path) -> None:
    write(tmp_path / "step-00000004", ours)
    checkpoint = find_checkpoint(tmp_path)
    shutil.rmtree(checkpoint.folder)
    reader = Reader(checkpoint.folder, checkpoint.manifest)
    with reader, pytest.raises(CheckpointError, match=r"rank-00001\.bin"):
        reader.fill(whole("model.s", torch.tensor(0)))
