"""one_bit_adam: Adam in the warm-up, then signs of the momentum; equal to one process."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.parallel import ErrorFeedback, Sign
from grading.references.communication import compressed, workers

EXERCISE = Exercise(
    title="1-bit Adam",
    core=False,
    minutes=30,
    order=6,
    defines=("OneBitAdam",),
    hints=(
        "There are two kinds of step. In which of them are gradients averaged, and in which are "
        "moments sent? Which of the two moments may a compressed step change?",
        "Copy the gradients before you average them. After the warm-up, compute the new first "
        "moments from this rank's own gradients and pass them through `feedback.mean(list, "
        "group)`. What it returns is the first moment from then on.",
        "`new = [b1 * m + (1 - b1) * g ...]`; in the warm-up, `self.first = new` and v changes; "
        "afterwards, `self.first = self.feedback.mean(new, self.group)`. Then comes the update, "
        "with `min(steps, warmup)` in the correction of v.",
    ),
)

WORLD, STEPS, WARMUP, RATE, BETAS, EPS = 3, 7, 3, 0.1, (0.8, 0.95), 1e-8
SHAPES = ((3, 4), (5,))
KNOWN = {
    "the second moment changes after the warm-up: it must be frozen": "thaws",
    "gradients are compressed: compress the first moment instead": "gradients",
    "nothing is compressed: this is the exact mean": "exact",
    "this rank's own first moment is kept: keep the mean that `feedback` returned": "own moment",
    "the second moment's correction changes after the warm-up: keep that of step w": "correction",
    "the warm-up is one step too long: step w is its last": "long",
}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, start: list[torch.Tensor], pulls: list[list[torch.Tensor]]
) -> dict[str, Any]:
    """Trains; where in the ledger each step ended, and whether gradients stayed as they were."""
    parameters = [nn.Parameter(weight.clone()) for weight in start]
    storages = [p.data_ptr() for p in parameters]
    feedback = ErrorFeedback(Sign())
    made = learner.OneBitAdam(parameters, group, WARMUP, feedback, RATE, BETAS, EPS)
    weights, places, untouched = [], [len(group.ledger.events)], True
    for targets in pulls:
        gradients = workers.pull(parameters, targets)
        made.step()
        untouched &= workers.unchanged(parameters, gradients)
        weights.append([p.detach().clone() for p in parameters])
        places.append(len(group.ledger.events))
    stayed = storages == [p.data_ptr() for p in parameters]
    return {"weights": weights, "places": places, "untouched": untouched, "stayed": stayed}


# --- what they must bring back -------------------------------------------------------------------
def _played(
    start: list[torch.Tensor], pulls: list[list[list[torch.Tensor]]], slip: str = ""
) -> list[list[torch.Tensor]]:
    """The weights of rank 0 after each step, by one process; `slip` is a mistake."""
    size, (beta1, beta2) = len(pulls), BETAS
    warmup = WARMUP + (slip == "long")
    weights = [[w.clone() for w in start] for _ in range(size)]
    first = [[torch.zeros_like(w) for w in start] for _ in range(size)]
    second = [[torch.zeros_like(w) for w in start] for _ in range(size)]
    owed = [[torch.zeros_like(w) for w in start] for _ in range(size)]
    after = []
    for step in range(1, STEPS + 1):
        for n in range(len(start)):
            own = [weights[r][n] - pulls[r][step - 1][n] for r in range(size)]
            mean = torch.stack(own).mean(0)
            news = [beta1 * first[r][n] + (1 - beta1) * own[r] for r in range(size)]
            if step <= warmup:
                news = [beta1 * first[r][n] + (1 - beta1) * mean for r in range(size)]
                moved = [mean] * size
            else:
                news, moved = _compressed(news, own, [o[n] for o in owed], slip)
                for r in range(size):
                    owed[r][n] = moved[r]
                if slip == "gradients":
                    sent = news
                    news = [beta1 * first[r][n] + (1 - beta1) * sent[r] for r in range(size)]
                moved = own
            for r in range(size):
                first[r][n] = news[r]
                if step <= warmup or slip == "thaws":
                    square = (own[r] if step > warmup else mean) ** 2
                    second[r][n] = beta2 * second[r][n] + (1 - beta2) * square
                seen = step if slip in ("correction", "thaws") else min(step, warmup)
                root = (second[r][n] / (1 - beta2**seen)).sqrt() + EPS
                weights[r][n] = weights[r][n] - RATE / (1 - beta1**step) * news[r] / root
        after.append([w.clone() for w in weights[0]])
    return after


def _compressed(
    news: list[torch.Tensor], own: list[torch.Tensor], owed: list[torch.Tensor], slip: str
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What every rank has after the messages, and what each still owes."""
    given = own if slip == "gradients" else news
    if slip == "exact":
        return [torch.stack(news).mean(0)] * len(news), owed
    full = [g + e for g, e in zip(given, owed, strict=True)]
    flat = [compressed.arrives(Sign(), f.reshape(-1)).view(f.shape) for f in full]
    left = [f - s for f, s in zip(full, flat, strict=True)]
    if slip == "own moment":
        return news, left
    return [torch.stack(flat).mean(0)] * len(news), left


