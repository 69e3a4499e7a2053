"""One thing that a rank of a pipeline does: `0F1` is stage 0's forward of micro-batch 1.

Notebook: 08 Pipeline parallel (all exercises).
Paper: Qi et al., "Zero Bubble Pipeline Parallelism" (2023), for the backward in two halves; the
letters are those of torch.distributed.pipelining.
Costs nothing: an action is three values, and a schedule is lists of them.
The production version (torch.distributed.pipelining) has more letters: for messages, and for
gathering parameters under FSDP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from course_lib.trace import Refusal

KINDS = "FBIW"
# Numbers as `str` writes them: at most nine ASCII digits, without leading zeros.
_NUMBER = "(0|[1-9][0-9]{0,8})"
_TEXT = re.compile(f"{_NUMBER}([FBIW]){_NUMBER}")


class ScheduleError(Refusal):
    """A schedule that cannot be run, or cannot be made."""


@dataclass(frozen=True, order=True, slots=True)
class Action:
    """One entry of a schedule.

    Attributes:
        stage: which part of the model, from 0 at the input.
        kind: `F` forward; `B` the whole backward; `I` the gradient of the stage's input alone, and
            `W` those of its weights, later. `B` is `I` and `W` at once.
        micro: which micro-batch, from 0.
    """

    stage: int
    kind: str
    micro: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro}"

    @staticmethod
    def parse(text: str) -> Action:
        """The action that `str` wrote.

        Raises:
            ScheduleError: the text is not a stage, a letter and a micro-batch.
        """
        found = _TEXT.fullmatch(text)
        if not found:
            raise ScheduleError(
                "an action like 0F1: stage 0, forward, micro-batch 1",
                repr(text) if len(text) <= 40 else f"{text[:40]!r}...",
                "the letter is F, B, I or W, with the stage before it and the micro-batch after",
            )
        return Action(int(found[1]), found[2], int(found[3]))

    @property
    def sends_back(self) -> bool:
        """Whether it computes the gradient of the stage's input."""
        return self.kind in "BI"

    def needs(self, stages: int) -> tuple[tuple[Action, ...], ...]:
        """What must be done before it can begin: one action of each group.

        A forward needs the forward of the stage before. A backward needs its own forward, and the
        backward of the next stage, whole (`B`) or its input half (`I`). `W` needs its own `I`.

        Args:
            stages: how many there are in all.
        """
        stage, micro = self.stage, self.micro
        if self.kind == "W":
            return ((Action(stage, "I", micro),),)
        if self.kind == "F":
            return ((Action(stage - 1, "F", micro),),) if stage else ()
        own = (Action(stage, "F", micro),)
        if stage == stages - 1:
            return (own,)
        return (own, (Action(stage + 1, "B", micro), Action(stage + 1, "I", micro)))
