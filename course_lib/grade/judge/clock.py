"""How much time a run has had: on a busy machine that is less than has passed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.grade.judge.view import RankView

SHARE = 0.25  # of a processor: who gets as much is at work, also where his state cannot be seen


class Clock:
    """The time that ranks have had since they were started.

    While a rank is at work, only the processor time counts that it was given: others may have the
    processor. While all wait, everything counts.

    Args:
        ranks: whose time is counted; `worked` of each is kept up to date.

    Attributes:
        had: seconds that they have had.
        passed: seconds that have passed.
    """

    def __init__(self, ranks: Sequence[RankView]) -> None:
        self._ranks = ranks
        self._begin = self._last = time.monotonic()
        self._used = [view.cpu() for view in ranks]
        self.had = self.passed = 0.0

    def look(self) -> None:
        """Counts the time since the last look."""
        now, used = time.monotonic(), [view.cpu() for view in self._ranks]
        since, most = now - self._last, 0.0
        waiting = True
        for view, before, after in zip(self._ranks, self._used, used, strict=True):
            most = max(most, after - before)
            if view.state == "running" and (view.runs() or after - before > SHARE * since):
                view.worked += since
                waiting = False
        self.had += since if waiting else min(most, since)
        self._last, self._used, self.passed = now, used, now - self._begin
