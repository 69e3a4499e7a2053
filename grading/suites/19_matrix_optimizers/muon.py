"""muon: the right parameters, and updates of one size for every shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.parallel import newton_schulz

EXERCISE = Exercise(
    title="Muon on one device: parameters and scale",
    core=True,
    minutes=25,
    order=2,
    defines=("muon_parameters", "Muon"),
    library=("parallel.newton_schulz",),
    own=("torch.optim.Muon",),
    hints=(
        "Two parameters of the same shape may need different optimizers, such as the weights of "
        "a linear layer and of an embedding. So shapes alone do not decide; go through the "
        "modules.",
        "First collect the ids of the parameters that Muon must not get: those of embeddings and "
        "of `ends`. Then go through `model.parameters()`, which yields a shared parameter once. "
        "In `step`, never write to G: `direction = G + momentum * M` makes a new tensor.",
        "`moment.mul_(mu).add_(grad)`; `scale = max(1, rows / columns) ** 0.5`, where a linear "
        "layer's weight has (outputs, inputs); `w.mul_(1 - lr * decay)`, then `w.add_(O, "
        "alpha=-lr * scale)`. Skip parameters whose `grad` is None.",
    ),
)

OPTIONS = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.2, "steps": 4}
PLAIN = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "steps": 3}
UPDATES = 4
Row = list[torch.Tensor | None]  # a gradient for each matrix


# --- what runs on the rank -----------------------------------------------------------------------
class Positions(nn.Embedding):
    """An embedding of another name."""


class Tower(nn.Module):
    """Two blocks between an embedding and an output layer; 0 to 3 dimensions, tied weights.

    Args:
        tied: whether the output layer has the embedding's weight.
    """

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.reader = nn.Linear(6, 5, bias=False)
        self.tokens = nn.Embedding(11, 6)
        self.places = Positions(5, 6)
        self.first = nn.Linear(6, 9)
        self.norm = nn.LayerNorm(9)
        self.patches = nn.Conv1d(2, 3, 4)
        self.scales = nn.ParameterList([torch.ones(())])
        self.second = nn.Linear(9, 6, bias=False)
        self.twin = nn.Linear(9, 6, bias=False)
        self.frozen = nn.Sequential(nn.Embedding(3, 6), nn.Linear(6, 6))
        self.output = nn.Sequential(nn.Linear(6, 11, bias=False))
        self.twin.weight = self.second.weight
        self.reader.weight = self.places.weight
        self.frozen.requires_grad_(False)
        if tied:
            self.output[0].weight = self.tokens.weight


def drive_parameters(learner: Any, group: Any, tied: bool, ends: bool) -> list[list[str]]:
    """The names of both lists; the places of what is no parameter of the model."""
    model = Tower(tied)
    names = {id(p): name for name, p in model.named_parameters()}
    found = learner.muon_parameters(model, [model.output] if ends else [])
    return [[names.get(id(p), "a stranger") for p in part] for part in found]


def drive(
    learner: Any, group: Any, start: list[torch.Tensor], rows: list[Row], options: list[Any]
) -> list[dict[str, Any]]:
    """Makes an optimizer with each of the options, and then trains with one after the other."""
    weights = [[nn.Parameter(w.clone()) for w in start] for _ in options]
    made = [learner.Muon((w for w in ws), **o) for ws, o in zip(weights, options, strict=True)]
    return [_train(optimizer, ws, rows) for optimizer, ws in zip(made, weights, strict=True)]


def _train(optimizer: Any, weights: list[nn.Parameter], rows: list[Row]) -> dict[str, Any]:
    """Updates with the given gradients; the weights after each, and what else there is."""
    places = [w.data_ptr() for w in weights]
    buffers = [torch.zeros_like(w) for w in weights]  # gradients are written to the same memory
    history, untouched = [], True
    for row in rows:
        for weight, buffer, gradient in zip(weights, buffers, row, strict=True):
            weight.grad = None if gradient is None else buffer.copy_(gradient)
        optimizer.step()
        history.append([w.detach().clone() for w in weights])
        for weight, gradient in zip(weights, row, strict=True):
            if gradient is not None:
                untouched &= weight.grad is not None and torch.equal(weight.grad, gradient)
    kept = _bytes(vars(optimizer), set(places))
    stayed = places == [w.data_ptr() for w in weights]
    return {"history": history, "untouched": untouched, "kept": kept, "stayed": stayed}


def _bytes(value: Any, seen: set[int]) -> int:
    """Bytes of all tensors in an object's attributes, each once, without those in `seen`."""
    if isinstance(value, torch.Tensor):
        new = value.data_ptr() not in seen and value.dim() > 0
        seen.add(value.data_ptr())
        return value.nbytes if new else 0
    if isinstance(value, dict):
        return sum(_bytes(item, seen) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes(item, seen) for item in value)
    return 0


