"""decision_tree: twenty cases that readers have heard of, the edges, and hidden ones."""

from __future__ import annotations

import re
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.planning.decision_cases import PUBLIC, Case, answer, known, slips

EXERCISE = Exercise(
    title="Which parallelism for which case",
    core=True,
    minutes=30,
    order=40,
    defines=("decide",),
    library=(),
    hints=(
        "Compute four numbers first: the states, one sequence's activations, the tokens that a "
        "GPU computes on at once, and the tokens whose computation takes as long as a gather. "
        "The questions are then one line each.",
        "2 bytes round the ring take 2 / ring, with ring = min(inside, node · between); 2 "
        "operations for each of t tokens take 2·t / flops. So a gather hides if t >= flops / ring, "
        "where t is min(ROWS, batch / gpus) · sequence, with TP or without.",
        "Return as soon as a question is answered: `if states + one <= memory`, `if gpus == 1 or "
        "states / gpus > memory`, `if gpus <= node`, `if batch >= gpus and hides`, `if batch >= "
        "gpus and states / node <= memory / 2`, `if batch >= gpus // node and hides`. Only then "
        "add CP, EP, accumulation.",
    ),
)

NUMBER = re.compile(r"\d[\d,_]*(?:\.\d+)?(?:e[+-]?\d+)?")
FORM = "decide returns Decision(strategy, reason), two strings; words have ' + ' between them"


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[float]]) -> list[list[str]]:
    """What is decided for each case."""
    found = []
    for numbers in cases:
        decision = learner.decide(learner.Case(*numbers))
        found.append([str(part) for part in decision][:2])
    return found


# --- cases ---------------------------------------------------------------------------------------
def _public(group: str) -> list[tuple[str, Case]]:
    """Names and numbers."""
    return [(f"{row[0]} on {row[1]}", known(*row)) for row in PUBLIC[group]]


def _edges() -> list[tuple[str, Case]]:
    """One case on each edge, and one beside it; all numbers are exact in floating point."""
    base = Case(2**32, 0, 2**20, 2**12, 64, 64, 8, 2**36 + 2**32, 2**50, 2**40, 2.0**33)
    half = base._replace(gpus=16, memory=2**34, kept=2**10, between=2.0**27)
    hides = base._replace(memory=2**33, kept=2**10, batch=256)
    inside = hides._replace(inside=2.0**36, between=2.0**34)
    long = base._replace(kept=2**21, memory=2**34, gpus=8, batch=8)
    return [
        ("states and one sequence are the memory", base),
        ("states and one sequence are more by a token", base._replace(sequence=2**12 + 1)),
        ("as many sequences as fit", base),
        ("one sequence more than fit", base._replace(batch=65)),
        ("states, cut over all, are the memory", hides._replace(gpus=8)),
        ("states, cut over all, are more than the memory", hides._replace(gpus=7, node=7)),
        ("states, cut over a node, are half the memory", half),
        ("states, cut over a node, are more than half", half._replace(parameters=2**32 + 1)),
        ("as many sequences as fit beside the states, cut over a node", half._replace(batch=2**15)),
        ("one sequence more than fit beside them", half._replace(batch=2**15 + 1)),
        ("one GPU, with experts", half._replace(gpus=1, node=1, experts=8)),
        ("all GPUs are one node", half._replace(node=16)),
        ("a gather takes exactly as long as the tokens", hides),
        ("a gather takes longer by a little", hides._replace(between=2.0**33 - 2**17)),
        ("every GPU has one sequence", hides._replace(batch=64, sequence=2**15)),
        ("one GPU has none", hides._replace(batch=63, sequence=2**15)),
        ("every node has one sequence", hides._replace(batch=8, sequence=2**17)),
        ("one node has none", hides._replace(batch=7, sequence=2**18)),
        ("a ring inside takes exactly as long as the tokens", inside),
        ("a ring inside takes longer by a little", inside._replace(inside=2.0**36 - 2**20)),
        ("one sequence takes half the memory", long),
        ("one sequence takes more than half", long._replace(sequence=2**12 + 1)),
    ]


