"""One rank of a check: loads the learner's code, has the driver call it, and sends data back."""

from __future__ import annotations

import importlib.util
import io
import linecache
import os
import re
import sys
import threading
import traceback
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from course_lib import comm
from course_lib.comm import collectives, messages
from course_lib.comm.group import Group
from course_lib.grade.rank import payload
from course_lib.grade.rank.calls import CallTrace
from course_lib.grade.rank.fence import Fence, Refused, Seal, set_limits
from course_lib.grade.rank.places import in_group
from course_lib.ranks.rank_process import where
from course_lib.ranks.rank_process.last_words import LastWords
from course_lib.ranks.rank_process.rendezvous import meet
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.trace import Ledger
from course_lib.trace import ledger as ledger_module

PACKAGE = Path(__file__).resolve().parents[2]
NO_MEMORY = re.compile("can't allocate memory|not enough memory|cannot allocate memory", re.I)


def main(args: dict[str, Any], fds: list[int]) -> None:
    """Runs as a forked child; ends only when the judge says so or is gone.

    Args:
        args: rank, world, port, path (the learner's file), suite, root, name, defines, folder,
            protected, hidden, memory, cpu, longest, processes.
        fds: the judge's channel, the pipe for printed output, and on rank 0 the store's socket.
    """
    os.close(fds[1])  # it is already this process's standard output
    for name, fd in (("stdout", 1), ("stderr", 2)):
        setattr(
            sys,
            name,
            io.TextIOWrapper(
                io.FileIO(fd, "w", closefd=False), "utf-8", "replace", write_through=True
            ),
        )
    sys.dont_write_bytecode = True
    rank = Rank(args, Channel.from_fd(fds[0]))
    rank.join(fds[2] if args["rank"] == 0 else None)
    rank.work()
    threading.Event().wait()  # peers may still need this end of the connections


class Rank:
    """A rank at work.

    Args:
        args: as in `main`.
        channel: to the judge.
    """

    def __init__(self, args: dict[str, Any], channel: Channel) -> None:
        self.args = args
        self.ledger = Ledger(args["rank"])
        self._channel = channel
        self._lock = threading.Lock()
        self._driving = False
        self._go = threading.Event()
        self._seal: Seal | None = None
        self._fence = Fence(args["protected"], args["hidden"])
        roots = (args["root"], PACKAGE.parent)  # suites call the learner; their lines are no answer
        self._suites = tuple(os.path.join(root, "grading", "") for root in roots)
        self.job, self.raw, _ = channel.receive()
        self._program = threading.get_ident()
        threading.Thread(target=self._answer, daemon=True, name="course control").start()

    def join(self, listen: int | None) -> None:
        """Joins the process group; rank 0 listens on a socket that the judge has bound."""
        args = self.args
        torch.set_num_threads(1)
        # `torch.manual_seed` also seeds devices that are not used here, which takes 8 ms.
        torch.default_generator.manual_seed(1000 + args["rank"])
        patience = timedelta(seconds=args["longest"] + 60)  # the judge is quicker
        meet(args["rank"], args["world"], args["port"], listen, patience=patience)

    def work(self) -> None:
        """Loads the suite, then the learner's file, calls the driver and reports."""
        group = Group.world(self.ledger)
        sys.path.append(self.args["root"])  # what suites import lies in grading/ of the course
        drive = getattr(_load_suite(self.args["suite"]), self.job["drive"])
        inputs = payload.unpack(self.job["inputs"], self.raw)
        drive = in_group(drive)
        os.chdir(self.args["folder"])
        self._seal = Seal([dist, comm, messages, collectives, ledger_module, payload])
        set_limits(self.args["memory"], self.args["cpu"], self.args["processes"])
        self._fence.close()
        self._say({"say": "ready"})
        self._go.wait()  # for the others: one that ends early must not spoil their meeting
        self._last_words = LastWords(self._tell_where)
        self._driving = True
        stage = "import"
        try:
            learner = self._load_learner()
            stage = "drive"
            before = set(threading.enumerate())
            with CallTrace(self.args["path"]) as trace:
                output = drive(learner, group, **inputs)
            self._finish(output, trace, before)
        except BaseException as error:  # sys.exit and KeyboardInterrupt are answers as well
            self._fail(error, stage)

    def _load_learner(self) -> ModuleType:
        name, path, source = self.args["name"], self.args["path"], self.job["source"]
        module = ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module
        lines = source.splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)  # what is run is what is shown
        exec(compile(source, path, "exec"), vars(module))
        missing = [wanted for wanted in self.args["defines"] if not hasattr(module, wanted)]
        if missing:
            raise MissingName(", ".join(missing))
        return module

    # --- answers ---------------------------------------------------------------------------------
    def _finish(self, output: Any, trace: CallTrace, before: set[threading.Thread]) -> None:
        left = [
            t.name
            for t in threading.enumerate()
            if t not in before and not isinstance(t, threading._DummyThread)
        ]
        data, raw = payload.pack(output)
        self._say(
            {
                "say": "done",
                "output": data,
                "ledger": self.ledger.to_dict(),
                "threads": left,
                "calls": [call.to_dict() for call in trace.calls],
                "tampering": self._tampering(),
            },
            raw,
        )

    def _fail(self, error: BaseException, stage: str) -> None:
        line = _learner_line(error, self.args["path"])
        self._say(
            {
                "say": "fault",
                "kind": self._kind(error, stage),
                "line": line,
                **where.failed_call(error, self.ledger),
                "source": linecache.getline(self.args["path"], line).strip() if line else "",
                "error": _describe(error),
                "tampering": self._tampering(),
            }
        )

    def _kind(self, error: BaseException, stage: str) -> str:
        if isinstance(error, Refused):
            return error.kind
        if isinstance(error, MissingName):
            return "no_function"
        if isinstance(error, SystemExit):
            return "exit"
        if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
            return "memory"
        if isinstance(error, NotImplementedError) and str(error).startswith(self.args["name"]):
            return "not_written"
        return "import" if stage == "import" else "exception"

    def _tampering(self) -> list[str]:
        return self._fence.tampering + (self._seal.broken() if self._seal else [])

    def _say(self, message: dict[str, Any], raw: bytes = b"") -> None:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        with self._lock, suppress(ChannelClosed):
            self._channel.send(message, raw)

    def _answer(self) -> None:
        """Answers the judge's questions from a thread of its own."""
        while True:
            try:
                question, _, _ = self._channel.receive()
            except (ChannelClosed, OSError):
                os._exit(0)
            if question["ask"] == "end":
                os._exit(0)
            if question["ask"] == "go":
                self._go.set()
                continue
            self._tell_where()

    def _tell_where(self) -> None:
        """Says in which line and call the program is; also the last word of one that aborts."""
        report: dict[str, Any] = {"talking": False, "line": 0, "source": "", "threads": {}}
        if self._driving:
            report = where.report(self._program, self.ledger, self._suites)
        self._say({"say": "where", **report})


class MissingName(Exception):
    """The learner's file lacks a name that the exercise asks for."""


def _load_suite(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("course_suite", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _learner_line(error: BaseException, path: str) -> int:
    """The innermost line of the learner's file in the traceback; 0 if it has none there."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno or 0 for f in reversed(frames) if f.filename == path), 0)


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r})"
    if isinstance(error, (MissingName, Refused)):
        return str(error)
    return f"{type(error).__name__}: {error}".strip(": ")[:1500]
