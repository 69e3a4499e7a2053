"""Even loads without an auxiliary loss: a bias on the scores that the choice alone sees.

Notebook 12. A router that is left alone sends most tokens to a few experts. A loss for the balance
cures that, but its gradients disturb what the model learns. DeepSeek-V3 (section 2.1.2) does it
without: each expert has a number that is added to its score when experts are chosen, and nowhere
else. After each step an expert that had too many tokens is made a little less attractive, and one
that had too few a little more:

    bias of expert e  +=  rate · sign(mean load - load of e)

The load is how many choices fell on an expert, on all ranks: only then do all ranks have the same
bias, and only the load of the whole batch must be even.

Rules
- `choose`: the K experts with the largest score + bias, best first. Their weights are the scores
  without the bias, divided by the sum over the K chosen ones. Gradients flow through the weights to
  the scores; the bias gets none, even if it requires one.
- `update_bias`: in place, so that the module's buffer stays the same tensor, with its dtype. One
  all-reduce of E int64 is sent, nothing else. An expert whose load is exactly the mean keeps its
  bias. Ranks have different numbers of tokens, and some have none; ranks are those of `group`.

Free to use: torch, and all of `course_lib.comm`; `all_reduce(tensor, group)` sums in place.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce


def choose(
    scores_TE: torch.Tensor, bias_E: torch.Tensor, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Chooses experts with the bias, and weighs them without it.

    Args:
        scores_TE: positive.
        bias_E: of the experts.
        top_k: K.

    Returns:
        Numbers of the experts [T, K], int64, and their weights [T, K].
    """
    raise NotImplementedError("bias_balance: the choice")


def update_bias(bias_E: torch.Tensor, chosen_TK: torch.Tensor, rate: float, group: Group) -> None:
    """Moves the bias once, by what all ranks' tokens chose.

    Args:
        bias_E: of the experts, the same on all ranks; changed in place.
        chosen_TK: what this rank's tokens chose; T may be 0.
        rate: how far.
        group: all ranks that have tokens.
    """
    raise NotImplementedError("bias_balance: the move")
