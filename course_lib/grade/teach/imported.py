"""Whether anything that a grading imports has changed since a class began.

Where the kernel confines answers, none can change it. This looks whether it is so, and does what
can be done where the kernel cannot. Bytecode is only a shortcut: what is new or changed of it is
removed before the next student, and never run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from course_lib.grade.catalog import PACKAGE

CODE = (".py", ".so", ".pth", ".pyc", ".dylib")
BYTECODE = ".pyc"
UNWRITTEN = "PYTHONDONTWRITEBYTECODE"


class Imported:
    """The files that Python runs here, as they are now.

    Args:
        places: folders in which they lie.
    """

    def __init__(self, places: Iterable[Path]) -> None:
        self._places = tuple(places)
        self._before = dict(_signatures(self._places))

    def changed(self) -> list[str]:
        """Paths that are not as they were; bytecode among them is removed, and not named."""
        before, now = self._before, dict(_signatures(self._places))
        odd = {path for path in now.keys() | before.keys() if now.get(path) != before.get(path)}
        for path in odd:
            if path.endswith(BYTECODE):
                Path(path).unlink(missing_ok=True)
                before.pop(path, None)
        return sorted(path for path in odd if not path.endswith(BYTECODE))


def code_folders(root: Path, *, packages: bool) -> list[Path]:
    """Where a grading's code lies.

    Args:
        root: the course.
        packages: also Python's own, with what is installed: thousands of files, seconds a look.
    """
    own = (root, PACKAGE.parent, Path.cwd())  # in these lies more than code
    python = [Path(path) for path in sys.path if path and Path(path) not in own]
    return [PACKAGE, root / "grading", *(python if packages else ())]


@contextmanager
def no_bytecode() -> Iterator[None]:
    """No process that is started meanwhile writes bytecode; so what appears was put there."""
    before = sys.dont_write_bytecode, os.environ.get(UNWRITTEN)
    sys.dont_write_bytecode = True
    os.environ[UNWRITTEN] = "1"
    try:
        yield
    finally:
        sys.dont_write_bytecode = before[0]
        os.environ.pop(UNWRITTEN)
        if before[1] is not None:
            os.environ[UNWRITTEN] = before[1]


def _signatures(places: Iterable[Path]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Path, and size, number and dates of each file; nobody can set a file's second date."""
    pending = [str(place) for place in places]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as found:  # gone, or not ours to read
            for each in found:
                if each.is_dir(follow_symlinks=False):
                    pending.append(each.path)
                elif each.name.endswith(CODE):
                    info = each.stat()
                    dates = info.st_mtime_ns, info.st_ctime_ns
                    yield each.path, (info.st_size, info.st_ino, *dates)
