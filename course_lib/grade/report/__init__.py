"""What a grading found, as data and in words, and the way so far."""

from course_lib.grade.report.card import Card, CheckResult, write_atomically, write_json
from course_lib.grade.report.junit import as_junit
from course_lib.grade.report.legible import legible
from course_lib.grade.report.page import as_html
from course_lib.grade.report.words import as_text, details, fault_lines

__all__ = [
    "Card",
    "CheckResult",
    "as_html",
    "as_junit",
    "as_text",
    "details",
    "fault_lines",
    "legible",
    "write_atomically",
    "write_json",
]
