"""Ranks are forks of one process, and yet unlike each other where processes would be."""

from __future__ import annotations

import pytest

from course_lib.grade.rank.unlike import own_hash
from course_lib.grade.report import as_text
from tests.grade.test_hostile import Grade

SAYS_WHETHER_ALIKE = """
import torch
from course_lib.comm import all_gather

def double(tensor, group):
    found = torch.empty(group.size, dtype=torch.int64)
    all_gather(found, torch.tensor([SEED]), group)
    raise ValueError("alike" if len(set(found.tolist())) == 1 else "unlike")

SEED = """


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("hash('a')", "unlike"),
        ("hash(('a', 1))", "unlike"),
        ("hash(b'a')", "unlike"),
        ("id(double)", "unlike"),
        ("hash((1, 2))", "alike"),
    ],
)
def test_what_each_process_has_of_its_own(text: str, word: str, grade: Grade) -> None:
    assert f"ValueError: {word}" in as_text(grade(SAYS_WHETHER_ALIKE + text + "\n"))


def test_numbers_hash_as_ever() -> None:
    salted = own_hash(3)
    for thing in (1, 1.5, (1, 2), None, frozenset({1}), int):
        assert salted(thing) == hash(thing)
    with pytest.raises(TypeError):
        salted(["a"])
