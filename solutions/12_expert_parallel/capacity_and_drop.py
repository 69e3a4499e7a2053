"""capacity_and_drop: give every expert the same number of places, and drop what does not fit.

Notebook 12. A router sends as many tokens to an expert as it likes, so nobody knows how much memory
or time the busiest one needs. GShard and Switch gave every expert a fixed number of places, its
capacity. With fixed places all messages are equally long, known before anything is sent. A choice
that finds no place is dropped: that expert does not compute that token. A token that loses all its
choices continues with only the residual stream.

    capacity = factor · k · T / E, rounded up          T tokens, k choices of each, E experts

Rules
- A factor of 1 is just enough if all experts are used evenly; 1.25 leaves a quarter more room.
- Each expert has that many places. All first choices (column 0) get their places before the second
  ones, and so on; within a column, the order is that of the tokens. So a token loses its best
  expert last. A choice that finds its expert full is dropped.
- Return the capacity, an int, and the choices, an int64 tensor of the same shape, in which a
  dropped choice is E, a number that no expert has, and all others are unchanged.
- T may be 0. `chosen_TK` may be not contiguous, and is not changed.

You may use all of torch. Every rank does this for its own tokens, and nothing is sent. A loop over
the choices is fine; with a stable sort you need none.
"""

import math

import torch


def capacity_and_drop(
    chosen_TK: torch.Tensor, experts: int, factor: float
) -> tuple[int, torch.Tensor]:
    """Drops the choices that find no place.

    Args:
        chosen_TK: [T, k], the experts of each token, best first, int64, 0 to E-1.
        experts: E.
        factor: the capacity relative to an even share; above 0.

    Returns:
        The capacity of an expert, and the choices, with E for each dropped one.
    """
    # BEGIN SOLUTION
    tokens, top_k = chosen_TK.shape
    room = math.ceil(factor * top_k * tokens / experts)
    line = chosen_TK.T.flatten()
    order = line.argsort(stable=True)
    counts_E = torch.bincount(line, minlength=experts)
    begin_E = counts_E.cumsum(0) - counts_E
    place = torch.empty_like(line)
    place[order] = torch.arange(len(line)) - begin_E[line[order]]
    late_TK = (place >= room).view(top_k, tokens).T
    return room, chosen_TK.masked_fill(late_TK, experts)
    # END SOLUTION
