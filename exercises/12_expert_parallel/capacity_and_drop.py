"""capacity_and_drop: give every expert the same number of places, and drop what does not fit.

Notebook 12. A router sends as many tokens to an expert as it likes, so nobody knows how much memory
or time the busiest one needs. GShard and Switch gave every expert a fixed number of places, its
capacity. With fixed places all messages are equally long, known before anything is sent. A choice
that finds no place is dropped: that expert does not compute that token, and a token that loses all
its choices goes on with the residual stream alone.

    capacity = factor · k · T / E, rounded up          T tokens, k choices of each, E experts

Rules
- A factor of 1 is just enough if experts are evenly used; 1.25 leaves a quarter of slack.
- Each expert has that many places. All first choices (column 0) are seated before the second ones,
  and so on; those of one column in the order of the tokens. Who comes too late is dropped: its best
  expert should be the last thing that a token loses.
- Back come the capacity, an int, and the choices, int64 of the same shape: a choice that was
  dropped is E, a number that no expert has, and all others are as they were.
- T may be 0. `chosen_TK` may be not contiguous, and is not changed.

Allowed is all of torch. It is one process: every rank does this for its own tokens, and nothing is
sent. A loop over choices is right; the answer with a stable sort has none.

Your answer may use nothing of `course_lib`.
"""

import math

import torch


def capacity_and_drop(
    chosen_TK: torch.Tensor, experts: int, factor: float
) -> tuple[int, torch.Tensor]:
    """Takes back the choices that find no place.

    Args:
        chosen_TK: [T, k], the experts of each token, best first, int64, 0 to E-1.
        experts: E.
        factor: the capacity in even shares, above 0.

    Returns:
        The capacity of an expert, and the choices with E for each that was dropped.
    """
    raise NotImplementedError("capacity_and_drop: write your answer here")
