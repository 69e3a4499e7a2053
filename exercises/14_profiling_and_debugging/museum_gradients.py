"""The museum of gradients: name and repair four public bugs of sharded training.

Notebook 14. Each exhibit is a piece of a training script. It runs without hanging and without an
error, but its gradients are wrong. The same mistake was made in a well-known project. The docstring
names the project and what people saw; finding the cause is up to you. For each exhibit

1. repair the function, so that it does what its docstring promises;
2. name the fault in `FAULT`, as (line, ranks). The line is the one that you would point at in the
   code as it was given, copied from there (spaces do not count); a line in the wrong place, or one
   that works on the wrong object, is such a line too. The ranks are those whose results are wrong:
   "all", or a tuple such as (0, 3).

How to find it: make the symptom small. Let four ranks print what the docstring mentions, compute
the same in one process, and look for the first place at which the two differ.

Rules
- The right result is that of the same training in one process, in float64, on all tokens.
- Groups are arguments; they may have 1 to 4 ranks. Change the four functions, not what they are
  called with. Everything else in this file is given, and right.

You may use torch and all of `course_lib.comm`. `all_reduce(tensor, group, op)` works in place;
`summed(tensor, group)` returns the sum in a new tensor.

Your answer may use `comm` of `course_lib`.
"""

import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import gelu

from course_lib.comm import (
    Group,
    all_gather,
    all_gather_to_group,
    all_reduce,
    reduce_scatter,
    reduce_scatter_in_group,
    summed,
)

FAULT = {  # "exhibit": ("the line", ranks)
    "start_engine": ("", ""),
    "finish_gradients": ("", ""),
    "average_gradients": ("", ""),
    "clip_gradients": ("", ""),
}

CUT = ("up.weight", "up.bias", "down.weight")  # of a Block: each rank of tp has its own part


class Block(nn.Module):
    """Given: one rank's part of a feed-forward block under tensor and sequence parallelism.

    Norm and output bias are whole, the same on all ranks of tp. The parameters in CUT are parts.

    Args:
        hidden: D, channels.
        inner: this rank's inner channels.
    """

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x_TD: torch.Tensor, tp: Group) -> torch.Tensor:
        """This rank's tokens [T/N, D] to the same; between the gathers it works on all T."""
        all_TD = all_gather_to_group(self.norm(x_TD), 0, tp)
        y_TD = reduce_scatter_in_group(self.down(gelu(self.up(all_TD))), 0, tp)
        return x_TD + y_TD + self.bias


def start_engine(block: Block, tp: Group) -> Block:
    """Makes a block ready to train: float64 copies of its parameters, gradients summed by hooks.

    Seen in: EleutherAI/gpt-neox #1257, partly repaired in #1259 (sequence parallelism, added to
    tensor parallelism). With it the loss fell more slowly than without, and stayed near 8 after
    about 100 updates. The gradients of the LayerNorms were not the same on the ranks of a tp group.
    Here: the loss of the first step is right, and so are the gradients of `up` and `down`.

    Args:
        block: as loaded, in any dtype; it stays as it is.
        tp: the N ranks that share the block and its tokens.

    Returns:
        A block of its own in float64, with the same numbers. The script computes
        `engine(own_tokens, tp)`, sums a loss over its tokens, calls backward, perhaps for several
        micro-batches in turn, and steps. After each backward every `grad` must be what one process
        would have, with the loss summed over the tokens of all ranks and of the micro-batches so
        far; the part of it that is this rank's, for a parameter in CUT.
    """
    for name, parameter in block.named_parameters():
        if name not in CUT:
            parameter.register_hook(lambda grad: summed(grad, tp))
    engine = copy.deepcopy(block).double()
    engine.zero_grad()
    return engine.train()


