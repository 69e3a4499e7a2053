"""A pool of ranks that stays warm: sends them cells and functions, and never hangs with them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from course_lib.ranks.hosts.hosts import network_of
from course_lib.ranks.pool.gather import Gathering
from course_lib.ranks.pool.outcome import Outcome, RanksError, ending
from course_lib.ranks.pool.pack import Packed, by_value, packed
from course_lib.ranks.pool.rank import RankEnd
from course_lib.ranks.start.channel import ChannelClosed
from course_lib.ranks.start.forkserver import MEET_WITHIN, ForkServer, ServerDied
from course_lib.trace import Refusal

MOST_RANKS = 64
MEETING = 2.0  # seconds that ranks get to show that they can still meet
ANEW = "All ranks were started anew; their variables are gone"


class Pool:
    """N ranks, started from a preloaded process.

    Args:
        world_size: how many ranks.
        server: the preloaded process; the pool starts one of its own if None.
        device: `auto` (a GPU a rank where there are enough, else CPU), `cpu` or `cuda`.
        stall: seconds after which ranks that all wait for each other are called a deadlock.
        hosts: over how many emulated hosts the ranks are dealt out, on the CPU; 1 is none.
        mbit: speed of each host's link in Mbit/s, if there are several.

    Attributes:
        device_name: where the ranks compute (`cpu`, `cuda:0`, ...), known once they have started.
        network: the emulated hosts; None if all ranks are on this one.

    Raises:
        Refusal: no such world size, device or hosts.
    """

    def __init__(
        self,
        world_size: int,
        server: ForkServer | None = None,
        device: str | None = None,
        stall: float = 3.0,
        hosts: int = 1,
        mbit: float | None = None,
    ) -> None:
        device = device or os.environ.get("COURSE_DEVICE", "auto")
        if not 1 <= world_size <= MOST_RANKS:
            raise Refusal(f"{world_size} ranks", f"room for 1 to {MOST_RANKS}", "each is a process")
        if device not in ("auto", "cpu", "cuda"):
            raise Refusal(f"the device {device!r}", "auto, cpu and cuda", "one of these is meant")
        self.network = network_of(world_size, hosts, mbit)
        self.world_size = world_size
        self.device = "cpu" if self.network else device
        self.stall = stall
        self.server = server or ForkServer()
        self._owns_server = server is None
        self.device_name = ""
        self._ranks: list[RankEnd] = []
        self._calls: dict[int, int] = {}
        self._met: dict[int, int] = {}

    # --- life ------------------------------------------------------------------------------------
    @property
    def running(self) -> bool:
        """Whether the ranks are there and, as far as is known, well."""
        return bool(self._ranks)

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks."""
        return [rank.child.pid for rank in self._ranks]

    def start(self) -> None:
        """Starts the ranks, unless they run; returns when all have met.

        Raises:
            RanksError: they did not come up.
            HostsError: their hosts cannot be emulated here.
        """
        if self._ranks:
            return
        if self.network is not None:
            self.network.start()
        try:
            self.server.collect()
        except ServerDied:
            self.server.close()
            self.server = ForkServer()
            self._owns_server = True
        self._calls, self._met = {}, {}
        try:
            self._fork()
            outcome = self._gather(Outcome(), set(range(self.world_size)), MEET_WITHIN, stall=None)
            if outcome.verdict:
                raise RanksError(outcome)
        except BaseException:  # an interrupt, most likely: half a pool is none
            self.stop()
            raise

    def _fork(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for index in range(self.world_size):
                rank = RankEnd.start(
                    self.server, index, self.world_size, self.device, listener, self.network
                )
                self._ranks.append(rank)

    def stop(self) -> None:
        """Ends the ranks; what they held is gone."""
        for rank in self._ranks:
            rank.end()
        self._ranks = []

    def close(self) -> None:
        """Ends the ranks, and the preloaded process if the pool started it."""
        self.stop()
        if self.network is not None:
            self.network.close()
        if self._owns_server:
            self.server.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- work ------------------------------------------------------------------------------------
    def run_cell(
        self,
        source: str,
        name: str = "Cell",
        only: Sequence[int] | None = None,
        timeout: float | None = None,
        ledger: bool = False,
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
            watch: called now and then with the outcome so far, to show output while it comes.

        Returns:
            How it ended; look at `verdict`.

        Raises:
            Refusal: `only` names ranks that do not exist.
        """
        ranks = self._those(only, "a cell")
        message = {"do": "cell", "source": source, "name": name, "ledger": ledger}
        return self._work(message, ranks, timeout, watch=watch)

    def run(
        self, function: Callable[..., Any], *args: Any, timeout: float | None = None
    ) -> list[Any]:
        """Calls `function(group, *args)` on every rank; `group` is the group of all ranks.

        Returns:
            What it returned, in rank order.

        Raises:
            RanksError: it raised on a rank, or did not end.
        """
        with by_value(function):
            outcome = self._work({"do": "call"}, set(range(self.world_size)), timeout,
                                 value=(function, args))  # fmt: skip
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
            Refusal: no such rank.
        """
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
        outcome = self._work({"do": "push"}, set(range(self.world_size)), None, value=values)
        if outcome.verdict:
            raise RanksError(outcome)

    def _those(self, ranks: Sequence[int] | None, what: str) -> set[int]:
        """Ranks by number, all if None; refuses those that are not there."""
        meant, known = set(ranks or []), set(range(self.world_size))
        if ranks is not None and not (meant and meant <= known):
            found = f"ranks 0 to {self.world_size - 1}"
            raise Refusal(f"{what} of ranks {sorted(meant)}", found, "one or more are meant")
        return known if ranks is None else meant

    def _work(
        self,
        message: dict[str, Any],
        ranks: set[int],
        timeout: float | None,
        value: Any = None,
        watch: Callable[[Outcome], None] | None = None,
    ) -> Outcome:
        outcome = Outcome()
        dead = self._dead()
        if dead:
            self.stop()
            outcome.restarted = f"{dead} since the last cell. {ANEW}."
        with packed(value) as parcel:
            self.start()
            try:
                self._send(ranks, message, parcel)
                return self._after(self._gather(outcome, ranks, timeout, watch, stall=self.stall))
            except BaseException:  # an interrupt: some ranks are at it, and some not
                self.stop()
                raise

    def _send(self, ranks: set[int], message: dict[str, Any], parcel: Packed) -> None:
        for index in sorted(ranks):
            with suppress(ChannelClosed):
                parcel.send(self._ranks[index].channel, message)

    def _dead(self) -> str:
        """Ranks that have ended since they were last used, in words; "" if none."""
        try:
            self.server.collect()
        except ServerDied as error:
            return f"T{str(error)[1:]}, and the ranks with it," if self._ranks else ""
        gone = [r for r in self._ranks if r.child.status is not None]
        return "; ".join(f"Rank {r.index} {ending(r.child.status)}" for r in gone)

    def _after(self, outcome: Outcome) -> Outcome:
        """Starts the ranks anew where they cannot go on together."""
        reports = outcome.reports
        if outcome.verdict in ("deadlock", "timeout", "died", "stopped"):
            reason = "They could not go on"
        elif any(report["state"] in ("running", "stopped") for report in reports.values()):
            reason = "Some did not stop"
        elif self._in_step():
            return outcome
        else:
            outcome.verdict = outcome.verdict or "out of step"
            reason = "They made different numbers of collective calls and cannot meet any more"
        self.stop()
        outcome.restarted = f"{reason}. {ANEW}."
        return outcome

    def _in_step(self) -> bool:
        """Whether all ranks are at the same collective call of their world group.

        The backend counts messages as well, which some ranks may send and others not. So a
        difference is only a suspicion; the proof is whether they can meet in a barrier.
        """
        if len({self._calls[rank] - self._met.get(rank, 0) for rank in self._calls}) <= 1:
            return True
        everyone = set(range(self.world_size))
        with packed(None) as nothing:
            self._send(everyone, {"do": "meet"}, nothing)
        met = self._gather(Outcome(), everyone, MEETING, stall=MEETING / 4)
        self._met = dict(self._calls)
        return not met.verdict

    # --- the loop --------------------------------------------------------------------------------
    def _gather(
        self,
        outcome: Outcome,
        waiting: set[int],
        timeout: float | None,
        watch: Callable[[Outcome], None] | None = None,
        *,
        stall: float | None,
    ) -> Outcome:
        """Waits until every rank in `waiting` has answered, died or was judged stuck."""
        gather = Gathering(
            self.server, {rank.index: rank for rank in self._ranks}, outcome, waiting,
            timeout=timeout, stall=stall, watch=watch,
        )  # fmt: skip
        try:
            gather.until_done()
        except KeyboardInterrupt:
            gather.interrupt()
        for rank in self._ranks:
            gather.drain(rank)
        self._calls.update(outcome.calls)
        self.device_name = outcome.device or self.device_name
        states = {report["state"] for report in outcome.reports.values()}
        if not outcome.verdict and "killed" in states:
            outcome.verdict = "died"
        if not outcome.verdict and "raised" in states:
            outcome.verdict = "raised"
        if not outcome.verdict:
            gather.compare()
        return outcome
