"""Whatever is written as a schedule is refused in three lines, or runs to an end as it should."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from course_lib.schedule import (
    SCHEDULES,
    Action,
    Costs,
    Schedule,
    ScheduleError,
    Simulation,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    make_schedule,
    one_f_one_b,
    simulate,
    split_model,
    split_stages,
    zb_h1,
    zb_v,
)

Word = tuple[int, str, int]
WORDS = [
    "0F", "F0", "0f0", "0F0B0", "-1F0", "0F-1", "0.5F0", "1e3F0", "٣F0", "0F²", "０F０", "0X0", "",
    "000F0", "0F00", "+0F0", "0_0F0", "99999999999F0", "0F99999999999", "9" * 5000 + "F0", "\0",
    "0F" + "9" * 5000, "NaNF0", "0F0\x0b0B0", "0F0\u20280B0", "None", "0\u200bF0", "é", "0F0,0B0",
    "999999999F0", "0F999999999", "0B999999999", "\ud800F0",
]  # fmt: skip
NUMBERS = [-(10**30), -7, -1, 0, 1, 2, 3, 4, 5, 8, 10**9, 10**30, 2.5, 3.0, math.nan, math.inf,
           True, "2", None]  # fmt: skip


# --- the oracle: the rules of a schedule, written down a second time ------------------------------
def words_of(text: str) -> list[list[Word]] | None:
    """The table in a text; None if a word is no action. Splits letters instead of matching them."""
    table: list[list[Word]] = []
    for line in text.strip().splitlines():
        table.append([])
        for word in line.split():
            letters = [at for at, sign in enumerate(word) if sign in ("F", "B", "I", "W")]
            stage, micro = (word[: letters[0]], word[letters[0] + 1 :]) if letters else ("", "")
            for number in (stage, micro):
                plain = number and set(number) <= set("0123456789") and len(number) < 10
                if not plain or str(int(number)) != number:
                    return None
            table[-1].append((int(stage), word[letters[0]], int(micro)))
    return table


def runs_to_an_end(table: list[list[Word]]) -> bool:
    """Plays a table by brute force: again and again, the first rank that can do its next action."""
    flat = [word for line in table for word in line]
    stages, micros = {w[0] for w in flat}, {w[2] for w in flat}
    homes = {(w[0], rank) for rank, line in enumerate(table) for w in line}
    whole = (
        len(stages) == max(stages, default=-1) + 1 and len(micros) == max(micros, default=-1) + 1
    )
    if not flat or not all(table) or not whole or len(homes) != len(stages):
        return False
    for stage in stages:
        for micro in micros:
            kinds = sorted(w[1] for w in flat if (w[0], w[2]) == (stage, micro))
            if kinds not in (["B", "F"], ["F", "I", "W"]):
                return False
    done: set[Word] = set()
    queues = [list(line) for line in table]
    while ready := [q for q in queues if q and may_run(q[0], done, max(stages))]:
        done.add(ready[0].pop(0))
    return not any(queues)


def may_run(word: Word, done: set[Word], last: int) -> bool:
    """Whether all that an action needs is over."""
    stage, kind, micro = word
    if kind == "F":
        return stage == 0 or (stage - 1, "F", micro) in done
    if kind == "W":
        return (stage, "I", micro) in done
    behind = stage == last or any((stage + 1, k, micro) in done for k in "BI")
    return (stage, "F", micro) in done and behind


def check_times(run: Simulation, costs: Costs) -> None:
    """A simulation is one in time: no rank does two things at once, nothing begins too early."""
    slots = {(s.action.stage, s.action.kind, s.action.micro): s for line in run.slots for s in line}
    last = max(stage for stage, _, _ in slots)
    for line in run.slots:
        for before, after in zip(line, line[1:], strict=False):
            assert before.end <= after.begin
    for (stage, kind, micro), slot in slots.items():
        length = {"F": costs.forward, "B": costs.input + costs.weight, "I": costs.input,
                  "W": costs.weight}[kind]  # fmt: skip
        assert slot.end - slot.begin == pytest.approx(length)
        if kind == "F":
            needed = [(stage - 1, "F", micro)] if stage else []
        elif kind == "W":
            needed = [(stage, "I", micro)]
        else:
            behind = (stage + 1, "B" if (stage + 1, "B", micro) in slots else "I", micro)
            needed = [(stage, "F", micro), *([behind] if stage < last else [])]
        for other in needed:
            assert slots[other].end <= slot.begin


def three_lines(error: ScheduleError) -> None:
    lines = str(error).splitlines()
    assert len(lines) == 3 and lines[0].startswith("asked") and lines[1].startswith("found"), lines
    assert max(map(len, lines)) < 2000


# --- generators ----------------------------------------------------------------------------------
def some_schedule(dice: Random) -> Schedule:
    p, v = dice.randrange(1, 5), dice.randrange(1, 4)
    m = dice.choice([p, 2 * p, 2 * p + dice.randrange(3)])
    make: Callable[[], Schedule] = dice.choice([
        lambda: gpipe(p, m), lambda: one_f_one_b(p, m), lambda: interleaved_1f1b(p, 2 * p, v),
        lambda: zb_h1(p, m), lambda: zb_v(p, m), lambda: dualpipe_v(p, 2 * p + m),
    ])  # fmt: skip
    return make()


def mutated(table: list[list[str]], dice: Random) -> None:
    """One change; many of them keep a schedule valid, and more do not."""
    line = dice.choice(table) if table else []
    a, b = (dice.randrange(len(line)) if line else 0 for _ in "ab")
    kind = dice.randrange(12)
    if not line or kind == 0:
        table.insert(dice.randrange(len(table) + 1), dice.choice([[], ["0F0", "0B0"], line[:]]))
    elif kind == 1:
        del line[a]
    elif kind == 2:
        line.insert(b, line[a])
    elif kind == 3:
        line[a], line[b] = line[b], line[a]
    elif kind == 4:
        line.insert(b, line.pop(a))
    elif kind == 5:
        line[a] = dice.choice(WORDS)
    elif kind == 6:  # another number, or another letter
        signs = list(line[a]) or ["0"]
        signs[dice.randrange(len(signs))] = dice.choice("0123456789FBIW")
        line[a] = "".join(signs)
    elif kind == 7:
        table.remove(line)
    elif kind == 8:
        dice.shuffle(table)
    elif kind == 9:
        dice.choice(table).append(line.pop(a))
    elif kind == 10:  # a whole backward in two halves, far apart
        line[a] = line[a].replace("B", "I")
        line.insert(dice.randrange(a + 1, len(line) + 1), line[a].replace("I", "W"))
    else:
        del line[a:]


def some_text(dice: Random) -> str:
    if dice.random() < 0.05:
        return "".join(dice.choice("0123FBIW \n\t\x0c٣é-") for _ in range(dice.randrange(40)))
    table = [list(map(str, line)) for line in some_schedule(dice).actions]
    for _ in range(dice.choice([0, 1, 1, 1, 2, 3, 8])):
        mutated(table, dice)
    return dice.choice(["\n", "\n", "\r\n"]).join(dice.choice(" \t").join(line) for line in table)


# --- tests ---------------------------------------------------------------------------------------
def test_a_text_is_refused_or_runs_to_its_end(fuzz: Any) -> None:
    def case(dice: Random) -> None:
        text = some_text(dice)
        table = words_of(text)
        expected = table is not None and runs_to_an_end(table)
        costs = Costs(*(dice.choice([0.5, 1, 2]) for _ in range(3)), dice.choice([0, 0, 0.25]))
        try:
            schedule = Schedule.parse(text)
            run = simulate(schedule, costs)
        except ScheduleError as error:
            assert not expected, f"{text}\n{error}"
            three_lines(error)
            return
        assert expected, text
        assert str(schedule).split() == text.split()
        assert schedule.actions == tuple(tuple(s.action for s in line) for line in run.slots)
        check_times(run, costs)

    fuzz(400, case)


def test_a_table_of_actions_is_refused_or_runs_to_its_end(fuzz: Any) -> None:
    """Actions that no text can write: negative numbers, fractions, other letters."""

    def case(dice: Random) -> None:
        rows = [list(line) for line in some_schedule(dice).actions]
        line = dice.choice(rows)
        at = dice.randrange(len(line))
        stage, kind, micro = line[at].stage, line[at].kind, line[at].micro
        wrong: list[Any] = [
            Action(stage - dice.randrange(9), kind, micro),
            Action(stage, kind, micro - dice.randrange(9)),
            Action(stage + 10 ** dice.randrange(40), kind, micro),
            Action(stage, kind, micro + 10 ** dice.randrange(40)),
            Action(stage + 0.5, kind, micro),  # type: ignore[arg-type]
            Action(stage, dice.choice(["", "FB", "f", "X"]), micro),
        ]
        new = dice.choice(wrong)
        line.insert(at, new) if dice.random() < 0.5 else line.__setitem__(at, new)
        micros = dice.choice([None, None, 0, 1, 2, 10**12, -1])
        table = [[(a.stage, a.kind, a.micro) for a in row] for row in rows]
        plain = new.kind in ("F", "B", "I", "W") and isinstance(new.stage, int)
        plain = plain and min(new.stage, new.micro) >= 0
        expected = plain and micros in (None, 1 + max(w[2] for row in table for w in row))
        expected = expected and runs_to_an_end(table)
        try:
            if micros is None:
                schedule = Schedule.of("mine", rows)
            else:
                schedule = Schedule("mine", tuple(map(tuple, rows)), micros)
            simulate(schedule)
        except ScheduleError as error:
            assert not expected, f"{rows}\n{error}"
            three_lines(error)
        else:
            assert expected, rows

    fuzz(150, case)


def test_builders_make_what_runs_or_refuse(fuzz: Any) -> None:
    def case(dice: Random) -> None:
        name = dice.choice([*SCHEDULES, "1f1b", "", "GPipe\0", "GPipe "])
        sizes: list[Any] = [
            dice.randrange(1, 7) if dice.random() < 0.7 else dice.choice(NUMBERS) for _ in "pmv"
        ]
        try:
            schedule = make_schedule(name, *sizes)
        except ScheduleError as error:
            three_lines(error)
            p, m, v = sizes
            used = sizes if name == "interleaved 1F1B" else sizes[:2]
            good = all(isinstance(n, int) and 1 <= n < 9 for n in used) and name in SCHEDULES
            divides = name != "interleaved 1F1B" or (good and m % p == 0)
            enough = name != "DualPipeV" or (good and m >= 2 * p)
            assert not (good and divides and enough), (name, sizes, str(error))
            return
        table = [[(a.stage, a.kind, a.micro) for a in line] for line in schedule.actions]
        assert runs_to_an_end(table), (name, sizes)
        assert (len(table), schedule.micro_batches) == tuple(sizes[:2])
        check_times(simulate(schedule), Costs())

    fuzz(150, case)


def test_costs_are_refused_or_give_finite_times(fuzz: Any) -> None:
    times = [0, 0.5, 1, 3, 1e300, -1, -0.0, math.nan, math.inf, -math.inf]

    def case(dice: Random) -> None:
        schedule = some_schedule(dice)
        count = schedule.stages + dice.choice([0, 0, 0, -1, 1, -schedule.stages])
        few = times[:4] if dice.random() < 0.5 else times
        costs = [Costs(*(dice.choice(few) for _ in range(4))) for _ in range(count)]
        flat = [t for c in costs for t in (c.forward, c.input, c.weight, c.message)]
        good = count == schedule.stages and all(math.isfinite(t) and t >= 0 for t in flat)
        try:
            run = simulate(schedule, costs)
        except ScheduleError as error:
            assert not good, error
            three_lines(error)
            return
        assert good
        assert math.isfinite(run.makespan)

    fuzz(100, case)


def test_layers_are_cut_into_stages_or_it_is_refused(fuzz: Any) -> None:
    def case(dice: Random) -> None:
        pool = [0.0, 1.0, 2.0, 5.5] + [math.nan, math.inf, -1.0] * (dice.random() < 0.3)
        costs = [dice.choice(pool) for _ in range(dice.randrange(9))]
        p = dice.choice([-1, 0, 1, 2, 3, 4, 10**9])
        cut = dice.choice([split_stages, split_model])
        layers = len(costs) if cut is split_stages else len(costs) - 2
        good = 1 <= p <= layers and all(math.isfinite(c) and c >= 0 for c in costs)
        try:
            found = cut(costs, p)
        except ScheduleError as error:
            assert not good, error
            three_lines(error)
            return
        assert good and len(found) == p and all(found)
        assert [layer for stage in found for layer in stage] == list(range(layers))

    fuzz(100, case)


# --- defects that these tests have found ---------------------------------------------------------
@pytest.mark.parametrize("text", ["٣F0", "0F²", "00F0", "9" * 5000 + "F0", "0F" + "9" * 5000])
def test_a_number_is_written_as_str_writes_it(text: str) -> None:
    with pytest.raises(ScheduleError) as error:
        Action.parse(text)
    three_lines(error.value)


@pytest.mark.parametrize("text", ["", " \n ", "0F0 0B0\n\n1F0 1B0"])
def test_a_rank_without_an_action_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match="no action of"):
        Schedule.parse(text)


def test_a_huge_stage_takes_no_memory() -> None:
    with pytest.raises(ScheduleError, match="no action of stage 1"):
        Schedule.parse("0F0 0B0 999999999F0 999999999B0")


def test_a_schedule_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(ScheduleError, match="forwards"):
        gpipe(10**9, 10**9)
    with pytest.raises(ScheduleError, match="forwards"):
        zb_v(10**6, 1)  # it is the pattern of twice as many, cut short
    with pytest.raises(ScheduleError, match="at least one"):
        gpipe(2.5, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [Action(-1, "F", 0), Action(0, "X", 0), Action(0, "F", -1)])
def test_an_entry_that_is_no_action_is_refused(action: Action) -> None:
    line = [Action(0, "F", 0), Action(0, "B", 0), action]
    with pytest.raises(ScheduleError):
        Schedule.of("mine", [line])


@pytest.mark.parametrize("costs", [[], [Costs()], [Costs(math.nan)] * 2, [Costs(-1.0)] * 2])
def test_costs_that_cannot_be_are_refused(costs: list[Costs]) -> None:
    with pytest.raises(ScheduleError, match="2 stages"):
        simulate(gpipe(2, 2), costs)


def test_a_model_without_a_block_is_not_cut() -> None:
    with pytest.raises(ScheduleError, match="no block"):
        split_model([1.0, 1.0], 1)
