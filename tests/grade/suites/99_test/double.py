"""A small suite for the tests of the grader: doubles a tensor on every rank.

Notebook: none.
Source: none.
Costs: one run of two ranks.
"""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, check, diagnosis

EXERCISE = Exercise(
    title="Twice as much",
    core=True,
    minutes=1,
    library=("comm", "grade", "trace"),  # what an answer may do to them, tests look at
    hints=("Add.", "Add it to itself.", "return tensor + tensor"),
)


def drive(learner: Any, group: Any, tensor: Any) -> dict[str, Any]:
    """Calls the answer once."""
    return {"value": learner.double(tensor, group)}


@check("twice the value", points=2, code="E")
@diagnosis("the factor")
def check_value(run: Any) -> None:
    """E: on two ranks."""
    tensor = run.random((2, 3))
    result = run(drive, {"tensor": tensor}, world=2, cpu=2.5, wall=6.0)
    for rank in range(2):
        run.close(result.outputs[rank]["value"], 2 * tensor, "the result", rank=rank,
                  likely={"this is the square": tensor * tensor})  # fmt: skip


@check("no bytes", points=1, code="B")
def check_bytes(run: Any) -> None:
    """B: nothing needs to be sent."""
    result = run(drive, {"tensor": run.random((2, 3))}, world=2, cpu=2.5, wall=6.0)
    run.bytes(result, 0)
