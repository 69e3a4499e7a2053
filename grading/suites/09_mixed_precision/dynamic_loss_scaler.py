"""DynamicLossScaler: one rank's overflow is everyone's, and true gradients are clipped."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="A loss scale for all ranks",
    core=True,
    minutes=25,
    order=3,
    defines=("DynamicLossScaler", "train_update"),
    own=("torch.amp.GradScaler",),
    hints=(
        "Which of the methods can decide without the other ranks, and which one needs to hear "
        "from them? Every rank must take part, including one without any gradient and one that "
        "has overflowed.",
        "In `unscale`, `flag = torch.zeros(())` becomes 1 if some `grad.isfinite().all()` is "
        'false; then `all_reduce(flag, group, "max")`. `step` and `update` use only that verdict.',
        "`update`: after an overflow `scale *= backoff` and `good = 0`; else `good += 1`, and at "
        "`interval` `scale *= growth` and `good = 0`. `train_update`: zero_grad, backward, "
        "unscale, clip, step, update.",
    ),
)

INTERVAL = 3
UPDATES = 12
GROWTH, BACKOFF = 4.0, 0.125
RATE, LIMIT = 0.1, 0.5
LEFT = 3.0  # gradients that somebody else's backward has left, before the first update
# In which updates a gradient is not finite: on which rank, in which parameter, and what it is.
OVERFLOWS = {2: (1, 1, math.inf), 9: (2, 0, math.nan), 10: (0, 1, -math.inf)}
Gradients = list[list[list[torch.Tensor | None]]]  # of each rank, update and parameter


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    start: list[torch.Tensor],
    gradients: list[list[torch.Tensor | None]],
    settings: dict[str, Any],
    optimizer: str,
    train: bool,
) -> list[dict[str, Any]]:
    """Makes updates whose true gradients are given, with train_update or step by step."""
    parameters = [nn.Parameter(w.clone()) for w in start]
    adam = getattr(torch.optim, optimizer)(parameters, lr=RATE)
    calls: list[int] = []
    adam.register_step_pre_hook(lambda *_: calls.append(1))
    scaler, found = learner.DynamicLossScaler(group, **settings), []
    for parameter, gradient in zip(parameters, gradients[0], strict=True):
        parameter.grad = None if gradient is None else torch.full_like(parameter, LEFT)
    for given in gradients:
        loss = torch.zeros((), dtype=torch.float64, requires_grad=True) * 1.0
        for parameter, gradient in zip(parameters, given, strict=True):
            if gradient is not None:
                loss = loss + (parameter * gradient).sum()
        since, before = len(group.ledger.events), len(calls)
        seen: dict[str, Any] = {"stayed": True}
        if train:
            made = learner.train_update(scaler, loss, parameters, adam, lambda: _clip(parameters))
        else:
            made = _by_hand(scaler, loss, parameters, adam, seen)
        found.append(
            {
                **seen,
                "made": made,
                "steps": len(calls) - before,
                "scale": scaler.scale,
                "weights": [p.detach().clone() for p in parameters],
                "sent": [event.payload for event in group.ledger.events[since:]],
            }
        )
    return found


def _by_hand(scaler: Any, loss: Any, parameters: Any, optimizer: Any, seen: dict[str, Any]) -> Any:
    """The methods one by one, with a look at the gradients after `unscale`."""
    optimizer.zero_grad()
    parameters[0].grad = torch.zeros_like(parameters[0].t()).t()  # a view, not contiguous
    scaler.scale_loss(loss).backward()
    places = [p.grad.data_ptr() for p in parameters if p.grad is not None]
    scaler.unscale(p for p in parameters)
    gradients = [p.grad for p in parameters if p.grad is not None]
    seen["stayed"] = [g.data_ptr() for g in gradients] == places
    seen["gradients"] = [g.clone() for g in gradients]
    made = scaler.step(optimizer)
    scaler.update()
    return made


def _clip(parameters: list[nn.Parameter]) -> None:
    nn.utils.clip_grad_norm_(parameters, LIMIT)


# --- what they must bring back -------------------------------------------------------------------
class Case(NamedTuple):
    """Hidden numbers of a run."""

    start: list[torch.Tensor]
    gradients: Gradients
    first: float
    bad: list[bool]
    own: list[list[bool]]  # the same for each rank alone
    optimizer: str


class Slips(NamedTuple):
    """What can go wrong with the scale; as it is, nothing does."""

    bad: list[bool]  # of each update
    keep: bool = False  # counts on after an overflow
    late: int = 0  # grows this much later
    again: bool = True  # begins to count again after growing
    lower: bool = True  # backs off at all


def scales(first: float, slip: Slips) -> list[float]:
    """The scale after each update."""
    scale, good, found = first, 0, []
    for bad in slip.bad:
        if bad:
            scale, good = scale * (BACKOFF if slip.lower else 1), good if slip.keep else 0
        else:
            good += 1
            if good >= INTERVAL + slip.late:
                scale, good = scale * GROWTH, 0 if slip.again else good
        found.append(scale)
    return found


def clipped(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """To a norm of at most LIMIT."""
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    return [g * min(1.0, LIMIT / (norm + 1e-6)) for g in gradients]


def trained(case: Case, rank: int, how: str = "") -> list[list[torch.Tensor]]:
    """One process' weights of one rank after each update; `how` names what goes wrong."""
    parameters = [nn.Parameter(w.clone()) for w in case.start]
    optimizer = getattr(torch.optim, case.optimizer)(parameters, lr=RATE)
    factors, found = [case.first, *scales(case.first, Slips(case.bad))], []
    kept = [torch.zeros_like(w) if g is None else torch.full_like(w, LEFT)
            for g, w in zip(case.gradients[rank][0], case.start, strict=True)]  # fmt: skip
    for number, given in enumerate(case.gradients[rank]):
        factor, bad = factors[number], case.bad[number]
        true = [
            torch.zeros_like(w) if g is None else g for g, w in zip(given, case.start, strict=True)
        ]
        kept = [k / factor + g for k, g in zip(kept, true, strict=True)]
        true = kept if how == "kept" else true
        times = factor if how in ("scaled", "clipped") else 1.0
        used = [g * times for g in true] if how == "long" else clipped([g * times for g in true])
        used = [g / times for g in used] if how == "clipped" else used
        kept = used
        for parameter, gradient, g in zip(parameters, used, given, strict=True):
            unmoved = torch.zeros_like(gradient) if bad else gradient
            parameter.grad = None if g is None else unmoved
        if not bad or how == "zeros":
            optimizer.step()
        found.append([p.detach().clone() for p in parameters])
    return found


