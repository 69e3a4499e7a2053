"""What students handed in: where their files are, and their bytes, taken with care.

A submission is a folder or a zip file. The file of an exercise is `exercises/LESSON/NAME.py`, as
in the course, or `LESSON/NAME.py`, or `NAME.py`; all of it may lie in one folder more, as downloads
from git hosts have it. Nothing is unpacked, no link is followed, and nothing else is read.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath

from course_lib.grade.catalog import Entry
from course_lib.grade.report import legible
from course_lib.trace import Refusal

LARGEST_ZIP = 1 << 28  # bytes
LONGEST_NAME = 240  # bytes; files that are being written have a longer name for a while
LARGEST_LIST = 1 << 23  # bytes of a zip file's list of files: read whole, it grows a hundredfold
MOST_FOLDERS = 1000  # of a submission that are looked through for a file that is missing
LARGEST = 1 << 20  # bytes; the longest solution of the course has a hundredth of it
# `zipfile` unpacks other forms without a limit: a megabyte of bzip2 may hold 20 GB.
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
Read = Callable[[Entry], bytes | None]  # the file of an exercise
TABLES = ("marks.csv", "look_at.csv")  # they lie beside the students' folders of results


class NotTaken(ValueError):
    """Something lies in the file's place, and it is not a file that one can grade."""


@dataclass(frozen=True)
class Submission:
    """What one student handed in.

    Attributes:
        student: the name of the folder or zip file.
        path: the folder or zip file.
    """

    student: str
    path: Path

    @contextmanager
    def opened(self) -> Iterator[Read]:
        """Opens it once, for the files of all exercises.

        Yields:
            What reads the student's file of an exercise; None if there is none. It raises
            `NotTaken` if the file is a link, a folder, too large, or in a damaged zip file.
        """
        with ExitStack() as stack:
            found: Read | Exception
            try:
                found = self._open(stack)
            except Exception as error:
                found = error

            def read(entry: Entry) -> bytes | None:
                try:
                    if isinstance(found, Exception):
                        raise found
                    return found(entry)
                except NotTaken:
                    raise
                except Exception as error:  # zipfile and zlib have many ways to say "damaged"
                    raise NotTaken(f"{self.path.name} cannot be read: {error}") from None

            yield read

    def like(self, missing: Sequence[Entry]) -> dict[str, list[str]]:
        """Files with nearly the name of a missing exercise: `Ring_All_Reduce (1).py`, anywhere."""
        names: list[str] = []
        # What cannot be read was said when its files were asked for.
        with suppress(Exception), ExitStack() as stack:
            names = self._names(stack) if missing else []
        letters = {name: _letters(PurePosixPath(name).name) for name in sorted(names)}
        return {
            entry.name: found
            for entry in missing
            if (found := [n for n in letters if n.endswith(".py")
                          and _letters(entry.name) in letters[n]])
        }  # fmt: skip

    def _names(self, stack: ExitStack) -> list[str]:
        if not self.path.is_dir() or self.path.is_symlink():
            return self._archive(stack).namelist()
        return [
            os.path.relpath(os.path.join(place, name), self.path)
            for place, _, files in islice(os.walk(self.path), MOST_FOLDERS)
            for name in files
        ]

    def _open(self, stack: ExitStack) -> Read:
        if self.path.is_symlink():
            raise NotTaken("what was handed in is a link")
        if self.path.is_dir():
            return partial(_from_folder, self.path)
        archive = self._archive(stack)
        names = set(archive.namelist())
        tops = sorted({name.partition("/")[0] for name in names if "/" in name})
        return partial(_from_zip, archive, names, tops)

    def _archive(self, stack: ExitStack) -> zipfile.ZipFile:
        file = stack.enter_context(_opened(self.path))
        if os.fstat(file.fileno()).st_size > LARGEST_ZIP:
            raise NotTaken(f"{self.path.name} is larger than {LARGEST_ZIP >> 20} MiB")
        return stack.enter_context(zipfile.ZipFile(_InPieces(file.raw)))


