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
        # BEGIN SOLUTION: what a worker remembers
        self.weights, self.group, self.steps = weights, group, 0
        self.inner = torch.optim.Adam(weights, lr=RATE)
        self.anchors = [weight.clone() for weight in weights]  # where the ranks last met
        self.speeds = [torch.zeros_like(weight) for weight in weights]
        self.owed = [torch.zeros_like(weight) for weight in weights]  # not sent so far
        # END SOLUTION

    def step(self, gradients: list[torch.Tensor]) -> None:
        """Takes one training step; all ranks call it equally often.

        Args:
            gradients: of the loss of this rank's mini-batch, one for each weight, with its shape
                and dtype.
        """
        # BEGIN SOLUTION: DiLoCo that sends signs, with error feedback
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = gradient
        self.inner.step()
        self.steps += 1
        if self.steps % EVERY == 0:
            self._meet()

    def _meet(self) -> None:
        """Takes an outer step on all ranks, from the signs that they exchange."""
        ways = [a - w for a, w in zip(self.anchors, self.weights, strict=True)]
        ways = [way + owed for way, owed in zip(ways, self.owed, strict=True)]
        mine = _packed(ways)
        self.owed = [way - s for way, s in zip(ways, _unpacked(mine, ways), strict=True)]
        messages = mine.new_empty(self.group.size * len(mine))
        all_gather(messages, mine, self.group)
        everybody = [_unpacked(each, ways) for each in messages.chunk(self.group.size)]
        for n, some in enumerate(zip(*everybody, strict=True)):
            mean = torch.stack(some).mean(0)
            self.speeds[n] = MOMENTUM * self.speeds[n] + mean
            self.anchors[n] -= OUTER_RATE * (mean + MOMENTUM * self.speeds[n])
            self.weights[n].copy_(self.anchors[n])


PLACES = 2 ** torch.arange(8)  # what a bit is worth in its byte


def _packed(tensors: list[torch.Tensor]) -> torch.Tensor:
    """A float32 scale for each tensor and a bit for each sign, as bytes."""
    scales = torch.stack([tensor.abs().mean() for tensor in tensors]).float()
    signs = torch.cat([tensor.reshape(-1) >= 0 for tensor in tensors])
    signs = torch.nn.functional.pad(signs, (0, -len(signs) % 8)).view(-1, 8)
    return torch.cat([scales.view(torch.uint8), (signs * PLACES).sum(1).to(torch.uint8)])


def _unpacked(message: torch.Tensor, like: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in a message, with the shapes of `like`."""
    scales = message[: 4 * len(like)].clone().view(torch.float32).double()
    bits = (message[4 * len(like) :, None].long() & PLACES) != 0
    signs = (2.0 * bits.double() - 1).view(-1)[: sum(tensor.numel() for tensor in like)]
    parts = signs.split([tensor.numel() for tensor in like])
    return [s * part.view_as(t) for s, part, t in zip(scales, parts, like, strict=True)]
    # END SOLUTION