def make(run: Run, world: int, optimizer: str = "SGD", empty: int = -1) -> Case:
    """Gradients for every rank and update, three of them not finite; one parameter has none."""
    start = [run.random(shape) for shape in ((3, 4), (5,), (2,))]
    first, gradients, own = 2.0 ** run.number(9, 15), [], []
    for rank in range(world):
        rows: list[list[torch.Tensor | None]] = []
        for _ in range(UPDATES):
            drawn = [run.random((3, 4)) * (rank + 1), run.random(5)]
            rows.append([None, None, None] if rank == empty else [*drawn, None])
        for update, (where, place, value) in OVERFLOWS.items():
            gradient = rows[update][place]
            if where % world == rank and gradient is not None:
                gradient.view(-1)[-1] = value
        gradients.append(rows)
        own.append([any(g is not None and not g.isfinite().all() for g in row) for row in rows])
    bad = [any(flags) for flags in zip(*own, strict=True)]
    return Case(start, gradients, first, bad, own, optimizer)


def make_and_run(run: Run, world: int, train: bool, **more: Any) -> tuple[Case, Any]:
    """A case, and what the ranks made of it."""
    case = make(run, world, **more)
    settings = {"scale": case.first, "growth": GROWTH, "backoff": BACKOFF, "interval": INTERVAL}
    common = {"start": case.start, "settings": settings, "optimizer": case.optimizer,
              "train": train}  # fmt: skip
    return case, run(drive, [{**common, "gradients": g} for g in case.gradients], world=world)


