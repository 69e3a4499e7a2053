"""variant: functools.reduce, a stack of partial sums, and the bound with its denominator"""

from functools import reduce
from operator import add

import torch


def pairwise(terms: list[torch.Tensor]) -> torch.Tensor:
    if len(terms) == 1:
        return terms[0]
    sums = [a + b for a, b in zip(terms[0::2], terms[1::2])]
    return pairwise(sums + terms[len(terms) - len(terms) % 2 :])


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    terms = list(x)
    return {
        "forwards": reduce(add, terms),
        "pairwise": pairwise(terms),
        "by_magnitude": reduce(add, sorted(terms, key=abs)),
        "float64": reduce(add, x.to(torch.float64)),
    }


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    if dtype in (torch.int32, torch.int64):
        return 0.0
    worst = (n - 1) * torch.finfo(dtype).eps / 2
    return worst / (1 + worst)
