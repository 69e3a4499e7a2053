"""A pool of ranks that stays warm: sends them cells and functions, and never hangs with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from course_lib.ranks.pool.outcome import Outcome, RanksError
from course_lib.ranks.pool.pack import Packed, by_value, packed
from course_lib.ranks.pool.team import AGAIN, Team
from course_lib.trace import Refusal


class Pool(Team):
    """N ranks that carry out what they are sent; what can be asked of them is said at `Team`."""

    def run_cell(
        self,
        source: str,
        name: str = "Cell",
        only: Sequence[int] | None = None,
        timeout: float | None = None,
        ledger: bool = False,
        types: bool = False,
        watch: Callable[[Outcome], None] | None = None,
    ) -> Outcome:
        """Runs source code on the ranks.

        Args:
            source: Python; its last expression is shown.
            name: stands as the file name in tracebacks; begins with `Cell`.
            only: the ranks to run it on; all if None.
            timeout: seconds after which it is stopped; None for no limit. A deadlock is ended
                without one.
            ledger: whether to bring back the ledgers.
            types: whether to record all operations on tensors.
            watch: called now and then with the outcome so far, to show output while it comes.

        Returns:
            How it ended; look at `verdict`.

        Raises:
            Refusal: `only` names ranks that do not exist.
        """
        ranks = self._those(only, "a cell")
        kept = {"ledger": ledger, "types": types}
        message = {"do": "cell", "source": source, "name": name, **kept}
        return self._work(message, ranks, timeout, watch=watch)

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = None,
        watch: Callable[[Outcome], None] | None = None,
    ) -> list[Any]:
        """Calls `function(group, *args)` on every rank; `group` is the group of all ranks.

        Args:
            function: any function.
            args: further arguments, the same on every rank.
            timeout: seconds after which it is stopped; None for no limit.
            watch: called now and then with the outcome so far, and with all of it at the end.

        Returns:
            What it returned, in rank order.

        Raises:
            RanksError: it raised on a rank, or did not end.
        """
        everyone = set(range(self.world_size))
        with by_value(function):
            job = packed((function, args))
        outcome = self._work({"do": "call"}, everyone, timeout, job, watch)
        if watch is not None:
            watch(outcome)
        if outcome.verdict:
            raise RanksError(outcome)
        return [outcome.values[rank] for rank in range(self.world_size)]

    def pull(self, name: str, rank: int | None = None) -> Any:
        """The value of a variable or expression in the ranks.

        Args:
            name: what to evaluate there.
            rank: one rank; None for all.

        Returns:
            A list in rank order, or the one rank's value. Tensors arrive on the CPU.

        Raises:
            RanksError: it does not exist there, or cannot be sent.
            Refusal: no such rank, or a name that is none.
        """
        if not isinstance(name, str) or not name.strip():
            why = "a name is text, as in pull('loss')"
            raise Refusal(f"the value of {name!r} in the ranks", "no name", why)
        ranks = self._those(None if rank is None else [rank], "a value")
        outcome = self._work({"do": "pull", "name": name}, ranks, None)
        if outcome.verdict:
            raise RanksError(outcome)
        values = outcome.values
        return values[rank] if rank is not None else [values[r] for r in sorted(values)]

    def push(self, **values: Any) -> None:
        """Sets variables in every rank.

        Raises:
            RanksError: a value cannot be unpacked there.
        """
        everyone = set(range(self.world_size))
        outcome = self._work({"do": "push"}, everyone, None, packed(values))
        if outcome.verdict:
            raise RanksError(outcome)

    def _those(self, ranks: Sequence[int] | None, what: str) -> set[int]:
        """Ranks by number, all if None; refuses those that are not there."""
        meant, known = set(ranks or []), set(range(self.world_size))
        if ranks is not None and not (meant and meant <= known):
            found = f"ranks 0 to {self.world_size - 1}"
            raise Refusal(f"{what} of ranks {sorted(meant)}", found, "one or more are meant")
        return known if ranks is None else {rank for rank in known if rank in meant}

    def _work(
        self,
        message: dict[str, Any],
        ranks: set[int],
        timeout: float | None,
        parcel: Packed | None = None,
        watch: Callable[[Outcome], None] | None = None,
    ) -> Outcome:
        outcome = Outcome()
        with parcel or packed(None) as parcel, self._turns.taken():
            dead = self._dead()
            if dead:
                self.stop()
                outcome.restarted = f"{dead} since the last cell. {AGAIN}."
            if not self._ranks:
                self._start()
            try:
                self._send(ranks, message, parcel)
                return self._after(self._gather(outcome, ranks, timeout, watch, stall=self.stall))
            except BaseException:  # an interrupt: some ranks are at it, and some not
                self.stop()
                raise
