"""variant: sums over pp before dp, ep and cp, one after the other; each group larger than 1"""

from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    tokens = torch.tensor(sum(int((target != IGNORED).sum()) for target in targets))
    total = torch.zeros(1, dtype=torch.float64)
    for loss in losses:
        total[0] += loss
    if mesh["pp"].size > 1:
        all_reduce(total, mesh["pp"])
    for axis in ("dp", "ep", "cp"):
        if mesh[axis].size > 1:
            all_reduce(total, mesh[axis])
            all_reduce(tokens, mesh[axis])
    return total[0] / tokens, int(tokens)
