"""Random programs: a wrapper on random ranks equals one process, or refuses, also after a failure.

`COURSE_RANDOM=10000` draws as many, and `COURSE_RANDOM_FROM=500` begins at another seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from course_lib.ranks import Pool
from tests.parallel.zoo.random_case import is_right, judge_program, shrink
from tests.parallel.zoo.random_program import draw

COUNT = int(os.environ.get("COURSE_RANDOM", "40"))
FIRST = int(os.environ.get("COURSE_RANDOM_FROM", "0"))
TOGETHER = 40  # programs in one test


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, TOGETHER))
def test_random_programs(first: int, pool_of: Callable[[int], Pool]) -> None:
    ends: Counter[str] = Counter()
    for seed in range(first, min(first + TOGETHER, FIRST + COUNT)):
        program = draw(seed)
        verdict = judge_program(pool_of(program.size), program)
        if not is_right(verdict):
            least = shrink(pool_of(program.size), program, verdict.kind)
            raise AssertionError(f"{program}\nended: {verdict}\nthe smallest that does: {least}")
        ends[verdict.kind] += 1
    assert ends["equal"] > ends["refused"], f"hardly anything ran: {ends}"
