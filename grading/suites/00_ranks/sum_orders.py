"""sum_orders and tolerance_for: sums to the last bit, a tolerance between two errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Sums depend on their order",
    core=False,
    minutes=20,
    order=5,
    defines=("sum_orders", "tolerance_for"),
    library=(),
    hints=(
        "Write one function that adds a tensor's numbers from left to right, and use it twice: on "
        "x, and on x sorted by absolute value. For the tolerance: how many additions are there in "
        "a sum of n numbers, and how large can the error of each be?",
        "Pairwise: `row[0::2] + row[1::2]` adds all neighbours at once if their number is even; "
        "append an odd last one with `torch.cat`, and repeat until one is left. Tolerance: n-1 "
        "additions, each off by up to eps/2; twice as much does no harm.",
        "`x[x.abs().argsort()]` is x by magnitude. The tolerance is n·eps with "
        "`torch.finfo(dtype).eps`, at most 1.0, and 0.0 for integers.",
    ),
)

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
# Numbers for which the dtype is good enough to tell whether one of n is missing.
FINE = ((torch.float64, 1_000_000), (torch.float32, 1500), (torch.float16, 20), (torch.bfloat16, 6))


CASES = tuple((dtype, n) for dtype in (torch.float64, *FLOATS) for n in (3, 50, 1000, 100_000))
WHOLE = (torch.int64, 1000)


# --- what runs on the rank -----------------------------------------------------------------------
def drive_sums(learner: Any, group: Any, rows: list[torch.Tensor]) -> dict[str, Any]:
    """Adds up each row; says whether it is as before."""
    given = [row.clone() for row in rows]
    sums = [learner.sum_orders(row) for row in given]
    return {"sums": sums, "same": [torch.equal(a, b) for a, b in zip(given, rows, strict=True)]}


def drive_tolerance(learner: Any, group: Any, cases: list[tuple[Any, int]]) -> dict[str, Any]:
    """Asks for the tolerance of each dtype and count."""
    return {"answers": [learner.tolerance_for(dtype, n) for dtype, n in cases]}


# --- the sums ------------------------------------------------------------------------------------
def left_to_right(numbers: torch.Tensor) -> torch.Tensor:
    """One after the other, each partial sum rounded."""
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    return total


def neighbours(numbers: torch.Tensor) -> torch.Tensor:
    """In rounds of neighbours."""
    while len(numbers) > 1:
        even = len(numbers) // 2 * 2
        numbers = torch.cat([numbers[0:even:2] + numbers[1:even:2], numbers[even:]])
    return numbers[0]


def halves(numbers: torch.Tensor) -> torch.Tensor:
    """Left half plus right half: the other pairwise sum, not the one that is asked for."""
    middle = len(numbers) // 2
    return halves(numbers[:middle]) + halves(numbers[middle:]) if middle else numbers[0]


def _distinct(row: torch.Tensor) -> torch.Tensor:
    """Without numbers whose magnitude is there already: their order would be anybody's choice."""
    magnitudes, order = row.abs().sort()
    return row[order[torch.cat([torch.tensor([True]), magnitudes.diff() > 0])].sort().values]


def _rows(run: Run) -> list[torch.Tensor]:
    """Rows of hidden lengths, odd but for one; and one of a single number.

    In bf16 and fp16 all are positive, so that equal |x| are equal x; in fp16 their squares are 0.
    """
    drawn = [run.random(2 * run.number(200, 300) + 1) for _ in FLOATS]
    wide, *narrow = [row.to(dtype) for row, dtype in zip(drawn, FLOATS, strict=True)]
    narrow[1] *= 2.0**-13
    narrow.append(narrow[0][1:])
    return [_distinct(wide), *(row.abs() for row in narrow), wide[:1]]


