"""Decide which ranks average which gradients when experts are spread over ranks.

Notebook 12. The ranks form a mesh: the experts are spread along `expert`, and the ranks along
`replica` hold the same experts. Every rank has its own tokens, whichever experts it holds. So there
are two kinds of parameters, and two groups to average them over:

                 expert ──>                      4 ranks, 4 experts, two of them on each rank
    replica   rank 0: experts 0, 1   rank 1: experts 2, 3
       |      rank 2: experts 0, 1   rank 3: experts 2, 3
       v      router, attention, norms, embeddings: the same on all four

The loss to train is the mean of all ranks' losses. After a rank's backward

- the router and all other parameters have the gradient of this rank's loss;
- an expert's parameters have more: the expert's rows came from all ranks along `expert`, so its
  gradient is already the sum over those ranks, each with the gradient of its own loss.

If you sum an expert's gradients over its replicas, how many losses does the result contain, and by
how many must you divide for the mean over all ranks?

Rules
- After the call every parameter that requires a gradient has the gradient of the trained loss, on
  every rank that holds it. Replicas must stay equal, and so must the router, on all ranks.
- A gradient that is None counts as zeros and takes part, because other ranks may have one. Any
  other is changed in place: it stays the same tensor, which need not be contiguous. Frozen
  parameters keep None.
- Experts differ along `expert`: their gradients must not be mixed, and are never sent along
  `expert` or over the world. With S bytes of this rank's experts, R replicas, P bytes of all other
  parameters and N ranks, a rank sends 2(R-1)/R·S + 2(N-1)/N·P bytes. One all-reduce per parameter
  is allowed.
- `world` holds all ranks that train this model. R may be 1, and so may N/R.

You may use all of `course_lib.comm`; `all_reduce(tensor, group, op)` works in place.
"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    """Turns gradients into those of the mean loss over all ranks, in place; collective.

    Args:
        experts: parameters of this rank's experts; each gradient is the sum over the ranks along
            `expert` of what their losses give.
        others: all other parameters; each gradient is that of this rank's loss.
        replicas: the R ranks that hold the same experts.
        world: the N ranks.
    """
    # BEGIN SOLUTION: two groups, one divisor
    for parameters, group in ((experts, replicas), (others, world)):
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                all_reduce(parameter.grad, group)  # mutate: same
                parameter.grad.div_(world.size)
    # END SOLUTION
