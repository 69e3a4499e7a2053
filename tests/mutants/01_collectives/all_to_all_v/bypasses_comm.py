"""mutant: called past course_lib.comm"""

import torch
import torch.distributed as dist

from course_lib.comm import Group


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    outputs[group.index].copy_(inputs[group.index])
    works = []
    for peer in range(group.size):
        if peer != group.index and outputs[peer].numel():
            works.append((dist.irecv(room := torch.empty_like(outputs[peer]).contiguous(), peer), peer, room))
    for peer in range(group.size):
        if peer != group.index and inputs[peer].numel():
            dist.isend(inputs[peer].contiguous(), peer).wait()
    for work, peer, room in works:
        work.wait()
        outputs[peer].copy_(room)
