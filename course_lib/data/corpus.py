"""A real text that is on every machine: the source files of Python's own standard library.

Notebook: 02 Data parallel; every lesson that trains.
Source: byte-level tokens as in ByT5 (Xue et al., 2021): no tokenizer, 256 tokens, any text.
Costs a read of about 10 MB from disk; nothing is downloaded.
The production version streams tokenised shards from storage, shuffled beforehand.

The split is by file, so that no function stands in both halves, and by a hash of the file's name,
so that it does not depend on the order in which a disk lists its files.
"""

from __future__ import annotations

import os
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "ensurepip"}
VALIDATION = 10  # one file in this many is kept for validation
SEPARATOR = b"\n\n"


@dataclass(frozen=True)
class Corpus:
    """Tokens to train and to validate on.

    Attributes:
        train: uint8, one dimension; each byte of the text is a token.
        validation: the same, of other files.
        files: how many files the text comes from.
    """

    train: torch.Tensor
    validation: torch.Tensor
    files: int

    vocabulary: int = 256


def load_corpus(root: Path | None = None, limit: int = 12 << 20) -> Corpus:
    """Reads the corpus: the same tokens in every run on the same machine.

    Args:
        root: folder with `.py` files; the standard library's if None.
        limit: bytes at which to stop, so that loading stays quick.

    Raises:
        FileNotFoundError: the folder has too few Python files to make both halves.
    """
    root = root or Path(sysconfig.get_paths()["stdlib"])
    halves: dict[bool, list[bytes]] = {True: [], False: []}
    files = total = 0
    for path in _sources(root):
        if total >= limit:
            break
        text = path.read_bytes()
        halves[_is_validation(path.relative_to(root))].append(text)
        files, total = files + 1, total + len(text)
    if not halves[True] or not halves[False]:
        raise FileNotFoundError(
            f"asked for a corpus from the Python files in {root}\n"
            f"found {len(halves[False])} files to train on and {len(halves[True])} to validate on\n"
            "both halves need at least one file; give another folder as `root`"
        )
    return Corpus(_tokens(halves[False]), _tokens(halves[True]), files)


def _sources(root: Path) -> Iterator[Path]:
    """The folder's Python files in the order of their names, folder by folder."""
    for folder, inner, names in os.walk(root):
        # Cut here, in place: what is installed beside the library is a hundred times as much.
        inner[:] = sorted(set(inner) - LEFT_OUT)
        for name in sorted(names):
            if name.endswith(".py"):
                yield Path(folder, name)


def _is_validation(name: Path) -> bool:
    return zlib.crc32(name.as_posix().encode()) % VALIDATION == 0


def _tokens(texts: list[bytes]) -> torch.Tensor:
    return torch.frombuffer(bytearray(SEPARATOR.join(texts)), dtype=torch.uint8)
