"""fsdp_unit: one process's gradients and weights, 3(N-1)/N·S bytes, S/N and two units."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.functional import linear, pad

from course_lib.grade.suite import Exercise, Run, because, check, diagnosis, in_part
from course_lib.trace.memory import LiveMemory
from grading.references.data_parallel.training import all_only_bf16

EXERCISE = Exercise(
    title="One FSDP unit: gather, compute, free",
    core=True,
    minutes=40,
    order=4,
    defines=("FSDPUnit",),
    hints=(
        "Two methods do the work, and three of the moments only call them: `gather` before a "
        "pass, `free` after it. The storage of `full` is empty: what must happen before an "
        "all-gather can write into it?",
        "`gather`: `full.untyped_storage().resize_(full.nbytes)`, then one all-gather of `shard` "
        "into `full`. `after_backward`: free the weights, copy each weight's `grad` into a flat "
        "tensor of zeros like `full` (`self.views(flat)` are its parts), and reduce-scatter it.",
        "The reduce-scatter with `op='avg'` writes into `torch.empty_like(self.shard)`. That "
        "becomes `shard.grad`, or is added to it if there is one. Set `weight.grad = None` as "
        "soon as it is copied: otherwise it is in memory twice, and counts again in the next "
        "backward.",
    ),
)

STEPPERS = {"SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
            "AdamW": (torch.optim.AdamW, {"lr": 0.01})}  # fmt: skip
STEPS = 3
UNITS, WIDTH = 6, 144  # of the stack whose memory and bytes are measured, in bf16
NEVER = "the weights are never freed: shrink the storage of `full` to 0"
EARLIER = (
    "the weights of earlier units are still there: shrink the storage in `after_forward`, "
    "since autograd holds the views"
)
COPIES = (
    "three blocks are there at once: free the weights before you make the flat gradient, and "
    "make only one"
)
LATER = "weights or gradients of earlier units are still there: free both in `after_backward`"
IDLE = (
    "Each backward needs every rank: one whose block used no weight takes part with zeros, since "
    "the others wait for it."
)
Weights = list[list[torch.Tensor]]  # of each unit, in order


# --- what runs on the ranks ----------------------------------------------------------------------
def tied(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """A residual block: its matrix is used twice, its last weight never; none for zeros."""
    if not x.any():
        return x
    matrix, bias, scale = weights[:3]
    return x + (torch.tanh(linear(x, matrix, bias)) @ matrix) * scale


def plain(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Two matrices, each used once: autograd never holds two gradients of one of them."""
    return linear(linear(x, weights[0]), weights[1], weights[2]).tanh()


