"""GPipe: a model cut into stages, one on each rank, and a batch cut into micro-batches.

Notebook 08. Stage 0 turns inputs into activations, which go to stage 1, and so on; the last stage's
output goes into the loss. Gradients come back the same way. With one batch in one piece, only one
rank works at a time. With m micro-batches, rank 1 runs the first while rank 0 runs the second:

    rank 0   F0 F1 F2 .. .. B0 B1 B2          F2: forward of micro-batch 2
    rank 1   .. F0 F1 F2 B0 B1 B2 ..          B2: its backward

Write one step of one rank: *all forwards, then all backwards*. Autograd knows nothing of other
ranks, so the graph is cut at each border between two stages, and you connect it by hand:

    forward    receive the activations; they are a leaf that must require a gradient, or there is
               none to send back; run the stage; send its output on
    backward   receive the gradient of that output; run the stage's backward with it; send back the
               gradient of the activations that were received

Rules
- Stage s is on index s of the group. Use only messages: `send`, `recv`, `isend`, `irecv` of
  `course_lib.comm`; no collective. Send one message in each direction for each micro-batch and each
  border between two stages.
- Run the forwards in the order of the micro-batches, and the backwards in the same or in the
  opposite order. Messages carry no names, so all ranks must use the same order.
- The gradients are those of the *mean* of the micro-batches' losses. They are added to what is in
  `grad`, as autograd does; the caller zeroes gradients and steps.
- There may be fewer micro-batches than ranks, and only one rank. Inputs may be tokens (int64).
- When the function returns, nothing is under way: everything that was started has been waited for.

Each border carries m activations and m gradients, and every rank holds what all m forwards have
kept. A blocking `send` is good enough here: why can it not deadlock?

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend` and
`comm.irecv` of `course_lib`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, recv, send


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """Receives a tensor like `like` from index `source`, in a new tensor. You may use it or not."""
    buffer = torch.empty_like(like)
    recv(buffer, source, group)
    return buffer


def gpipe_step(
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    """Runs all forwards, then all backwards, of this rank's stage.

    Args:
        stage: this rank's part of the model; one tensor in, one out.
        micro_batches: (inputs, targets) of each, all with the same number of rows; the same list on
            every rank. Only the first stage uses the inputs, and only the last the targets.
        loss: `loss(outputs, targets)`, the mean over a micro-batch.
        like: a tensor with the shape and dtype of every message: one micro-batch's activations or
            gradients at any border. Its values mean nothing.
        group: the stages' ranks; not always all ranks of the job.

    Returns:
        On the last stage the loss of each micro-batch, in order, without a graph and not divided by
        their number. On the other ranks an empty list.
    """
    raise NotImplementedError("gpipe_step: write your answer here")
