"""museum_gradients: each repaired exhibit against one process, and each fault named."""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

from typing import Any

import torch

from course_lib.comm import Mesh
from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.debugging.museum_gradients import (
    Ends,
    Values,
    block_gradients,
    block_shapes,
    draw_ends,
    draw_norms,
    mixture_gradients,
    part,
    total,
    wrong_scales,
    wrong_sums,
)
from grading.references.debugging.named_fault import judge_name

EXERCISE = Exercise(
    title="Museum: gradients of sharded models",
    core=True,
    minutes=45,
    order=50,
    defines=("FAULT", "start_engine", "finish_gradients", "average_gradients", "clip_gradients"),
    hints=(
        "start_engine: does the hook ever run? Print in it. finish_gradients: write down for each "
        "of the four ranks which part of its buffer is a mean when the embedding is summed, and "
        "which part is not. average_gradients: an expert gets rows of all ranks of ep; how many "
        "losses are in its gradient? clip_gradients: which parameters do two ranks both have?",
        "A copy of a parameter has no hooks. A reduce-scatter leaves one part of the buffer "
        "reduced, and the embedding lies in different parts on the two ends. The mean is over the "
        "losses of all N ranks, and each of them has come exactly once. A sum over tp of squares "
        "may hold each number of the model once.",
        "Register the hooks on the engine's parameters, after the copy. Sum the embedding over the "
        "ends before the reduce-scatter. Divide experts and router by `dp.size`. Let only index 0 "
        "of tp add the squares of parameters that are not in CUT.",
    ),
)

EVERYBODY = ("all", (0, 1, 2), (0, 1, 2, 3))
FAULTS: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "start_engine": (
        (
            "parameter.register_hook(lambda grad: summed(grad, tp))",
            "for name, parameter in block.named_parameters():",
            "engine = copy.deepcopy(block).double()",
        ),
        EVERYBODY,
    ),
    "finish_gradients": (
        (
            'all_reduce(views["embedding"], ends)',
            'reduce_scatter(mean, buffer, dp, "avg")',
            "if ends is not None:",
        ),
        ((1, 2),),
    ),
    "average_gradients": (("bucket /= group.size",), EVERYBODY),
    "clip_gradients": (
        ("squares += parameter.grad.double().square().sum()", "all_reduce(squares, tp)"),
        EVERYBODY,
    ),
}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_names(learner: Any, group: Any) -> Any:
    """The table."""
    return learner.FAULT


def drive_engine(learner: Any, group: Any, values: Values, batches: list[Any]) -> dict[str, Any]:
    """Gradients after each micro-batch, of an engine made of a block that was in use."""
    block = _block(learner, values, values["bias"].dtype).eval()
    for parameter in block.parameters():
        parameter.grad = torch.ones_like(parameter)
    engine = learner.start_engine(block, group)
    if not isinstance(engine, learner.Block):
        return {"engine": repr(engine)}
    after, dtype = [], engine.norm.weight.dtype
    for batch in batches:
        own, weight = (each.chunk(group.size)[group.index].to(dtype) for each in batch)
        (engine(own, group) * weight).sum().backward()
        after.append({name: _copied(p.grad) for name, p in engine.named_parameters()})
    kept = {name: _copied(p) for name, p in block.named_parameters()}
    more = {
        "the sum of its gradients": sum(float(p.grad.sum()) for p in block.parameters()),
        "hooks on its parameters": sum(len(p._backward_hooks or ()) for p in block.parameters()),
        "whether it trains": block.training,
    }
    return {"after": after, "kept": kept, "block": more, "trains": engine.training}


def drive_ends(learner: Any, group: Any, layouts: list[Any]) -> list[dict[str, Any]]:
    """This rank's shard for each layout, and the bytes that it sent for it."""
    found = []
    for pp, dp, grads in layouts:
        mesh = Mesh(group, {"pp": pp, "dp": dp})
        pairs = [sorted({rank, (pp - 1) * dp + rank}) for rank in range(dp)]
        inner = [[rank] for rank in range(dp, (pp - 1) * dp)]
        ends = group.split(pairs + inner, "ends")
        place = group.ledger.place()
        given = {name: grad.clone() for name, grad in grads.items()}
        shard = learner.finish_gradients(given, mesh["dp"], ends if ends.size > 1 else None)
        events = group.ledger.events[place.events :]
        sent = [event.sent for event in events if event.parent < 0 and event.sent]
        found.append({"shard": _copied(shard), "sent": sum(sent), "calls": len(sent)})
    return found


