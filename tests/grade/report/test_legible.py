"""A card shows what an answer has put into words, and is not moved by it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from course_lib.grade.catalog import Entry
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_html, as_junit, as_text, legible

ODD = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u200b\u2028\ud800\x00\x08\uffff"
# What follows `def double(tensor, group):`.
SAYING = {
    "a message": "raise ValueError(ODD)",
    "a type's name": "raise type(ODD.replace('\\ud800', '').replace('\\0', ''), (Exception,), {})",
    "a result": "return ODD",
    "a result's type": "return type(ODD.replace('\\ud800', '').replace('\\0', ''), (), {})()",
    "output": "print(ODD)",
    "a line of source": "raise ValueError  # \x1b[2J \u202e",
    "no Python": "raise = 1  # \x1b[2J \u202e",
    "not written": "raise NotImplementedError('double: ' + ODD)",
    "an exit": "raise SystemExit(ODD)",
    "a thread's name": "import threading, time; threading.Thread(target=time.sleep, args=(9,), "
    "name=ODD, daemon=True).start()",
}


@pytest.mark.parametrize("body", SAYING.values(), ids=SAYING)
def test_no_letter_of_an_answer_moves_a_card(body: str, grade: Callable[[str], Card]) -> None:
    card = grade(f"ODD = {ascii(ODD)}\ndef double(tensor, group):\n    {body}\n")
    assert card.status not in ("full", "broke")
    assert ElementTree.fromstring(as_junit([card]).encode()).tag == "testsuites"
    told = json.dumps(card.to_dict(), ensure_ascii=False)
    for text in (as_text(card), as_html(card), told):
        text.encode()
        odd = [each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Cn")]
        assert set(odd) <= {"\n"}


def test_what_can_be_read_stays() -> None:
    text = "naïve ✗ 漢字 😀\n\tnext: e\u0301"
    assert legible({"a": [text, 1, None, 2.5]}) == {"a": [text, 1, None, 2.5]}
    assert legible("\x1b\u202e\ud800") == "\\x1b\\u202e\\ud800"


def test_an_exception_that_cannot_be_read_is_the_answers(grade: Callable[[str], Card]) -> None:
    card = grade(
        "class E(Exception):\n    def __str__(self): raise E\n"
        "def double(tensor, group):\n    raise E\n"
    )
    assert "E: it cannot be read: E" in as_text(card)


@pytest.mark.parametrize("text", ["x = a" + ".b" * 100_000, "x = " + "-" * 100_000 + "1"])
def test_what_is_nested_too_deeply_is_not_missing(text: str, double: Entry, grader: Grader) -> None:
    double.path.write_text(text + "\n")
    card = grader.grade(double)
    assert (card.status, card.fault and card.fault.kind) == ("no_load", "syntax")


def test_the_mark_that_editors_begin_a_file_with_is_no_syntax_error(
    double: Entry, grader: Grader
) -> None:
    double.path.write_bytes(b"\xef\xbb\xbf" + double.path.read_bytes())
    assert grader.grade(double).status == "full"
