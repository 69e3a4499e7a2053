"""when_offload_pays: seconds of a step for three places of the state, and the batch."""

from __future__ import annotations

import math
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="When offload pays",
    core=False,
    minutes=20,
    order=5,
    defines=("step_seconds", "tokens_for"),
    library=(),
    hints=(
        "Draw a step as a timeline: forward; then backward, with the gradients going down below "
        "it; then the update, with the parameters going up below it; and for the disk a third "
        "bar. Things that run at the same time make a `max`, things that follow one another a sum.",
        "`forward + max(backward, 2Ψ/link) + max(Ψ/update, 2Ψ/link)`, and for the disk a third "
        "entry in the last `max`: 12Ψ/read + 12Ψ/write. The share grows with the tokens.",
        "Double a number of tokens until `step_seconds(..., 'device') / step_seconds(..., where)` "
        "reaches the efficiency. Then halve the interval between the last number that was too "
        "small and the first that was enough, until they are neighbours.",
    ),
)

PLACES = ("device", "host", "disk")
EXACT = {  # without any rounding, these tokens compute for exactly half of the time
    "parameters": 3.0 * 2**30, "tokens": 3 * 2**14, "flops": 9.0 * 2**45, "link": 2.0**40,
    "update": 2.0**30, "read": 2.0**60, "write": 2.0**60,
}  # fmt: skip


# --- what runs on the rank -----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, cases: list[dict[str, Any]], shares: list[float]
) -> dict[str, Any]:
    """All cases: the seconds in each place, and the tokens for each share."""
    seconds, tokens = [], []
    for case in cases:
        seconds.append([float(learner.step_seconds(where=where, **case)) for where in PLACES])
        rest = {key: value for key, value in case.items() if key != "tokens"}
        tokens.append(
            [
                learner.tokens_for(share, where=where, **rest)
                for where in PLACES[1:]
                for share in shares
            ]
        )
    return {"seconds": seconds, "tokens": tokens}


# --- what it must bring back ---------------------------------------------------------------------
def _parts(case: dict[str, Any], tokens: float) -> dict[str, float]:
    size = case["parameters"]
    return {
        "forward": 2 * size * tokens / case["flops"], "backward": 4 * size * tokens / case["flops"],
        "way": 2 * size / case["link"], "update": size / case["update"],
        "disk": 12 * size / case["read"] + 12 * size / case["write"],
        "half": 12 * size / case["read"],
        "both": 12 * size / min(case["read"], case["write"]),
    }  # fmt: skip


def _seconds(case: dict[str, Any], tokens: float, where: str) -> float:
    p = _parts(case, tokens)
    if where == "device":
        return p["forward"] + p["backward"]
    third = p["disk"] if where == "disk" else 0.0
    return p["forward"] + max(p["backward"], p["way"]) + max(p["update"], p["way"], third)


def _likely(case: dict[str, Any], where: str) -> dict[str, float]:
    p = _parts(case, case["tokens"])
    if where == "device":
        return {"forward alone": p["forward"], "backward alone": p["backward"]}
    third = p["disk"] if where == "disk" else 0.0
    begin = p["forward"] + max(p["backward"], p["way"])
    rest = max(p["update"], p["way"])
    known = {
        "the gradients go down during backward: only the longer of the two counts":
            p["forward"] + p["backward"] + p["way"] + max(rest, third),
        "gradients exist only in backward: they cannot go down during forward":
            max(p["forward"] + p["backward"], p["way"]) + max(rest, third),
        "the update and the copy up run at the same time: only the longer counts":
            begin + max(p["update"] + p["way"], third),
        "the new parameters must also be copied up": begin + max(p["update"], third),
        "everything is added up: see what runs at the same time":
            p["forward"] + p["backward"] + p["update"] + 2 * p["way"] + third,
        "the update begins when all gradients are down":
            p["forward"] + max(p["backward"], p["way"], p["update"]) + p["way"],
        "the link's rate is in bytes, not in bits":
            p["forward"] + max(p["backward"], 8 * p["way"])
            + max(p["update"], 8 * p["way"], third),
    }  # fmt: skip
    if where == "disk":
        known = {
            "the state must also be written": begin + max(rest, p["half"]),
            "the disk either reads or writes, not both at once": begin + max(rest, p["both"]),
            "the disk works during the update: only the longest counts": begin + rest + third,
        } | known
    return known


