"""hsdp: one process's gradients and weights, and the right bytes on each axis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from course_lib.comm import Mesh
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace.memory import LiveMemory
from grading.references.data_parallel.training import all_only_bf16

EXERCISE = Exercise(
    title="Shards inside the node, replicas between nodes",
    core=False,
    minutes=25,
    order=7,
    defines=("HSDP",),
    hints=(
        "On the mesh of 2 × 2, write down whose gradients are in rank 0's shard after the "
        "reduce-scatter over `shard`. Whose are missing, and which rank has them?",
        "`reduce`: reduce-scatter the padded gradient over `shard`, which leaves one shard; "
        "all-reduce only that over `replica`. The mean of the two nodes' means is the mean over "
        "all ranks.",
        "`padded(flat, g).chunk(g)[shard.index].clone()` is the shard. Use `op='avg'` in both "
        "reductions; then the result becomes `weights.grad`, or is added to it. `gather` needs "
        "only `shard`, and cuts the padding off.",
    ),
)

MESHES = ((1, 1), (1, 3), (3, 1), (2, 2))  # nodes (replicas), and ranks in each (shards)
SHARDS, REPLICAS = [[3, 1], [2, 0]], [[3, 2], [1, 0]]  # a mesh of 2 × 2 in another order
STEPS = 3
STEPPERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
}


# --- what runs on the ranks ----------------------------------------------------------------------
def loss(row: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """A loss whose gradient depends on every weight and on this rank's data."""
    return (torch.sin(row) * data).sum() + (row * data).sum().square() / len(row)


