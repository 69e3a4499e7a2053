"""mutant: every rank gets all of k and v, and their gradients are summed"""

import torch
import torch.nn.functional as F

from course_lib.comm import Group
from course_lib.comm.autograd import all_gather_to_group


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

    k, v = (all_gather_to_group(x, 1, group).transpose(1, 2) for x in (k_BtHC, v_BtHC))
    q = q_BtHC.transpose(1, 2)
    place = group.index * q.shape[2] + torch.arange(q.shape[2])
    mask = torch.arange(k.shape[2]) <= place[:, None]
    out_BHTC = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out_BHTC.transpose(1, 2)