@check("unscale turns the gradients into those of the true loss, in place", points=3, code="E")
@diagnosis("`scale_loss` multiplies by the scale, `unscale` divides by it")
def check_unscale(run: Run) -> None:
    """E: gradients after `unscale`, in every update, also if one overflows; 3 ranks and 1."""
    for world in (3, 1):
        case, result = make_and_run(run, world, train=False)
        for number in range(UPDATES):
            where = " in an update that overflows" if case.bad[number] else ""
            scale = [case.first, *scales(case.first, Slips(case.bad))][number]
            for rank, found in enumerate(run.each(result.outputs)):
                given = [g for g in case.gradients[rank][number] if g is not None]
                rows = [[g for g in row[number] if g is not None] for row in case.gradients]
                total = [sum(column) for column in zip(*rows, strict=True)]
                likely = {
                    "still scaled": [g * scale for g in given],
                    "divided by the scale twice, or the loss was never multiplied": [
                        g / scale for g in given
                    ],
                    "multiplied by the scale again": [g * scale**2 for g in given],
                    "summed over the ranks: each rank keeps its own gradients": total,
                    "averaged over the ranks: each rank keeps its own gradients": [
                        g / world for g in total
                    ],
                }
                what = f"the gradients after unscale(){where}"
                run.close(found[number]["gradients"], given, what, likely=likely)
                cause = "the bucket still holds the old numbers: divide in place"
                run.true(found[number]["stayed"], "a gradient's memory was replaced", cause=cause)


@check("infinity or NaN on one rank: all ranks skip", points=4, code="E")
@diagnosis("one verdict for all ranks, from an all-reduce of the flags (max)")
def check_skip(run: Run) -> None:
    """E: what `step` returns, and how often it calls the optimizer."""
    for world in (3, 1):
        case, result = make_and_run(run, world, train=False)
        for number in range(UPDATES):
            value = OVERFLOWS.get(number, (0, 0, 0.0))[2]
            what = f"update {number}" + (f", {value} on one rank" if case.bad[number] else "")
            steps = [found[number]["steps"] for found in result.outputs]
            for rank, found in enumerate(run.each(result.outputs)):
                likely = {_why(case, number, rank, steps): steps[rank]}
                name = f"how often the optimizer was called in {what},"
                run.equal(steps[rank], int(not case.bad[number]), name, likely=likely)
                name = f"what step() returns in {what},"
                run.equal(found[number]["made"], not case.bad[number], name)

    _check_near(run)


def _check_near(run: Run) -> None:
    """Large numbers that are no overflow: in float64, and in float32 where squares overflow."""
    settings = {"scale": 512.0, "growth": GROWTH, "backoff": BACKOFF, "interval": 99}
    for dtype, large in ((torch.float64, 1e200), (torch.float32, 1e34), (torch.float32, -6e35)):
        given = [[torch.tensor([large, large], dtype=dtype), None]]
        inputs = {"start": [torch.zeros(1, 2, dtype=dtype), torch.zeros(1, dtype=dtype)],
                  "gradients": given, "settings": settings, "optimizer": "SGD",
                  "train": False}  # fmt: skip
        for found in run.each(run(drive, inputs, world=2).outputs):
            run.true(
                found[0]["made"] is True and found[0]["scale"] == 512.0,
                f"an update was skipped in which a {dtype} gradient is {512 * large:g}",
                expected="the step, and the scale as it was",
                cause="that is large but finite: use `isfinite` for each number, not a limit, "
                "a sum, or the norm, whose squares overflow",
            )


