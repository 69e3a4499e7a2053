"""One rank of a check: loads the learner's code, has the driver call it, and sends data back."""

from __future__ import annotations

import io
import itertools
import json
import linecache
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable
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
from course_lib.comm.switch import Link, SwitchTransport, link, transport
from course_lib.grade.rank import payload
from course_lib.grade.rank.allowance import Allowance
from course_lib.grade.rank.confine import OPEN_FILES, confine, set_limits
from course_lib.grade.rank.fence import Fence, Refused, Seal
from course_lib.grade.rank.places import in_group
from course_lib.grade.rank.told_ledger import ToldLedger
from course_lib.grade.rank.unlike import move_objects, own_hash
from course_lib.ranks.rank_process import where
from course_lib.ranks.rank_process.last_words import LastWords
from course_lib.ranks.rank_process.rendezvous import meet, take_place
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.system.wall import close_calls
from course_lib.trace import ledger as ledger_module

PACKAGE = Path(__file__).resolve().parents[2]
BORROWED_AT_ONCE = ("borrowed", "import")  # so no check can say anything else
NO_MEMORY = re.compile("can't allocate memory|not enough memory|cannot allocate memory", re.I)
# How the kernel's refusals read where a library has made its own error of one.
NOT_ALLOWED = re.compile("permission denied|operation not permitted", re.I)


def main(args: dict[str, Any], fds: list[int]) -> None:
    """Runs as a forked child; ends only when the judge says so or is gone.

    Args:
        args: rank, world, port, path (the learner's file), root, name, defines, allowance,
            protected, hidden, memory, cpu, longest, processes, network.
        fds: the judge's channel, the pipe for printed output, and what the network needs: the line
            to the switch and the memory shared with it; or, for torch's, on rank 0 the store's
            socket.
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
    _close_others(fds)
    rank = Rank(args, Channel.from_fd(fds[0]))
    rank.work(rank.join(fds[2:]))
    threading.Event().wait()  # peers may still need this end of the connections


class Rank:
    """A rank at work.

    Args:
        args: as in `main`.
        channel: to the judge.
    """

    def __init__(self, args: dict[str, Any], channel: Channel) -> None:
        self.args = args
        self.ledger = ToldLedger(args["rank"])
        self._channel = channel
        self._lock = threading.Lock()
        self._driving = False
        self._go = threading.Event()
        self._seal: Seal | None = None
        self._link: Link | None = None
        roots = (args["root"], PACKAGE.parent)  # suites call the learner; their lines are no answer
        self._suites = tuple(os.path.join(root, "grading", "") for root in roots)
        self.job, self.raw, _ = channel.receive()
        self._tcp = args["network"] == "torch"  # the switch's lines are there already
        writable = confine(self.job["folder"], args["path"], tcp=self._tcp)  # before any thread
        self._fence = Fence(args["protected"], args["hidden"], writable)
        library, own, said = args["allowance"]
        self._allowance = Allowance(args["path"], library, own, said, self._suites)
        self._program = threading.get_ident()
        threading.Thread(target=self._answer, daemon=True, name="course control").start()

    def join(self, fds: list[int]) -> Group:
        """Joins the network; of torch's, rank 0 listens on a socket that the judge has bound."""
        args = self.args
        torch.set_num_threads(1)
        # `torch.manual_seed` also seeds devices that are not used here, which takes 8 ms.
        torch.default_generator.manual_seed(1000 + args["rank"])
        if args["network"] == "torch":
            patience = timedelta(seconds=args["longest"] + 60)  # the judge is quicker
            listen = fds[0] if fds else None
            meet(args["rank"], args["world"], args["port"], listen, patience=patience)
            return Group.world(self.ledger)
        take_place(args["rank"], args["world"])
        self._link = Link(fds[0], fds[1], self.ledger)
        everyone = range(args["world"])
        carrier = SwitchTransport(self._link, args["rank"], everyone)
        return Group(everyone, args["rank"], "world", self.ledger, carrier)

    def work(self, group: Group) -> None:
        """Loads the driver, then the learner's file, calls the one with the other and reports."""
        drive = getattr(_load_driver(self.job["modules"]), self.job["drive"])
        inputs = payload.unpack(self.job["inputs"], self.raw)
        drive = in_group(drive)
        os.chdir(self.job["folder"])
        self._allowance.guard()
        self._seal = Seal(
            [dist, comm, messages, collectives, link, transport, ledger_module, payload]
        )
        set_limits(self.args["memory"], self.args["cpu"], self.args["processes"])
        close_calls(tcp=self._tcp)  # not before: who joins torch's group looks up names
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
            if self._link is not None:
                self._link.expect_threads()
                self.ledger.tell = self._link.mark
            output = drive(learner, group, **inputs)
            if self._link is not None:
                self._link.flush()
            self._finish(output, before)
        except BaseException as error:  # sys.exit and KeyboardInterrupt are answers as well
            self._fail(error, stage)

    def _load_learner(self) -> ModuleType:
        name, path, source = self.args["name"], self.args["path"], self.job["source"]
        module = ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module
        self._allowance.hand_to(module)
        vars(module)["__builtins__"]["hash"] = own_hash(self.args["rank"])
        self._moved = move_objects(self.args["rank"])
        lines = source.splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)  # what is run is what is shown
        exec(compile(source, path, "exec"), vars(module))
        missing = [wanted for wanted in self.args["defines"] if not hasattr(module, wanted)]
        if missing:
            raise MissingName(", ".join(missing))
        return module

    # --- answers ---------------------------------------------------------------------------------
    def _finish(self, output: Any, before: set[threading.Thread]) -> None:
        left = [
            t.name
            for t in threading.enumerate()
            if t not in before and not isinstance(t, threading._DummyThread)
        ]
        data, raw = payload.pack(output)
        message = {
            "say": "done",
            "output": data,
            "ledger": self.ledger.to_dict(),
            "threads": left,
            "tampering": self._tampering(),
        }
        if len(raw) > payload.MOST_RAW:
            raise ValueError(f"too much to send back: {len(raw) >> 20} MiB of tensors")
        if len(json.dumps(message)) > payload.LONGEST_TEXT:
            calls = len(self.ledger.events)
            raise ValueError(f"too much to send back: numbers that are no tensor, or {calls} calls")
        self._say(message, raw)

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
            return "borrowed_import" if (error.kind, stage) == BORROWED_AT_ONCE else error.kind
        if isinstance(error, MissingName):
            return "no_function"
        if isinstance(error, SystemExit):
            return "exit"
        said = _words(error)
        if isinstance(error, MemoryError) or NO_MEMORY.search(said):
            return "memory"
        if isinstance(error, (OSError, RuntimeError)) and NOT_ALLOWED.search(said):
            return "refused"
        if isinstance(error, NotImplementedError) and said.startswith(self.args["name"]):
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


