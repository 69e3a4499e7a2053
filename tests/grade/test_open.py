"""An open exercise has no right answer: what a valid one is worth is measured, kept as a bar."""

from __future__ import annotations

import pytest

from course_lib.grade.catalog import Entry
from course_lib.grade.checks import Scale
from course_lib.grade.grader import Grader
from course_lib.grade.report import as_html, as_text, progress
from course_lib.grade.report.progress import Progress


def test_the_best_figure_is_kept_as_a_bar(grader: Grader, shortest: Entry) -> None:
    record = Progress(shortest.root)
    assert "· shortest                         ◇" in progress.as_text([shortest], record)
    answers = {"[1] * total": 12, "[4, 4, 4]": 3, "[total]": 1, "[2] * 6": 6, "[5]": None}
    for answer, figure in answers.items():
        shortest.path.write_text(f"def shortest(total):\n    return {answer}\n")
        card = grader.grade(shortest)
        assert card.figure == figure and card.to_dict()["figure"] == figure
        record.enter(card)
        if answer == "[4, 4, 4]":
            words = "3 numbers for 12; a trivial answer has 12, the best one that we know 2"
            assert words in as_text(card) and "█████████░ 90%" in as_html(card)
            assert "The answer is valid" in as_text(card)
    assert card.status == "failed" and "measured: 3" not in as_text(card)
    assert record.records()["shortest"]["figure"] == 1, "a worse answer takes nothing away"
    assert "[total]" in record.passed_copy(shortest).read_text()
    shown = progress.as_text([shortest], record)
    assert "██████████ 110%" in shown and "0/0 core, 0/0 with" in shown
    assert "110%" in progress.as_html([shortest], record)


@pytest.mark.parametrize(("figure", "share"), [(10.0, 0.0), (4.0, 1.0), (7.0, 0.5), (13.0, -0.5)])
def test_a_scale_may_fall_or_rise(figure: float, share: float) -> None:
    assert Scale("seconds", 10.0, 4.0).share(figure) == share
    assert Scale("tokens", 4.0, 10.0).share(14.0 - figure) == share
