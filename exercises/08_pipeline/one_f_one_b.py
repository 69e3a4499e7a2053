"""1F1B: as few forwards first as keep the last rank fed, then one backward after each forward.

Notebook 08. A pipeline has p ranks with one stage each, and m micro-batches go through it: forward
from stage 0 to p-1, backward the other way. GPipe runs all forwards first, so each rank holds the
activations of m micro-batches. But the last rank could run its first backward right after its first
forward. 1F1B does that, takes no longer, and holds at most p micro-batches, however many there are.

A schedule is data: for each rank a list of actions in the order it runs them. An action is written
`2F5`: stage 2, forward, micro-batch 5; `2B5` is its whole backward. With p = 2 and m = 4:

    rank 0:  0F0 0F1 ·   0B0 0F2 0B1 0F3 0B2 ·   0B3
    rank 1:  ·   1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3          (time goes to the right, · waits)

A forward can begin when the stage before has run that micro-batch's forward; a backward after its
own forward and the backward of the stage behind. You write no waiting: a rank begins each action
as soon as it can.

The rule: rank r begins with p-1-r forwards (the last rank with none), as many as it takes until
its first micro-batch is back. From then on it runs one forward, one backward, in turn. When there
are no forwards left, it runs the backwards that are. Mind m < p: no rank has more than m forwards.

What is measured, on paper, without processes:
- each micro-batch passes each stage with one F and one B; the ranks never wait in a circle;
- the whole takes (m+p-1)(tF+tB), whatever F and B take;
- rank r holds at most min(m, p-r) micro-batches: their forward has begun, their backward not ended.

Your answer may use nothing of `course_lib`.
"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    """What one rank does.

    Args:
        rank: 0 to p - 1; its stage has the same number.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, 1 or more, also fewer than p.

    Returns:
        Actions like `0F1`, 2·m of them, in the order the rank runs them.
    """
    raise NotImplementedError("one_f_one_b: write your answer here")
