"""variant: q, k and v in one all-to-all; parts by unflatten"""

import torch
import torch.nn.functional as F

from course_lib.comm import Group
from course_lib.comm.autograd import exchange_in_group


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

    def swap(x: torch.Tensor, cut: int, join: int) -> torch.Tensor:
        """Part j along dim `cut` goes to rank j; what comes is joined along dim `join`."""
        rows = torch.cat(x.chunk(group.size, cut))
        sizes = [x.shape[0]] * group.size
        return torch.cat(exchange_in_group(rows, sizes, sizes, group).chunk(group.size), join)

    heads = q_BtHC.shape[2] // group.size
    qkv = torch.stack([q_BtHC, k_BtHC, v_BtHC]).unflatten(3, (group.size, heads))
    rows, ones = qkv.movedim(3, 0).contiguous(), [1] * group.size
    there = exchange_in_group(rows, ones, ones, group)  # [N, 3, B, T/N, H/N, C]
    q, k, v = there.movedim(0, 2).flatten(2, 3).transpose(2, 3)
    out_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return swap(out_BHTC.transpose(1, 2), 1, 2)
