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

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
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
    raise NotImplementedError("all_to_all_v: write your answer here")
