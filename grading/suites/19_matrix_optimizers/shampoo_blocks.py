"""shampoo_blocks: two roots for each block, state on one rank, one collective."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="Shampoo in blocks over the ranks",
    core=False,
    minutes=35,
    order=5,
    defines=("ShampooBlocks", "inverse_root"),
    hints=(
        "Which rank needs L and R of a block? What does every rank need? And how can it compute, "
        "without a message, which blocks the others have and how large they are?",
        "The power -1/4 of a symmetric matrix has the same eigenvectors, and its eigenvalues are "
        "raised to that power (`torch.linalg.eigh`). For the exchange, pad each rank's flat "
        "updates to the length of the longest, and make one all-gather.",
        "Keep a list with (row slice, column slice) of all blocks; `blocks[i::N]` are those of "
        "index i. After the all-gather, row i holds their updates one after another.",
    ),
)

EPSILON = 1e-3
Slices = tuple[slice, slice]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, gradients: list[torch.Tensor], block: int, epsilon: float
) -> dict[str, Any]:
    """One matrix through several steps; what is kept, and which gradients have changed."""
    rows, columns = gradients[0].shape
    shampoo = learner.ShampooBlocks((rows, columns), block, group, epsilon, gradients[0].dtype)
    given = [gradient.clone() for gradient in gradients]
    made = [shampoo.update(gradient) for gradient in given]
    kept = all(torch.equal(a, b) for a, b in zip(given, gradients, strict=True))
    return {"made": made, "kept": kept, "state": _bytes(vars(shampoo), set())}


def drive_root(learner: Any, group: Any, matrix: torch.Tensor) -> Any:
    """The function by itself."""
    return learner.inverse_root(matrix.clone())


def _bytes(value: Any, seen: set[int]) -> int:
    """Bytes of all tensors in an object's attributes, each once."""
    if isinstance(value, torch.Tensor):
        new = value.data_ptr() not in seen and value.dim() > 0
        seen.add(value.data_ptr())
        return value.nbytes if new else 0
    if isinstance(value, dict):
        return sum(_bytes(item, seen) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes(item, seen) for item in value)
    return 0


# --- one process ---------------------------------------------------------------------------------
def root(matrix: torch.Tensor, power: float) -> torch.Tensor:
    """A power by singular values, which for such matrices are eigenvalues."""
    u, s, _ = torch.linalg.svd(matrix)
    return (u * s**power) @ u.T


def blocks_of(rows: int, columns: int, block: int) -> list[Slices]:
    """Row of blocks after row of blocks."""
    return [
        (slice(top, min(top + block, rows)), slice(left, min(left + block, columns)))
        for top in range(0, rows, block)
        for left in range(0, columns, block)
    ]


def one_process(
    gradients: list[torch.Tensor], block: int, how: str = "", first: float = EPSILON
) -> list[torch.Tensor]:
    """All updates; `how` names what goes wrong."""
    rows, columns = gradients[0].shape
    size = max(rows, columns) if how == "whole" else block
    made = [torch.zeros_like(gradient) for gradient in gradients]
    for sides in blocks_of(rows, columns, size):
        height, width = gradients[0][sides].shape
        left, right = first * torch.eye(height).double(), first * torch.eye(width).double()
        for gradient, result in zip(gradients, made, strict=True):
            g = gradient[sides]
            if how == "last":
                left, right = first * torch.eye(height).double(), first * torch.eye(width).double()
            if how == "before":
                result[sides] = root(left, -0.25) @ g @ root(right, -0.25)
            left, right = left + g @ g.T, right + g.T @ g
            power = {"half": -0.5, "eighth": -0.125, "plus": 0.25}.get(how, -0.25)
            one_side = torch.eye(width).double() if how == "left" else root(right, power)
            if how != "before":
                result[sides] = root(left, power) @ g @ one_side
    return made


SLIPS = {
    "the matrix was not cut: L and R belong to single blocks": "whole",
    "L and R are those of the last step alone: sum them over the steps": "last",
    "L and R were used before this step's gradient was added": "before",
    "the power is -1/2: each of the two roots has the power -1/4": "half",
    "the power is 1/4: it must be -1/4": "plus",
    "R is missing": "left",
}


