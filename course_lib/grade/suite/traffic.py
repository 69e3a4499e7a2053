"""What the ranks of a run sent: exact bytes, and calls that an exercise forbids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.grade.checks import CheckFailed
from course_lib.grade.judge.bench import Result
from course_lib.trace.rounds import rounds


class Traffic:
    """What a check says about the calls of a run."""

    def bytes(
        self,
        result: Result,
        expected: int | Sequence[int],
        *,
        what: str = "bytes sent",
        op: str | None = None,
        axis: str | None = None,
        likely: Mapping[str, int | Sequence[int]] | None = None,
    ) -> None:
        """Bytes that each rank put on the wire, exactly.

        Args:
            result: the run.
            expected: one number for all ranks, or one for each.
            what: the name in the message.
            op: only those of one operation.
            axis: only those on one mesh axis.
            likely: known wrong numbers, each under the sentence that explains it.
        """
        sent = result.timeline.sent(op, axis)
        wanted = _for_ranks(expected, result.world)
        if sent == wanted:
            return
        rank = next(r for r in range(result.world) if sent[r] != wanted[r])
        known = (likely or {}).items()
        cause = next((why for why, other in known if sent == _for_ranks(other, result.world)), "")
        message = f"{what} with {result.world} ranks"
        raise CheckFailed(message, rank, _byte_list(wanted), _byte_list(sent), cause)

    def ring(self, result: Result, cause: str, *, either: bool = True, walks: int = 1) -> None:
        """N-1 messages a walk from each rank, all to the same neighbour, and all ranks at once.

        Args:
            result: the run.
            cause: the likely reason if a message goes elsewhere.
            either: the neighbour may be the one before as well, not the next alone.
            walks: how often chunks go round the ring.
        """
        world, steps = result.world, walks * (result.world - 1)
        for rank, ledger in enumerate(result.ledgers):
            peers = [event.peer for event in ledger.events if event.op == "send"]
            if len(peers) != steps:
                what = f"the number of messages sent by one of {world} ranks"
                message = f"{what} is not what it should be"
                raise CheckFailed(message, rank, str(steps), str(len(peers)))
            ways = [(rank + 1) % world, (rank - 1) % world][: 2 if either else 1]
            if not any(set(peers) == {way} for way in ways):
                wanted, found = f"all to rank {ways[0]}", f"to ranks {peers}"
                raise CheckFailed("messages leave the ring", rank, wanted, found, cause)
        count = rounds(result.ledgers)
        if count > 2 * steps:
            raise CheckFailed(
                "the ranks send one after the other",
                None,
                f"{steps} steps in which all ranks send",
                f"{count} rounds",
                "all chunks go round at the same time, one step apart",
            )

    def messages_alone(self, result: Result) -> None:
        """Fails if anything but single messages was used, or if one was never waited for."""
        for ledger in result.ledgers:
            for event in ledger.events:
                if event.op not in ("send", "recv") or event.algorithm:
                    raise CheckFailed(
                        f"a collective was used: {event.label}",
                        ledger.rank,
                        "only send, recv, isend, irecv and exchange",
                        event.label,
                        "this exercise builds the collective itself, from messages",
                    )
            if under_way := ledger.open_events():
                raise CheckFailed(
                    "messages are never waited for",
                    ledger.rank,
                    "`wait` for each work that isend and irecv return",
                    f"{len(under_way)} still under way at the end: {under_way[0].label}",
                    "until then, the tensor that is sent must not change",
                )


def _for_ranks(value: int | Sequence[int], world: int) -> list[int]:
    return [value] * world if isinstance(value, int) else list(value)


def _byte_list(values: Sequence[int]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:,} bytes on each rank"
    return ", ".join(f"{value:,}" for value in values) + " bytes on ranks 0, 1, ..."
