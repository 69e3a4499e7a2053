"""memory_leak: the same results, and no byte more after ten calls than after five."""

# mypy: enable-error-code="arg-type, misc, operator, union-attr"
from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace.memory import LiveMemory

EXERCISE = Exercise(
    title="Three leaks in a training loop",
    core=False,
    minutes=20,
    order=90,
    defines=("Trainer",),
    hints=(
        "Ask of every container that outlives a call (`scores`, what `look` can see, `under_way`): "
        "what is put in, and when is it taken out? And of every tensor that stays: does it have a "
        "`grad_fn`, and what does that hold?",
        "`evaluate`: no backward ever frees the graph of its loss, so do not build one, and keep a "
        "Python number. `watch`: an average needs a sum and a count, not all that was summed up. "
        "`synchronize`: what is done with may go, but not before it was waited for.",
        "`with torch.no_grad(): score = float(self.loss(x, y))`. In `look`, `nonlocal total, "
        "count` and `total += float(output.detach().abs().mean())`. After the loop of waits, "
        "`self.under_way.clear()`; or a list that lives in `synchronize` alone.",
    ),
)

INPUTS, OUTPUTS, HALF = 7, 3, 5  # calls before the first look; as many again before the second
FEW = 64  # bytes that may be left: sums for the statistics
CALLS = (0, HALF - 1, 2 * HALF - 1)  # of which the gradients are compared
PATIENCE = 0.4  # seconds that a backend's thread may hold on to a buffer
LAST = "it does not grow, but until the next call the last one's tensors live"
NUMBER = "a tensor of one element is still a tensor: keep a Python number"
Weights = list[torch.Tensor]


# --- what runs on the ranks ----------------------------------------------------------------------
def build(weights: Weights) -> nn.Sequential:
    """Two layers with tanh between them."""
    first, second = (nn.Linear(w.shape[1], w.shape[0], dtype=w.dtype) for w in weights[::2])
    model = nn.Sequential(first, nn.Tanh(), second)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(value)
    return model


def _growth(call: Callable[[int], None], parameters: Sequence[nn.Parameter]) -> dict[str, int]:
    """Bytes alive after ten calls that were not after five, and all but gradients.

    The collector does not run meanwhile: what waits for it is left.
    """
    gc.disable()
    try:
        with LiveMemory() as memory:
            for number in range(HALF):
                call(number)
            before = memory.settle(0, PATIENCE / 4)
            for number in range(HALF, 2 * HALF):
                call(number)
            after = memory.settle(before, PATIENCE)
            for parameter in parameters:
                parameter.grad = None
            return {"growth": after - before, "rest": memory.settle(FEW, PATIENCE)}
    finally:
        gc.enable()


def _numbers(scores: list[Any]) -> list[float]:
    return [score.item() if torch.is_tensor(score) else float(score) for score in scores]


def drive_evaluate(
    learner: Any, group: Any, weights: Weights, xs: Weights, ys: Weights
) -> dict[str, Any]:
    """Evaluations alone."""
    trainer, said = learner.Trainer(build(weights), 0.1, group), []
    parameters = list(trainer.model.parameters())
    for parameter in parameters:  # as between a backward and its step
        parameter.grad = torch.ones_like(parameter)
    left = _growth(lambda number: said.append(trainer.evaluate(xs[number], ys[number])), ())
    kept = [parameter.grad for parameter in parameters]
    return {"said": said, "scores": _numbers(trainer.scores), "kept": kept, **left}


def drive_watch(learner: Any, group: Any, weights: Weights, xs: Weights) -> dict[str, Any]:
    """Forwards and backwards of a model of which two layers are watched."""
    trainer = learner.Trainer(build(weights), 0.1, group)
    trainer.watch("0")
    trainer.watch("1")
    parameters = list(trainer.model.parameters())
    left = _growth(lambda number: trainer.model(xs[number]).sum().backward(), parameters)
    return {"means": {name: float(mean) for name, mean in trainer.means.items()}, **left}


