"""Grades one exercise: reads the file, starts the trusted process, and collects its reports."""

from __future__ import annotations

import ast
import hashlib
import os
import select
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from course_lib.grade.catalog import PACKAGE, Entry
from course_lib.grade.faults import Fault
from course_lib.grade.report import Card, legible
from course_lib.ranks.pool.outcome import ending
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.start.forkserver import Child, ForkServer, ServerDied
from course_lib.ranks.system.scratch import scratch_folder

SILENCE = 300.0  # seconds without a report after which the grader itself is stuck
ANSWERS_WITHIN = 60.0  # seconds in which a preloaded process that is ready forks
ATTEMPTS = 2
RUNNER = "course_lib.grade.suite.runner:main"  # what the trusted process runs
# What the preloaded process imports for it: nothing of the judge, since answers are forked from it.
AHEAD = ("pytest", "course_lib.grade.rank.subject")
LONGEST = 1 << 20  # bytes of an answer; parsed it takes a few hundred times as much
PROTECTED = ("exercises", "grading", "notebooks", ".course")  # no answer may write there
HIDDEN = ("solutions", "grading/mutants", "tests")  # an answer may not read these either

Watcher = Callable[[Card], None]


class Grader:
    """Grades, and keeps the preloaded process warm between gradings.

    Args:
        server_factory: returns the preloaded process to use, a live one each time it is called;
            None starts one on the first grading and ends it on `close`.
        start: how it starts one.
        private: more files and folders that no answer may read or change: other people's work.
    """

    def __init__(
        self,
        server_factory: Callable[[], ForkServer] | None = None,
        private: Sequence[Path] = (),
        start: Callable[[], ForkServer] = ForkServer,
    ) -> None:
        self._factory, self._start = server_factory, start
        self._private = tuple(str(path) for path in private)
        self._own: ForkServer | None = None

    def warm(self) -> None:
        """Starts the preloaded process, without waiting for it."""
        self._server()

    def close(self) -> None:
        """Ends the preloaded process, if it is this grader's own."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _server(self) -> ForkServer:
        if self._factory is not None:
            return self._factory()
        if self._own is None:
            self._own = self._start()
        return self._own

    def grade(
        self, entry: Entry, path: Path | None = None, *, seed: int = 0, each: Watcher | None = None
    ) -> Card:
        """Grades one file.

        Args:
            entry: the exercise.
            path: the file; the learner's own if None.
            seed: from which hidden inputs are drawn; one for each student, if marks count.
            each: called with the card after every check, and once at the end.

        Returns:
            The card. Whatever the file does, this returns; nothing that it started runs on.
        """
        path = Path(os.path.realpath(path or entry.path))
        card = Card(entry, seed)
        before = _digest(entry)
        _read(card, path)
        if card.fault is None:
            self._judge(card, path, each or (lambda _: None))
        if _digest(entry) != before:
            card.fault = Fault("tampering", "a file of the grader changed while this file ran")
        card.complete = not card.interrupted
        if each is not None:
            each(card)
        return card

    def _judge(self, card: Card, path: Path, each: Watcher) -> None:
        """Has the checks run; once more if the preloaded process was lost on the way."""
        for _ in range(ATTEMPTS):
            try:
                with scratch_folder() as folder:
                    Judging(self._server(), card, path, str(folder), self._private).run(each)
                return
            except KeyboardInterrupt:
                card.interrupted = True
                return
            except ServerDied:
                self.close()
                card.checks = Card(card.entry).checks
        card.internal = "the preloaded process ended, twice, while this file ran"


def _read(card: Card, path: Path) -> None:
    """Reads the source, once; says what is wrong with it if it cannot be Python."""
    try:
        card.source = _text(path)
        ast.parse(card.source)
    except (MemoryError, RecursionError):
        card.fault = Fault("syntax", "it is nested too deeply for Python to read")
    except FileNotFoundError:
        how = f"course reset {card.entry.name}"
        card.fault = Fault(
            "missing_file",
            f"there is no file {path.name}",
            cause=f"`{how}` brings the starter back",
        )
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        text = (getattr(error, "text", "") or "").strip()
        rows = (f"line {line}: {text}",) if line else ()
        card.fault = _legible(Fault("syntax", getattr(error, "msg", str(error)), (), line, rows))
    except OSError as error:
        why = f"{path.name} cannot be read: {error}"
        card.fault = _legible(Fault("refused_file", why))


def _legible(fault: Fault) -> Fault:
    return Fault.from_dict(legible(fault.to_dict()))


def _text(path: Path) -> str:
    """The text of a plain file, without the mark that some editors begin it with.

    Reading a pipe or a device would never end.

    Raises:
        OSError: it is no ordinary file, or too long to be an answer.
    """
    info = path.stat()
    if not stat.S_ISREG(info.st_mode) or info.st_size > LONGEST:
        what = f"{info.st_size} bytes" if stat.S_ISREG(info.st_mode) else "no ordinary file"
        raise OSError(f"it is {what}")
    return path.read_text(encoding="utf-8-sig")


def _digest(entry: Entry) -> str:
    """Digest of the suite, of the references that suites have, and of the grader's own files."""
    found = hashlib.sha256(entry.suite.read_bytes())
    places = PACKAGE / "grade", entry.root / "grading" / "references"
    for file in sorted(file for place in places for file in place.rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


class Judging:
    """One trusted process at work.

    Args:
        server: forks it, and then the ranks for it.
        card: what its reports are entered in.
        path: the learner's file.
        folder: for the files of this grading.
        private: what the ranks may neither read nor change, in addition to the course's own.
    """

    def __init__(
        self, server: ForkServer, card: Card, path: Path, folder: str, private: tuple[str, ...]
    ) -> None:
        self._server, self._card, self._path = server, card, path
        self._folder, self._private = folder, private

    def run(self, each: Watcher) -> None:
        """Starts it and takes its reports until it has ended.

        Raises:
            ServerDied: the preloaded process is gone.
        """
        channel, theirs = Channel.pair()
        asks, serves = Channel.pair()
        try:
            fds = (theirs.fileno(), asks.fileno(), serves.fileno())
            self._server.wait_ready(SILENCE)
            child = self._server.fork(RUNNER, {}, fds, within=ANSWERS_WITHIN, serve=2, ahead=AHEAD)
        finally:
            for end in (theirs, asks, serves):
                end.close()
        try:
            # Not by the preloaded process: what it was told would lie in the ranks' memory as well.
            with suppress(ChannelClosed):
                channel.send(self._args())
            self._listen(channel, child, each)
        finally:
            self._end(child)
            channel.close()

    def _args(self) -> dict[str, Any]:
        entry, exercise = self._card.entry, self._card.entry.exercise
        root = entry.root
        subject = {
            "name": entry.name,
            "defines": entry.defines,
            "path": str(self._path),
            "source": self._card.source,
            "suite": str(entry.suite),
            "root": str(root),
            "network": exercise.network,
            "allowance": (exercise.library, exercise.own, exercise.allowed),
            "protected": [
                str(PACKAGE),
                *(str(root / name) for name in PROTECTED + HIDDEN),
                *self._private,
            ],
            "hidden": [*(str(root / name) for name in HIDDEN), *self._private],
        }
        return {"subject": subject, "seed": self._card.seed, "folder": self._folder}

    def _listen(self, channel: Channel, child: Child, each: Watcher) -> None:
        """Takes reports until the last one, or until nothing more can come."""
        deadline = time.monotonic() + SILENCE
        while True:
            ready, _, _ = select.select([channel.fileno(), self._server.fileno()], [], [], 1.0)
            if self._server.fileno() in ready:
                self._server.collect()
            if time.monotonic() > deadline:
                self._broke(f"no report came for {SILENCE:g} s")
                return
            if channel.fileno() not in ready:
                continue
            deadline = time.monotonic() + SILENCE
            try:
                report, _, _ = channel.receive()
            except ChannelClosed:
                self._broke(f"the trusted process {ending(child.wait(5.0))} in a grading")
                return
            if self._take(legible(report)):
                return
            each(self._card)

    def _take(self, report: dict[str, Any]) -> bool:
        """Enters one report; True if it is the last.

        Raises:
            ServerDied: the preloaded process is gone.
        """
        if report["event"] == "check":
            self._card.record(report)
        elif report["event"] == "lost":
            raise ServerDied("it ended under the trusted process")
        elif report["event"] == "broke":
            self._broke(report["why"])
        else:
            if report["stop"]:
                self._card.fault = Fault.from_dict(report["stop"])
            elif report["code"] not in (0, 1) and not self._card.internal:
                self._broke(f"pytest ended with code {report['code']}")
            return True
        return False

    def _broke(self, why: str) -> None:
        self._card.internal = self._card.internal or why

    def _end(self, child: Child) -> None:
        """Ends the trusted process; its ranks go with it."""
        with suppress(ServerDied):
            if child.wait(0.5) is None:
                child.kill()
                child.wait(5.0)
