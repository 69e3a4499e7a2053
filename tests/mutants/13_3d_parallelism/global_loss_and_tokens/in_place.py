"""mutant: the losses that were given have changed"""

from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]
    tokens = torch.tensor(sum(int((target != IGNORED).sum()) for target in targets))
    all_reduce(tokens, data)
    total = losses[0] if losses else torch.zeros((), dtype=torch.float64)
    for loss in losses[1:]:
        total += loss.double()
    all_reduce(total, told)
    return total / tokens, int(tokens)
