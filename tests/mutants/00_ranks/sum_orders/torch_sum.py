"""mutant: 'forwards' of"""

import torch


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    def forwards(numbers: torch.Tensor) -> torch.Tensor:
        total = numbers[0]
        for number in numbers[1:]:
            total = total + number
        return total

    row = x
    while len(row) > 1:
        even = len(row) // 2 * 2
        row = torch.cat([row[0:even:2] + row[1:even:2], row[even:]])
    return {
        "forwards": x.sum(),
        "pairwise": row[0],
        "by_magnitude": forwards(x[x.abs().argsort()]),
        "float64": x.double().sum(),
    }


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    if not dtype.is_floating_point:
        return 0.0
    return min(1.0, n * torch.finfo(dtype).eps)
