"""Ring attention: every rank keeps its queries, and the keys and values walk past.

Notebook 07. A sequence too long for one device is cut into N equal parts of t positions: rank i has
positions i·t ... (i+1)·t-1 of q, k and v. A query needs the keys of all positions up to its own,
and most of them lie on other ranks. So each rank passes a *block*, the k and v of one rank, on to
the next rank, N-1 times. Then each block has been everywhere, and nobody ever had all of them.

Softmax over keys that come in pieces. Let s be the scores of a query with the keys so far, q·k/√C.
Keep two things for each query:

    lse = log Σ exp(s)            the log-sum-exp
    out = Σ exp(s - lse)·v        the output, if there were no more keys

The next block has a log-sum-exp of its own, b. The new one is log(exp(lse) + exp(b)), which is
`torch.logaddexp(lse, b)`: larger, so the old output shrinks by exp(old lse - new lse), and the
block adds Σ exp(s - new lse)·v. Only differences are ever raised to a power, so large scores cannot
overflow: `torch.logsumexp` subtracts the maximum first.

Causal: the query at position p of the *whole* sequence sees the keys at positions up to p. Blocks
of ranks before yours are seen whole, your own up to the diagonal, those of later ranks not at all.
They are passed on all the same: every rank makes the same N-1 hops. (So half of the hops carry what
nobody will see, and half of the ranks' time is spent waiting: `zigzag_split` mends that.)

Rules
- N-1 hops, each to the same neighbour (next or previous, as you like, if the mask knows it):
  (N-1)·(bytes of k + bytes of v) sent by each rank. Messages only (`send`, `recv`, `isend`,
  `irecv`, `exchange` of `course_lib.comm`), one or two a hop; peers are indices in the group.
- What you hold besides q, k, v and the results must not grow with N: at any time at most two blocks
  (the one in use and the one that arrives; k and v that you were given do not count) and the t×t
  scores of one block. No S×S, no t×S.
- Memory under way belongs to the message until `wait`: do not receive into what is being sent.
- If everybody sends first and then receives, nobody receives: big messages then wait for ever.
- q, k and v stay as they are; results have their dtype. They need not be contiguous.

To hide the hop behind the computation, start it before you compute with the block, and wait after.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, irecv, isend


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of this rank's queries to the whole sequence.

    Args:
        q: queries, [B, H, t, C]; the same shape on every rank.
        k: keys, the same shape.
        v: values, the same shape.
        group: the ranks, in the order of their parts.

    Returns:
        out: [B, H, t, C].
        lse: log-sum-exp of each query's visible scores, natural logarithm, [B, H, t].
    """
    raise NotImplementedError("ring_attention_forward: write your answer here")
