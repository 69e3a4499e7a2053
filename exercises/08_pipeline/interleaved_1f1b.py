"""Interleaved 1F1B: v small stages on each rank instead of a large one, and 1/v of the bubble.

Notebook 08. The bubble of 1F1B is the time that the first micro-batch needs to reach the last rank,
and its gradient to come back: p-1 stages each way. With stages of 1/v of the size it is 1/v of that
time. So rank r gets v chunks of the model: stages r, r+p, r+2p, ... A micro-batch goes round all
ranks v times, and sends v times as many messages.

Actions are written `2F5`: stage 2, forward, micro-batch 5; `2B5` is its whole backward. A forward
can begin when the stage before has run it; a backward after its own forward and the backward of
the stage behind. With p = 2, m = 4, v = 2, rank 0 has the stages 0 and 2, rank 1 has 1 and 3:

    rank 0:  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
    rank 1:  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3

Megatron's order, the same on every rank: the forwards go in rounds of p micro-batches, which pass
through the rank's first chunk, then the same ones through its second, and so on to the last; then
the next p micro-batches. The backwards too, from the last chunk to the first. As in 1F1B a rank
begins with forwards alone, then runs a forward and a backward in turn, then the backwards left.
With v = 1 it begins with p-1-r. With more, its first backward is one of the *last* chunk, which is
(v-1)·p forwards later; and instead of p-1-r Megatron takes 2(p-1-r). On paper, where messages take
no time, p-1-r is enough; the others give each message the time of an action to travel.

What is measured, on paper:
- each micro-batch passes each stage with one F and one B; the ranks never wait in a circle;
- the whole takes (v·m + p-1)(tF+tB) for stages that take tF and tB: a bubble of (p-1)/(v·m);
- rank r holds at most (v-1)p + 2(p-r) - 1 forwards of a chunk at once; min(m, p-r) for v = 1.

Free: any schedule that reaches these.

Your answer may use nothing of `course_lib`.
"""


def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    """What one rank does.

    Args:
        rank: 0 to p - 1; it has the stages rank, rank + p, ..., rank + (v - 1)·p.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, a multiple of p.
        v: chunks of each rank, 1 or more.

    Returns:
        Actions like `0F1`, 2·m·v of them, in the order the rank runs them.
    """
    raise NotImplementedError("interleaved_1f1b: write your answer here")
