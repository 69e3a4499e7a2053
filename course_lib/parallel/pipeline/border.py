"""What one stage hands to the next: a tensor, or a tuple or dict of them, as its shapes.

Notebook: 08 Pipeline parallel (gpipe_step, execute).
Source: torch.utils._pytree, which takes such trees apart and puts them together again.
Costs nothing; a tree is sent tensor by tensor, and gradients of its floating tensors come back.
The production version (torch.distributed.pipelining) finds the shapes out in the first step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from course_lib.parallel.pipeline.mail import Tensors
from course_lib.schedule import ScheduleError


class _Like(NamedTuple):
    """What a tensor is apart from its values."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def __str__(self) -> str:
        return f"{tuple(self.shape)} {self.dtype}"


def differentiable(dtype: torch.dtype) -> bool:
    """Whether tensors of a dtype have gradients."""
    return dtype.is_floating_point or dtype.is_complex


class Border:
    """The form of what stages hand on for one micro-batch.

    Args:
        example: a tree like it, whose tensors' values do not matter.
    """

    def __init__(self, example: Any) -> None:
        leaves, self._form = tree_flatten(example)
        self._rest = [None if torch.is_tensor(leaf) else leaf for leaf in leaves]
        self._likes = {
            place: _Like(leaf.shape, leaf.dtype, leaf.device)
            for place, leaf in enumerate(leaves)
            if torch.is_tensor(leaf)
        }

    def blank(self, gradients: bool) -> Tensors:
        """Empty tensors for the values of the tree, or for the gradients of its floating ones."""
        return [
            torch.empty(like.shape, dtype=like.dtype, device=like.device)
            for like in self._likes.values()
            if not gradients or differentiable(like.dtype)
        ]

    def tree(self, tensors: Tensors) -> Any:
        """The tree with these tensors."""
        leaves = list(self._rest)
        for place, tensor in zip(self._likes, tensors, strict=True):
            leaves[place] = tensor
        return tree_unflatten(leaves, self._form)

    def tensors(self, output: Any, stage: str) -> Tensors:
        """The tensors of what a stage has returned.

        Args:
            output: of the stage.
            stage: its number and class, for errors.

        Raises:
            ScheduleError: it is not of this form.
        """
        leaves, form = tree_flatten(output)
        found = [
            _Like(leaf.shape, leaf.dtype, leaf.device) if torch.is_tensor(leaf) else type(leaf)
            for leaf in leaves
        ]
        likes = [self._likes.get(n, type(leaf)) for n, leaf in enumerate(self._rest)]
        # The device is where a rank computes: it may be another one here than at the receiver.
        if form != self._form or [_key(f) for f in found] != [_key(like) for like in likes]:
            raise ScheduleError(
                f"what {stage} hands on, as `border` says: {_text(likes)}",
                _text(found),
                "the next stage's rank receives tensors of the shapes and dtypes of `border`",
            )
        return [leaf for leaf in leaves if torch.is_tensor(leaf)]


def _key(leaf: Any) -> Any:
    return leaf[:2] if isinstance(leaf, _Like) else leaf


def _text(leaves: list[Any]) -> str:
    return ", ".join(str(x) if isinstance(x, _Like) else f"a {x.__name__}" for x in leaves)
