"""plan_layout: what fits, what is fastest, why not the others, and at what price."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, because, check, diagnosis
from course_lib.layout import Layout
from grading.references.planning.layout_costs import (
    CALLS,
    MEMORY,
    REASONS,
    Costs,
    Family,
    Question,
    Search,
    enough_for,
    families,
    habit,
    misfit,
    search,
    show,
)

EXERCISE = Exercise(
    title="A planner: the best layout, the runners-up, and reasons against the others",
    core=True,
    minutes=40,
    order=30,
    defines=("plan",),
    library=("layout", "model.ModelConfig", "plan.Cluster", "plan.Memory"),
    hints=(
        "Go from cheap questions to expensive ones: which families are there (divisors), which "
        "of them break a rule, which layouts fit, and only then how long does a step take?",
        "For each pp and tp among the divisors, dp follows. For each micro-batch size and zero: "
        "the micro-batches are batch // dp // size, if that divides and is at least pp; without "
        "recomputation if the fullest stage fits so, else with it if that fits.",
        "`room = cluster.gpu.memory * USABLE`; `max(stage.total for stage in memory(way)) <= "
        "room`; try `for recompute in RECOMPUTE` and `break` after the first that fits. If there "
        "are ways, append the fastest `Choice(way, seconds(way))`, otherwise refuse with "
        "`why_not(...) or MEMORY`; at the end, sort by seconds.",
    ),
)

MARGIN = 1.05
TOO_MANY = (
    "most of the degrees that you try are not a family: pp and tp are divisors of the GPUs, and "
    "dp follows from them; check the rules before memory"
)
EXACTLY = "the layout that was missed needs exactly the memory that there is: <=, not <"
DEAR = "it breaks a rule or does not fit: first ask `memory`, which is cheap, then `seconds`"
NEEDLESS = "full recomputation was timed where a layout fits without it"


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each question's plan as plain data, and about which layouts `seconds` was asked."""
    found = []
    for given in questions:
        question = Question(**{**given, "shape": tuple(map(tuple, given["shape"]))})
        costs = Costs(question)
        answer = learner.plan(
            question.config, question.cluster, question.batch, costs.memory, costs.seconds
        )
        found.append({**_plain(answer), "asked": [asdict(layout) for layout in costs.asked]})
    return found


def _plain(answer: Any) -> dict[str, Any]:
    try:
        choices = [[asdict(layout), float(seconds)] for layout, seconds in answer.choices]
        refused = [[list(map(int, family)), str(why)] for family, why in answer.refused.items()]
    except (AttributeError, TypeError, ValueError) as error:
        return {"odd": f"{type(answer).__name__}: {error}"[:150]}
    return {"choices": choices, "refused": refused}


# --- questions -----------------------------------------------------------------------------------
class Answered(NamedTuple):
    """A question and its plan."""

    question: Question
    choices: list[tuple[Layout, float]]
    refused: dict[Family, str]
    asked: list[Layout]

    @property
    def layouts(self) -> list[Layout]:
        """Those chosen."""
        return [layout for layout, _ in self.choices]


def _question(run: Run, gpus: str, node: int, batch: int, part: float, **shape: int) -> Question:
    """Hidden sizes; of all layouts that break no rule a `part` fits, one of them to the byte."""
    heads = shape["heads"]
    sizes = {"hidden": 128 * heads, "ffn": 32 * heads * run.number(8, 14), "sequence": 2048,
             "vocabulary": 64 * run.number(500, 1000), **shape}  # fmt: skip
    question = Question(tuple(sizes.items()), gpus, node, math.inf, batch)
    return question._replace(memory=enough_for(question, part))


def _questions(run: Run) -> list[Question]:
    """Nodes of 8, and not; memory of plenty, and hardly any; the first stage fullest, or the last.

    The vocabulary of the second is a large one, so that logits weigh more than activations.
    """
    large = 128 * run.number(900, 1100)
    asked = [
        _question(run, "16xH100", 8, 64, 0.5, layers=16, heads=16, kv_heads=8),
        _question(run, "16xA100", 4, 32, 0.3, layers=8, heads=16, kv_heads=8, vocabulary=large),
        _question(run, "36xH100", 6, 48, 0.3, layers=18, heads=12, kv_heads=12),
        _question(run, "12xH100", 4, 72, 1.0, layers=12, heads=12, kv_heads=2, sequence=128),
        _question(run, "64xH100", 8, 32, 0.15, layers=32, heads=32, kv_heads=8),
        _question(run, "1xH100", 8, 8, 1.0, layers=4, heads=8, kv_heads=8),
    ]
    return [*asked, asked[0]._replace(memory=1e8)]


