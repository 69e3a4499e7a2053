"""The text that the course ships: Python 3.11.7's standard library, the same bytes everywhere.

Notebook: 02 Data parallel; every lesson that trains.
Source: github.com/python/cpython, tag v3.11.7, folder Lib; its licence is text/LICENSE.txt.
Costs 2.5 MB in the package; a MiB of text is unpacked in about 10 ms, and no more than is read.
The production version is a data set with a name, a version and a checksum, on object storage.

This file needs nothing but Python, so that a bare one can check the bytes.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent / "text"
LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "ensurepip"}


def manifest(folder: Path = FOLDER) -> dict[str, str | dict[str, int]]:
    """What is shipped: the version of Python, the digest of the text, and its files' sizes."""
    found: dict[str, str | dict[str, int]] = json.loads((folder / "manifest.json").read_text())
    return found


def library_files(folder: Path = FOLDER) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the shipped files, in their order; unpacks as far as one reads."""
    sizes = manifest(folder)["files"]
    assert isinstance(sizes, dict)
    with gzip.open(folder / "library.gz") as packed:
        for name, size in sizes.items():
            yield name, packed.read(size)


def folder_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of a folder's Python files, by name, folder by folder."""
    for folder, inner, names in os.walk(root):
        # Cut here, in place: what is installed beside a library is a hundred times as much.
        inner[:] = sorted(set(inner) - LEFT_OUT)
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file():  # an editor's lock is a link to nothing
                yield path.relative_to(root).as_posix(), path.read_bytes()
