"""tenth_of_the_bytes: reach the loss of data parallel training with at most a tenth of its bytes.

Notebook 18. This exercise is open: it has no single right answer. Valid workers are compared by the
bytes that they send.

Each rank has its own data, from its own part of the input space. All ranks begin with the same
weights of a small network. You write a `Worker`, of which each rank makes one. The grader computes
the gradients of a mini-batch of this rank's data at this rank's current weights and calls `step`
with them, 360 times. `step` changes this rank's weights in place. It may send whatever it likes, in
any step, and the ranks' weights may differ.

The goal is a loss on the data of all ranks: the one that DDP reaches in 120 steps. DDP averages the
gradients over the ranks in every step, and takes a step of Adam with a learning rate of 0.01. You
have reached the goal after the first step in which *every* rank's weights have this loss or less.

A worker is valid if
- it reaches the goal within the 360 steps;
- the bytes that all ranks together have sent by then are at most a tenth of those that DDP sends in
  its 120 steps, with float32 gradients and a ring all-reduce;
- both hold for 2, 3 and 4 ranks. All problems of a check together may take 20 s of processor time
  on each rank.

Measured: the bytes sent until the goal is reached, in percent of DDP's; less is better. They are
counted in the ledger, so send through the group with `course_lib.comm`. The figure is the mean over
four fixed problems with four ranks. Local SGD as in the lesson, with 5 steps between two meetings,
sends too much to be valid. You may use torch and all of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_gather

EVERY, RATE = 40, 0.02  # steps between two meetings; the inner learning rate
OUTER_RATE, MOMENTUM = 0.7, 0.5


class Worker:
    """Trains the network on one rank.

    Args:
        weights: this rank's weights, two matrices and two vectors in float64. They begin with the
            same values on all ranks. Keep these tensors: the grader reads the weights from them.
        group: all ranks.
    """

    def __init__(self, weights: list[torch.Tensor], group: Group) -> None:
        raise NotImplementedError("tenth_of_the_bytes: what a worker remembers")

    def step(self, gradients: list[torch.Tensor]) -> None:
        """Takes one training step; all ranks call it equally often.

        Args:
            gradients: of the loss of this rank's mini-batch, one for each weight, with its shape
                and dtype.
        """
        raise NotImplementedError("tenth_of_the_bytes: DiLoCo that sends signs, with error feedback")