def _hidden(run: Run) -> list[tuple[str, Case]]:
    """Every public case ten times with other numbers, on other clusters."""
    rows = [case for group in PUBLIC for _, case in _public(group)]
    factors = (2 * run.random((len(rows), 10, 6)).clamp(-2, 2)).exp2().tolist()
    clusters = run.integers(0, 18, (len(rows), 10)).tolist()
    made = []
    for number, case in enumerate(rows):
        for i, (size, kept, tokens, times, memory, link) in enumerate(factors[number]):
            node, count = (4, 8, 12)[clusters[number][i] % 3], clusters[number][i] // 3
            made.append(
                case._replace(
                    parameters=case.parameters * size,
                    kept=case.kept * kept,
                    node=node,
                    sequence=max(16, int(case.sequence * tokens)),
                    batch=max(1, int(case.batch * times)),
                    gpus=(case.gpus, node // 2, node, 6 * node, 40 * node, 1000 * node)[count]
                    if case.gpus > 1
                    else 1,
                    memory=case.memory * memory,
                    between=case.between * link,
                )
            )
    full = [c if c.gpus <= c.node else c._replace(gpus=-(-c.gpus // c.node) * c.node) for c in made]
    return [(f"hidden case {number}", case) for number, case in enumerate(full)]


def _decided(run: Run, cases: list[tuple[str, Case]]) -> list[list[str]]:
    given = {"cases": [list(case) for _, case in cases]}
    found: list[list[str]] = run(drive, given).outputs[0]
    for (name, _), decision in zip(cases, found, strict=True):
        run.true(
            len(decision) == 2,
            f"{name}: this is not a decision",
            measured=str(decision),
            expected=FORM,
        )
    return found


def _hold(run: Run, cases: list[tuple[str, Case]], edge: str = "") -> None:
    """Fails with the first case that is decided otherwise, and a slip that explains all answers."""
    given = [frozenset(words.split(" + ")) for words, _ in _decided(run, cases)]
    for (name, case), words in zip(cases, given, strict=True):
        right = answer(case)
        if words != right.words:
            cause = slips([case for _, case in cases], given, edge)
            run.fail(
                f"{name}: {case.words}",
                measured=" + ".join(sorted(words)),
                expected=f"{' + '.join(sorted(right.words))}; {right.why}",
                cause=cause,
            )


# --- checks --------------------------------------------------------------------------------------
@check("what fits on one GPU", points=2, code="E")
@diagnosis("question 1, and 10: 16 bytes a parameter, and one sequence")
def check_fits(run: Run) -> None:
    """E: four cases."""
    _hold(run, _public("fits"))


@check("what does not fit on one GPU", points=2, code="E")
@diagnosis("questions 2 and 3, and 10")
def check_does_not_fit(run: Run) -> None:
    """E: four cases."""
    _hold(run, _public("does not fit"))


@check("fast and slow networks", points=3, code="E")
@diagnosis("questions 4 and 5: the tokens of a GPU against flops by the bytes/s of the rings")
def check_network(run: Run) -> None:
    """E: four cases."""
    _hold(run, _public("network"))


@check("from 128 to 16384 GPUs", points=3, code="E")
@diagnosis("questions 4 to 7: TP is for fewer sequences than GPUs, and gathers hide as before")
def check_many(run: Run) -> None:
    """E: four cases."""
    _hold(run, _public("many"))


@check("long sequences, and experts", points=3, code="E")
@diagnosis("questions 8 and 9")
def check_long_and_experts(run: Run) -> None:
    """E: four cases."""
    _hold(run, _public("long"))


@check("on the edges", points=2, code="E")
@diagnosis("`fit`, `at most` and `at least` include equality")
def check_edges(run: Run) -> None:
    """E: both sides of each."""
    _hold(run, _edges(), "a comparison excludes equality, is reversed, or is missing")


@check("200 cases with other numbers", points=3, code="E")
@diagnosis("the numbers decide, and not the model's name")
def check_hidden(run: Run) -> None:
    """E: a table of answers does not pass."""
    _hold(run, _hidden(run))


@check("the first two numbers in the reason are those that decide", points=2, code="E")
@diagnosis("GB are 10⁹ bytes; see the last paragraph of the task")
def check_reasons(run: Run) -> None:
    """E: rounded."""
    cases = [case for group in PUBLIC for case in _public(group)]
    for (name, case), (_, reason) in zip(cases, _decided(run, cases), strict=True):
        said = [float(re.sub("[,_]", "", number)) for number in NUMBER.findall(reason)]
        for number in answer(case).numbers:
            near = [abs(one - number) <= max(0.51, number / 100) for one in said]
            run.true(
                any(near[:2]),
                f"{name}: the reason lacks a number that decides",
                measured=repr(reason[:120]),
                expected=answer(case).why,
                cause="other numbers come before it" if any(near) else "",
            )
