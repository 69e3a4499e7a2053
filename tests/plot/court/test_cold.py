"""The fields of the cold cases: one right answer each, and the evidence against every other."""

from __future__ import annotations

from html import escape

import pytest

from course_lib.plot import commit
from course_lib.plot.court.cold import CASES


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_one_right_answer_and_evidence_against_all_others(case: int) -> None:
    against = [reason for _, reason in CASES[case].answers]
    assert [not reason for reason in against].index(True) == commit(case).right
    assert sum(reason.startswith("Evidence") for reason in against) == len(against) - 1


def test_the_right_answer_is_not_always_at_the_same_place() -> None:
    assert len({commit(case).right for case in CASES}) > 1


@pytest.mark.parametrize("case", CASES)
def test_a_field_can_be_read_without_scripts(case: int) -> None:
    still, _, script = commit(case)._repr_html_().partition("<script>")
    asked, _, folded = still.partition("<details>")
    assert all(escape(text) in asked for text, _ in CASES[case].answers)
    assert escape(CASES[case].why) in folded and escape(CASES[case].why) not in asked
    assert "Evidence" not in still and "Evidence" in script
