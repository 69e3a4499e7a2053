"""Fixtures of the pictures' tests: ledgers written by hand, of correct and of wrong algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from course_lib import plot
from course_lib.trace import Ledger, Span, Timeline, chunk_sizes

MIB = 1 << 20
Note = tuple[int, int, int, int]  # source, destination, step, chunk


def ring_messages(size: int) -> list[Note]:
    """The messages of a ring all-reduce: N-1 steps that add, N-1 that copy."""
    scatter = [(r, (r + 1) % size, s, (r - s - 1) % size)
               for s in range(size - 1) for r in range(size)]  # fmt: skip
    gather = [(r, (r + 1) % size, size - 1 + s, (r - s) % size)
              for s in range(size - 1) for r in range(size)]  # fmt: skip
    return scatter + gather


def tree_messages(size: int) -> list[Note]:
    """The messages of a binomial broadcast from rank 0; the whole tensor each time."""
    messages, reach, step = [], 1, 0
    while reach < size:
        messages += [(r, r + reach, step, -1) for r in range(min(reach, size - reach))]
        reach, step = 2 * reach, step + 1
    return messages


def write(
    size: int,
    messages: Iterable[Note],
    *,
    op: str = "all_reduce",
    algorithm: str = "ring",
    payload: int = 4 * MIB,
    root: int = -1,
    lost: Iterable[int] = (),
) -> Timeline:
    """Ledgers of `size` ranks that carried out `messages`; those numbered in `lost` never arrived.

    Times are made even (a tenth of a millisecond a message), so that pictures are equal.
    """
    ledgers = [Ledger(rank) for rank in range(size)]
    group, lost, messages = tuple(range(size)), set(lost), list(messages)
    sizes = [count * 4 for count in chunk_sizes(payload // 4, size)]
    for ledger in ledgers:
        event = ledger.begin(op, axis="world", group=group, payload=payload, item=4,
                             algorithm=algorithm, peer=root)  # fmt: skip
        with ledger.within(event):
            for number, (source, to, step, chunk) in enumerate(messages):
                count = payload if chunk < 0 else sizes[chunk]
                common = {"axis": "world", "group": group, "payload": count, "step": step,
                          "chunk": chunk, "item": 4}  # fmt: skip
                if ledger.rank == source:
                    ledger.finish(ledger.begin("send", peer=to, sent=count, **common))
                if ledger.rank == to and number not in lost:
                    ledger.finish(ledger.begin("recv", peer=source, received=count, **common))
    return Timeline(map(evenly_timed, ledgers))


def evenly_timed(ledger: Ledger) -> Ledger:
    """The same ledger with made-up times: message k takes the k-th tenth of a millisecond."""
    for event in ledger.events:
        event.begin = 1e-4 * max(0, event.number - 1)
        event.end = event.begin + (8e-5 if event.parent >= 0 else 1e-4 * (len(ledger.events) - 1))
    return ledger


@pytest.fixture
def ring() -> Callable[[int], list[Note]]:
    """`ring(size)`: the messages of a correct ring all-reduce."""
    return ring_messages


@pytest.fixture
def tree() -> Callable[[int], list[Note]]:
    """`tree(size)`: the messages of a binomial broadcast from rank 0."""
    return tree_messages


@pytest.fixture
def record() -> Callable[..., Timeline]:
    """`record(size, messages, ...)`: the ledgers of ranks that carried the messages out."""
    return write


@pytest.fixture
def ring_record() -> Timeline:
    """The records of a correct ring all-reduce of 4 MiB on 4 ranks."""
    return write(4, ring_messages(4))


@pytest.fixture
def pictures(ring_record: Timeline) -> dict[str, Any]:
    """One of every picture, by name, with its description (`alt`)."""
    for ledger in ring_record.ledgers:
        ledger.add_memory("parameters", 3 * MIB)
        ledger.add_memory("gradients", MIB // 2 * (1 + ledger.rank))
        ledger.spans.append(Span(ledger.rank, "backward", 0.0, 4e-4))
    sizes = [1024, 65536, 4 * MIB]
    times, fit = {"send": [2e-5, 4e-5, 2e-3]}, {"send": (2e-5, 5e-10)}
    return {
        "steps": plot.collective_steps(ring_record),
        "bytes": plot.byte_bars(ring_record),
        "memory": plot.memory_bars(ring_record),
        "lanes": plot.timeline_lanes(ring_record),
        "fit": plot.alpha_beta_chart(sizes, times, fit),
        "groups": plot.topology([[0, 2], [1, 3]], 2),
        "mesh": plot.mesh_axes({"dp": 2, "tp": 2}, 2),
    }
