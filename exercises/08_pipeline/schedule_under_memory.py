"""schedule_under_memory: an order of actions with little waiting, where stages and memory differ.

Notebook 08. Open: there is no right answer.

Rank r runs stage r: F takes forward[r], I (the input's gradient) input[r], W (the weights')
weight[r], a whole backward B input[r] + weight[r]. Results reach the next rank `message` later. A
micro-batch's activations are held from the begin of its F to the end of its W or B.

Valid is a list of texts for each rank, its actions in order; `2F5` is stage 2's F of micro-batch 5:
- each micro-batch passes each stage with F and B, or F, I and W; no ranks wait in a circle
  (`course_lib.schedule.simulate`);
- rank r holds at most limits[r] micro-batches;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the schedule's length over a lower bound; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence


def schedule_under_memory(
    forward: Sequence[int],
    input: Sequence[int],
    weight: Sequence[int],
    message: int,
    limits: Sequence[int],
    micro_batches: int,
) -> list[list[str]]:
    """The actions of each rank.

    Args:
        forward: time of F on each rank.
        input: time of I.
        weight: time of W.
        message: from a rank to the next.
        limits: micro-batches whose activations fit on each rank, 1 or more.
        micro_batches: m.
    """

    raise NotImplementedError("schedule_under_memory: the actions")
