"""Who averages which gradients when experts are spread over ranks.

Notebook 12. The ranks are a mesh: along `expert` the experts are spread, and along `replica` are
the ranks that hold the same ones. All ranks have tokens of their own, whatever experts they hold.
So there are two kinds of parameters, and two groups to average them over:

                 expert ──>                      4 ranks, 4 experts, two of them on each rank
    replica   rank 0: experts 0, 1   rank 1: experts 2, 3
       |      rank 2: experts 0, 1   rank 3: experts 2, 3
       v      router, attention, norms, embeddings: the same on all four

What is trained is the mean, over all ranks, of each rank's loss. After a rank's backward

- the router and all other parameters have the gradient of this rank's loss;
- an expert's have more: its rows came from all ranks along `expert`, and their gradients came back
  with the rows. They are added up there: the sum over those ranks, each of its own loss.

How many losses are in what you get when you have summed an expert's gradients over its replicas,
and by how many must you divide for the mean over all ranks?

Rules
- After the call every parameter that requires a gradient has the gradient of the trained loss, on
  every rank that holds it. Replicas must stay equal, and so must the router, on all ranks.
- A gradient that is None counts as zeros, and takes part: the others may have one. Frozen
  parameters keep None.
- Experts differ along `expert`: their gradients must not be mixed, and nothing of theirs travels
  along `expert` or over the world. With S bytes of this rank's experts, R replicas, P bytes of the
  rest and N ranks, 2(R-1)/R·S + 2(N-1)/N·P bytes are sent. It may be one all-reduce a parameter.
- `world` is all ranks that train this model. R may be 1, and N/R may be.

Free to use: all of `course_lib.comm`; `all_reduce(tensor, group, op)` works in place.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    """Makes gradients those of the mean loss over all ranks, in place; after backward.

    Args:
        experts: parameters of this rank's experts; each gradient is the sum over the ranks along
            `expert` of what their losses give.
        others: all other parameters; each gradient is that of this rank's loss.
        replicas: the R ranks that hold the same experts.
        world: the N ranks.
    """
    raise NotImplementedError("expert_grad_sync: two groups, one divisor")
