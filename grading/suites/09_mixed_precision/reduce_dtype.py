"""reduce_dtype: the mean in another dtype, its bytes, and a bound that holds and is near."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis, in_part
from course_lib.trace import wire_bytes

EXERCISE = Exercise(
    title="The dtype that gradients are summed in",
    core=True,
    minutes=25,
    order=4,
    defines=("reduce_mean", "error_bound"),
    hints=(
        "There are four steps: divide in the wide dtype, cast to the reduce dtype, reduce, cast "
        "back to the gradient's dtype. Which of them make a new tensor if all dtypes are the "
        "same? For the bound: how often is the first term rounded if the terms are added one "
        "after another?",
        "`wide = torch.promote_types(gradient.dtype, dtype)`, `share = (gradient.to(wide) / "
        "group.size).to(dtype)`: the division makes new memory. A term is rounded once on its way "
        "into the reduce dtype, and then in N-1 additions at most.",
        'After `all_reduce(share, group)`, whose op is "sum", return `share.to(gradient.dtype)`. '
        "The bound is k·u/(1 - k·u) with k = N and u = finfo(dtype).eps / 2, times the sum of the "
        "magnitudes |g_i|/N, in float64.",
    ),
)

B16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
PAIRS = ((F32, B16), (B16, F32), (F32, F16), (F64, F32), (F32, F32), (F16, B16), (B16, F16),
         (B16, B16), (F64, F64))  # fmt: skip
LOOSE = 1.6  # how many times the bound may be
SECOND = 1e-3  # room for roundings in a finer dtype than the one that counts
Row = list[torch.Tensor]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, gradients: Row, dtypes: list[str], bounds: list[Row]
) -> dict[str, Any]:
    """The mean of each gradient in its reduce dtype, and the bound for those of all ranks."""
    found: dict[str, Any] = {"means": [], "after": [], "apart": []}
    for gradient, name in zip(gradients, dtypes, strict=True):
        given = gradient.clone()  # keeps strides
        mean = learner.reduce_mean(given, group, getattr(torch, name))
        tensor = isinstance(mean, torch.Tensor)
        found["means"].append(mean)
        found["after"].append(given)
        found["apart"].append(not tensor or not mean.numel() or mean.data_ptr() != given.data_ptr())
    given_rows = [[row.clone() for row in rows] for rows in bounds]
    found["bounds"] = [
        learner.error_bound(rows, getattr(torch, name))
        for rows, name in zip(given_rows, dtypes, strict=False)
    ]
    found["rows"] = given_rows
    return found


# --- what they must bring back -------------------------------------------------------------------
def unit(dtype: torch.dtype) -> float:
    """The unit roundoff."""
    return float(torch.finfo(dtype).eps / 2)


def exact(rows: Row) -> torch.Tensor:
    """The mean, in float64."""
    return torch.stack([row.double() for row in rows]).sum(0) / len(rows)


def size(rows: Row) -> torch.Tensor:
    """The mean of the magnitudes, in float64: the size of what is added."""
    return exact([row.double().abs() for row in rows])


def bound(rows: Row, dtype: torch.dtype) -> torch.Tensor:
    """What rounding in the reduce dtype can do to the mean."""
    all_of_them = len(rows) * unit(dtype)
    return size(rows) * all_of_them / (1 - all_of_them)


def limit(rows: Row, dtype: torch.dtype) -> torch.Tensor:
    """The same, one rounding to the gradient's dtype at the end, and those of `exact` itself."""
    back = rows[0].dtype if unit(rows[0].dtype) > unit(dtype) else F64
    own = bound(rows, F64) + unit(back) * exact(rows).abs()
    return (bound(rows, dtype) + own) * (1 + SECOND)


def total(rows: Row) -> torch.Tensor:
    """The sum, each addition rounded to the rows' dtype."""
    result = rows[0].clone()
    for row in rows[1:]:
        result += row
    return result