def _trained(
    run: Run, dtype: torch.dtype = torch.float64
) -> tuple[list[torch.Tensor], list[list[list[torch.Tensor]]], Any]:
    start = [run.random(shape, dtype) for shape in SHAPES]
    pulls = [
        [[2 * run.random(shape, dtype) for shape in SHAPES] for _ in range(STEPS)]
        for _ in range(WORLD)
    ]
    inputs = [{"start": start, "pulls": each} for each in pulls]
    return start, pulls, run(drive, inputs, world=WORLD)


@check("weights after every step, in the warm-up and after it", points=7, code="E")
@diagnosis(
    "average the gradients in the warm-up, and send the first moment through `feedback` after it"
)
@in_part
def check_weights(run: Run) -> None:
    """E: float64, three ranks; three steps of warm-up and four compressed ones."""
    start, pulls, result = _trained(run)
    right = _played(start, pulls)
    wrong = {why: _played(start, pulls, slip) for why, slip in KNOWN.items()}
    for found in run.each(result.outputs):
        what = f"with {WARMUP} steps of warm-up, the weights after step {{}}"
        run.steps(found["weights"], right, what, likely=wrong)
        cause = "average copies of the gradients"
        run.true(found["untouched"], "the gradients were changed", cause=cause)
        cause = "change them in place"
        run.true(found["stayed"], "the parameters have moved to other memory", cause=cause)


@check("gradients in the warm-up, then only messages", points=4, code="B")
@diagnosis("all-reduce the gradients in the warm-up; later send only the messages of `feedback`")
def check_bytes(run: Run) -> None:
    """B: exact, by step, from the ledger; of gradients in two dtypes."""
    for dtype in (torch.float64, torch.float32):
        _compare_bytes(run, dtype)


def _compare_bytes(run: Run, dtype: torch.dtype) -> None:
    start, _, result = _trained(run, dtype)
    message = (WORLD - 1) * sum(Sign().nbytes(w) for w in start)
    for rank, found in enumerate(run.each(result.outputs)):
        counts = [w.numel() for w in start]
        ways = (counts, [sum(counts)])
        fair = [workers.all_reduced(some, dtype, WORLD, rank) for some in ways]
        steps = workers.sent_by_step(result.ledgers[rank], found["places"])
        for step, sent in enumerate(steps, 1):
            if step <= WARMUP and sent in fair:
                continue
            run.equal(
                sent,
                fair[0] if step <= WARMUP else message,
                f"bytes sent in step {step} in {dtype}; the warm-up has {WARMUP}",
                likely={
                    "gradients are averaged as well: after the warm-up only messages may be sent":
                        message + fair[0],
                    "whole tensors are sent after the warm-up": fair[0],
                    "messages are sent in the warm-up": message,
                    "they were sent in float64: send them in their own dtype":
                        8 * fair[0] // dtype.itemsize,
                    "nothing is sent": 0,
                }
            )  # fmt: skip