def drive(
    learner: Any, group: Any, nodes: int, flat: torch.Tensor, data: list[torch.Tensor]
) -> dict[str, Any]:
    """Two reductions without a step; then steps with each optimizer."""
    torch.use_deterministic_algorithms(True)  # what is never written is NaN
    mesh = Mesh(group, {"replica": nodes, "shard": group.size // nodes})

    def backward(model: Any, given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = model.gather().detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(whole, given), [whole])
        kept = gradient.clone()
        model.reduce(gradient)
        return whole.detach(), kept, gradient

    model = learner.HSDP(flat.clone(), mesh["shard"], mesh["replica"])
    if model.gather().shape != flat.shape:
        return {"whole": model.gather().detach().clone()}
    whole, *pair = backward(model, data[0])
    found = {"whole": whole, "shard": model.weights.detach().clone(),
             "first": model.weights.grad.clone()}  # fmt: skip
    backward(model, data[1])
    found |= {"second": model.weights.grad.clone(), "kept": torch.equal(*pair)}
    for name, (optimizer, options) in STEPPERS.items():
        model = learner.HSDP(flat.clone(), mesh["shard"], mesh["replica"])
        stepper = optimizer([model.weights], **options)
        for given in data:
            stepper.zero_grad()
            backward(model, given)
            stepper.step()
        found[name] = model.gather().detach().clone()
    return found


def drive_once(
    learner: Any, group: Any, nodes: int, flat: torch.Tensor, gradient: torch.Tensor, most: int
) -> dict[str, Any]:
    """One gather and one reduction, and what the weights hold before; that is `most` bytes."""
    mesh = Mesh(group, {"replica": nodes, "shard": group.size // nodes})
    with LiveMemory() as memory:
        model = learner.HSDP(flat.clone(), mesh["shard"], mesh["replica"])
        for _ in range(1000):  # the thread that tells the judge where this rank is holds on, too
            if memory.now <= most:
                break
            time.sleep(0.0005)
        held = memory.now
    model.gather()
    model.reduce(gradient)
    return {"held": held}


def drive_unordered(
    learner: Any, group: Any, flat: torch.Tensor, gradient: torch.Tensor
) -> dict[str, Any]:
    """One gather and one reduction on 2 × 2 ranks, which do not ascend in any group."""
    shard, replica = group.split(SHARDS, "shard"), group.split(REPLICAS, "replica")
    model = learner.HSDP(flat.clone(), shard, replica)
    model.reduce(gradient)
    return {"whole": model.gather(), "gradient": model.weights.grad,
            "shard": model.weights.detach()}  # fmt: skip


# --- what they must bring back -------------------------------------------------------------------
def gradients(flat: torch.Tensor, rows: list[torch.Tensor]) -> list[torch.Tensor]:
    """Each rank's own gradient."""
    flat = flat.clone().requires_grad_()
    return [torch.autograd.grad(loss(flat, row), [flat])[0] for row in rows]


def part(row: torch.Tensor, shards: int, index: int) -> torch.Tensor:
    """One shard of a row that is padded with zeros."""
    return torch.nn.functional.pad(row, (0, -len(row) % shards)).chunk(shards)[index]


def _runs(run: Run) -> Iterator[tuple[str, int, int, dict[str, Any], list[dict[str, Any]]]]:
    """For each mesh and rank: words, g, rank, what it found, and the inputs of all ranks."""
    for nodes, shards in MESHES:
        size = 6 * run.number(3, 9) + 1  # a remainder for 2 and 3 shards
        flat = run.random(size)
        inputs = [
            {"nodes": nodes, "flat": flat, "data": [run.random(size) for _ in range(STEPS)]}
            for _ in range(nodes * shards)
        ]
        result = run(drive, inputs, world=nodes * shards)
        for rank, found in enumerate(run.each(result.outputs)):
            words = f"({nodes} × {shards} ranks)"
            run.close(found["whole"], flat, f"what gather returns {words}")
            yield words, shards, rank, found, inputs


@check("the mean gradient of all ranks, on four meshes", points=3, code="E")
@diagnosis("which ranks' gradients are in the shard after each of the two reductions?")
def check_gradient(run: Run) -> None:
    """E: the shard, its gradient, a second one that adds; sizes that do not divide; one rank."""
    for words, shards, rank, found, inputs in _runs(run):
        flat, index = inputs[0]["flat"], rank % shards
        every = [gradients(flat, [given["data"][step] for given in inputs]) for step in (0, 1)]
        means = [part(torch.stack(rows).mean(0), shards, index) for rows in every]
        node = torch.stack(every[0][rank - index : rank - index + shards])
        rail = torch.stack(every[0][index::shards])
        world = len(inputs)
        known = {"every rank keeps all weights": flat}
        name = f"the shard {words}"
        run.close(found["shard"], part(flat, shards, index), name, likely=known)
        likely = {
            "the mean of the node alone: the all-reduce over `replica` is missing":
                part(node.mean(0), shards, index),
            "the mean over `replica` alone: the other ranks of the node are missing":
                part(rail.mean(0), shards, index),
            "summed over `replica`: average over it, too": means[0] * (world // shards),
            "summed over `shard`: average over it, too": means[0] * shards,
            "the sum over all ranks, not the mean": means[0] * world,
            "divided by the number of ranks twice": means[0] / world,
        }  # fmt: skip
        name = f"weights.grad {words}"
        run.close(found["first"], means[0], name, terms=world, likely=likely)
        both, what = means[0] + means[1], f"weights.grad after two reductions {words}"
        late = {"only the second: `reduce` adds": means[1]}
        run.close(found["second"], both, what, likely=late)
        cause = "`weights.grad` shares its memory, and the next `reduce` writes into it: clone it"
        run.true(found["kept"], f"reduce has changed the gradient that it got {words}", cause=cause)


@check("the weights after 3 steps with SGD and with AdamW", points=2, code="E")
@diagnosis("gather must send the shards as they are now, and all replicas must take the same steps")
def check_steps(run: Run) -> None:
    """E: an optimizer on the shards does what one on all weights does."""
    for words, _, _, found, inputs in _runs(run):
        for name, (optimizer, options) in STEPPERS.items():
            row = inputs[0]["flat"].clone().requires_grad_()
            stepper = optimizer([row], **options)
            for step in range(STEPS):
                own = gradients(row.detach(), [given["data"][step] for given in inputs])
                row.grad = torch.stack(own).mean(0)
                stepper.step()
            what = f"the weights after {STEPS} steps of {name} {words}"
            run.close(found[name], row.detach(), what)


@check("groups in which the ranks do not ascend", points=1, code="E")
@diagnosis("a rank's place in a group is `group.index`; its number in the world does not tell it")
def check_unordered(run: Run) -> None:
    """E: nodes of the ranks 3, 1 and 2, 0."""
    flat, *rows = [run.random(13) for _ in range(5)]
    result = run(drive_unordered, [{"flat": flat, "gradient": row} for row in rows], world=4)
    mean = torch.stack(rows).mean(0)
    index = {rank: node.index(rank) for node in SHARDS for rank in node}
    for rank, found in enumerate(run.each(result.outputs)):
        run.close(found["shard"], part(flat, 2, index[rank]), "the shard")
        run.close(found["gradient"], part(mean, 2, index[rank]), "weights.grad")
        run.close(found["whole"], flat, "what gather returns")


def _once(run: Run, nodes: int, shards: int) -> tuple[Any, int]:
    """One gather and one reduction, and the bytes of the weights; all in bf16."""
    flat = run.random(192, torch.bfloat16)
    given = {"nodes": nodes, "flat": flat, "most": flat.nbytes // shards, "gradient": flat}
    return run(drive_once, given, world=nodes * shards), flat.nbytes


@check("2(n-1)/n·S/g bytes between the replicas, 2(g-1)/g·S among the shards", points=3, code="B")
@diagnosis(
    "a gather and a reduce-scatter over `shard`; only one shard is all-reduced over `replica`"
)
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger, axis by axis."""
    for nodes, shards in MESHES:
        result, size = _once(run, nodes, shards)
        all_only_bf16(run, result.ledgers)
        between = 2 * (nodes - 1) * size // nodes
        what = "bytes sent over `replica`"
        run.bytes(result, between // shards, axis="replica", what=what, likely={
            "the replicas' gradients are never reduced": 0,
            "the whole gradient goes between the nodes: reduce-scatter over `shard` first": between,
            "the weights are gathered over `replica`, too": between * 3 // 2,
        })  # fmt: skip
        inside = (shards - 1) * size // shards
        likely = {
            "the gradient is all-reduced, but the rank needs only its shard of it: "
            "reduce-scatter": 3 * inside,
            "half as many: one of gather and reduce-scatter sends nothing": inside,
            "nothing is sharded: every rank has all weights": 0,
        }
        run.bytes(result, 2 * inside, axis="shard", what="bytes sent over `shard`", likely=likely)


@check("S/g bytes of weights on each rank", points=1, code="M")
@diagnosis("a shard that is a view keeps all of `flat` alive: clone it")
def check_memory(run: Run) -> None:
    """M: what is held once the weights are cut."""
    for nodes, shards in MESHES:
        result, size = _once(run, nodes, shards)
        for found in run.each(result.outputs):
            run.at_most(found["held"], size // shards, f"bytes held ({shards} shards)")
