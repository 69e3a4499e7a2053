"""Every habit under every wrapper equals one process, or is refused as its row says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from course_lib.comm import Group
from course_lib.ranks import Pool, RanksError
from tests.parallel.zoo.habits.table import HABITS
from tests.parallel.zoo.habits.trainer import WRAPPERS, Trainer
from tests.parallel.zoo.harness import Different, Verdict, verdict_of


def train(group: Group, number: int, wrapper: str) -> None:
    """On a rank: the habit here alone, and then under the wrapper.

    Raises:
        Different: results of the two differ.
    """
    habit = HABITS[number]
    expected: list[Any] = tree_leaves(habit.run(Trainer("", None, group.size)))
    found: list[Any] = tree_leaves(habit.run(Trainer(wrapper, group, group.size)))
    assert found and len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if not torch.allclose(one, other, rtol=0, atol=habit.close):
            raise Different(f"off by {float((one - other).abs().max()):.1e}")


# In `make test` each habit is tried under one of the wrappers, by turns.
CASES = [
    pytest.param(
        number, wrapper, id=f"{habit.run.__name__}-{wrapper}",
        marks=pytest.mark.slow if (number + turn) % len(WRAPPERS) else (),
    )
    for number, habit in enumerate(HABITS)
    for turn, wrapper in enumerate(WRAPPERS)
]  # fmt: skip


@pytest.mark.parametrize(("number", "wrapper"), CASES)
def test_is_equal_or_refused(number: int, wrapper: str, pool_of: Callable[[int], Pool]) -> None:
    size = 2 + number % 2
    try:
        pool_of(size).run(train, number, wrapper, timeout=60)
        verdict = Verdict("equal")
    except RanksError as error:
        verdict = verdict_of(error)
    words = HABITS[number].refused.get(wrapper, "")
    assert verdict.kind == ("refused" if words else "equal") and words in verdict.words, verdict
    if words:
        assert all(part in verdict.words for part in ("asked: ", "found: ", "why: ")), verdict
