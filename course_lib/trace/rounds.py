"""How many rounds messages take: the longest chain in which each waits for the one before.

Notebook: 01 Collectives from scratch (broadcast_tree, halving_doubling_all_reduce; ring and tree).
Paper: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), section 3: the model in which a rank sends one message and receives one at a time.
Costs nothing on the wire: the chain is found in the ledgers, after the run.
The production version is a critical-path analysis of a profiler's trace (Holistic Trace Analysis).

The clock is used for order alone, inside one rank: what its program had received before it sent.
So a run has the same number of rounds however busy the machine was.
"""

from __future__ import annotations

from collections.abc import Iterable

from course_lib.trace.event import Event
from course_lib.trace.ledger import Ledger

Key = tuple[int, int, tuple[int, ...], int]  # sender, receiver, group, number of the message


def rounds(ledgers: Iterable[Ledger]) -> int:
    """Rounds of all messages in the ledgers, if every rank sends and receives one in each round.

    Args:
        ledgers: those of all ranks that the messages go between.

    Returns:
        0 without messages; N-1 for a chain or a star of N ranks, ⌈log2 N⌉ for a binomial tree.
    """
    return _Rounds(ledgers).last()


class _Rounds:
    """The round of every message, found from the first to the last.

    Args:
        ledgers: those of all ranks.
    """

    def __init__(self, ledgers: Iterable[Ledger]) -> None:
        books = list(ledgers)
        self._sends = {book.rank: [e for e in book.events if e.op == "send"] for book in books}
        self._taken = {book.rank: _in_order_of_end(book) for book in books}
        self._left: dict[Key, int] = {}  # round in which a message leaves its sender
        self._arrived: dict[Key, int] = {}  # round in which the receiver takes it

    def last(self) -> int:
        """The last round of all."""
        for events in (*self._sends.values(), *self._taken.values()):
            for event in events:
                self._of(event)
        return max((*self._left.values(), *self._arrived.values()), default=0)

    def _of(self, event: Event) -> int:
        known = self._left if event.op == "send" else self._arrived
        key = _key(event)
        if key not in known:
            known[key] = self._leaves(event) if event.op == "send" else self._arrives(event)
        return known[key]

    def _leaves(self, send: Event) -> int:
        """The first round with room after what this rank had received when it began to send."""
        before = [self._of(e) for e in self._taken[send.rank] if (e.end or 0.0) <= send.begin]
        busy = {self._of(e) for e in self._sends[send.rank] if e.number < send.number}
        return _first_free(1 + max(before, default=0), busy)

    def _arrives(self, recv: Event) -> int:
        """The first round with room from the one on in which it was sent."""
        match = (e for e in self._sends.get(recv.peer, ()) if _key(e) == _key(recv))
        begin = max((self._of(e) for e in match), default=1)
        earlier = [e for e in self._taken[recv.rank] if (e.end or 0.0) < (recv.end or 0.0)]
        return _first_free(begin, {self._of(e) for e in earlier})


def _in_order_of_end(book: Ledger) -> list[Event]:
    """The receives that somebody waited for, in the order in which their data were there."""
    done = [e for e in book.events if e.op == "recv" and e.end is not None]
    return sorted(done, key=lambda event: event.end or 0.0)


def _key(event: Event) -> Key:
    ends = (event.rank, event.peer) if event.op == "send" else (event.peer, event.rank)
    return (*ends, event.group, event.seq)


def _first_free(begin: int, busy: set[int]) -> int:
    while begin in busy:
        begin += 1
    return begin
