"""ColumnParallelLinear: slices of one layer, whole input gradients, one all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.data_parallel.training import explained
from grading.references.tensor_parallel import cut_layers
from grading.references.tensor_parallel.cut_layers import Case, Layer, one_process, part
from grading.references.tensor_parallel.layer_drivers import drive_build, drive_layers

EXERCISE = Exercise(
    title="A linear layer cut along its outputs",
    core=True,
    minutes=20,
    order=2,
    defines=("ColumnParallelLinear",),
    hints=(
        "A row of the weight makes one entry of the output, from the whole input. So a rank with "
        "some rows and the whole input needs nothing from the others. Which tensor of the "
        "backward has a contribution from every rank?",
        "`full.weight.tensor_split(group.size)` cuts along dim 0, the rows. What it returns are "
        "views: they keep the whole weight in memory, so `clone()` yours, and make it a "
        "`nn.Parameter`. The bias is cut in the same way.",
        "The forward is torch's `linear(x, self.weight, self.bias)` with one change: "
        "`copy_to_group(x, self.group)` in place of x. It passes x on, and sums its gradient over "
        "the group in the backward.",
    ),
)

WORLDS: dict[int, cut_layers.Parts] = {1: (), 2: (), 3: (), 4: cut_layers.ALONE}
SKIPPED = (
    "The backward's all-reduce needs every rank of the group, including one that has no row of "
    "the weight: its summand is zero."
)


# --- what they must bring back -------------------------------------------------------------------
def _drawn(run: Run) -> tuple[list[Layer], list[torch.Tensor], list[torch.Tensor]]:
    """Layers, inputs and the gradients of whole outputs.

    The outputs divide by all worlds, by none, once more in bf16, and are fewer than three ranks.
    """
    wide, count, rows = (5, 7, 11)[run.number(0, 3)], run.number(3, 6), run.number(2, 4)
    layers: list[Layer] = [(run.random((12, count)), run.random(12)),
                           (run.random((wide, count)), run.random(wide)),
                           (run.random((5, count), torch.bfloat16), None),
                           (run.random((2, count)), None)]  # fmt: skip
    xs = [run.random(count), run.random((rows, 3, count)),
          run.random((rows, count), torch.bfloat16), run.random((rows, count))]  # fmt: skip
    slopes = [
        run.random((*x.shape[:-1], len(weight)), x.dtype)
        for x, (weight, _) in zip(xs, layers, strict=True)
    ]
    return layers, xs, slopes


def _cases(run: Run, world: int) -> tuple[Any, list[Case]]:
    """Forward and backward on ranks that have the same inputs."""
    layers, xs, slopes = _drawn(run)
    places = cut_layers.places(world, WORLDS[world])
    inputs = [
        {
            "name": "ColumnParallelLinear",
            "layers": layers,
            "xs": xs,
            "parts": WORLDS[world],
            "slopes": [part(slope, -1, *place) for slope in slopes],
        }
        for place in places
    ]
    result = explained(run, drive_layers, inputs, world, SKIPPED)
    return result, cut_layers.cases(result, layers, xs, slopes, places)


def _built(run: Run) -> list[Case]:
    """The same layers, only built: in a group of one and one of three."""
    layers, xs, slopes = _drawn(run)
    given = {"name": "ColumnParallelLinear", "layers": layers, "parts": cut_layers.ALONE}
    result = run(drive_build, given, world=4)
    return cut_layers.cases(result, layers, xs, slopes, cut_layers.places(4, cut_layers.ALONE))


def _own(case: Case) -> dict[str, Any]:
    """A rank's slice of the layer."""
    weight, bias = case.full
    return {"weight": case.cut(weight, 0), "bias": None if bias is None else case.cut(bias, 0)}


def _all(run: Run) -> Iterator[tuple[Any, Case]]:
    """The cases of all worlds, each with the result of its run."""
    for world in WORLDS:
        result, cases = _cases(run, world)
        yield from ((result, case) for case in cases)


@check("weight and bias: this rank's slices of the full layer's, as parameters", points=3, code="E")
@diagnosis(
    "rank r has part r of `tensor_split` along the outputs, with the numbers of `full`. A new "
    "layer would have random numbers, different on each rank"
)
def check_slices(run: Run) -> None:
    """E: sizes that do not divide, a rank without rows, a group that is not the world."""
    for case in _built(run):
        cut_layers.check_parameters(
            run,
            case,
            _own(case),
            {"these are the rows of another rank: count by group.index": _by_rank(case)},
        )


