"""Buckets: many small gradients in few large messages, the last layer's first.

Notebook 02. An all-reduce costs a latency, however small it is, so a model with hundreds of small
parameters should not send hundreds of messages. One message at the very end is no better: then
nothing is sent while backward still computes. So DDP puts neighbouring parameters into buckets of
about 25 MB, and sends a bucket as soon as its last gradient is ready. You decide which parameter
goes into which bucket.

1. Backward reaches the last layer first, so go through the parameters from the last to the first.
2. Put each parameter into the open bucket of its dtype: a bucket becomes one flat tensor, which has
   one dtype. Parameters of another dtype in between do not close a bucket.
3. If a parameter would make its open bucket larger than the cap (exactly as large is fine), close
   that bucket and begin a new one with the parameter. So a parameter that is larger than the cap
   ends up alone in its bucket.
4. The first bucket of each dtype has its own cap, `first_cap`: it is smaller, so that sending
   begins early. If a parameter larger than `first_cap` opens that bucket, it is alone in it.
5. Parameters that need no gradient (`requires_grad` is False) are in no bucket.
6. A parameter that appears twice (tied weights) is in one bucket, once, at the place of its *first*
   appearance in `params`: its gradient is complete only when backward has reached its first use.

Buckets of one dtype are in the order of backward. How those of different dtypes are mixed in the
returned list is up to you, as long as it is the same on every rank.
"""

from collections.abc import Iterable

from torch.nn import Parameter


def build_buckets(params: Iterable[Parameter], cap: int, first_cap: int) -> list[list[Parameter]]:
    """Cuts parameters into buckets.

    Args:
        params: in the order of the forward pass; may be a generator (`module.parameters()`).
        cap: the most bytes that a bucket may have; a parameter has `nbytes` bytes.
        first_cap: the same for the first bucket of each dtype.

    Returns:
        The buckets, as lists of the parameters themselves; none is empty.
    """
    # BEGIN SOLUTION
    buckets: dict = {}  # for each dtype, its buckets so far
    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
        mine = buckets.setdefault(parameter.dtype, [[]])
        held = sum(p.nbytes for p in mine[-1])
        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
            mine.append([])
        mine[-1].append(parameter)
    return [bucket for mine in buckets.values() for bucket in mine]
    # END SOLUTION
