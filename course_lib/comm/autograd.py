"""Collectives that gradients flow through: each forward has a conjugate that is its backward.

Notebook: 06 Tensor parallel (f and g), 07 Sequence parallel, 12 Expert parallel.
Paper: Shoeybi et al., "Megatron-LM" (2019), section 3 (f and g); Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models" (2022), section 4 (their sharded forms).
Costs: forward and backward of a pair are in its docstring, with S the bytes of the full tensor.
The production version (Megatron-core's mappings.py, DTensor) fuses them with the matrix product.

    forward                backward               the tensor before / after, in this group
    copy_to_group          all-reduce             replicated → replicated, used differently     (f)
    reduce_from_group      identity               partial sums → replicated                     (g)
    split_to_group         all-gather             replicated → shards along a dim
    gather_from_group      split                  shards → replicated
    all_gather_to_group    reduce-scatter         shards → full, used differently
    reduce_scatter_in_group  all-gather           partial sums → shards of the sum
    exchange_in_group      exchange, inverted     rows by owner → rows by receiver

"Used differently": every rank goes on with its own part of the work, so its gradient is one summand
of the whole gradient. "Replicated": every rank does the same, so each has the whole gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any

import torch

from course_lib.comm.collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from course_lib.comm.errors import CommError
from course_lib.comm.group import Group

Map = Callable[[torch.Tensor], torch.Tensor]


class _Pair(torch.autograd.Function):
    """A map for the tensor on its way forward, and its conjugate for the gradient coming back.

    The conjugate's own conjugate is the map: so a gradient can be differentiated once more.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, ahead: Map, back: Map) -> torch.Tensor:
        ctx.ahead, ctx.back = ahead, back
        return ahead(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _Pair.apply(grads[0], ctx.back, ctx.ahead), None, None


# --- identity ↔ all-reduce -----------------------------------------------------------------------
def copy_to_group(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Megatron's f: hands a replicated tensor to ranks that each do a part of the work with it.

    Args:
        tensor: any shape, the same on every member.
        group: the group.

    Returns:
        The tensor. Forward sends nothing; backward all-reduces: 2(N-1)/N·S.
    """
    return _Pair.apply(tensor, _same, partial(summed, group=group))


def reduce_from_group(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Megatron's g: adds up the parts that the ranks have computed.

    Args:
        tensor: any shape, this member's summand.
        group: the group.

    Returns:
        The sum, the same on every member. Forward all-reduces: 2(N-1)/N·S; backward sends nothing.
    """
    return _Pair.apply(tensor, partial(summed, group=group), _same)


# --- split ↔ all-gather --------------------------------------------------------------------------
def split_to_group(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """Keeps this member's part of a replicated tensor.

    Args:
        tensor: any shape, the same on every member; `dim` is a multiple of N.
        dim: dim to cut; negative counts from the last.
        group: the group.

    Returns:
        Part `group.index`. Forward sends nothing; backward all-gathers: (N-1)/N·S.

    Raises:
        CommError: N does not divide the dim, or there is no such dim.
    """
    dim = _check_dim(tensor, dim, group, "split_to_group")
    return _Pair.apply(
        tensor, partial(_own_part, dim=dim, group=group), partial(_gathered, dim=dim, group=group)
    )


def gather_from_group(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """Puts the members' shards together, for ranks that all do the same with the whole.

    Args:
        tensor: any shape, the same shape on every member.
        dim: dim along which the shards lie; negative counts from the last.
        group: the group.

    Returns:
        The whole. Forward all-gathers: (N-1)/N·S; backward sends nothing.

    Raises:
        CommError: there is no such dim.
    """
    dim = _check_dim(tensor, dim, group, "gather_from_group", divides=False)
    return _Pair.apply(
        tensor, partial(_gathered, dim=dim, group=group), partial(_own_part, dim=dim, group=group)
    )


# --- all-gather ↔ reduce-scatter -----------------------------------------------------------------
def all_gather_to_group(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """Puts the members' shards together, for ranks that each do a part of the work with the whole.

    Args:
        tensor: any shape, the same shape on every member.
        dim: dim along which the shards lie; negative counts from the last.
        group: the group.

    Returns:
        The whole. Forward all-gathers and backward reduce-scatters: (N-1)/N·S each.

    Raises:
        CommError: there is no such dim.
    """
    dim = _check_dim(tensor, dim, group, "all_gather_to_group", divides=False)
    return _Pair.apply(
        tensor, partial(_gathered, dim=dim, group=group), partial(_scattered, dim=dim, group=group)
    )


def reduce_scatter_in_group(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """Adds up the parts that the ranks have computed, and leaves each a shard of the sum.

    Args:
        tensor: any shape, this member's summand; `dim` is a multiple of N.
        dim: dim to cut; negative counts from the last.
        group: the group.

    Returns:
        Shard `group.index` of the sum. Forward reduce-scatters and backward all-gathers:
        (N-1)/N·S each.

    Raises:
        CommError: N does not divide the dim, or there is no such dim.
    """
    dim = _check_dim(tensor, dim, group, "reduce_scatter_in_group")
    return _Pair.apply(
        tensor, partial(_scattered, dim=dim, group=group), partial(_gathered, dim=dim, group=group)
    )


# --- all-to-all ↔ its inverse --------------------------------------------------------------------
def exchange_in_group(
    rows: torch.Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int], group: Group
) -> torch.Tensor:
    """Sends rows to their owners; the gradients of the rows come back the same way.

    Args:
        rows: rows for member 0, then for member 1, ..., along dim 0.
        output_sizes: how many rows come from each member. Zero is allowed.
        input_sizes: how many rows go to each member. Zero is allowed.
        group: the group.

    Returns:
        The rows that came, in member order. Every row that goes to another rank is sent once,
        forward and backward.

    Raises:
        CommError: the sizes do not add up to the rows.
    """
    coming, going = [*map(index, output_sizes)], [*map(index, input_sizes)]
    there = partial(_exchanged, output_sizes=coming, input_sizes=going, group=group)
    home = partial(_exchanged, output_sizes=going, input_sizes=coming, group=group)
    return _Pair.apply(rows, there, home)


# --- what they are made of -----------------------------------------------------------------------
def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view_as(tensor)


def summed(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The sum over the group in a new tensor, no graph behind it: an all-reduce, 2(N-1)/N·S."""
    total = tensor.detach().clone(memory_format=torch.contiguous_format)
    all_reduce(total, group)
    return total


def _own_part(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    return tensor.chunk(group.size, dim)[group.index].clone(memory_format=torch.contiguous_format)


def _gathered(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """Collectives join along dim 0, so the dim is moved there and back."""
    front = tensor.movedim(dim, 0).contiguous()
    whole = front.new_empty(group.size * front.shape[0], *front.shape[1:])
    all_gather(whole, front, group)
    del front  # it need not be there beside both copies of the whole
    return whole.movedim(0, dim).contiguous()


def _scattered(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    front = tensor.movedim(dim, 0).contiguous()
    part = front.new_empty(front.shape[0] // group.size, *front.shape[1:])
    reduce_scatter(part, front, group)
    del front  # it need not be there beside both copies of the part
    return part.movedim(0, dim).contiguous()


def _exchanged(
    rows: torch.Tensor, output_sizes: list[int], input_sizes: list[int], group: Group
) -> torch.Tensor:
    output = rows.new_empty(sum(output_sizes), *rows.shape[1:])
    all_to_all(output, rows, group, output_sizes, input_sizes)
    return output


def _check_dim(
    tensor: torch.Tensor, dim: int, group: Group, asked: str, *, divides: bool = True
) -> int:
    """`dim` counted from the front, if the tensor has it and the group can cut it evenly."""
    found = f"a tensor of shape {tuple(tensor.shape)} on rank {group.rank}, {group}"
    if not -tensor.dim() <= dim < tensor.dim():
        raise CommError(f"{asked} along dim {dim}", found, f"it has {tensor.dim()} dims")
    if divides and tensor.shape[dim] % group.size:
        raise CommError(
            f"{asked} along dim {dim} into {group.size} equal parts",
            found,
            f"{group.size} does not divide {tensor.shape[dim]}; pad the dim first",
        )
    return dim % tensor.dim()
