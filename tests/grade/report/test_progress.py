"""Finished work is never lost: not by a worse answer, a damaged file, or two graders at once."""

from __future__ import annotations

import json
import threading

import pytest

from course_lib.grade.catalog import Entry
from course_lib.grade.faults import Fault
from course_lib.grade.report import Card, progress
from course_lib.grade.report.progress import Progress


def card(entry: Entry, passed: int, source: str = "x = 1\n") -> Card:
    made = Card(entry, source=source, complete=True)
    for number, result in enumerate(made.checks):
        result.state = "passed" if number < passed else "failed"
    return made


def test_the_best_answer_stays(double: Entry) -> None:
    record = Progress(double.root)
    for passed, best, finished in ((0, 0, False), (1, 2, False), (2, 3, True), (0, 3, True)):
        record.enter(card(double, passed, source=f"x = {passed}\n"))
        found = record.records()["double"]
        assert (found["best"], found["finished"]) == (best, finished)
    assert found["attempts"] == 4
    assert record.passed_copy(double).read_text() == "x = 2\n"
    assert record.is_sealed()


def test_what_gave_no_score_is_not_entered(double: Entry) -> None:
    record = Progress(double.root)
    stopped, broken = card(double, 1), card(double, 1)
    stopped.interrupted = True
    broken.internal = "it broke"
    record.enter(stopped)
    record.enter(broken)
    assert record.records() == {}


def test_tampering_takes_nothing_away(double: Entry) -> None:
    record = Progress(double.root)
    record.enter(card(double, 2))
    bad = card(double, 2)
    bad.fault = Fault("tampering", "it did")
    record.enter(bad)
    assert record.records()["double"]["best"] == 3


WHOLE = '"points": 3, "attempts": 1, "finished": false, "hints": 0}}}'
DAMAGES = {
    "nothing": "",
    "half": "{",
    "a list": "[]",
    "a number": '{"exercises": 3}',
    "a record that is a number": '{"exercises": {"a": 1}}',
    "text for a number": '{"exercises": {"double": {"best": "3", ' + WHOLE,
    "a number that is none": '{"exercises": {"double": {"best": NaN, ' + WHOLE,
    "a missing key": '{"exercises": {"double": {' + WHOLE,
    "deep nesting": '{"exercises": ' + "[" * 200_000,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_set_aside_and_made_anew(double: Entry, damage: str) -> None:
    record = Progress(double.root)
    record.enter(card(double, 2))
    record.path.write_text(damage)
    assert record.finished(double)
    record.enter(card(double, 0))
    assert record.finished(double)
    kept = list(record.folder.glob("progress.damaged-*.json"))
    assert [path.read_text() for path in kept] == [damage]


def test_a_hand_that_changes_the_file_is_seen(double: Entry) -> None:
    record = Progress(double.root)
    record.enter(card(double, 1))
    data = json.loads(record.path.read_text())
    data["exercises"]["double"]["finished"] = True
    record.path.write_text(json.dumps(data))
    assert not record.is_sealed()
    assert "changed outside" in progress.as_text([double], record)
    assert "changed outside" in progress.as_html([double], record)


def test_graders_at_the_same_time_lose_nothing(double: Entry) -> None:
    def work() -> None:
        for _ in range(10):
            Progress(double.root).enter(card(double, 1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Progress(double.root).records()["double"]["attempts"] == 40


def test_hints_are_counted_and_end(double: Entry) -> None:
    record = Progress(double.root)
    assert [record.take_hint(double) for _ in range(4)] == [1, 2, 3, 3]


def test_the_table(double: Entry) -> None:
    record = Progress(double.root)
    assert progress.as_text([double], record).splitlines()[1].split() == [
        "·",
        "double",
        "not",
        "begun",
    ]
    record.enter(card(double, 1))
    assert progress.as_text([double], record).splitlines()[1].split() == ["◐", "double", "2/3"]
    record.enter(card(double, 2))
    text = progress.as_text([double], record)
    assert "████ 1/1 core, 1/1 with" in text
    assert "width:100%" in progress.as_html([double], record)


def test_a_record_that_cannot_be_kept_is_a_warning(double: Entry) -> None:
    record = Progress(double.root)
    record.folder.write_text("a file in its place")
    assert "not written down" in record.enter(card(double, 2))
