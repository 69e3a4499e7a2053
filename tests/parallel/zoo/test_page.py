"""docs/wrappers.md says what the zoo asserts; `COURSE_WRITE=1` writes it again."""

from __future__ import annotations

import os

from tests.parallel.zoo.page import PAGE, renewed


def test_page_is_current() -> None:
    text = PAGE.read_text()
    if os.environ.get("COURSE_WRITE") == "1":
        PAGE.write_text(renewed(text))
    assert PAGE.read_text() == renewed(text), "run this test with COURSE_WRITE=1"
