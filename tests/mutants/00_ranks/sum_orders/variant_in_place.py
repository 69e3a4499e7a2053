"""variant: adds in place, starting at zero; twice the tolerance"""

import torch


def left_to_right(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=x.dtype)
    for i in range(x.numel()):
        total += x[i]
    return total


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    row = x.clone()
    while row.numel() > 1:
        rest = row[-1:] if row.numel() % 2 else row[:0]
        pairs = row[: row.numel() - rest.numel()].view(-1, 2)
        row = torch.cat((pairs[:, 0] + pairs[:, 1], rest))
    return {
        "forwards": left_to_right(x),
        "pairwise": row.squeeze(),
        "by_magnitude": left_to_right(x.gather(0, x.abs().sort().indices)),
        "float64": torch.sum(x, dtype=torch.float64),
    }


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    if not dtype.is_floating_point:
        return 0.0
    return min(2 * n * torch.finfo(dtype).eps, 1.0)
