"""train_3d: the losses, gradients and weights of one process, on 2 × 2 × 2 and 1 × 3 × 2."""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, RunFault, check, diagnosis
from grading.references.data_parallel.wrapper import alike
from grading.references.mesh.small_training import (
    CLIPPED,
    MICRO,
    STEPS,
    WAYS,
    Batch,
    Layout,
    Values,
    build,
    part,
)

EXERCISE = Exercise(
    title="3D training put together",
    core=True,
    minutes=45,
    order=50,
    library=(
        "comm",
        "model",
        "schedule",
        "parallel.Pipeline",
        "parallel.vocab_parallel_cross_entropy",
        "train.clip_grad_norm_nd",
        "train.pipeline_stages",
        "train.tensor_parallel",
    ),
    hints=(
        "Ask for each number which ranks have different parts of it, and which have the same. "
        "Tokens and losses differ along `dp` and are the same along `tp`. Only ranks along `dp` "
        "have the same parameter with different gradients. The squares in the norm differ along "
        "`pp` and, for matrices, along `tp`.",
        "Before the loop: mesh, `tensor_parallel`, schedule, stages, pipeline, then the parameters "
        "of the stages and their optimizer. In it: zero, read, count the tokens over `dp`, run "
        "with weights 1/tokens, sum gradients over `dp`, the loss over both, clip, update.",
        "`all_reduce(tokens, mesh['dp'])`; `[1 / tokens] * micro_batches`; `all_reduce(p.grad, "
        "mesh['dp'])` without a division; a float64 zero plus the losses, over `mesh['pp', 'dp']`; "
        "copies are dp, and dp·tp for `p.dim() == 1`, in `clip_grad_norm_nd` over `world`.",
    ),
)

LAYOUTS = ((2, 2, 2), (1, 3, 2))  # pp, dp, tp: in the second no two are the same
NUMBERS = {"pp": 64, "tp": 64, "dp": 500}  # bytes a step: losses, tokens, norms, uneven parts
CAUSES = (
    "activations alone travel here: ranks along dp have the same parameter, and no others",
    "one all-reduce of each gradient per step, after all micro-batches",
)
WAITS = (
    "All ranks of a group take part in each of its calls, those without losses with 0; and all "
    "ranks of the mesh take part in the first use of a group on several axes."
)
LENGTHS = (
    "gloo ends a process when a rank sends more than another expects. Ranks have the same "
    "parameters along dp alone: were gradients sent over the world?"
)
REPLACED = (
    "the optimizer must have the parameters of the stages (cutting a model makes new ones), and "
    "the mesh has its axes in the order of `sizes`"
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    shape: dict[str, int],
    sizes: dict[str, int],
    batches: list[list[torch.Tensor]],
    limit: float,
) -> dict[str, Any]:
    """Trains once with each optimizer; keeps what is read, and what the optimizers see."""
    found = {}
    for way, (kind, options) in WAYS.items():
        model, asked, seen = build(shape), list[list[int]](), list[dict[Any, torch.Tensor]]()
        given: list[Any] = []

        def read(step: int, index: int, count: int) -> list[Batch]:
            asked.append([step, index, count])  # noqa: B023
            if not 0 <= index < count:
                raise IndexError(f"part {index} of {count} was read: parts are 0 to {count - 1}")
            return part(batches[step], index, count)

        def make(parameters: Any) -> torch.optim.Optimizer:
            given[:] = parameters  # noqa: B023
            optimizer = kind(list(given), **options)  # noqa: B023
            optimizer.register_step_pre_hook(lambda o, *_: seen.append(_gradients(o)))  # noqa: B023
            return optimizer

        losses = learner.train_3d(
            model,
            group,
            sizes,
            read,
            make,
            steps=STEPS[way],
            micro_batches=MICRO,
            max_norm=limit if way == CLIPPED else math.inf,
        )
        names = {p: name for name, p in model.named_parameters()}
        found[way] = {
            "asked": asked,
            "given": sorted(names.get(p, "?") for p in given),
            "losses": losses,
            "gradients": [{names.get(p, "?"): grad for p, grad in step.items()} for step in seen],
            "weights": {name: p.detach() for p, name in names.items()},
        }
    return found


