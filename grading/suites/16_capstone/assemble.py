"""assemble: one process's losses, norms and weights; what a rank keeps and sends; resuming."""

# mypy: enable-error-code="arg-type, attr-defined, index, union-attr"
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, RunFault, check, diagnosis
from grading.references.capstone.layouts import LR, MICRO, STEPS, Case, formulas, own_bytes
from grading.references.capstone.training import IGNORED, build, kept_bytes
from grading.references.data_parallel.wrapper import alike

EXERCISE = Exercise(
    title="A mixture of experts on a mesh",
    core=True,
    minutes=150,
    order=10,
    defines=("Trainer",),
    library=(
        "comm",
        "model",
        "schedule",
        "parallel.Pipeline",
        "parallel.average_over_replicas",
        "parallel.Zero1",
        "parallel.sum_tied_gradient",
        "parallel.vocab_parallel_cross_entropy",
        "train.clip_grad_norm_nd",
        "train.expert_parallel",
        "train.pipeline_stages",
        "train.tensor_copies",
        "train.tensor_parallel",
        "train.tied_pair",
    ),
    hints=(
        "Begin by thinking of pp = dp = ep = tp = 1, and add one axis at a time. For each, the "
        "table of section 3 says which ranks have the same weight and which have different rows. "
        "Each rank has its own part of a micro-batch's auxiliary losses: the mean over dp × ep "
        "is the micro-batch's.",
        "Making: mesh, `tensor_parallel`, `expert_parallel`, stages and their `auxiliary_weight` "
        "(1/m), pipeline, two `Zero1`: experts over dp, all else over dp × ep; copies of pieces. "
        "Step: cut, run with weights N/tokens (N ranks average), loss over pp × dp × ep, "
        "sum the tied, reduce, clip, update, biases. State: modules' and optimizers', copied.",
        "`weights = [mesh['dp', 'ep'].size / tokens] * m`; `copies = tensor_copies(held, config, "
        "tp)`, twice that for `tied.weight`; `{piece: copies[whole] for o in optimizers for "
        "piece, whole in own_pieces(o)}`; the loss is an `all_reduce` of a float64 zero plus the "
        "losses, over `mesh['pp', 'dp', 'ep']`.",
    ),
)

# Sizes of pp, dp, ep and tp, and whether the embedding is tied: a seed draws one of these lines.
# Each has every axis with 1 place and with 2, ep with dp and with tp, pp with rows and with tp, and
# a pipeline whose embedding is tied, and one whose is not.
LAYOUTS = (
    (((1, 2, 2, 1), True), ((2, 1, 2, 2), True), ((2, 2, 1, 1), False)),
    (((2, 1, 2, 1), True), ((1, 2, 2, 2), True), ((2, 1, 1, 2), False)),
)
SLACK = 1024  # bytes, of buffers and numbers
WAITS = "All ranks of a group take part in each of its calls, those without losses with 0."
LENGTHS = (
    "ranks of dp × ep have the same parameters, except experts: those are the same over dp "
    "alone; and ranks of one tp or pp line have the same rows"
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    shape: dict[str, Any],
    sizes: dict[str, int],
    batches: list[list[torch.Tensor]],
    max_norm: float,
) -> dict[str, Any]:
    """Trains; looks at what the last step sent, and at what is kept after it."""
    model, reports, begin = build(shape), [], 0
    trainer = learner.Trainer(model, group, sizes, micro_batches=MICRO, lr=LR, max_norm=max_norm)
    for inputs, targets in batches:
        begin = len(group.ledger.events)
        reports.append(trainer.step(inputs, targets))
    sent: Counter[str] = Counter()
    for event in group.ledger.events[begin:]:
        sent[event.axis] += event.sent if event.parent < 0 else 0
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    del model
    return {"reports": reports, "sent": dict(sent), "weights": weights,
            "kept": kept_bytes(trainer)}  # fmt: skip


