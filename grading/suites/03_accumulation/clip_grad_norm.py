"""clip_grad_norm: one norm of the whole gradient, at the one place where it exists."""

# mypy: enable-error-code="arg-type, misc, operator, union-attr"
from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.accumulation.clipped_updates import (
    RATE,
    SCALE,
    UPDATES,
    WINDOW,
    Batches,
    Model,
    Reference,
    clip_slips,
    clipped,
    squared_error,
    total_norm,
)
from grading.references.data_parallel.wrapper import Replica, alike, gradient_of

EXERCISE = Exercise(
    title="Clipping: once an update, after the synchronisation",
    core=True,
    minutes=25,
    order=3,
    defines=("clip_grad_norm", "update"),
    own=(
        "torch.nn.utils.clip_grad_norm_",
        "torch.nn.utils.clip_grads_with_norm_",
        "torch.nn.utils.get_total_norm",
    ),
    hints=(
        "How does the norm of a long vector follow from the norms of its pieces? For p = 2 it is "
        "the root of the sum of their squares, which is the 2-norm of the vector of norms. The "
        "same holds for every p, and for infinity. A generator can be iterated over only once: "
        "make a list first.",
        "The order of an update: all backwards (the last one synchronises), divide by the scale, "
        "clip, step. After the synchronisation all ranks hold the same gradient, so they compute "
        "the same norm, and nothing needs to be sent.",
        "`gradients = [p.grad for p in parameters if p.grad is not None]`; "
        "`torch.linalg.vector_norm(torch.stack([vector_norm(g, p) for g in gradients]), p)`; "
        "`gradient.mul_(min(1, max_norm / (norm + 1e-6)))` for each; return the norm.",
    ),
)

WORLDS = (2, 3, 1)
SIZE, WIDTH, OUT = 2, 5, 3
LEFT = 100.0  # what another backward has left in the gradients before the first update
LIMITS = (0.05, 1e4)  # one that always clips, one that never does
NORMS = (2.0, 1.0, 3.0, float("inf"))


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, gradients: list[torch.Tensor], limits: list[float], norms: list[float]
) -> list[dict[str, Any]]:
    """Clips the same gradients to each limit with each norm; some parameters have none.

    Then it clips a parameter alone that has none.
    """
    found = []
    for limit in limits:
        for norm_type in norms:
            parameters = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
            parameters.insert(1, nn.Parameter(torch.zeros(3, dtype=torch.float64)))
            with_one = parameters[:1] + parameters[2:]
            for parameter, gradient in zip(with_one, gradients, strict=True):
                parameter.grad = gradient.clone()
            places = [_place(p) for p in with_one]
            norm = learner.clip_grad_norm((p for p in parameters), limit, norm_type)
            without = learner.clip_grad_norm(iter(parameters[1:2]), limit, norm_type)
            found.append(
                {
                    "norm": norm,
                    "norm_of_none": float(without),
                    "gradients": [p.grad for p in with_one],
                    "stayed": [_place(p) for p in with_one] == places,
                }
            )
    return found


def _place(parameter: nn.Parameter) -> int:
    return 0 if parameter.grad is None else parameter.grad.data_ptr()


def drive_updates(
    learner: Any, group: Any, start: list[torch.Tensor], batches: Batches, cases: list[Any]
) -> list[dict[str, Any]]:
    """Several updates for each limit and optimizer: the clipped gradients and the weights."""
    found = []
    for limit, name in cases:
        model = Model(start)
        replica = Replica(model, group)
        for parameter in replica.trained():
            parameter.grad = torch.full_like(parameter, LEFT)
        groups = [{"params": [parameter]} for parameter in replica.trained()]
        optimizer = getattr(torch.optim, name)(groups, lr=RATE)
        gradients: list[list[torch.Tensor]] = []
        places: dict[nn.Parameter, int] = {}
        stayed: list[bool] = []
        for parameter in replica.trained():
            parameter.register_post_accumulate_grad_hook(partial(_note_place, places))
        optimizer.register_step_pre_hook(partial(_note, gradients, replica, places, stayed))
        scales: list[float] = []
        loss_fn = partial(_noted_loss, scales)
        since, norms = len(group.ledger.events), []
        for number in range(UPDATES):
            window = batches[number * WINDOW : (number + 1) * WINDOW]
            window = window[: WINDOW - (number == UPDATES - 1)]
            norm = learner.update(replica, optimizer, loss_fn, window, limit, SCALE)
            norms.append(norm)
        sizes = [event.payload for event in group.ledger.events[since:]]
        found.append(
            {
                "norms": norms,
                "gradients": gradients,
                "weights": [p.detach().clone() for p in replica.trained()],
                "sizes": sizes,
                "stayed": stayed,
                "scales": scales,
            }
        )
    return found


