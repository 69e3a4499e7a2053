"""mutant: weights (, has the wrong dtype"""

from typing import NamedTuple

import torch


class Routing(NamedTuple):
    """What the router says of T tokens."""

    chosen: torch.Tensor
    weights: torch.Tensor
    balance: torch.Tensor
    z: torch.Tensor


def topk_router(x_TD: torch.Tensor, weight_ED: torch.Tensor, top_k: int) -> Routing:
    """Chooses experts for T tokens."""
    wide = torch.float32
    logits_TE = x_TD.to(wide) @ weight_ED.to(wide).T
    scores_TE = logits_TE.softmax(-1)
    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
    if top_k > 1:
        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
    tokens, experts = max(1, len(x_TD)), len(weight_ED)
    counts_E = torch.bincount(chosen_TK.flatten(), minlength=experts)
    share_E = counts_E.to(wide) / (tokens * top_k)
    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
    z = logits_TE.logsumexp(-1).square().sum() / tokens
    return Routing(chosen_TK, weights_TK, balance, z)
