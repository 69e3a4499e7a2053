"""local_sgd: the weights of workers that one process plays, and no byte between two meetings."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.communication import workers
from grading.references.communication.workers import INNER, SHAPES, of_rank

EXERCISE = Exercise(
    title="Local SGD",
    core=True,
    minutes=20,
    order=1,
    defines=("LocalSGD",),
    hints=(
        "Between two meetings this is training on one process. What must be equal at the start "
        "for the mean of the weights to make sense? And what does a meeting change: weights, "
        "gradients, or the optimizer's state?",
        "Count the steps. The parameters are in `optimizer.param_groups`. Call "
        "`broadcast(parameter.detach(), 0, group)` at the start, and "
        '`all_reduce(parameter.detach(), group, "avg")` in a meeting; both write into the '
        "parameter.",
        "`self.optimizer.step()`, `self.steps += 1`, and `if self.steps % self.every == 0:` the "
        "all-reduce for each parameter that requires a gradient.",
    ),
)

WORLD, EVERY = 3, 3
KNOWN = {
    "gradients are averaged in every step: that is DDP; average weights instead": "gradients",
    "this is the sum of the weights: take their mean": "sum",
    "the ranks meet after steps 1, H + 1, ...: they must meet after steps H, 2H, ...": "early",
    "the replicas began with different weights: all begin with those of index 0": "own start",
    "the optimizers' states were averaged too: each rank keeps its own": "moments",
    "the optimizer's state was thrown away in the meeting": "reset",
    "only matrices were averaged: average vectors too": "matrices",
}
COPIED = (
    "all weights are right but one, which is not contiguous: `contiguous()` made a copy, and only "
    "that was averaged"
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    start: list[torch.Tensor],
    targets: list[workers.Targets],
    every: int,
    frozen: torch.Tensor,
) -> dict[str, Any]:
    """Trains this rank's replica with each optimizer; says where in the ledger each step ended."""
    said: dict[str, Any] = {}
    for name, make in INNER.items():
        still = nn.Parameter(frozen.clone(), requires_grad=False)
        parameters = workers.replica(start)
        storages = [p.data_ptr() for p in parameters]
        optimizer = make([{"params": [*parameters[:1], still]}, {"params": parameters[1:]}])
        made = learner.LocalSGD(optimizer, group, every)
        places, weights, untouched = [len(group.ledger.events)], [], True
        for step in targets:
            made.zero_grad()
            gradients = workers.pull(parameters, step)
            made.step()
            untouched &= workers.unchanged(parameters, gradients)
            places.append(len(group.ledger.events))
            weights.append([p.detach().clone() for p in parameters])
        said[name] = {
            "weights": weights,
            "moments": [workers.first_moment(optimizer, p) for p in parameters],
            "places": places,
            "frozen": still.detach().clone(),
            "untouched": untouched,
            "stayed": storages == [p.data_ptr() for p in parameters],
        }
    return said


# --- what they must bring back -------------------------------------------------------------------
def _trained(
    run: Run, dtype: torch.dtype = torch.float64
) -> tuple[workers.Job, list[torch.Tensor], Any]:
    given = workers.job(run, WORLD, steps=2 * EVERY + 1, every=EVERY, dtype=dtype)
    frozen = [run.random(3, dtype) for _ in range(WORLD)]
    inputs = [
        {"start": start, "targets": targets, "every": EVERY, "frozen": still}
        for start, targets, still in zip(given.starts, given.targets, frozen, strict=True)
    ]
    return given, frozen, run(drive, inputs, world=WORLD)


@check("weights after every step, with SGD and with AdamW", points=6, code="E")
@diagnosis(
    "take each step alone; after every H-th step, each weight becomes its mean over the group"
)
@in_part
def check_weights(run: Run) -> None:
    """E: equal to three workers that one process plays, in float64 and in bfloat16."""
    given, _, result = _trained(run)
    for name in INNER:
        right = workers.play(given, name).weights
        wrong = {why: workers.play(given, name, slip=slip).weights for why, slip in KNOWN.items()}
        for rank, output in enumerate(run.each(result.outputs)):
            own, likely = output[name], {why: of_rank(steps, rank) for why, steps in wrong.items()}
            mine = of_rank(right, rank)
            pairs = list(zip(own["weights"], mine, strict=True))
            others = [(a[n], b[n]) for a, b in pairs for n in range(1, len(b))]
            if all(torch.allclose(found, wanted, 0, 1e-9) for found, wanted in others):
                likely[COPIED] = [[a[0], *b[1:]] for a, b in pairs]
            what = f"the weights after step {{}} of {name}, with a meeting every {EVERY} steps"
            run.steps(own["weights"], mine, what, likely=likely)
            run.true(
                own["stayed"],
                "the parameters have moved to other memory",
                cause="others may refer to them: write into them",
            )
            run.true(own["untouched"], "`step` has changed the gradients of the parameters")
    given, _, result = _trained(run, torch.bfloat16)
    for name in INNER:
        right = workers.play(given, name).weights
        for rank, output in enumerate(run.each(result.outputs)):
            what = f"the weights after step {{}} of {name} in bfloat16"
            run.steps(output[name]["weights"], of_rank(right, rank), what, terms=16)


@check(
    "frozen parameters begin equal, and each rank keeps its optimizer's state", points=3, code="E"
)
@diagnosis("a meeting averages only weights")
def check_state(run: Run) -> None:
    """E: first moments at the end, and a parameter without a gradient."""
    given, frozen, result = _trained(run)
    for name in INNER:
        right = workers.play(given, name).moments
        averaged = workers.play(given, name, slip="moments").moments
        for rank, found in enumerate(run.each(result.outputs)):
            likely: dict[str, Any] = {
                "it was averaged: it must follow this rank's own gradients": averaged[rank]
            }
            what = f"the first moment of {name} after the last step"
            run.close(found[name]["moments"], right[rank], what, likely=likely)
            likely = {"it was not broadcast: replicas must begin equal": frozen[rank]}
            run.close(found[name]["frozen"], frozen[0], "a frozen parameter", likely=likely)


@check("2(N-1)/N·S bytes in a meeting, and none in between", points=3, code="B")
@diagnosis("after every H-th step, all-reduce the trained parameters and nothing else")
def check_bytes(run: Run) -> None:
    """B: exact, by step, from the ledger; of weights in two dtypes."""
    for dtype in (torch.float64, torch.bfloat16):
        _compare_bytes(run, dtype)


def _compare_bytes(run: Run, dtype: torch.dtype) -> None:
    _, _, result = _trained(run, dtype)
    counts = [torch.Size(shape).numel() for shape in SHAPES]
    for rank, found in enumerate(run.each(result.outputs)):
        ways = [counts, [sum(counts)], [counts[0], sum(counts[1:])]]  # each, all, by group
        fair = [workers.all_reduced(way, dtype, WORLD, rank) for way in ways]
        stray = workers.all_reduced([*counts, 3], dtype, WORLD, rank)
        for name in INNER:
            steps = workers.sent_by_step(result.ledgers[rank], found[name]["places"])
            for step, sent in enumerate(steps, 1):
                meets = step % EVERY == 0
                if meets and sent in fair:
                    continue
                likely = {
                    **workers.likely_bytes(fair[0], dtype, meets),
                    "the frozen parameter is sent as well": stray,
                    "twice as many: moments or gradients are sent as well": 2 * fair[0],
                    "three times as many: both of Adam's moments are sent": 3 * fair[0],
                }  # fmt: skip
                what = f"bytes sent in step {step} in {dtype}, with a meeting every {EVERY} steps"
                run.equal(sent, fair[0] if meets else 0, what, likely=likely)
