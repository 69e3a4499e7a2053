"""double_buffer: one process's weights, two layers on the device, copies beside work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.offload.prefetch_clock import Layer, Pool

EXERCISE = Exercise(
    title="Two buffers: one computes, one arrives",
    core=True,
    minutes=25,
    order=2,
    library=(),
    hints=(
        "Write down the order of events for three layers: fetch 0, wait 0, fetch 1, compute 0, "
        "free 0, wait 1, fetch 2, ... The computation happens at your `yield`. How many layers "
        "have room at each moment?",
        "Keep a list of the copies that have room. In each turn: wait for the first one, fetch "
        "the next layer if there is one, yield the first one's weights, free it and remove it "
        "from the list. What is still in the list when the generator is closed?",
        "`here = [pool.fetch(layer) for layer in layers[:1]]`; in a loop over the layers' numbers "
        "n: `here[0].wait()`, `here += [pool.fetch(layer) for layer in layers[n + 1 : n + 2]]`, "
        "`yield here[0].weights`, `pool.free(here.pop(0))`. All of it in a `try`, whose `finally` "
        "waits for each copy in `here` and frees it.",
    ),
)

STEPS, RATE = 3, 0.1
LAYERS = 5


# --- what runs on the rank -----------------------------------------------------------------------
def _through(learner: Any, layers: list[Layer], pool: Pool) -> Iterator[tuple[int, Layer]]:
    """The layers that come, with their numbers.

    Raises:
        RuntimeError: one is not the layer whose turn it is, or one is missing.
    """
    number = -1
    for number, weights in enumerate(learner.double_buffer(layers, pool)):
        shapes = [tuple(t.shape) for t in weights]
        wanted = [tuple(t.shape) for t in layers[number]] if number < len(layers) else "no more"
        if shapes != wanted:
            raise RuntimeError(
                f"turn {number + 1} of {len(layers)}: {shapes} came, and not {wanted}: is it"
                " another layer's turn? wait for a copy before its weights are given out"
            )
        pool.look(number, weights)
        yield number, weights
    if number + 1 < len(layers):
        raise RuntimeError(f"{number + 1} of {len(layers)} layers came, the last one is missing")


def _forward(
    learner: Any, layers: list[Layer], pool: Pool, x: torch.Tensor, work: list[int]
) -> list[torch.Tensor]:
    """Inputs of all layers and the last one's output; each layer takes its ticks."""
    inputs = [x]
    for number, (matrix, bias) in _through(learner, layers, pool):
        inputs.append(torch.tanh(inputs[-1] @ matrix + bias))
        pool.clock += work[number]
    return inputs


def _backward(learner: Any, layers: list[Layer], pool: Pool, inputs: Any, work: list[int]) -> Any:
    """Each layer's gradients, last layer first, of the sum of the outputs' squares."""
    gradients = []
    slope = 2 * inputs[-1]
    back = list(reversed(layers))
    for number, weights in _through(learner, back, pool):
        leaves = [t.detach().clone().requires_grad_() for t in (inputs[-2 - number], *weights)]
        output = torch.tanh(leaves[0] @ leaves[1] + leaves[2])
        slope, *own = torch.autograd.grad(output, leaves, slope)
        gradients.append(own)
        pool.clock += work[-1 - number]
    return gradients


def drive_train(
    learner: Any,
    group: Any,
    layers: list[Layer],
    x: torch.Tensor,
    copies: list[int],
    work: list[int],
) -> dict[str, Any]:
    """Trains on the device, with the weights and their updates on the host."""
    out: dict[str, Any] = {"first": None}
    for _ in range(STEPS):
        pool = Pool(layers, copies)
        inputs = _forward(learner, layers, pool, x, work)
        gradients = _backward(learner, layers, pool, inputs, work)
        out["first"] = out["first"] or {"output": inputs[-1], "gradients": gradients}
        for layer, own in zip(reversed(layers), gradients, strict=False):
            for tensor, gradient in zip(layer, own, strict=True):
                tensor -= RATE * gradient
    out["weights"] = layers
    return out


def drive_forward(
    learner: Any,
    group: Any,
    counts: list[int],
    layers: list[Layer],
    x: torch.Tensor,
    copies: list[int],
    work: list[int],
) -> dict[str, Any]:
    """Goes through the first layers of the list, for several lengths."""
    runs = []
    for count in counts:
        pool = Pool(layers, copies)
        inputs = _forward(learner, layers[:count], pool, x, work)
        runs.append(
            {
                "inputs": inputs,
                "clock": pool.clock,
                "notes": pool.notes,
                "left": [copy.number for copy in pool.here],
                "elsewhere": pool.elsewhere,
            }
        )
    return {"runs": runs}


def drive_break(learner: Any, group: Any, layers: list[Layer], copies: list[int]) -> dict[str, Any]:
    """Closes the generator before the loop, and breaks out of it at each layer."""
    runs = []
    for count in range(len(layers) + 1):
        pool = Pool(layers, copies)
        loop = learner.double_buffer(layers, pool)
        for _ in zip(range(count), loop, strict=False):
            pass
        loop.close()
        runs.append({"notes": pool.notes, "left": [copy.number for copy in pool.here]})
    return {"runs": runs}


# --- what it must bring back ---------------------------------------------------------------------
def _inputs(run: Run) -> dict[str, Any]:
    """Hidden: layers of different sizes, and the ticks of each copy and computation."""
    widths = [run.number(2, 6) + place for place in range(LAYERS + 1)]
    layers = [[run.random((a, b)), run.random(b)] for a, b in zip(widths, widths[1:], strict=False)]
    return {
        "layers": layers,
        "x": run.random((3, widths[0])),
        "copies": [run.number(100, 400) for _ in range(LAYERS)],
        "work": [run.number(100, 400) for _ in range(LAYERS)],
    }


