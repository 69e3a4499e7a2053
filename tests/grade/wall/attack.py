"""A suite whose driver lets an answer do what it wants; its check must stay with the judge."""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import check

EXPECTED = "only-the-judge-knows-this"  # a memory scan must not find it beside an answer


def drive(learner: Any, group: Any, **places: Any) -> Any:
    """Calls the answer once."""
    return learner.attack(**places)


@check("nothing is found", points=1, code="E")
def check_attack(run: Any) -> None:
    """E: what is expected stays here."""
    run.equal(run(drive).outputs[0], EXPECTED, "the result")
