"""The fields of the cold cases: one right answer each, and the evidence against every other."""

from __future__ import annotations

import pytest

from course_lib.plot import commit
from course_lib.plot.court.cold import CASES


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_one_right_answer_and_evidence_against_all_others(case: int) -> None:
    field, answers = commit(case), CASES[case].answers
    assert [text for text, against in answers if not against] == [answers[int(field.answer) - 1][0]]
    assert set(field.near) == set(range(1, len(answers) + 1)) - {field.answer}
    assert all(reason.startswith("Evidence") for reason in field.near.values())
    for number, (text, _) in enumerate(answers, 1):
        assert f"{number}: {text}" in field.question


def test_the_right_answer_is_not_always_at_the_same_place() -> None:
    assert len({commit(case).answer for case in CASES}) > 1