def flatten(
    grads: Mapping[str, torch.Tensor], parts: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Given: all gradients in one buffer, zeros behind them until it divides into `parts`.

    Returns:
        The buffer, and by name the part of it that holds each gradient: a view, in its shape.
    """
    sizes = [grad.numel() for grad in grads.values()]
    buffer = torch.zeros(-(-sum(sizes) // parts) * parts, dtype=torch.float64)
    pieces = buffer[: sum(sizes)].split(sizes)
    views = {
        name: piece.view(grad.shape)
        for (name, grad), piece in zip(grads.items(), pieces, strict=True)
    }
    for name, grad in grads.items():
        views[name].copy_(grad)
    return buffer, views


def finish_gradients(
    grads: Mapping[str, torch.Tensor], dp: Group, ends: Group | None
) -> torch.Tensor:
    """The gradients with which this rank's part of the optimizer steps.

    The optimizer is cut over dp: of the buffer that `flatten` makes, each of the D replicas keeps
    one D-th. The embedding is tied: the first stage looks tokens up in it, the last one computes
    the logits with it, and both have a copy, called "embedding".

    Seen in: NVIDIA/Megatron-LM #844 (wrong gradients of a shared embedding). A GPT-2 on dp 2 × pp
    2, its optimizer cut over dp, had wrong gradients for the embedding, other ones on each stage:
    its two copies drift apart. Here: all other gradients are right, and with dp 1 or pp 1 the
    embedding's as well. On dp 2 × pp 2 the embedding is smaller than half of the buffer.

    Args:
        grads: this rank's gradients of its stage, in the order in which the backward made them: the
            last layer's first. They are not needed afterwards.
        dp: the D ranks that train the same stage on other samples.
        ends: two ranks, on the first and on the last stage, with the same index in dp; None on
            other stages, and if there is only one. In `FAULT`: rank = 2 · stage + index in dp.

    Returns:
        Part `dp.index` of D equal parts of the buffer, with the mean over the replicas; the
        gradient of the embedding is the sum of what both ends found. Each rank makes one
        reduce-scatter of the buffer over dp, and at the ends one all-reduce of the embedding.
    """
    buffer, views = flatten(grads, dp.size)
    shard = buffer.chunk(dp.size)[dp.index]
    mean = torch.empty_like(shard)
    reduce_scatter(mean, buffer, dp, "avg")
    shard.copy_(mean)
    if ends is not None:
        all_reduce(views["embedding"], ends)
    return shard


class MixtureLayer(nn.Module):
    """Given: a router, the same on all ranks, and this rank's experts; each token uses one.

    Args:
        hidden: D, channels.
        experts: E, of the whole layer.
        ep: the ranks over which they are dealt out, E/N each, in order.
    """

    def __init__(self, hidden: int, experts: int, ep: Group) -> None:
        super().__init__()
        own = experts // ep.size
        self.first = ep.index * own
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(own))

    def forward(self, x_TD: torch.Tensor, ep: Group) -> torch.Tensor:
        """This rank's tokens [T, D] to the same; its experts see the tokens of all ranks of ep."""
        weight_T, chosen_T = self.router(x_TD).softmax(-1).max(-1)
        chosen = torch.empty(ep.size * len(chosen_T), dtype=torch.int64)
        all_gather(chosen, chosen_T, ep)
        x = all_gather_to_group(x_TD, 0, ep)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts, self.first):
            y = y + (chosen == number)[:, None] * expert(x)
        return x_TD + weight_T[:, None] * reduce_scatter_in_group(y, 0, ep)


def average_gradients(layer: MixtureLayer, dp: Group, replicas: Group) -> None:
    """Makes the gradients those of the mean over all ranks of their losses, in place.

    Every rank has samples of its own, whatever experts it holds, and calls this after its backward.

    Seen in: deepspeedai/DeepSpeed #6545, repaired in #6546 (scale of the experts' gradients under
    ZeRO). Two runs had the same weights and the same samples: one with all experts on every rank,
    one with the experts dealt out over two. In the second the gradient of every expert was exactly
    twice that of the first; over four ranks it was four times as much (#5618).
    Here: the gradient of the router is right in all of them.

    Args:
        layer: after `layer(own_tokens, ep)` and the backward of this rank's loss.
        dp: all ranks that train on samples: N.
        replicas: those of them that hold the same experts: N / ep. It may be this rank alone.
    """
    for experts, group in ((True, replicas), (False, dp)):
        grads = [
            parameter.grad
            for name, parameter in layer.named_parameters()
            if name.startswith("experts.") == experts
        ]
        bucket = torch.cat([grad.flatten() for grad in grads])
        all_reduce(bucket, group)
        bucket /= group.size
        pieces = bucket.split([grad.numel() for grad in grads])
        for grad, piece in zip(grads, pieces, strict=True):
            grad.copy_(piece.view(grad.shape))


def clip_gradients(block: Block, tp: Group, max_norm: float) -> float:
    """Shortens the gradients of a block so that together they are at most `max_norm` long.

    Seen in: NVIDIA-NeMo/RL #3788 (norm of gradients under tensor parallelism). The logged
    `grad_norm` was too large, the more so the more ranks there were in tp, and gradients were
    clipped that `max_grad_norm` should have left alone. The losses of the first step agreed in all
    digits. Here: the gradients that come in are right, and all ranks return the same norm.

    Args:
        block: each `grad` is what one process would have: all of it, or this rank's part for a
            parameter in CUT. A `grad` may be None, on all ranks alike.
        tp: the ranks that share the block.
        max_norm: the longest that they may be.

    Returns:
        How long they were: the 2-norm of the gradients of the whole block, as one process would
        have it. They are multiplied by max_norm / (norm + 1e-6), if that is less than 1.
    """
    parameters = [each for each in block.parameters() if each.grad is not None]
    squares = torch.zeros((), dtype=torch.float64)
    for parameter in parameters:
        squares += parameter.grad.double().square().sum()
    all_reduce(squares, tp)
    norm = float(squares.sqrt())
    for parameter in parameters:
        parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
