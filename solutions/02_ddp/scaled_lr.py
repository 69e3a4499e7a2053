"""How large a step for a larger batch, and how large a batch is worth its price.

Notebook 02. N ranks with b examples each make a batch of N·b. Its gradient is less noisy than that
of b examples, so the learning rate may be larger. How much, two rules say. Let k be the global
batch, over all ranks, divided by the batch that `base_lr` was tuned for:

- `linear`: k · base_lr, for SGD (Goyal et al., 2017, section 2.1);
- `sqrt`: √k · base_lr, the usual one for Adam (Krizhevsky, 2014, derived it for SGD).

At the start the weights change fast, and a large rate may diverge: the rate warms up. In step 0 it
is base_lr; from there it grows by the same amount each step, and from step `warmup` on it is the
scaled one. With `warmup` 0 it is that from the start. What counts is the global batch: where more
ranks share the same batch, k is 1, and nothing is scaled.

How far does this go? Let B be the critical batch size: below it, twice the batch makes nearly twice
the progress in a step; far above, nearly none. McCandlish et al. (2018, appendix A.1) estimate it
from the squared lengths of gradients of two batch sizes, and data parallelism has both for nothing:

    s  mean over the ranks of |g|², g the gradient of a rank's own b examples
    S  |G|², G the mean gradient of all N·b examples

    |true gradient|² ≈ (N·b·S - b·s) / (N·b - b)
    noise            ≈ (s - S) / (1/b - 1/(N·b))
    B                = noise / |true gradient|²

If the estimate of |true gradient|² is not positive, there is nothing but noise: B is infinite.
"""

import math

import torch

from course_lib.comm import Group, all_reduce


def scaled_lr(
    rule: str, base_lr: float, base_batch: int, local_batch: int, world: int, step: int, warmup: int
) -> float:
    """The learning rate of one step.

    Args:
        rule: `linear` or `sqrt`.
        base_lr: the rate that was tuned for `base_batch`.
        base_batch: examples in a step of the run in which it was tuned, over all its ranks.
        local_batch: examples in a step on each rank now.
        world: how many ranks there are now.
        step: number of the step, from 0.
        warmup: in how many steps the scaled rate is reached.

    Raises:
        ValueError: another rule.
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
    """The critical batch size B, the same on every rank; costs an all-reduce of one number.

    Args:
        own: this rank's gradient, of its own examples; one dimension. It is left as it is.
        mean: the mean of all ranks' gradients, the same on every rank; left as it is.
        local_batch: b, examples of each rank.
        group: the ranks, at least two.

    Returns:
        Examples; `math.inf` if the gradient is nothing but noise.
    """
    # BEGIN SOLUTION: the critical batch size
    small = own.square().sum()
    all_reduce(small, group, "avg")
    large, batch = mean.square().sum(), local_batch * group.size
    signal = (batch * large - local_batch * small) / (batch - local_batch)
    noise = (small - large) / (1 / local_batch - 1 / batch)
    return float(noise / signal) if signal > 0 else math.inf
    # END SOLUTION
