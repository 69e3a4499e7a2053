"""mutant: everything goes through rank 0"""

import torch

from course_lib.comm import Group, recv, send


def move(piece: torch.Tensor, way: str, peer: int, group: Group) -> None:
    if piece.numel() and way == "send":
        send(piece, peer, group)
    elif piece.numel():
        recv(piece, peer, group)


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    me = group.index
    outputs[me].copy_(inputs[me])
    for source in range(group.size):
        for to in range(group.size):
            if source == to:
                continue
            if 0 in (source, to):
                if me == source:
                    move(inputs[to], "send", to, group)
                if me == to:
                    move(outputs[source], "recv", source, group)
            elif me == source:
                move(inputs[to], "send", 0, group)
            elif me == to:
                move(outputs[source], "recv", 0, group)
            elif me == 0:
                room = torch.empty_like(inputs[0])  # as if all pieces were equal
                move(room, "recv", source, group)
                move(room, "send", to, group)
