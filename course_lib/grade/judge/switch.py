"""The judge's side of the network: it serves the ranks' calls, and knows when none can go on."""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence

from course_lib.comm.matching import Deadlock, Difference
from course_lib.comm.switch import Garbled, Switch
from course_lib.grade.judge.view import RankView

QUIET = 0.02  # seconds without a call after which it is looked whether there can be another

Ready = list[tuple[selectors.SelectorKey, int]]


class JudgesSwitch(Switch):
    """The switch of a run, in the judge's own loop.

    Args:
        world: how many ranks there are.
        selector: the judge's; the ranks' lines are registered with their number.

    Attributes:
        found: why the ranks can never go on, once that is so.
    """

    def __init__(self, world: int, selector: selectors.BaseSelector) -> None:
        super().__init__(world)
        self._selector = selector
        self.found: Deadlock | Difference | None = None
        for rank in range(world):
            selector.register(self.fileno(rank), selectors.EVENT_READ, rank)

    def serve(self, ranks: Sequence[RankView], seconds: float) -> Ready:
        """Carries calls until something else is ready, nothing comes, or the time is over.

        Returns:
            What else is ready.
        """
        until = time.monotonic() + seconds
        while self.found is None and (left := until - time.monotonic()) > 0:
            ready = self._selector.select(0 if self.behind else min(left, QUIET))
            called = {key.data for key, _ in ready if isinstance(key.data, int)}
            for rank in sorted(called | self.behind):
                self._hear(ranks, rank)
            others = [each for each in ready if not isinstance(each[0].data, int)]
            if others:
                return others
            self.found = self.difference
            if not ready and not self.behind:
                self._look(ranks)
        return []

    def hear_out(self, ranks: Sequence[RankView]) -> None:
        """Takes what ranks that have answered had said before: calls that nobody waited for."""
        for view in ranks:
            self._hear(ranks, view.index)

    def _look(self, ranks: Sequence[RankView]) -> None:
        """Nobody has called for a while: computing, or stuck."""
        for view in ranks:
            self._hear(ranks, view.index)
        self.found = self.standstill([view.index for view in ranks if view.state == "running"])

    def _hear(self, ranks: Sequence[RankView], rank: int) -> None:
        """Takes what a rank has said; one that says what is no call of ours is refused."""
        try:
            if self.hear(rank):
                return
        except Garbled as error:
            ranks[rank].garbled, ranks[rank].state = str(error), "raised"
        if self.fileno(rank) in self._selector.get_map():
            self._selector.unregister(self.fileno(rank))
