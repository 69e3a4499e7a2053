"""expert_grad_sync: one process's gradients and weights, and bytes on each axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.data_parallel.training import all_only_bf16, explained
from grading.references.mesh.expert_model import (
    OWN,
    Part,
    Values,
    apply,
    loss_of,
    spread_experts,
    trained,
)

EXERCISE = Exercise(
    title="Which ranks average the gradients of experts",
    core=True,
    minutes=20,
    order=4,
    hints=(
        "Take the mesh of 2 × 2 and expert 0. Which ranks' tokens came to rank 0's copy of it, "
        "and which to rank 2's? When the two gradients are added, how many ranks' losses does "
        "the sum contain?",
        "Sum an expert's gradient over `replicas` and every other one over `world`. Both are then "
        "sums over the losses of all N ranks, so both are divided by the same number, which is "
        "not the size of the group that an expert's gradient was summed over.",
        "For each parameter that requires a gradient: zeros if its gradient is None, "
        "`all_reduce(parameter.grad, group)` with `replicas` for experts and `world` for others, "
        "then `parameter.grad.div_(world.size)`.",
    ),
)

STEPS, LR, MOMENTUM = 3, 0.3, 0.9
IN_PLACE = "others may have the tensor, or its memory: sum and divide in place"
SKIPPED = (
    "A parameter without a gradient takes part with zeros: another rank may have one, and waits."
)
SQUARE, SWAPPED, SPREAD = (Part(0, 2, 2),), (Part(0, 2, 2, True),), (Part(0, 1, 3),)
TWO = (Part(0, 2, 1), Part(2, 2, 1))  # two models, each on two ranks that hold all its experts


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    parts: dict[str, list[list[int]]],
    values: Values,
    batches: list[dict[str, Any]],
) -> dict[str, Any]:
    """Trains this rank's share for some steps; the experts that nobody chose have no gradient."""
    world, replicas, spread = (group.split(lines, axis) for axis, lines in parts.items())
    mine = tuple(f"{spread.index * OWN + i}." for i in range(OWN))
    own = trained({k: v for k, v in values.items() if not k[0].isdigit() or k.startswith(mine)})
    experts = [p for name, p in own.items() if name[0].isdigit()]
    others = [p for name, p in own.items() if not name[0].isdigit()]
    stepper = torch.optim.SGD(own.values(), lr=LR, momentum=MOMENTUM)
    said: dict[str, Any] = {"gradients": [], "replaced": []}
    for batch in batches:
        stepper.zero_grad()
        loss_of(own, batch, spread_experts(own, spread, batch["everyone"])).backward()
        for name, parameter in own.items():
            if name[0].isdigit() and not any(
                int(name[0]) in chosen for chosen in batch["everyone"]
            ):
                parameter.grad = None
        before = {name: p.grad for name, p in own.items() if p.grad is not None}
        learner.expert_grad_sync(iter(experts), iter(others), replicas, world)
        said["replaced"] += [name for name, grad in before.items() if own[name].grad is not grad]
        said["gradients"].append(
            {name: None if p.grad is None else p.grad.clone() for name, p in own.items()}
        )
        if any(p.grad is None for p in own.values() if p.requires_grad):
            break  # the others may wait for this rank: the check says why
        stepper.step()
    return {**said, "weights": {name: p.detach() for name, p in own.items()}}


# --- what they must bring back -------------------------------------------------------------------
def _values(run: Run, count: int, width: int, hidden: int, dtype: torch.dtype) -> Values:
    """Random weights of a model with so many experts."""
    shapes = {"inner": (width, width), "gain": (width,), "router": (width, count),
              "extra": (2, width)}  # fmt: skip
    for number in range(count):
        shapes |= {
            f"{number}.up": (width, hidden),
            f"{number}.down": (hidden, width),
            f"{number}.shift": (width,),
        }
    return {name: run.random(shape, dtype) / shape[-1] ** 0.5 for name, shape in shapes.items()}


def _batches(
    run: Run, part: Part, width: int, gaps: bool, dtype: torch.dtype
) -> list[list[dict[str, Any]]]:
    """For each member its batches. With gaps the first replica's tokens never choose expert 0."""
    count, found = OWN * part.spread, [list[dict[str, Any]]() for _ in range(part.size)]
    for _ in range(STEPS):
        every = []
        for index in range(part.size):
            chosen = torch.cat([torch.arange(count), run.integers(0, count, 1 + index)])
            avoids = gaps and part.place(index)[0] == 0
            every.append(chosen.clamp(min=1) if avoids else chosen.flip(0))
        for index, chosen in enumerate(every):
            line = next(line for line in part.lines(1) if index in line)
            found[index].append(
                {
                    "x": run.random((len(chosen), width), dtype),
                    "target": run.random((len(chosen), width), dtype),
                    "chosen": chosen,
                    "everyone": [every[other] for other in line],
                    "extra": not gaps or index == part.size - 1,
                }
            )
    return found


