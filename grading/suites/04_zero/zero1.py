"""zero1: one process's weights, 1/N of the state, the bytes of an all-reduce.

The model has a weight that is used twice, a frozen one, and one that not every rank uses. It is
given in three groups, of which the last has fewer elements than there are ranks.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from course_lib.trace.memory import LiveMemory, held_bytes
from grading.references.data_parallel.training import all_only_bf16

EXERCISE = Exercise(
    title="Optimizer state in shards",
    core=True,
    minutes=25,
    order=2,
    defines=("Zero1",),
    hints=(
        "`flat.view(group.size, -1)[group.index]` is this rank's shard, a view: "
        "`nn.Parameter(view)` shares its memory, so what the inner optimizer writes there is "
        "written into `flat`. `{**param_group, 'params': [shard]}` keeps the other entries.",
        "In `step`, put the gradients of a group one after another, zeros where there is none, "
        "into a tensor like `flat`. `ring_reduce_scatter(full, group, 'avg')` returns exactly the "
        "part that belongs to this rank's shard: that is the shard's `.grad`.",
        "After `self.inner.step()` only this rank's part of `flat` is new. "
        "`ring_all_gather(flat, group)` sends every rank's part to all others, in place, and the "
        "parameters are views of `flat`. No all-reduce, no broadcast: those send more.",
    ),
)

GROUPS = {"first": 0, "bias": 0, "gate": 1, "tied": 1, "frozen": 1, "last": 1, "scale": 2}
OPTIONS: list[dict[str, Any]] = [{"weight_decay": 0.1, "lr": 0.03}, {}, {"lr": 0.01}]
SGD = {"name": "SGD", "options": {"lr": 0.05, "momentum": 0.9}}
ADAMW = {"name": "AdamW", "options": {"lr": 0.02}}
SIZE, ITEM = 16002, 2  # of the parameter whose memory and bytes are measured, in bf16
Batch = tuple[torch.Tensor, bool, bool]  # inputs; whether gate and scale are used


# --- what runs on the ranks, and in one process --------------------------------------------------
def loss_of(params: Mapping[str, torch.Tensor], batch: Batch) -> torch.Tensor:
    """A network with a weight that is used twice; two others only if the batch says so."""
    x, gated, scaled = batch
    hidden = torch.tanh(x @ params["first"].t() + params["bias"])
    out = torch.tanh(hidden @ params["tied"]) @ params["tied"] @ params["last"] + params["frozen"]
    out = out * params["gate"] if gated else out
    return (out * params["scale"] if scaled else out).square().mean()


def make(weights: dict[str, torch.Tensor]) -> dict[str, torch.nn.Parameter]:
    """The parameters, new."""
    return {
        name: torch.nn.Parameter(value.clone(), requires_grad=name != "frozen")
        for name, value in weights.items()
    }


def groups_of(params: dict[str, torch.nn.Parameter]) -> list[dict[str, Any]]:
    """Three parameter groups with their options."""
    return [
        {"params": [params[name] for name in GROUPS if GROUPS[name] == number], **options}
        for number, options in enumerate(OPTIONS)
    ]


def drive(
    learner: Any,
    group: Any,
    weights: dict[str, torch.Tensor],
    steps: list[list[Batch]],
    name: str,
    options: dict[str, float],
    rates: list[float],
    late: bool,
) -> dict[str, Any]:
    """Trains on this rank's batches.

    Args:
        learner: their module.
        group: the ranks.
        weights: this rank's, before they are equal to the others'.
        steps: for each step the micro-batches.
        name: of the optimizer.
        options: for it.
        rates: learning rates of the second group, one for each step; none changes nothing.
        late: whether the last group is added after the first step.
    """
    params = make(weights)
    groups = groups_of(params)
    given = iter(groups[:2]) if late else groups
    zero = learner.Zero1(given, getattr(torch.optim, name), group, **options)
    for number, batches in enumerate(steps):
        if late and number == 1:
            zero.add_param_group(groups[2])
        if rates:
            zero.param_groups[1]["lr"] = rates[number]
        if number % 2:  # as model.zero_grad() does; the shards keep theirs
            for param in params.values():
                param.grad = None
        else:
            zero.zero_grad()
        for batch in batches:
            loss_of(params, batch).backward()
        zero.step()
    return {"weights": {key: param.detach().clone() for key, param in params.items()}}


def _most_held(size: int, world: int) -> int:
    """The flat parameter; state, a copy and a gradient of 1/N, padded."""
    return size * ITEM + 3 * ITEM + 4 * (-(-size // world) * ITEM) + 1024


def drive_memory(learner: Any, group: Any, size: int) -> dict[str, Any]:
    """Bytes that are held after a step with AdamW, for one bf16 parameter of `size` elements."""
    param = torch.nn.Parameter(torch.ones(size, dtype=torch.bfloat16))
    with LiveMemory() as memory:
        zero = learner.Zero1([param], torch.optim.AdamW, group, lr=0.1)
        for _ in range(2):
            zero.zero_grad()
            param.sum().backward()
            zero.step()
        zero.zero_grad()
        gc.collect()
        held = memory.settle(_most_held(size, group.size))
    state = [t for each in zero.inner.state.values() for t in each.values() if torch.is_tensor(t)]
    [shard] = zero.param_groups[0]["params"]
    shared = shard.untyped_storage().data_ptr() == param.untyped_storage().data_ptr()
    return {"state": held_bytes(t for t in state if t.dim()), "held": held, "shared": shared}


# --- what they must bring back -------------------------------------------------------------------
def one_process(
    weights: dict[str, torch.Tensor],
    ranks: list[list[list[Batch]]],
    name: str,
    options: dict[str, float],
    rates: list[float],
    late: bool,
    slip: str = "",
) -> dict[str, torch.Tensor]:
    """Weights after the same steps on all ranks' batches; `slip` names a mistake to make."""
    params = make(weights)
    groups = groups_of(params)
    if slip == "options":
        groups = [{"params": each["params"]} for each in groups]
    if slip == "first":
        groups = [{**OPTIONS[0], **each} for each in groups]
    inner = getattr(torch.optim, name)(groups[:2] if late else groups, **options)
    for number in range(len(ranks[0])):
        if late and number == 1:
            inner.add_param_group(groups[2])
        if rates and slip != "rates":
            inner.param_groups[1]["lr"] = rates[number]
        inner.zero_grad()
        for rank in [ranks[0]] if slip == "own" else ranks:
            for batch in rank[number][-1:] if slip == "last" else rank[number]:
                scale = 1 if slip in ("sum", "own") else 1 / len(ranks)
                (loss_of(params, batch) * scale).backward()
        for param in params.values():
            if param.grad is None:
                param.grad = torch.zeros_like(param) if param.requires_grad else None
        inner.step()
    return {key: param.detach().clone() for key, param in params.items()}


