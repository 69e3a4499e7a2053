"""diloco: weights of workers that one process plays, with three outer optimizers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.communication import workers
from grading.references.communication.workers import INNER, OUTER, SHAPES, of_rank

EXERCISE = Exercise(
    title="DiLoCo: an outer optimizer",
    core=True,
    minutes=25,
    order=2,
    defines=("DiLoCo",),
    hints=(
        "There are two lists of weights: those that this rank trains, and θ, at which all ranks "
        "last met. Which of the two does the outer optimizer update? And does an optimizer go "
        "along the gradient or against it?",
        "θ is a list of `nn.Parameter(p.detach().clone())`, made after the broadcast, and "
        "`outer(θ)` is made once. In a meeting, each θ gets `.grad = θ - p`, all-reduced to the "
        "mean. Then take the outer step, and then `p.copy_(θ)`.",
        "Under `torch.no_grad()`: `anchor.grad = anchor - parameter`, "
        '`all_reduce(anchor.grad, self.group, "avg")` for each pair, `self.outer.step()`, and '
        "`parameter.copy_(anchor)` for each pair.",
    ),
)

WORLD, EVERY = 3, 2
WAYS = (("AdamW", "Nesterov"), ("SGD", "Nesterov"), ("SGD", "mean"), ("AdamW", "Adam"))
KNOWN = {
    "the outer step goes in the wrong direction: the gradient is θ - w, not w - θ": "sign",
    "this is the sum of the differences: take their mean": "sum of ways",
    "the outer optimizer has lost its momentum: make it only once": "forgets",
    "the outer step began at the mean of the weights: it must begin at θ": "twice",
    "the ranks took the mean of their weights: the outer optimizer takes the step": "plain mean",
    "the inner optimizers' moments were averaged: each rank keeps its own": "moments",
    "the state of the inner optimizer was thrown away": "reset",
    "the gradients of θ add up over the meetings: overwrite them each time": "adds up",
    "the ranks meet after steps 1, H + 1, ...: they must meet after steps H, 2H, ...": "early",
}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    start: list[torch.Tensor],
    targets: list[workers.Targets],
    every: int,
) -> dict[str, Any]:
    """Trains replicas of this rank with each pair of optimizers, when all of them are made."""
    said: dict[str, Any] = {}
    replicas = []
    calls: list[str] = []

    def counted(name: str, weights: list[nn.Parameter]) -> torch.optim.Optimizer:
        calls.append(name)
        return OUTER[name](weights)

    for inner, outer in WAYS:
        parameters = workers.replica(start)
        storages = [p.data_ptr() for p in parameters]
        optimizer = INNER[inner]([{"params": parameters[:1]}, {"params": parameters[1:]}])
        made = learner.DiLoCo(optimizer, group, every, partial(counted, outer))
        replicas.append((inner, outer, parameters, storages, optimizer, made))
    for inner, outer, parameters, storages, optimizer, made in replicas:
        places, weights, untouched = [len(group.ledger.events)], [], True
        begin = [p.detach().clone() for p in parameters]
        for step in targets:
            gradients = workers.pull(parameters, step)
            made.step()
            untouched &= workers.unchanged(parameters, gradients)
            places.append(len(group.ledger.events))
            weights.append([p.detach().clone() for p in parameters])
        said[f"{inner}, {outer}"] = {
            "begin": begin,
            "weights": weights,
            "moments": [workers.first_moment(optimizer, p) for p in parameters],
            "places": places,
            "untouched": untouched,
            "stayed": storages == [p.data_ptr() for p in parameters],
        }
    said["outer optimizers"] = len(calls)
    return said


# --- what they must bring back -------------------------------------------------------------------
def _trained(run: Run, dtype: torch.dtype = torch.float64) -> tuple[workers.Job, Any]:
    given = workers.job(run, WORLD, steps=3 * EVERY + 1, every=EVERY, dtype=dtype)
    inputs = [
        {"start": start, "targets": targets, "every": EVERY}
        for start, targets in zip(given.starts, given.targets, strict=True)
    ]
    return given, run(drive, inputs, world=WORLD)


@check("weights after every step, with three outer optimizers", points=8, code="E")
@diagnosis("the outer optimizer moves θ, with the mean of θ - w as its gradient")
@in_part
def check_weights(run: Run) -> None:
    """E: equal to three workers that one process plays, in float64."""
    given, result = _trained(run)
    for inner, outer in WAYS:
        for output in run.each(result.outputs):
            begin = output[f"{inner}, {outer}"]["begin"]
            same = list(map(torch.equal, begin, given.starts[0]))
            copied = "one is not contiguous: `contiguous()` made a copy, and that was broadcast"
            run.true(
                all(same),
                "the weights after construction are not those of index 0",
                cause=copied if all(same[1:]) else "broadcast them",
            )
        right = workers.play(given, inner, outer).weights
        wrong = {
            why: workers.play(given, inner, "mean").weights
            if slip == "plain mean"
            else workers.play(given, inner, outer, slip=slip).weights
            for why, slip in KNOWN.items()
        }
        for rank, output in enumerate(run.each(result.outputs)):
            found = output[f"{inner}, {outer}"]
            cause = "somebody may hold them: write into them"
            run.true(found["stayed"], "the parameters have moved to other memory", cause=cause)
            run.true(found["untouched"], "`step` has changed the gradients of the parameters")
            likely = {why: of_rank(steps, rank) for why, steps in wrong.items()}
            job = f"{inner} in {outer}, with a meeting every {EVERY} steps"
            what = f"the weights after step {{}} of {job}"
            run.steps(found["weights"], of_rank(right, rank), what, likely=likely)
    for output in run.each(result.outputs):
        calls = output["outer optimizers"]
        what = f"{len(WAYS)} objects have called `outer` {calls} times"
        run.true(calls == len(WAYS), what, cause="call it once, with θ")


@check("each rank keeps the state of its inner optimizer", points=2, code="E")
@diagnosis("a meeting changes the weights and nothing else")
def check_moments(run: Run) -> None:
    """E: first moments at the end, as they follow from the weights that there were."""
    given, result = _trained(run)
    for inner, outer in WAYS:
        for rank, output in enumerate(run.each(result.outputs)):
            found = output[f"{inner}, {outer}"]
            before = [found["begin"], *found["weights"][:-1]]
            run.close(
                found["moments"],
                workers.moments_of(inner, before, given.targets[rank]),
                f"the first moment of the inner {inner} after the last step",
            )


@check("2(N-1)/N·S bytes in a meeting, and none in between", points=3, code="B")
@diagnosis("send the differences once; every rank takes the outer step itself")
def check_bytes(run: Run) -> None:
    """B: exact, by step, from the ledger; of weights in two dtypes."""
    for dtype in (torch.float64, torch.bfloat16):
        _compare_bytes(run, dtype)


def _compare_bytes(run: Run, dtype: torch.dtype) -> None:
    _, result = _trained(run, dtype)
    counts = [torch.Size(shape).numel() for shape in SHAPES]
    for rank, found in enumerate(run.each(result.outputs)):
        ways = (counts, [sum(counts)])
        fair = [workers.all_reduced(way, dtype, WORLD, rank) for way in ways]
        for inner, outer in WAYS:
            places = found[f"{inner}, {outer}"]["places"]
            steps = workers.sent_by_step(result.ledgers[rank], places)
            for step, sent in enumerate(steps, 1):
                meets = step % EVERY == 0
                if meets and sent in fair:
                    continue
                likely = {
                    **workers.likely_bytes(fair[0], dtype, meets),
                    "twice as many: both weights and differences are sent, or the result is "
                    "sent again": 2 * fair[0],
                }  # fmt: skip
                what = f"bytes sent in step {step} in {dtype}, with a meeting every {EVERY} steps"
                run.equal(sent, fair[0] if meets else 0, what, likely=likely)
