"""RowParallelLinear: the whole output with its bias once, and what a pair sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import gelu, linear

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.data_parallel.training import explained
from grading.references.tensor_parallel import cut_layers
from grading.references.tensor_parallel.cut_layers import Case, Layer, one_process, part
from grading.references.tensor_parallel.layer_drivers import drive_build, drive_layers

EXERCISE = Exercise(
    title="A linear layer cut along its inputs",
    core=True,
    minutes=20,
    order=3,
    defines=("RowParallelLinear",),
    hints=(
        "Write y as a sum over the entries of x, and divide that sum among the ranks: which "
        "entries of W does a rank with a slice of x need? The bias is not part of the sum. What "
        "happens to it if every rank adds it to its own summand?",
        "`full.weight.tensor_split(group.size, dim=1)` cuts along the inputs; the parts "
        "are views, so `clone()` yours. The bias stays whole. In forward, torch's `linear` without "
        "a bias gives this rank's summand.",
        "`reduce_from_group(linear(x, self.weight), self.group)` is the whole product, on every "
        "rank. Add the bias after that, on every rank: then y contains it once, and its gradient "
        "is the whole one everywhere.",
    ),
)

WORLDS: dict[int, cut_layers.Parts] = {1: (), 2: (), 3: (), 4: cut_layers.ALONE}
SKIPPED = (
    "The forward's all-reduce needs every rank of the group, including one that has no column of "
    "the weight: its summand is zero."
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_pair(
    learner: Any, group: Any, first: Layer, second: Layer, x: torch.Tensor, slope: torch.Tensor
) -> dict[str, Any]:
    """A column-parallel layer, an activation, and the learner's layer."""
    events = group.ledger.events
    column = cut_layers.Column(cut_layers.full_layer(*first), group)
    begin = len(events)
    row = learner.RowParallelLinear(cut_layers.full_layer(*second), group)
    said = cut_layers.step(lambda x: row(gelu(column(x))), row, x, slope, events)
    own = {"column.weight": column.weight.grad, "column.bias": column.bias.grad}
    said["grads"] |= {name: cut_layers.copied(grad) for name, grad in own.items()}
    return {**said, "marks": [begin, *said["marks"]]}


# --- what they must bring back -------------------------------------------------------------------
def _drawn(run: Run) -> tuple[list[Layer], list[torch.Tensor], list[torch.Tensor]]:
    """Layers, whole inputs and the gradients of outputs.

    The inputs divide by all worlds, by none, and are fewer than three ranks.
    """
    wide, count, rows = (5, 7, 11)[run.number(0, 3)], run.number(3, 6), run.number(2, 4)
    layers: list[Layer] = [(run.random((count, 12)), run.random(count)),
                           (run.random((count, wide)), run.random(count)),
                           (run.random((count, 2)), None)]  # fmt: skip
    xs = [run.random(12), run.random((rows, 3, wide)), run.random((rows, 2))]
    return layers, xs, [run.random((*x.shape[:-1], count)) for x in xs]


def _cases(run: Run, world: int) -> list[Case]:
    """Forward and backward on ranks that have slices of the inputs."""
    layers, xs, slopes = _drawn(run)
    places = cut_layers.places(world, WORLDS[world])
    inputs = [
        {
            "name": "RowParallelLinear",
            "layers": layers,
            "slopes": slopes,
            "parts": WORLDS[world],
            "xs": [part(x, -1, *place) for x in xs],
        }
        for place in places
    ]
    result = explained(run, drive_layers, inputs, world, SKIPPED)
    return cut_layers.cases(result, layers, xs, slopes, places)


def _built(run: Run) -> list[Case]:
    """The same layers, only built: in a group of one and one of three."""
    layers, xs, slopes = _drawn(run)
    given = {"name": "RowParallelLinear", "layers": layers, "parts": cut_layers.ALONE}
    result = run(drive_build, given, world=4)
    return cut_layers.cases(result, layers, xs, slopes, cut_layers.places(4, cut_layers.ALONE))