def slips(rows: Row, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """What known wrong answers give if the rows are added in their order."""
    count, own = len(rows), rows[0].dtype
    shares = [(row.to(torch.promote_types(own, dtype)) / count).to(dtype) for row in rows]
    known = {
        "cast before it was divided: a float32 number may be too large for fp16":
            total([row.to(dtype) / count for row in rows]),
        "divided after the sum, where it is too late for fp16's largest number":
            total([row.to(dtype) for row in rows]) / count,
        "the sum, not the mean: divide by the group's size": total([s * count for s in shares]),
        "divided twice": total(shares) / count,
        "not reduced: this is one rank's own gradient": rows[0],
        "divided before it was cast up: one more rounding, in the gradient's dtype":
            total([(row / count).to(dtype) for row in rows]),
        "summed in the gradient's own dtype, and not in the reduce dtype":
            total([row / count for row in rows]).to(dtype),
        "divided by 2, whatever the group": total([s * count / 2 for s in shares]),
    }  # fmt: skip
    if own == dtype == F64:
        narrow = total([(row.float() / count).to(dtype) for row in rows])
        known["divided in float32, which has not all numbers of float64"] = narrow
    return {why: wrong.to(own) for why, wrong in known.items()}


def cause(found: torch.Tensor, rows: Row, dtype: torch.dtype) -> str:
    """The slip that has most elements in common with what was found, wherever the sum began."""
    begun = [slips(rows[first:] + rows[:first], dtype) for first in range(len(rows))]
    shares = {
        why: float(torch.stack([found == each[why] for each in begun]).any(0).double().mean())
        for why in begun[0]
    }
    best = max(shares, key=lambda why: shares[why])
    return best if shares[best] > 0.5 else ""


def same_form(
    run: Run, found: Any, like: torch.Tensor, what: str, rank: int, reduced: torch.dtype | None
) -> None:
    """That something is a tensor of this shape and dtype, which may have been left in `reduced`."""
    nothing = "nothing is returned" if found is None else ""
    run.true(
        isinstance(found, torch.Tensor),
        f"{what} is not a tensor",
        rank=rank,
        measured=describe(found),
        cause=nothing,
    )
    run.equal(tuple(found.shape), tuple(like.shape), f"the shape of {what}", rank=rank)
    likely = {"left in the reduce dtype: cast it back": str(reduced)}
    run.equal(str(found.dtype), str(like.dtype), f"the dtype of {what}", rank=rank, likely=likely)


def compare_means(
    run: Run, result: Any, columns: list[Row], dtypes: list[torch.dtype], which: slice = slice(None)
) -> None:
    """That the means of some cases are as near to the exact ones as their dtypes allow."""
    for rank, output in enumerate(result.outputs):
        cases = list(zip(output["means"], columns, dtypes, strict=True))
        for found, rows, dtype in cases[which]:
            names = [name_of(each) for each in (rows[0].dtype, dtype)]
            what = f"the mean of {names[0]} gradients of {len(rows)} ranks, summed in {names[1]},"
            same_form(run, found, rows[0], what, rank, dtype)
            error = (found.double() - exact(rows)).abs().nan_to_num(torch.inf)
            bad = (error > limit(rows, dtype)).flatten()
            if bad.any():
                place = int(bad.nonzero()[0])
                said = [float(t.flatten()[place]) for t in (exact(rows), limit(rows, dtype), found)]
                run.fail(
                    f"{what} is further from the exact one than rounding explains",
                    rank=rank,
                    expected=f"{said[0]:.7g} ± {said[1]:.2g}",
                    measured=f"{said[2]:.7g}; {int(bad.sum())} of {bad.numel()} are wrong",
                    cause=cause(found, rows, dtype),
                )


def name_of(dtype: torch.dtype) -> str:
    """As torch has it, without `torch.`."""
    return str(dtype).removeprefix("torch.")


def far(run: Run, shape: Any) -> torch.Tensor:
    """Hidden numbers of both signs, none so small that fp16 has fewer digits for it."""
    drawn = run.random(shape)
    return drawn + drawn.sign()


def go(
    run: Run, columns: list[Row], dtypes: list[torch.dtype], bounds: bool = False
) -> tuple[Any, list[Row], list[torch.dtype]]:
    """Runs cases, each a row of all ranks' gradients; gives the result and the cases."""
    names = [name_of(dtype) for dtype in dtypes]
    world, given = len(columns[0]), columns if bounds else []
    inputs = [
        {"gradients": [rows[rank] for rows in columns], "dtypes": names, "bounds": given}
        for rank in range(world)
    ]
    return run(drive, inputs, world=world), columns, dtypes


def mixed(run: Run, world: int) -> tuple[Any, list[Row], list[torch.dtype]]:
    """All pairs of dtypes, and forms: a view that is not contiguous, a scalar, nothing."""
    columns = [[far(run, (13, 7)).to(own).t() for _ in range(world)] for own, _ in PAIRS]
    dtypes = [dtype for _, dtype in PAIRS]
    for shape in ((), (0,), (5,)):
        columns.append([far(run, shape).float() for _ in range(world)])
        dtypes.append(B16)
    columns[-1][-1] = torch.zeros(5)  # the last rank has nothing to say
    return go(run, columns, dtypes)


@check("the mean in the gradient's dtype, on 1 and 3 ranks", points=3, code="E")
@diagnosis("cast, divide, reduce, cast back")
def check_mean(run: Run) -> None:
    """E: nine pairs of dtypes; the gradient that was given is left alone."""
    for world in (3, 1):
        result, columns, dtypes = mixed(run, world)
        compare_means(run, result, columns, dtypes)
        for rank, output in enumerate(run.each(result.outputs)):
            given = [rows[rank] for rows in columns]
            likely = {
                "it was changed: where all dtypes are the same, `to` makes no copy": output["after"]
            }
            what = "the gradient that was given, afterwards,"
            run.equal(output["after"], given, what, likely=likely)
            why = "`to` returns the tensor itself if the dtype is the same"
            run.true(all(output["apart"]), "the mean lies in the gradient's own memory", cause=why)


@check("2(N-1)/N·S bytes, S in the reduce dtype", points=3, code="B")
@diagnosis("what is given to the collective must already be in the reduce dtype")
def check_bytes(run: Run) -> None:
    """B: fewer bytes for float32 gradients, more for bf16 ones; exact, from the ledger."""
    count = 48
    for world, own, dtype in ((3, F64, F16), (4, B16, F32)):
        rows = [far(run, count).to(own) for _ in range(world)]
        result, _, _ = go(run, [rows], [dtype])
        sent, wrong = (
            [
                wire_bytes("all_reduce", count * each.itemsize, world, rank, each.itemsize)[0]
                for rank in range(world)
            ]
            for each in (dtype, own)
        )
        run.bytes(
            result,
            sent,
            what=f"bytes sent for {name_of(own)} gradients in {name_of(dtype)}",
            likely={
                "sent in the gradient's own dtype: cast before the reduction, not after it": wrong,
                "twice as many: reduced twice, or in a dtype twice as wide": [2 * s for s in sent],
                "every rank gathers all gradients": (world - 1) * count * dtype.itemsize,
            },
        )


def large(run: Run) -> tuple[Any, list[Row], list[torch.dtype]]:
    """Sums too large for fp16, a gradient too large for it, fp16's own; and bf16 in float32."""
    near = [(far(run, 40).abs() / 8 + 1).float().clamp(max=1.6) * 4e4 for _ in range(3)]
    alone = [far(run, 40).float() for _ in range(3)]
    alone[1] = alone[1].sign() * 1.5e5  # a third of it is an fp16 number
    halves = [far(run, 40).abs().clamp(max=1.9).half() * 3e4 for _ in range(3)]
    once = [far(run, 200).bfloat16() for _ in range(3)]
    return go(run, [near, alone, halves, once], [F16, F16, F16, F32])


@check("divided before the sum, in the wide dtype", points=3, code="E")
@diagnosis("the sum must never be larger than the mean's terms allow")
@in_part
def check_large(run: Run) -> None:
    """E: fp16, where the sum of all ranks, or one gradient alone, is too large for it."""
    compare_means(run, *large(run), slice(3))


@check("bf16 gradients summed in float32: rounded once", points=2, code="E")
@diagnosis("nothing may be rounded to bf16 before the end")
def check_once(run: Run) -> None:
    """E: at most half a spacing of bf16 from the exact mean; a sum in bf16 is further off."""
    compare_means(run, *large(run), slice(3, None))


def worst(dtype: torch.dtype) -> Row:
    """Two gradients whose three roundings, of their halves and of the sum, all go the same way."""
    u = unit(dtype)
    return [torch.full((2,), 2 * (1 + x), dtype=F64) for x in (u, 3 * u - u / 64)]


def measured_cases(run: Run, world: int) -> tuple[Any, list[Row], list[torch.dtype]]:
    """Random gradients, such that cancel, and for two ranks the worst that there are."""
    columns, dtypes = [], [B16, F16, F32]
    for own in (F32, F32, F64):
        plain = [far(run, (40, 10)) for _ in range(world)]
        plain[-1][20:] -= torch.stack([row[20:] for row in plain]).sum(0)  # their sum is about 0
        columns.append([row.to(own) for row in plain])
    if world == 2:
        columns += [worst(dtype) for dtype in dtypes]
        dtypes *= 2
    return go(run, columns, dtypes, bounds=True)


def why_bound(found: torch.Tensor, rows: Row, dtype: torch.dtype) -> str:
    """Which known wrong bound this is."""
    count, u, terms = len(rows), unit(dtype), size(rows)
    known = {
        "this bound is relative to the mean: terms that cancel still leave their errors":
            count * u * exact(rows).abs(),
        "the number of ranks is ignored: each addition is one more rounding": u * terms,
        "the cast is not counted: a term is rounded before it is added": (count - 1) * u * terms,
        "eps is twice the unit roundoff": 2 * count * u * terms,
        "this is the bound for the sum: the terms are the gradients divided by N":
            count * u * terms * count,
        "this uses the gradient's unit roundoff: use that of the reduce dtype":
            count * unit(rows[0].dtype) * terms,
    }  # fmt: skip
    return next((why for why, of in known.items() if torch.allclose(found, of, 4e-2, 1e-12)), "")


@check("the bound holds for real reductions, and is not too loose", points=5, code="E")
@diagnosis("N roundings of each term, relative to the terms' magnitudes")
def check_bound(run: Run) -> None:
    """E: the errors of the reader's own reductions on 2–4 ranks, below the reader's bound."""
    for world in (3, 2, 4):
        result, columns, dtypes = measured_cases(run, world)
        compare_means(run, result, columns, dtypes)
        for rank, output in enumerate(run.each(result.outputs)):
            run.equal(output["rows"], columns, "the gradients given to error_bound, afterwards,")
            pairs = zip(output["bounds"], output["means"], strict=True)
            for (found, mean), rows, dtype in zip(pairs, columns, dtypes, strict=True):
                _check_bound(run, found, mean, rows, dtype, rank)


def _check_bound(run: Run, found: Any, mean: Any, rows: Row, dtype: torch.dtype, rank: int) -> None:
    """Not below the errors that were made or could be, nor far above."""
    what = f"the bound for {len(rows)} ranks in {name_of(dtype)}"
    same_form(run, found, rows[0].double(), what, rank, None)
    right, why = bound(rows, dtype), why_bound(found, rows, dtype)
    least = size(rows) * len(rows) * unit(dtype) * (1 - 1e-9)
    errors = (mean.double() - exact(rows)).abs()
    for low, said in ((errors, "the error of this reduction"), (least, "what roundings can do")):
        bad = ~(found * (1 + SECOND) >= low).flatten()
        if bad.any():
            place = int(bad.nonzero()[0])
            run.fail(
                f"{what} does not hold",
                rank=rank,
                cause=why,
                expected=f"at least {float(low.flatten()[place]):.4g}, {said}",
                measured=f"{float(found.flatten()[place]):.4g}",
            )
    ratio = float((found / right).max())
    run.true(
        ratio <= LOOSE,
        f"{what} is too loose",
        rank=rank,
        cause=why,
        expected=f"at most {LOOSE} times what roundings can do",
        measured=f"{ratio:.3g} times",
    )
