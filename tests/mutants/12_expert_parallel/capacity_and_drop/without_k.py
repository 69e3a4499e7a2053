"""mutant: k is missing"""

import math

import torch


def capacity_and_drop(
    chosen_TK: torch.Tensor, experts: int, factor: float
) -> tuple[int, torch.Tensor]:
    """Takes back the choices that find no place."""
    tokens, top_k = chosen_TK.shape
    room = math.ceil(factor * tokens / experts)
    line = chosen_TK.T.flatten()
    order = line.argsort(stable=True)
    counts_E = torch.bincount(line, minlength=experts)
    begin_E = counts_E.cumsum(0) - counts_E
    place = torch.empty_like(line)
    place[order] = torch.arange(len(line)) - begin_E[line[order]]
    late_TK = (place >= room).view(top_k, tokens).T
    return room, chosen_TK.masked_fill(late_TK, experts)
