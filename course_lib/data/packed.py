"""Packed tokens: all documents end to end in one file, which is mapped and not read.

Source: Megatron-LM's indexed data sets, a file of tokens beside one of where documents begin.
Costs 1 or 4 bytes a token on the disk; a rank has only those pages in memory that it looked at.
The production version shuffles documents first. The first token of a document, which nothing before
it could foretell, is left out of the loss; a window that has the end of one and the beginning of
the next is attended to as a whole, unless --mask-documents keeps them apart.

    tokens.json             {"vocabulary": 256, "dtype": "uint8"}
    train.tokens            the tokens
    train.documents         int64, where each document begins
    validation.tokens, validation.documents
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from course_lib.trace import Refusal

ABOUT = "tokens.json"
DTYPES = {"uint8": torch.uint8, "int32": torch.int32}
HALVES = ("train", "validation")


def write_packed(
    folder: Path, halves: dict[str, Iterable[torch.Tensor]], vocabulary: int = 256
) -> dict[str, int]:
    """Packs documents into a folder; gives the number of tokens of each half.

    Args:
        folder: is made.
        halves: documents of `train` and of `validation`, int tensors of one dimension.
        vocabulary: tokens that there are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)
    dtype = "uint8" if vocabulary <= 256 else "int32"
    counts = {}
    for half in HALVES:
        with (folder / f"{half}.tokens").open("wb") as file:
            starts = _append(file, halves[half], DTYPES[dtype])
        *_, counts[half] = starts
        body = torch.tensor(starts[:-1], dtype=torch.int64)
        (folder / f"{half}.documents").write_bytes(body.numpy().tobytes())
    # Last, and removed first: a folder without it is not taken for packed tokens.
    (folder / ABOUT).write_text(json.dumps({"vocabulary": vocabulary, "dtype": dtype}))
    return counts


def _append(file: BinaryIO, documents: Iterable[torch.Tensor], dtype: torch.dtype) -> list[int]:
    """Writes documents; gives where each begins, and where the last one ends."""
    starts = [0]
    for document in documents:
        if len(document):
            file.write(document.to(dtype).numpy().tobytes())
            starts.append(starts[-1] + len(document))
    return starts


def packed_vocabulary(folder: Path) -> int:
    """How many tokens there are in a packed folder's text."""
    return int(_about(folder)["vocabulary"])


def map_half(folder: Path, half: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of a half, mapped, and where its documents begin, int64.

    Raises:
        Refusal: a file is missing, or is no whole number of tokens.
    """
    about = _about(folder)
    dtype = DTYPES.get(str(about["dtype"]))
    if dtype is None:
        raise Refusal(f"tokens of {about['dtype']}", str(folder), f"known: {', '.join(DTYPES)}")
    return _map(folder / f"{half}.tokens", dtype), _map(folder / f"{half}.documents", torch.int64)


def _about(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / ABOUT).read_text())
        return {"vocabulary": int(found["vocabulary"]), "dtype": found["dtype"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = "it has the vocabulary and the dtype of the tokens beside it"
        raise Refusal(f"read {folder / ABOUT}", f"{type(error).__name__}: {error}", why) from None


def _map(path: Path, dtype: torch.dtype) -> torch.Tensor:
    size = path.stat().st_size if path.exists() else -1
    if size <= 0 or size % dtype.itemsize:
        raise Refusal(
            f"map {path}",
            "no such file" if size < 0 else f"{size} bytes",
            f"it has one or more numbers of {dtype.itemsize} bytes each",
        )
    return torch.from_file(str(path), size=size // dtype.itemsize, dtype=dtype)
