"""A recorded run of a pipeline as the same kind of grid that a simulation is."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plot.player.figure import nothing_recorded
from course_lib.schedule import Action, Schedule, ScheduleError, Simulation, Slot
from course_lib.trace import Ledger, Timeline


@dataclass(frozen=True)
class Message:
    """The result of an action, on its way to another rank.

    Attributes:
        sender: the rank that made it.
        receiver: the rank that needs it.
        sent: when it was there; of a recorded one, when it was sent.
        used: when the action that needs it begins; of a recorded one, when its rank had it.
    """

    sender: int
    receiver: int
    sent: float
    used: float


@dataclass(frozen=True)
class Measured(Simulation):
    """A schedule as it really ran: slots in seconds from the first action of all.

    Attributes:
        messages: what was sent and received in the run; none if the ledgers have no messages.
    """

    messages: tuple[Message, ...] = ()


def measured_schedule(timeline: Timeline) -> Measured:
    """The last recorded run of a pipeline.

    A rank's run begins with its first stage's forward of micro-batch 0, as in every schedule here.

    Args:
        timeline: ledgers of the pipeline's ranks, each with a span for every action (`0F1`); other
            spans and ranks without any are left out.

    Returns:
        What `simulate` returns, with times in seconds. Rows are the ranks that have actions, in
        the order of their numbers.

    Raises:
        Refusal: no span is named like an action.
        ScheduleError: the spans are not a whole run; it names what is missing.
    """
    runs = [(ledger, line) for ledger in timeline.ledgers if (line := _last_run(ledger))]
    if not runs:
        raise nothing_recorded("a pipeline's run", "no span with an action's name, like 0F1")
    lines = [line for _, line in runs]
    first = min(slot.begin for line in lines for slot in line)
    schedule = Schedule.of("measured", [[slot.action for slot in line] for line in lines])
    return Measured(
        schedule,
        tuple(
            tuple(Slot(slot.action, slot.begin - first, slot.end - first) for slot in line)
            for line in lines
        ),
        tuple(
            message
            for sender, (ledger, line) in enumerate(runs)
            for receiver, (other, _) in enumerate(runs)
            for message in _messages(ledger, other, line[0].begin, first, (sender, receiver))
        ),
    )


def _messages(
    sender: Ledger, receiver: Ledger, since: float, zero: float, rows: tuple[int, int]
) -> list[Message]:
    """What one rank sent another in its last run; a rank's messages to another keep their order.

    Receives may have been posted before the run's first action, so they are counted from the last.
    """
    sends = [
        event
        for event in sender.events
        if event.op == "send" and event.peer == receiver.rank and event.begin >= since
    ]
    takes = [e for e in receiver.events if e.op == "recv" and e.peer == sender.rank]
    return [
        Message(*rows, send.begin - zero, take.end - zero)
        for send, take in zip(sends, takes[len(takes) - len(sends) :], strict=False)
        if take.end is not None
    ]


def _last_run(ledger: Ledger) -> list[Slot]:
    """A rank's actions from its last forward of micro-batch 0 on its first stage; [] if none."""
    slots = []
    for span in ledger.spans:
        try:
            slots.append(Slot(Action.parse(span.name), span.begin, span.end))
        except ScheduleError:
            continue  # work of another kind
    slots.sort(key=lambda slot: slot.begin)
    first = Action(min((slot.action.stage for slot in slots), default=0), "F", 0)
    starts = [number for number, slot in enumerate(slots) if slot.action == first]
    return slots[starts[-1] if starts else 0 :]
