"""offloaded_adam: AdamW's weights, no state on the device, gradients down, weights up."""

from __future__ import annotations

from typing import Any, cast

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.offload.small_device import Link

EXERCISE = Exercise(
    title="Adam on the host",
    core=True,
    minutes=25,
    order=1,
    defines=("OffloadedAdam",),
    library=(),
    hints=(
        "Keep one host tensor for each parameter that needs a gradient, the master. An ordinary "
        "`torch.optim.AdamW` over these masters keeps its state beside them, on the host. What is "
        "missing before its `step`, and what is missing on the device afterwards?",
        "Before: each master's `grad`, which is `link.down(p.grad)` in the master's dtype, or "
        "None if the parameter has no gradient now. After: `link.up` of the master's values, cast "
        "to the parameter's dtype on the host. `param_groups` can be the inner optimizer's own "
        "list.",
        "`master = link.down(p).to(torch.promote_types(p.dtype, torch.float32))"
        ".requires_grad_()`. In the step: `master.grad = None if p.grad is None else "
        "link.down(p.grad).to(master.dtype)`; `inner.step()`; `link.up(master.to(p.dtype), p)` for "
        "those with a gradient.",
    ),
)

OPTIONS = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
RATES = (0.05, 0.02, 0.04, 0.01)  # what a schedule makes of the learning rate
MICRO = 2  # backwards before each step
FROZEN, UNUSED = 2, 3  # numbers of parameters; the second has no gradient in the middle steps
MIXED = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float64)
Slopes = list[list[list[torch.Tensor]]]  # by step, backward and parameter


# --- what runs on the rank -----------------------------------------------------------------------
def play(parameters: list[torch.Tensor], optimizer: Any, slopes: Slopes, note: Any) -> None:
    """Trains; the gradient of a parameter depends on its value and on the step's slopes."""
    for step, backwards in enumerate(slopes):
        optimizer.zero_grad()
        for each in backwards:
            used = [i for i in range(len(parameters)) if i != UNUSED or step in (0, 3)]
            losses = ((parameters[i] * each[i]).sin().sum() for i in used)
            cast(torch.Tensor, sum(losses)).backward()
        if step:  # the first step has the rate of the options
            optimizer.param_groups[0]["lr"] = RATES[step]
        note("before")
        optimizer.step()
        note("after")


def drive(
    learner: Any, group: Any, values: list[torch.Tensor], slopes: Slopes, options: dict[str, Any]
) -> dict[str, Any]:
    """Trains on the device; notes the link's bytes around each step, and what the device holds."""
    link = Link()
    on_device = [link.put(value).requires_grad_(i != FROZEN) for i, value in enumerate(values)]
    there = [[[link.put(s) for s in each] for each in backwards] for backwards in slopes]
    stray = link.put(values[FROZEN])  # of a backward before the parameter was frozen
    before = link.held
    optimizer = learner.OffloadedAdam(iter(on_device), link, **options)
    notes: list[list[int]] = []

    def note(when: str) -> None:
        if when == "before":
            on_device[FROZEN].grad = stray
            link.peak = link.held
        notes.append([link.bytes_down, link.bytes_up, link.held, link.peak])

    made = [link.bytes_down, link.bytes_up, link.held - before]
    play(on_device, optimizer, there, note)
    optimizer.zero_grad()
    left = [p.grad is not None for p in on_device if p.requires_grad]
    held = link.held - before
    values = [link.down(p.detach()) for p in on_device]
    return {"values": values, "made": made, "notes": notes, "left": left, "held": held}