def _by_rank(case: Case) -> dict[str, torch.Tensor]:
    """What a rank of a part takes if it counts by its rank in the world."""
    named = {"weight": case.full[0]} | ({} if case.full[1] is None else {"bias": case.full[1]})
    place = case.rank % case.size
    return {name: part(tensor, 0, case.size, place) for name, tensor in named.items()}


@check("the output is this rank's slice of the full layer's", points=2, code="E")
@diagnosis("a rank returns the outputs of its own rows; it needs nothing from the others")
@in_part
def check_output(run: Run) -> None:
    """E: inputs with one, two and three dims, one of them not contiguous."""
    for _, case in _all(run):
        y, _ = one_process(case.full, case.x, case.slope)
        plain, _ = one_process((case.full[0], None), case.x, case.slope)
        summed, _ = one_process(case.full, case.x * case.size, case.slope)
        likely = {
            "the bias is missing": case.cut(plain, -1),
            "the input was summed over the ranks: forward takes it as it is": case.cut(summed, -1),
        }
        what = f"the output {case.what}"
        run.close(case.found["y"], case.cut(y, -1), what, rank=case.rank, likely=likely)


@check(
    "the gradients: the whole one of the input, this rank's slices of weight and bias",
    points=4,
    code="E",
)
@diagnosis(
    "every rank has used the input for different outputs, so its gradient is the sum over the "
    "ranks; weight and bias belong to one rank alone"
)
def check_gradients(run: Run) -> None:
    """E: before any step."""
    for _, case in _all(run):
        _, grads = one_process(case.full, case.x, case.slope)
        own = _own(case)
        _, alone = one_process((own["weight"], own["bias"]), case.x, case.cut(case.slope, -1))
        likely = {
            "of this rank's outputs alone: the sum over the ranks is missing": alone["x"],
            "this is the mean over the ranks: it must be the sum": grads["x"] / case.size,
            "this is N times the right value: it was summed twice": grads["x"] * case.size,
        }
        found = case.found["grads"]
        for name, value in {
            "x": grads["x"],
            **{n: case.cut(grads[n], 0) for n in grads if n != "x"},
        }.items():
            what = f"{'the input' if name == 'x' else name}.grad {case.what}"
            cause = "the output does not depend on it in the autograd graph"
            run.true(found[name] is not None, f"{what} is None", rank=case.rank, cause=cause)
            known = likely if name == "x" else None
            run.close(found[name], value, what, rank=case.rank, terms=8, likely=known)


@check("nothing is sent except one all-reduce of the input's gradient", points=3, code="B")
@diagnosis("the slices, the forward and the gradients of weight and bias need no other rank")
def check_bytes(run: Run) -> None:
    """B: from the ledger, for each stretch: building, forward and backward."""
    for result, case in _all(run):
        if case.size > 1:
            _compare_sends(run, result, case)


def _compare_sends(run: Run, result: Any, case: Case) -> None:
    building, forward, backward = cut_layers.stretches(result, case.rank, case.found["marks"])
    once = cut_layers.one_all_reduce(case.x.numel(), case.size, case.index, case.x.element_size())
    half = cut_layers.one_all_reduce(case.x.numel(), case.size, case.index, item=4)
    likely: dict[str, Any] = {"the full layer is the same on all ranks already": building}
    run.equal(building, [], f"what building sends {case.what}", rank=case.rank, likely=likely)
    likely = {
        "an all-reduce belongs in the backward alone": once,
        "the outputs were gathered: leave each rank its slice": [
            each for each in forward if each.startswith("all_gather")
        ]
        or None,
    }
    run.equal(forward, [], f"what the forward sends {case.what}", rank=case.rank, likely=likely)
    likely = {
        "the gradient of the input is not summed over the ranks": [],
        "it was sent as float32": half,
        "one all-reduce is enough": once * 2,
        "more than the input's gradient: weight and bias belong to this rank alone": backward
        if once[0] in backward and len(backward) > 1
        else None,
    }
    run.equal(backward, once, f"what the backward sends {case.what}", rank=case.rank, likely=likely)


@check("a rank holds its slice and nothing else", points=2, code="M")
@diagnosis("look at what stays alive when the full layer is gone: see `clone`")
def check_memory(run: Run) -> None:
    """M: bytes of all storages that are alive after the layer was built."""
    for case in _built(run):
        cut_layers.check_memory(run, case, _own(case))