def _large(run: Run) -> list[Question]:
    """24576 = 2¹³ · 3 GPUs: 315 families, of which few can be used."""
    shape = {"layers": 48, "heads": 96, "kv_heads": 8, "sequence": 4096}
    return [_question(run, "24576xH100", 8, 6144, 0.2, **shape)]


def _ask(run: Run, questions: list[Question], cpu: float = 6.0) -> list[Answered]:
    given = {"questions": [question._asdict() for question in questions]}
    plans = run(drive, given, cpu=cpu, wall=5 * cpu).outputs[0]
    return [_read(run, *pair) for pair in zip(questions, plans, strict=True)]


def _read(run: Run, question: Question, plan: dict[str, Any]) -> Answered:
    run.true(
        "odd" not in plan,
        "this is not a plan",
        measured=plan.get("odd", ""),
        expected="Plan(choices, refused): a list of Choice(layout, seconds), and a dict from "
        "(pp, dp, tp) to a reason",
    )
    choices = [(Layout(**layout), seconds) for layout, seconds in plan["choices"]]
    refused = {tuple(family): why for family, why in plan["refused"]}
    asked = [Layout(**layout) for layout in plan["asked"]]
    return Answered(question, choices, refused, asked)


def _family(layout: Layout) -> Family:
    return layout.pp, layout.dp, layout.tp


# --- checks --------------------------------------------------------------------------------------
@check("every family is chosen or refused, once", points=2, code="S")
@diagnosis("pp · dp · tp is the number of GPUs: go through all divisors")
def check_families(run: Run) -> None:
    """S: no more and no fewer."""
    for answer in _ask(run, _questions(run)):
        where = f"({answer.question.words})"
        counts = Counter([*map(_family, answer.layouts), *answer.refused])
        there = set(families(answer.question.cluster.count))
        if missing := sorted(there - set(counts)):
            largest = {tp for _, _, tp in counts} == {max((f[2] for f in counts), default=0)}
            run.fail(
                f"{len(missing)} families are neither chosen nor refused {where}",
                expected=f"all {len(there)}",
                measured=f"not (pp, dp, tp) = {missing[0]}",
                cause="only the largest tp was tried" * largest,
            )
        if odd := sorted(set(counts) - there):
            run.fail(f"(pp, dp, tp) = {odd[0]} does not use all GPUs {where}")
        if twice := [family for family, count in counts.items() if count > 1]:
            run.fail(
                f"(pp, dp, tp) = {twice[0]} is in the plan {counts[twice[0]]} times {where}",
                expected="one layout of a family, its fastest",
            )


@check("every layout keeps the rules and the batch", points=3, code="S")
@diagnosis("micro_batch_size · micro_batches · dp is the batch")
def check_rules(run: Run) -> None:
    """S: memory aside."""
    for answer in _ask(run, _questions(run)):
        for layout in answer.layouts:
            why = misfit(answer.question, layout)
            run.true(
                not why,
                f"a layout cannot be used ({answer.question.words})",
                cause=why,
                measured=show(layout),
            )


@check("the fullest stage fits, and every layout that fits is found", points=4, code="M")
@diagnosis("the largest total of all stages, at most USABLE of a GPU's memory")
def check_memory(run: Run) -> None:
    """M: to the byte, both ways."""
    for answer in _ask(run, _questions(run)):
        found, where = search(answer.question), f"({answer.question.words})"
        slip = found.slip(answer.layouts, [f for f, w in answer.refused.items() if w == MEMORY])
        for layout in answer.layouts:
            held = max(stage.total for stage in found.costs.memory(layout))
            run.true(
                held <= found.room,
                f"a layout does not fit {where}",
                measured=f"{held / 1e9:.2f} GB on the fullest stage of {show(layout)}",
                expected=f"at most {found.room / 1e9:.2f} GB",
                cause=slip,
            )
        for family, why in answer.refused.items():
            if why == MEMORY and family in found.fit:
                run.fail(
                    f"(pp, dp, tp) = {family} was refused for its memory {where}",
                    expected=f"{show(found.best(family)[0])}, which fits",
                    cause=slip
                    or "a layout that needs exactly the memory fits: <=; and try all of "
                    "MICRO_BATCH_SIZES, ZERO and RECOMPUTE",
                )


