"""variant: the nearest behind first, with exchange where both have something"""

import torch

from course_lib.comm import Group, exchange, recv, send


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    outputs[group.index].copy_(inputs[group.index])
    for step in range(group.size - 1, 0, -1):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        gives, takes = inputs[to].numel() > 0, outputs[source].numel() > 0
        if gives and takes:
            exchange(inputs[to], to, outputs[source], source, group)
        elif gives:
            send(inputs[to], to, group)
        elif takes:
            recv(outputs[source], source, group)
