"""A real text that is the same on every machine: the source files of Python's standard library.

Notebook: 02 Data parallel; every lesson that trains.
Source: byte-level tokens as in ByT5 (Xue et al., 2021): no tokenizer, 256 tokens, any text.
Costs about 100 ms for all of its 11 MB, in every process; nothing is downloaded.
The production version streams tokenised shards from storage, shuffled beforehand.

The split is by file, so that no function stands in both halves, and by a hash of the file's name,
so that it does not depend on the order in which a disk lists its files.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib.data.library_text import folder_files, library_files
from course_lib.trace import Refusal

VALIDATION = 10  # one file in this many is kept for validation
SEPARATOR = b"\n\n"


@dataclass(frozen=True)
class Corpus:
    """Tokens to train and to validate on.

    Attributes:
        train: uint8, one dimension; each byte of the text is a token.
        validation: the same, of other files.
        files: how many files, or documents, the text comes from.
        vocabulary: how many tokens there are.
        train_starts: where the documents of `train` begin, int64; None if that is not known.
        validation_starts: the same for `validation`.
    """

    train: torch.Tensor
    validation: torch.Tensor
    files: int
    vocabulary: int = 256
    train_starts: torch.Tensor | None = None
    validation_starts: torch.Tensor | None = None


def load_corpus(root: Path | None = None, limit: int = 12 << 20) -> Corpus:
    """Reads the corpus: the same tokens in every run, on every machine and every Python.

    Args:
        root: folder with `.py` files of one's own; the text that the course ships if None.
        limit: bytes at which to stop, so that loading stays quick.

    Raises:
        Refusal: the folder has too few Python files to make both halves.
    """
    halves: dict[bool, list[bytes]] = {True: [], False: []}
    files = total = 0
    for name, text in library_files() if root is None else folder_files(root):
        if total >= limit:
            break
        halves[is_validation(name)].append(text)
        files, total = files + 1, total + len(text)
    if not halves[True] or not halves[False]:
        raise Refusal(
            f"a corpus from {limit} bytes of {root or 'the text of the course'}",
            f"{len(halves[False])} files to train on and {len(halves[True])} to validate on",
            "both halves need at least one file; give another folder as `root`, or more bytes",
        )
    return Corpus(_tokens(halves[False]), _tokens(halves[True]), files)


def is_validation(name: str) -> bool:
    """Whether a file is kept for validation, by its name, which need not be text."""
    return zlib.crc32(name.encode(errors="surrogateescape")) % VALIDATION == 0


def _tokens(texts: list[bytes]) -> torch.Tensor:
    return torch.frombuffer(bytearray(SEPARATOR.join(texts)), dtype=torch.uint8)
