"""A pipeline stage that writes down which micro-batch it runs, and what of each is still alive.

Column 0 of what a stage is given holds the micro-batch's number and goes through all stages. So a
stage knows what it runs, forward and, from what autograd has saved, backward.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

Values = dict[str, torch.Tensor]
VOCABULARY, OUT = 5, 3
LOCAL = 1  # micro-batches that may live on in a variable when their backward is over
PAUSE = 0.02  # seconds that a slow stage's forward takes longer


# --- a stage -------------------------------------------------------------------------------------
def through(weights: Mapping[str, torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """One stage: (output, what its middle layer keeps for the backward).

    Args:
        weights: with `table` it is the first stage, with `head` the last.
        x: [rows, 2] numbers and tokens for the first, else [rows, 1 + width] numbers and values.
    """
    values = weights["table"][x[:, 1]] if "table" in weights else x[:, 1:]
    hidden = torch.tanh(values @ weights["inner"] + weights["shift"])
    values = values * weights["gain"] + hidden @ weights["outer"]
    if "head" in weights:
        return values @ weights["head"], hidden
    return torch.cat([x[:, :1].to(values), values], 1), hidden


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over a micro-batch, or over a whole batch."""
    return (outputs - targets).square().mean()


class Book:
    """What a stage does, in order, and how many micro-batches' activations are alive.

    Attributes:
        order: `F0`, `B0`, ...; `F?` for an input that is no micro-batch's.
        most: activations alive at most, at the forwards.
    """

    def __init__(self) -> None:
        self.order: list[str] = []
        self.most = 0
        self._alive: Counter[str] = Counter()
        self._patience = 100  # looks, in all: a backend's thread lets go of a buffer a little later

    def note(self, kind: str, tag: torch.Tensor) -> None:
        """Writes down a forward or backward of the micro-batch that the tag names."""
        value = tag[0, 0].item()
        self.order.append(f"{kind}{int(value)}" if value in range(100) else f"{kind}?")

    def watch(self, tensor: torch.Tensor) -> None:
        """This belongs to the forward noted last, as long as its memory lives."""
        self._alive[self.order[-1]] += 1
        weakref.finalize(tensor.untyped_storage(), self._gone, self.order[-1])

    def count(self) -> None:
        """Looks how many forwards' activations are alive."""
        running = sum(1 if what[0] == "F" else -1 for what in self.order)
        while len(self._alive) > running + LOCAL and self._patience:
            self._patience -= 1
            time.sleep(0.001)
        self.most = max(self.most, len(self._alive))

    def _gone(self, what: str) -> None:
        self._alive[what] -= 1
        if not self._alive[what]:
            del self._alive[what]


class _Noted(torch.autograd.Function):
    """Hands the output on; its backward notes the micro-batch whose input autograd has saved."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, tag: torch.Tensor, book: Book) -> torch.Tensor:
        ctx.book = book
        ctx.save_for_backward(tag)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.book.note("B", ctx.saved_tensors[0])
        return grads[0], None, None


class Stage(nn.Module):
    """One stage on a rank. `gain` is frozen, and the output is not contiguous.

    Args:
        weights: as `through` takes them.
        slow: forwards take longer.
    """

    def __init__(self, weights: Values, slow: bool) -> None:
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, nn.Parameter(value.clone(), name != "gain"))
        self.slow, self.book = slow, Book()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output, noted in the book.

        Raises:
            TypeError: `x` is not what this stage works on.
        """
        weights = dict(self.named_parameters())
        first = "table" in weights
        width = 2 if first else 1 + len(weights["inner"])
        dtype = torch.int64 if first else torch.float64
        if x.dtype != dtype or x.dim() != 2 or x.shape[1] != width:
            raise TypeError(
                f"the stage was given {x.dtype} of shape {tuple(x.shape)}, not {dtype} "
                f"of shape (rows, {width})"
            )
        tag = x[:, :1]
        self.book.note("F", tag)
        y, hidden = through(weights, x)
        for kept in (hidden,) if first else (hidden, x):
            self.book.watch(kept)
        self.book.count()
        if self.slow:
            time.sleep(PAUSE)
        return _Noted.apply(y.t().contiguous().t(), tag, self.book)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    call: Callable[..., Any],
    group: Any,
    weights: Values,
    cases: list[dict[str, Any]],
    parts: Sequence[Sequence[int]],
    slow: bool,
) -> list[dict[str, Any]]:
    """One step for each case, without zeroing in between.

    Args:
        call: `call(case, stage, micro_batches, loss, like, group)`: the learner's function.
        group: all ranks.
        weights: of this rank's stage.
        cases: `inputs` and `targets` of all micro-batches, the `shape` at the borders.
        parts: pipelines of their own in this job; () for one of all ranks.
        slow: whether this rank's forwards take longer.

    Raises:
        RuntimeError: the learner's function returned before its messages were over.
    """
    if parts:
        group = group.split(parts, "pp")
    stage, found = Stage(weights, slow), []
    for case in cases:
        stage.book = Book()
        micro_batches = list(zip(case["inputs"], case["targets"], strict=True))
        like = torch.full(case["shape"], torch.nan, dtype=torch.float64)
        losses = call(case, stage, micro_batches, loss, like, group)
        if open_ones := [event.op for event in group.ledger.open_events()]:
            raise RuntimeError(
                f"{len(open_ones)} messages are under way on return: wait for what "
                "`isend` and `irecv` have returned"
            )
        listed = losses if isinstance(losses, (list, tuple)) else [losses]
        found.append(
            {
                "losses": [value if value is None else float(value) for value in listed],
                "graph": any(torch.is_tensor(value) and value.requires_grad for value in listed),
                "order": stage.book.order,
                "most": stage.book.most,
                "gradients": {
                    name: None if p.grad is None else p.grad.clone()
                    for name, p in stage.named_parameters()
                },
            }
        )
    return found
