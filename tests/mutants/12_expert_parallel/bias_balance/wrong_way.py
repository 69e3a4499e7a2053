"""mutant: the wrong way"""

import torch

from course_lib.comm import Group, all_reduce


def choose(
    scores_TE: torch.Tensor, bias_E: torch.Tensor, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    chosen_TK = (scores_TE + bias_E).topk(top_k, -1).indices
    weights_TK = scores_TE.gather(-1, chosen_TK)
    return chosen_TK, weights_TK / weights_TK.sum(-1, keepdim=True)


def update_bias(bias_E: torch.Tensor, chosen_TK: torch.Tensor, rate: float, group: Group) -> None:
    load_E = torch.bincount(chosen_TK.flatten(), minlength=len(bias_E))
    all_reduce(load_E, group)
    bias_E += rate * (load_E - load_E.double().mean()).sign().to(bias_E.dtype)
