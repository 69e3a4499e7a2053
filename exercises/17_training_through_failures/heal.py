"""heal: a rank that comes back gets everything from one living peer, and nothing from disk.

Notebook 17. Every member of the group calls `heal(job, rank, peers, group)`. Member `rank` (an
index of the group) has a new `job` that has made no step. Afterwards its state must equal its
source's bit for bit, so that all later steps are the same.

- `peers` maps the index of each living member to the number of steps that it has made. The source
  is the lowest index among those that have made the most steps. Everything comes from the source
  alone.
- A job has five attributes, and the next step depends on all of them: `model` (the parameters and
  buffers in its `state_dict`), `optimizer` (its states do not exist before its first step),
  `sampler` (with `state_dict` and `load_state_dict`), `generator` (a torch.Generator that dropout
  draws from) and `step`, an int.
- The source continues as if nothing had happened: nothing in its job changes. All other members
  send and receive nothing, because they are busy with the next step.
- Use no files. Only the source knows how large its state is.

You may use `send` and `recv` of `course_lib.comm` (the peer is an index of the group), and
`torch.save` and `torch.load` with an `io.BytesIO`, which keeps the bytes in memory.

Your answer may use `comm.Group`, `comm.send` and `comm.recv` of `course_lib`.
"""

import io
from collections.abc import Mapping
from typing import Any

import torch

from course_lib.comm import Group, recv, send


def heal(job: Any, rank: int, peers: Mapping[int, int], group: Group) -> None:
    """Makes member `rank`'s job a copy of its source's; every member calls it.

    Args:
        job: this member's job; only that of member `rank` changes.
        rank: index of the member that gets the state.
        peers: the number of steps of each living member, by index.
        group: all members.
    """
    raise NotImplementedError("heal: heal")
