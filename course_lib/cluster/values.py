"""Numbers that are known, on their way: counts of tokens travel, floats have no values.

Notebook: 13 The mesh (a cluster in the cell).
Costs the sum of a few numbers.
The production version would send them.

Integers that no float has decided are known on simulated ranks (see `dataless`). Their calls are
carried out, each representative counting as often as there are ranks that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from course_lib.cluster.fold import Fold
from course_lib.comm.matching import Post
from course_lib.trace import Refusal

Tensors = tuple[torch.Tensor, torch.Tensor]  # output and input of one rank
Values = list[torch.Tensor]
PARTS = ("reduce_scatter", "all_to_all")  # bring each member something else
COMBINE: Mapping[str, Callable[[Values], torch.Tensor]] = {
    "sum": lambda values: torch.stack(values).sum(0, dtype=values[0].dtype),
    "product": lambda values: torch.stack(values).prod(0, dtype=values[0].dtype),
    "max": lambda values: torch.stack(values).amax(0),
    "min": lambda values: torch.stack(values).amin(0),
}


def known(tensor: torch.Tensor) -> bool:
    """Whether a tensor of a simulated rank has values."""
    return tensor.device.type != "meta"


def carry_values(
    posts: Mapping[int, Post], tensors: Mapping[int, Tensors], members: Sequence[int], fold: Fold
) -> None:
    """Writes what a collective brings into the outputs that have values.

    Args:
        posts: of each rank that is run.
        tensors: of the same.
        members: global ranks of the group, in the order of their index.
        fold: who stands for whom.

    Raises:
        Refusal: an output should have values that no rank knows.
    """
    wanted = {rank: out for rank, (out, _) in tensors.items() if known(out) and out.numel()}
    if not wanted:
        return
    post = next(iter(posts.values()))
    _refuse_unknown(post.op, [given for _, given in tensors.values()])
    # In the order of the members; an equal rank gives what its representative gives.
    given = [tensors[fold.of(member)][1].detach() for member in members]
    sizes = [posts[fold.of(member)].given for member in members]
    places = {rank: members.index(rank) if post.op in PARTS else 0 for rank in wanted}
    values = {place: _value(post, given, sizes, place) for place in set(places.values())}
    for rank, place in places.items():  # only now: an output may be what another one is given
        wanted[rank].copy_(values[place].reshape(wanted[rank].shape))


def carry_message(output: torch.Tensor, input: torch.Tensor) -> None:
    """Writes a message to where it is received, if values are wanted there.

    Raises:
        Refusal: the sender does not know them.
    """
    if known(output) and output.numel():
        _refuse_unknown("a message", [input])
        output.view(torch.uint8).copy_(input.view(torch.uint8).view(output.view(torch.uint8).shape))


def _value(post: Post, given: Values, sizes: Sequence[Sequence[int]], index: int) -> torch.Tensor:
    """What the member of this index gets."""
    match post.op:
        case "all_reduce" | "reduce":
            return COMBINE[post.reduction](given)
        case "reduce_scatter":
            return COMBINE[post.reduction](given).reshape(-1).chunk(len(given))[index]
        case "all_gather":
            return torch.cat([each.reshape(-1) for each in given])
        case "all_to_all":
            cut = [each.reshape(-1).split(list(n)) for each, n in zip(given, sizes, strict=True)]
            return torch.cat([parts[index] for parts in cut])
        case _:
            return given[max(post.root, 0)].clone()


def _refuse_unknown(op: str, given: Sequence[torch.Tensor]) -> None:
    if not all(known(each) for each in given):
        raise Refusal(
            f"the values that {op} brings",
            "tensors without data on simulated ranks",
            "what floats decide is not known there: leave out what depends on it",
        )
