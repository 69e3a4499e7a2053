"""alpha_beta_fit: the fit of measured times, six predictions, and the bus bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import AlphaBeta, bus_bandwidth, fit

EXERCISE = Exercise(
    title="What a message costs",
    core=True,
    minutes=25,
    order=3,
    defines=("alpha_beta_fit", "predict", "bus_bandwidth"),
    library=(),
    hints=(
        "Divide both sides of α + β·S = t by t: α·(1/t) + β·(S/t) = 1. That is one row of a "
        "linear system with two unknowns, and ordinary least squares on such rows minimises the "
        "relative errors. For the predictions, count two things for each operation: the messages "
        "that follow one another, and the bytes that one rank sends.",
        "Fit: a matrix with the columns 1/t and S/t, a right-hand side of ones, "
        "`torch.linalg.lstsq` in float64, and `max(alpha, 0.0)`. Predict: a ring sends N-1 "
        "messages of S/N bytes one after another, and an all-reduce twice as many; a tree has "
        "⌈log2 N⌉ rounds of S bytes.",
        "`messages, crossings = {'send': (1, 1), 'broadcast': (rounds, rounds), 'all_gather': "
        "(N-1, (N-1)/N), ...}[op]`, then `messages·α + crossings·S·β`. The bus bandwidth is "
        "`crossings·S / seconds / 1e9`, and `predict` with α = 0 and β = 1 gives you "
        "`crossings·S`.",
    ),
)

RANKS = (20, 6, 8, 5, 3, 2, 1000, 1)  # with 20 ranks the usual slips all give different numbers
RINGS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
NOISY_RTOL = 1e-3  # other ways to weight the errors differ by per cents
RTOL = 1e-9


# --- what runs on the rank -----------------------------------------------------------------------
def drive_fit(learner: Any, group: Any, fits: list[dict[str, list[Any]]]) -> dict[str, Any]:
    """Fits each table of sizes and times."""
    return {"answers": [_plain(learner.alpha_beta_fit(**table)) for table in fits]}


def drive_predict(learner: Any, group: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Predicts each case."""
    return {"answers": [_plain(learner.predict(**case)) for case in cases]}