def drive_resumed(
    learner: Any,
    group: Any,
    shape: dict[str, Any],
    sizes: dict[str, int],
    batches: list[list[torch.Tensor]],
    max_norm: float,
) -> dict[str, Any]:
    """Saves after the first step and goes on; then a second one goes on from what was saved."""
    options = {"micro_batches": MICRO, "lr": LR, "max_norm": max_norm}
    older, newer = (learner.Trainer(build(shape), group, sizes, **options) for _ in range(2))
    older.step(*batches[0])
    state = older.state()
    for batch in batches[1:]:
        older.step(*batch)
    newer.load(state)
    reports = [newer.step(*batch) for batch in batches[1:]]
    return {"reports": reports, "saved": kept_bytes(state), "strange": _strange(state)}


def _strange(state: Any) -> str:
    """The type of something in a state that is not a tensor, number or name; empty if none is."""
    if isinstance(state, (Mapping, list, tuple)):
        parts = state.values() if isinstance(state, Mapping) else state
        return next(filter(None, map(_strange, parts)), "")
    plain = state is None or isinstance(state, (torch.Tensor, int, float, str))
    return "" if plain else type(state).__name__


# --- what they must bring back -------------------------------------------------------------------
def _cases(run: Run) -> Iterator[Case]:
    for sizes, tied in LAYOUTS[run.number(0, len(LAYOUTS))]:
        yield Case(run, sizes, tied)


def _outputs(run: Run, case: Case, driver: Any) -> list[dict[str, Any]]:
    """What all ranks bring back; the likely reason is added to what broke a run off."""
    try:
        result = run(driver, case.inputs, world=case.grid.world)
    except RunFault as error:
        fault = error.fault
        if fault.kind == "deadlock":
            fault = replace(fault, cause=f"{WAITS} {fault.cause}".strip())
        elif fault.kind == "mismatch":
            fault = replace(fault, cause=LENGTHS, rows=fault.rows[:4])
        raise RunFault(fault, error.output) from None
    return list(result.outputs)


def _each(run: Run, driver: Any = drive) -> Iterator[tuple[Case, int, dict[str, Any], str]]:
    """Every rank of all layouts, its reports looked at."""
    for case in _cases(run):
        for rank, found in enumerate(run.each(_outputs(run, case, driver))):
            where = case.grid.where(rank)
            for report in found["reports"]:
                kinds = [type(value) for value in report] if isinstance(report, tuple) else []
                run.true(
                    kinds == [float, int, float],
                    f"step() does not return a report {where}",
                    rank=rank,
                    expected="a tuple: loss (float), tokens (int), norm (float)",
                    measured=repr(report)[:80],
                )
            yield case, rank, found, where


def _most_kept(case: Case, rank: int) -> int:
    """Bytes of a rank's part of the weights, and of its parts of AdamW's state."""
    others, experts = own_bytes(case, rank)
    shards = 2 * others / case.grid.rows + 2 * experts / case.sizes["dp"]
    return round(others + experts + shards) + SLACK


# --- checks --------------------------------------------------------------------------------------
@check("the tokens and the loss of each step, the same on every rank", points=3, code="E")
@diagnosis("the sum over pp, dp and ep, divided by the whole batch's tokens")
def check_losses(run: Run) -> None:
    """E: one process's."""
    for case, rank, found, where in _each(run):
        for number, (report, right) in enumerate(zip(found["reports"], case.steps, strict=True)):
            counts_B = (case.batches[number][1] != IGNORED).sum(1)
            known = {
                "those of this rank's rows": int(counts_B[case.own(rank)].sum()),
                "ranks of ep were counted as if they had the same rows, or all rows "
                "several times": right.tokens * case.sizes["ep"],
            }
            what = f"the tokens of step {number} {where}"
            run.equal(report[1], right.tokens, what, likely=known)
            near = abs(report[0] - right.loss) <= 1e-9 * right.loss
            likely = {} if near or number else case.wrong_losses(rank)
            what = f"the loss of step {number} {where}"
            run.close(report[0], right.loss, what, likely=likely)


@check("the norm of the first gradient: the whole model's, each element once", points=3, code="E")
@diagnosis("a gradient is not that of one process, or counts several times")
def check_norm(run: Run) -> None:
    """E: before clipping; what is wrong with a gradient shows in its norm."""
    for case, _, found, where in _each(run):
        norm, right = found["reports"][0][2], case.steps[0].norm
        likely = {} if abs(norm - right) <= 1e-9 * right else case.wrong_norms()
        if abs(norm - case.limit) <= 1e-5 * norm:
            likely[f"{norm:g} is the norm after clipping"] = norm
        run.close(norm, right, f"the norm of step 0 {where}", likely=likely)