def _own(case: Case) -> dict[str, Any]:
    """A rank's slice of the weight, and the bias."""
    return {"weight": case.cut(case.full[0], 1), "bias": case.full[1]}


def _all(run: Run) -> Iterator[Case]:
    for world in WORLDS:
        yield from _cases(run, world)


def _plus(y: torch.Tensor, bias: torch.Tensor | None, times: float) -> torch.Tensor:
    return y if bias is None else y + times * bias


@check(
    "weight: this rank's slice along the inputs; bias: the whole bias; both are parameters",
    points=2,
    code="E",
)
@diagnosis(
    "rank r has part r of `tensor_split` along the inputs (dim 1), with the numbers of `full`. A "
    "new layer would have random numbers, different on each rank"
)
def check_slices(run: Run) -> None:
    """E: sizes that do not divide, a rank without columns, a group that is not the world."""
    for case in _built(run):
        weight, bias = case.full
        by_rank = part(weight, 1, case.size, case.rank % case.size)
        cut_layers.check_parameters(
            run,
            case,
            _own(case),
            {
                "these are the columns of another rank: count by group.index": {"weight": by_rank},
                "this is the bias divided by N": {} if bias is None else {"bias": bias / case.size},
            },
        )


@check("the output: whole on every rank, with the bias added once", points=3, code="E")
@diagnosis("the ranks' products are the summands of one product; the bias comes after the sum")
@in_part
def check_output(run: Run) -> None:
    """E: inputs with one, two and three dims, one of them not contiguous."""
    for case in _all(run):
        weight, bias = case.full
        y, _ = one_process((weight, None), case.x, case.slope)
        own, _ = one_process((case.cut(weight, 1), None), case.cut(case.x, -1), case.slope)
        likely = {
            "the bias is added N times: every rank adds it before the sum": _plus(
                y, bias, case.size
            ),
            "the bias is missing": y,
            "this rank's product alone: the sum over the ranks is missing": _plus(own, bias, 1),
            "the mean of the ranks' products: it must be their sum": _plus(y / case.size, bias, 1),
            "divided by N": _plus(y / case.size, bias, 1 / case.size),
            "the bias divided by N is added": _plus(y, bias, 1 / case.size),
        }
        right = _plus(y, bias, 1)
        for name, what in (("y", "the output"), ("later", "the output without gradients")):
            found, what = case.found[name], f"{what} {case.what}"
            run.close(found, right, what, rank=case.rank, likely=likely)


@check(
    "the gradients of the input's slice, the weight's slice and the whole bias", points=3, code="E"
)
@diagnosis("the gradient of the output is whole on every rank, and so is that of each summand")
def check_gradients(run: Run) -> None:
    """E: before any step."""
    for case in _all(run):
        _, grads = one_process(case.full, case.x, case.slope)
        cut = {"x": case.cut(grads["x"], -1), "weight": case.cut(grads["weight"], 1)}
        for name, value in {**cut, **{n: grads[n] for n in grads if n == "bias"}}.items():
            _compare(run, case.rank, case.found["grads"][name], value, name, case)


def _compare(run: Run, rank: int, grad: Any, value: torch.Tensor, name: str, case: Case) -> None:
    what = f"{'the input' if name == 'x' else name}.grad {case.what}"
    once = "the output does not depend on it here: is the bias added on one rank alone?"
    run.true(grad is not None, f"{what} is None", rank=rank, cause=once if name == "bias" else "")
    likely = {
        "N times what it should be: summed over the ranks in the backward as well": value
        * case.size,
        "divided by N: the gradient of a sum is that of each summand": value / case.size,
    }
    if name == "bias":
        likely = {
            "N times what it should be: it was summed, but it is whole on every rank":
                value * case.size,
            "divided by N: add the whole bias, once, after the sum": value / case.size,
            "zeros: the bias is added on one rank alone": value * 0,
        }  # fmt: skip
    run.close(grad, value, what, rank=rank, terms=8, likely=likely)