class Model(NamedTuple):
    """One part of a run, with what each of its ranks got."""

    part: Part
    values: Values
    batches: list[list[dict[str, Any]]]


def _train(
    run: Run,
    parts: Sequence[Part],
    sizes: tuple[int, int] | None = None,
    gaps: bool = False,
    dtype: torch.dtype = torch.float64,
) -> tuple[list[Model], Any]:
    """Trains on the ranks, with hidden sizes if none are given."""
    width, hidden = sizes or (run.number(4, 8), run.number(3, 7))
    models = [
        Model(
            part,
            _values(run, OWN * part.spread, width, hidden, dtype),
            _batches(run, part, width, gaps, dtype),
        )
        for part in parts
    ]
    lines = {"model": [[*range(part.start, part.start + part.size)] for part in parts]}
    for number, axis in enumerate(("replica", "expert")):
        lines[axis] = [
            [part.start + index for index in line] for part in parts for line in part.lines(number)
        ]
    inputs = [
        {"parts": lines, "values": model.values, "batches": batches}
        for model in models
        for batches in model.batches
    ]
    return models, explained(run, drive, inputs, len(inputs), SKIPPED)


def own_gradients(parameters: Any, batches: list[dict[str, Any]]) -> list[Values]:
    """Of each rank's loss, in one process: the gradient of every parameter that needs one."""
    names = [name for name, p in parameters.items() if p.requires_grad]

    def experts(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        each = zip(rows, chosen.tolist(), strict=True)
        return torch.stack([apply(parameters, number, row) for row, number in each])

    found = []
    for batch in batches:
        grads = torch.autograd.grad(
            loss_of(parameters, batch, experts),
            [parameters[name] for name in names],
            allow_unused=True,
        )
        filled = [
            torch.zeros_like(parameters[name]) if grad is None else grad
            for name, grad in zip(names, grads, strict=True)
        ]
        found.append(dict(zip(names, filled, strict=True)))
    return found


def one_process(model: Model) -> Values:
    """The weights after all steps on all ranks' tokens."""
    parameters = trained(model.values)
    stepper = torch.optim.SGD(parameters.values(), lr=LR, momentum=MOMENTUM)
    for step in range(STEPS):
        grads = own_gradients(parameters, [batches[step] for batches in model.batches])
        for name in grads[0]:
            parameters[name].grad = torch.stack([each[name] for each in grads]).mean(0)
        stepper.step()
    return {name: p.detach() for name, p in parameters.items()}


def _each(models: list[Model], result: Any) -> Iterator[tuple[Model, int, int, Any, str]]:
    """Every model's members: index, rank, and what came back; and the mesh in words."""
    for model in models:
        for index in range(model.part.size):
            rank = model.part.start + index
            words = f"({model.part.replicas} replicas × {model.part.spread} ranks)"
            yield model, index, rank, result.outputs[rank], words


def _known(model: Model, index: int, name: str, grads: list[Values]) -> Values:
    """What known mistakes make of one gradient."""
    part, mean = model.part, torch.stack([each[name] for each in grads]).mean(0)
    lines = [next(line for line in part.lines(axis) if index in line) for axis in (0, 1)]
    known = {
        "this is the sum over all ranks' losses: divide by the number of ranks": mean * part.size
    }
    if not name[0].isdigit():
        replicas = torch.stack([grads[other][name] for other in lines[0]])
        return {"averaged over the replicas of the experts only: the router is on all ranks":
                replicas.mean(0), **known, "divided by the number of replicas": mean * part.spread,
                "this is the rank's own gradient: nothing was averaged": grads[index][name],
                "the rank's own gradient, divided: a copy of it was summed":
                grads[index][name] / part.size,
                }  # fmt: skip
    place = model.part.place(index)[1]
    number, rest = int(name[0]) - place * OWN, name[1:]
    all_mixed = sum(
        torch.stack([each[f"{m * OWN + number}{rest}"] for each in grads]).sum(0)
        for m in range(part.spread)
    )
    assert isinstance(all_mixed, torch.Tensor)
    own = torch.stack([grads[other][name] for other in lines[1]]).sum(0)
    mixed = "different experts are mixed: reduced over the world, not over their replicas"
    return known | {
        "divided by the size of one axis of the mesh: the sum contains the losses of all ranks, "
        "because rows came from all along `expert`": mean * part.spread,
        "divided by the number of ranks along `expert`": mean * part.replicas,
        "divided twice": mean / part.replicas,
        mixed: all_mixed / part.size,
        f"{mixed}, and not divided": all_mixed,
        "this is the rank's own gradient: nothing was summed over its replicas": own,
        "the rank's own gradient, divided: nothing was summed over its replicas, or a copy of it "
        "was summed": own / part.size,
    }


def _compare(run: Run, models: list[Model], result: Any, experts: bool) -> None:
    """The gradients before the first step, of experts or of everything else."""
    every = {
        model.part: own_gradients(trained(model.values), [mine[0] for mine in model.batches])
        for model in models
    }
    for model, index, rank, found, words in _each(models, result):
        grads = every[model.part]
        for name, gradient in found["gradients"][0].items():
            if name[0].isdigit() != experts:
                continue
            what = f"the gradient of {'expert ' if experts else ''}{name} {words}"
            if name not in grads[0]:
                run.true(gradient is None, f"{what}: it is frozen", rank=rank)
                continue
            run.true(gradient is not None, f"{what} is None", rank=rank, cause=SKIPPED)
            right = torch.stack([each[name] for each in grads]).mean(0)
            likely = _known(model, index, name, grads)
            run.close(gradient, right, what, rank=rank, terms=50, likely=likely)
            same = name not in found["replaced"]
            run.true(same, f"{what} is another tensor", rank=rank, cause=IN_PLACE)


PLANS = (SQUARE, SPREAD, TWO)


@check("experts' gradients before a step, on 2 × 2, 1 × 3 and 2 × 1 ranks", points=4, code="E")
@diagnosis("sum over the replicas, then divide by the number of all ranks")
def check_experts(run: Run) -> None:
    """E: float64, other token counts on every rank."""
    for parts in PLANS:
        _compare(run, *_train(run, parts), experts=True)


@check("the gradients of the router and the rest", points=3, code="E")
@diagnosis("average over all ranks what all ranks hold")
def check_others(run: Run) -> None:
    """E: the same runs."""
    for parts in PLANS:
        _compare(run, *_train(run, parts), experts=False)


@check("weights after 3 steps of SGD", points=3, code="E")
@diagnosis("replicas stay equal; SGD shows a wrong scale, AdamW hides it")
def check_weights(run: Run) -> None:
    """E: equal to one process with all tokens; also where replicas are neighbours."""
    for parts in (SQUARE, SWAPPED, SPREAD):
        models, result = _train(run, parts)
        right = one_process(models[0])
        for _, _, rank, found, words in _each(models, result):
            expected = {name: right[name] for name in found["weights"]}
            run.close(found["weights"], expected, f"the weights {words}", rank=rank, terms=200)


@check("gradients that some ranks do not have", points=3, code="H")
@diagnosis("None takes part as zeros, and has a gradient afterwards")
def check_missing(run: Run) -> None:
    """H: one replica's expert 0 has no token, or the only one's; one rank alone uses `extra`."""
    for parts in (SQUARE, SPREAD):
        models, result = _train(run, parts, gaps=True)
        _compare(run, models, result, experts=True)
        _compare(run, models, result, experts=False)


@check("experts' bytes among their replicas, all others over all ranks", points=3, code="B")
@diagnosis("2(R-1)/R·S along `replica` for experts, 2(N-1)/N·P for the rest")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger, axis by axis; all in bf16."""
    for parts in (SQUARE, SPREAD):
        models, result = _train(run, parts, sizes=(6, 4), dtype=torch.bfloat16)
        all_only_bf16(run, result.ledgers)
        model, total = models[0], STEPS * 2
        size = {name: p.nbytes for name, p in trained(model.values).items() if p.requires_grad}
        experts = sum(size[name] for name in size if name[0].isdigit()) // model.part.spread
        rest = sum(size[name] for name in size if not name[0].isdigit())
        n, r = model.part.size, model.part.replicas
        over_all = [total * (n - 1) * part // n for part in (rest, rest + experts, experts)]
        run.bytes(
            result,
            over_all[0],
            axis="model",
            what="bytes sent over all ranks",
            likely={
                "the experts are sent over all ranks too": over_all[1],
                "the rest is not averaged over all ranks": 0,
            },
        )
        among = total * (r - 1) * experts // r
        run.bytes(
            result,
            among,
            axis="replica",
            what="bytes sent among the replicas",
            likely={
                "experts are not summed over their replicas": 0,
                "the other parameters are sent among the replicas too": among
                + total * (r - 1) * rest // r,
            },
        )
