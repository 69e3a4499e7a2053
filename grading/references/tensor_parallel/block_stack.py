"""A stack of tensor-parallel blocks with two sums each, and what one process makes of it.

Paper: Shoeybi et al., "Megatron-LM" (2019), section 3: f, columns, rows, g, in both halves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import layer_norm

from course_lib.comm import copy_to_group
from course_lib.grade.suite import Run
from grading.references.recompute.block_runs import Runs

ORDER = (0, 1, 2, 0)  # blocks of the stack: the last is the first once more
CUTS = [1, 3, 2]  # columns of a block's matrices on each rank
Values = dict[str, torch.Tensor]
Add = Callable[[torch.Tensor], torch.Tensor]


class Block:
    """A tensor-parallel block with two sums; it notes its input and them in each run.

    Args:
        weights: this rank's slices.
        group: None for one process that has all of them.
        runs: where what each run has seen goes.
    """

    def __init__(self, weights: Values, group: Any, runs: Runs) -> None:
        self.at = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        self.group, self.runs = group, runs

    def __call__(self, x: torch.Tensor, add: Add) -> torch.Tensor:
        """Of [tokens, width].

        Raises:
            TypeError: `add` returns no tensor.
            ValueError: `add` has changed its part.
        """
        self.runs.append([x.detach().clone()])
        for name in ("first", "second"):
            h = x if self.group is None else copy_to_group(x, self.group)
            part = torch.tanh(h @ self.at[f"{name}.in"]) @ self.at[f"{name}.out"]
            before = part.detach().clone()
            total = add(part)
            if not isinstance(total, torch.Tensor):
                raise TypeError(f"add must return a tensor, not {type(total).__name__}")
            if not torch.equal(part, before):
                raise ValueError("add must not change the part that it is given")
            self.runs[-1].append(total.detach().clone())
            x = layer_norm(x + total, x.shape[-1:])
        return x


def grads_of(blocks: list[Block]) -> dict[str, Any]:
    """The gradients of all weights, by the block's number and their names."""
    return {
        f"{number}.{name}": weight.grad
        for number, block in enumerate(blocks)
        for name, weight in block.at.items()
    }


class Given(NamedTuple):
    """Hidden inputs of the stack.

    Attributes:
        whole: the weights of each block.
        x: the input, [tokens, width].
        slope: the output's gradient.
    """

    whole: list[Values]
    x: torch.Tensor
    slope: torch.Tensor


def given_of(run: Run) -> Given:
    """Draws the inputs."""
    tokens, width = run.number(3, 6), run.number(3, 6)
    shapes = {"in": (width, sum(CUTS)), "out": (sum(CUTS), width)}
    whole = [
        {
            f"{half}.{name}": run.random(shape) * 0.5
            for half in ("first", "second")
            for name, shape in shapes.items()
        }
        for _ in range(max(ORDER) + 1)
    ]
    return Given(whole, run.random((tokens, width)), run.random((tokens, width)))


def one_process(given: Given) -> Values:
    """Output and gradients of the stack."""
    whole, x, slope = given
    blocks = [Block(each, None, []) for each in whole]
    leaf = x.clone().requires_grad_()
    y = leaf
    for number in ORDER:
        y = blocks[number](y, lambda part: part)
    y.backward(slope)
    assert leaf.grad is not None
    return {"y": y.detach(), "x": leaf.grad, **grads_of(blocks)}


def cut(tensors: Values, rank: int) -> Values:
    """What a rank has of them: columns of what goes in, rows of what comes out, all of others."""
    dims = {"in": 1, "out": 0}
    return {
        name: tensor.split(CUTS, dims[end])[rank].contiguous() if end in dims else tensor
        for name, tensor in tensors.items()
        for end in [name.rpartition(".")[2]]
    }
