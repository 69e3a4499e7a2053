"""quorum and deal: who makes the next step, and with which batches, case by case."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Result, Run, check, diagnosis

EXERCISE = Exercise(
    title="Who takes the next step",
    core=True,
    minutes=30,
    order=1,
    defines=("quorum", "deal"),
    library=(),
    hints=(
        "Answer three questions in turn. Which ranks are alive? Are more than half of the "
        "members among them? Which living members have the newest step?",
        "Let `living` be the sorted list of all living ranks, and `stayed` the members among "
        "them. Compare twice the length of `stayed` with the number of members. Only ranks in "
        "`stayed` can be present; all others in `living` heal.",
        "If `others` are the ranks that heal, in ascending order, the source of the i-th is "
        "`present[i % len(present)]`. In `deal`, put the batches of absent ranks back and sort "
        "before you hand any out.",
    ),
)

Answer = list[Any] | None


class Case(NamedTuple):
    """One call of `quorum`: heartbeats as (rank, time, worked, step)."""

    members: list[int]
    heard: list[tuple[int, float, float, int | None]]
    now: float
    limits: tuple[float, float]


class Slip(NamedTuple):
    """Mistakes that a card can name."""

    silent: bool = True  # whether silence is looked at
    stuck: bool = True
    majority: str = "half"  # "any", "equal" (half is enough), "helped" (strangers help)
    source: str = "turn"
    strangers: bool = False  # whether those who are no members may be present
    all_present: bool = False
    zero: bool = False  # whether step 0 counts as none


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """Each case, and once more with the dict filled the other way round."""
    found: list[Any] = []
    same = True
    for members, heard, now, limits in cases:
        for rows in (heard, heard[::-1]):
            beats = {row[0]: learner.Heartbeat(*row[1:]) for row in rows}
            given = list(members), dict(beats)
            back = learner.quorum(*given, now, learner.Limits(*limits))
            same &= given == (members, beats)
            if back is not None:
                step, present, healing = back
                back = [step, list(present), sorted([a, b] for a, b in healing.items())]
            found.append(back)
    return {"found": found, "same": same}


def drive_deal(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """Each case; and whether the arguments are what they were."""
    found = []
    for todo, held, present in cases:
        given = list(todo), dict(held), list(present)
        left, kept = learner.deal(*given)
        same = given == (list(todo), dict(held), list(present))
        found.append([list(left), sorted([a, b] for a, b in kept.items()), same])
    return {"found": found}


# --- by the rules --------------------------------------------------------------------------------
def answer(case: Case, slip: Slip = Slip()) -> Answer:  # noqa: B008
    """What the rules say, or what a known mistake makes of them."""
    silent, stuck = case.limits
    step_of = {rank: step for rank, *_, step in case.heard}
    living = sorted(
        rank
        for rank, time, worked, _ in case.heard
        if (case.now - time <= silent or not slip.silent)
        and (case.now - worked <= stuck or not slip.stuck)
    )
    stayed = [rank for rank in living if rank in case.members]
    voices = len(living) if slip.majority == "helped" else len(stayed)
    enough = 2 * voices > len(case.members)
    if slip.majority == "equal":
        enough = 2 * voices >= len(case.members)
    if not (enough or slip.majority == "any"):
        return None
    able = living if slip.strangers else stayed
    steps = [step for rank in able if (step := step_of[rank]) is not None]
    if not steps or (slip.zero and not any(steps)):
        return None
    present = [r for r in able if step_of[r] == max(steps) or slip.all_present]
    others = [rank for rank in living if rank not in present]
    turn = (lambda i: 0) if slip.source == "first" else (lambda i: i % len(present))
    return [max(steps), present, [[rank, present[turn(i)]] for i, rank in enumerate(others)]]


NOW, LIMITS = 100.0, (1.0, 8.0)


def case(
    members: str, *heard: tuple[int, int | None] | tuple[int, int | None, float, float]
) -> Case:
    """(rank, step) was just heard of; (rank, step, silent, idle) so many seconds ago."""
    rows = []
    for rank, step, *ago in heard:
        silent, idle = ago or (0.25, 0.5)
        rows.append((rank, NOW - float(silent), NOW - float(idle), step))
    return Case([int(rank) for rank in members], rows, NOW, LIMITS)


def by_chance(run: Run, count: int) -> list[Case]:
    """Rooms in which anything may have happened."""
    chance, found = random.Random(run.number(0, 1 << 30)), []
    for _ in range(count):
        ranks = chance.sample(range(12), 8)
        rows = [
            (rank, NOW - chance.choice((0.5, 0.9, 1.5)), NOW - chance.choice((1.0, 7.5, 9.0)),
             chance.choice((None, 6, 7, 7, 7, 8)))
            for rank in ranks
        ]  # fmt: skip
        found.append(Case(chance.sample(range(12), chance.randint(3, 8)), rows, NOW, LIMITS))
    return found


ALIVE = [
    case("0123", (0, 7), (1, 7), (2, 7, 1.5, 1.5), (3, 7)),
    case("0123", (0, 7), (1, 7), (2, 7, 0.25, 9.0), (3, 7)),
    case("012", (0, 7, 1.0, 8.0), (1, 7), (2, 7)),
    case("012", (0, 7), (1, 7)),
]
CUT = [
    case("01234", (0, 7), (1, 7), (3, 7, 3.0, 3.0)),
    case("0123", (0, 7), (1, 7), (2, 7, 3.0, 3.0), (3, 7, 3.0, 3.0)),
    case("01234", (0, 7), (1, 7), (2, 7, 3.0, 3.0), (5, 7), (6, 7)),
    case("01234", (0, 7), (1, 7), (2, 7)),
    case("01", (0, 7), (1, 7, 3.0, 3.0)),
]
HEAL = [
    case("0123", (0, 7), (1, 6), (2, 7), (3, None)),
    case("012", (0, 7), (1, 7), (2, 7), (5, 9), (4, None), (6, 7)),
    case("012", (0, None), (1, None), (2, None)),
    case("012", (0, 0), (1, 0), (2, None)),
    case("0123", (1, 7), (3, 7), (0, None), (2, None), (8, None), (9, 3)),
]
SLIPS = {
    "a silent rank is not alive: it was killed, frozen or cut off": Slip(silent=False),
    "a rank whose work hangs still sends heartbeats": Slip(stuck=False),
    "half is not more than half: after a network split, both halves would go on": Slip(
        majority="equal"
    ),
    "ranks that are not members do not count towards the majority": Slip(majority="helped"),
    "after a split, both sides would go on: more than half of the members must be alive": Slip(
        majority="any"
    ),
    "nobody knows the weights of a rank that is not a member: it heals": Slip(strangers=True),
    "a rank that is behind, or has no weights, is not present": Slip(all_present=True),
    "the present ranks take turns as sources": Slip(source="first"),
    "step 0 is a step: only None says that a rank has no weights": Slip(zero=True),
}


CHANGED = "make new ones: `sorted(...)`, `dict(...)`"
UNSORTED = "ranks are taken in the order of the dict: take them in ascending order"


def compare(run: Run, cases: list[Case]) -> Result:
    """Compares every answer with the rules."""
    back = run(drive, {"cases": [list(each) for each in cases]}, world=2)
    for output in run.each(back.outputs):
        found = output["found"]
        for number, each in enumerate(cases):
            right = answer(each)
            for order, place in (
                ("", 2 * number),
                (", with its dict filled in reverse", 2 * number + 1),
            ):
                likely = {why: answer(each, slip) for why, slip in SLIPS.items()}
                if order and found[2 * number] == right:
                    likely[UNSORTED] = found[place]
                what = f"the quorum of members {each.members} at {each.now:g}{order}"
                run.equal(found[place], right, what, likely=likely)
    return back


@check("who is alive", points=3, code="E")
@diagnosis("there are two limits, and both are inclusive")
def check_alive(run: Run) -> None:
    """E: silent, stuck, and never heard of."""
    compare(run, ALIVE)


@check("never two quorums", points=4, code="E")
@diagnosis("more than half of the members")
def check_cut(run: Run) -> None:
    """E: cuts through the middle, and strangers on one side."""
    compare(run, CUT)


@check("the newest weights, and the source of each healing rank", points=4, code="E")
@diagnosis("only members are present; the others heal in turn")
def check_heal(run: Run) -> None:
    """E: late, new and returning ranks."""
    compare(run, HEAL)


@check("random cases", points=3, code="E")
@diagnosis("the same rules, with members and heartbeats drawn at random")
def check_chance(run: Run) -> None:
    """E: hidden cases."""
    back = compare(run, by_chance(run, 60))
    for output in run.each(back.outputs):
        run.true(output["same"], "an argument of `quorum` was changed", cause=CHANGED)


DEALS: list[tuple[list[int], list[tuple[int, int]], list[int], str]] = [
    ([4, 5, 6, 7, 8], [], [0, 1, 3], "a first step"),
    ([9, 8, 10], [(0, 4), (1, 5), (2, 6), (3, 7)], [0, 2, 3], "rank 1 is lost"),
    ([8, 9, 10], [(0, 4), (1, 5), (2, 6)], [0, 2, 5], "rank 1 is lost, rank 5 is back"),
    ([9], [(1, 3)], [0, 1, 2], "fewer batches than ranks"),
    ([3, 4], [(0, 1), (3, 0)], [1, 3], "rank 0 is lost, rank 1 is new, rank 3 holds batch 0"),
]


@check("the batch of a lost rank", points=4, code="E")
@diagnosis("it goes back and is dealt out again: it is neither counted nor lost")
def check_deal(run: Run) -> None:
    """E: batches that are kept, given back and dealt out."""
    given = [[todo, dict(held), present] for todo, held, present, _ in DEALS]
    for output in run.each(run(drive_deal, {"cases": given}, world=2).outputs):
        for (todo, held, present, what), found in zip(DEALS, output["found"], strict=True):
            kept = {r: b for r, b in held if r in present}
            free = [b for r, b in held if r not in present]
            slips = {}
            for why, pool in (
                ("", sorted([*todo, *free])),
                ("the batch that the lost rank held is missing", sorted(todo)),
                ("the smallest batch goes first: sort before you deal", [*todo, *free]),
            ):
                now, left = dict(kept), list(pool)
                for r in present:
                    if r not in now and left:
                        now[r] = left.pop(0)
                slips[why] = [left, sorted([a, b] for a, b in now.items()), True]
            right = slips.pop("")
            run.true(found[2], f"{what}: an argument was changed", cause=CHANGED)
            afresh = sorted([*todo, *(b for _, b in held)])
            dealt = [list(pair) for pair in zip(present, afresh, strict=False)]
            new = [afresh[len(present) :], dealt, True]
            slips["a present rank keeps its batch: it already has its gradient"] = new
            name = f"{what}: the batches left, and those that each rank holds"
            run.equal(found, right, name, likely=slips)
