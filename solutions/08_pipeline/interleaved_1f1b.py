"""Interleaved 1F1B: v small stages on each rank instead of one large stage, and 1/v of the bubble.

Notebook 08. The bubble of 1F1B is the time that the first micro-batch needs to reach the last rank,
and its gradient to come back: p-1 stages each way. With stages of 1/v of the size, it is 1/v of
that time. So rank r gets v chunks of the model: stages r, r+p, r+2p, ... A micro-batch goes round
all ranks v times, with v times as many messages.

Actions are written `2F5`: stage 2, forward, micro-batch 5; `2B5` is its whole backward. A forward
can begin when the previous stage has run that forward; a backward can begin after its own forward
and the backward of the next stage. With p = 2, m = 4, v = 2, rank 0 has stages 0 and 2, and rank 1
has stages 1 and 3:

    rank 0:  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
    rank 1:  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3

Megatron's order is the same on every rank. The forwards run in rounds of p micro-batches: all p go
through the rank's first chunk, then the same p through its second, and so on to the last; then come
the next p micro-batches. The backwards run in the same rounds, from the last chunk to the first. As
in 1F1B, a rank begins with forwards alone, then alternates between a forward and a backward, and
then runs the backwards that are left. With v = 1 it begins with p-1-r forwards. With more chunks,
its first backward is one of the *last* chunk, which comes (v-1)·p forwards later; and instead of
p-1-r Megatron takes 2(p-1-r). Without the time of messages, p-1-r would be enough; the additional
forwards give each message the time of one action to travel.

The schedule is simulated, with messages that take no time. It is checked that
- each micro-batch goes through each stage with one F and one B, and no ranks wait for each other in
  a circle;
- the whole takes at most (v·m + p-1)(tF+tB), for stages that take tF and tB: a bubble of
  (p-1)/(v·m);
- rank r holds the activations of at most (v-1)p + 2(p-r) - 1 forwards at once, those of all its
  chunks counted together; min(m, p-r) for v = 1.

You may return any schedule that satisfies these.
"""


def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    """Lists the actions of one rank.

    Args:
        rank: 0 to p - 1; it has the stages rank, rank + p, ..., rank + (v - 1)·p.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, a multiple of p.
        v: chunks of each rank, 1 or more.

    Returns:
        2·m·v actions like `0F1`, in the order in which the rank runs them.
    """
    # BEGIN SOLUTION

    def chunk_and_micro(k: int) -> tuple[int, int]:
        """What the k-th forward of a rank is of."""
        turn, place = divmod(k, p * v)
        return place // p, turn * p + place % p

    where = [chunk_and_micro(k) for k in range(m * v)]
    forwards = [f"{c * p + rank}F{k}" for c, k in where]
    backwards = [f"{(v - 1 - c) * p + rank}B{k}" for c, k in where]
    warm = p - 1 - rank if v == 1 else 2 * (p - 1 - rank) + (v - 1) * p
    warm = min(warm, m * v)
    pairs = [word for pair in zip(forwards[warm:], backwards, strict=False) for word in pair]
    return forwards[:warm] + pairs + backwards[m * v - warm :]
    # END SOLUTION
