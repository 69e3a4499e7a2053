"""ZB-H1: the backward is cut in two, and its second half runs where a rank would wait.

Notebook 08. A stage's backward computes two things: the gradient of its input, for which the
previous rank waits, and the gradients of its weights, for which nobody waits until the optimizer's
step. So the backward B is cut into I (input) and W (weights): I runs as early as possible, W when
there is time.

Actions are written `2F5`: stage 2, forward, micro-batch 5; `2I5` and `2W5` are the halves of its
backward. An I can begin after its own F and the I of the next stage; a W any time after its own I.
Activations are held from the beginning of F to the end of W. With p = 3, m = 4, and all times 1:

    rank 0:  0F0 0F1 0F2 ·   ·   0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
    rank 1:  ·   1F0 1F1 ·   1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
    rank 2:  ·   ·   2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3

The rule: keep 1F1B's order, with I in the place of B. In 1F1B, rank r holds r micro-batches fewer
than rank 0. That leaves room to delay W: rank r runs each micro-batch's W right after the I that
comes r micro-batches later, and the last r Ws at the end, where it would otherwise wait. So W0 runs
right after I0 on rank 0, after I1 on rank 1, and after I2 on rank 2.

The schedule is simulated. It is checked that
- each micro-batch goes through each stage with one F, one I and one W, and no ranks wait for each
  other in a circle;
- if m >= p, and W takes no longer than F and no longer than I, the whole takes at most
  m(tF+tI+tW) + (p-1)(tF+tI-tW). If each takes t, a rank waits (p-1)t in all, a third of the 3(p-1)t
  in 1F1B;
- no rank holds more than p micro-batches, as many as rank 0 of 1F1B.

You may return any schedule that satisfies these. For m < p, only the first must hold, and the
length does not matter.
"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    """Lists the actions of one rank.

    Args:
        rank: 0 to p - 1; its stage has the same number.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, 1 or more.

    Returns:
        3·m actions like `0F1`, in the order in which the rank runs them.
    """
    # BEGIN SOLUTION
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m):
        if warm + k < m:
            plan.append(f"{rank}F{warm + k}")
        plan.append(f"{rank}I{k}")
        if k >= rank:
            plan.append(f"{rank}W{k - rank}")
    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
    # END SOLUTION
