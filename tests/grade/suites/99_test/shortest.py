"""A small open suite for the tests of the grader: a list with a given sum, as short as can be.

Notebook: none.
Source: none.
Costs: one run of one rank.
"""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, check

EXERCISE = Exercise(
    title="Few numbers",
    core=False,
    minutes=1,
    open=("numbers for 12", 12.0, 2.0),
    hints=("Larger ones.", "Two.", "return [6, 6]"),
)


def drive(learner: Any, group: Any, total: int) -> dict[str, Any]:
    """Calls the answer once."""
    return {"value": list(learner.shortest(total))}


@check("the sum", points=1, code="E")
def check_sum(run: Any) -> None:
    """E: on one rank."""
    found = run(drive, {"total": 12}).outputs[0]["value"]
    run.equal(sum(found), 12, "the sum")
    run.figure = float(len(found))
