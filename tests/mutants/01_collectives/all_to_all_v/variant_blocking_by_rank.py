"""variant: blocking messages, the lower index of a pair sends first"""

import torch

from course_lib.comm import Group, recv, send


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    for peer in range(group.size):
        if peer == group.index:
            outputs[peer].copy_(inputs[peer])
            continue
        for sends in (group.index < peer, group.index > peer):
            if sends and inputs[peer].numel():
                send(inputs[peer], peer, group)
            if not sends and outputs[peer].numel():
                recv(outputs[peer], peer, group)
