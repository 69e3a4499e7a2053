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

    def __repr__(self) -> str:
        return f"{tuple(self.shape)} {self.dtype}"


def differentiable(dtype: torch.dtype) -> bool:
    """Whether tensors of a dtype have gradients."""
    return dtype.is_floating_point or dtype.is_complex


class Border:
    """The form of what stages hand on for one micro-batch.

    Args:
        example: a tree like it. The values of its tensors do not matter; what is no tensor is not
            sent, so that the next stage gets it from here.
    """

    def __init__(self, example: Any) -> None:
        leaves, self._form = tree_flatten(example)
        self._leaves = list(map(_like, leaves))

    def blank(self, gradients: bool) -> Tensors:
        """Empty tensors for the values of the tree, or for the gradients of its floating ones."""
        return [
            torch.empty(like.shape, dtype=like.dtype, device=like.device)
            for like in self._leaves
            if isinstance(like, _Like) and (not gradients or differentiable(like.dtype))
        ]

    def tree(self, tensors: Tensors) -> Any:
        """The tree with these tensors."""
        coming = iter(tensors)
        leaves = [next(coming) if isinstance(leaf, _Like) else leaf for leaf in self._leaves]
        return tree_unflatten(leaves, self._form)

    def tensors(self, output: Any, stage: str) -> Tensors:
        """The tensors of what a stage has returned.

        Args:
            output: of the stage.
            stage: its number and class, for errors.

        Raises:
            ScheduleError: it is not of this form, or has another value where no tensor is.
        """
        leaves, form = tree_flatten(output)
        found = list(map(_like, leaves))
        if form != self._form or list(map(_key, found)) != list(map(_key, self._leaves)):
            raise ScheduleError(
                f"what {stage} hands on, as `border` says: "
                f"{tree_unflatten(self._leaves, self._form)!r}",
                repr(tree_unflatten(found, form)),
                "the next stage's rank receives tensors of the shapes and dtypes of `border`, and "
                "has the rest, and the order of a dict's keys, from there",
            )
        return [leaf for leaf in leaves if torch.is_tensor(leaf)]


def _like(leaf: Any) -> Any:
    return _Like(leaf.shape, leaf.dtype, leaf.device) if torch.is_tensor(leaf) else leaf


def _key(leaf: Any) -> tuple[Any, Any]:
    """What must be equal. The device is where a rank computes: the receiver may have another."""
    return leaf[:2] if isinstance(leaf, _Like) else (type(leaf), leaf)
