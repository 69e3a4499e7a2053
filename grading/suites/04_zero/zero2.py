"""zero2: reduce-scatter bucket by bucket in hooks, and no more gradients than that needs.

Parameters come in a list; their buckets are cut from its end. `full` below is a bucket's gradients
one after the other, with the padding.
"""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from course_lib.trace.memory import LiveMemory
from grading.references.data_parallel.training import all_only_bf16

EXERCISE = Exercise(
    title="Gradients in shards, while backward goes on",
    core=True,
    minutes=30,
    order=3,
    defines=("Zero2",),
    hints=(
        "`param.register_post_accumulate_grad_hook(partial(self.on_gradient, bucket))` calls "
        "`self.on_gradient(bucket, param)` when `param.grad` is complete. There, first make "
        "`bucket.full` if it is None: `torch.zeros_like(bucket.flat)`.",
        "`bucket.full[bucket.places[param]] += param.grad.reshape(-1)`, then `param.grad = None` "
        "and `bucket.missing.discard(param)`. If nothing is missing any more, reduce. "
        "`ring_reduce_scatter(bucket.full, self.group, 'avg')` returns this rank's part.",
        "The returned part is a view of `bucket.full`: clone it for the first backward, or add it "
        "to `bucket.shard.grad` in later ones. At the end set `bucket.full = None` and "
        "`bucket.missing = set(bucket.params)`, or the next backward adds to old values.",
    ),
)

NAMES = ("first", "bias", "tied", "frozen", "last", "gate")
SGD = {"name": "SGD", "options": {"lr": 0.05, "momentum": 0.9}}
ADAMW = {"name": "AdamW", "options": {"lr": 0.02}}
LAYERS, LAYER = 12, 4003  # parameters of the memory test, and the elements of each
ITEM = 2  # they are bf16
Weights = dict[str, torch.Tensor]


# --- what runs on the ranks, and in one process --------------------------------------------------
def loss_of(params: Mapping[str, torch.Tensor], x: torch.Tensor, gated: bool) -> torch.Tensor:
    """A network with a weight that is used twice, and one that may be used not at all."""
    hidden = torch.tanh(x @ params["first"].t() + params["bias"])
    out = torch.tanh(hidden @ params["tied"]) @ params["tied"] @ params["last"] + params["frozen"]
    return (out * params["gate"] if gated else out).square().mean()


def make(weights: Weights) -> dict[str, torch.nn.Parameter]:
    """The parameters, new."""
    return {
        name: torch.nn.Parameter(value.clone(), requires_grad=name != "frozen")
        for name, value in weights.items()
    }


def drive(
    learner: Any,
    group: Any,
    weights: Weights,
    steps: list[list[torch.Tensor]],
    name: str,
    options: dict[str, float],
    gated: bool,
    cap: int,
) -> dict[str, Any]:
    """Trains on this rank's inputs; each step has a list of micro-batches."""
    params = make(weights)
    zero = learner.Zero2(params.values(), getattr(torch.optim, name), group, cap, **options)
    shards: list[Any] = []
    for batches in steps:
        zero.zero_grad()
        for x in batches:
            loss_of(params, x, gated).backward()
        grads = [bucket.shard.grad for bucket in zero.buckets]
        shards = shards or [None if grad is None else grad.clone() for grad in grads]
        zero.step()
    return {"weights": {key: p.detach().clone() for key, p in params.items()}, "shards": shards}