def drive_experts(
    learner: Any, group: Any, layouts: list[int], data: Values
) -> list[dict[str, Any]]:
    """Gradients of one layer with its experts over 1, 2, ... ranks, by name in the whole layer."""
    found, count = [], len(data["router"])
    for size in layouts:
        mesh = Mesh(group, {"edp": group.size // size, "ep": size})
        layer = learner.MixtureLayer(data["router"].shape[1], count, mesh["ep"]).double()
        named = {"router": layer.router.weight}
        for number, expert in enumerate(layer.experts, layer.first):
            named[str(number)] = expert.weight
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(data[name])
        output = layer(data["x"], mesh["ep"])
        (output - data["target"]).square().mean().backward()
        given = {name: parameter.grad for name, parameter in named.items()}
        learner.average_gradients(layer, group, mesh["edp"])
        same = all(parameter.grad is given[name] for name, parameter in named.items())
        grads = {name: _copied(parameter.grad) for name, parameter in named.items()}
        found.append({"grads": grads, "same": same})
    return found


def drive_clip(learner: Any, group: Any, layouts: list[Any]) -> list[dict[str, Any]]:
    """The norm and the gradients after it, for each layout and limit."""
    found = []
    for tp, values, limit in layouts:
        mesh = Mesh(group, {"dp": group.size // tp, "tp": tp})
        dtype = next(iter(values.values())).dtype
        like = {name: value.new_zeros(value.shape) for name, value in values.items()}
        block = _block(learner, like, dtype)
        for name, parameter in block.named_parameters():
            if name in values:
                parameter.grad = values[name].clone()
        norm = learner.clip_gradients(block, mesh["tp"], limit)
        grads = {name: _copied(p.grad) for name, p in block.named_parameters() if name in values}
        more = [n for n, p in block.named_parameters() if p.grad is not None and n not in values]
        found.append({"norm": _copied(norm), "grads": grads, "more": more})
    return found


def _block(learner: Any, values: Values, dtype: torch.dtype) -> Any:
    """A Block with these numbers; where there are none it keeps its own."""
    inner, hidden = values["up.weight"].shape
    block = learner.Block(hidden, inner).to(dtype)
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if name in values:
                parameter.copy_(values[name])
    return block


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


# --- what they must bring back -------------------------------------------------------------------
@check("start_engine: gradients of two micro-batches on 3 ranks", points=2, code="E")
@diagnosis("the docstring's symptom: print this gradient on every rank")
@in_part
def check_engine(run: Run) -> None:
    """E: whole parameters and parts, after each micro-batch; of blocks in two dtypes."""
    for dtype in (torch.float32, torch.float64):
        _check_engine(run, dtype)


def _check_engine(run: Run, dtype: torch.dtype) -> None:
    """The engine of a block in one dtype, and what is left of the block."""
    world, hidden, inner = 3, run.number(5, 9), 3 * run.number(2, 5)
    shapes = block_shapes(hidden, inner)
    values = {name: run.random(shape, dtype) for name, shape in shapes.items()}
    tokens = world * run.number(2, 5)
    batches = [[run.random((tokens, hidden)), run.random((tokens, hidden))] for _ in range(2)]
    inputs = [
        {
            "values": {name: part(name, value, rank, world) for name, value in values.items()},
            "batches": batches,
        }
        for rank in range(world)
    ]
    result = run(drive_engine, inputs, world=world)
    each = [block_gradients(values, *batch) for batch in batches]
    for rank, found in enumerate(run.each(result.outputs)):
        run.true(
            "after" in found,
            "start_engine returned no Block",
            measured=str(found.get("engine"))[:80],
        )
        for count, grads in enumerate(found["after"], 1):
            for name in shapes:
                right = [g[name] for g in each[:count]]
                known = wrong_sums(right, name, world)
                if name == "bias":
                    known[
                        "the norms are right, but the output's bias is added to this rank's "
                        "tokens alone, too"
                    ] = total([weight.chunk(world)[rank].sum(0) for _, weight in batches[:count]])
                run.close(
                    grads.get(name),
                    part(name, total(right), rank, world),
                    f"the gradient of {name} after micro-batch {count}",
                    likely=known,
                    terms=64,
                )
        run.equal(found["kept"], inputs[rank]["values"], "the block that was given")
        numbers = sum(part(name, value, rank, world).numel() for name, value in values.items())
        right_block = {
            "the sum of its gradients": float(numbers),
            "hooks on its parameters": 0,
            "whether it trains": False,
        }
        for name, wanted in right_block.items():
            run.equal(found["block"][name], wanted, f"{name}, of the block that was given,")
        run.equal(found["trains"], True, "whether the engine trains")


@check("finish_gradients: on dp 4, on pp 4, on dp 2 × pp 2", points=2, code="E")
@diagnosis("the docstring's symptom: write down what ranks have after each line")
def check_ends(run: Run) -> None:
    """E, B: every gradient in every shard, and the bytes sent."""
    layouts = [draw_ends(run, pp, dp) for pp, dp in ((1, 4), (4, 1), (2, 2))]
    inputs = [
        {"layouts": [[each.pp, each.dp, each.grads[rank]] for each in layouts]} for rank in range(4)
    ]
    result = run(drive_ends, inputs, world=4)
    for number, layout in enumerate(layouts):
        for rank in range(4):
            _compare_shard(run, result.outputs[rank][number], layout, rank)
    for number, layout in enumerate(layouts):
        for rank, found in enumerate(run.each(result.outputs)):
            twice = {"more than one pass over dp: a rank needs its own part of the buffer alone":
                     layout.sent(rank, 2)}  # fmt: skip
            what = f"the number of bytes sent on {layout}"
            run.equal(found[number]["sent"], layout.sent(rank), what, likely=twice)
            most = (layout.dp > 1) + (layout.other_end(rank) is not None)
            what = f"the number of calls that send something on {layout}"
            run.equal(found[number]["calls"], most, what)


def _compare_shard(run: Run, found: dict[str, Any], layout: Ends, rank: int) -> None:
    """One rank's shard, gradient by gradient."""
    shard, whole = found["shard"], layout.shard(rank)
    if isinstance(shard, torch.Tensor) and shard.shape == whole.shape:
        for name, here, place in layout.overlaps(rank):
            likely = layout.half_repairs(rank, name, here)
            what = f"the gradient of {name} in the shard, on {layout},"
            run.close(shard[place], layout.mean(rank, name)[here], what, rank=rank, likely=likely)
    run.close(shard, whole, f"the shard on {layout}", rank=rank)


@check("average_gradients: with ep 1, 2 and 4 on 4 ranks", points=2, code="E")
@diagnosis("the docstring's symptom: follow one expert's gradient on all ranks")
def check_experts(run: Run) -> None:
    """E: one layer and the same samples, its experts dealt out over more and more ranks."""
    world, count, hidden, tokens = 4, 4, run.number(4, 7), run.number(7, 12)
    experts = {str(number): run.random((hidden, hidden)) for number in range(count)}
    values = {"router": run.random((count, hidden)), **experts}
    batches = [[run.random((tokens, hidden)), run.random((tokens, hidden))] for _ in range(world)]
    layouts = [1, 2, 4]
    inputs: list[dict[str, Any]] = [
        {"layouts": layouts, "data": {**values, "x": x, "target": target}} for x, target in batches
    ]
    result = run(drive_experts, inputs, world=world)
    right = mixture_gradients(values, batches)
    for number, ep in enumerate(layouts):
        for found in run.each(result.outputs):
            said = found[number]
            run.true(
                said["same"],
                f"a parameter has another gradient than before, with ep {ep}",
                cause="change the gradient itself, in place",
            )
            for name, grad in said["grads"].items():
                what = "the router" if name == "router" else f"expert {name}"
                run.close(
                    grad,
                    right[name],
                    f"the gradient of {what} with ep {ep}",
                    likely=wrong_scales(right, name, world, ep),
                    terms=64,
                )


@check("clip_gradients: with tp 1, 2 and 4 on 4 ranks", points=2, code="E")
@diagnosis("the docstring's symptom: compute the norm of a few numbers by hand")
def check_clip(run: Run) -> None:
    """E: norms and gradients; groups of one mesh have different ones."""
    world = 4
    cases = [case for tp in (1, 2, 4) for case in draw_norms(run, tp, world)]
    inputs = [
        {"layouts": [[groups[rank].tp, groups[rank].parts(rank), limit] for groups, limit in cases]}
        for rank in range(world)
    ]
    result = run(drive_clip, inputs, world=world)
    for number, (groups, limit) in enumerate(cases):
        for rank, output in enumerate(run.each(result.outputs)):
            mine, found = groups[rank], output[number]
            likely: dict[str, Any] = mine.wrong(rank)
            run.close(found["norm"], mine.norm(), f"the norm with tp {mine.tp}", likely=likely)
            what = f"a gradient with tp {mine.tp}, clipped to {limit:.3g}"
            likely = mine.wrong_clipped(rank, limit)
            run.close(found["grads"], mine.clipped(rank, limit), what, likely=likely)
            run.equal(found["more"], [], "the parameters that had no gradient and have one now")


# --- the names -----------------------------------------------------------------------------------
def _judge(run: Run, exhibit: str) -> None:
    judge_name(run, run(drive_names, world=1).outputs[0], exhibit, *FAULTS[exhibit])


@check("start_engine: the fault's line and ranks", points=1, code="E")
def check_engine_name(run: Run) -> None:
    """The name of exhibit 1."""
    _judge(run, "start_engine")


@check("finish_gradients: the fault's line and ranks", points=1, code="E")
def check_ends_name(run: Run) -> None:
    """The name of exhibit 2."""
    _judge(run, "finish_gradients")


@check("average_gradients: the fault's line and ranks", points=1, code="E")
def check_experts_name(run: Run) -> None:
    """The name of exhibit 3."""
    _judge(run, "average_gradients")


@check("clip_gradients: the fault's line and ranks", points=1, code="E")
def check_clip_name(run: Run) -> None:
    """The name of exhibit 4."""
    _judge(run, "clip_gradients")