def _close_others(fds: list[int]) -> None:
    """Closes every open file but standard ones and these: what was inherited is none of ours."""
    edges = [2, *sorted(fds), OPEN_FILES]
    for low, high in itertools.pairwise(edges):
        os.closerange(low + 1, high)


def _load_driver(modules: list[dict[str, str]]) -> ModuleType:
    """The last of some modules that the judge has cut out of a suite and its references."""
    for each in modules:
        *above, _ = each["name"].split(".")
        for depth in range(1, len(above) + 1):
            package = ModuleType(".".join(above[:depth]))
            package.__path__ = []
            sys.modules.setdefault(package.__name__, package)
        module = sys.modules[each["name"]] = ModuleType(each["name"])
        module.__file__ = each["path"]
        exec(compile(each["source"], each["path"], "exec"), vars(module))
    return module


def _learner_line(error: BaseException, path: str) -> int:
    """The innermost line of the learner's file in the traceback; 0 if it has none there."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno or 0 for f in reversed(frames) if f.filename == path), 0)


def _words(value: Any, how: Callable[[Any], str] = str) -> str:
    """A value as text; one that an answer has made may raise anything when it is asked."""
    try:
        return how(value)
    except BaseException as other:
        return f"it cannot be read: {type(other).__name__}"


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"sys.exit({_words(error.code, repr)})"[:1500]
    if isinstance(error, (MissingName, Refused)):
        return str(error)
    return f"{type(error).__name__}: {_words(error)}".strip(": ")[:1500]
