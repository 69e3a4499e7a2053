"""gc_together: what pauses cost, and in which steps the collector ran, by its own callbacks."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="Garbage collection on all ranks in one step",
    core=False,
    minutes=30,
    order=14,
    defines=("saved", "Together"),
    hints=(
        "`saved`: first a table [N, calls] of the seconds that each rank's pauses took before each "
        "of its calls; then it is one line. `Together`: write down what each of entering, a step "
        "and leaving has to do, in which order. Can a rank know alone whether another one is full?",
        "A pause belongs to the first call that the rank began after it. Both times are a maximum "
        "over ranks: of when they came, and of when they would have come. In `Together`, collect "
        "before you freeze, remember `gc.isenabled()`, and let `number` decide, not a counter.",
        "`begins.max(0).values - (begins - own).max(0).values`. In `step`: if (number + 1) % every "
        "is not 0, all-reduce torch.tensor([held > most], dtype=torch.int64) with `max` and return "
        "False if nobody is full; otherwise gc.collect() and True.",
    ),
)


LIMIT = 24 * 2**30 + 10  # bytes: more than a float32 or an int32 can count
THAWED = "what was frozen stays frozen for the rest of the program"


# --- what runs on the ranks ----------------------------------------------------------------------
class Circle:
    """Garbage that only the collector can free, once nobody else has it."""

    def __init__(self) -> None:
        self.me = self


def drive_saved(learner: Any, group: Any, cases: list[Any]) -> list[Any]:
    """What each call of each case would gain, and what is left of what was given."""
    return [(learner.saved(begins, pauses), begins, pauses) for begins, pauses in cases]


def drive_steps(
    learner: Any, group: Any, every: int, most: int, held: list[int], start: int, litter: int
) -> dict[str, Any]:
    """Some steps that leave circles behind: what was collected, when, and of which generation."""
    seen: list[tuple[str, int, int]] = []
    where, number = "before", start - 1

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append((where, number, info["generation"]))

    gc.enable()
    said = []
    gc.callbacks.append(look)
    try:
        with learner.Together(group, every, most) as together:
            for number, bytes_held in enumerate(held, start):
                where = "between"
                circles = [Circle() for _ in range(litter)]
                del circles
                where = "step"
                said.append(together.step(number, bytes_held))
            where = "left"
    finally:
        gc.callbacks.remove(look)
    return {"said": said, "seen": seen}


def drive_life(learner: Any, group: Any, enabled: bool, fails: bool) -> dict[str, Any]:
    """Circles from before, from outside and from inside; how the collector is left."""
    gc.enable()
    gc.collect()
    gc.disable()
    early, held, inside, late = Circle(), Circle(), Circle(), Circle()
    refs = {"early": weakref.ref(early), "held": weakref.ref(held)}
    del early
    (gc.disable if enabled else gc.enable)()  # as it is made; what counts is when it is entered
    loop = learner.Together(group, 2, 10)
    (gc.enable if enabled else gc.disable)()
    alive, caught = {}, False
    try:
        with loop as together:
            alive["early, inside"] = refs["early"]() is not None
            inside = Circle()
            refs["inside"] = weakref.ref(inside)
            late = Circle()
            refs["late"] = weakref.ref(late)
            del held, inside
            together.step(0, 0)
            alive["inside, before its step"] = refs["inside"]() is not None
            together.step(1, 0)
            alive["inside, behind its step"] = refs["inside"]() is not None
            alive["held, frozen"] = refs["held"]() is not None
            del late
            together.step(3, 0)
            alive["inside, after one collection"] = refs["late"]() is not None
            if fails:
                raise KeyError("a batch is missing")
    except KeyError:
        caught = True
    by_itself = gc.isenabled() and gc.get_threshold()[0] > 0
    gc.enable()
    gc.collect()
    alive["held, thawed"] = refs["held"]() is not None
    return {"alive": alive, "caught": caught, "by itself": by_itself}


# --- what they must bring back -------------------------------------------------------------------
def _cases(run: Run) -> list[Any]:
    """Traces of two to five ranks whose collectors stop now and then; sums of times are exact."""
    rng, found = random.Random(run.number(0, 2**31)), []

    def seconds(most: float) -> float:
        return rng.randint(1, int(most * 2**30)) / 2**30

    for ranks in (2, 3, 4, 5, 5, 3):
        begins: list[Any] = []
        pauses: list[list[Any]] = [[] for _ in range(ranks)]
        now = 10.0
        for _ in range(8):
            came = []
            for rank in range(ranks):
                at = now
                for _ in range(rng.choice((0, 0, 1, 2))):
                    at += seconds(1)
                    long = seconds(2)
                    pauses[rank].append((at, at + long))
                    at += long
                came.append(at + seconds(1))
            begins.append(came)
            now = max(came) + seconds(0.25)
        pauses[0].append((now, now + 1.0))  # behind the last call
        for own in pauses:
            rng.shuffle(own)
        found.append((torch.tensor(begins, dtype=torch.float64).T.contiguous(), pauses))
    return found


def _own(begins: torch.Tensor, pauses: list[Any]) -> torch.Tensor:
    """Seconds of pauses before each call."""
    own = torch.zeros_like(begins)
    for rank, stops in enumerate(pauses):
        for begin, end in stops:
            later = [call for call in range(begins.shape[1]) if begins[rank, call] > begin]
            if later:
                own[rank, later[0]] += end - begin
    return own


@check("what each call would gain without the collector", points=4, code="E")
@diagnosis(
    "the time at which the last rank came, minus the time at which the last one would have come"
)
def check_saved(run: Run) -> None:
    """E: two to five ranks, several pauses before a call, pauses of early and of late ranks."""
    cases = _cases(run)
    for found in run.each(run(drive_saved, {"cases": cases}, world=2).outputs):
        for (begins, pauses), (answer, *left) in zip(cases, found, strict=True):
            run.equal(left, [begins, pauses], "what was given to saved")
            own = _own(begins, pauses)
            last = begins.argmax(0, keepdim=True)
            sums = own.cumsum(1)
            run.close(
                answer,
                begins.max(0).values - (begins - own).max(0).values,
                f"the gain of each of 8 calls of {len(begins)} ranks",
                likely={
                    "the pauses of the rank that came last: another may come last without them":
                        own.gather(0, last)[0],
                    "the longest pauses of any rank: a rank that waits anyway may pause":
                        own.max(0).values,
                    "pauses before earlier calls have been paid for there":
                        begins.max(0).values - (begins - sums).max(0).values,
                }
            )  # fmt: skip


def _steps(run: Run, held: list[list[int]], every: int, most: int, start: int) -> Any:
    inputs = [
        {"every": every, "most": most, "held": own, "start": start, "litter": 1500 + 900 * rank}
        for rank, own in enumerate(held)
    ]
    return run(drive_steps, inputs, world=len(held))


def _judge(run: Run, result: Any, right: list[bool], start: int) -> None:
    steps = [start + place for place, yes in enumerate(right) if yes]
    for output in run.each(result.outputs):
        # Until the collector is off, Python may collect what is young at any time.
        whole = [generation == 2 for where, _, generation in output["seen"] if where == "before"]
        run.equal(sum(whole), 1, "the number of whole collections when it is entered")
        alone = sorted({number for where, number, _ in output["seen"] if where == "between"})
        run.true(not alone, "the collector ran by itself between two steps",
                 measured=f"in steps {alone}")  # fmt: skip
        inside = [(number, generation) for where, number, generation in output["seen"]
                  if where == "step"]  # fmt: skip
        run.equal(
            inside, [(number, 2) for number in steps],
            "(step, generation) of the collections",
            likely={"a collection of the young objects alone: circles grow old":
                    [(number, 0) for number in steps],
                    "the same, of generation 1": [(number, 1) for number in steps]}
        )  # fmt: skip
        run.equal(output["said"], right, "what `step` returned")


@check("every few steps, on all ranks in the same step, and at no other time", points=3, code="O")
@diagnosis("the step's number decides, the same on all ranks; nothing runs by itself")
def check_steps(run: Run) -> None:
    """O: three ranks that make different amounts of garbage, in a run that goes on."""
    every, start = run.number(3, 5), run.number(7, 12)
    result = _steps(run, [[5] * 9] * 3, every, 10, start)
    _judge(run, result, [(start + n + 1) % every == 0 for n in range(9)], start)


@check("one rank is full, and all collect", points=3, code="O")
@diagnosis("ask with one all-reduce whether any rank holds more than `most`")
@in_part
def check_full(run: Run) -> None:
    """O: a rank above the limit, one exactly at it, two at once."""
    held = [[5, 5, 10, 11, 5, 5, 99, 5], [5, 99, 5, 5, 10, 5, 5, 5], [10, 5, 5, 5, 5, 5, 11, 5]]
    held = [[LIMIT - 10 + size for size in own] for own in held]
    for ranks in (held, held[:1]):
        result = _steps(run, ranks, 6, LIMIT, 0)
        full = [any(own[n] > LIMIT for own in ranks) for n in range(8)]
        _judge(run, result, [yes or (n + 1) % 6 == 0 for n, yes in enumerate(full)], 0)


@check("one number is asked about in a step, none where the step decides", points=2, code="B")
@diagnosis("an all-reduce of one number in each step that is no multiple of `every`")
def check_calls(run: Run) -> None:
    """B: calls and their sizes over eight steps."""
    result = _steps(run, [[5] * 8, [5] * 8], 4, 10, 0)
    for ledger in run.each(result.ledgers):
        calls = [(event.op, torch.Size(event.shape).numel()) for event in ledger.calls()]
        run.equal(calls, [("all_reduce", 1)] * 6, "the calls of eight steps, every = 4",
                  likely={"in each step, although its number alone decides two of them":
                          [("all_reduce", 1)] * 8})  # fmt: skip


@check(
    "garbage from before goes at once, what lives is frozen, what is made inside is freed",
    points=3,
    code="M",
)
@diagnosis("collect, then freeze, when it is entered; thaw when it is left")
def check_life(run: Run) -> None:
    """M: circles of objects, told by weak references."""
    result = run(drive_life, {"enabled": True, "fails": False}, world=2)
    right = {
        "early, inside": False,
        "inside, before its step": True,
        "inside, behind its step": False,
        "held, frozen": True,
        "inside, after one collection": False,
        "held, thawed": False,
    }
    causes = {
        "early, inside": "frozen before it was collected: garbage is kept to the end",
        "held, frozen": "what was there before is looked at in each collection",
        "inside, after one collection": "frozen by a collection: only entering freezes",
        "held, thawed": THAWED,
    }
    for output in run.each(result.outputs):
        for name, lives in right.items():
            likely = {causes.get(name, ""): not lives}
            what = f"whether a circle lives ({name})"
            run.equal(output["alive"].get(name), lives, what, likely=likely)


@check("the collector is left as it was found, also by an exception", points=2, code="O")
@diagnosis("remember gc.isenabled() before you disable it; __exit__ returns nothing")
def check_left(run: Run) -> None:
    """O: it ran by itself or did not, and the loop ended well or did not."""
    for enabled in (True, False):
        for fails in (True, False):
            result = run(drive_life, {"enabled": enabled, "fails": fails}, world=2)
            for output in run.each(result.outputs):
                case = f"it did before: {enabled}, an exception: {fails}"
                run.equal(output["by itself"], enabled, f"whether it runs by itself ({case})")
                run.equal(output["caught"], fails, f"whether the exception came out ({case})")
                what = f"whether a circle from before lives at the end ({case})"
                run.equal(output["alive"]["held, thawed"], False, what, likely={THAWED: True})
