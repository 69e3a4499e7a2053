"""streaming_diloco: fragments in turn, late outer steps; equal to workers of one process."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.communication import workers
from grading.references.communication.workers import INNER, OUTER, SHAPES, of_rank

EXERCISE = Exercise(
    title="Streaming DiLoCo",
    core=False,
    minutes=35,
    order=5,
    defines=("StreamingDiLoCo",),
    hints=(
        "Write down, for H = 4, two fragments and a delay of 2, after which steps each fragment "
        "begins and ends. What must a meeting remember between the two?",
        "Keep a list of the meetings under way: when each is due, which fragment it is, the "
        "differences, and their `Work`. Store the differences in new tensors, so that training "
        "does not change them. While the first meeting in the list is due, take it out and end "
        "it.",
        "At the end of a meeting, wait, set `anchor.grad` for its fragment to the averaged "
        "differences, and call `outer.step()` and `outer.zero_grad()`, so that the other "
        "fragments' momentum stays. Then call `parameter.lerp_(anchor, 1 - keep)`.",
    ),
)

WORLD, EVERY, FRAGMENTS = 3, 5, ((0, 3), (2,), (1,))  # 5·2//3 is not 2·(5//3)
# H, delay and share; with H = 2, two fragments begin after the same step.
WAYS = ((EVERY, 0, 0.0), (EVERY, 1, 0.5), (EVERY, 3, 0.25), (2, 0, 0.0), (2, 1, 0.5))
KNOWN = {
    "several fragments may begin after the same step: one of them was left out": "one",
    "all fragments meet after the same step: fragment f must meet f·H//F steps later": "in phase",
    "θ of other fragments moved, too, by old gradients: their gradients must be None": "stale",
    "θ of other fragments moved on by momentum: a gradient of zeros is not None": "zeros",
    "a meeting ends a step too late: it must end `delay` steps after its begin": "late",
    "fragment f must begin f·H//F steps after a multiple of H, not before it": "turned",
    "fragment f must meet (f·H)//F steps later: round after the product": "rounded first",
    "the difference was taken when the meeting ended: take it when the meeting begins": "late look",
    "`keep` is ignored: the weights become keep · w + (1 - keep) · θ": "no share",
    "the shares are swapped: `keep` is the share of w": "share turned",
    "the outer optimizer has lost its momentum: make it only once": "forgets",
    "the outer step goes in the wrong direction: the gradient is θ - w": "sign",
    "this is the sum of the differences: take their mean": "sum of ways",
}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    start: list[torch.Tensor],
    targets: list[workers.Targets],
) -> dict[str, Any]:
    """Trains this rank's replica in each way; where in the ledger each step ended."""
    said = []
    for every, delay, keep in WAYS:
        parameters = [nn.Parameter(weight.clone()) for weight in start]
        storages = [p.data_ptr() for p in parameters]
        made = learner.StreamingDiLoCo(
            INNER["AdamW"](parameters), group, every, OUTER["Nesterov"], FRAGMENTS, delay, keep
        )
        places, weights, under_way = [len(group.ledger.events)], [], []
        before = len(group.ledger.open_events())  # of the way before
        untouched = True
        for step in targets:
            gradients = workers.pull(parameters, step)
            made.step()
            untouched &= workers.unchanged(parameters, gradients)
            places.append(len(group.ledger.events))
            under_way.append(len(group.ledger.open_events()) - before)
            weights.append([p.detach().clone() for p in parameters])
        stayed = storages == [p.data_ptr() for p in parameters]
        said.append({"weights": weights, "places": places, "open": under_way,
                     "stayed": stayed, "untouched": untouched})  # fmt: skip
    return {"ways": said}


# --- what they must bring back -------------------------------------------------------------------
def _trained(run: Run, dtype: torch.dtype = torch.float64) -> tuple[workers.Job, Any]:
    given = workers.job(run, WORLD, steps=3 * EVERY + 1, every=EVERY, dtype=dtype)
    inputs = [
        {"start": start, "targets": targets}
        for start, targets in zip(given.starts, given.targets, strict=True)
    ]
    return given, run(drive, inputs, world=WORLD)


