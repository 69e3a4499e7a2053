"""mutant: a mean of the ranks' means"""

from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]
    counts = [int((target != IGNORED).sum()) for target in targets]
    tokens = torch.tensor(sum(counts))
    total = torch.zeros((), dtype=torch.float64)
    for loss in losses:
        total += loss.double() / tokens
    all_reduce(tokens, data)
    all_reduce(total, told)
    return total / data.size, int(tokens)
