"""goodput and lost: where the time of a log went."""

from __future__ import annotations

import random
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Useful time and paid time",
    core=False,
    minutes=20,
    order=5,
    defines=("goodput", "lost"),
    library=(),
    hints=(
        "Which attempt at a step is the useful one? First find it for every step; then go "
        "through the log once.",
        "A dict from step to its last (end, begin), made from the finished steps in the order of "
        "their ends. All other spans named `step` were repeated.",
        "paid = (last end - first begin) · ranks; each span adds (end - begin) / paid to its "
        "name; `idle` is 1 minus the sum of the others.",
    ),
)

Log = list[tuple[float, float, str, int | None]]


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Any]) -> dict[str, Any]:
    """Each log."""
    logs = [([tuple(span) for span in log], ranks) for log, ranks in cases]
    found: list[dict[str, Any]] = []
    for log, ranks in logs:
        shares = {name: float(share) for name, share in learner.lost(log, ranks).items()}
        answer = {"goodput": float(learner.goodput(log, ranks)), "lost": shares, "log": log}
        found.append(answer)
    return {"found": found}


# --- by the rules --------------------------------------------------------------------------------
def shares(log: Log, ranks: int, repeated: str = "last") -> dict[str, float]:
    """The right ones; or with every attempt useful ("all"), or the first ("first")."""
    paid = (max(span[1] for span in log) - min(span[0] for span in log)) * ranks
    kept: dict[int | None, tuple[float, float]] = {}
    for begin, end, what, step in sorted(log, key=lambda span: span[1]):
        if what == "step" and not (repeated == "first" and step in kept):
            kept[step] = begin, end
    found = {"repeated": 0.0, "step": 0.0}
    for begin, end, what, step in log:
        again = what == "step" and kept[step] != (begin, end) and repeated != "all"
        name = "repeated" if again else what
        found[name] = found.get(name, 0.0) + (end - begin) / paid
    return {**found, "idle": 1 - sum(found.values())}


def logs(run: Run) -> list[tuple[Log, int]]:
    """By hand, and jobs of chance: they go back after each failure."""
    found: list[tuple[Log, int]] = [
        ([(0, 2, "step", 0), (2, 4, "step", 1), (4, 5, "save", None)], 1),
        ([(5, 7, "step", 0), (7, 9, "step", 1), (9, 15, "restart", None), (15, 20, "step", 1)], 1),
        ([(20, 21, "step", 1), (0, 3, "step", 0), (3, 5, "step", 1), (6, 9, "step", 0)], 1),
        ([(0, 2, "step", 0), (0, 2, "step", 1), (2, 4, "wait", None), (4, 6, "step", 2)], 2),
        ([(0, 1, "start", None), (3, 4, "wait", None)], 4),
        ([(0, 1, "start", None), (1, 10, "step", 0), (5, 8, "step", 0)], 2),
    ]
    for seed in range(3):
        chance, now, step = random.Random(run.number(0, 1 << 30) + seed), 0.0, 0
        log: Log = []
        for _ in range(60):
            long = chance.uniform(1, 2)
            if chance.random() < 0.1:
                log.append((now, now + long / 2, "cut short", None))
                log.append((now + long / 2, now + 4 * long, "restart", None))
                now, step = now + 4 * long, step // 5 * 5
            else:
                log.append((now, now + long, "step", step))
                now, step = now + long + chance.choice((0, 0, 0.5)), step + 1
        chance.shuffle(log)
        found.append((log, 1))
    return found


def compare(run: Run, key: str) -> None:
    """One of the two answers for all logs."""
    cases = logs(run)
    result = run(drive, {"cases": [list(case) for case in cases]}, world=2)
    for output in run.each(result.outputs):
        for number, ((log, ranks), found) in enumerate(zip(cases, output["found"], strict=True)):
            right = shares(log, ranks)
            every, first = (shares(log, ranks, which) for which in ("all", "first"))
            what = f"log {number + 1}, {len(log)} spans of {ranks} ranks"
            if key == "goodput":
                run.close(found[key], right["step"], f"the goodput of {what}", likely={
                    "a step that was repeated is useful only once": every["step"],
                    "the last attempt at a step is the useful one": first["step"],
                    "the paid time counts every rank": right["step"] * ranks,
                    "idle time is paid for": right["step"] / max(1e-9, 1 - right["idle"]),
                })  # fmt: skip
                continue
            run.equal(found["log"], log, f"{what}, when they had been asked about: it")
            run.equal(sorted(found[key]), sorted(right), f"the names in lost of {what}")
            for name, share in right.items():
                run.close(found[key][name], share, f"the share of {name} in {what}",
                          terms=100)  # fmt: skip


@check("goodput", points=5, code="E")
@diagnosis("the time of last attempts, divided by the paid time of all ranks")
def check_goodput(run: Run) -> None:
    """E: by hand and by chance."""
    compare(run, "goodput")


@check("the shares of the paid time", points=4, code="E")
@diagnosis("one share for each name in the log, and for step, repeated and idle")
def check_lost(run: Run) -> None:
    """E: the same logs."""
    compare(run, "lost")