# --- what it must bring back ---------------------------------------------------------------------
class Reference:
    """One process's AdamW, with masters; or a known wrong one.

    Args:
        values: of the parameters.
        options: AdamW's.
        fault: "", or `stale`, `kept`, `rate`, `narrow`, `rounded`.
    """

    def __init__(
        self, values: list[torch.Tensor], options: dict[str, Any], fault: str = ""
    ) -> None:
        self.parameters = [v.clone().requires_grad_(i != FROZEN) for i, v in enumerate(values)]
        self.fault = fault
        wide = [
            v.dtype if fault == "narrow" else torch.promote_types(v.dtype, torch.float32)
            for v in values
        ]
        self.masters = [v.to(w).clone().requires_grad_() for v, w in zip(values, wide, strict=True)]
        self.inner = torch.optim.AdamW(self.masters, **options)
        self.param_groups = [{}] if fault == "rate" else self.inner.param_groups
        self._last: list[torch.Tensor | None] = [None] * len(values)

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """One update."""
        now = [p.grad if p.grad is None else p.grad.clone() for p in self.parameters]
        for i, master in enumerate(self.masters):
            given = self._last[i] if self.fault == "stale" else now[i]
            if given is not None or self.fault != "kept":
                master.grad = None if given is None else given.to(master.dtype)
        self.inner.step()
        self._last = now
        with torch.no_grad():
            for parameter, master, given in zip(self.parameters, self.masters, now, strict=True):
                if given is not None:
                    parameter.copy_(master)
                    if self.fault == "rounded":
                        master.copy_(parameter)

    def trained(self, slopes: Slopes) -> list[torch.Tensor]:
        """The parameters after all steps."""
        play(self.parameters, self, slopes, lambda when: None)
        return [p.detach() for p in self.parameters]


LIKELY = {
    "these are the gradients of the step before: copy them down before the update": "stale",
    "an old gradient was used again: a parameter without one is not updated": "kept",
    "the learning rate did not follow `param_groups`: share the inner optimizer's list": "rate",
}
IN_16_BITS = {
    "small updates are lost in 16 bits: keep the master in float32, and update it there": "narrow",
    "the master was read back from the device, where it is rounded: keep it on the host":
        "rounded",
}  # fmt: skip


def _inputs(run: Run, *dtypes: torch.dtype) -> dict[str, Any]:
    """Hidden sizes: a matrix, a transposed one, a frozen and an unused vector, a scalar."""
    rows = run.number(3, 9)
    shapes: list[tuple[int, ...]] = [(rows, 5), (4, rows + 1), (6,), (7,), ()]
    kinds = dtypes * len(shapes) if len(dtypes) == 1 else dtypes
    values = [run.random(shape).to(kind) for shape, kind in zip(shapes, kinds, strict=True)]
    values[1] = values[1].t()
    slopes = [[[run.random(v.shape).to(v.dtype) for v in values] for _ in range(MICRO)]
              for _ in RATES]  # fmt: skip
    return {"values": values, "slopes": slopes, "options": OPTIONS}


NAMES = ("the matrix", "the transposed matrix", "the frozen vector",
         "the vector that is unused in steps 2 and 3", "the scalar")  # fmt: skip


def _compare(run: Run, given: dict[str, Any], faults: dict[str, str]) -> Any:
    result = run(drive, given, world=2)
    values, options, slopes = given["values"], given["options"], given["slopes"]
    known = {
        why: Reference(values, options, fault).trained(slopes) for why, fault in faults.items()
    }
    known["nothing was copied up: the device still has the initial values"] = values
    expected = Reference(values, options).trained(slopes)
    for output in run.each(result.outputs):
        for place, (name, value, right) in enumerate(
            zip(NAMES, output["values"], expected, strict=True)
        ):
            likely = {why: value[place] for why, value in known.items()}
            if place == FROZEN and not torch.equal(value, right):
                run.fail(f"{name} has changed", cause="it needs no gradient: leave it alone")
            what = f"{name} in {str(right.dtype).removeprefix('torch.')} after 4 steps"
            if right.dtype.itemsize > 2:
                run.close(value, right, what, likely=likely)
            elif not _rounded_alike(value, right):
                run.equal(value, right, what, likely=likely)
    return result


def _rounded_alike(value: Any, right: torch.Tensor) -> bool:
    """Whether a few at most differ: an Adam in another order may round another way there."""
    alike = isinstance(value, torch.Tensor) and value.dtype == right.dtype
    alike = alike and value.shape == right.shape
    return alike and int((value != right).sum()) <= right.numel() // 16