@check("the norms of later steps", points=2, code="E")
@diagnosis("the previous update differs, or the routers' biases did not move")
def check_later(run: Run) -> None:
    """E: the steps before have been made as one process makes them."""
    for case, _, found, where in _each(run):
        for number in range(1, STEPS):
            norm, right = found["reports"][number][2], case.steps[number].norm
            likely = {} if abs(norm - right) <= 1e-9 * right else case.wrong_later(number)
            run.close(norm, right, f"the norm of step {number} {where}", likely=likely)


@check("the weights after three steps", points=3, code="E")
@diagnosis("clipped, then updated, every parameter by one optimizer")
def check_weights(run: Run) -> None:
    """E: each rank's part of what one process has."""
    for case, rank, found, where in _each(run):
        right = case.grid.held(case.steps[-1].weights, rank)
        for name in right:
            cause = "the model is cut in place, and trained in place"
            run.true(name in found["weights"], f"the model lacks {name} {where}", cause=cause)
        mine = {name: found["weights"][name] for name in right}
        same = alike([list(mine.values())], [list(right.values())])
        likely = {} if same else case.wrong_weights(rank)
        run.close(mine, right, f"the weight {where}", terms=200, likely=likely)


@check("what each rank sends in a step", points=3, code="B")
@diagnosis("send gradients once per step, with reduce-scatter and all-gather: 2(N-1)/N·S")
def check_bytes(run: Run) -> None:
    """B: of each axis at most the formula's; routing decides on ep, so all rows may go away."""
    for case, rank, found, where in _each(run):
        for what, (axes, limit) in formulas(case, rank).items():
            known = {"pp", "ep", *(a for a in found["sent"] if a.split()[0] == "tp")}
            mine = known & set(axes) if axes else set(found["sent"]) - known
            if axes == ("tp",):
                mine = known - {"pp", "ep"}
            total = sum(found["sent"].get(axis, 0) for axis in mine)
            name = f"the number of bytes sent in a step {what} {where}"
            run.at_most(total, limit, name, cause=CAUSES[what])


CAUSES = {
    "along pp": "activations are sent forward once, and their gradients back once",
    "along tp": "two sums per block in forward and two in backward, and one at each end of the "
    "model",
    "along ep": "each row goes to its experts and back, and so does its gradient",
    "for gradients and numbers": "ZeRO-1 sends each gradient once: do not average it before, and "
    "not in each micro-batch",
}


@check("what each rank keeps: its part of the model, and a part of the state", points=3, code="M")
@diagnosis("ZeRO-1 over the ranks that have the same parameters and different rows")
def check_memory(run: Run) -> None:
    """M: all tensors that a Trainer refers to after a step, gradients included."""
    for case, rank, found, where in _each(run):
        others, experts = own_bytes(case, rank)
        limit = _most_kept(case, rank)
        whole, causes = 3 * (others + experts), "more than its part of the model is kept"
        if found["kept"] <= whole + SLACK:
            causes = "optimizer state is not cut, or cut over too few ranks; or gradients are kept"
        what = f"the number of bytes kept after a step {where}"
        run.at_most(found["kept"], limit, what, cause=causes)


@check("a new Trainer continues from the state of an older one", points=3, code="X")
@diagnosis("weights, routers' biases and AdamW's moments, as they were when `state` was called")
def check_resumed(run: Run) -> None:
    """X: the next two steps are one process's; the second shows what the optimizer was given."""
    for case, rank, found, where in _each(run, drive_resumed):
        for number, report in enumerate(found["reports"], 1):
            norm, right = report[2], case.steps[number].norm
            likely = {} if abs(norm - right) <= 1e-9 * right else case.wrong_resumed(number)
            what = f"the norm of step {number} {where}, after the state of step 0 was loaded"
            run.close(norm, right, what, likely=likely)
        run.equal(found["strange"], "", f"the type of what is neither tensor nor number {where}")
        cause = "each rank saves its own part, once"
        name = f"the number of bytes in the state {where}"
        run.at_most(found["saved"], _most_kept(case, rank), name, cause=cause)