@check("each family is refused for the right reason", points=3, code="S")
@diagnosis("the first of the five reasons that holds, in the order of the task")
def check_reasons(run: Run) -> None:
    """S: and nothing that can be used is refused."""
    for answer in _ask(run, _questions(run)):
        found, where = search(answer.question), f"({answer.question.words})"
        for family, why in found.refused.items():
            said = answer.refused.get(family, "it can be used")
            form = "" if said in REASONS else "the reasons are the five constants"
            run.true(
                said == why,
                f"(pp, dp, tp) = {family}: this is the wrong reason {where}",
                expected=why,
                measured=said,
                cause=form,
            )
        if wrong := next((f for f in answer.refused if f in found.fit), None):
            run.fail(
                f"(pp, dp, tp) = {wrong} can be used, but was refused {where}",
                measured=answer.refused[wrong],
                expected=show(found.best(wrong)[0]),
            )


@check("the fastest of each family, and the fastest family first", points=3, code="S")
@diagnosis("of the layouts that fit, the one with the least seconds")
def check_fastest(run: Run) -> None:
    """S: within 5 % of a search of everything."""
    for answer in _ask(run, _questions(run)):
        _near_the_best(run, answer)


def _near_the_best(run: Run, answer: Answered) -> None:
    found, where = search(answer.question), f"({answer.question.words})"
    run.true(
        bool(answer.choices) or not found.fit,
        f"nothing was found {where}",
        expected=f"{len(found.fit)} families can be used",
    )
    for layout, seconds in answer.choices:
        fit = found.fit.get(_family(layout), {})
        run.true(layout in fit, f"a layout cannot be used {where}", measured=show(layout))
        right, (best, least) = fit[layout], found.best(_family(layout))
        run.close(seconds, right, f"the seconds of {show(layout)}")
        run.true(
            right <= MARGIN * least,
            f"a family has a faster layout {where}",
            measured=f"{show(layout)}: {right / least:.2f} times the least",
            expected=show(best),
            cause=_untried(found, answer, best),
        )
    _in_order(run, answer, where)


def _untried(found: Search, answer: Answered, best: Layout) -> str:
    """Why the best layout may have been missed."""
    exactly = max(stage.total for stage in found.costs.memory(best)) == found.room
    recomputed = all(layout.recompute == "full" for layout in answer.layouts)
    return EXACTLY if exactly and not recomputed else habit(found, answer.layouts)


def _in_order(run: Run, answer: Answered, where: str) -> None:
    times = [seconds for _, seconds in answer.choices]
    if times == sorted(times):
        return
    widths = [layout.tp for layout in answer.layouts]
    cause = "the largest tp was taken: it sends most" * (widths == sorted(widths, reverse=True))
    if times == sorted(times, reverse=True):
        cause = "the slowest is first"
    run.fail(
        f"the fastest family is not the first {where}",
        cause=cause,
        measured=f"{times[0]:.3f} s with {show(answer.layouts[0])}",
        expected=f"{min(times):.3f} s",
    )


@check("at most 8 calls of `seconds` per family, for layouts that fit", points=2, code="B")
@diagnosis("first memory, then seconds; and full recomputation only where it is needed")
def check_calls(run: Run) -> None:
    """B: it is the dear one."""
    for answer in _ask(run, _questions(run)):
        found, where = search(answer.question), f"({answer.question.words})"
        for layout in answer.asked:
            run.true(
                layout in found.fit.get(_family(layout), {}),
                f"`seconds` was asked about a layout that cannot be used {where}",
                measured=show(layout),
                cause=DEAR,
            )
        what = f"calls of `seconds` {where}"
        run.at_most(len(answer.asked), CALLS * len(found.fit), what, cause=NEEDLESS)


@check("24576 GPUs in two seconds", points=2, code="H")
@diagnosis("divisors only, and rules before memory")
def check_large(run: Run) -> None:
    """H: in processor time."""
    with because(cpu=TOO_MANY):
        answer = _ask(run, _large(run), cpu=2.0)[0]
    _near_the_best(run, answer)
