"""mutant: left half plus right half"""

import torch


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    def forwards(numbers: torch.Tensor) -> torch.Tensor:
        total = numbers[0]
        for number in numbers[1:]:
            total = total + number
        return total

    def halve(numbers):
        middle = len(numbers) // 2
        return halve(numbers[:middle]) + halve(numbers[middle:]) if middle else numbers[0]

    return {
        "forwards": forwards(x),
        "pairwise": halve(x),
        "by_magnitude": forwards(x[x.abs().argsort()]),
        "float64": x.double().sum(),
    }


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    if not dtype.is_floating_point:
        return 0.0
    return min(1.0, n * torch.finfo(dtype).eps)