def drive_synchronize(
    learner: Any, group: Any, weights: Weights, gradients: list[Weights]
) -> dict[str, Any]:
    """Gradients averaged over the ranks, again and again."""
    trainer = learner.Trainer(build(weights), 0.1, group)
    found: list[list[Any]] = []
    parameters = list(trainer.model.parameters())

    def call(number: int) -> None:
        for parameter, gradient in zip(parameters, gradients[number], strict=True):
            parameter.grad = gradient.clone()
        trainer.synchronize()
        found.append([p.grad.detach().numpy().copy() for p in parameters])  # no tensors

    left = _growth(call, parameters)
    seen = [torch.from_numpy(array) for number in CALLS for array in found[number]]
    return {"gradients": seen, **left}


def drive_all(
    learner: Any, group: Any, weights: Weights, xs: Weights, ys: Weights, rate: float
) -> dict[str, Any]:
    """Training with evaluations between the steps, one layer watched."""
    trainer = learner.Trainer(build(weights), rate, group)
    trainer.watch("2")

    def call(number: int) -> None:
        trainer.step(xs[number], ys[number])
        trainer.evaluate(xs[0], ys[0])

    left = _growth(call, list(trainer.model.parameters()))
    return {"weights": [p.detach().clone() for p in trainer.model.parameters()],
            "scores": _numbers(trainer.scores),
            "means": {name: float(mean) for name, mean in trainer.means.items()},
            **left}  # fmt: skip


# --- what they must bring back -------------------------------------------------------------------
def _inputs(run: Run, world: int) -> list[dict[str, Any]]:
    """Hidden sizes; the same weights and other data on every rank; batches of unequal rows."""
    width, fewest = run.number(11, 20), run.number(5, 9)
    rows = [fewest + number % HALF for number in range(2 * HALF)]
    shapes = [(width, INPUTS), (width,), (OUTPUTS, width), (OUTPUTS,)]
    weights = [run.random(shape) / 2 for shape in shapes]
    return [
        {
            "weights": weights,
            "xs": [run.random((count, INPUTS)) for count in rows],
            "ys": [run.random((count, OUTPUTS)) for count in rows],
        }
        for _ in range(world)
    ]


def _loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (model(x) - y).square().mean()


def _grown(run: Run, output: dict[str, Any], calls: str, slips: dict[str, int], rank: int) -> None:
    """That nothing is left behind; `slips` are bytes that known ones leave in the last calls."""
    grown = output["growth"]
    cause = next((why for why, size in slips.items() if grown == size), "")
    run.at_most(grown, 0, f"bytes gained in {HALF} further {calls}", rank=rank, cause=cause)
    what = f"bytes left by {calls} that were not there before, gradients aside,"
    run.at_most(output["rest"], FEW, what, rank=rank, cause=LAST)


@check("evaluate: the same scores, and nothing left", points=3, code="M")
@diagnosis("a loss that no backward ever runs through keeps every activation of its forward")
def check_evaluate(run: Run) -> None:
    """M: the scores of one process, and the bytes."""
    given = _inputs(run, 1)[0]
    output = run(drive_evaluate, given).outputs[0]
    with torch.no_grad():
        model = build(given["weights"])
        right = [float(_loss(model, x, y)) for x, y in zip(given["xs"], given["ys"], strict=True)]
    likely = {"only the last score is there": 1}
    run.equal(len(output["scores"]), len(right), "the number of scores", likely=likely)
    run.close(output["scores"], right, "scores")
    run.close(output["said"], right, "what evaluate returned")
    ones = [torch.ones_like(weight) for weight in given["weights"]]
    run.equal(output["kept"], ones, "the gradients that were there before evaluate")
    _grown(run, output, "evaluations", {NUMBER: 8 * HALF}, 0)


