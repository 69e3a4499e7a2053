"""Machine-made wrong answers: which slips are made, and which would change nothing."""

from __future__ import annotations

import pytest

from course_lib.grade.author.mutate import mutants

GROUP = "def shared(x, group):\n    y = x + 1\n    all_reduce(y, group)\n    return y\n"
PLAIN = "def area(a, b):\n    left = a * 2\n    right = b + 1\n    return left * right\n"


def changes(source: str) -> list[str]:
    return [mutant.what for mutant in mutants(source)]


def test_the_slips_of_one_function() -> None:
    made = changes(GROUP)
    assert "line 3: delete `all_reduce(y, group)`" in made
    assert "line 3: only on rank 0: `all_reduce(y, group)`" in made
    assert "line 3: swap with the next statement" in made
    assert {"line 2: 2 for 1", "line 2: 0 for 1", "line 2: Sub for Add"} <= set(made)
    assert len({mutant.source for mutant in mutants(GROUP)} - {GROUP}) == len(made)


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
    made = changes(f"def area(a, b):\n    left = take(a)\n    {second}\n")
    assert ("line 2: swap with the next statement" in made) is swapped


def test_a_line_that_is_marked_is_left_alone() -> None:
    assert changes("def one(x):\n    return x + 1  # mutate: same\n") == []
