"""Attention over a sequence that is cut over the ranks: cut the heads instead, and change back.

Notebook 07. N ranks hold a sequence in N parts, in order: rank r has T/N tokens, beginning with
token r·T/N, with all H heads. Attention needs the whole sequence, but only of one head at a time.
So DeepSpeed-Ulysses makes one all-to-all each for q, k and v, which gives every rank the *whole*
sequence of *some* heads. Attention runs as in one process, and a last all-to-all returns the
result to the ranks of its tokens:

    [B, T/N, H, C]  ──all-to-all──▶  [B, T, H/N, C]  ──attention──▶  the same  ──all-to-all──▶
    [B, T/N, H, C]

Rules, for rank r = `group.index` of N ranks; T and H are multiples of N:

1. In between, rank r has H/N heads, beginning with head r·H/N, and all tokens in their order.
2. Attention is causal: a token sees itself and all earlier tokens, those of other ranks included;
   scores are multiplied by 1/√C.
3. The result has this rank's tokens, with all heads in order. Gradients flow back to q, k and v on
   every rank, as in one process for the sum of all ranks' losses.
4. Use nothing but all-to-alls, four forward and four backward; in each, a rank sends (N-1)/N of one
   rank's tensor. (An all-gather of k and v would send N-1 whole tensors each, and leave every rank
   with all of them. An all-to-all costs less the more ranks there are, but N cannot exceed H.)

You may use `exchange_in_group(rows, output_sizes, input_sizes, group)`, an all-to-all through which
gradients flow. Its rows are along dim 0: first those for rank 0, then those for rank 1, and so on.
The result has the received rows in the order of the ranks that sent them. `input_sizes` and
`output_sizes` are the numbers of rows sent to, and received from, each rank.
"""

import torch
import torch.nn.functional as F

from course_lib.comm import Group, exchange_in_group


def ulysses_attention(
    q_BtHC: torch.Tensor, k_BtHC: torch.Tensor, v_BtHC: torch.Tensor, group: Group
) -> torch.Tensor:
    """Computes causal attention over the sequence of all ranks.

    Args:
        q_BtHC: queries of this rank's T/N tokens, all heads: [B, T/N, H, C].
        k_BtHC: keys, the same shape.
        v_BtHC: values, the same shape.
        group: the N ranks, in the order of the sequence.

    Returns:
        The attended values, the same shape.
    """
    # BEGIN SOLUTION: exchange, attend, exchange back

    def swap(x: torch.Tensor, cut: int, join: int) -> torch.Tensor:
        """Part j along dim `cut` goes to rank j; what comes is joined along dim `join`."""
        rows = torch.cat(x.chunk(group.size, cut))
        sizes = [x.shape[0]] * group.size
        return torch.cat(exchange_in_group(rows, sizes, sizes, group).chunk(group.size), join)

    q, k, v = (swap(x, 2, 1).transpose(1, 2) for x in (q_BtHC, k_BtHC, v_BtHC))
    out_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return swap(out_BHTC.transpose(1, 2), 1, 2)
    # END SOLUTION
