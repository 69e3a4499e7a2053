"""heal: a rank that comes back gets everything from one living peer, and from no disk.

Notebook 17. `heal(job, rank, peers, group)` is called on every member. Member `rank` (an index of
the group) has a new `job` that has seen nothing. Afterwards it must be, bit for bit, what its peer
is, so that all next steps are the same.

- `peers` says how many steps each living member has made: {index: steps}. The source is the lowest
  index of those that have made the most. Everything comes from it alone.
- A job has `model` (the parameters and buffers in its `state_dict`), `optimizer` (its states do not
  exist before its first step), `sampler` (with `state_dict` and `load_state_dict`), `generator` (a
  torch.Generator that dropout draws from) and `step`, an int. The next step depends on all five.
- The source goes on as if nothing had happened: no number of its job changes. All other members
  send and receive nothing, for they are busy with the next step.
- No files. Nobody but the source knows how large its state is.

Free to use: `send` and `recv` of `course_lib.comm` (contiguous tensors, indices of the group), and
`torch.save` and `torch.load` with an `io.BytesIO`, which is memory.

Your answer may use `comm.Group`, `comm.send` and `comm.recv` of `course_lib`.
"""

import io
from collections.abc import Mapping
from typing import Any

import torch

from course_lib.comm import Group, recv, send


def heal(job: Any, rank: int, peers: Mapping[int, int], group: Group) -> None:
    """Makes member `rank`'s job a copy of a living peer's.

    Args:
        job: this member's.
        rank: index of the member that heals.
        peers: index to steps, of the living.
        group: all members.
    """
    raise NotImplementedError("heal: heal")