# --- what it must bring back ---------------------------------------------------------------------
def updated(
    start: Sequence[torch.Tensor], rows: Sequence[Row], options: dict[str, Any], how: str = ""
) -> list[list[torch.Tensor]]:
    """The weights after each update; `how` names what goes wrong."""
    lr, mu, decay = options["lr"], options["momentum"], options["weight_decay"]
    weights, history = [w.clone() for w in start], []
    moments = [torch.zeros_like(w) for w in start]
    for row in rows:
        for i, gradient in enumerate(row):
            if gradient is None:
                continue
            rows_, columns = weights[i].shape
            g = newton_schulz(gradient, options["steps"]) if how == "first" else gradient
            moments[i] = mu * moments[i] + (1 - mu if how == "mean" else 1) * g
            direction = moments[i] if how == "plain" else g + mu * moments[i]
            update = direction if how == "first" else newton_schulz(direction, options["steps"])
            scale = {
                "none": 1.0,
                "transposed": max(1.0, columns / rows_) ** 0.5,
                "below": (rows_ / columns) ** 0.5,
                "rms": 0.2 * max(rows_, columns) ** 0.5,
                "root": max(1.0, rows_ / columns),
            }.get(how, max(1.0, rows_ / columns) ** 0.5)
            before = weights[i] * (decay if how != "undecayed" else 0)
            before = before / lr if how == "whole" else before
            if how == "inside":
                update = newton_schulz(direction + decay * weights[i], options["steps"])
                before = before * 0
            weights[i] = weights[i] - lr * before - lr * scale * update
        history.append([w.clone() for w in weights])
    return history


SLIPS = {
    "the scale for the shape is missing": "none",
    "rows and columns are swapped in the scale": "transposed",
    "the scale is below 1 for a wide matrix: max(1, rows/columns)": "below",
    "this is the scale that matches AdamW's RMS, not the one in the task": "rms",
    "the square root of the scale is missing": "root",
    "Nesterov's look-ahead is missing: D is G + μ·M, not M": "plain",
    "momentum is a running mean: the task adds all of G": "mean",
    "the gradient was made orthogonal and then averaged: momentum comes first": "first",
    "weight decay is missing": "undecayed",
    "weight decay was not multiplied by the learning rate": "whole",
    "weight decay was added to the direction: it must shrink the weight instead": "inside",
}


def _case(
    run: Run, dtype: torch.dtype = torch.float64
) -> tuple[list[torch.Tensor], list[Row], list[dict[str, Any]]]:
    """Hidden weights of three shapes; the second has no gradient in some steps, the third zeros.

    Returns the weights, the gradients, and what came of PLAIN and of OPTIONS.
    """
    small = run.number(3, 6)
    large = 2 * small + 1  # rows / columns is no whole number
    start = [run.random(shape, dtype) for shape in ((small, large), (large, small), (small, small))]
    rows: list[Row] = []
    for number in range(UPDATES):
        row: Row = [run.random(w.shape, dtype) for w in start]
        row[1] = None if number in (0, 2) else row[1]
        row[2] = torch.zeros(small, small, dtype=dtype) if number == 2 else row[2]
        rows.append(row)
    given = {"start": start, "rows": rows, "options": [PLAIN, OPTIONS]}
    return start, rows, run(drive, given).outputs[0]


