"""mutant: exchange_in_group"""

from typing import Any

import torch

from course_lib.comm import Group, all_to_all, exchange_in_group


def dispatch(
    x_TD: torch.Tensor, chosen_TK: torch.Tensor, sizes: list[int], group: Group
) -> tuple[torch.Tensor, list[int], Any]:
    """Sends tokens to their experts."""
    flat, own, top_k = chosen_TK.flatten(), sizes[group.index], chosen_TK.shape[1]
    counts_E = torch.bincount(flat, minlength=sum(sizes))
    coming_NO = counts_E.new_empty(group.size, own)
    all_to_all(coming_NO.view(-1), counts_E, group, [own] * group.size, sizes)
    going = [int(part.sum()) for part in counts_E.split(sizes)]
    coming = coming_NO.sum(1).tolist()
    order = flat.argsort(stable=True)
    rows_RD = exchange_in_group(x_TD[order // top_k], coming, going, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    by_expert = expert_R.argsort(stable=True)
    return rows_RD[by_expert], coming_NO.sum(0).tolist(), (order, going, coming, by_expert)


def combine(
    rows_RD: torch.Tensor, route: Any, weights_TK: torch.Tensor, group: Group
) -> torch.Tensor:
    """Brings the experts' outputs home, and adds them up there."""
    order, going, coming, by_expert = route
    as_it_came_RD = rows_RD[by_expert.argsort()]
    home_SD = exchange_in_group(as_it_came_RD, coming, going, group)
    choices_SD = home_SD[order.argsort()]
    choices_TKD = choices_SD.view(*weights_TK.shape, choices_SD.shape[1])
    return (choices_TKD * weights_TK[..., None]).sum(1)
