"""Blocks that run twice: what each run sees, what is really computed, and what is held between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import layer_norm, linear
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.grade.suite import Run
from course_lib.trace.memory import LiveMemory

PRODUCTS = ("mm", "addmm", "bmm")
STACK = 4  # blocks whose memory is measured
STATE = 6000  # bytes, more than a random state takes
Call = Callable[..., torch.Tensor]  # a checkpoint: call(fn, *args) is fn(*args)
Runs = list[list[torch.Tensor]]  # what each run of a block has seen


class Work(TorchDispatchMode):
    """Counts what is really run: operations by name, and multiplications and additions."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation; a product of [m, k] and [k, n] takes 2·m·k·n."""
        name = func._schema.name.removeprefix("aten::")
        self.counts[name] += 1
        if name in PRODUCTS:
            left, right = args[-2:]
            self.flops += 2 * left.numel() * right.shape[-1]
        return func(*args, **(kwargs or {}))


class Noted:
    """A block that notes in each run what its products are, and what it draws."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, of which a copy is noted in the last run."""
        self.runs[-1].append(tensor.detach().clone())
        return tensor


class Chain(Noted):
    """Equal products one after the other; its backward needs the last operation's result."""

    def __init__(self, runs: Runs, weights: list[torch.Tensor]) -> None:
        super().__init__(runs)
        self.weights = [weight.clone().requires_grad_() for weight in weights]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Of [rows, width], as it comes."""
        self.runs.append([])
        self.note(x)
        for weight in self.weights:
            x = torch.tanh(self.note(x @ weight))
        return x


class Layer(Noted):
    """A transformer block with dropout in its attention, and norms after its two halves."""

    def __init__(self, runs: Runs, weights: dict[str, torch.Tensor]) -> None:
        super().__init__(runs)
        named = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        self.weights, self.at = list(named.values()), named

    def __call__(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """Of [sequences, tokens, width]; the wide activations are changed in place."""
        self.runs.append([])
        at, shape = self.at, x.shape
        q, k, v = ((x @ at[name]).view(*shape[:2], heads, -1).transpose(1, 2) for name in "qkv")
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        scores = scores * (self.note(torch.rand_like(scores)) < 0.8)
        x = layer_norm(x + (scores @ v).transpose(1, 2).reshape(shape) @ at["o"], shape[-1:])
        wide = self.note(linear(x, at["up"], at["bias"]))
        wide = self.note(wide.relu_())
        return layer_norm(x + wide @ at["down"], shape[-1:])


def measured(loss_of: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """What runs in the forward and the backward of a loss.

    Returns:
        `forward` and `backward`, how often each operation ran; `flops` of products in both.
    """
    with Work() as forward:
        loss = loss_of()
    with Work() as backward:
        loss.backward()
    return {"forward": dict(forward.counts), "backward": dict(backward.counts),
            "flops": [forward.flops, backward.flops]}  # fmt: skip


def tensor_of(y: Any) -> torch.Tensor:
    """`y`, if it is a tensor.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(y, torch.Tensor):
        raise TypeError(f"a call of Selective must return fn's tensor, not {type(y).__name__}")
    return y


