"""The router: a small matrix that says which few experts each token goes to, and with what weight.

Notebook: 12 Expert parallel (topk_router, capacity_and_drop).
Paper: Shazeer et al., "Outrageously Large Neural Networks" (2017), section 2.1; Lepikhin et al.,
"GShard" (2020), algorithm 1, for capacity; Fedus et al., "Switch Transformers" (2021), section 2.
Costs 2·D·E operations a token forward, in float32 whatever the rest is computed in.
The production version fuses softmax, top-k and the sort by expert into one kernel.

Shapes: T tokens of this device (batch and sequence together), D hidden, E experts, K experts a
token uses.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.model.config import MoEConfig
from course_lib.trace import Refusal


class Routing(NamedTuple):
    """Where the tokens of one device go.

    Attributes:
        chosen: [T, K], numbers of the experts, int64, best first; E where one had no room.
        weights: [T, K], of their outputs in the token's sum, float32 or wider.
        counts: [E], how many tokens chose each expert, int64, those without room included.
        logits: [T, E], the router's outputs, float32 or wider.
        scores: [T, E], their softmax.
    """

    chosen: torch.Tensor
    weights: torch.Tensor
    counts: torch.Tensor
    logits: torch.Tensor
    scores: torch.Tensor


class Router(nn.Module):
    """Gives each token the K experts with the highest scores.

    A score is the softmax over all experts. The weights of the K chosen are their scores, divided
    by their sum (as Mixtral and DeepSeek-V3 do); for K = 1 the score itself (as Switch does), since
    divided by itself it would be 1, and the loss could teach the router nothing.

    Args:
        width: D.
        config: E, K, the capacity, and whether there is a bias.

    Attributes:
        weight: [E, D].
        bias: [E], added to the scores where experts are chosen, and nowhere else: it steers where
            tokens go without a gradient of its own. None if `bias_rate` is 0. In bfloat16 its
            small steps would be lost.
    """

    bias: torch.Tensor | None

    def __init__(self, width: int, config: MoEConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.randn(config.experts, width) * 0.02)
        bias = torch.zeros(config.experts) if config.bias_rate else None
        self.register_buffer("bias", bias)

    def forward(self, x_TD: torch.Tensor) -> Routing:
        """Chooses experts for T tokens; T may be 0."""
        # Logits of two experts may be nearer to each other than bfloat16 can tell.
        wide = torch.promote_types(x_TD.dtype, torch.float32)
        with torch.autocast(x_TD.device.type, enabled=False):
            logits_TE = F.linear(x_TD.to(wide), self.weight.to(wide))
        scores_TE = logits_TE.softmax(-1)
        wanted_TE = scores_TE.detach() if self.bias is None else scores_TE.detach() + self.bias
        chosen_TK = wanted_TE.topk(self.config.top_k, -1).indices
        weights_TK = scores_TE.gather(-1, chosen_TK)
        if self.config.top_k > 1:
            weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
        counts_E = torch.bincount(chosen_TK.flatten(), minlength=self.config.experts)
        if self.config.capacity_factor is not None:
            room = expert_capacity(self.config, len(x_TD))
            chosen_TK = drop_beyond(chosen_TK, counts_E, room)
        return Routing(chosen_TK, weights_TK, counts_E, logits_TE, scores_TE)


def expert_capacity(config: MoEConfig, tokens: int) -> int:
    """How many of a device's tokens an expert takes: its even share, times the factor, rounded up.

    Raises:
        Refusal: the config has no capacity.
    """
    if config.capacity_factor is None:
        raise Refusal(
            "the capacity of an expert",
            "a config without a factor",
            "without one every expert takes all tokens that chose it",
        )
    return math.ceil(config.capacity_factor * config.top_k * tokens / config.experts)


def drop_beyond(chosen_TK: torch.Tensor, counts_E: torch.Tensor, room: int) -> torch.Tensor:
    """Takes back choices that their expert has no room for.

    All first choices are seated before the second ones, each in the order of the tokens. A token
    that loses all its experts goes on with the residual stream alone.

    Args:
        chosen_TK: experts by number.
        counts_E: how many tokens chose each.
        room: places in each expert.

    Returns:
        The same with E instead of what was taken back.
    """
    line = chosen_TK.T.flatten()
    order = line.argsort(stable=True)  # in line for the same expert, one behind the other
    begin_E = counts_E.cumsum(0) - counts_E
    place = torch.empty_like(line)
    place[order] = torch.arange(len(line), device=line.device) - begin_E[line[order]]
    late_TK = (place >= room).view(chosen_TK.shape[1], -1).T
    return chosen_TK.masked_fill(late_TK, len(counts_E))
