"""owner_muon: each matrix whole on one owner, who makes its update for all.

Notebook 19, section 5. Every rank has a piece of each direction (momentum with its look ahead). The
pieces go to the owners, the owners run Newton-Schulz, and pieces of the results come back.

Rules

- `choose_owners` returns an owner, 0 to parts - 1, for each shape. An r × c matrix with r ≤ c costs
  4·r²·c + 2·r³ operations a step. The busiest owner has at most what this rule gives him: the most
  expensive matrix first, each to whoever has least so far.
- `directions[n]` holds the elements of matrix n, in order of memory, from `cuts[n].ranges[i][0]` up
  to `cuts[n].ranges[i][1]`, i = `group.index`. A piece has any shape, and may be empty. The
  ranges of a matrix lie one after the other, in the order of the indices.
- `owner_muon` returns pieces of the results, with the same shapes. It changes nothing given.
- It makes two all-to-alls, and sends only what an owner needs, and what he returns. Each rank
  computes only the matrices that `choose_owners` gives him.

`cuts[n].shape` is (rows, columns), `cuts[n].count(i)` the elements of index i. Allowed is
`newton_schulz` of `course_lib.parallel`.

Your answer may use `comm`, `parallel.Cut`, `parallel.newton_schulz` and
`parallel.newton_schulz_flops` of `course_lib`.
"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_to_all
from course_lib.parallel import Cut, newton_schulz


def choose_owners(shapes: Sequence[tuple[int, ...]], parts: int) -> list[int]:
    """Divides matrices among owners.

    Args:
        shapes: (rows, columns) of each.
        parts: how many owners there are.

    Returns:
        The owner of each matrix, the same list on every rank.
    """
    raise NotImplementedError("owner_muon: write your answer here")


def owner_muon(
    directions: Sequence[torch.Tensor], cuts: Sequence[Cut], group: Group, steps: int = 5
) -> list[torch.Tensor]:
    """Makes cut matrices orthogonal.

    Args:
        directions: this rank's piece of each matrix.
        cuts: how each is cut, the same on every rank.
        group: the ranks that have the pieces.
        steps: of Newton-Schulz.

    Returns:
        This rank's piece of each result.
    """
    raise NotImplementedError("owner_muon: write your answer here")
