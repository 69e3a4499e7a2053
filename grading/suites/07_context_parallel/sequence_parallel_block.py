"""sequence_parallel_block: one process's numbers, tensor parallelism's bytes, 1/N kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from course_lib.trace.memory import held_bytes
from grading.references.tensor_parallel.residual_block import EPS, Tensors, Whole

EXERCISE = Exercise(
    title="A feed-forward block whose activations are cut along the sequence",
    core=True,
    minutes=30,
    order=1,
    defines=("SequenceParallelBlock",),
    hints=(
        "Follow the shape: x is [B, T/N, D], so is norm(x). `up` needs the whole sequence: gather "
        "along dim 1. After `down`, each rank has a summand of all tokens: reduce-scatter along "
        "dim 1, and it has its own tokens again. Residual and bias are added to those.",
        "Which backward does the gather need? Each rank goes on with a different part of F, so "
        "each has one summand of the gradient of the gathered tensor: use `all_gather_to_group`, "
        "whose backward is a reduce-scatter, and not `gather_from_group`, whose backward only "
        "cuts.",
        "Each rank uses a replicated parameter for its own tokens: "
        "`copy_to_group(self.norm.weight, group)` leaves it as it is and sums its gradient over "
        "the ranks. Pass such copies to `F.layer_norm`, and add such a copy of `bias`.",
    ),
)

WORLDS = (1, 3, 4)
MEASURED = 4  # ranks where bytes and memory are looked at
REPLICATED = ("norm.weight", "norm.bias", "bias")
NAMES = {"up": "up", "down": "down", "norm.weight": "gain", "norm.bias": "shift", "bias": "bias"}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, weights: Tensors, xs: list[torch.Tensor], slopes: list[torch.Tensor]
) -> dict[str, Any]:
    """Two backwards: output, gradients, bytes sent in each direction, and what autograd keeps.

    Then one more forward, without gradients.
    """
    block = _made(learner, group, weights)
    own = {p.untyped_storage().data_ptr() for p in block.parameters()}
    passes = []
    for x, slope in zip(xs, slopes, strict=True):
        x = x.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()  # not contiguous
        sent = [group.ledger.sent()]
        y, kept = _watched(block, x)
        sent.append(group.ledger.sent())
        if y.shape == x.shape:  # else there is no loss, and the first check of outputs says why
            (y * slope).sum().backward()
        sent.append(group.ledger.sent())
        passes.append(
            {
                "y": y.detach(),
                "x": x.grad,
                "sent": [sent[1] - sent[0], sent[2] - sent[1]],
                "kept": held_bytes(t for t in kept if t.untyped_storage().data_ptr() not in own),
                "grads": {
                    name: None if p.grad is None else p.grad.clone()
                    for name, p in block.named_parameters()
                },
            }
        )
    with torch.no_grad():
        passes[0]["later"] = block(xs[0])
    return {"passes": passes}


def _watched(block: Any, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The output, and every tensor that autograd keeps for the backward."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        return block(x), kept


def drive_parts(learner: Any, group: Any, weights: Tensors) -> dict[str, Any]:
    """The parameters after construction."""
    block = _made(learner, group, weights)
    return {
        "parts": {name: p.detach().clone() for name, p in block.named_parameters()},
        "held": {name: held_bytes([p]) for name, p in block.named_parameters()},
    }


def _made(learner: Any, group: Any, weights: Tensors) -> Any:
    """A new block from new modules; `down` has a bias if the weights have one."""
    inner, hidden = weights["up"].shape
    norm = nn.LayerNorm(hidden, eps=EPS, dtype=torch.float64)
    up = nn.Linear(hidden, inner, bias=False, dtype=torch.float64)
    down = nn.Linear(inner, hidden, bias="bias" in weights, dtype=torch.float64)
    for target, name in (
        (norm.weight, "gain"),
        (norm.bias, "shift"),
        (up.weight, "up"),
        (down.weight, "down"),
        (down.bias, "bias"),
    ):
        if target is not None:
            target.data.copy_(weights[name])
    return learner.SequenceParallelBlock(norm, up, down, group)


# --- what they must bring back -------------------------------------------------------------------
def _inputs(run: Run, world: int) -> list[dict[str, Any]]:
    """Hidden sizes: F leaves a remainder for 2 and 4 ranks; no bias on 3 ranks."""
    inner, hidden = 12 * run.number(1, 3) + (world + 1) % 2, 4 * run.number(2, 4)
    shape = (run.number(2, 5), run.number(2, 4), hidden)
    weights = {"gain": 1 + run.random(hidden) / 4, "shift": run.random(hidden) / 4,
               "up": run.random((inner, hidden)) / 2, "down": run.random((hidden, inner)) / 2,
               "bias": run.random(hidden)}  # fmt: skip
    if world == 3:
        del weights["bias"]
    return [
        {
            "weights": weights,
            "xs": [run.random(shape), run.random(shape)],
            "slopes": [run.random(shape), run.random(shape)],
        }
        for _ in range(world)
    ]


def _found(run: Run, worlds: tuple[int, ...] = WORLDS) -> Iterator[tuple[Whole, int, list[Any]]]:
    """(one process, rank, what its two passes brought back), for all worlds."""
    for world in WORLDS:
        inputs = _inputs(run, world)  # drawn for all, so that every check has the same
        if world in worlds:
            result = run(drive, inputs, world=world)
            for rank, passes in enumerate(run.each(result.column("passes"))):
                yield Whole(inputs), rank, passes


@check(
    "each rank's parts: up by rows, down by columns, F uneven; the rest whole", points=2, code="E"
)
@diagnosis("`weight.tensor_split(N)[index]`, along dim 1 for `down`, each in its own memory")
@in_part
def check_parts(run: Run) -> None:
    """E: before anything is computed; no other parameters."""
    for world in (2, 4):
        inputs = _inputs(run, world)
        result = run(drive_parts, {"weights": inputs[0]["weights"]}, world=world)
        for rank, found in enumerate(run.each(result.outputs)):
            whole = Whole(inputs)
            names = {name: source for name, source in NAMES.items() if source in whole.weights}
            run.equal(sorted(found["parts"]), sorted(names), "the list of the block's parameters")
            for name, source in names.items():
                weight = whole.weights[source].detach()
                part, what = whole.cut(name, weight, rank), f"`{name}` {whole.name}"
                shape = list(found["parts"][name].shape)
                likely = {"this is all of it: keep only this rank's part": list(weight.shape)}
                run.equal(shape, list(part.shape), f"the shape of {what}", likely=likely)
                run.close(found["parts"][name], part, what)
                run.at_most(
                    found["held"][name],
                    part.nbytes,
                    f"the memory under {what}, in bytes,",
                    cause="a view keeps the whole weight alive: clone",
                )


@check("the output on 1, 3 and 4 ranks: this rank's tokens", points=3, code="E")
@diagnosis(
    "norm as the module does, with its `eps`; gather along the sequence before `up`, "
    "reduce-scatter along it after `down`"
)
@in_part
def check_outputs(run: Run) -> None:
    """E: with and without a bias."""
    for whole, rank, passes in _found(run):
        y = whole.output(rank)
        batch, length, hidden = y.shape
        shape, what = list(passes[0]["y"].shape), f"the shape of the output {whole.name}"
        cause = "every rank has the whole sequence: reduce-scatter after `down`"
        longer = {cause: [batch, length * whole.world, hidden]}
        run.equal(shape, [batch, length, hidden], what, likely=longer)
        tokens = whole.joined("xs", 0)
        other = whole.own(whole.inner(whole.norm(tokens), rank), rank)
        likely = {
            "`bias` was added on every rank before the sum, N times: add it once, after":
                whole.output(rank, bias=whole.world),
            "`bias` is missing here: every rank adds it to its own tokens":
                whole.output(rank, bias=0),
            "this is the mean of the ranks' parts: it must be their sum":
                whole.output(rank, scale=1 / whole.world),
            "the parts were summed twice, by an all-reduce and by a reduce-scatter":
                whole.output(rank, scale=whole.world),
            "this is the part of this rank's F alone: the parts are not added up":
                (tokens.chunk(whole.world, 1)[rank] + other + whole.bias).detach(),
        }  # fmt: skip
        run.close(passes[0]["y"], y, f"the output {whole.name}", likely=likely)
        what = f"the output without gradients {whole.name}"
        run.close(passes[0]["later"], y, what, likely=likely)


@check("gradients of x, up and down", points=4, code="E")
@diagnosis(
    "each rank uses the gathered tensor in a different way: backward must add up the summands of "
    "its gradient"
)
def check_gradients(run: Run) -> None:
    """E: of the sum of all ranks' losses."""
    for whole, rank, passes in _found(run):
        x = whole.own(whole.gradients(0)["x"], rank)
        run.close(passes[0]["x"], x, f"x.grad {whole.name}", likely={
            "the gather's backward only cuts, so the gradients through the other ranks' parts of "
            "F are lost": whole.only_cut(rank),
            "N times too large": x * whole.world,
        })  # fmt: skip
        for name in ("up", "down"):
            grad, alone = (
                whole.cut(name, whole.gradients(0, tokens)[name], rank) for tokens in (None, rank)
            )
            what = f"{name}.grad {whole.name}"
            run.close(passes[0]["grads"][name], grad, what, likely={
                "of this rank's tokens alone: it needs the gradients of all tokens' outputs": alone,
                "N times too large: it was whole already": grad * whole.world,
                "summed over the ranks, but each has its own part of F": _mixed(whole, name),
            })  # fmt: skip


