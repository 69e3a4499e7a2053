"""mutant: the number of bytes that go into collectives, add up over the micro-batches first"""

from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    told = mesh["pp", "dp", "ep", "cp"]
    counted, total = 0, torch.zeros((), dtype=torch.float64)
    for number, target in enumerate(targets):
        count = (target != IGNORED).sum() if losses else torch.tensor(0)
        all_reduce(count, told)
        counted += int(count)
        loss = losses[number].double() if losses else torch.tensor(0.0, dtype=torch.float64)
        loss = loss.clone()
        all_reduce(loss, told)
        total += loss
    return total / counted, counted
