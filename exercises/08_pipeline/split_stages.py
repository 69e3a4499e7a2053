"""Split the layers into stages: the slowest stage sets the pace, and a tied weight has two homes.

Notebook 08. A pipeline cuts a model's layers into p stages, one for each rank. While it is full, it
is as fast as its slowest stage: all others wait for that one. Equal *counts* are not equal *costs*:
the last stage also has the head, whose product with the vocabulary costs as much as some layers.

`split_stages`
- cuts layers 0 to n-1 into p stages: stage 0 has the first ones, stage 1 those that follow, and so
  on. Each layer is in exactly one stage; no stage is empty.
- The slowest stage (the sum of its layers' costs) is as fast as it can be. Closing a stage as soon
  as it has its share is quick, and often wrong: of the costs 1 1 2 3 3 1 each of 3 stages should
  have 11/3, so that makes 1+1+2, 3+3 and 1, at the pace of 6. Best is 1+1+2, 3 and 3+1: 4.
- It must answer for 100 layers and 16 stages: there are too many splits to try them all.
- Fewer layers than stages: raise ValueError, whose text has both numbers. Rank 11 of 16 that fails
  with an IndexError costs an afternoon.

`sum_tied_gradient`
Many models use one weight twice: the embedding (a row for each word, on the first stage), and,
transposed, the head (on the last stage). Each of the two ranks has a copy of that V×D weight, and
its backward finds the gradient of *its* use alone. The weight's gradient is the sum of both; with
it, the copies stay equal step for step.
- After the call `weight.grad` is the sum on both ranks; the weights themselves are not touched.
- One of the two may have no gradient (`weight.grad is None`): it counts as zeros. The other rank
  does not know that, and waits for a message all the same.
- Each rank sends its gradient once: S bytes for a gradient of S bytes.
- `pair` holds two ranks; for p = 1 it holds one, whose gradient autograd has already summed.

Free: the algorithm (dynamic programming, or a search for the smallest cost that is enough), which
of several best splits you return, and what of `course_lib.comm` you use.

Your answer may use `comm` of `course_lib`.
"""

import math
from collections.abc import Sequence
from functools import cache

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    """The layers of each stage.

    Args:
        costs: of each layer, 0 or more, in any unit of time.
        p: stages, 1 or more.

    Returns:
        p ranges of layers, `range(0, 3), range(3, 5), ...`, that follow one another.

    Raises:
        ValueError: there are fewer layers than stages.
    """
    raise NotImplementedError("split_stages: the split")


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    """Adds up the gradients of a weight that the first and the last stage share.

    Args:
        weight: this rank's copy, V×D on both ranks.
        pair: the ranks of the first and the last stage.
    """
    raise NotImplementedError("split_stages: the tied weight")