def _reference(layers: list[Layer], x: torch.Tensor) -> dict[str, Any]:
    """The same training in one place."""
    weights = [[t.clone().requires_grad_() for t in layer] for layer in layers]
    out: dict[str, Any] = {}
    for _ in range(STEPS):
        y = x
        for matrix, bias in weights:
            y = torch.tanh(y @ matrix + bias)
        flat = [t for layer in weights for t in layer]
        gradients = torch.autograd.grad(y.square().sum(), flat)
        pairs = [list(gradients[i : i + 2]) for i in range(0, len(flat), 2)]
        out.setdefault("first", {"output": y.detach(), "gradients": pairs[::-1]})
        with torch.no_grad():
            for tensor, gradient in zip(flat, gradients, strict=True):
                tensor -= RATE * gradient
    out["weights"] = [[t.detach() for t in layer] for layer in weights]
    return out


def _refuse_poison(run: Run, value: Any, what: str) -> None:
    if isinstance(value, torch.Tensor) and bool(value.isnan().any()):
        run.fail(
            f"{what} was computed with memory that is not the layer",
            measured="NaN",
            cause="this is a race: wait for a copy before you yield its weights, and free them "
            "only after the body is done with them",
        )


@check("forward, backward and three steps give the same as in one place", points=4, code="E")
@diagnosis(
    "yield the layers in order, each once and complete, and keep each until the body is done"
)
def check_training(run: Run) -> None:
    """E: float64; poison in every buffer before its copy has ended and after it is freed."""
    given = _inputs(run)
    result = run(drive_train, given, world=2)
    for output in result.outputs:
        expected = _reference(given["layers"], given["x"])
        _refuse_poison(run, output["first"]["output"], "the output")
        run.close(output["first"]["output"], expected["first"]["output"], "the output")
        for place in range(LAYERS):
            for name, part in (("matrix", 0), ("bias", 1)):
                value = output["first"]["gradients"][place][part]
                what = f"the gradient of layer {LAYERS - 1 - place}'s {name}"
                _refuse_poison(run, value, what)
                run.close(value, expected["first"]["gradients"][place][part], what)
        run.close(output["weights"], expected["weights"], "the weights after 3 steps")


def _forward_runs(run: Run) -> tuple[dict[str, Any], list[dict[str, Any]], list[int]]:
    counts = [LAYERS, 1, 2, 0]
    given = _inputs(run)
    result = run(drive_forward, {**given, "counts": counts}, world=2)
    runs = [found for output in result.outputs for found in output["runs"]]
    return given, runs, counts * 2


@check("while one layer computes, the next is being copied", points=4, code="O")
@diagnosis("fetch layer i+1 before you yield layer i, and wait for it after that")
def check_overlap(run: Run) -> None:
    """O: the clock's last tick is that of two buffers."""
    given, runs, counts = _forward_runs(run)
    copies, work = given["copies"], given["work"]
    for found, count in zip(runs, counts, strict=True):
        turns = [max(work[i], copies[i + 1]) for i in range(count - 1)]
        ticks = copies[0] + sum(turns) + work[count - 1] if count else 0
        alone = sum(copies[:count]) + sum(work[:count])
        run.equal(found["clock"], ticks, f"the ticks that {count} layers took", likely={
            "nothing overlaps: each copy begins after the body, or is waited for before it": alone,
            "no copy was waited for": sum(work[:count]),
        })  # fmt: skip


@check("one layer, two, or none; nothing is left on the device", points=2, code="E")
@diagnosis("the first and the last layer are easily forgotten")
def check_lengths(run: Run) -> None:
    """E: short lists."""
    given, runs, counts = _forward_runs(run)
    for found, count in zip(runs, counts, strict=True):
        inputs = [given["x"]]
        for matrix, bias in given["layers"][:count]:
            inputs.append(torch.tanh(inputs[-1] @ matrix + bias))
        for value in found["inputs"]:
            _refuse_poison(run, value, f"an output, with {count} layers,")
        run.close(found["inputs"], inputs, f"the outputs of {count} layers")
        _check_left(run, found, f"after {count} layers")
        run.true(
            not found["elsewhere"],
            f"weights in memory of their own ({count} layers)",
            expected="the tensors of `copy.weights`",
            measured=f"others for layers {found['elsewhere']}",
            cause="a copy of a layer takes room for a third one: yield `copy.weights` itself",
        )


def _check_left(run: Run, found: dict[str, Any], when: str) -> None:
    if found["notes"]:
        run.fail(
            f"{found['notes'][0]}, {when}",
            expected="copy.wait() before pool.free(copy)",
            measured="the copy goes on, into room that now belongs to another",
        )
    run.equal(found["left"], [], f"layers left on the device {when}")


@check("breaking out of the loop leaves nothing on the device", points=3, code="M")
@diagnosis("put a `finally` around the loop: wait for what is under way, and free what is there")
def check_break(run: Run) -> None:
    """M: no layer is asked for; the body breaks at each layer in turn."""
    given = _inputs(run)
    given = {"layers": given["layers"], "copies": given["copies"]}
    for output in run(drive_break, given, world=2).outputs:
        never, *broken = output["runs"]
        early = (
            "the first copy was started before the loop asked for a layer, where no `finally` of "
            "the generator ends it: start it inside"
        )
        what = "layers left on the device by a loop that never began"
        run.equal(never["left"], [], what, likely={early: [0]})
        for last, found in enumerate(broken):
            _check_left(run, found, f"after a break at layer {last}")
