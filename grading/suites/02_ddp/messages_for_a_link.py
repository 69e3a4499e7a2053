"""messages_for_a_link: all bytes once; the end of the next forward is the figure.

Source: Peng et al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration"
(ByteScheduler, 2019): priorities by layer, and tensors in pieces.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: gradients in the order that the next forward needs",
    core=False,
    minutes=50,
    order=6,
    open=("times the lower bound of the step", 1.3996, 1.0835),
    library=(),
    hints=(
        "First write a function that computes when the last forward ends. Then compare three "
        "plans: one message for all gradients; one message for each layer, in the order in which "
        "the gradients become ready; and one message for each layer, where of the gradients that "
        "are ready the first layer's always goes first.",
        "Whenever the link is free, take the ready gradients of the first layers, up to a limit "
        "of bytes. A small limit costs latency, and a large one makes urgent gradients wait: try "
        "several limits and keep the best.",
        "Improve the best plan step by step: join two messages, swap two, or move a piece to "
        "another message, and keep each change that makes the last forward end earlier.",
    ),
)


class Case(NamedTuple):
    """The function's arguments: times in µs, sizes in bytes, the rate in bytes in a µs."""

    ready: list[int]
    forward: list[int]
    sizes: list[int]
    latency: int
    rate: int


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The messages of each case."""
    return {"plans": [learner.messages_for_a_link(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """Uneven layers, one of them large; all gradients take two to six times as long as forward."""
    count = draw(8, 21, 1)[0]
    forward = draw(20, 200, count)
    sizes = [number**2 for number in draw(100, 1000, count)]
    sizes[draw(0, count, 1)[0]] *= draw(2, 6, 1)[0]
    ready = [*accumulate(2 * takes for takes in reversed(forward))][::-1]
    rate = sum(sizes) * 100 // (sum(forward) * draw(200, 600, 1)[0])
    return Case(ready, forward, sizes, sum(forward) * draw(2, 20, 1)[0] // 100, rate)


def _check_messages(run: Run, case: Case, messages: Any) -> None:
    """That the messages are valid."""
    run.true(
        plans.is_whole(messages, 3) and all(len(piece) == 2 for each in messages for piece in each),
        "this is not a list of messages, each a list of (layer, bytes) in whole numbers",
        measured=describe(messages),
    )
    sent: Counter[int] = Counter()
    last = len(case.sizes) - 1
    for number, message in enumerate(messages):
        run.true(bool(message), f"message {number} is empty")
        for layer, size in message:
            piece = f"the piece ({layer}, {size}), as (layer, bytes)"
            what = f"there is no layer {layer}"
            run.true(0 <= layer <= last, what, expected=f"0 to {last}", measured=piece)
            run.true(size >= 1, f"message {number} has a piece of {size} bytes")
            sent[layer] += size
    for layer, size in enumerate(case.sizes):
        run.equal(sent[layer], size, f"the number of bytes sent for layer {layer}'s gradient")


def _end(run: Run, case: Case, messages: list[list[tuple[int, int]]]) -> float:
    """When the last layer's next forward ends, in lower bounds."""
    _check_messages(run, case, messages)
    free, there = 0.0, [0.0] * len(case.sizes)
    for message in messages:
        begin = max(free, *(case.ready[layer] for layer, _ in message))
        free = begin + case.latency + sum(size for _, size in message) / case.rate
        for layer, _ in message:
            there[layer] = free
    time: float = case.ready[0]
    for arrived, takes in zip(there, case.forward, strict=True):
        time = max(time, arrived) + takes
    return time / _bound(case)


def _bound(case: Case) -> float:
    """No plan ends earlier.

    For each layer i: the bytes of the layers up to i cannot begin before ready[i], and after the
    last of them come at least the forwards from i on.
    """
    return max(
        case.ready[i] + case.latency + sum(case.sizes[: i + 1]) / case.rate + sum(case.forward[i:])
        for i in range(len(case.sizes))
    )


@check("all bytes of every gradient are sent once", points=3, code="E")
def check_messages(run: Run) -> None:
    """E: hidden layers; one layer; gradients of one byte."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(4)]
    cases += [Case([6], [3], [1000], 2, 10), Case([8, 4, 2], [2, 1, 1], [1, 1, 1], 1, 5)]
    plans.judged(run, drive, cases, _check_messages)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_step(run: Run) -> None:
    """S: the mean of the last forward's end, in lower bounds."""
    run.figure = plans.figure(run, drive, "messages_for_a_link", _case, _end)
