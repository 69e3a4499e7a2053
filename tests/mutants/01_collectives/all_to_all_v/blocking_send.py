"""mutant: deadlock, Everybody sends and nobody receives"""

import torch

from course_lib.comm import Group, recv, send


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    outputs[group.index].copy_(inputs[group.index])
    for step in range(1, group.size):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        if inputs[to].numel():
            send(inputs[to], to, group)
        if outputs[source].numel():
            recv(outputs[source], source, group)
