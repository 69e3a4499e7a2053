"""mutant: each byte is sent once"""

import torch

from course_lib.comm import Group, irecv, isend


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    outputs[group.index].copy_(inputs[group.index])
    for step in range(1, group.size):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        under_way = []
        room = inputs[0].new_zeros(1 << 16)
        padded = room.clone()
        padded[: inputs[to].numel()] = inputs[to].flatten()
        under_way.append(irecv(room, source, group))
        under_way.append(isend(padded, to, group))
        for work in under_way:
            work.wait()
        outputs[source].copy_(room[: outputs[source].numel()].view(outputs[source].shape))