def _case(run: Run, **fixed: float) -> dict[str, Any]:
    """A hidden model and machine, at whose sizes no two of the parts are equal."""
    case: dict[str, Any] = {
        "parameters": run.number(100, 900) * 1e7, "tokens": run.number(200, 90_000),
        "flops": run.number(50, 400) * 1e12, "link": run.number(8, 60) * 1e9,
        "update": run.number(3000, 30_000) * 1e5, "read": run.number(6000, 14_000) * 1e6,
        "write": run.number(1000, 5500) * 1e6,
    }  # fmt: skip
    return case | fixed


def _inputs(run: Run) -> dict[str, Any]:
    """Cases in which each part is once the longest."""
    cases = [_case(run, tokens=7, link=8e9)]  # the way down outweighs backward, and no more
    cases += [_case(run) for _ in range(4)]
    cases += [
        _case(run, tokens=7, update=1e12),  # the way down, and the way up
        _case(run, tokens=500_000, update=1e10, read=4e11, write=3e11),  # backward
        _case(run, tokens=60_000, link=3e8, update=1e8),  # down during forward and backward
        _case(run, update=1e8, read=1e12, write=1e12),
        EXACT,
    ]
    return {"cases": cases, "shares": [1e-7, 0.1, 0.5, 0.9, 0.995]}


@check("seconds of a step with the state on the device, the host and the disk", points=4, code="S")
@diagnosis("draw the bars of a step: what runs at the same time is a max, what follows is a sum")
def check_seconds(run: Run) -> None:
    """S: hidden machines, among them such in which one part outweighs all others."""
    given = _inputs(run)
    result = run(drive, given, world=2)
    for output in result.outputs:
        found = output["seconds"]
        for case, values in zip(given["cases"], found, strict=True):
            for where, value in zip(PLACES, values, strict=True):
                wanted = _seconds(case, case["tokens"], where)
                if math.isclose(value, wanted, rel_tol=1e-9):
                    continue
                near = (
                    why
                    for why, other in _likely(case, where).items()
                    if math.isclose(value, other, rel_tol=1e-9)
                )
                run.fail(
                    f"the seconds of a step with the state on the {where}",
                    expected=f"{wanted:.6g} s",
                    measured=f"{value:.6g} s",
                    cause=next(near, ""),
                )


@check("the fewest tokens for an efficiency", points=3, code="S")
@diagnosis("the share grows with the tokens: search, and return the first that is enough")
def check_tokens(run: Run) -> None:
    """S: the answer is enough, and one token less is not."""
    given = _inputs(run)
    result = run(drive, given, world=2)
    for output in result.outputs:
        found = output["tokens"]
        asked = [(where, share) for where in PLACES[1:] for share in given["shares"]]
        for case, answers in zip(given["cases"], found, strict=True):
            for (where, share), answer in zip(asked, answers, strict=True):
                what = f"tokens for a share of {share} with the state on the {where}"
                whole = isinstance(answer, int) and answer >= 1
                run.true(whole, f"{what}: not a whole number above 0", measured=repr(answer))
                reached, less = (
                    _seconds(case, n, "device") / _seconds(case, n, where)
                    for n in (answer, max(answer - 1, 1e-9))
                )
                run.true(
                    reached >= share * (1 - 1e-12),
                    f"{what}: {answer:,} are too few",
                    expected=f"a share of {share}",
                    measured=f"{reached:.6f}",
                    cause="round up, and compare the whole step",
                )
                slack = 0.0 if case == EXACT and share == 0.5 else 1e-12
                fewest = answer == 1 or less < share * (1 + slack)
                run.true(
                    fewest,
                    f"{what}: {answer:,} are too many",
                    expected="the fewest",
                    measured=f"{answer - 1:,} reach {less:.6f}",
                    cause="a power of two need not be the fewest: search below it; and a share "
                    "that is just reached is enough",
                )
