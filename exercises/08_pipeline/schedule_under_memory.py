"""schedule_under_memory: a schedule with little waiting, where stages and their memory are unequal.

Notebook 08. This exercise is open: it has no single right answer. Valid schedules are compared by
their length.

Rank r runs stage r of a pipeline. For each micro-batch it runs the forward F, and then either the
whole backward B or its two halves: first I, the gradient of the stage's input, and any time later
W, the gradient of its weights. F takes forward[r], I takes input[r], W takes weight[r], and B takes
input[r] + weight[r]. The output of F reaches the next rank `message` after F has ended, and the
gradient from I or B reaches the previous rank `message` after that has ended. A rank begins its
next action as soon as it is free and has received what the action needs. It holds a micro-batch's
activations from the beginning of F to the end of W or B.

You return a list of texts for each rank: its actions, in order. `2F5` is F of micro-batch 5 on
stage 2; stages and micro-batches count from 0. A schedule is valid if
- every micro-batch goes through every stage once, with F and B, or with F, I and W;
- it does not deadlock: no ranks wait for each other in a circle;
- rank r never holds the activations of more than limits[r] micro-batches;
- two ranks that get the same arguments return the same schedule: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the length of the schedule, from the beginning of the first action to the end of the last,
divided by a lower bound for it; less is better. The figure is the mean over twelve fixed cases. The
grader takes the times from `course_lib.schedule.simulate`; try your schedules out with it.

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
    """Orders the actions of each rank.

    Args:
        forward: the time of F on each rank.
        input: the time of I on each rank.
        weight: the time of W on each rank.
        message: the time of a message between neighbouring ranks, in either direction.
        limits: for each rank, how many micro-batches' activations fit; 1 or more.
        micro_batches: number of micro-batches.

    Returns:
        One list for each rank, with actions such as `2F5`.
    """

    raise NotImplementedError("schedule_under_memory: the actions")
