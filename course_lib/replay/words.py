"""A difference in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.replay.entries import Call
from course_lib.replay.own import Own
from course_lib.replay.recording import Recording
from course_lib.trace.hangs.desync import names

EQUAL = "everything before was bit-identical"
BECAUSE = {
    "compute": f"it reads different bits; {EQUAL}. So the difference arose on {{ranks}}",
    "sum": f"it returns different bits although every rank of the group gave it equal ones; {EQUAL}"
    ". So the cause is the network, or the order of summation",
    "received": f"it returns different bits; {EQUAL}. Whose they are cannot be told, since the log "
    "of a rank of the group is missing or too short",
    "batch": f"a different batch; {EQUAL}",
    "random": f"random generators are in a different state ({{also}}); {EQUAL}",
    "loss": f"a different loss; {EQUAL}, and so were this step's calls",
}


def difference(
    kind: str, same: Sequence[Own], others: Sequence[Own], reached: Sequence[int]
) -> str:
    """Where it is, why it is there, and where it went."""
    start = same[0]
    ranks = names(own.rank for own in same)
    because = (
        _program(start) if kind == "program" else BECAUSE[kind].format(ranks=ranks, also=start.also)
    )
    also = ""
    if start.also and kind == "batch":
        also = f". Random generators are in a different state as well ({start.also})"
    text = f"{_step(start.step)}, {ranks}{_call(start.call, kind)}: {because}{also}."
    if reached:
        text += f" It reached {names(reached)} through the results of a call."
    if others:
        each = ", ".join(f"{names([o.rank])} at {_step(o.step).lower()}" for o in others)
        text += f" Independently of it, {each} differs by itself."
    return text


def losses(first: int, second: int, step: int, mine: float, other: float) -> str:
    """Losses of runs on different numbers of ranks."""
    gap = abs(other - mine) / abs(mine) if mine else abs(other)
    return (
        f"{first} against {second} ranks: their calls cannot be compared, only the losses. "
        f"Step {step}: {mine!r} and {other!r}, {gap:.1e} of it apart. Sums over other parts are "
        "rounded in other places, so some difference is expected."
    )


def environments(first: Recording, second: Recording) -> str:
    """In what the machines of two runs differ."""
    mine, other = (next(iter(run.ranks.values())).start.environment for run in (first, second))
    out = [
        f"{name} {mine.get(name)} and {other.get(name)}"
        for name in dict.fromkeys([*mine, *other])
        if mine.get(name) != other.get(name)
    ]
    return f"The environments differ: {', '.join(out)}." if out else ""


def damage(first: Recording, second: Recording) -> str:
    """What is missing of the logs."""
    runs = {"first": list(first.damage), "second": list(second.damage)}
    return " ".join(f"Of the {name} run: {' '.join(said)}" for name, said in runs.items() if said)


def agreement(first: Recording, second: Recording) -> str:
    """Runs in which nothing differs."""
    both = [rank for rank in first.ranks if rank in second.ranks]
    steps = min(
        (min(len(run.ranks[rank].steps) for run in (first, second)) for rank in both), default=0
    )
    calls = sum(min(len(run.ranks[rank].calls) for run in (first, second)) for rank in both)
    if first.world != second.world:
        steps = len(first.losses.keys() & second.losses.keys())
        ranks = f"{first.world} against {second.world} ranks"
        return f"{ranks}: only losses can be compared, and they agree in {steps} steps."
    count = f"{steps} steps and {calls} calls on {len(both)} ranks"
    notes = (environments(first, second), damage(first, second))
    return " ".join(filter(None, (f"Equal to the bit in {count}.", *notes)))


def _step(step: int) -> str:
    return "Before the first step" if step < 0 else f"Step {step}"


def _call(call: Call | None, kind: str) -> str:
    return "" if call is None or kind == "program" else f", call {call.number} ({call.text})"


def _program(own: Own) -> str:
    """Programs that are not the same."""
    if own.call is None and own.other is None:
        return f"the programs differ: {own.also}; {EQUAL}"
    first, second = (
        "no further call" if call is None else f"call {call.number}, {call.text}"
        for call in (own.call, own.other)
    )
    return f"the programs differ: the first run makes {first}; the second {second}; {EQUAL}"
