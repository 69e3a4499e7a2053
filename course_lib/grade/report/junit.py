"""Score cards as JUnit XML, which build servers show as tests."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from course_lib.grade.report.card import Card
from course_lib.grade.report.words import details, fault_lines


def as_junit(cards: Sequence[Card]) -> str:
    """Cards as JUnit XML, one test suite an exercise."""
    top = ElementTree.Element("testsuites")
    for card in cards:
        failed = [result for result in card.checks if result.state != "passed"]
        suite = ElementTree.SubElement(
            top,
            "testsuite",
            name=card.entry.name,
            tests=str(len(card.checks)),
            failures=str(len(failed)),
        )
        for number, result in enumerate(card.checks, 1):
            case = ElementTree.SubElement(
                suite, "testcase", classname=card.entry.name, name=result.check.title
            )
            if result.state != "passed":
                lines = details(result, {}, number) if result.state == "failed" else ["not run"]
                if card.fault is not None:
                    lines = fault_lines(card.fault)
                failure = ElementTree.SubElement(case, "failure", message=lines[0])
                failure.text = "\n".join(lines)
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode")
