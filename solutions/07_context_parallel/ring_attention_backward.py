"""Backward of ring attention: the gradients of a block travel with it, and return to its rank.

Notebook 07. After the forward pass rank i still has its part of q, k and v (positions i·t ...
(i+1)·t-1 of the sequence), of the output and of the log-sum-exp. No probabilities were kept: with
the log-sum-exp, each block of them can be computed again in one line. For the queries of this rank
and the k and v of one block:

    P     = exp(q·kᵀ/√C - lse)              0 where the mask hides the key
    δ     = Σ over channels of grad_out · out       one number for each query, over *all* its keys
    dP    = grad_out·vᵀ
    dZ    = P · (dP - δ)                    elementwise
    dq   += dZ·k/√C         dk += dZᵀ·q/√C         dv += Pᵀ·grad_out

dq belongs to this rank's queries and stays. dk and dv belong to the block: each rank adds its part
and passes them on. So k and v go round the ring as in the forward pass, and two more tensors, dk
and dv, go with them; these begin at zero on the block's own rank. After N-1 hops every rank has
added its part, and dk and dv are one hop away from their own rank.

Rules
- k and v make N-1 hops and do not return to their own rank. dk and dv make N hops (none if N = 1).
  So each rank sends (N-1)·(bytes of k + v) + N·(bytes of dk + dv), all to the same neighbour. (If a
  rank adds its own block's part only when the others' parts have returned, dk and dv make N-1 hops.
  That is accepted as well.)
- Use only messages: `send`, `recv`, `isend`, `irecv`, `exchange` of `course_lib.comm`; peers are
  indices in the group. Every rank takes part in every hop, even with blocks that its queries must
  not see.
- Besides the arguments and the results, the memory that you hold must not grow with N: at any time
  at most two blocks (k, v, dk, dv: the one in use and the one that is arriving) and the t×t scores
  of one block.
- Memory that is being sent or received must not be touched until `wait`. Whatever is added to dk or
  dv after they were sent is lost.
- The mask follows positions in the *whole* sequence: blocks of earlier ranks are fully visible, the
  rank's own block up to the diagonal, later ones not at all.
- The arguments must not be changed, and may be non-contiguous; results have the dtype of q.
"""

import torch

from course_lib.comm import Group, exchange


def ring_attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    group: Group,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computes the gradients of this rank's part of q, k and v, from all ranks' outputs.

    Args:
        grad_out: gradient of `out`, [B, H, t, C].
        q: queries, [B, H, t, C]; the same shape on every rank.
        k: keys, the same shape.
        v: values, the same shape.
        out: output of the forward pass, the same shape.
        lse: log-sum-exp of each query's visible scores, natural logarithm, [B, H, t].
        group: the ranks, in the order of their parts of the sequence.

    Returns:
        dq, dk, dv: [B, H, t, C] each.
    """

    # BEGIN SOLUTION
    def passed_on(tensor: torch.Tensor) -> torch.Tensor:
        incoming = torch.empty_like(tensor)
        exchange(tensor, group.next, incoming, group.previous, group)
        return incoming

    scale, rows = q.shape[-1] ** -0.5, torch.arange(q.shape[2])
    future = rows[None, :] > rows[:, None]
    delta = (grad_out * out).sum(-1, keepdim=True)
    dq, block = torch.zeros_like(q), torch.stack([k, v])
    grads = torch.zeros_like(block)
    for hop in range(group.size):
        source = (group.index - hop) % group.size
        if source <= group.index:
            p = (q @ block[0].mT * scale - lse[..., None]).exp()
            if source == group.index:
                p.masked_fill_(future, 0)
            ds = p * (grad_out @ block[1].mT - delta) * scale
            dq += ds @ block[0]
            grads[0] += ds.mT @ q
            grads[1] += p.mT @ grad_out
        if hop < group.size - 1:
            block = passed_on(block)
        if group.size > 1:
            grads = passed_on(grads)
    return dq, grads[0], grads[1]
    # END SOLUTION
