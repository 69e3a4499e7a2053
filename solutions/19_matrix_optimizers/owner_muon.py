"""owner_muon: bring each matrix together on one owner, which computes its update for all ranks.

Notebook 19, section 5. Every rank has a piece of each matrix of directions (momentum with its
look-ahead). The ranks send their pieces to the owners, the owners run Newton-Schulz, and every rank
gets its pieces of the results back.

Rules

- `choose_owners` returns an owner, from 0 to parts - 1, for each shape. An r × c matrix with r ≤ c
  costs 4·r²·c + 2·r³ operations per step. The busiest owner must have at most as many operations as
  under this rule: take the most expensive matrix first, and give each to the owner with the least
  so far.
- `directions[n]` holds the elements of matrix n, in order of memory, from `cuts[n].ranges[i][0]` up
  to but not including `cuts[n].ranges[i][1]`, where i = `group.index`. A piece has any shape, and
  may be empty. The ranges of a matrix follow one another in the order of the indices.
- `owner_muon` returns the pieces of the results, with the shapes of `directions`. It does not
  change its arguments.
- It makes exactly two all-to-alls: `all_to_all(output, input, group, output_sizes, input_sizes)`,
  where a tensor holds the parts of all members one after the other, and the lists say how many
  elements each part has. They send the owners only the pieces that they need, and send back only
  each rank's own pieces, both in the dtype of `directions`. Each rank computes only the matrices
  that `choose_owners` gives it.

`cuts[n].shape` is (rows, columns), and `cuts[n].count(i)` is the number of elements that index i
has. You may use `newton_schulz` of `course_lib.parallel`.
"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_to_all
from course_lib.parallel import Cut, newton_schulz


def choose_owners(shapes: Sequence[tuple[int, ...]], parts: int) -> list[int]:
    """Divides the matrices among the owners; without communication.

    Args:
        shapes: (rows, columns) of each matrix.
        parts: the number of owners.

    Returns:
        The owner of each matrix, the same list on every rank.
    """
    # BEGIN SOLUTION
    costs = [4 * r * r * c + 2 * r**3 for r, c in map(sorted, shapes)]
    load, owners = [0] * parts, [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda n: -costs[n]):
        owner = load.index(min(load))
        owners[number] = owner
        load[owner] += costs[number]
    return owners
    # END SOLUTION


def owner_muon(
    directions: Sequence[torch.Tensor], cuts: Sequence[Cut], group: Group, steps: int = 5
) -> list[torch.Tensor]:
    """Makes matrices orthogonal that are cut over the ranks; collective.

    Args:
        directions: this rank's piece of each matrix.
        cuts: how each matrix is cut; the same on every rank.
        group: the ranks that have the pieces.
        steps: of the Newton-Schulz iteration.

    Returns:
        This rank's piece of each result.
    """
    # BEGIN SOLUTION
    owners = choose_owners([cut.shape for cut in cuts], group.size)
    owned = [[n for n, o in enumerate(owners) if o == index] for index in range(group.size)]
    mine, order = owned[group.index], [n for numbers in owned for n in numbers]
    going = [sum(directions[n].numel() for n in numbers) for numbers in owned]
    coming = [sum(cuts[n].count(index) for n in mine) for index in range(group.size)]
    sent = torch.cat([directions[n].flatten() for n in order])
    arrived = sent.new_empty(sum(coming))
    all_to_all(arrived, sent, group, coming, going)

    whole = {n: sent.new_empty(cuts[n].shape).flatten() for n in mine}
    places = [(n, slice(*cuts[n].ranges[i])) for i in range(group.size) for n in mine]
    counts = [at.stop - at.start for _, at in places]
    for (n, at), part in zip(places, arrived.split(counts), strict=True):
        whole[n][at] = part
    shapes = {n: cuts[n].shape for n in mine}
    made = {n: newton_schulz(whole[n].view(shapes[n]), steps).flatten() for n in mine}

    back = torch.cat([sent[:0], *(made[n][at] for n, at in places)])
    home = torch.empty_like(sent)
    all_to_all(home, back, group, going, coming)
    counts = [directions[n].numel() for n in order]
    parts = dict(zip(order, home.split(counts), strict=True))
    return [parts[n].view_as(piece) for n, piece in enumerate(directions)]
    # END SOLUTION
