"""activation_offload: one process's gradients, and a device without activations."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.offload.small_device import Link

EXERCISE = Exercise(
    title="Activations wait on the host",
    core=False,
    minutes=20,
    order=4,
    library=(),
    hints=(
        "`pack` decides, and `unpack` must know what was decided: let `pack` return something "
        "that shows it. What would keep a device tensor alive after `pack`?",
        "Return a pair, (tensor that stays, None) or (None, copy on the host). A set of the "
        "weights' `untyped_storage().data_ptr()` recognises a weight and every view of one.",
        "`stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest`; "
        "`pack` returns `(tensor, None) if stays else (None, link.down(tensor))`; `unpack` returns "
        "the first, or `link.up` of the second; and `saved_tensors_hooks(pack, unpack)` is the "
        "context to return.",
    ),
)

LAYERS, SMALLEST = 4, 200
FROZEN = 2  # a matrix that is not trained, and is saved all the same: for its input's gradient
WORLD = 2  # ranks that do the same, each with a device of its own


# --- what runs on the rank -----------------------------------------------------------------------
def model(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    """Layers with a view of a weight and a small gain each; then what is not so uniform.

    A row of the input, indices, a transposed tensor and one of just `SMALLEST` bytes are saved.
    """
    row = (x[0] * weights[1]).sum()
    for matrix, gain in zip(weights[::2], weights[1::2], strict=True):
        x = torch.tanh(x @ matrix[1:].t()) * gain.exp() + x
    x = x.t().sin().t().index_select(0, x.detach()[:, 0].argsort())
    exact = x.flatten()[: SMALLEST // x.element_size()].exp()
    return x.square().sum() + exact.sum() + row


def leaves(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """The weights, ready for backward; one of them is frozen."""
    return [w.requires_grad_(place != FROZEN) for place, w in enumerate(weights)]


def drive(
    learner: Any, group: Any, weights: list[torch.Tensor], xs: list[torch.Tensor]
) -> dict[str, Any]:
    """Two forwards, then both backwards, the first of them twice."""
    link = Link()
    there = leaves([link.put(w) for w in weights])
    inputs = [link.put(x) for x in xs]
    at_first, losses, saved = link.held, [], []
    for x in inputs:
        with learner.activation_offload(there, link, SMALLEST):
            losses.append(model(x, there))
        saved.append(link.held)
    moved = [link.bytes_down, link.bytes_up]
    gradients, before = [], link.held
    for number, again in ((0, True), (0, False), (1, False)):
        losses[number].backward(retain_graph=again)
        gradients.append([None if w.grad is None else link.down(w.grad) for w in there])
        for w in there:
            w.grad = None
        if again:
            kept = link.held - before
    up = link.bytes_up
    values = [link.down(loss.detach()) for loss in losses]
    losses.clear()
    saved = [count - at_first for count in saved]
    return {"values": values, "gradients": gradients, "moved": moved, "up": up, "saved": saved,
            "kept": kept, "left": link.held - at_first}  # fmt: skip


# --- what it must bring back ---------------------------------------------------------------------
def _inputs(run: Run) -> dict[str, Any]:
    """Hidden: width and rows, whose indices travel; gains are far too small to travel."""
    width, rows = run.number(6, 10), run.number(25, 32)
    shapes: list[tuple[int, ...]] = [(width + 1, width), ()] * LAYERS
    return {
        "weights": [run.random(s) / 2 for s in shapes],
        "xs": [run.random((rows, width)) for _ in range(2)],
    }


def _travelling(given: dict[str, Any], number: int) -> list[int]:
    """Bytes of each activation that one forward saves, as often as it is saved."""
    own = leaves([w.clone() for w in given["weights"]])
    places = {w.untyped_storage().data_ptr() for w in own}
    found: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in places and tensor.nbytes >= SMALLEST:
            found.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(given["xs"][number], own)
    return found


@check("the gradients of the same model without offload", points=3, code="E")
@diagnosis("`unpack` must return what `pack` got: values, dtype, on the device")
def check_gradients(run: Run) -> None:
    """E: two graphs at a time, and a backward that comes twice."""
    given = _inputs(run)
    result = run(drive, given, world=2)
    for output in result.outputs:
        for place, number in enumerate((0, 0, 1)):
            own = leaves([w.clone() for w in given["weights"]])
            loss = model(given["xs"][number], own)
            loss.backward()
            run.close(output["values"][number], loss.detach(), f"the loss of forward {number + 1}")
            what = f"the gradients of backward {place + 1}"
            run.close(output["gradients"][place], [w.grad for w in own], what)


@check("after forward and after backward, no activation is on the device", points=3, code="M")
@diagnosis("keep only the copy on the host; a closure or a list keeps tensors alive too")
def check_memory(run: Run) -> None:
    """M: the device's bytes beyond weights and inputs."""
    result = run(drive, _inputs(run), world=2)
    for output in result.outputs:
        for number, held in enumerate(output["saved"]):
            what = f"what is on the device after forward {number + 1}"
            small = (number + 1) * (SMALLEST // 2)
            run.at_most(held, small, what, cause="the activations are still there")
        kept = "an activation that was copied back is kept: let it go after `unpack`"
        run.at_most(output["kept"], 0, "what the first of two backwards left there", cause=kept)
        run.at_most(output["left"], 0, "what the backwards left on the device", cause=kept)


@check("activations are copied to the host, weights and small tensors are not", points=2, code="B")
@diagnosis("recognise a weight by its memory, so that its views are recognised too")
def check_bytes(run: Run) -> None:
    """B: the link's count."""
    given = _inputs(run)
    result = run(drive, given, world=2)
    for output in result.outputs:
        sizes = [_travelling(given, number) for number in range(2)]
        down, up = output["moved"]
        most = sum(map(sum, sizes))
        cause = "weights, their views, or small tensors are copied as well"
        run.at_most(down, most, "bytes that went down in two forwards", cause=cause)
        run.true(
            down >= most // 2 - 8 * SMALLEST,
            "hardly anything went down",
            expected=f"{most:,} bytes, or half if nothing travels twice",
            measured=f"{down:,}",
        )
        run.equal(up, 0, "bytes that came up during the forwards")
        again = 2 * sum(sizes[0]) + sum(sizes[1])
        cause = "copy each tensor up once in a backward"
        run.at_most(output["up"], again, "bytes that came up in backward", cause=cause)
