"""One training step under a plan of recomputation, action by action, and what is held meanwhile.

Paper: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), section 4.1.

What a block needs for a moment while it runs through its forward and forgets it is left out, as in
`recompute.peak_memory`; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from course_lib.trace import Refusal

Plan = Sequence[tuple[range, bool]]  # neighbouring blocks, and whether they are recomputed

FORWARD, AGAIN, BACKWARD = "forward", "forward again", "backward"
# The clock counts forwards of one block. Backward has two products for each one of forward's.
TICKS = {FORWARD: 1, AGAIN: 1, BACKWARD: 2}


class Action(NamedTuple):
    """What is done with one block.

    Attributes:
        kind: FORWARD, AGAIN or BACKWARD.
        block: its number.
        begin: time at its begin.
        end: time at its end.
        inputs: the first blocks of the segments whose input is held while it goes on.
        inside: blocks whose activations are held, all of them.
    """

    kind: str
    block: int
    begin: int
    end: int
    inputs: frozenset[int]
    inside: frozenset[int]


@dataclass(frozen=True)
class Run:
    """A plan carried out once.

    Attributes:
        name: of the plan.
        plan: what is done with which blocks.
        memories: bytes of each block's activations.
        inputs: bytes of each block's input.
    """

    name: str
    plan: Plan
    memories: Sequence[int]
    inputs: Sequence[int]

    @cached_property
    def actions(self) -> list[Action]:
        """All actions of one step, in order."""
        return _actions(self.plan)

    @property
    def end(self) -> int:
        """How long the step takes."""
        return self.actions[-1].end

    def now(self, time: int) -> Action | None:
        """What goes on from `time` on; None when the step is over, or before it."""
        return next((a for a in self.actions if a.begin <= time < a.end), None)

    def held(self, action: Action | None) -> tuple[int, int]:
        """Bytes held while an action goes on: of inputs, and inside blocks."""
        if action is None:
            return 0, 0
        kept = sum(self.inputs[block] for block in action.inputs)
        return kept, sum(self.memories[block] for block in action.inside)

    def peak(self, time: int) -> int:
        """The most bytes held up to what goes on at `time`."""
        so_far = [action for action in self.actions if action.begin <= time]
        return max((sum(self.held(action)) for action in so_far), default=0)

    def forwards(self, time: int) -> int:
        """How many forwards of a block have begun at `time`."""
        return sum(a.kind != BACKWARD and a.begin <= time for a in self.actions)


class _Step:
    """A training step that is being written down: what is held changes between its actions."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.inputs: set[int] = set()
        self.inside: set[int] = set()

    def act(self, kind: str, block: int) -> None:
        """Does something with a block; what is held now is held until it is done."""
        begin = self.actions[-1].end if self.actions else 0
        held = frozenset(self.inputs), frozenset(self.inside)
        self.actions.append(Action(kind, block, begin, begin + TICKS[kind], *held))


def _actions(plan: Plan) -> list[Action]:
    """Forward through all segments; then, from the last one, forward again where needed, and back.

    What an action saves is held from its begin, and what backward has used is gone at its end.
    """
    step = _Step()
    for blocks, recomputed in plan:
        step.inputs |= {blocks.start} if recomputed else set()
        for block in blocks:
            step.inside |= set() if recomputed else {block}
            step.act(FORWARD, block)
    for blocks, recomputed in reversed(plan):
        for block in blocks if recomputed else ():
            step.inside.add(block)
            step.act(AGAIN, block)
        for block in reversed(blocks):
            step.act(BACKWARD, block)
            step.inside.remove(block)
        step.inputs.discard(blocks.start)
    return step.actions


def check_plan(name: str, plan: Plan, memories: Sequence[int], inputs: Sequence[int]) -> None:
    """Refuses a plan that does not have every block once, in order.

    Raises:
        Refusal: it does not, or the numbers of bytes are not one for each block.
    """
    found = [block for blocks, _ in plan for block in blocks]
    if not found or found != list(range(len(memories))) or len(inputs) != len(memories):
        raise Refusal(
            f"the steps of the plan {name!r}: {[blocks for blocks, _ in plan]}",
            f"{len(memories)} numbers of bytes inside blocks, {len(inputs)} of their inputs",
            "a plan has each block once, in order, and each block has its bytes",
        )
