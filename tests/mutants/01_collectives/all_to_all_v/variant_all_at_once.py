"""variant: everything started at once, then waited for"""

import torch

from course_lib.comm import Group, irecv, isend


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    others = [index for index in range(group.size) if index != group.index]
    coming = [irecv(outputs[i], i, group) for i in others if outputs[i].nelement() > 0]
    going = [isend(inputs[j], j, group) for j in others if inputs[j].nelement() > 0]
    outputs[group.index][...] = inputs[group.index]
    for work in coming + going:
        work.wait()
