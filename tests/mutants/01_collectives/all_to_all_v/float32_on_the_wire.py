"""mutant: as large as float32's rounding"""

import torch

from course_lib.comm import Group, irecv, isend


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    outputs[group.index].copy_(inputs[group.index])
    for step in range(1, group.size):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        under_way = []
        if outputs[source].numel():
            narrow = outputs[source].float()
            under_way.append(irecv(narrow, source, group))
        if inputs[to].numel():
            under_way.append(isend(inputs[to].float(), to, group))
        for work in under_way:
            work.wait()
        if outputs[source].numel():
            outputs[source].copy_(narrow)
