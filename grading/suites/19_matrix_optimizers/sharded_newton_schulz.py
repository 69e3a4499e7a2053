"""sharded_newton_schulz: parts of the result, and Gram matrices on the wire."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.parallel import newton_schulz

EXERCISE = Exercise(
    title="Newton-Schulz on a shard: send only Gram matrices",
    core=False,
    minutes=20,
    order=4,
    library=("comm", "parallel.newton_schulz"),
    hints=(
        "Write X as [X₀ X₁ X₂], three blocks of columns. What is X·Xᵀ in terms of the blocks? "
        "And if P is a matrix that every rank has, which part of P·X can each rank compute alone?",
        "X·Xᵀ = Σ Xᵢ·Xᵢᵀ: each rank computes its product, and one all-reduce sums them. The "
        "polynomial of the Gram matrix is then the same on every rank, and each rank multiplies "
        "its own part by it. The squared norm is a sum over the ranks.",
        "If the rows are cut, they are the columns of the transpose: begin with `part.T if dim "
        "== 0 else part`. The whole matrix may then be tall, but the iteration gives the same "
        "result.",
    ),
)

A, B, C = 3.4445, -4.7750, 2.0315


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, part: torch.Tensor, dim: int, steps: int) -> dict[str, Any]:
    """One matrix."""
    given = part.clone()
    made = learner.sharded_newton_schulz(given, dim, group, steps)
    return {"made": made, "kept": torch.equal(given, part)}


# --- what it must bring back ---------------------------------------------------------------------
def alone(part: torch.Tensor, norm: torch.Tensor, dim: int, steps: int) -> torch.Tensor:
    """A rank that keeps its Gram matrix for itself."""
    x = (part.T if dim == 0 else part) / norm
    for _ in range(steps):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.T if dim == 0 else x


def halves(whole: torch.Tensor, norm: torch.Tensor, dim: int, steps: int, n: int) -> torch.Tensor:
    """All ranks with an n-th of the Gram matrix, or with another norm."""
    x = (whole.T if dim == 0 else whole) / norm
    for _ in range(steps):
        gram = x @ x.T / n
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.T if dim == 0 else x


def _compare(
    run: Run, whole: torch.Tensor, sizes: list[int], dim: int, steps: int = 5, terms: int = 200
) -> Any:
    """Every rank's part."""
    world, parts = len(sizes), whole.split(sizes, dim)
    result = run(drive, [{"part": p, "dim": dim, "steps": steps} for p in parts], world=world)
    wanted = newton_schulz(whole, steps).split(sizes, dim)
    one = torch.ones((), dtype=whole.dtype)
    length = whole.norm()
    norm = length.clamp(min=1e-7)
    squared = halves(whole, length.square().clamp(min=1e-7).sqrt(), dim, steps, 1).split(sizes, dim)
    longer = halves(whole, length + 1e-7, dim, steps, 1).split(sizes, dim)
    total = sum((p.norm() for p in parts), 0 * length)
    summed = halves(whole, total.clamp(min=1e-7), dim, steps, 1).split(sizes, dim)
    mean = halves(whole, norm, dim, steps, world).split(sizes, dim)
    own = torch.cat([p / p.norm().clamp(min=1e-7) for p in parts], dim)
    uneven = halves(own, one, dim, steps, 1).split(sizes, dim)
    raw = halves(whole, one, dim, steps, 1).split(sizes, dim)
    for rank, found in enumerate(run.each(result.outputs)):
        run.close(
            found["made"],
            wanted[rank],
            f"the part of a matrix of shape {tuple(whole.shape)}, cut along dim {dim},",
            terms=terms,
            likely={
                "Newton-Schulz ran on this part alone: its Gram matrix is only one term of the "
                "sum":
                    newton_schulz(parts[rank], steps) if parts[rank].numel() else parts[rank],
                "the Gram matrices were not summed": alone(parts[rank], norm, dim, steps),
                "this is the mean of the Gram matrices: take their sum": mean[rank],
                "the norm is that of this part alone, so it differs from rank to rank":
                    uneven[rank],
                "the matrix was not divided by its norm": raw[rank],
                "the norms were summed: sum their squares": summed[rank],
                "1e-7 is the least norm, not the least square of it": squared[rank],
                "1e-7 was added to the norm: it is the least that the norm can be": longer[rank],
            } if world > 1 else {}
        )  # fmt: skip
    return result


