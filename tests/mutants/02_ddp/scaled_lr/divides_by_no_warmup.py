"""mutant: ZeroDivisionError"""

import math

import torch

from course_lib.comm import Group, all_reduce


def scaled_lr(
    rule: str, base_lr: float, base_batch: int, local_batch: int, world: int, step: int, warmup: int
) -> float:
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"no rule {rule!r}: known are 'linear' and 'sqrt'")
    factor = local_batch * world / base_batch
    target = base_lr * (factor if rule == "linear" else math.sqrt(factor))
    return base_lr + (target - base_lr) * min(1.0, step / warmup)


def critical_batch(own: torch.Tensor, mean: torch.Tensor, local_batch: int, group: Group) -> float:
    small = own.square().sum()
    all_reduce(small, group, "avg")
    large, batch = mean.square().sum(), local_batch * group.size
    signal = (batch * large - local_batch * small) / (batch - local_batch)
    noise = (small - large) / (1 / local_batch - 1 / batch)
    return float(noise / signal) if signal > 0 else math.inf