LIKELY = {
    "sum": "the sum of the ranks' gradients was used: every rank's loss is a mean, so average",
    "own": "only rank 0's gradients were used: reduce over the ranks before the update",
    "last": "only the last backward's gradients were used: they may be accumulated",
    "options": "a group's own entries (lr, weight_decay) were lost: the inner optimizer needs them",
    "first": "a group got entries of the first one: what it does not have comes from `options`",
    "rates": "a changed learning rate was not used: `param_groups` must be the inner optimizer's",
}


def _weights(run: Run) -> dict[str, torch.Tensor]:
    """Hidden sizes: the first two groups divide by no world, the last is smaller than some."""
    width = 2 * run.number(2, 4) + 1
    shapes = {"first": (width, 6), "bias": (width,), "tied": (width, width), "frozen": (2,),
              "last": (width, 2), "gate": (2,), "scale": (2,)}  # fmt: skip
    return {name: run.random(shapes[name]) / 2 for name in GROUPS}


def _train(
    run: Run, world: int, optimizer: dict[str, Any], micro: int = 1, gated: bool = True, **more: Any
) -> None:
    """Four steps on `world` ranks, against one process."""
    weights = _weights(run)
    seeds = [weights] + [
        {key: value + run.random(value.shape) * (key != "frozen") for key, value in weights.items()}
        for _ in range(world - 1)
    ]
    common = {"rates": [], "late": False, **optimizer, **more}

    def batch(rank: int, step: int) -> Batch:
        alone = rank == step % world
        # In some steps a whole group has no gradients: before it is added, or at the end.
        scaled = step > 0 if common["late"] else gated or step < 2
        return run.random((3, 6)), gated or alone, scaled

    batches = [
        [[batch(rank, step) for _ in range(micro)] for step in range(4)] for rank in range(world)
    ]
    inputs = [
        {"weights": seed, "steps": steps, **common}
        for seed, steps in zip(seeds, batches, strict=True)
    ]
    result = run(drive, inputs, world=world)
    reference = {"weights": weights, "ranks": batches, **common}
    expected = one_process(**reference)
    likely = {why: one_process(**reference, slip=slip) for slip, why in LIKELY.items()}
    likely["no parameter has changed: the shard must share memory with `flat`"] = weights
    for found in run.each(result.column("weights")):
        what = f"the weights after 4 steps of {optimizer['name']} on {world} ranks"
        run.close(found, expected, what, likely=likely, terms=12)


