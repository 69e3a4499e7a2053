"""variant: one message of 16 bytes, in which only the last stage counts"""

from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    both = torch.zeros(2, dtype=torch.float64)
    for loss, target in zip(losses, targets):
        both += torch.stack([loss.double(), (target != IGNORED).sum().double()])
    all_reduce(both, mesh["pp", "dp", "ep", "cp"])
    return both[0] / both[1], int(both[1])
