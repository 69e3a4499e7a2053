"""Which learning rate a larger batch needs, and how large a batch is worth its cost.

Notebook 02. N ranks with b examples each make a batch of N·b. Its gradient is less noisy than that
of b examples, so the learning rate may be larger. Two rules say how much. Let k be the global
batch, over all ranks, divided by the batch that `base_lr` was tuned for:

- `linear`: k · base_lr, for SGD (Goyal et al., 2017, section 2.1);
- `sqrt`: √k · base_lr, the usual one for Adam (Krizhevsky, 2014, derived it for SGD).

At the start the weights change fast, and training with a large rate may diverge, so the rate warms
up. In step 0 it is base_lr; then it grows by the same amount in each step, and from step `warmup`
on it is the scaled rate. With `warmup` 0 it is the scaled rate from the start. What counts is the
global batch: if more ranks share the same batch, k is 1, and the rate is not scaled.

How far does this go? Let B be the critical batch size: well below it, twice the batch makes nearly
twice the progress in a step; far above it, hardly more. McCandlish et al. (2018, appendix A.1)
estimate it from the squared lengths of the gradients of two batch sizes. Data parallelism has both
at no extra cost:

    s  mean over the ranks of |g|², g the gradient of a rank's own b examples
    S  |G|², G the mean gradient of all N·b examples

    |true gradient|² ≈ (N·b·S - b·s) / (N·b - b)
    noise            ≈ (s - S) / (1/b - 1/(N·b))
    B                = noise / |true gradient|²

If the estimate of |true gradient|² is not positive, the gradient is only noise: B is infinite.
"""

import math

import torch

from course_lib.comm import Group, all_reduce


def scaled_lr(
    rule: str, base_lr: float, base_batch: int, local_batch: int, world: int, step: int, warmup: int
) -> float:
    """Computes the learning rate of one step.

    Args:
        rule: `linear` or `sqrt`.
        base_lr: the rate that was tuned for `base_batch`.
        base_batch: examples in a step of the run in which it was tuned, over all its ranks.
        local_batch: examples in a step on each rank now.
        world: how many ranks there are now.
        step: number of the step, from 0.
        warmup: the number of steps after which the scaled rate is reached.

    Raises:
        ValueError: the rule is neither of the two.
    """
    # BEGIN SOLUTION: the learning rate
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"no rule {rule!r}: known are 'linear' and 'sqrt'")
    factor = local_batch * world / base_batch
    target = base_lr * (factor if rule == "linear" else math.sqrt(factor))
    if step >= warmup:
        return target
    return base_lr + (target - base_lr) * step / warmup
    # END SOLUTION


def critical_batch(own: torch.Tensor, mean: torch.Tensor, local_batch: int, group: Group) -> float:
    """Estimates the critical batch size B, equal on all ranks, with an all-reduce of one number.

    Args:
        own: this rank's gradient, of its own examples; one dimension. Not changed.
        mean: the mean of all ranks' gradients, the same on every rank. Not changed.
        local_batch: b, examples of each rank.
        group: the ranks, at least two.

    Returns:
        B in examples; `math.inf` if the gradient is only noise.
    """
    # BEGIN SOLUTION: the critical batch size
    small = own.square().sum()
    all_reduce(small, group, "avg")
    large, batch = mean.square().sum(), local_batch * group.size
    signal = (batch * large - local_batch * small) / (batch - local_batch)
    noise = (small - large) / (1 / local_batch - 1 / batch)
    return float(noise / signal) if signal > 0 else math.inf
    # END SOLUTION