@check("weights after every step, with several values of H, delay and keep", points=8, code="E")
@diagnosis(
    "each fragment begins after its own step, with the weights of that moment, and takes its "
    "outer step `delay` steps later"
)
@in_part
def check_weights(run: Run) -> None:
    """E: equal to three workers that one process plays, in float64."""
    given, result = _trained(run)
    for way, (every, delay, keep) in enumerate(WAYS):
        job = given._replace(every=every)
        play = partial(
            workers.play, job, "AdamW", "Nesterov", fragments=FRAGMENTS, delay=delay, keep=keep
        )
        right = play().weights
        wrong = {why: play(slip=slip).weights for why, slip in KNOWN.items()}
        for rank, output in enumerate(run.each(result.outputs)):
            likely = {why: of_rank(steps, rank) for why, steps in wrong.items()}
            what = f"the weights after step {{}}, with H = {every}, delay = {delay}, keep = {keep}"
            found = output["ways"][way]
            run.steps(found["weights"], of_rank(right, rank), what, likely=likely)
            cause = "somebody may hold them: write into them"
            run.true(found["stayed"], "the parameters have moved to other memory", cause=cause)
            run.true(found["untouched"], "`step` has changed the gradients of the parameters")


@check("a fragment's bytes, in the steps in which it begins to meet", points=3, code="B")
@diagnosis("2(N-1)/N times the bytes of the fragment, and nothing in other steps")
def check_bytes(run: Run) -> None:
    """B: exact, by step, from the ledger; of weights in two dtypes."""
    for dtype in (torch.float64, torch.float32):
        _compare_bytes(run, dtype)


def _compare_bytes(run: Run, dtype: torch.dtype) -> None:
    _, result = _trained(run, dtype)
    for rank, found in enumerate(run.each(result.outputs)):
        for way, (every, delay, _) in enumerate(WAYS):
            steps = workers.sent_by_step(result.ledgers[rank], found["ways"][way]["places"])
            for step, sent in enumerate(steps, 1):
                begins = [
                    [torch.Size(SHAPES[n]).numel() for n in fragment]
                    for f, fragment in enumerate(FRAGMENTS)
                    if (step - f * every // len(FRAGMENTS)) % every == 0
                ]
                counts = [n for fragment in begins for n in fragment]
                ways = (counts, [sum(fragment) for fragment in begins], [sum(counts)])
                fair = [workers.all_reduced(some, dtype, WORLD, rank) for some in ways]
                all_of_them = [torch.Size(s).numel() for s in SHAPES]
                if sent in fair:
                    continue
                likely = {
                    "all fragments meet at once":
                        workers.all_reduced(all_of_them, dtype, WORLD, rank),
                    "nothing is sent, although a fragment is due": 0 if counts else -1,
                    **workers.in_other_dtypes(fair[0], dtype),
                }  # fmt: skip
                what = f"bytes sent in step {step} in {dtype}, with H = {every}, delay = {delay}"
                run.equal(sent, fair[0], what, likely=likely)


@check("no rank waits for a meeting before its end", points=3, code="O")
@diagnosis("begin with async_op=True, and wait `delay` steps later")
def check_order(run: Run) -> None:
    """O: from the ledger: a call is open after exactly those steps that a meeting outlasts."""
    _, result = _trained(run)
    for output in run.each(result.outputs):
        for way, (every, delay, _) in enumerate(WAYS):
            for step, found in enumerate(output["ways"][way]["open"], 1):
                begins = [
                    begin
                    for begin in range(max(1, step - delay + 1), step + 1)
                    for f in range(len(FRAGMENTS))
                    if (begin - f * every // len(FRAGMENTS)) % every == 0
                ]
                likely = {
                    "it waits too early: training must go on during the all-reduce": False,
                    "the meeting began too early, or the wait comes too late": True,
                }
                what = (
                    f"whether a call is under way after step {step} (H = {every}, delay = {delay})"
                )
                run.equal(found > 0, bool(begins), what, likely=likely)