def _gradients(optimizer: torch.optim.Optimizer) -> dict[Any, torch.Tensor]:
    held = [p for each in optimizer.param_groups for p in each["params"]]
    return {p: p.grad.clone() for p in held if p.grad is not None}


# --- comparisons ---------------------------------------------------------------------------------
def _train(run: Run, layout: Layout) -> Any:
    """The run of a layout; the likely reason is added to what broke it off."""
    try:
        return run(drive, [layout.inputs] * layout.world, world=layout.world)
    except RunFault as error:
        fault = error.fault
        if fault.kind == "deadlock":  # of eight ranks, those that wait for something else
            rows = {row.partition(" waits")[2]: row for row in reversed(fault.rows)}
            cause = f"{WAITS} {fault.cause}".strip()
            fault = replace(fault, rows=tuple(reversed(rows.values())), cause=cause)
        elif fault.kind == "mismatch":
            fault = replace(fault, cause=LENGTHS)
        raise RunFault(fault, error.output) from None


def _each(run: Run) -> Iterator[tuple[Layout, int, dict[str, Any], str]]:
    """Every rank of every layout, with what it brought back."""
    for sizes in LAYOUTS:
        layout = Layout(run, sizes)
        for rank, found in enumerate(run.each(_train(run, layout).outputs)):
            place = ", ".join(f"{axis} {index}" for axis, index in layout.place(rank).items())
            yield layout, rank, found, f"({layout.words}; at {place})"


def _seen(run: Run, found: dict[str, Any], way: str, where: str, rank: int) -> list[Values]:
    """What the optimizer saw in each of its steps."""
    seen: list[Values] = found[way]["gradients"]
    run.equal(len(seen), STEPS[way], f"the number of updates with {way} {where}", rank=rank)
    return seen


def _compare(
    run: Run,
    found: dict[str, Any],
    right: Values,
    what: str,
    rank: int,
    slips: Callable[[], dict[str, Values]] = dict,
) -> None:
    """Values by name; the known mistakes are computed only if they are asked for."""
    for name in right:
        run.true(name in found, f"{what} lacks {name}", rank=rank, cause=REPLACED)
    mine = {name: found[name] for name in right}
    same = alike([list(mine.values())], [list(right.values())])
    run.close(mine, right, what, rank=rank, likely={} if same else slips(), terms=200)


# --- checks --------------------------------------------------------------------------------------
@check("each rank reads the rows of its place on dp, once per step", points=2, code="E")
@diagnosis("read(step, dp.index, dp.size), with the mesh's group dp")
def check_rows(run: Run) -> None:
    """E: ranks of one tp or pp line have the same rows."""
    for sizes in LAYOUTS:
        layout = Layout(run, sizes)
        outputs = _train(run, layout).outputs
        ranks, dp = range(layout.world), layout.dp
        places = [layout.place(rank) for rank in ranks]
        known = {  # what each rank would have asked for
            "the place on dp is not the global rank: ranks of one tp line get different rows":
                [[rank % dp, dp] for rank in ranks],
            "this is the place on tp": [[place["tp"], dp] for place in places],
            "this is the place on pp": [[place["pp"], dp] for place in places],
            "the batch is cut over all ranks: those of one tp or pp line work on the same rows":
                [[rank, layout.world] for rank in ranks],
            "all ranks read the whole batch": [[0, 1] for _ in ranks],
        }  # fmt: skip
        for way, rank in itertools.product(WAYS, ranks):
            asked = [output[way]["asked"] for output in outputs]
            steps = range(STEPS[way])
            fits = (
                why
                for why, each in known.items()
                if asked == [[[step, *part] for step in steps] for part in each]
            )
            right = [[step, places[rank]["dp"], dp] for step in steps]
            run.equal(
                asked[rank],
                right,
                rank=rank,
                likely={next(fits, ""): asked[rank]},
                what=f"the list of [step, index, count] read ({layout.words})",
            )


@check("the gradients of the first step, not clipped", points=5, code="E")
@diagnosis("weigh with 1/tokens of the whole batch, and sum over dp and nowhere else")
def check_gradients(run: Run) -> None:
    """E: as the optimizer sees them, before its first update."""
    for layout, rank, found, where in _each(run):
        seen = _seen(run, found, "SGD", where, rank)
        _compare(
            run,
            seen[0],
            layout.held(layout.first, rank),
            f"the gradient {where}",
            rank,
            lambda: layout.wrong_scales(rank),  # noqa: B023
        )


