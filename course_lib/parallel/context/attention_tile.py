"""Attention piece by piece: a softmax that runs over keys as they come, and its gradients.

Notebook: 07 Sequence and context parallel (ring_attention_forward, ring_attention_backward).
Paper: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al.,
"FlashAttention" (2022), sections 3.1 and B, whose equations these are.
Costs nothing on the wire; holds the scores of one piece of queries with one piece of keys.
The production version (FlashAttention) is one kernel that does not write even these to memory.

Shapes: B batch, H query heads, K key-value heads, C head width, t queries, s keys. The H/K query
heads that share a key-value head are stacked into R = H/K·t rows, so that keys are never repeated,
and their gradients add up by themselves.
"""

from __future__ import annotations

import torch


def wide(dtype: torch.dtype) -> torch.dtype:
    """What sums are made in: float32, or the dtype itself if it is wider."""
    return torch.promote_types(dtype, torch.float32)


def stack_heads(x_BHtC: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[B, H, t, C] to rows [B, K, R, C]."""
    batch, heads, tokens, width = x_BHtC.shape
    return x_BHtC.reshape(batch, kv_heads, heads // kv_heads * tokens, width)


def unstack_heads(x_BKRC: torch.Tensor, tokens: int) -> torch.Tensor:
    """Rows [B, K, R, C] back to [B, H, t, C]."""
    return x_BKRC.unflatten(2, (-1, tokens)).flatten(1, 2)


def scores(q_BKRC: torch.Tensor, k_BKsC: torch.Tensor, causal: bool) -> torch.Tensor:
    """Products of scaled queries and keys, [B, K, R, s].

    Args:
        q_BKRC: rows, already divided by √C.
        k_BKsC: keys.
        causal: both are the same positions: what lies in a token's future becomes -∞.
    """
    s_BKRs = q_BKRC @ k_BKsC.mT
    if causal:
        length = k_BKsC.shape[2]
        future = torch.ones(length, length, dtype=torch.bool, device=k_BKsC.device).triu_(1)
        s_BKRs.unflatten(2, (-1, length)).masked_fill_(future, -torch.inf)
    return s_BKRs


class RunningSoftmax:
    """A piece of queries, and its attention over the keys that it has seen so far.

    Args:
        q_BHtC: the queries.
        kv_heads: K.
    """

    def __init__(self, q_BHtC: torch.Tensor, kv_heads: int) -> None:
        self.tokens = q_BHtC.shape[2]
        rows = stack_heads(q_BHtC, kv_heads)
        self.q_BKRC = rows.to(wide(rows.dtype)) * rows.shape[-1] ** -0.5
        self.sum_BKRC = torch.zeros_like(self.q_BKRC)
        self.most_BKR1 = torch.full_like(self.q_BKRC[..., :1], -torch.inf)
        self.total_BKR1 = torch.zeros_like(self.most_BKR1)

    def see(self, k_BKsC: torch.Tensor, v_BKsC: torch.Tensor, causal: bool) -> None:
        """Takes in further keys and values, in the wide dtype.

        A score larger than all before scales down what was summed so far: no exponent is above 0.
        """
        s_BKRs = scores(self.q_BKRC, k_BKsC, causal)
        most_BKR1 = torch.maximum(self.most_BKR1, s_BKRs.amax(-1, keepdim=True))
        weights_BKRs = s_BKRs.sub_(most_BKR1).exp_()
        shrink_BKR1 = (self.most_BKR1 - most_BKR1).exp_()
        self.total_BKR1.mul_(shrink_BKR1).add_(weights_BKRs.sum(-1, keepdim=True))
        self.sum_BKRC.mul_(shrink_BKR1).add_(weights_BKRs @ v_BKsC)
        self.most_BKR1 = most_BKR1

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The attention [B, H, t, C], and the log of the sum of exponentials [B, H, t, 1]."""
        out_BKRC = self.sum_BKRC / self.total_BKR1
        lse_BKR1 = self.most_BKR1 + self.total_BKR1.log()
        return unstack_heads(out_BKRC, self.tokens), unstack_heads(lse_BKR1, self.tokens)


class TileGradients:
    """A piece of queries in the backward: `lse` lets each attention weight be computed again alone.

    Args:
        q_BHtC: the queries.
        out_BHtC: the attention's result.
        lse_BHt1: its log of the sum of exponentials.
        grad_BHtC: the result's gradient.
        kv_heads: K.
    """

    def __init__(
        self,
        q_BHtC: torch.Tensor,
        out_BHtC: torch.Tensor,
        lse_BHt1: torch.Tensor,
        grad_BHtC: torch.Tensor,
        kv_heads: int,
    ) -> None:
        self.tokens, self.scale = q_BHtC.shape[2], q_BHtC.shape[-1] ** -0.5
        rows = [stack_heads(t, kv_heads) for t in (q_BHtC, out_BHtC, lse_BHt1, grad_BHtC)]
        q_BKRC, out_BKRC, self.lse_BKR1, grad_BKRC = (t.to(wide(t.dtype)) for t in rows)
        self.q_BKRC, self.grad_BKRC = q_BKRC * self.scale, grad_BKRC
        # What a softmax subtracts from every score's gradient: their mean in the row, by its
        # weights.
        self.mean_BKR1 = (grad_BKRC * out_BKRC).sum(-1, keepdim=True)
        self.q_grad_BKRC = torch.zeros_like(q_BKRC)

    def see(
        self, k_BKsC: torch.Tensor, v_BKsC: torch.Tensor, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients that these queries give to some keys and values, [B, K, s, C] each."""
        weights_BKRs = scores(self.q_BKRC, k_BKsC, causal).sub_(self.lse_BKR1).exp_()
        v_grad_BKsC = weights_BKRs.mT @ self.grad_BKRC
        slopes_BKRs = (self.grad_BKRC @ v_BKsC.mT).sub_(self.mean_BKR1).mul_(weights_BKRs)
        self.q_grad_BKRC.add_(slopes_BKRs @ k_BKsC)
        return slopes_BKRs.mT @ self.q_BKRC, v_grad_BKsC

    def result(self) -> torch.Tensor:
        """The gradient of the queries, [B, H, t, C]."""
        return unstack_heads(self.q_grad_BKRC * self.scale, self.tokens)
