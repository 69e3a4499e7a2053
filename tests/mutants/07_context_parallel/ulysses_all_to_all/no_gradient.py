"""mutant: nothing: gradients do not flow, q.grad, is no tensor"""

import torch
import torch.nn.functional as F

from course_lib.comm import Group, all_to_all


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
        output = torch.empty_like(rows)
        all_to_all(output, rows.detach(), group)
        return torch.cat(output.chunk(group.size), join)

    q, k, v = (swap(x, 2, 1).transpose(1, 2) for x in (q_BtHC, k_BtHC, v_BtHC))
    out_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return swap(out_BHTC.transpose(1, 2), 1, 2)
