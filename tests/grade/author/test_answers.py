"""Answers as edits: what does not fit is said, and an author can look at each whole."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from course_lib.grade.author.answers import Right, Wrong, edited, known_answers
from course_lib.grade.catalog import PACKAGE, Entry, entries
from course_lib.trace import Refusal

SOLUTION = "def f(x):\n    y = x\n\n    y += 1\n    y += 1\n    return y\n"


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ("-    y = x\n+    y = 2 * x", SOLUTION.replace("= x", "= 2 * x")),
        ("     y = x\n+    print(y)", SOLUTION.replace("= x\n", "= x\n    print(y)\n")),
        ("+import os\n def f(x):", "import os\n" + SOLUTION),
        (
            "-    return y\n@@\n-    y = x\n+    y = 0",
            "def f(x):\n    y = 0\n\n    y += 1\n    y += 1\n",
        ),
        ("     y = x\n\n-    y += 1", SOLUTION.replace("\n    y += 1", "", 1)),
    ],
)
def test_edits_are_made_where_they_fit(edits: str, text: str) -> None:
    assert edited(SOLUTION, edits) == edited(SOLUTION, f"\n{edits}\n") == text


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ("-    y = z\n+    y = x", "lines ['    y = z']\nfound: 0 places"),
        ("-    y += 1", "found: 2 places"),
        ("+    y += 1", "lines []"),
        ("-    y += 1 \n", "0 places with these lines; for '    y += 1 ' there is '    y += 1'"),
        ("return y", "found: the line 'return y'"),
    ],
)
def test_an_edit_that_does_not_fit_is_an_error(edits: str, why: str) -> None:
    with pytest.raises(Refusal) as caught:
        edited(SOLUTION, edits)
    assert why in str(caught.value)


def test_a_name_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    assert known_answers(path) == ([], [])
    kinds = "from course_lib.grade.author.answers import Right, Wrong\n"
    path.write_text(kinds + "WRONG = [Wrong('a', [], '')]\nRIGHT = [Right('b', '', 'x = 1')]\n")
    assert known_answers(path) == ([Wrong("a", [], "")], [Right("b", "", "x = 1")])
    path.write_text(kinds + "WRONG = [Wrong('a', [], '')]\nRIGHT = [Right('a', '', '')]\n")
    with pytest.raises(Refusal, match="two answers of the name a"):
        known_answers(path)


@pytest.mark.parametrize("entry", entries(PACKAGE.parent), ids=lambda entry: entry.name)
def test_every_edit_fits_and_changes_what_runs(entry: Entry) -> None:
    solution = entry.solution.read_text(encoding="utf-8")
    wrong, _ = known_answers(entry.mutants)
    texts = {each.name: edited(solution, each.edits) for each in wrong}
    code = {name: ast.dump(ast.parse(text)) for name, text in texts.items()}
    assert ast.dump(ast.parse(solution)) not in code.values()
    assert len(set(code.values())) == len(code), "two wrong answers are the same"
    assert all(each.words for each in wrong), "a wrong answer without words proves little"
