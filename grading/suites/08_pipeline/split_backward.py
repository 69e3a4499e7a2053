"""split_backward: the input's gradient at once, the weights' product only when called."""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="The backward in two halves",
    core=False,
    minutes=25,
    order=7,
    defines=("split_linear",),
    library=(),
    hints=(
        "`forward` computes y, and keeps x, weight, bias and the queue in `ctx`. `backward` gets "
        "dy. Which of the two products must be computed there, and which one can wait?",
        "Write an inner function without arguments that computes the weight's gradient from dy and "
        "x under `torch.no_grad()`, and adds it; append it to the queue *without calling it*. Then "
        "return dy @ weight and None for the other three inputs.",
        "For more dims: `rows = dy.reshape(-1, dy.shape[-1])`, then "
        "`rows.t() @ x.reshape(-1, x.shape[-1])` and `rows.sum(0)`. `ctx.needs_input_grad[0]` says "
        "whether dx is wanted.",
    ),
)

Tensors = list[torch.Tensor]
NAMES = ("the first layer's weight", "the first layer's bias", "the second layer's weight")


# --- what runs on the rank -----------------------------------------------------------------------
class Sums(TorchDispatchMode):
    """Counts the sums that are computed inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operation."""
        self.count += func.overloadpacket is torch.ops.aten.sum
        return func(*args, **(kwargs or {}))


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose first dim is the last one in memory: not contiguous, if there are two."""
    return tensor.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)


def drive(
    learner: Any, group: Any, weights: Tensors, xs: Tensors, dys: Tensors, first: bool
) -> dict[str, Any]:
    """Two layers, forward and backward of every micro-batch; then the queue, last one first.

    Returns:
        ys, dxs; `early`: what is there of the weights' gradients before the queue is called;
        `late`: after it; how many functions there were; the multiplications of all backwards
        and of the queue; the sums of all backwards; how many inputs and gradients of outputs are
        held when all is over, and whether `late` has graphs.
    """
    leaves = [torch.nn.Parameter(weight) for weight in weights]
    later: list[Any] = []
    ys, dxs = [], []
    flops, sums = 0, Sums()
    given = []
    for x, dy in zip(xs, dys, strict=True):
        x, dy = turned(x).requires_grad_(not first), turned(dy)
        given += [StorageWeakRef(tensor.untyped_storage()) for tensor in (x, dy)]
        hidden = torch.tanh(learner.split_linear(x, leaves[0], leaves[1], later))
        y = learner.split_linear(hidden, leaves[2], None, later)
        ys.append(y.detach())
        if not hidden.requires_grad:
            return {"ys": ys, "lost": True}
        with FlopCounterMode(display=False) as counter, sums:
            y.backward(dy)
        flops += counter.get_total_flops()
        dxs.append(x.grad)
    early = [leaf.grad is not None for leaf in leaves]
    count, callable_ = len(later), all(callable(call) for call in later)
    with FlopCounterMode(display=False) as counter:
        for call in reversed(later if callable_ else []):
            call()
    late = [leaf.grad for leaf in leaves]
    later.clear()
    del x, dy, hidden, y
    call = None
    gc.collect()
    held = sum(not storage.expired() for storage in given)
    return {"ys": ys, "lost": False, "dxs": dxs, "early": early, "late": late, "count": count,
            "callable": callable_, "flops": [flops, counter.get_total_flops()],
            "sums": sums.count, "held": held,
            "graphs": any(grad is not None and grad.requires_grad for grad in late)}  # fmt: skip


# --- what it must bring back ---------------------------------------------------------------------
def reference(
    weights: Tensors, xs: Tensors, dys: Tensors
) -> tuple[Tensors, Tensors, list[Tensors]]:
    """ys, dxs and, for each micro-batch, the weights' gradients, by autograd in one go."""
    ys, dxs, grads = [], [], []
    for x, dy in zip(xs, dys, strict=True):
        leaves = [t.clone().requires_grad_() for t in (x, *weights)]
        y = linear(torch.tanh(linear(leaves[0], leaves[1], leaves[2])), leaves[3])
        dx, *rest = torch.autograd.grad(y, leaves, dy)
        ys.append(y.detach())
        dxs.append(dx)
        grads.append(rest)
    return ys, dxs, grads


def _inputs(run: Run, first: bool = False) -> dict[str, Any]:
    """Three micro-batches of unequal size: of three dims, two and one."""
    wide, hidden, out = run.number(3, 6), run.number(7, 9), run.number(4, 6)
    weights = [run.random((hidden, wide)), run.random(hidden), run.random((out, hidden))]
    shapes: list[tuple[int, ...]] = [(2, 3), (4,), ()]
    xs = [run.random((*shape, wide)) for shape in shapes]
    dys = [run.random((*shape, out)) for shape in shapes]
    return {"weights": weights, "xs": xs, "dys": dys, "first": first}


