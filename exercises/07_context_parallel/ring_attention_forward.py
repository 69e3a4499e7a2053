"""Ring attention: every rank keeps its queries, and the keys and values travel round the ring.

Notebook 07. A sequence too long for one device is cut into N equal parts of t positions: rank i has
positions i·t ... (i+1)·t-1 of q, k and v. A query needs the keys of all positions up to its own,
and most of them are on other ranks. So each rank passes a *block*, the k and v of one rank, on to
the next rank, N-1 times. Then each block has been on every rank, and no rank ever had all blocks.

The softmax must be computed while the keys arrive in pieces. Let s be the scores of a query with
the keys so far, q·k/√C. Keep two things for each query:

    lse = log Σ exp(s)            the log-sum-exp
    out = Σ exp(s - lse)·v        the output, if there were no more keys

The next block has its own log-sum-exp, b. The new one is log(exp(lse) + exp(b)), which is
`torch.logaddexp(lse, b)`. It is larger, so the old output is multiplied by exp(old lse - new lse),
and the block adds Σ exp(s - new lse)·v. Exponentials are taken only of differences, so large scores
cannot overflow: `torch.logsumexp` subtracts the maximum first.

The attention is causal: the query at position p of the *whole* sequence sees the keys at positions
up to p. Blocks of earlier ranks are fully visible, the rank's own block up to the diagonal, those
of later ranks not at all. These are passed on all the same: every rank makes the same N-1 hops. (So
half of the hops bring blocks that are not used, and ranks wait half of the time: `zigzag_split`
solves that.)

Rules
- Make N-1 hops, each to the same neighbour (next or previous, as you like; the mask must fit): each
  rank sends (N-1)·(bytes of k + bytes of v). Use only messages (`send`, `recv`, `isend`, `irecv`,
  `exchange` of `course_lib.comm`), one or two per hop; peers are indices in the group.
- Besides q, k, v and the results, the memory that you hold must not grow with N: at any time at
  most two blocks (the one in use and the one that is arriving; the arguments k and v do not count)
  and the t×t scores of one block. No tensor of N·t × N·t or t × N·t.
- Memory that is being sent or received must not be touched until `wait`: do not receive into a
  tensor that is being sent.
- If every rank sends first and then receives, no rank receives: large messages then wait forever.
- q, k and v must not be changed, and may be non-contiguous; results have their dtype.

To hide the hop behind the computation, start it before you compute with the block, and wait after.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, irecv, isend


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes causal attention of this rank's queries to the whole sequence.

    Args:
        q: queries, [B, H, t, C]; the same shape on every rank.
        k: keys, the same shape.
        v: values, the same shape.
        group: the ranks, in the order of their parts of the sequence.

    Returns:
        out: [B, H, t, C].
        lse: log-sum-exp of each query's visible scores, natural logarithm, [B, H, t].
    """
    raise NotImplementedError("ring_attention_forward: write your answer here")
