"""1F1B: a few forwards first, to keep the last rank busy, then one backward after each forward.

Notebook 08. A pipeline has p ranks with one stage each, and m micro-batches go through it: forward
from stage 0 to p-1, backward the other way. GPipe runs all forwards first, so each rank holds the
activations of m micro-batches. But the last rank could run its first backward right after its first
forward. 1F1B does that, takes no longer, and holds at most p micro-batches, however many there are.

A schedule is data: for each rank, a list of actions in the order in which the rank runs them. An
action is written `2F5`: stage 2, forward, micro-batch 5; `2B5` is its whole backward. With p = 2
and m = 4:

    rank 0:  0F0 0F1 ·   0B0 0F2 0B1 0F3 0B2 ·   0B3
    rank 1:  ·   1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3          (time runs to the right, · is waiting)

A forward can begin when the previous stage has run that micro-batch's forward; a backward can begin
after its own forward and the backward of the next stage. Waiting is not in the list: a rank begins
each action as soon as it can.

The rule: rank r begins with p-1-r forwards (the last rank with none): that many run until its first
micro-batch is back. Then it alternates: one forward, one backward. When no forwards are left, it
runs the remaining backwards. Note that m may be smaller than p: no rank has more than m forwards.

The schedule is simulated, without processes. It is checked that
- each micro-batch goes through each stage with one F and one B, and no ranks wait for each other in
  a circle;
- the whole takes at most (m+p-1)(tF+tB), whatever F and B take;
- rank r holds at most min(m, p-r) micro-batches, that is, micro-batches whose forward has begun and
  whose backward has not ended.
"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    """Lists the actions of one rank.

    Args:
        rank: 0 to p - 1; its stage has the same number.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, 1 or more; possibly fewer than p.

    Returns:
        2·m actions like `0F1`, in the order in which the rank runs them.
    """
    # BEGIN SOLUTION
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
    # END SOLUTION
