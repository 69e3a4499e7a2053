"""What torch's own wrappers make of the zoo is still what is recorded; `COURSE_WRITE=1` records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from course_lib.ranks import Pool
from tests.parallel.zoo.others.theirs import FOUND, THEIRS, found, recorded
from tests.parallel.zoo.table import ROWS


@pytest.mark.slow
def test_torch_is_as_recorded(pool_of: Callable[[int], Pool]) -> None:
    now = {row.name: {w: str(found(pool_of(2), row, w)) for w in THEIRS} for row in ROWS}
    if os.environ.get("COURSE_WRITE") == "1":
        FOUND.write_text(json.dumps(now, indent=1) + "\n")
    assert now == recorded()