@check("matrices inside the network, and everything else", points=4, code="E")
@diagnosis("two dimensions are not enough: it also matters where the parameter is used")
def check_parameters(run: Run) -> None:
    """E: embeddings, an output layer, norms, a scalar, a convolution, shared and frozen weights."""
    inside = ["first.weight", "second.weight"]
    vectors = ["first.bias", "norm.weight", "norm.bias"]
    vectors += ["patches.weight", "patches.bias", "scales.0"]
    for tied in (False, True):
        matrices, rest = run(drive_parameters, {"tied": tied, "ends": True}).outputs[0]
        for name in matrices:
            cause = {
                "tokens.weight": "an embedding's rows belong to tokens",
                "reader.weight": "it is tied to places, and an embedding's rows belong to tokens",
                "output.0.weight": "the output layer is one of `ends`",
                "scales.0": "a single number is not a matrix",
                "patches.weight": "a tensor of three dimensions is not a matrix",
            }.get(name, "it is frozen" if "frozen" in name else "it is a vector")
            run.true(name in inside, f"Muon was given {name}", cause=cause)
        run.equal(matrices, inside, "Muon's list")
        tail = [] if tied else ["output.0.weight"]
        wanted = ["reader.weight", "tokens.weight", *vectors, *tail]
        stray = [name for name in rest if "frozen" in name]
        run.true(not stray, f"the rest has {', '.join(stray)}", cause="a frozen parameter is in it")
        run.equal(rest, wanted, "the rest")
    matrices, _ = run(drive_parameters, {"tied": False, "ends": False}).outputs[0]
    run.equal(matrices, [*inside, "output.0.weight"], "Muon's list without `ends`")


@check("the update, for wide, tall and square matrices", points=6, code="E")
@diagnosis("the formulas of the task, in their order")
def check_update(run: Run) -> None:
    """E: four updates in float64 with two optimizers; a gradient that is None, and one of zeros."""
    start, rows, both = _case(run)
    known: tuple[dict[str, str], ...] = (SLIPS, {})
    for found, options, slips in zip(both[::-1], (OPTIONS, PLAIN), known, strict=True):
        wrong = {why: updated(start, rows, options, how) for why, how in slips.items()}
        for step, wanted in enumerate(updated(start, rows, options)):
            for i, weight in enumerate(wanted):
                got = found["history"][step][i]
                likely = {why: other[step][i] for why, other in wrong.items()}
                what = f"the weight of {tuple(weight.shape)} after {step + 1} steps with {options}"
                run.close(got, weight, what, likely=likely, terms=200)


@check("one tensor of state for each matrix, and nothing else is changed", points=2, code="M")
@diagnosis("keep only M, change weights in place, and do not change gradients")
def check_state(run: Run) -> None:
    """M: bytes kept between steps in float32; gradients, weights and their places."""
    start, rows, (_, found) = _case(run, torch.float32)
    cause = "write the direction to a new tensor"
    run.true(found["untouched"], "a gradient has changed", cause=cause)
    run.true(found["stayed"], "a weight has moved to other memory", cause="change it in place")
    cause = "more than one momentum for each matrix, or one in another dtype"
    what = "the number of bytes kept from step to step"
    run.at_most(found["kept"], sum(w.nbytes for w in start), what, cause=cause)
    for got, weight in zip(found["history"][-1], updated(start, rows, OPTIONS)[-1], strict=True):
        run.close(got, weight, f"the weight of {tuple(weight.shape)} in float32", terms=2000)
