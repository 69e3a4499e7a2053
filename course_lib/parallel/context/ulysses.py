"""Ulysses: from all heads of some tokens to some heads of all tokens, attention, and back.

Notebook: 07 Sequence and context parallel (ulysses_all_to_all).
Paper: Jacobs et al., "DeepSpeed Ulysses" (2023), section 3.
Costs, b the bytes of one head of a rank's tokens: forward an all-to-all of (N-1)/N·(H+2K)·b and one
of (N-1)/N·H·b, backward the same. b falls with N, so each rank sends less; but N must divide K.
The production version repeats key-value heads if there are fewer of them than ranks.

Shapes: B batch, H query heads, K key-value heads, C head width, t this rank's tokens, T all.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from course_lib.comm import CommError, Group
from course_lib.comm.autograd import exchange_in_group
from course_lib.parallel.context.context_parallel import SequenceLayout, check_fit


def ulysses_attention(
    q_BHtC: torch.Tensor,
    k_BKtC: torch.Tensor,
    v_BKtC: torch.Tensor,
    layout: SequenceLayout,
    group: Group,
) -> torch.Tensor:
    """Causal attention of a sequence that is cut over a group, heads divided among the ranks.

    Args:
        q_BHtC: this member's queries, t of the sequence's T tokens.
        k_BKtC: its keys; K divides H.
        v_BKtC: its values, of the same shape and dtype.
        layout: who holds which positions; any layout is fine, since heads balance the work.
        group: all members call this.

    Returns:
        The attention [B, H, t, C]. See above for the bytes.

    Raises:
        CommError: the tensors do not fit each other, the layout or the group, or N does not divide
            H and K.
    """
    check_fit("Ulysses attention", q_BHtC, k_BKtC, v_BKtC, layout, group)
    heads, kv_heads = q_BHtC.shape[1], k_BKtC.shape[1]
    if heads % group.size or kv_heads % group.size:
        raise CommError(
            f"Ulysses attention over {group.size} ranks",
            f"{heads} query heads and {kv_heads} key-value heads on rank {group.rank}",
            "every rank takes an equal share of both kinds of heads, so "
            f"{group.size} must divide both numbers; ring attention has no such limit",
        )
    parts = [x.unflatten(1, (group.size, -1)) for x in (q_BHtC, k_BKtC, v_BKtC)]
    x_BHTC = tokens_from_members(torch.cat(parts, 2).flatten(1, 2), layout, group)
    share = [heads // group.size, kv_heads // group.size]
    q_BHTC, k_BKTC, v_BKTC = x_BHTC.split([share[0], share[1], share[1]], 1)
    out_BHTC = F.scaled_dot_product_attention(
        q_BHTC, k_BKTC, v_BKTC, is_causal=True, enable_gqa=True
    )
    return tokens_to_members(out_BHTC, layout, group)


def tokens_from_members(x_BHtC: torch.Tensor, layout: SequenceLayout, group: Group) -> torch.Tensor:
    """All heads of this member's tokens to its share of the heads of all tokens, in their order.

    Args:
        x_BHtC: share j of the heads is for member j.
        layout: who holds which positions.
        group: the group.

    Returns:
        [B, H/N, T, C].
    """
    share = x_BHtC.shape[1] // group.size
    counts = [share * layout.count(index) for index in range(group.size)]
    rows = x_BHtC.permute(1, 2, 0, 3).flatten(0, 1)
    came = exchange_in_group(rows, counts, [counts[group.index]] * group.size, group)
    by_member = [part.unflatten(0, (share, -1)) for part in came.split(counts)]
    laid_HTBC = torch.cat(by_member, 1)
    return laid_HTBC[:, layout.order()].permute(2, 0, 1, 3)


def tokens_to_members(x_BHTC: torch.Tensor, layout: SequenceLayout, group: Group) -> torch.Tensor:
    """The way back: some heads of all tokens to all heads of this member's tokens.

    Args:
        x_BHTC: this member's share of the heads.
        layout: who holds which positions.
        group: the group.

    Returns:
        [B, H, t, C], H being N times the heads given.
    """
    share = x_BHTC.shape[1]
    counts = [share * layout.count(index) for index in range(group.size)]
    parts = [x_BHTC[:, :, layout.positions(i)] for i in range(group.size)]
    rows = torch.cat([part.permute(1, 2, 0, 3).flatten(0, 1) for part in parts])
    came = exchange_in_group(rows, [counts[group.index]] * group.size, counts, group)
    return came.unflatten(0, (group.size * share, -1)).permute(2, 0, 1, 3)
