"""Ranks that were started together: how they start, answer, are found to be broken, and end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from course_lib.ranks.hosts.hosts import network_of
from course_lib.ranks.pool.gather import Gathering
from course_lib.ranks.pool.outcome import Outcome, RanksError, ending
from course_lib.ranks.pool.pack import Packed, packed
from course_lib.ranks.pool.rank import RankEnd
from course_lib.ranks.pool.waiting import Told
from course_lib.ranks.start.channel import ChannelClosed
from course_lib.ranks.start.forkserver import MEET_WITHIN, ForkServer, ServerDied
from course_lib.ranks.system.interrupts import Turns, held
from course_lib.trace import Refusal

MOST_RANKS = 64
MEETING = 2.0  # seconds that ranks get to show that they can still meet
AGAIN = "All ranks were started again; their variables are gone"


class Team:
    """N ranks, started from a preloaded process; `Pool` gives them work.

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
        if not (isinstance(world_size, int) and 1 <= world_size <= MOST_RANKS):
            raise Refusal(
                f"{world_size!r} ranks", f"room for 1 to {MOST_RANKS}", "each is a process"
            )
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
        self._turns = Turns()

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
        with self._turns.taken():
            if not self._ranks:
                self._start()

    def _start(self) -> None:
        if self.network is not None:
            self.network.start()
        self.server.revive()
        self._calls, self._met = {}, {}
        try:
            self._fork()
            outcome = self._gather(Outcome(), set(range(self.world_size)), MEET_WITHIN, stall=None)
            if outcome.verdict:
                raise RanksError(outcome)
        except ServerDied as error:
            self.stop()
            asked, why = f"start {self.world_size} ranks", "all ranks come from that process"
            raise Refusal(asked, str(error), why) from None
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
        """Ends the ranks; what they held is gone. It can be repeated, and called at any time."""
        with held():
            ranks, self._ranks = self._ranks, []  # first: nothing may be closed twice
            for rank in ranks:
                rank.end()

    def close(self) -> None:
        """Ends the ranks, and the preloaded process if the pool started it."""
        with held():
            self.stop()
            if self.network is not None:
                self.network.close()
            if self._owns_server:
                self.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- health ----------------------------------------------------------------------------------
    def _send(self, ranks: set[int], message: dict[str, Any], parcel: Packed) -> None:
        for index in sorted(ranks):
            self._ranks[index].requests += 1
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
        """Starts the ranks again where they cannot go on together."""
        reports, alike = outcome.reports, self._alike()
        if outcome.verdict in ("deadlock", "timeout", "died", "stopped"):
            reason = "They could not go on"
        elif any(report["state"] in ("running", "stopped") for report in reports.values()):
            reason = "Some did not stop"
        elif outcome.broken:
            reason = outcome.broken
        elif self._in_step(outcome):
            return outcome
        else:
            outcome.verdict = outcome.verdict or "out of step"
            reason = "They made different numbers of collective calls and cannot meet any more"
            if alike:
                reason = "They cannot reach each other any more"
        self.stop()
        outcome.restarted = f"{reason}. {AGAIN}."
        return outcome

    def _in_step(self, outcome: Outcome) -> bool:
        """Whether all ranks are at the same collective call of their world group.

        The backend counts messages as well, which some ranks may send and others not. So a
        difference is only a suspicion; the proof is whether they can meet in a barrier. They have
        to prove it as well after a call that failed, which may have broken a connection. An
        interrupt meanwhile becomes the verdict.
        """
        failed = any(
            rep["state"] == "raised" and rep.get("call") for rep in outcome.reports.values()
        )
        if self._alike() and not failed:
            return True
        everyone = set(range(self.world_size))
        with packed(None) as nothing:
            self._send(everyone, {"do": "meet"}, nothing)
        met = self._gather(Outcome(), everyone, MEETING, stall=MEETING / 4)
        self._met = dict(self._calls)
        if met.verdict == "interrupted":
            outcome.verdict = met.verdict
        return not met.verdict

    def _alike(self) -> bool:
        """Whether all ranks have made equally many calls since they last met."""
        return len({self._calls[rank] - self._met.get(rank, 0) for rank in self._calls}) <= 1

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
        told = Told()
        watch = watch or (lambda outcome: told(outcome.waits))
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
