"""Which cases of a table run in `make test`; all of them run in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Values of one argument, for `parametrize`: one in `every` is quick, the others are slow."""
    return [
        pytest.param(case, marks=[pytest.mark.slow] * (number % every != 0))
        for number, case in enumerate(cases)
    ]
