"""powersgd: means equal to one process's, warm starts, own errors, two thin all-reduces."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.communication import compressed, workers
from grading.references.communication.workers import of_rank

EXERCISE = Exercise(
    title="PowerSGD",
    core=True,
    minutes=25,
    order=4,
    defines=("PowerSGD",),
    hints=(
        "M·Q is linear in M. So what is the mean of the ranks' M·Q? And does the same hold after "
        "`qr`?",
        "First take the mean of M·Q, then `torch.linalg.qr(p).Q` on every rank: equal inputs "
        "give equal results. Q need not be orthonormal. Keep a copy of this rank's own MᵀP "
        "before it is averaged: you need it for the error.",
        '`all_reduce(p, group, "avg")`, `p = torch.linalg.qr(p).Q`, `own = matrix.T @ p`, '
        "`self.error = matrix - p @ own.T`, `self.q` = a copy of `own`, averaged; return "
        "`p @ self.q.T`.",
    ),
)

WORLD, STEPS, OBJECTS = 3, 5, 2
KNOWN = {
    "nothing is fed back: add the error of the previous step": "none",
    "this is the sum over the ranks: take means": "sum",
    "P is not orthonormal, so P·PᵀM is not a projection": "no basis",
    "each rank made its own P orthonormal before the mean, or averaged the products: average M·Q "
    "first":
        "own bases",
    "Q is the initial one in every step: begin with that of the previous step": "cold",
}  # fmt: skip
OF_ERRORS = {
    "the error was computed from the mean: it is what this rank did not send": "of the mean",
    "there is no error": "none",
    "every rank has its own basis: P must be the same on all ranks": "own bases",
}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, q: torch.Tensor, matrices: list[torch.Tensor]
) -> dict[str, Any]:
    """Low-rank means of some matrices, one after the other, and again by an object of its own."""
    first = q.clone()
    means, errors, untouched = [], [], True
    for power in [learner.PowerSGD(first) for _ in range(OBJECTS)]:
        for matrix in matrices:
            given = matrix.clone()
            means.append(power.mean(given, group))
            error = power.error
            errors.append(error.detach().clone() if torch.is_tensor(error) else error)
            untouched &= torch.equal(given, matrix)
    return {
        "means": means, "errors": errors, "untouched": untouched, "first": torch.equal(first, q),
    }  # fmt: skip


# --- what they must bring back -------------------------------------------------------------------
def _thin(
    run: Run, dtype: torch.dtype = torch.float64
) -> tuple[list[list[torch.Tensor]], torch.Tensor, Any]:
    rows, columns = run.number(6, 10), run.number(8, 12)
    matrices = [[run.random((rows, columns), dtype) for _ in range(STEPS)] for _ in range(WORLD)]
    q = run.random((columns, 2), dtype)
    inputs = [{"q": q, "matrices": each} for each in matrices]
    return matrices, q, run(drive, inputs, world=WORLD)


@check("P·Qᵀ of the mean, in every step", points=6, code="E")
@diagnosis(
    "P is the mean of M·Q, made orthonormal; Q is the mean of MᵀP, and the next step begins with it"
)
@in_part
def check_means(run: Run) -> None:
    """E: three ranks, five steps, two objects; a mean of rank 1, and one of zeros; float32."""
    matrices, q, result = _thin(run)
    right = OBJECTS * compressed.power(matrices, q).means
    wrong = {why: OBJECTS * compressed.power(matrices, q, s).means for why, s in KNOWN.items()}
    for found in run.each(result.outputs):
        run.true(found["untouched"], "the gradient was changed", cause="put M into a new tensor")
        run.true(found["first"], "the first Q was changed", cause="put each Q into a new tensor")
        run.steps(found["means"], right, "the mean of step {}", likely=wrong, terms=64)
    row = torch.zeros_like(matrices[0][0])
    for what, filled in (("zeros", row), ("one row", row.index_fill(0, torch.tensor(1), 2.0))):
        result = run(drive, {"q": q, "matrices": [filled]}, world=2)
        for found in run.each(result.outputs):
            run.close(found["means"][0], filled, f"the mean of matrices of {what}", terms=64)
    matrices, q, result = _thin(run, torch.float32)
    right = OBJECTS * compressed.power(matrices, q).means
    for found in run.each(result.outputs):
        run.steps(found["means"], right, "the mean of step {} in float32", terms=10_000)


@check("the error is what this rank did not send", points=4, code="E")
@diagnosis(
    "M minus P times the transpose of this rank's own MᵀP, which is orthogonal to the columns of P"
)
def check_errors(run: Run) -> None:
    """E: after every step, on each rank by itself."""
    matrices, q, result = _thin(run)
    right = OBJECTS * compressed.power(matrices, q).errors
    wrong = {why: OBJECTS * compressed.power(matrices, q, s).errors for why, s in OF_ERRORS.items()}
    for rank, output in enumerate(run.each(result.outputs)):
        likely = {why: of_rank(steps, rank) for why, steps in wrong.items()}
        what = "the error after step {}"
        run.steps(output["errors"], of_rank(right, rank), what, likely=likely, terms=64)


@check("two all-reduces of thin matrices in each step", points=3, code="B")
@diagnosis("r·rows numbers, then r·columns")
def check_bytes(run: Run) -> None:
    """B: exact, over all steps; of matrices in two dtypes."""
    for dtype in (torch.float64, torch.float32):
        _compare_bytes(run, dtype)


def _compare_bytes(run: Run, dtype: torch.dtype) -> None:
    matrices, _, result = _thin(run, dtype)
    size = dtype.itemsize
    rows, columns = matrices[0][0].shape

    def sent(*counts: int) -> list[int]:
        times = OBJECTS * STEPS
        return [times * workers.all_reduced(counts, dtype, WORLD, rank) for rank in range(WORLD)]

    thin = (2 * rows, 2 * columns)
    likely: dict[str, Any] = {
        "nothing is sent": 0,
        "P is not averaged": sent(thin[1]),
        "Q is not averaged": sent(thin[0]),
        "whole matrices are reduced": sent(rows * columns),
        "whole matrices are reduced as well": sent(*thin, rows * columns),
        "they were sent in float32": [4 * n // size for n in sent(*thin)],
        "they were sent in float64": [8 * n // size for n in sent(*thin)],
    }
    for ledger in run.each(result.ledgers):
        payloads = [event.payload for event in ledger.calls()]
        if rows * columns * size not in payloads:
            cause = "two all-reduces in each step, not one for each column"
            run.at_most(len(payloads), 2 * OBJECTS * STEPS, "the number of calls", cause=cause)
    run.bytes(result, sent(*thin), what=f"bytes sent in {dtype}", likely=likely)