def _mixed(whole: Whole, name: str) -> torch.Tensor | None:
    """What comes out if the gradients of different parts are added; None if they cannot be."""
    grad = whole.gradients(0)[name]
    parts = [whole.cut(name, grad, rank) for rank in range(whole.world)]
    return None if len({part.shape for part in parts}) > 1 else torch.stack(parts).sum(0)


@check(
    "gradients of norm and bias: summed over the ranks; a second backward adds", points=4, code="E"
)
@diagnosis(
    "each rank has seen only its own tokens: sum the gradients of replicated parameters over the "
    "ranks"
)
def check_replicated(run: Run) -> None:
    """E: whole, and the same on every rank."""
    for whole, rank, passes in _found(run):
        for name in REPLICATED:
            source = NAMES[name]
            if source not in whole.weights:
                continue
            first, second = (whole.gradients(number)[source] for number in (0, 1))
            likely = {
                "of this rank's tokens alone: sum it over the ranks": whole.gradients(0, rank)[
                    source
                ],
                "this is the mean over the ranks: it must be their sum": first / whole.world,
                "N times too large: it was whole before it was summed": first * whole.world,
            }
            what = f"{name}.grad {whole.name}"
            run.close(passes[0]["grads"][name], first, what, likely=likely)
            run.close(
                passes[1]["grads"][name],
                first + second,
                what=f"{name}.grad after two backwards {whole.name}",
                likely={
                    "the first backward's gradient was summed over the ranks again": first
                    * whole.world
                    + second,
                    "only the second backward's: gradients must add up": second,
                },
            )


