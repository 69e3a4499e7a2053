"""What the calls of this room refuse: before anything is booked or sent, so on all ranks alike.

Notebook: none of its own; every lesson's mistakes end here.
Source: MPI's classes of errors (MPI_ERR_OP, MPI_ERR_COUNT, MPI_ERR_TYPE).
Costs nothing on the wire: what other ranks ask for is not known here.
The production version looks at pointers and counts, and only where NCCL_CHECK_POINTERS asks for it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence

import torch

from course_lib.comm.errors import CommError
from course_lib.comm.group import Group


def check_reduction(
    tensor: torch.Tensor,
    op: str,
    asked: str,
    known: Collection[str],
    not_added: Collection[torch.dtype],
) -> None:
    """Looks whether such numbers can be reduced.

    Args:
        tensor: the numbers.
        op: the reduction.
        asked: the call, for the error.
        known: the reductions that there are.
        not_added: dtypes of which whoever reduces knows no sum.

    Raises:
        CommError: they cannot.
    """
    if op not in known:
        raise CommError(f"{asked} with op={op!r}", f"known: {', '.join(known)}", "no such op")
    found = f"a tensor of {tensor.dtype}, shape {tuple(tensor.shape)}"
    if tensor.dtype in not_added:
        raise CommError(f"{asked} of {tensor.dtype}", found, "nobody adds it up: cast it first")
    if tensor.is_complex() and op not in ("sum", "avg"):
        raise CommError(f"{asked} with op={op!r}", found, "complex numbers can only be added up")
    if op == "avg" and not (tensor.is_floating_point() or tensor.is_complex()):
        raise CommError(f"{asked} with op='avg'", found, "an average of integers is no integer")
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        raise CommError(f"{asked} of 8-bit floats", found, "sum in a wider dtype, then cast back")


def check_parts(part: torch.Tensor, whole: torch.Tensor, group: Group, asked: str) -> None:
    """Looks whether the whole is a part for each member.

    Raises:
        CommError: it is not.
    """
    if part.numel() * group.size != whole.numel() or part.dtype != whole.dtype:
        raise CommError(
            f"{asked} over {group.size} ranks",
            f"a part of {part.numel()} {part.dtype} and a whole of {whole.numel()} {whole.dtype}"
            f" elements (shapes {tuple(part.shape)} and {tuple(whole.shape)}) on rank {group.rank}",
            f"the whole is {group.size} equal parts; pad it, or call comm.ring_{asked}",
        )


def check_rows(output: torch.Tensor, input: torch.Tensor, group: Group) -> None:
    """Looks whether rows of the input can be rows of the output.

    Raises:
        CommError: they cannot.
    """
    both = (output, input)
    kinds = {(tensor.dim() > 0, math.prod(tensor.shape[1:]), tensor.dtype) for tensor in both}
    if len(kinds) > 1 or not input.dim():
        raise CommError(
            "all_to_all",
            " and ".join(f"{tuple(each.shape)} of {each.dtype}" for each in both)
            + f" as output and input on rank {group.rank}",
            "rows along dim 0 go from one to the other: as many elements in each, of one dtype",
        )


def counted_rows(
    tensor: torch.Tensor, sizes: Sequence[int] | None, group: Group, asked: str
) -> list[int]:
    """How many of a tensor's rows are each member's; equal parts if `sizes` is None.

    Raises:
        CommError: they do not add up to its rows.
    """
    rows = tensor.shape[0]
    if sizes is None and rows % group.size == 0:
        return [rows // group.size] * group.size
    counts = [] if sizes is None else [operator.index(size) for size in sizes]
    if len(counts) != group.size or sum(counts) != rows or min(counts) < 0:
        raise CommError(
            f"{asked} of {group.size} parts with sizes {counts or sizes}",
            f"a tensor of {rows} rows on rank {group.rank}",
            "there must be one size a member, none below 0, and they must add up to the rows",
        )
    return counts
