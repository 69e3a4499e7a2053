"""MasterWeightAdam: float32 masters, small updates survive, twelve bytes of state."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="AdamW over float32 masters",
    core=True,
    minutes=20,
    order=2,
    defines=("MasterWeightAdam",),
    library=(),
    own=("torch.optim.Adam", "torch.optim.AdamW"),
    hints=(
        "What is rounded to bf16, and what must never be? The weight is only a rounded copy of "
        "the master, and never read back.",
        "`masters = [p.detach().float() for p in parameters]`, means and squares are zeros like "
        "them. In `step` begin with `gradient = p.grad.float()`, and end with `p.copy_(master)` "
        "and `p.grad = None`.",
        "`master.mul_(1 - lr * weight_decay)`, `mean.lerp_(gradient, 1 - beta1)`, "
        "`square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)`; then the last line of "
        "the formula with a step count for each parameter.",
    ),
)

OPTIONS = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}
SMALL = {"lr": 2e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
UPDATES = 8
LISTS = ("masters", "means", "squares")
Row = list[torch.Tensor | None]  # a gradient for each parameter


# --- what runs on the rank -----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, start: list[torch.Tensor], rows: list[Row], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Updates with the given gradients; what is there after each."""
    parameters = [nn.Parameter(w.clone()) for w in start]
    places = [p.data_ptr() for p in parameters]
    optimizer, found = learner.MasterWeightAdam((p for p in parameters), **options), []
    own = _places(optimizer)
    for row in rows:
        for parameter, gradient in zip(parameters, row, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        found.append(
            {
                **{name: [t.detach().clone() for t in getattr(optimizer, name)] for name in LISTS},
                "weights": [p.detach().clone() for p in parameters],
                "kept": _bytes(vars(optimizer), set(places)),
                "freed": all(p.grad is None for p in parameters),
                "stayed": [p.data_ptr() for p in parameters] == places,
                "own stayed": _places(optimizer) == own,
            }
        )
    return found


def _places(optimizer: Any) -> list[int]:
    return [t.data_ptr() for name in LISTS for t in getattr(optimizer, name)]


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


# --- what they must bring back -------------------------------------------------------------------
def updated(
    start: list[torch.Tensor], rows: list[Row], options: dict[str, Any], how: str = ""
) -> list[dict[str, list[torch.Tensor]]]:
    """The update in float64; `how` names what goes wrong. Compared in float32."""
    lr, (beta1, beta2) = options["lr"], options["betas"]
    eps, decay = options["eps"], options["weight_decay"]
    w = [t.double() for t in start]
    m, v, t = [x * 0 for x in w], [x * 0 for x in w], [0] * len(w)
    found = []
    for number, row in enumerate(rows, 1):
        for i, given in enumerate(row):
            if given is None:
                continue
            g, t[i] = given.double(), t[i] + 1
            w[i] = w[i].to(given.dtype).double() if how == "again" else w[i]
            g = g + decay * w[i] if how == "L2" else g
            square = (given * given).double() if how == "narrow" else g * g
            steps = number if how == "global" else t[i]
            w[i] = w[i] if how == "L2" else w[i] * (1 - lr * decay)
            m[i], v[i] = beta1 * m[i] + (1 - beta1) * g, beta2 * v[i] + (1 - beta2) * square
            mean, root = m[i] / (1 - beta1**steps), (v[i] / (1 - beta2**steps)).sqrt() + eps
            if how == "biased":
                mean, root = m[i], v[i].sqrt() + eps
            w[i] = w[i] - lr * mean / root
            w[i] = w[i].to(given.dtype).double() if how == "weights" else w[i]
        found.append(
            {
                name: [x.float() for x in values]
                for name, values in zip(LISTS, (w, m, v), strict=True)
            }
        )
    return found


def _case(run: Run) -> tuple[list[torch.Tensor], list[Row], list[dict[str, Any]]]:
    """Hidden weights, two in bf16 and one in fp16; the second has no gradient at first."""
    kinds = (torch.bfloat16, torch.bfloat16, torch.float16)
    start = [run.random((4, 3), kinds[0]), run.random(6, kinds[1]), run.random(5, kinds[2])]
    rows: list[Row] = []
    for number in range(UPDATES):
        row: Row = [run.random(w.shape, w.dtype) for w in start]
        row[1] = None if number in (0, 1, 4) else row[1]
        row[2] = torch.zeros_like(start[2]) if number == 3 else row[2]  # zeros are a gradient too
        rows.append(row)
    result = run(drive, {"start": start, "rows": rows, "options": OPTIONS})
    return start, rows, result.outputs[0]


@check("AdamW in float32: masters, means and squares", points=6, code="E")
@diagnosis("the formulas of the task, on float32 numbers")
def check_masters(run: Run) -> None:
    """E: eight updates; bf16 and fp16; a parameter that has no gradient in some of them."""
    start, rows, found = _case(run)
    slips = {
        "the bias correction is missing: mean and square begin at 0": "biased",
        "weight decay was added to the gradient: subtract it from the master": "L2",
        "t counts all steps: each parameter has its own t": "global",
        "the square was taken in 16 bits: convert the gradient to float32 first": "narrow",
        "the master was rounded: round only the weight": "weights",
        "the master was set back to the weight: it must keep what rounding removes": "again",
    }
    run.true(
        all(update["own stayed"] for update in found),
        "a tensor of `masters`, `means` or `squares` was replaced",
        cause="others may hold these tensors, such as a checkpoint: update them in place",
    )
    wanted = updated(start, rows, OPTIONS)
    for name in ("squares", "means", "masters"):
        run.close(
            [update[name] for update in found],
            [update[name] for update in wanted],
            f"`{name}` after update",
            terms=64,
            likely={
                why: [update[name] for update in updated(start, rows, OPTIONS, how)]
                for why, how in slips.items()
            },
        )


@check("the weights are the rounded masters", points=3, code="E")
@diagnosis("`p.copy_(master)` at the end, in place")
def check_weights(run: Run) -> None:
    """E: bit for bit, in the dtype and the memory that they had."""
    start, _, found = _case(run)
    for number, update in enumerate(found):
        rounded = [m.to(w.dtype) for m, w in zip(update["masters"], start, strict=True)]
        likely = {"the weights never changed": start}
        run.equal(update["weights"], rounded, f"the weights after update {number}", likely=likely)
        cause = "the model computes with the old tensor: write into it"
        run.true(update["stayed"], "a parameter's memory was replaced", cause=cause)


@check("updates below one bf16 step survive", points=3, code="E")
@diagnosis("the master keeps what the weight cannot represent yet")
def check_small(run: Run) -> None:
    """E: 40 updates of 0.0002 from 1.0, where bf16 has steps of 0.004."""
    start = [torch.ones(3, dtype=torch.bfloat16)]
    rows: list[Row] = [[torch.ones(3, dtype=torch.bfloat16)] for _ in range(40)]
    found = run(drive, {"start": start, "rows": rows, "options": SMALL}).outputs[0]
    wanted = updated(start, rows, SMALL)[-1]["masters"][0].to(torch.bfloat16)
    likely = {"every update was rounded away": start[0]}
    what = "a weight of 1.0 after 40 updates of 0.0002"
    run.equal(found[-1]["weights"][0], wanted, what, likely=likely)


@check("16 bytes per parameter: 12 for the optimizer, and gradients are freed", points=3, code="M")
@diagnosis("keep a master, a mean and a square of 4 bytes each, and no gradient")
def check_bytes(run: Run) -> None:
    """M: all tensors that the optimizer holds after a step, but the parameters."""
    start, _, found = _case(run)
    count = sum(w.numel() for w in start)
    for update in found:
        likely = {
            "float32 gradients are kept between steps": 16 * count,
            "copies of 16 bits are kept: the model has the weights": 14 * count,
            "means and squares are in 16 bits": 8 * count,
        }
        what = f"what is kept for {count} parameters, in bytes,"
        run.equal(update["kept"], 12 * count, what, likely=likely)
        cause = "set `p.grad` to None: it takes two bytes per parameter"
        run.true(update["freed"], "a gradient is still there after step()", cause=cause)