def _pair(
    run: Run, dtype: torch.dtype
) -> tuple[Any, dict[str, Any], list[dict[str, torch.Tensor]]]:
    """A pair of layers on three ranks; the inputs, and what each rank should find."""
    world, width, wide = 3, run.number(3, 6), 3 * run.number(2, 4) + 1
    given: dict[str, Any] = {
        "first": (run.random((wide, width), dtype), run.random(wide, dtype)),
        "second": (run.random((width, wide), dtype), run.random(width, dtype)),
        "x": run.random((4, width), dtype),
        "slope": run.random((4, width), dtype),
    }
    result = explained(run, drive_pair, given, world, SKIPPED)
    names = {"x": given["x"], "column.weight": given["first"][0], "column.bias": given["first"][1],
             "weight": given["second"][0], "bias": given["second"][1]}  # fmt: skip
    at = {name: tensor.clone().requires_grad_() for name, tensor in names.items()}
    hidden = gelu(linear(at["x"], at["column.weight"], at["column.bias"]))
    y = linear(hidden, at["weight"], at["bias"])
    grads = dict(zip(at, torch.autograd.grad(y, list(at.values()), given["slope"]), strict=True))
    dims = {"column.weight": 0, "column.bias": 0, "weight": 1}
    wanted = [
        {"y": y.detach()}
        | {
            name: part(grad, dims[name], world, rank) if name in dims else grad
            for name, grad in grads.items()
        }
        for rank in range(world)
    ]
    return result, given, wanted


@check("after a column-parallel layer and gelu: equal to one process", points=3, code="E")
@diagnosis("the input is the slice that the column-parallel layer returns on this rank")
def check_pair(run: Run) -> None:
    """E: output and gradients of both layers, with a hidden size that does not divide."""
    result, _, wanted = _pair(run, torch.float64)
    for found, right in run.each(zip(result.outputs, wanted, strict=True)):
        for name, value in right.items():
            actual = found["y"] if name == "y" else found["grads"][name]
            what = "the output" if name == "y" else f"the gradient of {name}"
            likely = {
                "N times what it should be: a backward sums what is whole already": value
                * len(wanted)
            }
            run.close(actual, value, f"{what} (column, gelu, row)", terms=8, likely=likely)


@check(
    "the pair sends one all-reduce forward, one backward, nothing in between", points=3, code="B"
)
@diagnosis(
    "f belongs to the column-parallel layer, and its all-reduce is in the backward; g is yours"
)
def check_bytes(run: Run) -> None:
    """B: from the ledger, for each stretch: building, forward and backward; in bf16."""
    result, given, _ = _pair(run, torch.bfloat16)
    for rank, found in enumerate(run.each(result.outputs)):
        building, forward, backward = cut_layers.stretches(result, rank, found["marks"])
        once = cut_layers.one_all_reduce(given["slope"].numel(), result.world, rank, item=2)
        wider = cut_layers.one_all_reduce(given["slope"].numel(), result.world, rank, item=4)
        likely: dict[str, Any] = {"the full layer is the same on all ranks already": building}
        run.equal(building, [], "what building the layer sends", likely=likely)
        likely = {
            "the summands are not added up": [],
            "it was sent as float32": wider,
            "something is gathered between the two layers: the slice that arrives is the "
            "slice that is needed": forward
            if any(e.startswith("all_gather") for e in forward)
            else None,
        }
        run.equal(forward, once, "what the forward of the pair sends", likely=likely)
        run.equal(backward, cut_layers.one_all_reduce(given["x"].numel(), result.world, rank, 2),
                  "what the backward of the pair sends", likely={
            "an all-reduce in this layer's backward as well: the incoming gradient is whole":
                backward if len(backward) > 1 else None,
        })  # fmt: skip


@check("a rank holds its slice, the bias and nothing else", points=2, code="M")
@diagnosis("look at what stays alive when the full layer is gone: see `clone`")
def check_memory(run: Run) -> None:
    """M: bytes of all storages that are alive after the layer was built."""
    for case in _built(run):
        cut_layers.check_memory(run, case, _own(case))