def _note_place(places: dict[nn.Parameter, int], parameter: nn.Parameter) -> None:
    places[parameter] = _place(parameter)


def _note(
    gradients: list[list[torch.Tensor]],
    replica: Replica,
    places: dict[nn.Parameter, int],
    stayed: list[bool],
    *_: Any,
) -> None:
    gradients.append([gradient_of(p) for p in replica.trained()])
    stayed.append(all(_place(p) == places.get(p) for p in replica.trained()))


def _noted_loss(scales: list[float], outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss; notes in backward by how much it has been multiplied."""
    loss = squared_error(outputs, targets)
    loss.register_hook(lambda gradient: scales.append(float(gradient)))
    return loss


# --- what they must bring back -------------------------------------------------------------------
@check("the norm of all gradients together, and gradients of at most that norm", points=4, code="E")
@diagnosis("one norm over all gradients; one factor for all of them, at most 1")
@in_part
def check_clip(run: Run) -> None:
    """E: float64; four norms, a limit that clips and one that does not; no process group."""
    gradients = [run.random(shape) for shape in ((4, 3), (7,), (2, 2, 2))]
    given = {"gradients": gradients, "limits": list(LIMITS), "norms": list(NORMS)}
    result = run(drive, given, world=1)
    cases = [(limit, norm_type) for limit in LIMITS for norm_type in NORMS]
    for (limit, norm_type), found in zip(cases, result.outputs[0], strict=True):
        norm = total_norm(gradients, norm_type)
        what = f"{norm_type:g}-norm, max_norm {limit:g}"
        each = torch.stack([torch.linalg.vector_norm(g, norm_type) for g in gradients])
        run.close(
            found["gradients"],
            clipped(gradients, limit, norm_type),
            f"the gradients afterwards ({what})",
            rank=0,
            likely=clip_slips(gradients, limit, norm_type),
            terms=40,
        )
        likely = {
            "this is the norm after clipping: return the one before": total_norm(
                clipped(gradients, limit, norm_type), norm_type
            ),
            "the norms of the parameters were added up": each.sum(),
            "this is the 2-norm: `norm_type` says which": total_norm(gradients),
            "the root is missing": norm**2,
        }
        name = f"the norm of no gradient at all ({what})"
        run.equal(found["norm_of_none"], 0.0, name, rank=0)
        name = f"the norm returned ({what})"
        run.close(_number(found["norm"]), norm, name, rank=0, terms=40, likely=likely)
        run.true(
            found["stayed"],
            f"gradients were replaced by other tensors ({what})",
            rank=0,
            cause="multiply them in place: a view of a bucket must stay one",
        )


def _number(value: Any) -> Any:
    """A plain number as a scalar tensor."""
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value


CASES = ((LIMITS[0], "SGD"), (LIMITS[0], "AdamW"), (LIMITS[1], "SGD"))


def _updates(run: Run, world: int) -> tuple[Any, list[torch.Tensor], list[Batches]]:
    shapes = ((WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, OUT))
    start = [run.random(shape) for shape in shapes]
    count = UPDATES * WINDOW
    batches = [
        [((1 + rank) * run.random((SIZE, WIDTH)), run.random((SIZE, OUT))) for _ in range(count)]
        for rank in range(world)
    ]
    same = {"start": start, "cases": [list(case) for case in CASES]}
    result = run(
        drive_updates, [{**same, "batches": batches[r]} for r in range(world)], world=world
    )
    return result, start, batches


@check(
    "the update equals one process's: add up, synchronise, unscale, clip, step", points=4, code="E"
)
@diagnosis("all backwards, then divide by the scale, then clip, then step")
def check_update(run: Run) -> None:
    """E: clipped gradients before each step, weights after SGD and AdamW; 1–3 ranks."""
    for world in WORLDS:
        result, start, batches = _updates(run, world)
        reference = Reference(start, batches)
        for place, case in enumerate(CASES):
            found = [output[place] for output in result.outputs]
            _compare_updates(run, found, reference, case)


def _compare_updates(run: Run, found: list[Any], reference: Reference, case: Any) -> None:
    """One case on all ranks with one process."""
    norms, updates, weights = reference.train(*case)
    what = f"max_norm {case[0]:g}, {case[1]}, {len(found)} ranks"
    for rank, got in enumerate(found):
        name = f"the number of optimizer steps in {UPDATES} updates"
        run.equal(len(got["gradients"]), UPDATES, name, rank=rank)
        wrong = {} if alike(got["gradients"], updates) else reference.slips(case[0], rank)
        factor = min(1.0, case[0] / (float(norms[0]) + 1e-6))
        stale = [gradient / factor + LEFT / SCALE for gradient in updates[0]]
        before = "gradients from before are still in it: zero them where an update begins"
        wrong = {**wrong, before: clipped(stale, case[0], 2.0)}
        for number in range(UPDATES):
            where = f"update {number + 1} ({what})"
            run.close(
                got["gradients"][number],
                updates[number],
                f"the gradients before the step of {where}",
                rank=rank,
                likely=wrong if number == 0 else {},
                terms=99,
            )
            run.close(
                _number(got["norms"][number]),
                norms[number],
                f"the norm returned by {where}",
                rank=rank,
                terms=99,
                likely={
                    "this is the norm of the scaled gradients": norms[number] * SCALE,
                    "this is the norm after clipping": total_norm(updates[number]),
                },
            )
        name = f"weights after {UPDATES} updates ({what})"
        run.close(got["weights"], weights, name, rank=rank, terms=99)


@check("each loss is scaled, and gradients are changed in place", points=1, code="E")
@diagnosis("multiply the loss by `scale` before its backward; `gradient.div_` afterwards")
def check_scaled(run: Run) -> None:
    """E: what each loss was multiplied by, its share of the mean included or not; the places."""
    result, _, _ = _updates(run, 2)
    for output in run.each(result.outputs):
        for found in output:
            run.true(
                min(found["scales"], default=SCALE) >= SCALE / (2 * WINDOW),
                "a backward began with a loss that was not multiplied by `scale`",
                expected=f"times {SCALE:g}, or that over the number of micro-batches",
                measured=f"times {min(found['scales'], default=SCALE):g}",
                cause="in half precision, small gradients have become 0 by then",
            )
            run.true(
                all(found["stayed"]),
                "gradients were replaced by other tensors",
                cause="divide them in place: a view of a bucket must stay one",
            )


@check("one synchronisation for each update, and no other collective", points=2, code="B")
@diagnosis("after the synchronisation every rank has all it needs for the norm")
def check_calls(run: Run) -> None:
    """B: the model's own calls and nothing else."""
    result, start, _ = _updates(run, 2)
    once = [start[0].nbytes, start[2].nbytes]
    for output in run.each(result.outputs):
        for found in output:
            sizes = sorted(set(found["sizes"]) - set(once))
            run.true(
                not sizes,
                "something was sent besides the model's gradients",
                expected=f"{sum(once)} bytes an update, by the model",
                measured=f"collectives of {sizes} bytes",
                cause="the norm needs no message: all ranks hold the same gradients",
            )
            count = UPDATES * WINDOW - 1
            likely = {
                "every micro-batch was synchronised: forward and backward of all but the last "
                "belong inside model.no_sync()": 2 * count,
                "nothing was synchronised": 0,
            }
            what = f"the collectives in {UPDATES} updates of two parameters"
            run.equal(len(found["sizes"]), 2 * UPDATES, what, likely=likely)