def submissions(folder: Path) -> list[Submission]:
    """All submissions in a folder, in the order of their names.

    Raises:
        Refusal: there are none, a student has two, or is called as a table of the marks.
    """
    found = [
        Submission(_student(path.stem if path.suffix == ".zip" else path.name), path)
        for path in _visible(folder)
        if _may_be_one(path)
    ]
    names = [each.student for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    tables = sorted({*TABLES} & {*names})
    if twice or tables or not found:
        what = f"two submissions of {', '.join(twice)}" if twice else "no folder and no zip file"
        what = f"a submission that is called {tables[0]}" if tables else what
        raise Refusal(
            f"grade the class in {folder.name}",
            what,
            "each student has one folder, or one zip file, which is named after the student",
        )
    return found


def left_out(folder: Path) -> list[str]:
    """What lies in a folder of submissions and is none, but for hidden files."""
    return [legible(path.name) for path in _visible(folder) if not _may_be_one(path)]


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _student(name: str) -> str:
    """What a student is called, whose results lie in a folder of that name.

    Where letters are shown by their numbers, a name can grow longer than a folder's may be.
    """
    shown = legible(name).replace("\n", "\\n").replace("\t", "\\t")
    if len(os.fsencode(shown)) <= LONGEST_NAME:
        return shown
    mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return f"{os.fsencode(shown)[:100].decode(errors='ignore')}~{mark}"


def _visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "__"))]


def _may_be_one(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".zip"


def _places(entry: Entry, tops: Iterable[str]) -> list[PurePosixPath]:
    """Where the file may be, the most likely place first.

    Args:
        entry: the exercise.
        tops: the folders at the top of the submission.
    """
    mine = [name for name in tops if not name.startswith((".", "__"))]
    wrapped = [PurePosixPath(mine[0])] if len(mine) == 1 else []
    near = PurePosixPath(entry.lesson, f"{entry.name}.py")
    ends = (PurePosixPath("exercises") / near, near, PurePosixPath(near.name))
    return [top / end for top in (PurePosixPath(), *wrapped) for end in ends]


# --- folders -------------------------------------------------------------------------------------
def _from_folder(folder: Path, entry: Entry) -> bytes | None:
    with os.scandir(folder) as found:
        tops = [each.name for each in found if each.is_dir(follow_symlinks=False)]
    for place in _places(entry, tops):
        path = folder / place
        if os.path.lexists(path):
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                raise NotTaken(f"{place} lies behind a link that leads out of the submission")
            return _regular(path, entry)
    return None


def _regular(path: Path, entry: Entry) -> bytes:
    """The bytes of a plain file."""
    with _opened(path) as file:
        return _short_enough(file.read(LARGEST + 1), entry)


def _opened(path: Path) -> io.BufferedReader:
    """A plain file, open. It is opened before it is looked at, so that nobody can swap it.

    Raises:
        NotTaken: it is no plain file.
    """
    try:
        # A pipe with nobody at its other end would keep us waiting forever, hence O_NONBLOCK.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        what = "is a link" if path.is_symlink() else f"cannot be opened: {error.strerror}"
        raise NotTaken(f"{path.name} {what}") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise NotTaken(f"{path.name} is a folder or a device, not a file")
    return os.fdopen(number, "rb")


def _short_enough(data: bytes, entry: Entry) -> bytes:
    if len(data) > LARGEST:
        raise NotTaken(f"{entry.name}.py is larger than {LARGEST >> 20} MiB")
    return data


# --- zip files -----------------------------------------------------------------------------------
class _InPieces(io.BufferedReader):
    """A zip file, of which nothing large is read at once; `zipfile` reads the list of files so."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LARGEST_LIST:
            raise NotTaken("it lists too many files")
        return super().read(size)


def _from_zip(
    archive: zipfile.ZipFile, names: set[str], tops: Iterable[str], entry: Entry
) -> bytes | None:
    for place in _places(entry, tops):
        if str(place) in names:
            if archive.getinfo(str(place)).compress_type not in PACKED:
                raise NotTaken(f"{place} is packed in a way that is not usual in zip files")
            with archive.open(str(place)) as file:
                return _short_enough(file.read(LARGEST + 1), entry)
    return None