def _compare(run: Run, shape: tuple[int, int], block: int, world: int, steps: int = 3) -> Any:
    """All updates on every rank."""
    gradients = [run.random(shape) for _ in range(steps)]
    inputs = {"gradients": gradients, "block": block, "epsilon": EPSILON}
    result = run(drive, inputs, world=world)
    wanted = one_process(gradients, block)
    wrong = {why: one_process(gradients, block, how) for why, how in SLIPS.items()}
    wrong["L and R do not begin as ε·1"] = one_process(gradients, block, first=1e-12)
    for found in run.each(result.outputs):
        what = f"the update of step {{}} of a matrix of {shape} in blocks of {block}"
        run.steps(found["made"], wanted, what, likely=wrong, terms=10_000)
        run.true(found["kept"], "a gradient that was given has changed")
    return result


@check("the power -1/4", points=2, code="E")
@diagnosis("eigenvalues to the power -1/4")
def check_root(run: Run) -> None:
    """E: to the fourth power it is the inverse; also where all eigenvalues are small."""
    half = run.random((5, 5))
    usual = half @ half.T + torch.eye(5).double()
    for matrix, name in ((usual, "the root"), (1e-8 * usual, "the root of a small matrix")):
        likely = {
            "the power is -1/2": root(matrix, -0.5),
            "the power is 1/4: it must be -1/4": root(matrix, 0.25),
            "this is the power -1/4 of each element, not of the matrix": matrix.abs() ** -0.25,
        }
        found = run(drive_root, {"matrix": matrix}).outputs[0]
        run.close(found, root(matrix, -0.25), name, likely=likely, terms=10_000)


@check("updates of three steps, in blocks of unequal sizes", points=5, code="E")
@diagnosis("apply the three formulas of the task to each block")
@in_part
def check_updates(run: Run) -> None:
    """E: 3 ranks in float64, edges that do not divide."""
    _compare(run, (run.number(7, 11), run.number(9, 14)), 4, 3)


@check("one block, and more ranks than blocks", points=2, code="H")
def check_few(run: Run) -> None:
    """H: a rank with nothing takes part; a group of one."""
    _compare(run, (3, 5), 4, 4, steps=2)
    _compare(run, (5, 3), 8, 1, steps=2)


@check("a rank keeps L and R of its own blocks only", points=3, code="M")
@diagnosis("keep the sums of the blocks k with k % N equal to the rank's index")
def check_state(run: Run) -> None:
    """M: bytes that each rank keeps between steps, in float64 and in float32."""
    shape = (9, 14)
    _check_kept(run, _compare(run, shape, 4, 3), shape, 8)
    gradient = run.random(shape, torch.float32)
    inputs = {"gradients": [gradient], "block": 4, "epsilon": EPSILON}
    result = run(drive, inputs, world=3)
    wanted = one_process([gradient.double()], 4)[0].float()
    for found in run.each(result.outputs):
        likely = {"it is right in float64 alone": found["made"][0]}
        run.close(found["made"][0], wanted, "the update in float32", likely=likely, terms=100_000)
    _check_kept(run, result, shape, 4)


def _check_kept(run: Run, result: Any, shape: tuple[int, int], item: int) -> None:
    """That each rank keeps only L and R of its own blocks, of `item` bytes an element."""
    for rank, found in enumerate(run.each(result.outputs)):
        own = blocks_of(*shape, 4)[rank::3]
        sides = [(r.stop - r.start, c.stop - c.start) for r, c in own]
        limit = item * sum(r * r + c * c for r, c in sides)
        cause = "a rank keeps more than L and R of its own blocks, in the gradients' dtype"
        run.at_most(found["state"], limit, "the number of bytes kept between steps", cause=cause)


@check("one collective, and each update is sent to the others once", points=3, code="B")
@diagnosis("all-gather the updates, padded to the length of the longest")
def check_bytes(run: Run) -> None:
    """B: calls and bytes, from the ledger."""
    shape = (9, 14)
    result = _compare(run, shape, 4, 3)
    counts = [(r.stop - r.start) * (c.stop - c.start) for r, c in blocks_of(*shape, 4)]
    most = max(sum(counts[index::3]) for index in range(3))
    for ledger in run.each(result.ledgers):
        calls = len(ledger.calls())
        run.equal(
            calls, 3, "the number of collectives in three steps",
            likely={"one collective for each block": 3 * len(counts)}
        )  # fmt: skip
        cause = "an all-reduce of whole matrices sends zeros as well: gather the updates"
        run.at_most(ledger.sent(), 3 * 2 * 8 * most, "bytes sent in three steps", cause=cause)
