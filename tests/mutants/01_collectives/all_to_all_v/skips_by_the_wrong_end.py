"""mutant: deadlock, an empty piece skipped at one end"""

import torch

from course_lib.comm import Group, irecv, isend


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    outputs[group.index].copy_(inputs[group.index])
    for step in range(1, group.size):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        under_way = []
        if inputs[source].numel():
            under_way.append(irecv(outputs[source], source, group))
        if inputs[to].numel():
            under_way.append(isend(inputs[to], to, group))
        for work in under_way:
            work.wait()
