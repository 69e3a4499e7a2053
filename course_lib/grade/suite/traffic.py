"""What the ranks of a run sent: exact bytes, and calls that an exercise forbids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.grade.checks import CheckFailed
from course_lib.grade.faults import Fault, RunFault
from course_lib.grade.judge.bench import Result
from course_lib.grade.rank.calls import MESSAGES
from course_lib.trace import Event
from course_lib.trace.rounds import rounds


def check_bytes(
    result: Result,
    expected: int | Sequence[int],
    what: str,
    op: str | None,
    axis: str | None,
    likely: Mapping[str, int | Sequence[int]],
) -> None:
    """Bytes that each rank put on the wire, exactly: see `Run.bytes`."""
    forbid_bypass(result)
    sent = result.timeline.sent(op, axis)
    wanted = _for_ranks(expected, result.world)
    if sent == wanted:
        return
    rank = next(r for r in range(result.world) if sent[r] != wanted[r])
    causes = [why for why, other in likely.items() if sent == _for_ranks(other, result.world)]
    raise CheckFailed(
        f"{what} with {result.world} ranks",
        rank,
        _byte_list(wanted),
        _byte_list(sent),
        causes[0] if causes else "",
    )


def check_ring(result: Result, cause: str) -> None:
    """N-1 messages from each rank, all to one neighbour, all ranks at once: see `Run.ring`."""
    world = result.world
    for rank, ledger in enumerate(result.ledgers):
        peers = [event.peer for event in ledger.events if event.op == "send"]
        ways = [(rank + 1) % world, (rank - 1) % world]
        if len(peers) != world - 1:
            raise CheckFailed(
                f"the number of messages sent by one of {world} ranks is not what it should be",
                rank,
                str(world - 1),
                str(len(peers)),
            )
        if not any(set(peers) == {way} for way in ways):
            raise CheckFailed(
                "messages leave the ring",
                rank,
                f"all to rank {ways[0]}",
                f"to ranks {peers}",
                cause,
            )
    count = rounds(result.ledgers)
    if count > 2 * (world - 1):
        raise CheckFailed(
            "the ranks send one after the other",
            None,
            f"{world - 1} steps in which all ranks send",
            f"{count} rounds",
            "all chunks go round at the same time, one step apart",
        )


def forbid_bypass(result: Result) -> None:
    """Fails if a call went to torch.distributed directly, where no ledger sees it."""
    for rank, calls in enumerate(result.calls):
        for call in calls:
            if call.by == "torch":
                raise CheckFailed(
                    f"{call.op.strip('_')} was called past course_lib.comm{_at(call.line)}",
                    rank,
                    "calls through course_lib.comm",
                    f"torch's {call.op}",
                    "what bypasses comm is not in the ledger",
                )


def forbid_collectives(result: Result, allowed: Sequence[str]) -> None:
    """Fails if anything but single messages was used: see `Run.forbid_collectives`."""
    for rank, calls in enumerate(result.calls):
        for call in calls:
            if call.op not in MESSAGES and call.op.strip("_") not in allowed:
                _forbid(rank, call.op.strip("_"), _at(call.line))
    for ledger in result.ledgers:
        for event in ledger.events:
            if not _is_message(event) and event.op not in allowed:
                _forbid(ledger.rank, event.label, "")
    forbid_bypass(result)


def _forbid(rank: int, name: str, where: str) -> None:
    raise CheckFailed(
        f"a collective was used: {name}{where}",
        rank,
        "only send, recv, isend, irecv and exchange",
        name,
        "this exercise builds the collective itself, from messages",
    )


def check_books(result: Result) -> None:
    """The ledger must hold what the call trace saw `comm` do.

    Raises:
        RunFault: it holds less.
    """
    for rank, (ledger, calls) in enumerate(zip(result.ledgers, result.calls, strict=True)):
        seen = [call for call in calls if call.by == "comm"]
        booked = [event for event in ledger.events if not event.algorithm]
        sent = sum(call.bytes for call in seen if call.op == "send")
        book = sum(event.sent for event in booked if event.op == "send")
        if len(seen) > len(booked) or sent > book:
            text = (
                f"rank {rank} made {len(seen)} calls ({sent} bytes in messages), "
                f"but its ledger holds {len(booked)} ({book} bytes)"
            )
            raise RunFault(Fault("tampering", text, (rank,), cause="the ledger was changed"))


def _is_message(event: Event) -> bool:
    return event.op in ("send", "recv") and not event.algorithm


def _at(line: int) -> str:
    return f" (line {line})" if line else ""


def _for_ranks(value: int | Sequence[int], world: int) -> list[int]:
    return [value] * world if isinstance(value, int) else list(value)


def _byte_list(values: Sequence[int]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:,} bytes on each rank"
    return ", ".join(f"{value:,}" for value in values) + " bytes on ranks 0, 1, ..."
