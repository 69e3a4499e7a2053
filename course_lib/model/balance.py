"""Keeping experts evenly busy: a loss, a loss on the router's logits, or a bias without any loss.

Notebook: 12 Expert parallel (topk_router, bias_balance).
Paper: Fedus et al., "Switch Transformers" (2021), section 2.2; Zoph et al., "ST-MoE" (2022),
section 3.3, for the z-loss; DeepSeek-AI, "DeepSeek-V3" (2024), section 2.1.2, for the bias.
Costs a few operations a token. Over several devices the counts are of all of them: E integers.
The production version computes the losses inside the router's kernel.

Shapes: T tokens of this device, E experts.

A device has the tokens of a part of the batch, and the trained loss is the mean of the devices'
losses. So sums over tokens are divided by T̄, the mean number of tokens of a device: then the mean
of the devices' values is what one device would have computed for the whole batch, and so is the
mean of their gradients, however unevenly tokens lie. With one device T̄ is T.
"""

from __future__ import annotations

import torch


def balance_loss(
    scores_TE: torch.Tensor, counts_E: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """E·Σₑ fₑ·Pₑ: 1 if experts are used evenly, up to E/K if all tokens go to the same K.

    fₑ is the share of all choices that fell on expert e, and has no gradient; Pₑ is its mean score,
    through which the gradient flows.

    Args:
        scores_TE: softmax of the router's logits.
        counts_E: how often each expert was chosen, on all devices.
        tokens: T̄, no dims.
    """
    share_E = counts_E.to(scores_TE.dtype) / counts_E.sum().clamp(min=1)
    mean_E = scores_TE.sum(0) / tokens
    return len(counts_E) * (share_E * mean_E).sum()


def z_loss(logits_TE: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Mean of log²(Σₑ exp(logitₑ)): keeps logits small, so that rounding does not choose experts.

    Args:
        logits_TE: the router's.
        tokens: T̄, no dims.
    """
    return logits_TE.logsumexp(-1).square().sum() / tokens


def moved_bias(bias_E: torch.Tensor, counts_E: torch.Tensor, rate: float) -> torch.Tensor:
    """The bias after an update: up by `rate` for experts below the mean load, down above it.

    Args:
        bias_E: added to the scores when experts are chosen.
        counts_E: how often each was chosen since the last update, on all devices.
        rate: γ.
    """
    missing_E = counts_E.double().mean() - counts_E
    return bias_E + rate * missing_E.sign().to(bias_E.dtype)
