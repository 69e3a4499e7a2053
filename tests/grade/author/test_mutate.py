"""Machine-made wrong answers: which slips are made, and which would change nothing."""

from __future__ import annotations

import pytest

from course_lib.grade.author.mutate import mutants

START, END = "    # BEGIN SOLUTION\n", "    # END SOLUTION\n"
GROUP = (
    f"def shared(x, group: Group):\n{START}    y = x + 1\n    all_reduce(y, group)\n{END}"
    "    return y\n"
)
PLAIN = (
    f"def area(a, b):\n{START}    left = a * 2\n    right = b + 1\n    return left * right\n{END}"
)


def changes(source: str) -> list[str]:
    return [mutant.what for mutant in mutants(source)]


def test_the_slips_of_one_function() -> None:
    made = changes(GROUP)
    assert "line 4: delete `all_reduce(y, group)`" in made
    assert "line 4: only on rank 0: `all_reduce(y, group)`" in made
    assert "line 3: swap with the next statement" in made
    assert {"line 3: 2 for 1", "line 3: 0 for 1", "line 3: Sub for Add"} <= set(made)
    assert not [what for what in made if "return" in what], "that line is given"
    assert len({mutant.source for mutant in mutants(GROUP)} - {GROUP}) == len(made)


def test_mutants_are_the_fields_own_slips() -> None:
    made = changes(
        f"def f(t, group: Group, op='avg'):\n{START}"
        "    work = isend(t.clone(), group.next, group, step=1)\n    work.wait()\n"
        f"    if op == 'avg':\n        t /= group.size\n{END}    return t\n"
    )
    for wanted in ("drop .clone()", "drop step=", "drop .wait()", "previous for next",
                   "irecv for isend", "sum for avg", "not (op == 'avg')", "Mult for Div",
                   "skip on rank 0: `work.wait()`"):  # fmt: skip
        assert any(wanted in what for what in made), (wanted, made)


def test_without_a_group_no_rank_does_anything_alone() -> None:
    assert not [what for what in changes(PLAIN) if "on rank 0" in what]


@pytest.mark.parametrize(
    ("second", "swapped"),
    [
        ("right = b + 1", False),  # either order does the same
        ("right = left + 1", True),
        ("left, right = b, 1", True),
        ("right = len(b)", False),
        ("a.right = b", True),
        ("all_reduce(b)", True),
    ],
)
def test_statements_that_may_change_places(second: str, swapped: bool) -> None:
    made = changes(f"def area(a, b):\n{START}    left = take(a)\n    {second}\n{END}")
    assert ("line 3: swap with the next statement" in made) is swapped


def test_a_line_that_is_marked_is_left_alone() -> None:
    assert changes(f"def one(x):\n{START}    return x + 1  # mutate: same\n{END}") == []
