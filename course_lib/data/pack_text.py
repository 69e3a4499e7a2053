"""Makes the text that the course ships from the source of Python; for maintainers.

Usage: python -m course_lib.data.pack_text cpython/Lib, with CPython's tag v3.11.7 checked out.

Two files are not in a checkout: a build of Python makes them. They are taken from the text as it
is, where the folders of that build are written as /usr/local/...; without them every window of
text would begin elsewhere, and no recorded run of the course could be made again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path

from course_lib.data.library_text import FOLDER, folder_files, library_files

VERSION = "3.11.7"
OF_A_BUILD = {
    "_sysconfigdata__linux_x86_64-linux-gnu.py",
    "config-3.11-x86_64-linux-gnu/python-config.py",
}


def pack(library: Path, folder: Path = FOLDER) -> str:
    """Writes the packed text and its manifest, and gives the digest of the text.

    Args:
        library: Python's `Lib`, of a checkout or of an installation.
        folder: where to write.
    """
    files = {name: text for name, text in folder_files(library) if name not in OF_A_BUILD}
    files |= {name: text for name, text in library_files() if name in OF_A_BUILD}
    # As `folder_files` walks: a folder's own files, then the folders in it, each by name.
    names = sorted(files, key=_steps)
    text = b"".join(files[name] for name in names)
    digest = hashlib.sha256(text).hexdigest()
    about = {"python": VERSION, "sha256": digest, "files": {n: len(files[n]) for n in names}}
    (folder / "manifest.json").write_text(json.dumps(about, indent=1) + "\n")
    (folder / "library.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    return digest


def _steps(name: str) -> list[tuple[bool, str]]:
    """The way to a file: files come before folders."""
    *folders, last = name.split("/")
    return [*((True, folder) for folder in folders), (False, last)]


if __name__ == "__main__":
    print(pack(Path(sys.argv[1])))
