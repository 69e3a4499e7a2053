"""Files that were damaged, cut off or made by a stranger: refused, by name, and nothing is run."""

from __future__ import annotations

import ast
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.checkpoint import Box, CheckpointError, Piece, find_checkpoint, latest, save_sharded


@pytest.fixture
def saved(ranks: Any, tmp_path: Path) -> Path:
    """Two tensors on two ranks: one cut, one whole on rank 1."""

    def save(group: Any) -> None:
        values = torch.arange(6, dtype=torch.float32).view(2, 3)
        pieces = [Piece("a", (4, 3), Box((2 * group.index, 0), (2, 3)), values)]
        if group.index:
            pieces.append(Piece("b", (), Box((), ()), torch.tensor(7)))
        save_sharded(pieces, tmp_path, group, step=4, extra={"position": 3})

    ranks(save, 2)
    return latest(tmp_path)


def load(root: Path) -> torch.Tensor:
    whole, scalar = torch.full((4, 3), -1.0), torch.tensor(0)
    pieces = [Piece("a", (4, 3), Box.whole((4, 3)), whole),
              Piece("b", (), Box((), ()), scalar)]  # fmt: skip
    find_checkpoint(root).read(pieces)
    return torch.cat([whole.flatten(), scalar[None].float()])


RIGHT = torch.tensor([0.0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 7])


def test_every_flipped_byte_is_found_and_its_file_named(saved: Path) -> None:
    dice = random.Random(0)
    for path in sorted(saved.iterdir()):
        good = path.read_bytes()
        for place in range(len(good)):
            bad = bytearray(good)
            bad[place] ^= 1 << dice.randrange(8)
            path.write_bytes(bad)
            # What is white space to JSON, or the case of a number's letter, changes no value.
            if path.suffix == ".json" and place == len(good) - 1:
                continue
            with pytest.raises(CheckpointError, match=path.name):
                load(saved.parent)
        path.write_bytes(good)
    assert torch.equal(load(saved.parent), RIGHT)


def test_every_truncation_and_every_missing_file_is_found(saved: Path) -> None:
    for path in sorted(saved.iterdir()):
        good = path.read_bytes()
        for length in range(len(good) - (path.suffix == ".json")):
            path.write_bytes(good[:length])
            with pytest.raises(CheckpointError, match=path.name):
                load(saved.parent)
        path.write_bytes(good + b"!")
        with pytest.raises(CheckpointError, match=path.name):
            load(saved.parent)
        path.unlink()
        missing = "none that is complete" if path.suffix == ".json" else path.name
        with pytest.raises(CheckpointError, match=missing):
            load(saved.parent)
        path.write_bytes(good)


def test_a_link_is_not_followed(saved: Path, tmp_path: Path) -> None:
    path = saved / "rank-00000.bin"
    elsewhere = tmp_path / "secret"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match=r"(?s)rank-00000.bin.*a link"):
        load(saved.parent)


def change(path: tuple[Any, ...], value: Any) -> Callable[[Any], None]:
    """Sets one place of a manifest."""

    def apply(manifest: Any) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    return apply


def leave(manifest: Any) -> None:
    """Names a file outside of the folder, consistently."""
    size = manifest["files"].pop("rank-00000.bin")
    manifest["files"]["../../secret"] = size
    for piece in manifest["pieces"]:
        if piece[3] == "rank-00000.bin":
            piece[3] = "../../secret"


LIES: dict[str, Callable[[Any], None]] = {
    "path": leave,
    "absolute path": change(("files", "/etc/passwd"), 1),
    "manifest as data": change(("files", "manifest.json"), 1),
    "bool for a number": change(("step",), True),
    "float for a number": change(("step",), 4.0),
    "negative": change(("step",), -4),
    "format": change(("format",), "pickle"),
    "fields": change(("code",), "print()"),
    "dtype": change(("tensors", "a", 1), "object"),
    "dtype of another type": change(("tensors", "a", 1), []),
    "another dtype": change(("tensors", "a", 1), "float64"),
    "shape": change(("tensors", "a", 0), [4, 4]),
    "huge shape": change(("tensors", "a", 0), [2**61, 2**61]),
    "deep shape": change(("tensors", "a", 0), [4, 3, 1]),
    "more tensors": change(("tensors", "c"), [[2], "float32"]),
    "less tensors": change(("tensors",), {}),
    "box outside": change(("pieces", 0, 1), [3, 0]),
    "box twice": change(("pieces", 0, 1), [2, 0]),
    "place": change(("pieces", 0, 4), 1),
    "beyond the end": change(("pieces", 0, 4), 2**40),
    "length": change(("pieces", 0, 5), 20),
    "checksums": change(("pieces", 0, 6), []),
    "text for a piece": change(("pieces", 0), "a piece"),
    "file that is not listed": change(("pieces", 0, 3), "rank-00009.bin"),
    "size of a file": change(("files", "rank-00000.bin"), 10**15),
    "no list": change(("pieces",), {}),
    "per_rank": change(("per_rank",), 3),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_refused(saved: Path, lie: str) -> None:
    """Its checksum is right: a stranger can compute one as well."""
    path = saved / "manifest.json"
    manifest = json.loads(path.read_text())["manifest"]
    LIES[lie](manifest)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    path.write_text(json.dumps({"crc32": zlib.crc32(text), "manifest": manifest}))
    with pytest.raises(CheckpointError, match=r"manifest\.json") as error:
        load(saved.parent)
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("text", [b"", b"[]", b"{" * 100_000, b"[" * 100_000, b'{"crc32":NaN}',
                                  b"\xff\xfe", b"9" * 5000, b"\x80\x04cos\nsystem\n."])  # fmt: skip
def test_what_is_no_manifest_is_refused(saved: Path, text: bytes) -> None:
    (saved / "manifest.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load(saved.parent)


def test_no_file_of_the_room_knows_pickle() -> None:
    """Loading never runs what a file says: nothing that could is imported here.

    The one that reads torch's checkpoints has an unpickler that knows no function to call; its own
    tests show that.
    """
    room = Path(__file__).resolve().parents[3] / "course_lib" / "checkpoint"
    for path in set(room.rglob("*.py")) - {room / "formats" / "torch_format.py"}:
        tree = ast.parse(path.read_text())
        names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        modules = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        modules |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not modules & {"pickle", "cloudpickle", "marshal", "shelve", "dill"}, path.name
        assert not names & {"eval", "exec", "__import__"}, path.name
        calls = {
            f"{node.func.value.id}.{node.func.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        }
        assert not calls & {"torch.load", "torch.save"}, path.name