@check("SGD with momentum on 1–4 ranks: the weights of one process", points=4, code="E")
@diagnosis("reduce-scatter the mean gradients, update this rank's shard, all-gather the parameters")
def check_sgd(run: Run) -> None:
    """E: float64, hidden sizes that do not divide, fewer elements than ranks."""
    for world in (1, 2, 3, 4):
        _train(run, world, SGD)


@check(
    "AdamW with groups: a schedule, accumulated gradients, a group that is added later",
    points=3,
    code="E",
)
@diagnosis("each group has its own entries; `self.inner` holds one group for each, in order")
def check_groups(run: Run) -> None:
    """E: what public wrappers get wrong."""
    _train(run, 3, ADAMW, micro=2, rates=[0.02, 0.1, 0.001, 0.05])
    _train(run, 3, ADAMW, late=True)


@check("a parameter without a gradient on some ranks", points=2, code="E")
@in_part
def check_unused(run: Run) -> None:
    """E, H: in each step another rank alone has a gradient; the others take part with zeros."""
    _train(run, 3, SGD, gated=False)


@check("optimizer state: 1/N on each rank", points=4, code="M")
@diagnosis("`self.inner` must get this rank's shard, and nothing else")
def check_memory(run: Run) -> None:
    """M: bytes of AdamW's state, and all bytes that are held after a step."""
    world = 4
    result = run(drive_memory, {"size": SIZE}, world=world)
    shard = -(-SIZE // world) * ITEM
    for found in run.each(result.outputs):
        run.at_most(
            found["state"],
            2 * shard,
            "bytes of the inner optimizer's state",
            cause="the inner optimizer has all parameters: that is plain AdamW, "
            "with its whole state on every rank",
        )
        run.true(
            found["state"] >= 2 * (shard - 3 * ITEM),
            "bytes of the inner optimizer's state",
            expected=f"two numbers an element: {2 * shard:,}",
            measured=f"{found['state']:,}",
            cause="some elements are updated on no rank",
        )
        run.true(
            found["shared"],
            "the shard does not share memory with the parameters",
            cause="the shard must be a view of `flat`: a clone takes another 1/N of memory, and "
            "does not see later changes of the parameters",
        )
        cause = "the whole state, or whole gradients, are kept somewhere"
        what = "bytes held between two steps"
        run.at_most(found["held"], _most_held(SIZE, world), what, cause=cause)


@check("2(N-1)/N·S bytes sent in a step", points=3, code="B")
@diagnosis("one reduce-scatter of the gradients, one all-gather of the parameters")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger; the broadcast at the start belongs to `flatten`."""
    world = 4
    result = run(drive_memory, {"size": SIZE}, world=world)
    all_only_bf16(run, result.ledgers)
    padded, steps = -(-SIZE // world) * world * ITEM, 2

    def total(*ops: str) -> list[int]:
        step = [
            sum(wire_bytes(op, padded, world, rank, ITEM)[0] for op in ops) for rank in range(world)
        ]
        start = [wire_bytes("broadcast", padded, world, rank, ITEM)[0] for rank in range(world)]
        return [first + steps * each for first, each in zip(start, step, strict=True)]

    unpadded = [
        wire_bytes("all_reduce", SIZE * ITEM, world, rank, ITEM)[0] for rank in range(world)
    ]
    begin = total()
    run.bytes(result, total("reduce_scatter", "all_gather"), likely={
        "1.5 times as many: an all-reduce, and then the parameters too; a rank needs only its own "
        "shard of the gradients": total("all_reduce", "all_gather"),
        "1.5 times as many: the gradients without padding are all-reduced, and then the parameters "
        "are sent too": [t + steps * u for t, u in zip(total("all_gather"), unpadded, strict=True)],
        "half as many: the gradients were not reduced, or the parameters not collected":
            total("all_gather"),
        "nothing was sent after the start": begin,
        "twice as many: gradients and parameters are all-reduced":
            total("all_reduce", "all_reduce"),
    })  # fmt: skip
