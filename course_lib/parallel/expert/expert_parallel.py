"""Expert parallelism: experts are spread over ranks, and tokens travel to theirs and back.

Notebook: 12 Expert parallel (dispatch_combine, zero_token_experts).
Paper: Lepikhin et al., "GShard" (2020), section 3; Rajbhandari et al., "DeepSpeed-MoE" (2022).
Costs a layer, for T tokens a rank of D numbers of `item` bytes, each with K experts: two
all-to-alls forward and two backward of (N-1)/N·T·K·D·item bytes a rank if experts are evenly used,
and one forward of (N-1)/N·E integers, which tells how many rows come. Parameters: 1/N of them.
The production version (DeepEP) sends a token once to a node where several of its experts are, in
8 bits, and computes while tokens travel.

A row is one choice of one token; the number of a choice is t·K + k. Shapes: T tokens of this rank,
D hidden, K experts a token uses, E experts in all, O experts of this rank, N ranks, S rows sent
(T·K less those dropped), R rows that arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from course_lib.comm import CommError, Group, all_to_all, exchange_in_group
from course_lib.parallel.copied_hook import hook_with_copies
from course_lib.trace import chunk_sizes


@dataclass(frozen=True)
class Route:
    """How the rows of one layer and one batch travel.

    Attributes:
        tokens: T.
        top_k: K.
        order: [S], the choices that are sent, by expert; those of one in the order of tokens.
        going: how many rows go to each member.
        coming: how many come from each.
        by_expert: [R], the places of the rows among those that came (by sender, then by expert),
            in the order of experts.
        loads: how many rows each expert of this rank has.
    """

    tokens: int
    top_k: int
    order: torch.Tensor
    going: list[int]
    coming: list[int]
    by_expert: torch.Tensor
    loads: list[int]


def plan_route(chosen_TK: torch.Tensor, sizes: Sequence[int], group: Group) -> Route:
    """Counts what goes where, and learns from the others what comes.

    Args:
        chosen_TK: numbers of the experts of this rank's tokens; E where a choice was dropped. T may
            differ from rank to rank, and be 0.
        sizes: how many experts each member has, in their order.
        group: the ranks that share the experts.

    Returns:
        The route. One all-to-all: (E - O)·8 bytes sent.
    """
    flat = chosen_TK.flatten()
    counts_E = torch.bincount(flat, minlength=sum(sizes) + 1)[:-1]
    own = sizes[group.index]
    coming_NO = counts_E.new_empty(group.size, own)
    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
    going = [int(part.sum()) for part in counts_E.split(list(sizes))]
    expert_R = torch.arange(own, device=flat.device).repeat(group.size)
    expert_R = expert_R.repeat_interleave(coming_NO.view(-1))
    return Route(
        tokens=chosen_TK.shape[0],
        top_k=chosen_TK.shape[1],
        order=flat.argsort(stable=True)[: sum(going)],  # dropped ones are last
        going=going,
        coming=coming_NO.sum(1).tolist(),
        by_expert=expert_R.argsort(stable=True),
        loads=coming_NO.sum(0).tolist(),
    )


def dispatch(x_TD: torch.Tensor, route: Route, group: Group) -> torch.Tensor:
    """Sends tokens to their experts.

    Args:
        x_TD: this rank's tokens.
        route: where they go.
        group: the ranks that share the experts.

    Returns:
        [R, D], the rows of this rank's experts, one expert after the other. Every row for another
        rank is sent once forward, and its gradient comes back once.
    """
    rows_SD = x_TD.index_select(0, route.order // route.top_k)
    rows_RD = exchange_in_group(rows_SD, route.coming, route.going, group)
    return rows_RD.index_select(0, route.by_expert)


def combine(
    rows_RD: torch.Tensor, route: Route, weights_TK: torch.Tensor, group: Group
) -> torch.Tensor:
    """Sends what the experts computed back, and adds it up there: the inverse of `dispatch`.

    The weights and their gradients stay on the tokens' rank: they never travel.

    Args:
        rows_RD: outputs of this rank's experts, in the order of `dispatch`.
        route: the same as there.
        weights_TK: of the choices of this rank's tokens.
        group: the ranks that share the experts.

    Returns:
        [T, D], for each token the weighted sum over its experts; zeros if all were dropped.
    """
    as_it_came_RD = rows_RD.index_select(0, route.by_expert.argsort())
    home_SD = exchange_in_group(as_it_came_RD, route.going, route.coming, group)
    width = rows_RD.shape[1]
    choices = home_SD.new_zeros(route.tokens * route.top_k, width)
    choices_TKD = choices.index_copy(0, route.order, home_SD).view(-1, route.top_k, width)
    return (choices_TKD * weights_TK[..., None]).sum(1)


class ExpertParallel:
    """A layer's experts, spread over a group: call it with the experts that are here.

    The first ranks have one more expert if N does not divide E. Every rank calls every layer, even
    without tokens, and every expert runs, even on no rows. So all ranks make the same collectives,
    and gradients are zeros, not None.

    Args:
        count: E.
        group: the ranks that share the experts; each has tokens of its own.

    Attributes:
        own: numbers of this rank's experts.

    Raises:
        CommError: there are fewer experts than ranks.
    """

    def __init__(self, count: int, group: Group) -> None:
        if count < group.size:
            raise CommError(
                f"{count} experts, spread over {group.size} ranks",
                f"{group}",
                "every rank has an expert: make the group smaller, so that several hold the same",
            )
        self.group = group
        self.sizes = chunk_sizes(count, group.size)
        start = sum(self.sizes[: group.index])
        self.own = range(start, start + self.sizes[group.index])

    def keep_own(self, experts: nn.ModuleDict) -> None:
        """Removes the other ranks' experts, in place; this rank's keep their names.

        Each backward leaves in their gradients what the tokens of all N ranks gave, divided by N:
        a rank's loss is the mean over its own tokens, and the trained loss is the mean of those.
        So an expert's gradient is a mean like all other gradients. It is averaged over the ranks
        that hold the same expert (`average_over_replicas`), as the others are over all ranks.

        Raises:
            CommError: these are not all experts, as where this was called before.
        """
        if len(experts) != sum(self.sizes):
            raise CommError(
                f"rank {self.group.rank}'s share of {sum(self.sizes)} experts",
                f"{len(experts)} of them",
                "they are cut once: a second time would divide their gradients again",
            )
        for number in set(experts) - {str(number) for number in self.own}:
            del experts[number]
        for parameter in experts.parameters():
            if parameter.requires_grad:
                hook_with_copies(parameter, self._mean_of_senders)

    def _mean_of_senders(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / self.group.size

    def __call__(
        self,
        experts: nn.ModuleDict,
        x_TD: torch.Tensor,
        chosen_TK: torch.Tensor,
        weights_TK: torch.Tensor,
    ) -> torch.Tensor:
        """The tokens' weighted sums over their experts, wherever those are; in x's dtype.

        Args:
            experts: this rank's, in order.
            x_TD: this rank's tokens.
            chosen_TK: numbers of their experts; E for none.
            weights_TK: of the experts' outputs.

        Raises:
            CommError: the experts are not this rank's.
        """
        if list(experts) != [str(number) for number in self.own]:
            raise CommError(
                f"experts {self.own.start} to {self.own.stop - 1} on rank {self.group.rank}",
                f"experts {', '.join(experts)}",
                "the others' tokens are for these: keep them with keep_own",
            )
        route = plan_route(chosen_TK, self.sizes, self.group)
        rows_RD = dispatch(x_TD, route, self.group)
        parts = zip(experts.values(), rows_RD.split(route.loads), strict=True)
        done_RD = torch.cat([expert(part) for expert, part in parts])
        return combine(done_RD, route, weights_TK, self.group).to(x_TD.dtype)
