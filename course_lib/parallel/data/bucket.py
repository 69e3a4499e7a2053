"""Many small gradients in one large tensor, so that they cost one message and not hundreds.

Notebook: 02 Data parallel (build_buckets, BucketedDDP).
Paper: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (2020),
section 3.2.2.
Costs nothing by itself: the bytes stay the same, and the number of collectives falls to the number
of buckets.
The production version rebuilds its buckets after the first step, in the order in which gradients
really came.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from course_lib.parallel.shared_memory import same_place


class Bucket:
    """Parameters whose gradients live side by side in one flat tensor.

    Args:
        parameters: of one dtype and device, in the order in which their gradients become ready.

    Attributes:
        parameters: the same.
        flat: one dimension; the gradients, one after the other.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        count = sum(p.numel() for p in self.parameters)
        first = self.parameters[0]
        self.flat = torch.zeros(count, dtype=first.dtype, device=first.device)
        self._views: dict[nn.Parameter, torch.Tensor] = {}
        self._copy: torch.Tensor | None = None
        at = 0
        for parameter in self.parameters:
            # Strides as those of the parameter: fused optimizers walk through both side by side.
            strides = torch.empty_like(parameter, device="meta").stride()
            self._views[parameter] = self.flat.as_strided(parameter.shape, strides, at)
            at += parameter.numel()

    def view(self, parameter: nn.Parameter) -> torch.Tensor:
        """The part of the flat tensor that is this parameter's gradient."""
        return self._views[parameter]

    def adopt(self, parameter: nn.Parameter, ranks: int = 1) -> None:
        """Makes the parameter's gradient a view of the bucket, with 1/`ranks` of its value.

        A gradient that is already the view stays there; one that is a new tensor, as after
        `zero_grad(set_to_none=True)`, is copied in once. Dividing on the way costs nothing, and
        turns the sum over that many ranks into their mean.
        """
        view = self._views[parameter]
        if parameter.grad is None:
            view.zero_()
        elif not same_place(parameter.grad, view):
            torch.div(parameter.grad, ranks, out=view)
        else:
            view.div_(ranks)
            return
        # A tensor of its own, so that `grad.data = ...`, as of a cast, does not move the view.
        parameter.grad = view.detach()

    def to_send(self, dtype: torch.dtype | None) -> torch.Tensor:
        """What is summed over the ranks: the flat tensor, or a copy of real numbers in a dtype."""
        if dtype in (None, self.flat.dtype) or self.flat.is_complex():
            return self.flat
        self._copy = self.flat.to(dtype)
        return self._copy

    def take_sum(self) -> None:
        """Puts the sum back, if it was made in a copy, and forgets the copy."""
        if self._copy is not None:
            self.flat.copy_(self._copy)
        self._copy = None

    @property
    def copied(self) -> int:
        """Bytes of the copy that is being sent."""
        return 0 if self._copy is None else self._copy.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of the flat tensor."""
        return self.flat.nbytes


def build_buckets(
    parameters: Sequence[nn.Parameter],
    cap: int = 25 << 20,
    first_cap: int = 1 << 20,
) -> list[Bucket]:
    """Cuts parameters into buckets, in the order in which backward reaches them.

    Backward goes from the last layer to the first, so the buckets do as well: the first to be full
    is the first to be sent. It is smaller, so that sending begins early.

    Args:
        parameters: in the order of the forward pass; those that need no gradient are left out, and
            one that appears twice (tied) is taken once.
        cap: bytes after which a bucket is closed; a larger parameter has a bucket of its own.
        first_cap: the same for the first bucket of each dtype.

    Returns:
        The buckets, the same on every rank.
    """
    unique = dict.fromkeys(p for p in parameters if p.requires_grad)
    open_lists: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    started: set[tuple[torch.dtype, torch.device]] = set()
    closed: list[list[nn.Parameter]] = []
    for parameter in reversed(list(unique)):
        kind = (parameter.dtype, parameter.device)
        members = open_lists.setdefault(kind, [])
        limit = cap if kind in started else first_cap
        if members and sum(p.nbytes for p in members) + parameter.nbytes > limit:
            closed.append(members)
            started.add(kind)
            members = open_lists[kind] = []
        members.append(parameter)
    closed += [members for members in open_lists.values() if members]
    return [Bucket(members) for members in closed]