class Watched:
    """A block that raises RuntimeError where one of its weights has no memory.

    More than `most` bytes get some patience when it begins: gloo's thread, and the one that tells
    the judge where this rank is, let go of a buffer a little later than the learner.
    """

    def __init__(self, block: Any, memory: LiveMemory | None = None, most: int = 0) -> None:
        self.block, self.memory, self.most = block, memory, most
        self.patience = 1000  # looks, in all

    def __call__(self, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        """The block."""
        self._look(weights, "forward")
        y = self.block(x, *weights)
        if y.requires_grad:
            y.register_hook(lambda _: self._look(weights, "backward"))
        return y

    def _look(self, weights: Sequence[torch.Tensor], way: str) -> None:
        if any(weight.untyped_storage().nbytes() == 0 for weight in weights):
            raise RuntimeError(f"a block's {way} begins without its weights: see before_{way}")
        self.settle(self.most)

    def settle(self, most: int) -> None:
        """Waits for the bytes held to come down to `most`, while there is patience left."""
        while self.memory and self.memory.now > most and self.patience:
            self.patience -= 1
            time.sleep(0.0005)


def _through(units: list[Any], x: torch.Tensor) -> torch.Tensor:
    for unit in units:
        x = unit(x)
    return x


def drive(
    learner: Any, group: Any, weights: Weights, xs: list[torch.Tensor], slopes: torch.Tensor
) -> dict[str, Any]:
    """Two backwards without a step between; then steps with each optimizer; then an evaluation."""
    torch.use_deterministic_algorithms(True)  # what is never written is NaN

    def make() -> list[Any]:
        return [learner.FSDPUnit(Watched(tied), [w.clone() for w in own], group) for own in weights]

    units = make()
    found: dict[str, Any] = {"gradients": [], "counts": [u.shard.numel() for u in units]}
    for x in xs[:2]:
        (_through(units, x) * slopes).sum().backward()
        found["gradients"].append([unit.shard.grad.clone() for unit in units])
    for name, (optimizer, options) in STEPPERS.items():
        units = make()
        stepper = optimizer([unit.shard for unit in units], **options)
        for x in xs:
            stepper.zero_grad()
            (_through(units, x) * slopes).sum().backward()
            stepper.step()
        found[name] = [unit.shard.detach().clone() for unit in units]
    with torch.no_grad():
        found["output"] = _through(units, xs[0])
    found["left"] = sum(w.untyped_storage().nbytes() for unit in units for w in unit.weights)
    return found


def drive_stack(
    learner: Any, group: Any, weights: Weights, x: torch.Tensor, size: int, share: int
) -> dict[str, Any]:
    """What a stack of units of `size` bytes holds, at its peak and between steps (`share`)."""
    with LiveMemory() as memory:
        block = Watched(plain, memory, 2 * share + size + size // 4)
        units = [learner.FSDPUnit(block, [w.clone() for w in own], group) for own in weights]
        block.settle(share)
        found = {"built": memory.now}
        memory.peak = memory.now
        y = _through(units, x)
        found["forward"] = memory.peak
        y.sum().backward()
        del y
        found["peak"] = memory.peak
        for unit in units:
            unit.shard.grad = None
        block.settle(share)
        found["after"] = memory.now
    return found


# --- what they must bring back -------------------------------------------------------------------
class Reference:
    """The same units in one process, whole; `inputs` are those of `drive` on all ranks."""

    def __init__(self, inputs: list[dict[str, Any]]) -> None:
        self.inputs, self.world = inputs, len(inputs)
        self.weights = [[w.clone().requires_grad_() for w in own] for own in inputs[0]["weights"]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All units, one after the other."""
        for own in self.weights:
            x = tied(x, *own)
        return x

    def own(self, rank: int, number: int) -> Weights:
        """The gradients of one rank's loss on its data `number`, by unit."""
        given = self.inputs[rank]
        x = given["xs"][number].clone().requires_grad_()  # a loss may depend on no weight
        loss = (self.forward(x) * given["slopes"]).sum()
        return [
            list(torch.autograd.grad(loss, own, retain_graph=True, materialize_grads=True))
            for own in self.weights
        ]

    def mean(self, number: int) -> Weights:
        """The gradients averaged over the ranks, by unit."""
        every = [self.own(rank, number) for rank in range(self.world)]
        return [
            [torch.stack(same).mean(0) for same in zip(*unit, strict=True)]
            for unit in zip(*every, strict=True)
        ]

    def shards(self, tensors: Weights, rank: int, by: float = 1) -> list[torch.Tensor]:
        """One rank's parts of tensors like the weights, times a number."""
        flats = [torch.cat([t.detach().flatten() for t in unit]) for unit in tensors]
        flats = [pad(flat, (0, -len(flat) % self.world)) for flat in flats]
        return [flat.chunk(self.world)[rank] * by for flat in flats]


def _trained(run: Run, world: int) -> Iterator[tuple[Reference, int, dict[str, Any]]]:
    """Runs `drive` with hidden sizes that no world divides; yields what each rank found."""
    rows, width, inner = run.number(2, 4), 2 * run.number(2, 4) + 1, run.number(3, 7)
    shapes = [(inner, width), (inner,), (width,), (3,)]
    weights = [[run.random(shape) * 0.5 for shape in shapes] for _ in range(2)]
    inputs: list[dict[str, Any]] = [
        {
            "weights": weights,
            "xs": [run.random((rows, width)) for _ in range(STEPS)],
            "slopes": run.random((rows, width)),
        }
        for _ in range(world)
    ]
    if world > 1:
        inputs[-1]["xs"][1].zero_()  # the last rank's second forward uses no weight
    with because(deadlock=f"{{}} {IDLE}"):
        result, whole = run(drive, inputs, world=world), sum(w.numel() for w in weights[0])
    for rank, found in enumerate(run.each(result.outputs)):
        likely = {
            "every rank keeps the whole unit: DDP in disguise": [-(-whole // world) * world] * 2
        }
        what = f"the list of elements in each unit's shard ({world} ranks)"
        run.equal(found["counts"], [-(-whole // world)] * 2, what, likely=likely)
        yield Reference(inputs), rank, found


@check(
    "the mean gradient of each shard on 1–4 ranks; a second backward adds to it", points=5, code="E"
)
@diagnosis("compare `flat` before the reduce-scatter with the gradients of the weights")
def check_gradient(run: Run) -> None:
    """E: before any step; sizes that do not divide, a tied and an unused weight."""
    for world in (1, 2, 3, 4):
        for ref, rank, found in _trained(run, world):
            mean, own, later = ref.mean(0), ref.own(rank, 0), ref.shards(ref.mean(1), rank)
            first = ref.shards(mean, rank)
            likely = {
                "the sum, N times the mean: the gradient is multiplied by N": ref.shards(
                    mean, rank, world
                ),
                "divided by N twice": ref.shards(mean, rank, 1 / world),
                "this rank's own gradient: nothing was reduced": ref.shards(own, rank),
                "this rank's own gradient, divided by N": ref.shards(own, rank, 1 / world),
            }
            what = f"shard.grad, by unit ({world} ranks)"
            run.close(found["gradients"][0], first, what, terms=world, likely=likely)
            both = [a + b for a, b in zip(first, later, strict=True)]
            likely = {
                "only the second one: add to `shard.grad`, do not replace it": later,
                "the first one is counted twice: a weight has kept its `grad`": [
                    a + b for a, b in zip(first, both, strict=True)
                ],
                "only the first one: the second backward changed nothing": first,
            }
            what = "shard.grad after two backwards, by unit"
            run.close(found["gradients"][1], both, what, likely=likely)


@check("the weights after 3 steps with SGD and with AdamW, and an evaluation", points=3, code="E")
@diagnosis("the optimizer changes the shards: the next forward must gather the new values")
@in_part
def check_steps(run: Run) -> None:
    """E: an optimizer on the shards does what one on the whole weights does."""
    for world in (2, 3):
        for ref, rank, found in _trained(run, world):
            for name, (optimizer, options) in STEPPERS.items():
                ref = Reference(ref.inputs)
                weights = sum(ref.weights, [])
                stepper = optimizer(weights, **options)
                for number in range(STEPS):
                    for weight, grad in zip(weights, sum(ref.mean(number), []), strict=True):
                        weight.grad = grad
                    stepper.step()
                what = f"the shards after {STEPS} steps of {name}, by unit ({world} ranks)"
                run.close(found[name], ref.shards(ref.weights, rank), what)
            output = ref.forward(ref.inputs[rank]["xs"][0]).detach()
            run.close(found["output"], output, "the output of an evaluation")
            cause = "no backward comes after it: free them in `after_forward`, under no_grad, too"
            run.at_most(found["left"], 0, "bytes of weights after an evaluation", cause=cause)


def _stack(run: Run) -> tuple[Any, int, int]:
    """The measured stack on 4 ranks, the bytes of one unit, and those of a rank's shards."""
    shapes = [(WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,)]
    weights = [[run.random(shape, torch.bfloat16) for shape in shapes] for _ in range(UNITS)]
    unit = sum(weight.nbytes for weight in weights[0])
    share = UNITS * unit // 4
    inputs = {
        "weights": weights,
        "x": run.random((1, WIDTH), torch.bfloat16),
        "size": unit,
        "share": share,
    }
    return run(drive_stack, inputs, world=4), unit, share


@check("3(N-1)/N·S bytes: two all-gathers and one reduce-scatter for each unit", points=3, code="B")
@diagnosis("each unit gathers before forward and before backward, and reduce-scatters once")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger, by operation and in all."""
    result, unit, _ = _stack(run)
    all_only_bf16(run, result.ledgers)
    once = UNITS * unit * 3 // 4
    likely = {
        "the weights are not gathered again for the backward: were they ever freed?": once,
        "one all-gather too many for each unit": 3 * once,
        "nothing is gathered: every rank has all weights, as in DDP": 0,
    }
    run.bytes(result, 2 * once, op="all_gather", what="bytes sent by all-gathers", likely=likely)
    known = {
        "no reduce-scatter: if the gradients were all-reduced, this is DDP in disguise": 0,
        "one reduce-scatter too many for each unit": 2 * once,
    }
    run.bytes(result, once, op="reduce_scatter", what="bytes sent by reduce-scatters", likely=known)
    run.bytes(result, 3 * once, what="bytes sent in all")
    for ledger in run.each(result.ledgers):
        likely = {"one for each weight: send the unit's flat tensor instead": 9 * UNITS}
        run.equal(len(ledger.calls()), 3 * UNITS, "the number of collectives", likely=likely)


@check("S/N bytes of weights are held between steps", points=2, code="M")
@diagnosis("memory is freed by `untyped_storage().resize_(0)`, after both passes")
def check_persistent(run: Run) -> None:
    """M: what is held after construction and after a backward."""
    result, unit, share = _stack(run)
    for found in run.each(result.outputs):
        run.at_most(found["built"], share, "bytes held by new units", cause=NEVER)
        what = "bytes held between two steps, without gradients"
        run.at_most(found["after"], share, what, cause=NEVER)


@check("at most two units besides the shards, at any time", points=2, code="M")
@diagnosis("free the weights before you make the flat gradient; drop each `grad` once it is copied")
def check_peak(run: Run) -> None:
    """M: the real peak of a stack of six units on 4 ranks."""
    result, unit, share = _stack(run)
    slack = unit // 4  # for the activations of one row
    for found in run.each(result.outputs):
        run.at_most(
            found["forward"],
            share + unit + slack,
            cause=EARLIER,
            what=f"bytes at the peak of the forward ({UNITS} × {unit:,})",
        )
        most = 2 * share + 2 * unit + slack
        cause = COPIES if found["peak"] <= most + unit else LATER
        what = f"bytes at the peak of the backward ({UNITS} × {unit:,})"
        run.at_most(found["peak"], most, what, cause=cause)