@check("the bytes of tensor parallelism: 2(N-1)/N·S forward, the same backward", points=3, code="B")
@diagnosis("one all-gather and one reduce-scatter each way, and the sums of the small gradients")
def check_bytes(run: Run) -> None:
    """B: exact, on 4 ranks, beside what two all-reduces would send."""
    for whole, rank, passes in _found(run, (MEASURED,)):
        size = whole.joined("xs", 0).nbytes
        both = _sent("all_gather", size, rank) + _sent("reduce_scatter", size, rank)
        theirs = _sent("all_reduce", size, rank)
        copies = [whole.weights[NAMES[name]] for name in REPLICATED]
        small = sum(_sent("all_reduce", weight.nbytes, rank) for weight in copies)
        ahead, back = passes[0]["sent"]
        beside = f"(tensor parallelism's all-reduce: {theirs:,})"
        likely = {
            "an all-reduce whose result is then cut: a reduce-scatter sends half as much": both
            * 3
            // 2,
            "both an all-reduce and a reduce-scatter: the second makes the sum": both * 2,
        }
        what = f"the number of bytes sent in forward {beside}"
        run.equal(ahead, both, what, likely=likely)
        run.equal(
            back,
            both + small,
            likely={
                "the sums of the gradients of norm and bias are missing": both,
                "an all-reduce in the place of a reduce-scatter": both * 3 // 2 + small,
                "half as many: the gather's backward sends nothing, so gradients are lost": both
                // 2
                + small,
            },
            what=f"the number of bytes sent in backward {beside} and {small:,} of replicated "
            "parameters",
        )


def _sent(op: str, size: int, rank: int) -> int:
    return wire_bytes(op, size, MEASURED, rank, 8)[0]


@check("what is kept for the backward of the norm is 1/N", points=2, code="M")
@diagnosis("norm, residual and bias work on the shard; only `up` and `down` see all tokens")
def check_kept(run: Run) -> None:
    """M: the tensors that autograd saved in forward, without the parameters; on 4 ranks."""
    for whole, rank, passes in _found(run, (MEASURED,)):
        x, item = whole.joined("xs", 0), 8
        tokens = x.shape[0] * x.shape[1]
        inner = len(whole.cut("up", whole.weights["up"], rank))
        norm = x.nbytes // MEASURED + 2 * tokens * item // MEASURED  # its input, mean and 1/σ
        rest = x.nbytes + 2 * tokens * inner * item  # what `up`, gelu and `down` read
        run.at_most(
            passes[0]["kept"],
            norm + rest + x.nbytes // 8,
            what=f"the bytes kept for backward (norm {norm:,}, matrices {rest:,})",
            cause="norm works on all tokens, or is written out in small steps: call `F.layer_norm` "
            "or the module before the gather",
        )
