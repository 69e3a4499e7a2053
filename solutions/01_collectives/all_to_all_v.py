"""All-to-all from messages: every rank has a piece for every rank, of any size, some of them empty.

Notebook 01. Rank i's piece for rank j becomes rank j's piece from rank i: a transpose, in which
each piece is sent once. Mixture-of-experts models send tokens to their experts in this way, and
nobody knows beforehand how many go where (lesson 12).

Rules: send no message for an empty piece, since it would cost as much time as any small message.
Both ends know that it is empty: `inputs[j]` of rank i has the shape of `outputs[i]` of rank j.
Every other piece is one message. A rank's piece for itself is copied. Fill the outputs in place,
and do not change the inputs; both may be non-contiguous (the messages take care of that). When the
function returns, every message has been waited for, also those that were sent. Peers are indices in
the group: `group.index`, `group.size`.
"""

import torch

from course_lib.comm import Group, irecv, isend


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    """Sends `inputs[j]` to member j, and fills `outputs[i]` with what member i sends here.

    Args:
        outputs: one tensor for each member, any shapes; filled in place.
        inputs: one tensor for each member, any shapes; not changed.
        group: the ranks.
    """
    # BEGIN SOLUTION
    outputs[group.index].copy_(inputs[group.index])
    for step in range(1, group.size):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        under_way = []
        if outputs[source].numel():
            under_way.append(irecv(outputs[source], source, group))
        if inputs[to].numel():
            under_way.append(isend(inputs[to], to, group))
        for work in under_way:
            work.wait()
    # END SOLUTION
