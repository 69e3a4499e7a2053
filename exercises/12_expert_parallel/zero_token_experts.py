"""Experts without a token: gradients are zeros, and every rank makes every collective.

Notebook 12. Experts are spread over the ranks of a group, and tokens are sent to their experts and
back:

    x ──> exchange ──> the experts of this rank ──> exchange ──> weighted outputs, back home

The router decides, so in any step an expert may get no token, all experts of a rank may get none,
or a rank may have no tokens of its own. It is tempting to skip work then, but each way of doing so
breaks the training:

- A rank that skips an exchange because it has no rows makes all others wait for it.
- An expert that is not run has `grad` None. The optimizer skips it, while momentum and weight decay
  continue for its replicas on other ranks; and a sum of gradients that skips None hangs.
- If no expert of a rank is run, its second exchange has an input without a graph. Autograd then has
  no backward to run there, and the other ranks wait in theirs: the training hangs in backward.

The solution is to do nothing special. A linear layer runs on a tensor of shape [0, D], its
gradients are zeros, and an exchange of no rows is an exchange.

Rules
- Each rank has E/N experts: `experts` are those of this rank, in order; number i of the group's
  experts is on the member with index i // (E/N). Each token goes to one expert.
- Every rank calls both exchanges in forward; their backwards call two more. Together with the
  counts in `plan` that makes 5 all-to-alls on every rank, in every step. Send rows only to the
  ranks that need them, in the dtype of `x_TD`, without padding or dummy rows.
- After a backward, each parameter that requires a gradient has one, with zeros if no token came. As
  always, a backward adds to an existing gradient. Frozen parameters keep `grad` None.
- `sum_gradients`: a parameter whose gradient is None on this rank takes part with zeros, because it
  may have one elsewhere; afterwards it has the sum, like all others. Any other gradient is summed
  in place: it stays the same tensor, which need not be contiguous. Frozen parameters are left out.
- Ranks are numbered by `group.index`; the group need not be the whole world. T differs from rank to
  rank.

You may use all of `course_lib.comm`, `plan` below, and `exchange_in_group(rows, coming, going,
group)`. It sends rows along dim 0 (`going[j]` of them to member j), returns those that come
(`coming[i]` from member i), and its backward sends gradients back the same way.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, all_to_all, exchange_in_group


class Route(NamedTuple):
    """How the tokens of one layer and one batch travel.

    Attributes:
        order: [T], this rank's tokens, sorted by their expert, in the order in which they are sent.
        going: how many go to each member.
        coming: how many come from each.
        by_expert: [R], the places of the rows among those that came, sorted by expert.
        loads: how many rows each expert of this rank has.
    """

    order: torch.Tensor
    going: list[int]
    coming: list[int]
    by_expert: torch.Tensor
    loads: list[int]


def plan(chosen_T: torch.Tensor, own: int, group: Group) -> Route:
    """Counts the rows to send, and learns how many come, with one all-to-all.

    Args:
        chosen_T: number of each token's expert; may be empty.
        own: E/N, how many experts each rank has.
        group: the ranks.
    """
    going_NO = torch.bincount(chosen_T, minlength=own * group.size).view(group.size, own)
    coming_NO = torch.empty_like(going_NO)
    all_to_all(coming_NO, going_NO, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    return Route(
        order=chosen_T.argsort(),
        going=going_NO.sum(1).tolist(),
        coming=coming_NO.sum(1).tolist(),
        by_expert=expert_R.argsort(),
        loads=coming_NO.sum(0).tolist(),
    )


def moe_layer(
    x_TD: torch.Tensor,
    chosen_T: torch.Tensor,
    weight_T: torch.Tensor,
    experts: Sequence[nn.Module],
    group: Group,
) -> torch.Tensor:
    """Applies each token's expert, on whichever rank it is, times the token's weight; collective.

    Args:
        x_TD: this rank's tokens; T may be 0.
        chosen_T: number of each token's expert among the E of the group.
        weight_T: the factor of each token's output.
        experts: those of this rank, which map [R, D] to [R, D].
        group: the ranks that share the experts.

    Returns:
        [T, D], in the order of `x_TD`, with gradients for tokens, weights and experts.
    """
    route = plan(chosen_T, len(experts), group)
    raise NotImplementedError("zero_token_experts: tokens to their experts, and back home")


def sum_gradients(parameters: Iterable[nn.Parameter], group: Group) -> None:
    """Sums gradients over a group, in place; all members call it with the same parameters.

    Args:
        parameters: some may be frozen, some may have no gradient on this rank.
        group: the ranks that have the same parameters.
    """
    raise NotImplementedError("zero_token_experts: zeros take part")