def drive_memory(learner: Any, group: Any) -> dict[str, Any]:
    """Bytes of gradients during and after two backwards over equal layers, then a step.

    What carries messages may hold a buffer a little longer than the call that it was for.
    """
    params = [torch.nn.Parameter(torch.ones(LAYER, dtype=torch.bfloat16)) for _ in range(LAYERS)]
    for number, param in enumerate(params):
        mark = partial(group.ledger.mark, f"ready {number}")
        param.register_post_accumulate_grad_hook(lambda _, mark=mark: mark())
    zero = learner.Zero2(params, torch.optim.SGD, group, 2 * LAYER * ITEM, lr=0.1)
    x = torch.arange(LAYER, dtype=torch.bfloat16)
    loss = [cast(torch.Tensor, sum((p * x).sum() for p in params)) for _ in range(2)]
    with LiveMemory() as memory:
        loss[0].backward()
        loss[1].backward()
        held = memory.settle(LAYERS * LAYER * ITEM // group.size + 4096)
    left = sum(param.grad is not None for param in params)
    reduced = len(group.ledger.calls()) - len(zero.buckets)  # each began with a broadcast
    zero.step()
    return {"peak": memory.peak, "held": held, "left": left, "reduced": reduced}


# --- what they must bring back -------------------------------------------------------------------
def one_process(
    weights: Weights,
    ranks: list[list[list[torch.Tensor]]],
    name: str,
    options: dict[str, float],
    gated: bool,
) -> tuple[Weights, list[Weights]]:
    """Weights after the same steps on all ranks' inputs; mean gradients of the first backwards."""
    params = make(weights)
    inner = getattr(torch.optim, name)(params.values(), **options)
    first: list[Weights] = []
    for number in range(len(ranks[0])):
        inner.zero_grad()
        for micro in range(len(ranks[0][number])):
            before = {key: p.grad.clone() for key, p in params.items() if p.grad is not None}
            for rank in ranks:
                (loss_of(params, rank[number][micro], gated) / len(ranks)).backward()
            if number == 0:
                grads = {key: p.grad for key, p in params.items() if p.grad is not None}
                first.append({key: grad - before.get(key, 0) for key, grad in grads.items()})
        inner.step()
    return {key: param.detach().clone() for key, param in params.items()}, first


def buckets_of(weights: Weights, cap: int) -> list[list[str]]:
    """Names of the parameters in each bucket."""
    buckets: list[list[str]] = [[]]
    for name in reversed([name for name in NAMES if name != "frozen"]):
        if buckets[-1] and sum(weights[n].nbytes for n in buckets[-1] + [name]) > cap:
            buckets.append([])
        buckets[-1].append(name)
    return buckets


def shards_of(weights: Weights, cap: int, gradients: Weights, world: int, rank: int) -> list[Any]:
    """This rank's shard of each bucket; None for a bucket without gradients, which may be zeros."""
    shards: list[Any] = []
    for names in buckets_of(weights, cap):
        rows = [gradients.get(n, torch.zeros_like(weights[n])).reshape(-1) for n in names]
        row = torch.cat(rows)
        full = row.new_zeros(-(-row.numel() // world) * world)
        full[: row.numel()] = row
        shards.append(full.view(world, -1)[rank] if set(names) & set(gradients) else None)
    return shards


def total(parts: list[Weights], factors: list[float]) -> Weights:
    """A weighted sum of gradients."""
    pairs = list(zip(parts, factors, strict=True))
    return {
        key: cast(torch.Tensor, sum(part[key] * factor for part, factor in pairs))
        for key in parts[0]
    }


def known(first: list[Weights], world: int) -> dict[str, Weights]:
    """Wrong gradients, each under what explains it."""
    count = len(first)
    causes = {
        "this is the sum over the ranks: every rank's loss is a mean, so average": total(
            first, [float(world)] * count
        )
    }
    if count > 1:
        last, only = [0.0] * (count - 1) + [1.0], [1.0] + [0.0] * (count - 1)
        again = [float(count - number) for number in range(count)]
        causes |= {
            "only the last backward's gradients: add to the shard's gradient": total(first, last),
            "only the first backward's gradients: add the later ones": total(first, only),
            "earlier backwards are in it again and again: forget what is reduced, in `.grad` and "
            "in `bucket.full`": total(first, again),
        }
    return causes


def _train(
    run: Run, world: int, optimizer: dict[str, Any], cap: int, micro: int = 1, gated: bool = True
) -> None:
    """Three steps on `world` ranks, against one process: gradients, then weights."""
    width = 2 * run.number(2, 4) + 1
    shapes = {"first": (width, 6), "bias": (width,), "tied": (width, width), "frozen": (2,),
              "last": (width, 2), "gate": (2,)}  # fmt: skip
    weights = {name: run.random(shapes[name]) / 2 for name in NAMES}
    seeds = [weights] + [
        {key: value + run.random(value.shape) * (key != "frozen") for key, value in weights.items()}
        for _ in range(1, world)
    ]
    steps = [[[run.random((3, 6)) for _ in range(micro)] for _ in range(3)] for _ in range(world)]
    inputs = [
        {"weights": seed, "steps": mine, "cap": cap, "gated": gated, **optimizer}
        for seed, mine in zip(seeds, steps, strict=True)
    ]
    result = run(drive, inputs, world=world)
    expected, first = one_process(weights, steps, gated=gated, **optimizer)
    right = total(first, [1.0] * micro)
    for rank, found in enumerate(run.each(result.outputs)):
        wrong = {
            why: shards_of(weights, cap, grads, world, rank)
            for why, grads in known(first, world).items()
        }
        shards = shards_of(weights, cap, right, world, rank)
        for number, (mine, shard) in enumerate(zip(found["shards"], shards, strict=True)):
            if mine is not None and shard is not None:  # else it waits for the step
                run.close(
                    mine,
                    shard,
                    f"the gradient of bucket {number}'s shard after {micro} backward(s)",
                    terms=12,
                    likely={why: other[number] for why, other in wrong.items()},
                )
        what = f"the weights after 3 steps of {optimizer['name']} on {world} ranks"
        run.close(found["weights"], expected, what, terms=12)


@check("SGD with momentum on 1–4 ranks: gradients and weights of one process", points=4, code="E")
@diagnosis("each bucket's shard gets this rank's part of the mean gradient, before the step")
def check_sgd(run: Run) -> None:
    """E: float64, hidden sizes that do not divide, a tied and a frozen weight."""
    for world in (1, 2, 3, 4):
        _train(run, world, SGD, cap=300)


@check("several backwards before a step add up", points=3, code="E")
@diagnosis("each backward reduces its own gradients, and adds the result to the shard's")
def check_accumulated(run: Run) -> None:
    """E: three micro-batches a step, with AdamW; and buckets of one parameter."""
    _train(run, 3, ADAMW, cap=300, micro=3)
    _train(run, 2, SGD, cap=1, micro=2)


@check("a parameter that no rank uses: its bucket is reduced in the step", points=2, code="H")
@diagnosis("a bucket is complete when `missing` is empty; `step` reduces those that are not")
@in_part
def check_unused(run: Run) -> None:
    """E, H: an incomplete bucket, and one that stays empty."""
    plain = {"name": "SGD", "options": {"lr": 0.05}}
    _train(run, 3, plain, cap=300, gated=False, micro=2)
    _train(run, 2, plain, cap=1, gated=False)


@check("gradients: at most S/N and two buckets, and S/N after a backward", points=4, code="M")
@diagnosis("free `param.grad` at once, and `bucket.full` when it is reduced")
def check_memory(run: Run) -> None:
    """M: measured during two backwards; the ring's receive buffers are allowed for."""
    world = 4
    layer, small = LAYER * ITEM, 4096
    shard, bucket = LAYERS * layer // world, 2 * layer
    for found in run.each(run(drive_memory, {}, world=world).outputs):
        peak, held = found["peak"], found["held"]
        likely = {
            "the gradients also stay where they were: set `.grad` to None when a gradient has "
            "been copied": found["left"]
        }
        what = "the number of parameters with a `.grad` after a backward"
        run.equal(found["left"], 0, what, likely=likely)
        cause = "the part that ring_reduce_scatter returns is a view of all of it: clone it, and "
        cause += "free `bucket.full`"
        if found["reduced"] == 0:
            cause = "no bucket was reduced before the step: reduce it in the hook that completes it"
        run.at_most(held, shard + small, "bytes of gradients held after the backwards", cause=cause)
        run.at_most(
            peak,
            shard + 2 * bucket + bucket // 2 + small,
            "peak bytes of gradients",
            cause="the full gradients of all parameters are there at the same time: reduce each "
            "bucket when it is complete",
        )


@check("a reduce-scatter for each bucket and backward: (N-1)/N·S bytes", points=3, code="B")
@diagnosis("one reduce-scatter of `bucket.full`, no all-reduce")
def check_bytes(run: Run) -> None:
    """B: the number of calls, and exact bytes, from the ledger."""
    world, count = 4, LAYERS // 2
    result = run(drive_memory, {}, world=world)
    all_only_bf16(run, result.ledgers)
    payload = -(-2 * LAYER // world) * world * ITEM

    def sent(op: str) -> list[int]:
        return [count * wire_bytes(op, payload, world, rank, ITEM)[0] for rank in range(world)]

    for found in run.each(result.outputs):
        likely: dict[str, Any] = {
            "one for each parameter: send a bucket when it is complete": 2 * LAYERS,
            "no collective: reduce a bucket in the hook that completes it": 0,
            "in the second backward buckets are sent before they are complete: "
            "`missing` must hold all parameters again": count + LAYERS,
        }
        what = "the number of collectives in two backwards"
        run.equal(found["reduced"], 2 * count, what, likely=likely)
    start = [b + g for b, g in zip(sent("broadcast"), sent("all_gather"), strict=True)]
    once, whole = sent("reduce_scatter"), sent("all_reduce")
    likely = {
        "an all-reduce sends twice as much: this rank needs only its part": [
            s + 2 * w for s, w in zip(start, whole, strict=True)
        ],
        "three times for two backwards: what was already reduced is reduced again in `step`": [
            s + 3 * o for s, o in zip(start, once, strict=True)
        ],
    }
    run.bytes(result, [s + 2 * o for s, o in zip(start, once, strict=True)], likely=likely)


@check("buckets are sent while backward goes on", points=2, code="O")
@diagnosis("reduce a bucket in the hook that completes it, not after the backward")
def check_order(run: Run) -> None:
    """O: the first reduce-scatter begins before the last gradient of its backward is ready."""
    for ledger in run.each(run(drive_memory, {}, world=4).ledgers):
        calls = ledger.calls("reduce_scatter")
        run.true(bool(calls), "no reduce-scatter was made")
        ready = [span.begin for span in ledger.spans if span.name.startswith("ready")]
        early = sum(begin < calls[0].begin for begin in ready[:LAYERS])
        run.true(
            early < LAYERS,
            "the first reduce-scatter comes after the last gradient",
            expected="after 2 gradients, which fill a bucket",
            measured=f"after {early} of {LAYERS}",
            cause="it is made after the backward: start it in the hook",
        )
        run.true(
            early >= 2,
            "the first reduce-scatter comes before its bucket is complete",
            expected="after 2 gradients",
            measured=f"after {early}",
            cause="the bucket is sent when its first gradient arrives",
        )
