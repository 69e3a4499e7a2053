"""Tells a deadlock of torch's network from slowness: two looks between which nothing has moved."""

from __future__ import annotations

from typing import Any

from course_lib.ranks.pool import autopsy

STILL = 0.6  # seconds without any movement that make a deadlock
MEMORY = 40 * STILL  # seconds for which looks are kept: on a busy machine it takes so long
CHANCES = 20  # looks at its connections that each rank has in vain, where it stands still

Reports = dict[int, dict[str, Any]]


class Looks:
    """The reports of all ranks in the last seconds."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, Reports]] = []

    def show_standstill(self, now: float, reports: Reports) -> bool:
        """Whether nothing has moved since one of the looks, with these reports as the last."""
        self._looks = [(t, r) for t, r in self._looks if now - t < MEMORY] + [(now, reports)]
        for then, earlier in self._looks:
            long = now - then >= STILL and _had_chances(earlier, reports, now - then)
            if long and autopsy.standstill(earlier, reports, now - then):
                return True
        return False


def _had_chances(
    earlier: dict[int, dict[str, Any]], later: dict[int, dict[str, Any]], seconds: float
) -> bool:
    """Whether every waiting rank has looked at its connections often enough in between.

    gloo's thread does so a hundred times a second, if it gets a processor. Where it got none, what
    the others have sent may lie there unread; and a rank whose report is an old one has not even
    been able to answer. Where nobody counts how often a thread sleeps, its turn comes in a while.
    """
    for rank, report in later.items():
        before, now = earlier[rank].get("threads", {}), report.get("threads", {})
        slept = [now[name][0] - before[name][0] for name in now.keys() & before.keys() - {"main"}]
        counted = any(times for times, _ in now.values())
        enough = sum(slept) >= CHANCES if counted else seconds >= 4 * STILL
        if report["state"] == "running" and now and not enough:
            return False
    return True
