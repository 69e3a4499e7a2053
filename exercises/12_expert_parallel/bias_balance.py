"""Even loads without an auxiliary loss: a bias on the scores that affects only the choice.

Notebook 12. Left alone, a router sends most tokens to a few experts. A balancing loss prevents
that, but its gradients disturb what the model learns. DeepSeek-V3 (section 2.1.2) needs no such
loss: each expert has a bias, which is added to its score when experts are chosen, and nowhere else.
After each step an expert that had too many tokens is made a little less attractive, and one that
had too few a little more:

    bias of expert e  +=  rate · sign(mean load - load of e)

The load is the number of choices that fell on an expert on all ranks together: so all ranks have
the same bias, and the load of the whole batch becomes even.

Rules
- `choose` returns the K experts with the largest score + bias, best first. Their weights are the
  scores without the bias, divided by the sum over the K chosen experts. Gradients flow through the
  weights to the scores; the bias gets none, even if it requires one.
- `update_bias` changes the bias in place, so that the module's buffer stays the same tensor with
  the same dtype. It makes one all-reduce of E int64 numbers and sends nothing else. An expert whose
  load is exactly the mean keeps its bias. The ranks of `group` have different numbers of tokens,
  and some may have none.

You may use torch and all of `course_lib.comm`; `all_reduce(tensor, group)` sums in place.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce


def choose(
    scores_TE: torch.Tensor, bias_E: torch.Tensor, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Chooses experts with the bias, and weighs them without it.

    Args:
        scores_TE: the scores, all positive.
        bias_E: the bias of each expert.
        top_k: K.

    Returns:
        The experts' numbers [T, K], int64, and their weights [T, K].
    """
    raise NotImplementedError("bias_balance: the choice")


def update_bias(bias_E: torch.Tensor, chosen_TK: torch.Tensor, rate: float, group: Group) -> None:
    """Updates the bias once, from the choices of all ranks' tokens; collective.

    Args:
        bias_E: of the experts, the same on all ranks; changed in place.
        chosen_TK: the experts that this rank's tokens chose; T may be 0.
        rate: the size of the step.
        group: all ranks that may have tokens.
    """
    raise NotImplementedError("bias_balance: the move")
