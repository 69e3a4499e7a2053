"""A runtime for pipeline schedules: it runs its rank's list of actions, whatever the schedule.

Notebook 08. A schedule is data: a list of actions for each rank. `2F10` is stage 2's forward of
micro-batch 10, `2B10` its backward. One loop that runs such a list runs GPipe, 1F1B and any other
schedule:

    GPipe   rank 0   0F0 0F1 0F2 0B0 0B1 0B2          1F1B   rank 0   0F0 0F1 0B0 0F2 0B1 0B2
            rank 1   1F0 1F1 1F2 1B0 1B1 1B2                 rank 1   1F0 1B0 1F1 1B1 1F2 1B2

Each action does the same as in `gpipe_step`. Two things are new:

- *Sends must not block.* In 1F1B, rank 0 sends the activations of micro-batch 1 while rank 1 sends
  it the gradients of micro-batch 0. If both wait until their message has been received, they wait
  forever. So start a send (`isend`), go on, and wait later; until then the tensor that is sent must
  stay alive and must not change.
- *Memory must be freed.* The point of 1F1B is that rank r of p holds the activations of p-r
  micro-batches, where GPipe holds m. That works only if a backward drops everything that its
  forward has kept.

Rules
- Rank r, by its index in the group, has stage r. Its list holds one F and one B of each
  micro-batch, the forwards in the order of the micro-batches, and the backwards too. So messages
  from one rank to another arrive in the order in which they are needed, and you need not know the
  other ranks' lists.
- Do exactly what the list says, in its order. The schedule has been checked: it has no deadlock.
- Use only messages: `send`, `recv`, `isend`, `irecv` of `course_lib.comm`; no collective. Send one
  message in each direction for each micro-batch and each border between two stages.
- The gradients are those of the *mean* of the micro-batches' losses, added to what is in `grad`.
- There may be fewer micro-batches than ranks, and only one rank. Inputs may be tokens (int64).
- Once the B of a micro-batch is over, hold nothing of it except tensors that were sent and not yet
  waited for. (Detach what you send: an output keeps its graph alive, and with it the received
  activations.) A variable that still refers to the last micro-batch's tensors is fine.
- When the function returns, nothing is under way: everything that was started has been waited for.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, isend, recv


def kind_and_micro(action: str) -> tuple[str, int]:
    """Returns ("F", 10) for `2F10` and ("B", 10) for `2B10`; the stage is always this rank's."""
    kind = "F" if "F" in action else "B"
    return kind, int(action.partition(kind)[2])


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """Receives a tensor like `like` from index `source`, in a new tensor. You may use it or not."""
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
        like: a tensor with the shape and dtype of every message: one micro-batch's activations or
            gradients at any border. Its values mean nothing.
        group: the stages' ranks; not always all ranks of the job.

    Returns:
        On the last stage the loss of each micro-batch, in order, without a graph and not divided by
        their number. On the other ranks an empty list.
    """
    # BEGIN SOLUTION
    kept, sending, losses = {}, [], []  # mutate: same
    first, last = group.index == 0, group.index == group.size - 1
    for kind, k in map(kind_and_micro, actions):
        inputs, targets = micro_batches[k]
        if kind == "F":
            if not first:
                inputs = received(like, group.index - 1, group).requires_grad_()
            outputs = stage(inputs)
            if last:
                outputs = loss(outputs, targets)
                losses.append(outputs.detach())
                outputs = outputs / len(micro_batches)
            else:
                sending.append(isend(outputs.detach(), group.index + 1, group))
            kept[k] = inputs, outputs
        else:
            inputs, outputs = kept.pop(k)
            outputs.backward(None if last else received(like, group.index + 1, group))
            if not first:
                sending.append(isend(inputs.grad, group.index - 1, group))
    for work in sending:
        work.wait()
    return losses
    # END SOLUTION
