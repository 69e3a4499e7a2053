"""tenth_of_the_bytes: the loss of data parallel training, with at most a tenth of its bytes.

Notebook 18. Open: there is no right answer.

Each rank has data of its own, from its own part of the input space, and all start with the same
weights of a small network. In each of 360 steps `step` gets the gradients of a mini-batch of this
rank's and changes this rank's weights. It may send what it likes, when it likes.

DDP averages the gradients in every step and takes a step of Adam with a learning rate of 0.01. The
loss on all data that it has after 120 steps is the goal. It is reached in the first step after
which *every* rank's own weights have it.

Valid is a worker that
- changes its weights in place;
- reaches the goal within the 360 steps, with the bytes that all ranks have sent until then at most
  a tenth of what DDP sends in its 120 steps, in float32;
- does so for 2, 3 and 4 ranks; 20 s of processor time in all.

Measured: these bytes in percent of DDP's, from the ledger; the mean of four fixed problems, for
four ranks. The lesson's local SGD, with 5 steps between two meetings, is not valid.

Free to use: torch, and all of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_gather

EVERY, RATE = 40, 0.02  # steps between two meetings; the inner learning rate
OUTER_RATE, MOMENTUM = 0.7, 0.5


class Worker:
    """Trains on one rank.

    Args:
        weights: this rank's, float64: two matrices and two vectors. All ranks have the same.
        group: the ranks.
    """

    def __init__(self, weights: list[torch.Tensor], group: Group) -> None:
        raise NotImplementedError("tenth_of_the_bytes: what a worker remembers")

    def step(self, gradients: list[torch.Tensor]) -> None:
        """One step.

        Args:
            gradients: of this rank's mini-batch, as the weights.
        """
        raise NotImplementedError("tenth_of_the_bytes: DiLoCo that sends signs, with error feedback")
