"""One's own text: every file of a folder that is text, a byte a token, a document a file.

Source: byte-level tokens as in ByT5 (Xue et al., 2021).
Costs reading the files in every rank; `python -m course_lib.data.pack_folder` packs them once.
The production version tokenises beforehand, on other machines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from course_lib.data.corpus import VALIDATION, is_validation
from course_lib.trace import Refusal


def text_documents(root: Path, limit: int) -> dict[str, list[torch.Tensor]]:
    """Documents to train and to validate on: by file, so that none stands in both halves.

    Where that leaves a half empty, as for a single file, the last tenth of each file is for
    validation.

    Args:
        root: folder, or one file.
        limit: bytes at which to stop.

    Raises:
        Refusal: there is no text.
    """
    halves: dict[str, list[torch.Tensor]] = {"train": [], "validation": []}
    found: list[torch.Tensor] = []
    total = 0
    skipped: list[str] = []
    for name, text in _files(root):
        if total >= limit:
            break
        if not _is_text(text):
            skipped.append(name)
            continue
        document = torch.frombuffer(bytearray(text[: limit - total]), dtype=torch.uint8)
        found.append(document)
        halves["validation" if is_validation(name) else "train"].append(document)
        total += len(document)
    if not total:
        others = f": {skipped[0]} is none, one of {len(skipped)} such" if skipped else ""
        why = "files are UTF-8, with or without .txt, and have no zero bytes"
        raise Refusal(f"text from {root}", f"no file of text{others}", why)
    if not halves["train"] or not halves["validation"]:
        cuts = [len(document) - len(document) // VALIDATION for document in found]
        halves["train"] = [d[:cut] for d, cut in zip(found, cuts, strict=True)]
        halves["validation"] = [d[cut:] for d, cut in zip(found, cuts, strict=True)]
    return halves


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files that are not empty, in the same order everywhere."""
    if root.is_file():
        if text := _read(root):
            yield root.name, text
        return
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and (text := _read(path)):
                yield path.relative_to(root).as_posix(), text


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = "every file of the folder is read, to see whether it is text"
        raise Refusal(f"text from {path}", error.strerror or str(error), why) from None


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in text
