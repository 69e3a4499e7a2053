"""dispatch and combine: send each token to the ranks that have its experts, and bring results home.

Notebook 12. With expert parallelism the E experts of a layer are spread over the N ranks of a
group, and every rank has tokens of its own. A router has chosen k experts for each token. Two
all-to-alls with uneven parts bring tokens and experts together:

    rows by expert → all-to-all → rows of my experts → experts → all-to-all → weighted sum at home

A row is one choice of one token: a token with k experts is sent k times. dispatch puts this rank's
T·k rows in the order of experts, so that the rows for one rank lie together. No rank knows yet how
many rows come from which rank, so the counts are sent first. The rows that arrive are ordered by
sender; the experts need them by expert, so they are sorted once more. combine undoes all of this
step by step, in reverse.

Rules
- Rank i of the group (`group.index`) has the `sizes[i]` experts after those of the ranks before it:
  sizes [2, 3] put experts 0 and 1 on the first rank, and 2, 3, 4 on the second. Each member has at
  least one.
- `chosen_TK[t, j]` is the number, 0 to E-1, of token t's j-th expert. The k experts of a token are
  different.
- `dispatch` returns (rows, loads, route). `rows`, [R, D], are the inputs of this rank's experts:
  all rows of its first expert, then those of the next; the order within one expert is up to you.
  `loads` is a list with the number of rows of each of this rank's experts; they add up to R.
- `route` is whatever `combine` needs to know; the Route below is a suggestion, and is not checked.
- `combine` takes the experts' outputs in the order of `rows`, and returns y of shape [T, D]: y[t]
  is the sum over j of weights_TK[t, j] times the output of expert chosen_TK[t, j] for token t.
- Weights are applied at home, after the outputs have come back. They are not sent, so their
  gradients need not be sent either.
- T differs from rank to rank, and may be 0; so may R. Every rank calls every collective in any
  case.
- Gradients flow to the tokens, to the weights, and through the rows to the experts. Nothing is
  averaged.
- `x_TD` and `chosen_TK` need not be contiguous; no argument is changed.
- dispatch makes one all-to-all of counts (int64; a rank sends those of all experts that it does not
  hold), and dispatch and combine make one all-to-all of rows each, in the rows' dtype. Rows that
  stay on their rank cost nothing. The backward costs the same again, without the counts.

You may use all of `course_lib.comm`. `all_to_all(output, input, group, output_sizes, input_sizes)`
sends parts of `input` along dim 0 and fills `output`; the sizes are lists with the number of rows
for each member. `exchange_in_group(rows, output_sizes, input_sizes, group)` returns the rows that
came, and gradients flow back through it.
"""

from typing import NamedTuple

import torch

from course_lib.comm import Group, all_to_all, exchange_in_group


class Route(NamedTuple):
    """How the rows of one layer and one batch travel.

    Attributes:
        order: [T·k], the choices (number t·k + j) in the order in which they are sent.
        going: how many rows go to each member.
        coming: how many rows come from each member.
        by_expert: [R], the places of the rows among those that came, in the order of experts.
    """

    order: torch.Tensor
    going: list[int]
    coming: list[int]
    by_expert: torch.Tensor


def dispatch(
    x_TD: torch.Tensor, chosen_TK: torch.Tensor, sizes: list[int], group: Group
) -> tuple[torch.Tensor, list[int], Route]:
    """Sends tokens to their experts.

    Args:
        x_TD: [T, D], this rank's tokens.
        chosen_TK: [T, k], the numbers of their experts, int64.
        sizes: how many experts each member of the group has, in their order.
        group: the ranks that share the experts.

    Returns:
        The rows [R, D] of this rank's experts, how many each has, and the route.
    """
    # BEGIN SOLUTION
    flat, own, top_k = chosen_TK.flatten(), sizes[group.index], chosen_TK.shape[1]
    counts_E = torch.bincount(flat, minlength=sum(sizes))
    coming_NO = counts_E.new_empty(group.size, own)
    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
    going = [int(part.sum()) for part in counts_E.split(sizes)]
    coming = coming_NO.sum(1).tolist()
    order = flat.argsort()
    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    by_expert = expert_R.argsort()
    return rows_RD[by_expert], coming_NO.sum(0).tolist(), Route(order, going, coming, by_expert)
    # END SOLUTION


def combine(
    rows_RD: torch.Tensor, route: Route, weights_TK: torch.Tensor, group: Group
) -> torch.Tensor:
    """Brings the experts' outputs home, and sums them there; collective.

    Args:
        rows_RD: [R, D], the outputs of this rank's experts, in the order of dispatch's rows.
        route: what dispatch returned.
        weights_TK: [T, k], the weights of the outputs in each token's sum.
        group: the ranks that share the experts.

    Returns:
        [T, D], each token's weighted sum.
    """
    # BEGIN SOLUTION
    as_it_came_RD = rows_RD[route.by_expert.argsort()]
    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
    choices_SD = home_SD[route.order.argsort()]
    choices_TKD = choices_SD.view(*weights_TK.shape, choices_SD.shape[1])
    return (choices_TKD * weights_TK[..., None]).sum(1)
    # END SOLUTION
