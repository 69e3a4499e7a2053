"""Models of transformers and timm under every wrapper; nightly, where these are installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from course_lib.ranks import Pool
from tests.parallel.zoo.harness import GROUPS, judge
from tests.parallel.zoo.others.real import REAL
from tests.parallel.zoo.specimen import Specimen
from tests.parallel.zoo.wrappers import OURS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("wrapper", OURS)
@pytest.mark.parametrize("row", REAL.values(), ids=REAL)
def test_is_equal_or_refused(row: Specimen, wrapper: str, pool_of: Callable[[int], Pool]) -> None:
    pytest.importorskip("timm" if "timm" in row.make.__qualname__ else "transformers")
    size, members = GROUPS["ranks 2, 0 of 3"]
    verdict = judge(pool_of(size), row, wrapper, members)
    kind, words = row.expected(wrapper)
    assert verdict.kind == kind and words in verdict.words, f"{verdict}\nexpected: {kind} {words}"
