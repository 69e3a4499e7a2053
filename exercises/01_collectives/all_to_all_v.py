"""All-to-all from messages: everybody has a piece for everybody, of any size, some of them empty.

Notebook 01. Rank i's piece for rank j becomes rank j's piece from rank i: a transpose, in which
each piece crosses once. Mixture-of-experts models send tokens to their experts in this way, and
nobody knows beforehand how many go where (lesson 12).

Rules: an empty piece gets no message, since it would cost as much time as any small one. Both ends
know that it is empty: `inputs[j]` of rank i has as many elements as `outputs[i]` of rank j. All
others are one message each. A piece for oneself is copied. Outputs are filled in place; inputs stay
as they are; both may be non-contiguous (the messages take care of that). Peers are indices in the
group: `group.index`, `group.size`.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, irecv, isend


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    """Sends `inputs[j]` to member j, and fills `outputs[i]` with what member i sends here.

    Args:
        outputs: one tensor a member, any shapes; filled in place.
        inputs: one tensor a member, any shapes; not changed.
        group: the ranks.
    """
    raise NotImplementedError("all_to_all_v: write your answer here")
