"""Attention over a sequence that is cut over the ranks: swap the sequence's cut for the heads'.

Notebook 07. N ranks hold a sequence in N parts, one after the other: rank r has the tokens from
r·T/N on, with all H heads. Attention needs the whole sequence, but only of one head at a time. So
(DeepSpeed-Ulysses) one all-to-all each for q, k and v gives every rank the *whole* sequence of
*some* heads, attention runs as in one process, and one more brings the result home:

    [B, T/N, H, C]  ──all-to-all──▶  [B, T, H/N, C]  ──attention──▶  the same  ──all-to-all──▶
    [B, T/N, H, C]

Rules, for rank r = `group.index` of N ranks; T and H are multiples of N:

1. In between, rank r has the H/N heads from r·H/N on, and the tokens in the order of the sequence.
2. Attention is causal: a token sees itself and all earlier tokens, those of other ranks included;
   scores are multiplied by 1/√C.
3. The result is this rank's tokens, all heads in order. Gradients flow back to q, k and v on every
   rank, as in one process for the sum of all ranks' losses.
4. Nothing but all-to-alls: each sends (N-1)/N of one rank's tensor; four forward and four backward.
   (An all-gather of k and v would send N-1 whole tensors each, and leave every rank with all of
   them. An all-to-all costs less the more ranks there are, but H limits their number.)

Yours to use: `exchange_in_group(rows, output_sizes, input_sizes, group)`, an all-to-all through
which gradients flow. Its rows lie along dim 0: first those for rank 0, then those for rank 1, and
so on; what comes back is in the order of the ranks they came from. The sizes are rows per rank.

Your answer may use `comm` of `course_lib`.
"""

import torch
import torch.nn.functional as F

from course_lib.comm import Group, exchange_in_group


def ulysses_attention(
    q_BtHC: torch.Tensor, k_BtHC: torch.Tensor, v_BtHC: torch.Tensor, group: Group
) -> torch.Tensor:
    """Causal attention over the sequence of all ranks.

    Args:
        q_BtHC: queries of this rank's T/N tokens, all heads.
        k_BtHC: keys, the same shape.
        v_BtHC: values, the same shape.
        group: the N ranks, in the order of the sequence.

    Returns:
        The attended values, the same shape.
    """
    raise NotImplementedError("ulysses_all_to_all: exchange, attend, exchange back")
