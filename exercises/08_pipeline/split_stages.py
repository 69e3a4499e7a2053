"""Split the layers into stages: the slowest stage sets the pace, and a tied weight is on two ranks.

Notebook 08. A pipeline cuts a model's layers into p stages, one for each rank. While it is full, it
is as fast as its slowest stage: all others wait for that one. Equal *counts* are not equal *costs*:
the last stage also has the head, whose product with the vocabulary costs as much as some layers.

`split_stages`
- It cuts layers 0 to n-1 into p stages: stage 0 has the first layers, stage 1 those that follow,
  and so on. Each layer is in exactly one stage, and no stage is empty.
- A stage costs the sum of its layers' costs. The most expensive stage must be as cheap as possible.
  Closing a stage as soon as it has its share is quick, but often wrong: with the costs 1 1 2 3 3 1,
  the share of each of 3 stages is 11/3, which gives 1+1+2, 3+3 and 1; the slowest stage costs 6.
  The best split is 1+1+2, 3 and 3+1, whose slowest stages cost 4.
- It must also work for 100 layers and 16 stages: there are too many splits to try them all.
- If there are fewer layers than stages, raise a ValueError with both numbers in its text. If rank
  11 of 16 failed with an IndexError instead, somebody would search for an afternoon.

`sum_tied_gradient`
Many models use one weight twice: as the embedding (a row for each word, on the first stage) and,
transposed, as the head (on the last stage). Each of the two ranks has a copy of that V×D weight,
and its backward computes only the gradient of *its own* use. The weight's gradient is the sum of
both; with it, the copies stay equal in every step.
- After the call, `weight.grad` is the sum on both ranks; the weights themselves are not changed.
- One of the two ranks may have no gradient (`weight.grad is None`): it counts as zeros. The other
  rank does not know that, and still waits for a message.
- Each rank sends its gradient once: S bytes for a gradient of S bytes.
- `pair` holds two ranks. If p = 1 it holds one rank, whose gradient autograd has already summed.

You may choose the algorithm (dynamic programming, or a search for the smallest cost that suffices),
which of several best splits you return, and what you use of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

import math
from collections.abc import Sequence
from functools import cache

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    """Assigns layers to stages.

    Args:
        costs: the cost of each layer, 0 or more, in any unit of time.
        p: the number of stages, 1 or more.

    Returns:
        p ranges of layers, `range(0, 3), range(3, 5), ...`, that follow one another.

    Raises:
        ValueError: there are fewer layers than stages.
    """
    raise NotImplementedError("split_stages: the split")


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    """Adds up the gradients of a weight that the first and the last stage share.

    Args:
        weight: this rank's copy of the weight, V×D on both ranks.
        pair: the ranks of the first and the last stage.
    """
    raise NotImplementedError("split_stages: the tied weight")
