"""The memory of a run with messages: its true peak, and buffers that two messages use at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from course_lib.grade.suite import Result, Run
from course_lib.trace import Event, Ledger
from course_lib.trace.memory import LiveMemory

LOOK = 0.0005  # seconds between two looks at the memory
FEW, MANY = 4, 400  # looks for each new peak; looks in all for those beyond the limit
MESSAGES = {"c10d::send": "send", "c10d::recv_": "recv"}
SHARED = (
    "a message is received into memory that is still being sent (or sent before it has arrived): "
    "use two buffers in turn, and `wait` before you touch one again"
)
TWICE = "two messages are received into the same memory at once: wait for the first one"


class BufferWatch(LiveMemory):
    """Counts live memory, and holds the messages under way against each other.

    A backend's thread may let go of a buffer a little late, so each new peak gets some patience.

    Args:
        ledger: this rank's, which knows what was waited for.
        limit: bytes; a peak beyond it gets the most patience.

    Attributes:
        clashes: one sentence for each message that shares memory with another one under way.
    """

    def __init__(self, ledger: Ledger, limit: int = 0) -> None:
        super().__init__()
        self.clashes: list[str] = []
        self._ledger, self._limit = ledger, limit
        self._patience = MANY
        self._flying: list[tuple[Event, int, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operation; looks at its memory first if it is a message."""
        op = MESSAGES.get(func._schema.name)
        event = self._ledger.events[-1] if op and self._ledger.events else None
        if event is not None and event.op == op:
            for tensor in args[0]:
                self._fly(event, tensor)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _fly(self, event: Event, tensor: torch.Tensor) -> None:
        self._flying = [other for other in self._flying if other[0].end is None]
        begin = tensor.data_ptr()
        end = begin + tensor.nbytes
        for other, first, last in self._flying:
            if begin < last and first < end and "recv" in (event.op, other.op):
                self.clashes.append(TWICE if event.op == other.op else SHARED)
        self._flying.append((event, begin, end))

    def _count(self, storage: torch.UntypedStorage) -> None:
        before = self.peak
        super()._count(storage)
        allowed, looks = max(before, self._limit), 0
        while self.now > allowed and looks < (self._patience if self._limit else FEW):
            time.sleep(LOOK)
            looks += 1
        self._patience -= looks
        self.peak = max(before, self.now)


# --- checks --------------------------------------------------------------------------------------
def only_neighbours(run: Run, result: Result) -> None:
    """Messages alone, all to one neighbour; no memory in two at once; all of them waited for.

    Args:
        run: of the check.
        result: of a driver that returns `clashes` of its watch.
    """
    run.messages_alone(result)
    ways = [[(rank + way) % result.world for rank in range(result.world)] for way in (1, -1)]
    for rank, ledger in enumerate(run.each(result.ledgers)):
        peers = {event.peer for event in ledger.calls("send", "world")}
        ways = [way for way in ways if peers <= {way[rank]}]
        run.true(
            bool(ways),
            "messages leave the ring",
            expected="all to the next rank, or all to the previous one, on every rank",
            measured=f"to ranks {sorted(peers)}",
            cause="a block goes from neighbour to neighbour",
        )
    for found in run.each(result.outputs):
        clashes = found["clashes"]
        run.true(
            not clashes,
            "two messages under way share memory",
            measured=f"{len(clashes)} times",
            cause="".join(clashes[:1]),
        )


def peak_stays(run: Run, large: Callable[..., Any], block: int) -> None:
    """The same peak on 4 ranks as on 3, with as much on each.

    Args:
        run: of the check.
        large: `large(run, world, limit)` gives a run whose driver returns the `peak` of its watch.
        block: bytes of what one hop carries.
    """
    three = max(large(run, 3).column("peak"))
    four = large(run, 4, three).column("peak")
    rank = four.index(max(four))
    gathered = "a block more for each rank: let go of a block once it is used, gather nothing"
    scores = "scores or a mask of more than one block: t×S or S×S"
    run.at_most(
        four[rank],
        three + block // 8,
        rank=rank,
        what=f"the peak on 4 ranks (on 3 ranks it is {three:,} bytes)",
        cause=gathered if four[rank] >= three + block else scores,
    )