def _sums(run: Run, key: str) -> Iterator[tuple[torch.Tensor, Any]]:
    """Each row and the sum of that name."""
    rows = _rows(run)
    found = run(drive_sums, {"rows": rows}).outputs[0]
    cause = "`x[0]` is a view of x: `total += ...` writes into it"
    run.true(all(found["same"]), "x was changed", cause=cause)
    for row, answer in zip(rows, found["sums"], strict=True):
        run.true(
            isinstance(answer, dict) and key in answer,
            f"there is no sum {key!r}",
            measured=repr(answer)[:100],
        )
        yield row, answer[key]


def _check_sum(run: Run, key: str, right: Any, likely: Any) -> None:
    """Compares one of the four sums for each row, bit for bit."""
    for row, found in _sums(run, key):
        what, wanted = f"{key!r} of {len(row)} numbers in {_name(row.dtype)}", right(row)
        if _digits(found) == _digits(wanted):
            continue
        cause = next(
            (why for why, other in likely(row).items() if _digits(other) == _digits(found)),
            "",
        )
        run.fail(
            f"{what} is not the right sum",
            expected=_digits(wanted),
            measured=_digits(found),
            cause=cause,
        )


def _digits(value: Any) -> str:
    """A scalar tensor with as many digits as tell its neighbours apart."""
    if isinstance(value, torch.Tensor) and value.dim() == 0:
        return f"{value.item():.9g} ({_name(value.dtype)})"
    shape = f" of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else ""
    return f"{value!r:.60} ({type(value).__name__}{shape}, not a scalar tensor)"


def _wide(row: torch.Tensor) -> torch.Tensor:
    return row.double().sum().to(row.dtype)


@check("forwards: one after another, rounded each time", points=2, code="E")
@diagnosis("begin with x[0] and add x[1], x[2], ... as tensors of x's dtype")
def check_forwards(run: Run) -> None:
    """E: bit for bit, in three dtypes."""
    _check_sum(
        run,
        "forwards",
        left_to_right,
        lambda row: {
            "accumulated in a wider dtype and rounded once": _wide(row),
            "accumulated in float32 and rounded once": left_to_right(row.float()).to(row.dtype),
            "this is the sum in float32: it must keep x's dtype": left_to_right(row.float()),
            "this is torch.sum, which adds in its own order": row.sum(),
            "added from the end": left_to_right(row.flip(0)),
        },
    )


