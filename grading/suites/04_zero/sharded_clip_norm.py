"""sharded_clip_norm: one norm on all ranks, replicated gradients once, one number sent."""

from __future__ import annotations

import math
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="One norm over all shards",
    core=True,
    minutes=15,
    order=6,
    hints=(
        "The norm of all elements is the square root of the sum of all squares. Which part of "
        "that sum does only one rank know, and which part does every rank know?",
        "Add the squares of `sharded` in a float64 scalar, even if the list is empty, and "
        "`all_reduce` that scalar. Then add the squares of `replicated`: all ranks have them "
        "already, so they must not be reduced. Then take the square root.",
        "`norm = squares.sqrt().item()`; if it is above `max_norm`, `gradient.mul_(max_norm / "
        "(norm + 1e-6))` for all of them. No rank may return before the all-reduce.",
    ),
)

Gradients = list[list[torch.Tensor]]  # of each rank


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    sharded: list[torch.Tensor],
    replicated: list[torch.Tensor],
    max_norm: float,
) -> dict[str, Any]:
    """Clips copies; says what they are afterwards, and whether they kept their memory.

    A matrix is there column by column, as the gradient of a transposed weight is.
    """
    mine, shared = [[g.mT.contiguous().mT if g.dim() == 2 else g.clone() for g in given]
                    for given in (sharded, replicated)]  # fmt: skip
    places = [g.data_ptr() for g in mine + shared]
    norm = learner.sharded_clip_norm(mine, shared, max_norm, group)
    stayed = places == [g.data_ptr() for g in mine + shared]
    return {"norm": norm, "sharded": mine, "replicated": shared, "stayed": stayed}


# --- what they must bring back -------------------------------------------------------------------
def squares(gradients: list[torch.Tensor]) -> float:
    """The sum of all squares, in float64."""
    return sum(float(g.double().square().sum()) for g in gradients)


def known(sharded: Gradients, replicated: list[torch.Tensor], rank: int) -> dict[str, float]:
    """Wrong norms of one rank, each under what explains it."""
    world = len(sharded)
    parts, shared = [squares(shards) for shards in sharded], squares(replicated)
    total = sum(parts)
    return {
        "the replicated gradients are counted once for each rank: add their squares after the "
        "all-reduce":
            math.sqrt(total + world * shared),
        "this is the norm of this rank alone: each rank would clip by a different factor":
            math.sqrt(parts[rank] + shared),
        "norms were added up: squares add up, norms do not":
            sum(math.sqrt(part) for part in parts) + math.sqrt(shared),
        "norms were added up: squares add up, norms do not; and the replicated ones count N times":
            sum(math.sqrt(part + shared) for part in parts),
        "the replicated gradients are not in the norm": math.sqrt(total),
        "this is the sum of squares: take its square root": total + shared,
        "the mean over the ranks: the norm is over all elements, so add":
            math.sqrt((total + shared * world) / world),
        "the mean over the ranks: the norm is over all elements, so add up": math.sqrt(
            total / world + shared),
        "the largest rank's norm: the norm is over all elements, so add":
            math.sqrt(max(parts) + shared),
    }  # fmt: skip


def _clip(
    run: Run, sharded: Gradients, replicated: list[torch.Tensor], share: float, terms: int = 4
) -> Any:
    """Clips to `share` of the true norm, and compares everything on each rank."""
    world = len(sharded)
    norm = math.sqrt(sum(squares(shards) for shards in sharded) + squares(replicated))
    common = {"replicated": replicated, "max_norm": norm * share}
    result = run(drive, [{"sharded": shards, **common} for shards in sharded], world=world)
    factor = norm * share / (norm + 1e-6)
    for rank, found in enumerate(run.each(result.outputs)):
        wrong: dict[str, Any] = known(sharded, replicated, rank)
        run.close(found["norm"], norm, f"the norm on {world} ranks", likely=wrong)
        cause = "the optimizer looks at the old tensor: change it in place"
        run.true(found["stayed"], "a gradient's memory was replaced", cause=cause)
        for kind, given in (("sharded", sharded[rank]), ("replicated", replicated)):
            likely = {"not clipped at all": given}
            wanted = [(g.double() * factor).to(g.dtype) for g in given] if share < 1 else given
            what = f"a {kind} gradient after clipping"
            if share < 1:
                run.close(found[kind], wanted, what, likely=likely, terms=terms)
            else:
                wrong = {
                    "scaled up to the limit: only larger norms are scaled": [
                        g * (norm * share / (norm + 1e-6)) for g in given
                    ]
                }
                name = "a gradient whose norm is below the limit"
                run.equal(found[kind], wanted, name, likely=wrong)
    return result