def _why(case: Case, number: int, rank: int, steps: list[int]) -> str:
    """Why the optimizer was called, or not, in an update, where it is the wrong one."""
    if not case.bad[number]:
        return "the update was skipped, although no rank had an overflow"
    if 0 in steps and not case.own[rank][number]:
        return "this rank decided alone: the overflow is on another one"
    return f"{OVERFLOWS[number][2]} in a gradient led no rank to skip"


@check("the scale falls after an overflow and grows after good updates", points=4, code="E")
@diagnosis("`update` uses the verdict of all ranks, and counts good updates")
@in_part
def check_scale(run: Run) -> None:
    """E: the scale after each of twelve updates, on every rank."""
    for world in (3, 1):
        case, result = make_and_run(run, world, train=False)
        for rank, found in enumerate(run.each(result.outputs)):
            slip, first = Slips(case.bad), case.first
            run.equal([float(update["scale"]) for update in found], scales(first, slip),
                      "the scale after each update", likely={
                "the count of good updates continues after an overflow: they must be in a row":
                    scales(first, slip._replace(keep=True)),
                "one good update too late": scales(first, slip._replace(late=1)),
                "the count is not reset after the scale has grown":
                    scales(first, slip._replace(again=False)),
                "the scale does not fall after an overflow":
                    scales(first, slip._replace(lower=False)),
                "each rank has a scale of its own: the verdict must be that of all ranks":
                    scales(first, Slips(case.own[rank])),
            })  # fmt: skip


@check("train_update: weights of one process, SGD and AdamW", points=5, code="E")
@diagnosis("zero_grad, backward, unscale, clip, step, update")
def check_train(run: Run) -> None:
    """E: after each update; the norm of most gradients is above the limit."""
    for optimizer in ("SGD", "AdamW"):
        case, result = make_and_run(run, 2, train=True, optimizer=optimizer)
        for rank, found in enumerate(run.each(result.outputs)):
            run.close([update["weights"] for update in found], trained(case, rank),
                      f"the weights with {optimizer} after update", likely={
                why: trained(case, rank, how) for why, how in {
                    "clipped before they were unscaled: the limit is for true gradients": "clipped",
                    "clipped and used while they are scaled": "scaled",
                    "not clipped": "long",
                    "a skipped step was taken with zero gradients: AdamW changes the weights "
                    "anyway": "zeros",
                    "gradients from before this update are still there: zero them first": "kept",
                }.items()})  # fmt: skip
            what = "what train_update returns"
            run.equal([update["made"] for update in found], [not bad for bad in case.bad], what)
            run.close(
                [float(update["scale"]) for update in found],
                scales(case.first, Slips(case.bad)),
                "the scale after each update",
                likely={"the scale never changes: update() is missing": [case.first] * UPDATES},
            )


@check("a rank without gradients takes part", points=2, code="H")
@diagnosis("every rank calls the all-reduce, whatever it has found")
def check_empty(run: Run) -> None:
    """H: rank 1 of 3 has no gradient in any update."""
    case, result = make_and_run(run, 3, train=True, empty=1)
    for found in run.each(result.outputs):
        what = "which updates are made if rank 1 has no gradient"
        run.equal([update["made"] for update in found], [not bad for bad in case.bad], what)


@check("one small all-reduce per update", points=2, code="B")
@diagnosis("one number for all parameters, in unscale() and nowhere else")
def check_bytes(run: Run) -> None:
    """B: calls and bytes, from the ledger; nothing past comm."""
    _, result = make_and_run(run, 3, train=False)
    for found in run.each(result.outputs):
        for update in found:
            run.equal(len(update["sent"]), 1, "the number of collectives in an update")
            cause = "gradients were sent: a flag is enough"
            run.at_most(sum(update["sent"]), 8, "an all-reduce's tensor, in bytes,", cause=cause)
