"""Every model of the zoo under every wrapper equals one process, or is refused as its row says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from course_lib.ranks import Pool
from tests.parallel.zoo.harness import GROUPS, judge
from tests.parallel.zoo.specimen import Specimen
from tests.parallel.zoo.table import ROWS
from tests.parallel.zoo.wrappers import OURS

# In `make test` every fourth pair of a row and a wrapper is tried, on one of the groups, by turns.
CASES = [
    pytest.param(
        row, wrapper, group, id=f"{row.name}-{wrapper}-{group}",
        marks=() if not row.slow and (i + j) % (4 * len(GROUPS)) == k else pytest.mark.slow,
    )
    for i, row in enumerate(ROWS)
    for j, wrapper in enumerate(OURS)
    for k, group in enumerate(GROUPS)
]  # fmt: skip


@pytest.mark.parametrize(("row", "wrapper", "group"), CASES)
def test_is_equal_or_refused(
    row: Specimen, wrapper: str, group: str, pool_of: Callable[[int], Pool]
) -> None:
    size, members = GROUPS[group]
    verdict = judge(pool_of(size), row, wrapper, members)
    kind, words = row.expected(wrapper)
    assert verdict.kind == kind and words in verdict.words, f"{verdict}\nexpected: {kind} {words}"
    if kind == "refused":
        assert all(part in verdict.words for part in ("asked: ", "found: ", "why: ")), verdict
