"""One rank as the judge sees it: its last word, its printed output, its time and its memory."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from course_lib.grade.judge.inbox import Garbled, Inbox
from course_lib.ranks.start.channel import Channel
from course_lib.ranks.start.forkserver import Child
from course_lib.ranks.system.processes import PROCESSES

TAIL = 4096  # bytes of printed output that are kept
# The parts of a message that the judge reads, and the type that each must have.
NEEDED: dict[str, set[str]] = {
    "ready": set(),
    "where": {"line", "source"},
    "fault": {"kind", "error"},
    "done": {"output", "ledger", "threads"},
}
PARTS: dict[str, Any] = {
    "line": int, "seq": int, "peer": int, "made": int, "source": str, "call": str, "axis": str,
    "dtype": str, "error": str, "kind": str, "group": list, "shape": list, "tampering": list,
    "ledger": dict, "threads": (list, dict), "at": (int, float), "carried": int,
}  # fmt: skip

ITEMS = {"threads": str, "tampering": str, "group": int, "shape": int}  # in those that are lists

CALL = ("call", "axis", "group", "seq", "peer", "shape", "dtype")  # out of which an error came


@dataclass
class RankView:
    """What the judge knows of one rank.

    Attributes:
        index: the rank.
        state: `running`, `finished`, `raised` or `killed`.
        answer: its last word, if it had one.
        raw: the bytes that came with it.
        printed: how many bytes it printed.
        tail: the end of them.
        look: the latest report of where it is.
        ready: whether it has come to the learner's code.
        garbled: what was wrong with its messages.
        start: bytes of address space, and of its own in memory, when it came to the learner's code.
        moves: whether its program had worked when it last said where it is, since the time before.
        spent: processor seconds that it had used by then; a spawned rank has imported torch.
        worked: seconds for which it ran, or would have if it had got a processor.
    """

    index: int
    child: Child
    channel: Channel
    inbox: Inbox
    pipe: int
    state: str = "running"
    answer: dict[str, Any] = field(default_factory=dict)
    raw: bytes = b""
    printed: int = 0
    tail: bytes = b""
    look: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    garbled: str = ""
    start: tuple[int, int] = (0, 0)
    moves: bool = False
    spent: float = 0.0
    worked: float = 0.0

    def take(self) -> None:
        """Takes in messages and printed output that have come."""
        try:
            for message, raw in self.inbox.take():
                _check_form(message)
                if message.get("say") == "where":
                    self.moves = _program_time(message) > _program_time(self.look)
                    self.look = message
                elif message.get("say") == "ready" and not self.ready:  # an answer may say it too
                    self.ready, self.start = True, PROCESSES.memory(self.child.pid)
                    self.spent = self.cpu()
                elif self.state == "running":
                    self.answer, self.raw = message, raw
                    self.state = "finished" if message.get("say") == "done" else "raised"
        except Garbled as error:
            self.garbled, self.state = str(error), "raised"
        with suppress(BlockingIOError):
            while self.printed < 1 << 30 and (piece := os.read(self.pipe, 1 << 16)):
                self.printed += len(piece)
                self.tail = (self.tail + piece)[-TAIL:]
                if self.state != "running":
                    break
        if self.inbox.closed and self.state == "running":
            self.state = "killed"

    def report(self) -> dict[str, Any]:
        """Where it is, in the form that the autopsy reads."""
        failed = {part: self.answer[part] for part in CALL if part in self.answer}
        return {**self.look, **failed, "state": self.state, "error": self.answer.get("error", "")}

    def cpu(self) -> float:
        """Processor seconds it has used; 0 where the system does not tell."""
        return PROCESSES.cpu(self.child.pid)

    def used(self) -> float:
        """Processor seconds that the learner's code has used."""
        return self.cpu() - self.spent

    def threads(self) -> int:
        """How many it has."""
        return PROCESSES.thread_count(self.child.pid)

    def written(self) -> int:
        """Bytes that it has written to files; 0 where the system does not tell."""
        return PROCESSES.bytes_written(self.child.pid)

    def runs(self) -> bool:
        """Whether its program runs, or waits for a processor, as far as the system and it tell."""
        return self.moves or PROCESSES.is_runnable(self.child.pid)

    def halted(self) -> bool:
        """Whether a signal has stopped it, and nothing has sent it on."""
        return self.state == "running" and PROCESSES.is_stopped(self.child.pid)

    def grown(self) -> tuple[int, int]:
        """Bytes that the learner's code has asked for and not given back, and those in memory."""
        if not self.ready:
            return 0, 0
        size, own = PROCESSES.memory(self.child.pid)
        return size - self.start[0], own - self.start[1]


def _program_time(look: dict[str, Any]) -> float:
    """Processor seconds of the rank's program, as it says; 0 if it does not."""
    threads = look.get("threads")
    main = threads.get("main") if isinstance(threads, dict) else None
    told = main[-1] if isinstance(main, list) and main else None
    return told if isinstance(told, (int, float)) else 0.0


def _check_form(message: dict[str, Any]) -> None:
    """Refuses what none of our ranks says: an answer that has found the channel may send anything.

    Raises:
        Garbled: a part is missing, or of another kind.
    """
    wrong = [
        part for part, kind in PARTS.items() if not isinstance(message.get(part), (kind, NoneType))
    ]
    wrong += [
        part
        for part, kind in ITEMS.items()
        if isinstance(found := message.get(part), list)
        and not all(isinstance(each, kind) for each in found)
    ]
    say = str(message.get("say"))
    if wrong or say not in NEEDED or not message.keys() >= NEEDED[say]:
        raise Garbled("a message of another form")