def walk_chains(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """Three calls, of which the first two are of one block; two in a row and one beside them.

    Args:
        call: the checkpoint.
        given: `chains`, the weights of two blocks; `data` [width, rows], `inner` and `slopes`
            [rows, width].

    Returns:
        What `measured` does; `runs`, what each run noted: its input, then its products; and the
        gradients.
    """
    runs: Runs = []
    first, second = (Chain(runs, weights) for weights in given["chains"])
    inner = given["inner"].clone().requires_grad_()

    def loss() -> torch.Tensor:
        x = tensor_of(call(first, given["data"].t()))
        x = tensor_of(call(first, x * inner))
        return ((x + tensor_of(call(second, inner)).sum()) * given["slopes"]).sum()

    found = measured(loss)
    return found | {
        "runs": runs,
        "grads": {
            "first": [w.grad for w in first.weights],
            "second": [w.grad for w in second.weights],
            "inner": inner.grad,
        },
    }


def walk_layers(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """Two transformer blocks, the second with fewer tokens.

    Args:
        call: the checkpoint.
        given: `layers`, the weights of both by name; `tokens` [sequences, tokens, width]; `heads`;
            `upstream`, the output's gradient; `seed`.

    Returns:
        What `measured` does; `runs`, what each run noted: what it drew, then its wide activations
        before and after `relu_`; and the gradients.
    """
    torch.manual_seed(given["seed"])
    runs: Runs = []
    layers = [Layer(runs, weights) for weights in given["layers"]]

    def loss() -> torch.Tensor:
        x = tensor_of(call(layers[0], given["tokens"], given["heads"]))
        return (tensor_of(call(layers[1], x[:, 2:], given["heads"])) * given["upstream"]).sum()

    found = measured(loss)
    names = list(given["layers"][0])
    return found | {
        "runs": runs,
        "grads": [
            dict(zip(names, (w.grad for w in layer.weights), strict=True)) for layer in layers
        ],
    }


# --- memory of a stack ---------------------------------------------------------------------------
def waves(x: torch.Tensor, kept: Call) -> torch.Tensor:
    """A block of two operations whose results are kept, with four beside each that are not."""
    for _ in range(2):
        x = torch.tanh(torch.sin(torch.exp(-torch.square(kept(x)))))
    return x


def live_bytes(block: Call, x: torch.Tensor) -> dict[str, int]:
    """What STACK checkpointed blocks `waves` hold.

    Args:
        block: one of them, with its checkpoint.
        x: the input, which needs no gradient.

    Returns:
        Bytes `held` after forward, `left` after a backward while the output lives on, and `dropped`
        after a forward whose output nobody wants.
    """

    def stack() -> torch.Tensor:
        y = x
        for _ in range(STACK):
            y = tensor_of(block(y))
        return y

    size = x.nbytes
    with LiveMemory() as memory:
        stack()
        dropped = memory.settle(STATE)
        most = dropped + STATE
        y = stack()
        held = memory.settle(most + 3 * STACK * size) - dropped
        y.backward(x)
        return {"dropped": dropped, "held": held, "left": memory.settle(most + size) - dropped}


def live_bytes_are(run: Run, found: dict[str, int], size: int, rank: int | None = None) -> None:
    """Each block's output and its two kept results, until backward or until nobody wants them."""
    run.at_most(
        found["dropped"],
        STATE,
        "bytes held after a forward whose output is dropped",
        rank=rank,
        cause="what was kept is never released: it leads over its graph to what "
        "keeps it, or outlives its call",
    )
    cause = "more than each block's output and its two kept results: keep only what is asked for"
    what = "bytes held after forward"
    run.at_most(found["held"], STACK * (3 * size + STATE), what, rank=rank, cause=cause)
    cause = "what was kept is never released: it outlives its call"
    what = "bytes held after backward, beside the output"
    run.at_most(found["left"], size + STATE, what, cause=cause, rank=rank)


# --- what the runs have seen ---------------------------------------------------------------------
def runs_agree(
    run: Run, runs: Runs, first: int, second: int, words: str = "", rank: int | None = None
) -> None:
    """Each second run must see what the first run of the same call has seen.

    Which call that is, its input tells, all of it and bit for bit: a checkpoint hands the second
    run the tensor that the first one got. A sum of it would not do: layer norm makes every sum
    zero, but for rounding.

    Args:
        run: of the check.
        runs: what each run noted: its input, then tensors of one shape.
        first: how many first runs there are: the first of `runs`.
        second: how many second runs there must be.
        words: of the case.
        rank: whose they are.
    """
    firsts, seconds = runs[:first], runs[first:]
    likely = {"nothing is recomputed": 0, "a call is run again twice": 2 * second}
    what = f"the number of second runs of {first} calls{words}"
    run.equal(len(seconds), second, what, rank=rank, likely=likely)
    seen = [tensor for noted in firsts for tensor in noted[1:]]
    for again in seconds:
        number = next((i for i, once in enumerate(firsts) if torch.equal(once[0], again[0])), -1)
        run.true(number >= 0, f"a call is run again with another input{words}", rank=rank)
        once, count = firsts[number], len(firsts[number]) - 1
        known = all(any(torch.equal(each, other) for other in seen) for each in again[1:])
        wrong = {
            "they come back in reverse order: first in, first out": once[:0:-1],
            "always the last one kept comes back: each has its own place": once[-1:] * count,
            "always the first one kept comes back: each has its own place": once[1:2] * count,
            "some of these are results of another call: each call has its own":
                again[1:] if known else [],
        }  # fmt: skip
        run.close(
            _rows(again[1:]),
            _rows(once[1:]),
            rank=rank,
            what=f"what the second run of call {number + 1} sees, a row for each,{words}",
            likely={why: _rows(tensors) for why, tensors in wrong.items()},
        )


def _rows(tensors: list[torch.Tensor]) -> torch.Tensor:
    """One tensor of all, a row each."""
    return torch.stack([tensor.flatten() for tensor in tensors]) if tensors else torch.empty(0)