@check("watch: the same means, and no output left", points=3, code="M")
@diagnosis("an average needs a sum and a count; what a hook can see stays as long as the hook")
def check_watch(run: Run) -> None:
    """M: means over all forwards, and the bytes."""
    given = _inputs(run, 1)[0]
    weights, xs = given["weights"], given["xs"]
    output = run(drive_watch, {"weights": weights, "xs": xs}).outputs[0]
    layers = build(weights)
    outs = [(layers[0](x).detach(), layers[:2](x).detach()) for x in xs]
    sizes = [[float(out.abs().mean()) for out in both] for both in outs]
    right = {name: sum(size[i] for size in sizes) / len(sizes) for i, name in enumerate("01")}
    rows = [len(x) for x in xs]
    likely = {
        "only the last forward counts": dict(zip("01", sizes[-1], strict=True)),
        "every forward counts once, however many rows it has": {
            name: sum(n * size[i] for n, size in zip(rows, sizes, strict=True)) / sum(rows)
            for i, name in enumerate("01")
        },
    }
    run.close(output["means"], right, "means", likely=likely)
    _grown(
        run,
        output,
        "forwards and backwards",
        {
            NUMBER: 16 * HALF,
            "every output is kept; a detached one is as large": sum(
                out.nbytes for both in outs[HALF:] for out in both
            ),
        },
        0,
    )


@check("synchronize: the same gradients on 3 ranks, and no buffer left", points=3, code="M")
@diagnosis("a call that was waited for, and its buffer, are of no use any more")
def check_synchronize(run: Run) -> None:
    """M: means of one process after the first, the fifth and the tenth call, and the bytes."""
    given = _inputs(run, 3)
    shapes = [tuple(weight.shape) for weight in given[0]["weights"]]
    own = [[[run.random(shape) for shape in shapes] for _ in range(2 * HALF)] for _ in given]
    inputs = [
        {"weights": each["weights"], "gradients": gradients}
        for each, gradients in zip(given, own, strict=True)
    ]
    result = run(drive_synchronize, inputs, world=3)
    stacks = [
        torch.stack([own[rank][call][i] for rank in range(3)])
        for call in CALLS
        for i in range(len(shapes))
    ]
    right = [stack.mean(0) for stack in stacks]
    for rank, output in enumerate(result.outputs):
        likely = {
            "this rank's own gradient: read before the all-reduce was waited for": [
                stack[rank] for stack in stacks
            ],
            "the sum: the mean is meant": [stack.sum(0) for stack in stacks],
        }
        run.close(output["gradients"], right, "the gradients", rank=rank, terms=3, likely=likely)
        size = sum(weight.nbytes for weight in given[0]["weights"])
        _grown(
            run,
            output,
            "calls of synchronize",
            {"the buffers of earlier calls are still in a list": HALF * size},
            rank,
        )


@check("training on 2 ranks: the same weights, and nothing left", points=3, code="M")
@diagnosis("all three leaks must be closed, and the weights must be those of one process")
def check_training(run: Run) -> None:
    """M: everything together: weights, scores and means of one process, and the bytes."""
    given, rate = _inputs(run, 2), run.number(2, 8) / 64
    result = run(drive_all, [{**each, "rate": rate} for each in given], world=2)
    weights, found = _trained(given, rate)
    for rank, output in enumerate(result.outputs):
        run.close(output["weights"], weights, "the weights", rank=rank, terms=2)
        for name in ("scores", "means"):
            run.close(output[name], found[rank][name], name, rank=rank)
        _grown(run, output, "steps and evaluations", {}, rank)


def _trained(given: list[dict[str, Any]], rate: float) -> tuple[Weights, list[dict[str, Any]]]:
    """One process's weights, and each rank's scores and means."""
    model = build(given[0]["weights"])
    parameters: Weights = list(model.parameters())
    found: list[dict[str, Any]] = [{"scores": [], "sizes": []} for _ in given]

    def forward(rank: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        found[rank]["sizes"].append(float(out.detach().abs().mean()))
        return (out - y).square().mean()

    for step in range(2 * HALF):
        losses = [
            forward(rank, each["xs"][step], each["ys"][step]) for rank, each in enumerate(given)
        ]
        slopes = torch.autograd.grad(torch.stack(losses).mean(), parameters)
        with torch.no_grad():
            for parameter, slope in zip(parameters, slopes, strict=True):
                parameter -= rate * slope
            for rank, each in enumerate(given):
                found[rank]["scores"].append(float(forward(rank, each["xs"][0], each["ys"][0])))
    weights = [parameter.detach() for parameter in parameters]
    return weights, [
        {"scores": own["scores"], "means": {"2": sum(own["sizes"]) / (4 * HALF)}} for own in found
    ]
