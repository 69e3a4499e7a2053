"""capacity_and_drop: how many places an expert has, and who gets them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Expert capacity and dropped tokens",
    core=False,
    minutes=25,
    order=5,
    library=(),
    hints=(
        "Which choice is next? Write all choices into one line, in the order in which they get "
        "places: column 0 from the first token to the last, then column 1, ...",
        "`chosen_TK.T.flatten()` is that line. In a loop: count what each expert has, and drop a "
        "choice whose expert has as many as its capacity.",
        "Without a loop: after `order = line.argsort(stable=True)`, all choices of one expert "
        "are neighbours and keep their order. Their place is `arange(len(line))` minus the "
        "beginning of their expert, `counts.cumsum(0) - counts`; drop all places that are not "
        "below the capacity.",
    ),
)


class Case(NamedTuple):
    """One call."""

    chosen: torch.Tensor  # [T, k]
    experts: int
    factor: float


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Each case; the choices' memory is transposed."""
    found = {}
    for name, case in cases.items():
        chosen = case["chosen"].t().contiguous().t()
        back = learner.capacity_and_drop(chosen, case["experts"], case["factor"])
        room, kept = back if isinstance(back, (tuple, list)) and len(back) == 2 else (None, back)
        found[name] = {"room": room, "chosen": kept, "same": torch.equal(chosen, case["chosen"])}
    return found


# --- by the rules --------------------------------------------------------------------------------
def capacity(case: Case) -> int:
    """Places of an expert."""
    return math.ceil(case.factor * case.chosen.numel() / case.experts)


def seated(case: Case, turns: list[tuple[int, int]], room: int) -> torch.Tensor:
    """Choices that get a place if they come in the order `turns`; E for the others."""
    left, kept = [room] * case.experts, case.chosen.clone()
    for token, choice in turns:
        expert = int(case.chosen[token, choice])
        left[expert] -= 1
        if left[expert] < 0:
            kept[token, choice] = case.experts
    return kept


def in_turn(case: Case) -> list[tuple[int, int]]:
    """First choices first, each in the order of the tokens."""
    tokens, top_k = case.chosen.shape
    return [(token, choice) for choice in range(top_k) for token in range(tokens)]


def mistakes(case: Case) -> dict[str, torch.Tensor]:
    """Known wrong seatings."""
    turns, room = in_turn(case), capacity(case)
    right = seated(case, turns, room)
    late = right == case.experts
    return {
        "places are given token by token: all first choices come before the second ones":
            seated(case, sorted(turns), room),
        "the last tokens got places first": seated(case, turns[::-1], room),
        "the last tokens of each column got places first":
            seated(case, sorted(turns, key=lambda turn: (turn[1], -turn[0])), room),
        "an expert has one more than its capacity": seated(case, turns, room + 1),
        "an expert has one less than its capacity": seated(case, turns, max(0, room - 1)),
        "a token that lost one choice lost all its choices": case.chosen.masked_fill(
            late.any(-1, keepdim=True), case.experts),
        "a dropped choice must be E, not -1": case.chosen.masked_fill(late, -1),
        "nothing was dropped": case.chosen,
    }  # fmt: skip


# --- cases ---------------------------------------------------------------------------------------
def _usual(run: Run) -> dict[str, Case]:
    """Experts of which the first ones are wanted most; sizes that do not divide."""
    experts, cases = run.number(5, 9), {}
    for top_k, factor in ((1, 1.0), (2, 1.25), (3, 0.5)):
        tokens = experts * run.number(3, 6) + run.number(1, 4)
        wanted = run.random((tokens, experts)) - 0.4 * torch.arange(experts)
        chosen = wanted.argsort(-1, descending=True)[:, :top_k].contiguous()
        cases[f"k = {top_k}, factor {factor}"] = Case(chosen, experts, factor)
    return cases


def _edges(run: Run) -> dict[str, Case]:
    """No tokens; room for all; everything for one expert."""
    chosen = run.random((7, 5)).argsort(-1)[:, :2].contiguous()
    return {"no tokens": Case(chosen[:0], 5, 1.25), "room for all": Case(chosen, 5, 4.0),
            "all want expert 0": Case(torch.zeros(9, 1, dtype=torch.int64), 4, 1.0)}  # fmt: skip


def _each(run: Run, cases: dict[str, Case]) -> Iterator[tuple[str, Case, dict[str, Any]]]:
    result = run(drive, {"cases": {name: case._asdict() for name, case in cases.items()}})
    for name, case in cases.items():
        yield name, case, result.outputs[0][name]


def _rooms(run: Run, cases: dict[str, Case]) -> None:
    """The capacities."""
    for name, case, found in _each(run, cases):
        exact = case.factor * case.chosen.numel() / case.experts
        likely = {
            "rounded down": math.floor(exact),
            "not an int": exact,
            "rounded to the nearest": round(exact),
            "k is missing: a token has k choices": math.ceil(
                case.factor * len(case.chosen) / case.experts
            ),
            "limited to the number of tokens: the formula has no such limit": len(case.chosen),
        }
        run.equal(found["room"], capacity(case), f"the capacity ({name})", likely=likely)


def _seats(run: Run, cases: dict[str, Case]) -> None:
    """The choices."""
    for name, case, found in _each(run, cases):
        likely = mistakes(case)
        what = f"the choices ({name})"
        run.close(found["chosen"], seated(case, in_turn(case), capacity(case)), what, likely=likely)
        run.true(found["same"], f"chosen_TK was changed ({name})")


# --- checks --------------------------------------------------------------------------------------
@check("the capacity, rounded up", points=2, code="E")
@diagnosis("factor · k · T / E, rounded up")
def check_capacity(run: Run) -> None:
    """E: sizes that do not divide."""
    _rooms(run, _usual(run))


@check("which choices get places and which are dropped", points=5, code="E")
@diagnosis("column by column, each in the order of the tokens")
def check_dropped(run: Run) -> None:
    """E: one, two and three choices; experts that nobody and that everybody wants."""
    _seats(run, _usual(run))


@check("no tokens, room for all, and one expert for all", points=2, code="E")
@diagnosis("no choice, every choice, or the first ones get places")
def check_edges(run: Run) -> None:
    """E: both results."""
    _rooms(run, _edges(run))
    _seats(run, _edges(run))