@check("the gradients of later steps", points=2, code="E")
@diagnosis("gradients are zeroed before each step")
def check_later(run: Run) -> None:
    """E: with SGD; in the first rows no token counts."""
    for layout, rank, found, where in _each(run):
        seen = _seen(run, found, "SGD", where, rank)
        steps = [layout.held(step.gradient, rank) for step in layout.trained["SGD"]]
        for number, (before, right) in enumerate(itertools.pairwise(steps), 1):
            likely = {
                "it still contains the previous step's: zero gradients before a step": {
                    name: right[name] + before[name] for name in right
                },
                "it still contains the previous step's, summed over dp again: zero gradients "
                "before a step": {name: right[name] + layout.dp * before[name] for name in right},
            }
            _compare(
                run,
                seen[number],
                right,
                f"the gradient of step {number} {where}",
                rank,
                lambda: likely,  # noqa: B023
            )


@check("the gradients of the first step, clipped", points=4, code="E")
@diagnosis("each part of the model counts once in the norm")
def check_clipped(run: Run) -> None:
    """E: to less than half of their norm."""
    for layout, rank, found, where in _each(run):
        seen = _seen(run, found, CLIPPED, where, rank)
        right = layout.held(layout.clipped(layout.first), rank)
        _compare(
            run,
            seen[0],
            right,
            f"the clipped gradient {where}",
            rank,
            lambda: layout.wrong_norms(rank),  # noqa: B023
        )


@check("the loss of each step, the same on every rank", points=3, code="E")
@diagnosis("sum over pp and dp, divided by the tokens of the whole batch")
def check_losses(run: Run) -> None:
    """E: floats, of both trainings."""
    for layout, rank, found, where in _each(run):
        for way, each in found.items():
            right = [step.loss for step in layout.trained[way]]
            losses, what = each["losses"], f"the loss with {way} {where}, by step"
            listed = isinstance(losses, list) and all(isinstance(v, float) for v in losses)
            run.true(listed, f"{what}: not a list of floats", measured=repr(losses)[:80])
            near = [0 < abs(a - b) / b < 1e-6 for a, b in zip(losses, right, strict=False)]
            off = [abs(a - b) / b > 1e-9 for a, b in zip(losses, right, strict=False)]
            cause = "summed in float32: begin with a float64 zero"
            run.true(not any(off) or not all(near), f"{what}, is only nearly right", cause=cause)
            likely = layout.wrong_losses(right, rank) if any(off) else {}
            run.close(losses, right, what, likely=likely)


@check("the weights after the steps of SGD and of AdamW", points=3, code="E")
@diagnosis("the optimizer has this rank's parameters, and steps last")
def check_weights(run: Run) -> None:
    """E: each rank's part of what one process has."""
    for layout, rank, found, where in _each(run):
        for way in WAYS:
            right = layout.held(layout.trained[way][-1].weights, rank)
            _compare(run, found[way]["weights"], right, f"the weight with {way} {where}", rank)
            what = f"the list of parameters that the optimizer of {way} has {where}"
            run.equal(found[way]["given"], sorted(right), what, rank=rank)


@check("this rank's gradients are reduced over dp once per step", points=1, code="B")
@diagnosis(
    "2(N-1)/N·S on the axis dp, S the bytes of this rank's gradients; no gradients elsewhere"
)
def check_bytes(run: Run) -> None:
    """B: from the ledger; a few numbers may travel, too."""
    steps = sum(STEPS.values())
    for sizes in LAYOUTS:
        layout = Layout(run, sizes)
        for rank, ledger in enumerate(_train(run, layout).timeline.ledgers):
            pp, tp = ledger.sent(None, "pp"), ledger.sent(None, "tp")
            sent = {"pp": pp, "tp": tp, "dp": ledger.sent() - pp - tp}  # however groups are named
            for axis, most in layout.sent(rank).items():
                what = f"bytes on the axis {axis} in {steps} steps ({layout.words})"
                most, cause = steps * (most + NUMBERS[axis]), CAUSES[axis == "dp"]
                run.at_most(sent[axis], most, what, rank=rank, cause=cause)
