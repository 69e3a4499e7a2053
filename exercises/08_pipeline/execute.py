"""A runtime for pipeline schedules: does what its rank's list of actions says, whatever it says.

Notebook 08. A schedule is data: for each rank a list of actions. `2F10` is stage 2's forward of
micro-batch 10, `2B10` its backward. One loop that runs such a list runs GPipe, 1F1B and whatever
will be invented next:

    GPipe   rank 0   0F0 0F1 0F2 0B0 0B1 0B2          1F1B   rank 0   0F0 0F1 0B0 0F2 0B1 0B2
            rank 1   1F0 1F1 1F2 1B0 1B1 1B2                 rank 1   1F0 1B0 1F1 1B1 1F2 1B2

What one action does is what it does in `gpipe_step`. Two things are new:

- *Messages must not block.* In 1F1B, rank 0 sends the activations of micro-batch 1 while rank 1
  sends it the gradients of micro-batch 0. If both wait until their message has been taken, they
  wait forever. So start to send (`isend`), go on, and wait later; until then the tensor that is
  sent must live and must not change.
- *Memory must come back.* 1F1B is there to hold the activations of p-r micro-batches on rank r of
  p, where GPipe holds m. That works only if a backward drops whatever its forward has kept.

Rules
- Rank r of the group has stage r, and its list holds one F and one B of each micro-batch, forwards
  in the order of the micro-batches, backwards too. So messages from one rank to another arrive in
  the order in which they are wanted, and you need not know the other ranks' lists.
- Do exactly what the list says, in its order. It has been checked: no deadlock is in it.
- Messages alone: `send`, `recv`, `isend`, `irecv` of `course_lib.comm`; no collective. For each
  micro-batch and border between two stages, one message there and one back.
- The gradients are those of the *mean* of the micro-batches' losses, added to what is in `grad`.
- There may be fewer micro-batches than ranks, and one rank alone. Inputs may be tokens (int64).
- Of a micro-batch whose B is over, hold nothing but what was sent and not yet waited for. (Detach
  what you send: an output brings its graph along, and with it the activations that came in.) A
  variable that still points to the last micro-batch's tensors is all right.
- On return nothing is under way: whatever was started has been waited for.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend` and
`comm.irecv` of `course_lib`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, isend, recv


def kind_and_micro(action: str) -> tuple[str, int]:
    """`2F10` is ("F", 10), `2B10` is ("B", 10); the stage is this rank's own."""
    kind = "F" if "F" in action else "B"
    return kind, int(action.partition(kind)[2])


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """A new tensor like `like`, with what index `source` has sent. Use it or not."""
    buffer = torch.empty_like(like)
    recv(buffer, source, group)
    return buffer


def execute(
    actions: Sequence[str],
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    """Runs this rank's part of a schedule.

    Args:
        actions: this rank's list, in order.
        stage: this rank's part of the model; one tensor in, one out.
        micro_batches: (inputs, targets) of each, all with the same number of rows; the same list on
            every rank. Only the first stage uses the inputs, and only the last the targets.
        loss: `loss(outputs, targets)`, the mean over a micro-batch.
        like: has the shape and dtype of what goes over a border for one micro-batch, both ways and
            at every border. Its values mean nothing.
        group: the stages' ranks; not always all ranks of the job.

    Returns:
        On the last stage the loss of each micro-batch, in order: without a graph, and not divided.
        An empty list on the other ranks.
    """
    raise NotImplementedError("execute: write your answer here")