def _answer(run: Run, given: dict[str, Any]) -> dict[str, Any]:
    output = run(drive, given).outputs[0]
    lost = (
        "autograd does not call the backward: the weight must be an input of the Function, not "
        "detached"
    )
    run.true(not output["lost"], "the output needs no gradient, though the weight does", cause=lost)
    return output


def _check_weights(run: Run, given: dict[str, Any], output: dict[str, Any]) -> None:
    """The weights' gradients after the queue."""
    *_, grads = reference(given["weights"], given["xs"], given["dys"])
    known = {"the queue is empty: append a function to `later` in backward": 0}
    what = "the number of functions in the queue"
    run.equal(output["count"], 2 * len(given["xs"]), what, likely=known)
    cause = "append the function itself, not what it returns"
    run.true(output["callable"], "what is in the queue cannot be called", cause=cause)
    for place, name in enumerate(NAMES):
        each = [grad[place] for grad in grads]
        total = torch.stack(each).sum(0)
        likely = {"a micro-batch has replaced what the others had added": each[0],
                  "one micro-batch is in it again and again, or the last one replaced the others":
                      each[-1],
                  "it is there twice: autograd and the queue both add it": 2 * total,
                  }  # fmt: skip
        run.close(output["late"][place], total, f"the gradient of {name}", likely=likely, terms=12)
    run.true(
        not output["graphs"],
        "the weights' gradients have graphs of their own, which hold x",
        cause="compute them under `torch.no_grad()`",
    )
    run.equal(output["held"], 0, "the number of inputs and gradients held at the end", likely={
        "let go of x and dy when W has run: keep them in its function and in `ctx` alone":
            output["held"],
    })  # fmt: skip


@check("y and the gradient of x are those of an ordinary linear layer", points=2, code="E")
def check_input(run: Run) -> None:
    """E: two layers; micro-batches of three dims, two and one."""
    given = _inputs(run)
    output = _answer(run, given)
    ys, dxs, _ = reference(given["weights"], given["xs"], given["dys"])
    run.close(output["ys"], ys, "y", terms=12)
    run.close(output["dxs"], dxs, "the gradient of x", terms=12)


@check("the gradients of the weights, after the queue was called", points=3, code="E")
@diagnosis("dW is dyᵀ·x over all rows, db the sum of dy's rows; they add up over micro-batches")
def check_weights(run: Run) -> None:
    """E: called last one first; one layer has no bias."""
    given = _inputs(run)
    _check_weights(run, given, _answer(run, given))


@check("nothing for the weights is computed before that", points=3, code="O")
def check_order(run: Run) -> None:
    """O: no gradient is there, and no product for it was computed."""
    given = _inputs(run)
    output = _answer(run, given)
    early = [name for name, there in zip(NAMES, output["early"], strict=True) if there]
    run.true(
        not early,
        f"the gradient of {early[0] if early else ''} is there before the queue was called",
        cause="backward returns None for weight and bias",
    )
    sizes = [weight.numel() for weight in given["weights"] if weight.dim() == 2]
    rows = sum(x.shape[:-1].numel() for x in given["xs"])
    half = 2 * rows * sum(sizes)  # of dx, and of dW as well: both multiply every weight with a row
    cause = "the product for the weights is computed there too; only adding it is delayed"
    run.at_most(output["flops"][0], half, "operations of the products in backward", cause=cause)
    cause = "the sum for the bias is computed there too; only adding it is delayed"
    run.equal(output["sums"], 0, "the number of sums in backward", likely={cause: output["sums"]})
    least = half - 2 * sum(sizes)  # the row alone need not be a product of matrices
    run.true(
        output["flops"][1] >= least,
        "the queue computes no products for the weights",
        expected=f"{least} operations",
        measured=f"{output['flops'][1]}",
    )


@check("the first stage: x needs no gradient, the weights do", points=2, code="E")
@diagnosis("the same, but backward returns None for x as well")
def check_first(run: Run) -> None:
    """E: and dx is not computed for nobody."""
    given = _inputs(run, first=True)
    output = _answer(run, given)
    _check_weights(run, given, output)
    rows = sum(x.shape[:-1].numel() for x in given["xs"])
    cause = "nobody needs the gradient of x: check ctx.needs_input_grad[0]"
    what = "operations of the products in backward"
    run.at_most(output["flops"][0], 2 * rows * given["weights"][2].numel(), what, cause=cause)
