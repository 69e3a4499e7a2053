"""ZB-H1: the backward cut in two, and its second half put where a rank would wait.

Notebook 08. A stage's backward makes two things: the gradient of its input, which the rank before
waits for, and the gradients of its weights, which nobody waits for until the optimizer's step. So
the backward B is cut into I (input) and W (weights): I as early as possible, W when there is time.

Actions are written `2F5`: stage 2, forward, micro-batch 5; `2I5` and `2W5` are the halves of its
backward. An I can begin after its own F and the I of the stage behind; a W any time after its own
I. Activations are held from the beginning of F to the end of W. With p = 3, m = 4, times all 1:

    rank 0:  0F0 0F1 0F2 ·   ·   0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
    rank 1:  ·   1F0 1F1 ·   1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
    rank 2:  ·   ·   2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3

The rule: 1F1B's order, with I for B. In 1F1B, rank r holds r micro-batches fewer than rank 0. Spend
that on W: rank r runs each micro-batch's W right after the I that comes r micro-batches later, and
the last r of them at the end, where it would wait for nothing better. So rank 0 runs W0 right after
I0, rank 1 after I1, rank 2 after I2.

What is measured, on paper:
- each micro-batch passes each stage with one F, one I and one W; no ranks wait in a circle;
- for m >= p, and W no longer than F and than I: the whole takes m(tF+tI+tW) + (p-1)(tF+tI-tW). If
  each takes t, a rank waits (p-1)t in all, a third of 1F1B's 3(p-1)t;
- no rank holds more than p micro-batches, as many as rank 0 of 1F1B.

Free: any schedule that reaches these. For m < p it must be complete and without a circle, and may
take its time.

Your answer may use nothing of `course_lib`.
"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    """What one rank does.

    Args:
        rank: 0 to p - 1; its stage has the same number.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, 1 or more.

    Returns:
        Actions like `0F1`, 3·m of them, in the order the rank runs them.
    """
    raise NotImplementedError("zero_bubble: write your answer here")