@check("pairwise: neighbours first", points=2, code="E")
@diagnosis("add x[0]+x[1], x[2]+x[3], ...; then the neighbours among these sums, until one is left")
def check_pairwise(run: Run) -> None:
    """E: odd lengths, so that one waits in some rounds."""
    _check_sum(
        run,
        "pairwise",
        neighbours,
        lambda row: {
            "left half plus right half: that is a different order from neighbours first": halves(
                row
            ),
            "the last of an odd number of terms is lost": neighbours(row[: len(row) // 2 * 2 or 1]),
            "accumulated in a wider dtype and rounded once": _wide(row),
            "this is the sum forwards": left_to_right(row),
        },
    )


@check("by_magnitude: smallest absolute value first", points=1, code="E")
@diagnosis("sort by |x|, then add forwards")
def check_magnitude(run: Run) -> None:
    """E: mixed signs in float32."""
    _check_sum(
        run,
        "by_magnitude",
        lambda row: left_to_right(row[row.abs().argsort()]),
        lambda row: {
            "sorted by value: -5 is larger than 3 in magnitude": left_to_right(row.sort().values),
            "largest first": left_to_right(row[row.abs().argsort(descending=True)]),
            "the absolute values were added": left_to_right(row.abs().sort().values),
        },
    )


@check("float64: the sum that the others are compared with", points=1, code="E")
@diagnosis("convert x to float64 before you add it up")
def check_float64(run: Run) -> None:
    """E: up to float64's own rounding."""
    for row, found in _sums(run, "float64"):
        likely = {
            "added first and made float64 afterwards": row.sum().double(),
            "added forwards and made float64 afterwards": left_to_right(row).double(),
        }
        what = f"'float64' of {len(row)} numbers"
        run.close(found, row.double().sum(), what, likely=likely)


# --- the tolerance -------------------------------------------------------------------------------
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tolerances(run: Run) -> dict[tuple[torch.dtype, int], float]:
    """The learner's tolerances for all dtypes and counts."""
    cases = [*CASES, *FINE, WHOLE]
    answers = run(drive_tolerance, {"cases": cases}).outputs[0]["answers"]
    for (dtype, n), answer in zip(cases, answers, strict=True):
        run.true(
            isinstance(answer, (int, float)) and not math.isnan(answer),
            f"the tolerance for {n:,} numbers in {_name(dtype)} is not a number",
            measured=repr(answer),
        )
    return dict(zip(cases, map(float, answers), strict=True))


def apart(dtype: torch.dtype, n: int) -> float:
    """How far a right sum of 1 and n-1 numbers of eps/2 is from the exact one, as a part of that.

    Forwards each of the small numbers is lost, since 1 + eps/2 is rounded to 1.
    """
    small = (n - 1) * torch.finfo(dtype).eps / 2
    return small / (1 + small)


def _ignored(known: dict[tuple[torch.dtype, int], float]) -> str:
    """What the tolerance does not depend on, in a sentence; "" if on both."""
    by_dtype = [{known[case] for case in CASES if case[0] == dtype} for dtype, _ in CASES]
    by_count = [{known[case] for case in CASES if case[1] == n} for _, n in CASES]
    if all(len(row) == 1 for row in by_dtype + by_count):
        return "this is a constant: the error depends on the dtype's eps and grows with n"
    if all(len(row) == 1 for row in by_dtype):
        return "n is ignored: the errors of n-1 additions add up"
    if all(len(row) == 1 for row in by_count):
        return "the dtype is ignored: eps is 65,536 times larger in bfloat16 than in float32"
    return ""


@check("tolerance_for accepts every order of the same numbers", points=2, code="E")
@diagnosis("n-1 additions, each off by up to eps/2 of its result: the tolerance grows with n")
def check_accepts(run: Run) -> None:
    """E: the worst numbers for each dtype and count."""
    known = _tolerances(run)
    for dtype, n in CASES:
        answer, gap, eps = known[dtype, n], apart(dtype, n), torch.finfo(dtype).eps
        if answer >= gap * (1 - 1e-12):
            continue
        cause = _ignored(known)
        if answer == 0:
            cause = "a tolerance of 0 is `==`, which rejects right sums"
        elif not cause and answer >= math.sqrt(n) * eps / 4:
            cause = "errors grow like √n on average; the worst numbers reach (n-1)·eps/2"
        run.fail(
            f"rejects a right sum of {n:,} numbers in {_name(dtype)}: 1, then eps/2 "
            "again and again, added forwards",
            expected=f"at least {gap:.3g}",
            measured=f"{answer:.3g}",
            cause=cause,
        )


@check("tolerance_for rejects a sum that lacks a number, and 0", points=2, code="E")
@diagnosis("it must not exceed the rounding errors: n times the dtype's eps, at most 1")
def check_refuses(run: Run) -> None:
    """E: one of n equal numbers missing; a tolerance above 1."""
    known = _tolerances(run)
    for dtype, n in FINE:
        run.true(
            known[dtype, n] < 1 / n,
            f"accepts a sum in {_name(dtype)} in which 1 of {n:,} numbers is missing",
            expected=f"below {1 / n:.3g}",
            measured=f"{known[dtype, n]:.3g}",
            cause=_ignored(known),
        )
    for dtype, n in CASES:
        run.true(
            known[dtype, n] <= 1,
            f"the tolerance for {n:,} numbers in {_name(dtype)} is above 1",
            expected="at most 1",
            measured=f"{known[dtype, n]:.3g}",
            cause="it grows without bound, so that even 0 is accepted as the sum",
        )
    run.true(
        known[WHOLE] == 0,
        "the tolerance for integers",
        expected="0.0",
        measured=f"{known[WHOLE]:.3g}",
        cause="integers are added without error",
    )
