"""tenth_of_the_bytes: DDP's loss within a tenth of its bytes; the bytes until then are the figure.

Source: Douillard et al., "DiLoCo" (2023), and Seide et al. (2014) for signs with error feedback,
which our answer puts together; Sarfi et al., "SparseLoCo" (2025), do so with few elements. No bound
is known but 0: which numbers have to be sent for a loss is an open question.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from grading.references.communication.workers import sent_in
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: the same loss, a tenth of the bytes",
    core=False,
    minutes=60,
    order=7,
    defines=("Worker",),
    open=("% of DDP's bytes", 4.7917, 0.4081),
    hints=(
        "Local SGD with 5 steps between two meetings sends a fifth of DDP's bytes per step, and "
        "may need more steps. How rarely can the ranks meet if you have 360 steps?",
        "A meeting need not send float64, and not even the weights. The change of the weights "
        "since the last meeting is smaller, and coarse numbers are enough for it if each rank adds "
        "the rounding error of one message to the next.",
        "Let the ranks meet rarely, and take an outer step with momentum there (section 3). Of its "
        "change, each rank sends only the signs and one scale for each tensor (section 4); eight "
        "signs fit into one byte of an all-gather. Then try out the number of steps between two "
        "meetings and both learning rates.",
    ),
)

INPUTS, HIDDEN, OUTPUTS, ROWS, BATCH = 10, 24, 4, 96, 16
STEPS, DDP_STEPS, FIXED = 360, 120, 4
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, OUTPUTS), (OUTPUTS,))
COUNT = sum(math.prod(shape) for shape in SHAPES)
Tensors = list[torch.Tensor]


# --- what runs on the ranks ----------------------------------------------------------------------
def gradients(weights: Tensors, x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """Of the mean squared error of a network with one hidden layer, by hand."""
    hidden = torch.tanh(x @ weights[0] + weights[1])
    error = 2 * (hidden @ weights[2] + weights[3] - y) / y.numel()
    back = (error @ weights[2].T) * (1 - hidden * hidden)
    return [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]


def drive(learner: Any, group: Any, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each problem the weights after each step, and how many calls there were by then."""
    found = []
    for case in cases:
        begin = len(group.ledger.events)
        weights = [weight.clone() for weight in case["start"]]
        worker = learner.Worker(weights, group)
        after, calls = [], []
        for rows in case["rows"]:
            worker.step(gradients(weights, case["x"][rows], case["y"][rows]))
            after.append(torch.cat([weight.detach().reshape(-1) for weight in weights]))
            calls.append(len(group.ledger.events))
        found.append({"after": torch.stack(after), "begin": begin, "calls": calls})
    return found


# --- the problems --------------------------------------------------------------------------------
class Problem(NamedTuple):
    """What ranks learn.

    Attributes:
        x: [ranks, rows, inputs].
        y: [ranks, rows, outputs].
        start: the first weights.
        rows: [ranks, steps, batch], of each rank's mini-batches.
    """

    x: torch.Tensor
    y: torch.Tensor
    start: Tensors
    rows: torch.Tensor


def _problem(draw: plans.Draw, ranks: int) -> Problem:
    """A teacher of the same kind; each rank's inputs lie around a centre of its own."""
    generator = torch.Generator().manual_seed(draw(0, 2**31, 1)[0])

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = normal(ranks, ROWS, INPUTS) + normal(ranks, 1, INPUTS) / 2
    first, second = normal(INPUTS, HIDDEN) / INPUTS**0.5, normal(HIDDEN, OUTPUTS) / HIDDEN**0.5
    y = torch.tanh(1.5 * x @ first) @ (2 * second)
    start = [normal(*shape) / shape[0] ** 0.5 * (len(shape) - 1) for shape in SHAPES]
    rows = torch.randint(0, ROWS, (ranks, STEPS, BATCH), generator=generator)
    return Problem(x, y, start, rows)


def _losses(problem: Problem, after: torch.Tensor) -> torch.Tensor:
    """On all ranks' data, for each row of weights."""
    parts = after.split([math.prod(shape) for shape in SHAPES], dim=1)
    w1, b1, w2, b2 = (p.view(-1, *shape) for p, shape in zip(parts, SHAPES, strict=True))
    x, y = problem.x.flatten(0, 1), problem.y.flatten(0, 1)
    found = torch.tanh(x @ w1 + b1[:, None]) @ w2 + b2[:, None]
    return (found - y).square().mean((1, 2))


