"""Tensor parallelism: each rank multiplies with its own columns, then its own rows, of the weights.

Notebook: 06 Tensor parallel (f_and_g, column_parallel_linear, row_parallel_linear,
    tensor_parallel_attention).
Paper: Shoeybi et al., "Megatron-LM" (2019), section 3; Ainslie et al., "GQA" (2023) for few heads.
Costs, with S the bytes of the activations [B, T, D]: one all-reduce forward and one backward for
each pair of matrices, 2(N-1)/N·S each; 1/N of the weights, gradients and products on each rank.
The production version (Megatron-core, DTensor) overlaps the all-reduce with the next product.

Shapes: ... any, I width of the input, O width of the output, r this rank's part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import CommError, Group, copy_to_group, reduce_from_group
from course_lib.comm.autograd import summed
from course_lib.parallel.copied_hook import hook_with_copies
from course_lib.trace import chunk_sizes

Product = Callable[..., torch.Tensor]


class TensorRegion:
    """The stretch of a model in which each rank works on its own part of the weights.

    Args:
        group: the ranks.
    """

    def __init__(self, group: Group) -> None:
        self.group = group

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """f: the whole tensor for each rank's part of the work; backward sums, 2(N-1)/N·S."""
        return copy_to_group(x, self.group)

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """g: the sum of the ranks' parts, for all of them; forward sends 2(N-1)/N·S."""
        return reduce_from_group(x, self.group)

    def used_outside(self, parameter: nn.Parameter) -> None:
        """Takes note of a weight that is used on what has left; all of that is on every rank."""

    def entered_by(self, module: nn.Module) -> None:
        """Makes a module's first argument enter here, once, however many matrices use it."""

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if args:
                return (self.enter(args[0]), *args[1:]), kwargs
            first = next(iter(signature(module.forward).parameters))
            return args, {**kwargs, first: self.enter(kwargs[first])}

        module.register_forward_pre_hook(hook, with_kwargs=True)


class InnerRegion(TensorRegion):
    """A stretch inside a region: its input has entered already, its output leaves further on."""

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """The same; nothing is sent."""
        return x

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """The same; nothing is sent."""
        return x

    def used_outside(self, parameter: nn.Parameter) -> None:
        """Refuses a weight whose turn comes after the sum, which is made further on.

        Raises:
            CommError: always.
        """
        raise CommError(
            f"a bias of shape {tuple(parameter.shape)} after a sum over {self.group.size} ranks",
            "a sum that is made further on, where this stretch's region ends",
            "every rank would add the bias once: add it there, or leave it out",
        )


def own_range(count: int, group: Group) -> range:
    """This rank's part of `count` things, as `torch.tensor_split` cuts them."""
    sizes = chunk_sizes(count, group.size)
    start = sum(sizes[: group.index])
    return range(start, start + sizes[group.index])


class ColumnParallelLinear(nn.Module):
    """This rank's outputs of a linear layer; holds weight [O_r, I] and bias [O_r].

    Args:
        full: the layer, the same on every rank; O need not be a multiple of N.
        region: which its input enters.
        entered: the input has entered already, with the module that this layer is in.
        rows: which outputs this rank has; by default an even part of them.

    Attributes:
        product: `product(x, weight, bias)`; may be replaced, as by one of 8-bit numbers.
    """

    def __init__(
        self,
        full: nn.Linear,
        region: TensorRegion,
        *,
        entered: bool = False,
        rows: range | None = None,
    ) -> None:
        super().__init__()
        self.region, self.entered = region, entered
        self.product: Product = F.linear
        rows = own_range(full.out_features, region.group) if rows is None else rows
        self.weight = own_part(full.weight, 0, rows)
        self.bias = None if full.bias is None else own_part(full.bias, 0, rows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., I], the same on every rank, to [..., O_r]."""
        x = x if self.entered else self.region.enter(x)
        return self.product(x, self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """A linear layer whose inputs are cut over the ranks; holds weight [O, I_r] and the whole bias.

    Args:
        full: the layer, the same on every rank; I need not be a multiple of N.
        region: where its output leaves. Under sequence parallelism each rank adds the bias to its
            part of the tokens, so each backward sums the bias's gradient over the ranks.
        columns: which inputs this rank has; by default an even part of them.

    Attributes:
        product: `product(x, weight)`; may be replaced.

    Raises:
        CommError: there is a bias, and the output leaves further on.
    """

    def __init__(self, full: nn.Linear, region: TensorRegion, columns: range | None = None) -> None:
        super().__init__()
        self.region = region
        self.product: Product = F.linear
        columns = own_range(full.in_features, region.group) if columns is None else columns
        self.weight = own_part(full.weight, 1, columns)
        self.bias = None if full.bias is None else own_part(full.bias, 0, range(full.out_features))
        if self.bias is not None:
            region.used_outside(self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., I_r] to [..., O]: the bias comes after the sum, so it is added once."""
        y = self.region.leave(self.product(x, self.weight))
        return y if self.bias is None else y + self.bias


class HeadCut:
    """Which heads of an attention layer a rank has.

    Query heads are cut evenly. Key-value heads too if there are at least as many as ranks;
    otherwise N/K ranks share each of them, hold the same weights, and sum their gradients.

    Args:
        heads: H, query heads; a multiple of N.
        kv_heads: K, key-value heads; a multiple of N, or N is one of K.
        group: the ranks. Making it is collective over the world if N > K.

    Raises:
        CommError: the heads cannot be cut so.
    """

    def __init__(self, heads: int, kv_heads: int, group: Group) -> None:
        n = group.size
        if min(heads, kv_heads) < 1 or heads % n or (kv_heads % n and n % kv_heads):
            raise CommError(
                f"attention of {heads} query and {kv_heads} key-value heads, cut over {n} ranks",
                f"{heads / n:g} query and {kv_heads / n:g} key-value heads for each rank",
                "a rank computes whole heads: N divides H, and N divides K or K divides N",
            )
        own = max(1, kv_heads // n)
        first = group.index * kv_heads // n
        self.query = own_range(heads, group)
        self.key_value = range(first, first + own)
        self.sharers: Group | None = None
        if kv_heads < n:
            share = n // kv_heads
            parts = [list(range(i, i + share)) for i in range(0, n, share)]
            self.sharers = group.split(parts, f"{group.axis} sharing a head")

    def query_rows(self, width: int) -> range:
        """The rows of the query projection, for heads of `width` channels."""
        return range(self.query.start * width, self.query.stop * width)

    def key_value_rows(self, width: int) -> range:
        """The rows of the key and of the value projection."""
        return range(self.key_value.start * width, self.key_value.stop * width)


def sum_gradients_of(parameters: Sequence[nn.Parameter], group: Group) -> None:
    """Sums gradients of weights that all ranks hold and each uses for a part of the work.

    Every backward then leaves the sum over the group in `grad`: one all-reduce of its size each.
    """
    for parameter in parameters:
        if parameter.requires_grad:
            hook_with_copies(parameter, partial(summed, group=group))


def own_part(full: torch.Tensor, dim: int, own: range) -> nn.Parameter:
    """A copy, so that the full tensor's memory can be freed; frozen if the full one is."""
    part = full.detach().narrow(dim, own.start, len(own))
    copy = part.clone(memory_format=torch.contiguous_format)
    return nn.Parameter(copy, requires_grad=full.requires_grad)