def _gradients(
    run: Run, world: int, dtype: torch.dtype = torch.float64
) -> tuple[Gradients, list[torch.Tensor]]:
    """Shards of other sizes on each rank, one of them empty, and two that all ranks have."""
    sharded = [
        [(run.random(shape) * (rank + 1)).to(dtype) for shape in [(5 + rank, 3), (0,), (7,)]]
        for rank in range(world)
    ]
    return sharded, [run.random(6).to(dtype) * 3, run.random((2, 2)).to(dtype)]


@check("the norm and the clipped gradients on 1–4 ranks", points=4, code="E")
@diagnosis("squares of shards are added over the ranks, those of replicated gradients are not")
def check_norm(run: Run) -> None:
    """E: shards of different sizes; with and without replicated gradients."""
    for world in (1, 2, 3, 4):
        _clip(run, *_gradients(run, world), share=0.25)
    _clip(run, _gradients(run, 3)[0], [], share=0.5)


@check("a norm below the limit changes nothing", points=2, code="E")
def check_below(run: Run) -> None:
    """E: to the bit; a norm just above the limit is clipped."""
    _clip(run, *_gradients(run, 2), share=1.5)
    three, four = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
    _clip(run, [[three], []], [four], share=1 - 1e-7)  # the norm is 5, without rounding


@check("float32 and bfloat16: squares that are too large for them", points=2, code="E")
@diagnosis("add the squares in float64; the gradients keep their dtype")
@in_part
def check_dtypes(run: Run) -> None:
    """E: values of 1e25, whose squares overflow float32."""
    for dtype in (torch.float32, torch.bfloat16):
        sharded, replicated = _gradients(run, 2, dtype)
        huge = [[g * 1e25 for g in shards] for shards in sharded]
        _clip(run, huge, [g * 1e25 for g in replicated], share=0.5, terms=8)


@check("ranks with no gradient, or small ones, take part", points=2, code="H")
def check_all_call(run: Run) -> None:
    """H: an empty list on one rank; norms below the limit on all but one."""
    sharded, replicated = _gradients(run, 3)
    sharded[1], sharded[2] = [], [g * 1e-3 for g in sharded[2]]
    _clip(run, sharded, [], share=0.9)
    _clip(run, sharded, replicated, share=0.9)


@check("infinity and NaN on one rank are seen by all ranks", points=1, code="E")
def check_infinite(run: Run) -> None:
    """E: so that all of them can skip the step; what becomes of their gradients."""
    sharded, replicated = _gradients(run, 2)
    common = {"replicated": replicated, "max_norm": 1.0}
    for bad in (math.inf, math.nan):
        sharded[1][0][0, 0] = bad
        result = run(drive, [{"sharded": shards, **common} for shards in sharded], world=2)
        for shards, found in run.each(zip(sharded, result.outputs, strict=True)):
            norm = found["norm"]
            if bad == math.inf:
                run.equal(norm, math.inf, "the norm, if rank 1 has infinity,")
                wanted = [g * 0.0 for g in shards]
                likely = {"an infinite norm is above every limit: the factor is 0": shards}
            else:
                what = "the norm is finite, but rank 1 has nan"
                run.true(not math.isfinite(norm), what, measured=norm)
                wanted = shards
                likely = {"NaN is above no limit: no gradient changes": [g * bad for g in shards]}
            run.close(found["sharded"], wanted, f"a gradient, if rank 1 has {bad}", likely=likely)


@check("one all-reduce of one number", points=2, code="B")
@diagnosis("add up the squares on the rank first, in one scalar")
def check_bytes(run: Run) -> None:
    """B: calls and bytes, from the ledger; nothing past comm."""
    result = _clip(run, *_gradients(run, 4), share=0.25)
    for ledger in run.each(result.ledgers):
        run.equal(len(ledger.calls()), 1, "the number of collectives")
        cause = "more than one number is sent: the norm needs only the sum of the squares"
        run.at_most(ledger.sent(), 16, "bytes sent", cause=cause)
