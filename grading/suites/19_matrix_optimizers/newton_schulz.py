"""newton_schulz: the iteration, for every shape, in as few operations as it takes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Newton-Schulz: singular values of about 1",
    core=True,
    minutes=15,
    order=1,
    library=(),
    hints=(
        "What does one step do to a matrix that has only one element? Try 0.1, then 0.9. Why must "
        "the largest singular value not be above 1 at the beginning?",
        "The Frobenius norm is at least the largest singular value, so divide by it. Of the two "
        "products X·Xᵀ and Xᵀ·X, take the smaller one: transpose a tall matrix first.",
        "`gram = x @ x.T`, then `x = a * x + (b * gram + c * gram @ gram) @ x`, in a loop. "
        "Remember in a variable whether you transposed.",
    ),
)

A, B, C = 3.4445, -4.7750, 2.0315
Matrices = list[torch.Tensor]


# --- what runs on the ranks ----------------------------------------------------------------------
class Products(TorchDispatchMode):
    """Notes the dtypes of all matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry:
            self.dtypes.add(made.dtype)
        return made


def drive(learner: Any, group: Any, matrices: Matrices, steps: int) -> dict[str, Any]:
    """Makes copies orthogonal; counts the operations of each."""
    given = [matrix.clone() for matrix in matrices]
    made, operations = [], []
    with Products() as products:
        for matrix in given:
            with FlopCounterMode(display=False) as counter:
                made.append(learner.newton_schulz(matrix, steps))
            operations.append(counter.get_total_flops())
    kept = all(torch.equal(one, other) for one, other in zip(given, matrices, strict=True))
    return {
        "made": made, "operations": operations, "kept": kept, "dtypes": list(products.dtypes),
    }  # fmt: skip


# --- what it must bring back ---------------------------------------------------------------------
def through(matrix: torch.Tensor, steps: int, how: str = "") -> torch.Tensor:
    """By singular values, in float64; `how` names what goes wrong."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    if how == "exact":
        return u @ v
    norm = {
        "none": torch.ones(()),
        "spectral": s.max(),
        "unbounded": s.norm(),
        "zeros": s.norm() if s.norm() >= 1e-7 else torch.tensor(torch.inf),
        "squared": s.square().sum().clamp(min=1e-7).sqrt(),
        "longer": s.norm() + 1e-7,
    }.get(how, s.norm().clamp(min=1e-7))
    s = s / norm
    a, b, c = (1.5, -0.5, 0.0) if how == "cubic" else (A, B, C)
    power = 3 if how == "square" else 5
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**power
    return (u * s) @ v


SLIPS = {
    "the matrix was not divided by its norm, so large singular values diverge": "none",
    "divided by the largest singular value: divide by the Frobenius norm instead": "spectral",
    "the coefficients are those of the cubic iteration": "cubic",
    "A is used in place of A·A": "square",
    "all singular values are exactly 1: compute the iteration instead": "exact",
    "divide by at least 1e-7": "unbounded",
    "a matrix with a smaller norm is divided by 1e-7: it does not become zeros": "zeros",
    "1e-7 is the least norm, not the least square of it": "squared",
    "1e-7 was added to the norm: it is the least that the norm can be": "longer",
}


def _compare(run: Run, matrices: Matrices, steps: int, terms: int = 60) -> Any:
    """All results, with the likely mistakes."""
    found = run(drive, {"matrices": matrices, "steps": steps}).outputs[0]
    for made, matrix in zip(found["made"], matrices, strict=True):
        likely = {why: through(matrix, steps, how).to(matrix.dtype) for why, how in SLIPS.items()}
        if steps:
            likely["a step is missing"] = through(matrix, steps - 1).to(matrix.dtype)
        likely["a step too many"] = through(matrix, steps + 1).to(matrix.dtype)
        if isinstance(made, torch.Tensor) and made.shape == matrix.T.shape != matrix.shape:
            run.fail(
                f"a matrix of shape {tuple(matrix.shape)} came back as {tuple(made.shape)}",
                cause="it was transposed but not transposed back",
            )
        what = f"{steps} steps for a matrix of shape {tuple(matrix.shape)}"
        run.close(made, through(matrix, steps).to(matrix.dtype), what, likely=likely, terms=terms)
    return found


def _shapes(run: Run) -> list[tuple[int, int]]:
    """Wide, square, tall; a row and a column."""
    small, large = run.number(3, 6), run.number(8, 14)
    return [(small, large), (small, small), (large, small), (1, large), (large, 1)]


@check("the iteration on wide, square and tall matrices", points=4, code="E")
@diagnosis("divide by the norm, then a·X + (b·A + c·A·A)·X in each step")
def check_values(run: Run) -> None:
    """E: float64, five steps and one, against singular values."""
    matrices = [run.random(shape) for shape in _shapes(run)]
    for steps in (5, 1):
        _compare(run, matrices, steps)


@check("matrices of any scale, and zero steps", points=2, code="E")
def check_scale(run: Run) -> None:
    """E: very large and very small matrices; steps = 0."""
    matrix = run.random((4, 7))
    _compare(run, [matrix * 1e6, matrix * 1e-5], 5)
    _compare(run, [matrix, matrix.T.contiguous()], 0)


@check("a matrix of zeros stays one, and a small norm", points=2, code="E")
@diagnosis("divide by the norm, or by 1e-7 if the norm is smaller")
def check_zeros(run: Run) -> None:
    """E: a parameter that had no gradient yet; a norm above 1e-7, and one below."""
    zeros = torch.zeros(3, 5).double()
    found = run(drive, {"matrices": [zeros], "steps": 5}).outputs[0]["made"]
    likely = {"0/0 is NaN: divide by at least 1e-7": zeros / 0}
    run.close(found[0], zeros, "the result for a matrix of zeros", likely=likely)
    matrix = run.random((3, 5))
    _compare(run, [matrix / matrix.norm() * norm for norm in (4e-7, 5e-8)], 5)


@check("the dtype is kept, and the input is not changed", points=2, code="E")
def check_dtype(run: Run) -> None:
    """E: float32 and bfloat16; the argument is looked at afterwards."""
    for dtype, steps, terms in ((torch.float32, 3, 400), (torch.bfloat16, 1, 16)):
        found = _compare(run, [run.random((4, 9), dtype)], steps, terms=terms)
        run.true(found["kept"], "the matrix that was given has changed", cause="work on a copy")
        run.true(
            found["dtypes"] == [dtype],
            f"the products for a matrix in {dtype} are in another dtype",
            expected=str(dtype),
            measured=", ".join(map(str, found["dtypes"])),
            cause="every step must compute in the matrix's own dtype",
        )


@check("no more operations than the rule allows", points=2, code="M")
@diagnosis("use the Gram matrix of the shorter side; A·A costs less than A·(A·X)")
def check_operations(run: Run) -> None:
    """M: multiplications and additions, counted by torch."""
    matrices = [run.random((4, 20)), run.random((20, 4))]
    found = _compare(run, matrices, 5)
    # The norm may be computed as a product, too: torch counts its 2·r·c operations.
    limit = 5 * (4 * 4 * 4 * 20 + 2 * 4**3) + 2 * 4 * 20
    longer = 5 * (4 * 20 * 20 * 4 + 2 * 20**3)
    for shape, operations in zip(("4 × 20", "20 × 4"), found["operations"], strict=True):
        cause = ""
        if operations >= longer:
            cause = "this is the Gram matrix of the longer side: transpose first"
        run.at_most(operations, limit, f"the operations for a matrix of {shape}", cause=cause)
