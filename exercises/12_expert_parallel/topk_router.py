"""The router: choose k of E experts for each token, weigh them, and keep all experts busy.

Notebook 12. A mixture of experts has E networks in place of one, and each token is computed by k of
them. A small matrix chooses: its row e, times the token, is the logit of expert e. The softmax of a
token's E logits are its scores. The k experts with the highest scores compute the token, and their
outputs are added up with weights. The choice has no gradient; the weights have one, and the router
learns from it alone. Without help, the router soon sends everything to a few experts. Two losses
are added:

    balance = E · sum over e of f_e · P_e
        f_e: the share of all T·k choices that fell on expert e. A count, without a gradient.
        P_e: the mean of expert e's score over the T tokens; the gradient flows through it.
        1 if experts are used evenly; up to E/k if always the same k are (Switch Transformers, 2.2).
    z = mean over tokens of (log of the sum over e of exp(logit_e))²
        keeps logits small, so that rounding does not choose experts (ST-MoE, 3.3).

Rules
- Everything is computed in float32, or in float64 where the token or the matrix is float64: bf16
  cannot distinguish two close logits. So convert before the product, not after. Convert the counts
  too: integers divided by integers give float32.
- `chosen`: k different experts of each token, best first, int64. Which of equal scores comes first
  is up to you.
- `weights`: the chosen experts' scores, divided by their sum, so that they add up to 1. For k = 1,
  it is the score itself: divided by itself it would always be 1, and the router could not learn.
- Logits may be large, and exp(1000) is infinite, so use functions that avoid the overflow.
- T may be 0: a rank may have no tokens. Both losses are then 0, and their gradients are zeros.
- k may be E. `x_TD` need not be contiguous, and neither argument is changed.

You may use all of torch, including `torch.nn.functional`. Nothing is sent.

Your answer may use nothing of `course_lib`.
"""

from typing import NamedTuple

import torch


class Routing(NamedTuple):
    """The router's result for T tokens.

    Attributes:
        chosen: [T, k], numbers of the experts, int64.
        weights: [T, k], the weights of their outputs, float32 or float64.
        balance: the load-balancing loss, no dims.
        z: the z-loss, no dims.
    """

    chosen: torch.Tensor
    weights: torch.Tensor
    balance: torch.Tensor
    z: torch.Tensor


def topk_router(x_TD: torch.Tensor, weight_ED: torch.Tensor, top_k: int) -> Routing:
    """Chooses experts for T tokens.

    Args:
        x_TD: [T, D], the tokens.
        weight_ED: [E, D], the router's matrix.
        top_k: k, how many experts a token goes to, 1 to E.
    """
    raise NotImplementedError("topk_router: write your answer here")
