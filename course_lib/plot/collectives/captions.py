"""The words under a stepper: what happens in each step, and whether the end is right."""

from __future__ import annotations

from collections.abc import Iterable

from course_lib.plot.collectives.messages import Message
from course_lib.plot.collectives.replay import Replay, Slot, State
from course_lib.plot.player.style import format_bytes
from course_lib.trace.timeline import formula_sent
from course_lib.trace.wire import formula_text


def phase(story: Replay, state: State) -> str:
    """`reduce-scatter`, `all-gather`, ...: told from what the messages of this step did."""
    if story.op != "all_reduce":
        return story.op.replace("_", "-")
    arrived = {(m.to, m.chunk) for m in state.messages if m.arrived}
    whole = len(story.chunks) == 1
    if arrived and arrived == state.added:
        return "reduce" if whole else "reduce-scatter"
    return "broadcast" if whole else "all-gather"


def beginning(story: Replay) -> str:
    """The caption of the first frame."""
    if story.op == "broadcast":
        return "Before the first step, only the source holds the tensor."
    if story.op == "all_gather":
        return "Before the first step, every rank holds one chunk: its own."
    return (
        "Before the first step, every rank holds its own part of every chunk. "
        "Wanted: chunks to which all ranks have added their parts."
    )


def caption(story: Replay, index: int) -> str:
    """What happens in step `index`."""
    state = story.states[index]
    head = f"Step {index} of {len(story.states) - 1}, {phase(story, state)}: "
    group, messages = story.group, state.messages
    following = {rank: group[(i + 1) % len(group)] for i, rank in enumerate(group)}
    size = _spread(m.count for m in messages)
    lost = [
        f"what rank {m.source} sent to rank {m.to} was never received"
        for m in messages
        if not m.arrived
    ]
    in_turn = sorted((m.source, m.to) for m in messages) == sorted(following.items())
    if in_turn and len(group) > 2:
        verb = "adds" if state.added else "keeps"
        words = f"every rank sends one chunk ({size}) to the next and {verb} the one it receives"
    else:
        words = ", ".join(_route(message) for message in messages[:4])
        words += f" and {len(messages) - 4} more" if messages[4:] else ""
        words = f"{size}{' each' if messages[1:] else ''}: {words}"
    return head + "; ".join([words, *lost]) + "."


def _route(message: Message) -> str:
    what = "" if message.chunk < 0 else f"chunk {message.chunk} "
    return f"{what}from rank {message.source} to {message.to}"


def ending(story: Replay) -> str:
    """The verdict: whether everything is where it must be, and what it cost."""
    missing, total = story.missing(), len(story.goal)
    if not missing:
        whole = story.chunks == (-1,)
        what = f"{total} ranks hold the result" if whole else f"{total} chunks are complete"
        text = f"Done: all {what}. "
    else:
        rank, chunk = missing[0]
        name = "tensor" if chunk < 0 else f"chunk {chunk}"
        text = f"Wrong: {len(missing)} of {total} chunks are not what they should be. "
        text += f"{name.capitalize()} of rank {rank} {_fault(story, missing[0])}. "
    text += f"Sent by each rank: {_spread(story.states[-1].sent.values())}"
    if story.events:
        says = _spread(formula_sent(event) for event in story.events.values())
        text += f"; by the formula, {formula_text(story.op)}, it is {says}"
    return text + "."


def _spread(counts: Iterable[int]) -> str:
    """`6 MiB`, or `4 MiB to 12 MiB` where they differ."""
    each = sorted(set(counts))
    return " to ".join(format_bytes(count) for count in (each[:1] + each[1:][-1:]))


def _fault(story: Replay, slot: Slot) -> str:
    """What is wrong with a slot at the end: whose parts it lacks or has too often."""
    held, goal = story.states[-1].held[slot], story.goal[slot]
    faults = zip(story.group, held, goal, strict=True)
    return " and ".join(
        f"lacks the part of rank {rank}" if has < wants else f"counts the part of rank {rank} twice"
        for rank, has, wants in faults
        if has != wants
    )
