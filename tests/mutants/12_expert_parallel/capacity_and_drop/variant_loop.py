"""variant: a loop over the line"""

import math

import torch


def capacity_and_drop(
    chosen_TK: torch.Tensor, experts: int, factor: float
) -> tuple[int, torch.Tensor]:
    """Takes back the choices that find no place."""
    tokens, top_k = chosen_TK.shape
    room = -int(-factor * top_k * tokens // experts)
    left, kept = [room] * experts, chosen_TK.clone()
    for choice in range(top_k):
        for token in range(tokens):
            expert = int(chosen_TK[token, choice])
            if left[expert]:
                left[expert] -= 1
            else:
                kept[token, choice] = experts
    return math.ceil(room), kept