@check("the weights of plain AdamW after four steps, in float64", points=4, code="E")
@diagnosis("each step: gradients down, the update on the host, parameters up")
def check_weights(run: Run) -> None:
    """E: two backwards a step, a schedule, a frozen parameter, one that is not always used.

    Once with all options, and once with none.
    """
    for options in (OPTIONS, {}):
        given = {**_inputs(run, torch.float64), "options": options}
        result = _compare(run, given, LIKELY)
        for left in result.column("left"):
            run.equal(left, [False] * 4, "gradients that are left after `zero_grad`")


@check("updates too small for 16 bits are kept in the master", points=3, code="E")
@diagnosis("the optimizer updates float32 masters; the device gets them rounded")
def check_master(run: Run) -> None:
    """E: in 16 bits, what float32 masters round to; wider ones beside them."""
    for dtypes in ((torch.bfloat16,), MIXED):
        given = {**_inputs(run, *dtypes), "options": {"lr": 1e-3, "eps": 1e-6}}
        _compare(run, given, LIKELY | IN_16_BITS)


TWICE = (  # down, up
    "float32 is copied, or the parameters are copied down as well: the master is on the host "
    "already",
    "float32 is copied: cast on the host",
)


def _sizes(given: dict[str, Any], step: int) -> int:
    """Bytes of the parameters that have a gradient in a step."""
    used = [
        v for i, v in enumerate(given["values"]) if i != FROZEN and (i != UNUSED or step in (0, 3))
    ]
    return sum(v.nbytes for v in used)


@check("a step moves the gradients down and the parameters up, once each", points=3, code="B")
@diagnosis("copy in the dtype that the device has, and nothing for a parameter without a gradient")
def check_bytes(run: Run) -> None:
    """B: the link's count, for each step."""
    given = {**_inputs(run, torch.bfloat16), "options": {"lr": 1e-3}}
    result = run(drive, given, world=2)
    for output in result.outputs:
        whole = sum(v.nbytes for v in given["values"])
        run.at_most(
            output["made"][0],
            whole,
            "bytes that went down when the optimizer was made",
            cause="each parameter may go down once",
        )
        run.equal(output["made"][1], 0, "bytes that went up when the optimizer was made")
        for step in range(len(RATES)):
            before, after = output["notes"][2 * step], output["notes"][2 * step + 1]
            size, trained = _sizes(given, step), _sizes(given, 0)
            for place, name in enumerate(("down", "up")):
                moved, what = after[place] - before[place], f"bytes that went {name}"
                likely = {
                    "nothing is copied: the update is made on the device": 0,
                    TWICE[place]: 2 * size,
                    "the optimizer's state is copied too: it stays on the host": 3 * size,
                    "a parameter without a gradient is copied": trained,
                }
                run.equal(moved, size, f"{what} in step {step + 1}", likely=likely)


@check("the device holds no optimizer state and no masters", points=3, code="M")
@diagnosis("make every tensor of the optimizer from host tensors")
def check_memory(run: Run) -> None:
    """M: the device's bytes after the optimizer was made, around each step, and at the end."""
    given = _inputs(run, torch.float64)
    result = run(drive, given, world=2)
    for output in result.outputs:
        largest = max(v.nbytes for v in given["values"])
        cause = "the masters are made on the device: use link.down"
        run.at_most(output["made"][2], 0, "bytes on the device for the new optimizer", cause=cause)
        for step in range(len(RATES)):
            before, after = output["notes"][2 * step], output["notes"][2 * step + 1]
            cause = "the optimizer's state is on the device"
            what = f"bytes that step {step + 1} left on the device"
            run.at_most(after[2] - before[2], 0, what, cause=cause)
            most = after[3] - before[2]
            cause = "copy straight into the parameter: link.up(host, p)"
            run.at_most(most, largest, f"extra bytes at the peak of step {step + 1}", cause=cause)
        cause = "a tensor of the optimizer is still on the device"
        run.at_most(output["held"], 0, "bytes left on the device at the end", cause=cause)