def _sizes(run: Run, world: int, least: int = 1) -> list[int]:
    """Hidden, unequal."""
    return [run.number(least, least + 4) + index for index in range(world)]


@check("parts of rows and of columns, with the longer side cut", points=5, code="E")
@diagnosis("the Gram matrix of the side that is not cut is a sum over the ranks")
@in_part
def check_values(run: Run) -> None:
    """E: 3 ranks, parts of different sizes, in float64."""
    sizes = _sizes(run, 3, 3)
    whole = run.random((run.number(4, 7), sum(sizes)))
    _compare(run, whole, sizes, 1)
    _compare(run, whole.T.contiguous(), sizes, 0)


@check("the shorter side cut, an empty part, a single rank, one step or none", points=3, code="E")
@diagnosis("the formula is the same, whichever side is longer")
def check_shapes(run: Run) -> None:
    """E: a cut along the rows of a wide matrix, and what else there is."""
    sizes = _sizes(run, 2)
    whole = run.random((sum(sizes), 12))
    _compare(run, whole, sizes, 0, terms=2000)
    _compare(run, whole.T.contiguous(), [5, 0, 7], 0)
    _compare(run, whole, [12], 1, steps=1)
    _compare(run, whole, [12], 1, steps=0)
    for result in run.results:
        for found in run.each(result.outputs):
            cause = "what is computed are new tensors"
            run.true(found["kept"], "the part that was given has changed", cause=cause)


@check("zeros on one rank, and on all ranks; a small norm", points=2, code="E")
@diagnosis("divide by the norm of the whole matrix, or by 1e-7")
def check_zeros(run: Run) -> None:
    """E: a part without a gradient; a matrix of zeros; a norm above 1e-7, and one below."""
    whole = run.random((4, 9))
    whole[:, :4] = 0
    _compare(run, whole, [4, 5], 1)
    _compare(run, torch.zeros(4, 9).double(), [4, 5], 1)
    _compare(run, whole / whole.norm() * 4e-7, [4, 5], 1)
    _compare(run, whole / whole.norm() * 5e-8, [4, 5], 1)


@check("one number, and then a Gram matrix in each step", points=3, code="B")
@diagnosis("reduce X·Xᵀ of the side that is not cut; gather nothing")
def check_bytes(run: Run) -> None:
    """B: calls and bytes of each rank, for both dimensions and two dtypes; no steps at all."""
    whole = run.random((4, 15))
    cases = (1, whole, 5), (0, whole.T.contiguous().float(), 5), (1, whole, 0)
    for dim, matrix, steps in cases:
        terms, size = 2000 if matrix.dtype == torch.float32 else 200, matrix.itemsize
        result = _compare(run, matrix, [5, 5, 5], dim, steps, terms)
        for ledger in run.each(result.ledgers):
            calls = [(event.op, event.payload) for event in ledger.calls()]
            run.equal(
                sorted(calls),
                [("all_reduce", size), *[("all_reduce", size * 16)] * steps],
                f"the collectives of {steps} steps, with bytes, for a part in {matrix.dtype},",
                likely={
                    "this is the Gram matrix of the side that is cut: use the other one":
                        [("all_reduce", size), *[("all_reduce", size * 225)] * steps],
                    "a Gram matrix is reduced that no step needs":
                        [("all_reduce", size), *[("all_reduce", size * 16)] * (steps + 1)],
                }
            )  # fmt: skip