def drive_bandwidth(learner: Any, group: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Reports the bandwidth of each case."""
    return {"answers": [_plain(learner.bus_bandwidth(**case)) for case in cases]}


def _plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


# --- what it must bring back ---------------------------------------------------------------------
def _near(value: Any, wanted: float, rtol: float) -> bool:
    return isinstance(value, (int, float)) and math.isclose(value, wanted, rel_tol=rtol)


def _check_number(
    run: Run, value: Any, wanted: float, what: str, likely: Mapping[str, float], unit: str
) -> None:
    """One number that must be right to the last digits."""
    if _near(value, wanted, RTOL):
        return
    if not isinstance(value, (int, float)):
        run.fail(f"{what} is not a number", expected=f"{wanted:.6g} {unit}", measured=repr(value))
    cause = next((why for why, other in likely.items() if _near(value, other, RTOL)), "")
    run.fail(
        f"{what} is wrong",
        expected=f"{wanted:.6g} {unit}",
        measured=f"{value:.6g} {unit}",
        cause=cause,
    )


# --- the fit -------------------------------------------------------------------------------------
def _link(run: Run) -> AlphaBeta:
    """Hidden: 5–50 µs and 0.5–20 GB/s."""
    return AlphaBeta(run.number(50, 500) * 1e-7, 1 / (run.number(5, 200) * 1e8))


def _table(run: Run, link: AlphaBeta, noise: float) -> dict[str, list[Any]]:
    """Times of 8 bytes to 32 MiB, each size twice, in no order."""
    sizes = [8 * 4**k for k in (5, 0, 11, 3, 8, 1, 10, 6, 2, 9, 7, 4, 0, 11, 4, 7)]
    errors = run.random(len(sizes)).clamp(-2, 2).tolist()
    times = [
        link.seconds("send", size, 2) * (1 + noise * error)
        for size, error in zip(sizes, errors, strict=True)
    ]
    return {"sizes": sizes, "times": times}


def _least_squares(table: Mapping[str, list[Any]], power: float) -> list[float]:
    """The fit with errors divided by t to some power: 0 is absolute, 1 is right."""
    rows = [
        (1 / t**power, s / t**power, t / t**power)
        for s, t in zip(table["sizes"], table["times"], strict=True)
    ]
    a11, a12, a22 = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    b1, b2 = (sum(row[i] * row[2] for row in rows) for i in (0, 1))
    determinant = a11 * a22 - a12 * a12
    return [(b1 * a22 - b2 * a12) / determinant, (a11 * b2 - a12 * b1) / determinant]


def _check_fit(
    run: Run, answer: Any, wanted: AlphaBeta, likely: Mapping[str, list[float]], rtol: float
) -> None:
    """Compares a pair with α and β."""
    right = [wanted.alpha, wanted.beta]
    shown = f"α = {right[0]:.9g} s, β = {right[1]:.9g} s/byte"
    if not (
        isinstance(answer, list)
        and len(answer) == 2
        and all(isinstance(item, (int, float)) for item in answer)
    ):
        run.fail("the fit is not a pair of numbers", expected=shown, measured=repr(answer))
    if all(_near(a, r, rtol) for a, r in zip(answer, right, strict=True)):
        return
    causes = {
        "α and β are swapped": right[::-1],
        "this is the bandwidth, in bytes per second: β is its inverse, in seconds per byte": [
            right[0],
            1 / right[1],
        ],
        **likely,
        "not computed in double precision": right,
    }
    cause = next(
        (
            why
            for why, other in causes.items()
            if all(_near(a, o, NOISY_RTOL) for a, o in zip(answer, other, strict=True))
        ),
        "",
    )
    run.fail(
        "α and β are not the best for these times",
        expected=shown,
        cause=cause,
        measured=f"α = {answer[0]:.9g} s, β = {answer[1]:.9g} s/byte",
    )


@check("times without noise: α and β come back", points=2, code="E")
@diagnosis("the line t = α + β·S goes through all points")
def check_exact(run: Run) -> None:
    """E: the two numbers that the times were made of."""
    link = _link(run)
    table = _table(run, link, 0.0)
    result = run(drive_fit, {"fits": [table]})
    _check_fit(run, result.outputs[0]["answers"][0], link, {}, RTOL)


@check("noisy times: least squares of the relative errors", points=2, code="E")
@diagnosis("minimise the squares of (α + β·S - t) / t: divide each equation by its time")
def check_noisy(run: Run) -> None:
    """E: 5 % of noise on every time."""
    table = _table(run, _link(run), 0.05)
    result = run(drive_fit, {"fits": [table]})
    _check_fit(
        run,
        result.outputs[0]["answers"][0],
        fit(**table),
        {
            "absolute errors: the largest messages alone decide, and α is noise": _least_squares(
                table, 0
            ),
            "absolute errors, where the largest messages decide; and a negative α was set to 0": [
                0.0,
                _least_squares(table, 0)[1],
            ],
            "each squared error was divided by t, not by t²": _least_squares(table, 0.5),
        },
        NOISY_RTOL,
    )


@check("a negative α becomes 0.0", points=1, code="E")
@diagnosis("these times grow faster than the sizes, so the fitted α is negative: return 0.0 for it")
def check_no_negative(run: Run) -> None:
    """E: times that grow faster than the sizes."""
    link = _link(run)
    sizes = [1 << k for k in range(18, 26)]
    times = [link.beta * size**1.06 for size in sizes]
    table: dict[str, list[Any]] = {"sizes": sizes, "times": times}
    result = run(drive_fit, {"fits": [table]})
    answer = result.outputs[0]["answers"][0]
    low = answer[0] if isinstance(answer, list) and len(answer) == 2 else None
    run.true(
        isinstance(low, (int, float)) and low == 0.0,
        "α of times that grow faster than the sizes",
        expected="0.0",
        measured=repr(low),
    )
    beta = fit(**table).beta
    run.true(
        _near(answer[1], beta, NOISY_RTOL),
        "β of the same times",
        expected=f"{beta:.4g}",
        measured=repr(answer[1]),
        cause="β is what the fit of the relative errors gave beside the negative α",
    )


# --- predictions ---------------------------------------------------------------------------------
def slips(op: str, payload: int, n: int, alpha: float, beta: float) -> dict[str, float]:
    """Known wrong predictions of one case, under the sentences that explain them."""
    wide, twice = payload * beta, 2 if op == "all_reduce" else 1
    right = AlphaBeta(alpha, beta).seconds
    log = math.log2(n)
    known = {
        "bits instead of bytes: β is seconds per byte": right(op, 8 * payload, n),
        "α and β are swapped": AlphaBeta(beta, alpha).seconds(op, payload, n),
    }
    if op == "broadcast":
        known |= {
            "natural logarithm: with each round twice as many ranks have the bytes, so there are "
            "⌈log2 N⌉ rounds": math.ceil(math.log(n)) * (alpha + wide),
            "log2 N must be rounded up: a round cannot be split": log * (alpha + wide),
            "log2 N was rounded down: the last ranks get nothing": int(log) * (alpha + wide),
            "the root sends to one rank after another; a tree has ⌈log2 N⌉ rounds": (n - 1)
            * (alpha + wide),
            "β is paid only once: each of the ⌈log2 N⌉ rounds sends all S bytes": math.ceil(log)
            * alpha
            + wide,
        }
    elif op != "send":
        part = twice * (n - 1) / n * wide
        known |= {
            "the factor 2 is missing: an all-reduce is a reduce-scatter and an all-gather": right(
                "all_gather", payload, n
            ),
            "N instead of N-1: a rank does not send to itself": twice * (n * alpha + wide),
            "N instead of N-1 in the number of messages": twice * n * alpha + part,
            "S instead of (N-1)/N·S: a rank does not send the last part": twice
            * ((n - 1) * alpha + wide),
            "only one α is paid: every step is a separate message": alpha + part,
            "every step sends S/N bytes, not all of S": twice * (n - 1) * (alpha + wide),
            "a ring has N-1 steps; ⌈log2 N⌉ rounds are a tree's": twice * math.ceil(log) * alpha
            + part,
        }
    return known


def _check_predictions(run: Run, ops: tuple[str, ...]) -> None:
    """Compares the prediction of each operation for each number of ranks."""
    link, payload = _link(run), run.number(10_000, 100_000) * 8
    cases: list[dict[str, Any]] = [
        {"op": op, "payload": payload, "size": n, "alpha": link.alpha, "beta": link.beta}
        for op in ops
        for n in ((2,) if op == "send" else RANKS)
    ]
    result = run(drive_predict, {"cases": cases})
    for case, answer in zip(cases, result.outputs[0]["answers"], strict=True):
        op, n = case["op"], case["size"]
        what = f"{op} of {payload:,} bytes over {n} rank{'s' * (n > 1)}"
        _check_number(
            run,
            answer,
            link.seconds(op, payload, n),
            what,
            slips(op, payload, n, link.alpha, link.beta),
            "s",
        )


@check("predict: send and the tree's broadcast", points=2, code="E")
@diagnosis("after k rounds 2^k ranks have the tensor; each round is one message of S bytes")
def check_tree(run: Run) -> None:
    """E: up to 1000 ranks, powers of two or not."""
    _check_predictions(run, ("send", "broadcast"))


@check("predict: all_reduce and the three others with N-1 steps", points=3, code="E")
@diagnosis("N-1 messages of S/N bytes, one after another; an all-reduce makes two such passes")
def check_rings(run: Run) -> None:
    """E: up to 1000 ranks."""
    _check_predictions(run, RINGS)


# --- bandwidth -----------------------------------------------------------------------------------
@check("bus_bandwidth in GB/s, comparable for every N", points=2, code="E")
@diagnosis(
    "the bytes that one rank sends, (N-1)/N·S or twice that, divided by the seconds and by 10⁹"
)
def check_bandwidth(run: Run) -> None:
    """E: five operations on 8, 3 and 2 ranks."""
    payload, seconds = run.number(1000, 9000) * 1_000_000, run.number(20, 90) / 1000
    cases: list[dict[str, Any]] = [
        {"op": op, "payload": payload, "size": n, "seconds": seconds}
        for op in (*RINGS, "send")
        for n in ((2,) if op == "send" else (8, 3, 2))
    ]
    result = run(drive_bandwidth, {"cases": cases})
    for case, answer in zip(cases, result.outputs[0]["answers"], strict=True):
        right = bus_bandwidth(**case) / 1e9
        plain = payload / seconds / 1e9
        _check_number(run, answer, right, f"{case['op']} over {case['size']} ranks", {
            "GiB instead of GB: divide by 10⁹, not by 2³⁰": right * 1e9 / 2**30,
            "this is the algorithm bandwidth S/t: count what one link carried, not S": plain,
            "algorithm bandwidth, and GiB instead of GB": plain * 1e9 / 2**30,
            "bytes per second: divide by 10⁹": right * 1e9,
            "bits instead of bytes": right * 8,
            "the factor 2 is missing: an all-reduce is a reduce-scatter and an all-gather":
                right / 2,
        }, "GB/s")  # fmt: skip
