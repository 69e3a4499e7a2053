"""error_feedback: three compressors, equal to one process; the sums telescope; messages alone."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.communication import compressed
from grading.references.communication.compressed import COMPRESSORS
from grading.references.communication.workers import of_rank

EXERCISE = Exercise(
    title="Error feedback",
    core=True,
    minutes=25,
    order=3,
    defines=("ErrorFeedback",),
    hints=(
        "Write down the sum over three steps: what was sent, and what was not. Which difference "
        "must a rank keep so that the next message can carry it? It needs no other rank for that.",
        "`parts = compress(owed)`; `decompress(parts, owed)` is what the others receive from "
        "this rank, and `owed` minus that is the error. A gathered tensor of shape [N, "
        "*part.shape] has the part of index i at position i.",
        "For each part `all_gather(part.new_empty(group.size, *part.shape), part, group)`; then "
        "add `decompress([whole[i] for whole in gathered], owed)` over i in order, and divide by "
        "`group.size`.",
    ),
)

WORLD, STEPS = 3, 5
KNOWN = {
    "nothing is fed back: add the error of the previous step": "none",
    "this is the sum over the ranks: divide by the group's size": "sum",
    "the error was computed from the mean: it is what this rank did not send": "of the mean",
    "the error is the gradient minus what was sent, so older errors are lost": "gradient alone",
    "the error still contains what was sent, so that is sent twice": "everything",
    "the error is subtracted: it is still owed, so add it": "subtracted",
    "the gradients are averaged first and then compressed: only messages may be sent":
        "sum first",
}  # fmt: skip


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, gradients: list[torch.Tensor]) -> dict[str, Any]:
    """Feeds the gradients to each compressor; says what is owed after each step."""
    said: dict[str, Any] = {}
    for name, compressor in COMPRESSORS.items():
        feedback = learner.ErrorFeedback(compressor)
        means, errors, untouched = [], [], []
        for gradient in gradients:
            given = gradient.clone()
            mean = feedback.mean(given, group)
            means.append(mean)
            error = feedback.error
            errors.append(error.detach().clone() if torch.is_tensor(error) else error)
            untouched.append(torch.equal(given, gradient))
        said[name] = {"means": means, "errors": errors, "untouched": untouched}
    return said


# --- what they must bring back -------------------------------------------------------------------
def _fed(run: Run, dtype: torch.dtype = torch.float64) -> tuple[list[list[torch.Tensor]], Any]:
    count = run.number(18, 30)
    scales = [1, 1, 0.1, 1, 1]  # once, more is owed than comes
    gradients = [[scale * run.random(count, dtype) for scale in scales] for _ in range(WORLD)]
    return gradients, run(drive, [{"gradients": each} for each in gradients], world=WORLD)


@check("the mean of the messages, in every step and with every compressor", points=6, code="E")
@diagnosis("each rank compresses and sends its gradient plus what it still owes")
@in_part
def check_means(run: Run) -> None:
    """E: three ranks, in two dtypes; every rank has the same result, to the bit."""
    for dtype in (torch.float64, torch.float32):
        _compare_means(run, dtype)


def _compare_means(run: Run, dtype: torch.dtype) -> None:
    gradients, result = _fed(run, dtype)
    for name, compressor in COMPRESSORS.items():
        right = compressed.feed(compressor, gradients).means
        wrong = {why: compressed.feed(compressor, gradients, s).means for why, s in KNOWN.items()}
        for output in run.each(result.outputs):
            found = output[name]
            what = f"the mean of step {{}} with {name} in {dtype}"
            run.steps(found["means"], right, what, likely=wrong, terms=STEPS * WORLD)
            for step in range(STEPS):
                run.true(
                    torch.equal(found["means"][step], result.outputs[0][name]["means"][step]),
                    f"the mean of step {step + 1} with {name} differs from that of index 0 in its "
                    "last bits",
                    cause="add up in the order of the group on every rank",
                )
            cause = "put what is owed into a new tensor, also in the first step"
            run.true(all(found["untouched"]), "the gradient was changed", cause=cause)


@check("what was sent and the error add up to all gradients", points=4, code="E")
@diagnosis("the error is what this rank owed minus its own decompressed message")
def check_errors(run: Run) -> None:
    """E: after every step, on each rank by itself."""
    gradients, result = _fed(run)
    for name, compressor in COMPRESSORS.items():
        right = compressed.feed(compressor, gradients).errors
        wrong = {why: compressed.feed(compressor, gradients, s).errors for why, s in KNOWN.items()}
        for rank, output in enumerate(run.each(result.outputs)):
            likely = {why: of_rank(steps, rank) for why, steps in wrong.items()}
            what = f"the error after step {{}} with {name}"
            run.steps(output[name]["errors"], of_rank(right, rank), what, likely=likely)


@check("only messages are sent", points=3, code="B")
@diagnosis("all-gather each part of the message once")
def check_bytes(run: Run) -> None:
    """B: exact, over all steps and compressors; of gradients in two dtypes."""
    for dtype in (torch.float64, torch.float32):
        _compare_bytes(run, dtype)


def _compare_bytes(run: Run, dtype: torch.dtype) -> None:
    gradients, result = _fed(run, dtype)
    like = gradients[0][0]
    message = STEPS * sum(compressor.nbytes(like) for compressor in COMPRESSORS.values())
    whole = len(COMPRESSORS) * STEPS * like.nbytes
    likely = {
        "nothing is sent": 0,
        "whole vectors are gathered: send messages": (WORLD - 1) * whole,
        "messages and errors are sent: errors stay on their rank": (WORLD - 1) * (message + whole),
        "every message is sent twice": 2 * (WORLD - 1) * message,
        "messages are of vectors in float64: compress in the gradient's dtype":
            (WORLD - 1) * STEPS * sum(c.nbytes(like.double()) for c in COMPRESSORS.values()),
    }  # fmt: skip
    what = f"bytes sent of gradients in {dtype}"
    run.bytes(result, (WORLD - 1) * message, what=what, likely=likely)
