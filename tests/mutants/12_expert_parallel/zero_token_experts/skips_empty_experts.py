"""mutant: is None, not zeros, experts 1 and 4 have no token"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, all_to_all
from course_lib.comm.autograd import exchange_in_group


class Route(NamedTuple):
    """How the tokens of one layer and one batch travel.

    Attributes:
        order: [T], this rank's tokens, sorted by their expert: so they are sent.
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
    """Counts what goes where, and learns from the others what comes: one all-to-all.

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
        order=chosen_T.argsort(stable=True),
        going=going_NO.sum(1).tolist(),
        coming=coming_NO.sum(1).tolist(),
        by_expert=expert_R.argsort(stable=True),
        loads=coming_NO.sum(0).tolist(),
    )


def moe_layer(
    x_TD: torch.Tensor,
    chosen_T: torch.Tensor,
    weight_T: torch.Tensor,
    experts: Sequence[nn.Module],
    group: Group,
) -> torch.Tensor:
    """Each token's expert, wherever it is, applied to the token, times its weight.

    Args:
        x_TD: this rank's tokens; T may be 0.
        chosen_T: number of each token's expert among the E of the group.
        weight_T: factors of the outputs.
        experts: those of this rank, which map [R, D] to [R, D].
        group: the ranks that share the experts.

    Returns:
        [T, D], in the order of `x_TD`, with gradients for tokens, weights and experts.
    """
    route = plan(chosen_T, len(experts), group)
    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
    parts = rows_RD[route.by_expert].split(route.loads)
    pairs = zip(experts, parts, strict=True)
    done = [expert(part) if len(part) else part for expert, part in pairs]
    done_RD = torch.cat(done)[route.by_expert.argsort()]  # as the rows came
    home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
    return home_TD[route.order.argsort()] * weight_T[:, None]


def sum_gradients(parameters: Iterable[nn.Parameter], group: Group) -> None:
    """Sums gradients over a group, in place; all members call it with the same parameters.

    Args:
        parameters: some may be frozen, some may have no gradient on this rank.
        group: the ranks that have the same parameters.
    """
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, group)