def _goal(problem: Problem) -> float:
    """The loss that DDP reaches."""
    weights = [weight.clone() for weight in problem.start]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    for step in range(DDP_STEPS):
        rows = [each[step] for each in problem.rows]
        own = [
            gradients(weights, x[r], y[r])
            for x, y, r in zip(problem.x, problem.y, rows, strict=True)
        ]
        for weight, some in zip(weights, zip(*own, strict=True), strict=True):
            weight.grad = torch.stack(some).mean(0)
        optimizer.step()
    return float(_losses(problem, torch.cat([w.reshape(-1) for w in weights])[None]))


# --- what is looked at ---------------------------------------------------------------------------
def _percents(run: Run, problems: list[Problem]) -> list[float]:
    """Of DDP's bytes, for each problem; valid ones alone."""
    ranks = len(problems[0].x)
    each = [
        {"cases": [{"x": p.x[r], "y": p.y[r], "start": p.start, "rows": p.rows[r]}
                   for p in problems]}
        for r in range(ranks)
    ]  # fmt: skip
    result = run(drive, each, world=ranks, cpu=plans.SECONDS, wall=3 * plans.SECONDS)
    return [_percent(run, problem, result, n) for n, problem in enumerate(problems)]


def _percent(run: Run, problem: Problem, result: Any, number: int) -> float:
    """Of DDP's bytes, until all ranks have reached the goal."""
    found, goal = [answers[number] for answers in result.outputs], _goal(problem)
    losses = torch.stack([_losses(problem, each["after"]) for each in found])
    reached = (losses <= goal).all(0)
    if not reached.any():
        _not_reached(run, problem, found, losses, goal)
    step = int(reached.int().argmax())
    ledgers = [ledger.events for ledger in result.ledgers]
    sent = sum(
        sent_in(events[each["begin"] : each["calls"][step]])
        for events, each in zip(ledgers, found, strict=True)
    )
    ddp = sum(
        DDP_STEPS * wire_bytes("all_reduce", 4 * COUNT, len(found), rank, 4)[0]
        for rank in range(len(found))
    )
    busy = {count for each in found for count in each["calls"][: step + 1]}
    run.at_most(
        100 * sent / ddp,
        10,
        f"the percentage of DDP's bytes until the loss is reached in step {step + 1}",
        cause="the ranks communicate in every step: let them meet rarely"
        if len(busy) > step
        else "meet more rarely, send less in each meeting, or reach the loss in fewer steps",
    )
    return 100 * sent / ddp


def _not_reached(
    run: Run, problem: Problem, found: list[Any], losses: torch.Tensor, goal: float
) -> None:
    """Fails, with what is likely."""
    start = torch.cat([weight.reshape(-1) for weight in problem.start])
    last = torch.stack([each["after"][-1] for each in found])
    rank = int(losses[:, -1].nan_to_num(math.inf).argmax())
    cause = "the ranks meet too rarely, or what they send is too coarse"
    if all(each["calls"][-1] == each["begin"] for each in found):
        cause = "nothing is sent: each rank learns only from its own data"
    elif torch.equal(last[rank], start):
        cause = "the weights are still those of the start: change them in place"
    elif not losses[rank, -1] < 10 * _losses(problem, start[None]):
        cause = "training diverges: a sum instead of a mean, or steps in the wrong direction"
    run.fail(
        f"not all ranks reach the loss in {STEPS} steps",
        rank=rank,
        expected=f"at most {goal:.4f} on every rank after one of the steps",
        measured=f"{losses[rank, -1]:.4f} after the last step",
        cause=cause,
    )


@check("the same loss with a tenth of the bytes", points=2, code="B")
@diagnosis("the weights of every rank must reach the loss")
@in_part
def check_bytes(run: Run) -> None:
    """B: a hidden problem for three ranks."""
    _percents(run, [_problem(plans.hidden(run), 3)])


@check("the same on two ranks", points=1, code="B")
def check_two(run: Run) -> None:
    """B: two hidden problems."""
    draw = plans.hidden(run)
    _percents(run, [_problem(draw, 2), _problem(draw, 2)])


@check("the figure over the four fixed problems", points=2, code="B")
def check_figure(run: Run) -> None:
    """B: the mean over fixed problems."""
    problems = [_problem(plans.fixed(f"tenth_of_the_bytes {n}"), 4) for n in range(FIXED)]
    run.figure = plans.mean(_percents(run, problems))
