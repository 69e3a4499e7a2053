"""`%%ranks`: a notebook cell that runs on real processes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import display

from course_lib.ranks.hosts.recorded import Run, live_or_recorded
from course_lib.ranks.magic import torchrun
from course_lib.ranks.magic.asked import (
    Form,
    Parser,
    cell_parser,
    pool_parser,
    simulated_parser,
    torchrun_parser,
)
from course_lib.ranks.magic.live import LiveText
from course_lib.ranks.magic.plain import plain
from course_lib.ranks.magic.render import text_of
from course_lib.ranks.magic.simulated import simulated_cell
from course_lib.ranks.pool.autopsy import names
from course_lib.ranks.pool.outcome import Outcome, RanksError
from course_lib.ranks.pool.pool import Pool
from course_lib.ranks.pool.run import run_on_ranks
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.ranks.system.interrupts import held
from course_lib.spmd import types_of
from course_lib.trace import FlightLog, Refusal, Timeline

DEFAULT_RANKS = 4


class RanksFailed(Exception):
    """Ends a cell whose ranks failed; the notebook shows the story and no traceback of ours."""

    def __init__(self, story: str) -> None:
        super().__init__(story.splitlines()[0] if story else "")
        self.story = story

    def _render_traceback_(self) -> list[str]:
        return self.story.splitlines()


def _asked(parser: Parser, line: str) -> argparse.Namespace:
    try:
        return parser.read(line)
    except Refusal as error:
        raise UsageError(str(error)) from None


def _so_far(outcome: Outcome) -> str:
    """What a cell that runs has printed last, and whom its ranks have long waited for."""
    return "\n".join(filter(None, [text_of(outcome.output, 0, 30), outcome.waits]))


@magics_class
class RanksMagics(Magics):
    """The magics, and the pool behind them.

    Args:
        shell: the notebook's IPython shell.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._server = ForkServer()  # begins to import torch while the reader reads
        self._pool: Pool | None = None
        self._form = Form(DEFAULT_RANKS)
        self._last: Outcome = Outcome()

    # --- what the notebook's own code gets -----------------------------------------------------
    def names(self) -> dict[str, Callable[..., Any]]:
        """Functions for the notebook's namespace."""
        return {
            "pull": self.pull,
            "push": self.push,
            "output": self.output,
            "timeline": self.timeline,
            "flight_logs": self.flight_logs,
            "run_on_ranks": self.run_on_ranks,
            "live_or_recorded": self.live_or_recorded,
        }

    def server(self) -> ForkServer:
        """The preloaded process; another one if it has ended."""
        self._server.revive()
        return self._server

    def pull(self, name: str, rank: int | None = None) -> Any:
        """The value of a variable in the ranks: a list in rank order, or one rank's value."""
        return self._or_story(lambda: self._running().pull(name, rank))

    def push(self, **values: Any) -> None:
        """Sets variables in every rank: `push(lr=0.1)`."""
        self._or_story(lambda: self._running().push(**values))

    def output(self, rank: int) -> str:
        """All that one rank printed in the last cell."""
        if rank not in (printed := self._last.output):
            raise RanksFailed(f"output({rank!r}): the last cell ran on {names(printed)}")
        return printed[rank].decode("utf-8", "replace")

    def timeline(self) -> Timeline:
        """The ledgers of the last `%%ranks` cell that was run with `--ledger`."""
        if not self._last.ledgers:
            raise RanksFailed("timeline(): the last %%ranks cell was run without --ledger")
        return self._last.timeline()

    def flight_logs(self) -> list[FlightLog]:
        """The last calls of each rank in the last `%%ranks` cell, which had to be stopped."""
        if not self._last.flight_logs:
            raise RanksFailed("flight_logs(): in the last %%ranks cell no rank had to be stopped")
        return self._last.flight_logs

    def run_on_ranks(
        self,
        function: Callable[..., Any],
        world_size: int,
        *args: Any,
        hosts: int = 1,
        mbit: float | None = None,
        cluster: str = "",
        equal: str = "",
    ) -> list[Any]:
        """Calls `function(group, *args)` on fresh or simulated ranks; the results in rank order.

        What the ranks print is shown, as that of a cell.
        """
        where = {"hosts": hosts, "mbit": mbit, "cluster": cluster, "equal": equal}
        shown = LiveText()

        def watch(outcome: Outcome) -> None:
            self._last = outcome
            ended = all(report["state"] != "running" for report in outcome.reports.values())
            shown.finish(text_of(outcome.output)) if ended else shown.update(_so_far(outcome))

        return self._or_story(
            lambda: run_on_ranks(
                function, world_size, *args, server=self.server(), watch=watch, **where
            )
        )

    def live_or_recorded(
        self,
        path: str,
        function: Callable[..., Any],
        world_size: int,
        *args: Any,
        hosts: int,
        mbit: float,
    ) -> Run:
        """The run on emulated hosts, or the recording in `path` where there can be none."""
        return self._or_story(
            lambda: live_or_recorded(
                path, function, world_size, *args, hosts=hosts, mbit=mbit, server=self.server()
            )
        )

    def _running(self) -> Pool:
        if self._pool is None:
            raise RanksFailed("There are no ranks yet: start them with %ranks N.")
        return self._pool

    def _or_story(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RanksError as error:
            raise RanksFailed(error.outcome.story()) from None
        except Refusal as error:
            raise RanksFailed(str(error)) from None
        except KeyboardInterrupt:
            raise RanksFailed("Interrupted.") from None

    # --- magics ----------------------------------------------------------------------------------
    @line_magic("ranks")
    def start(self, line: str) -> None:
        """`%ranks N [--hosts H --mbit M]`: starts N ranks, or says how many run.

        With `--hosts`, they are dealt out to H emulated hosts, each behind a link of M Mbit/s.
        """
        pool = self._sized(_asked(pool_parser("%ranks"), line), fresh=False)
        self._or_story(pool.start)
        where = "CPU (gloo)" if pool.device_name == "cpu" else pool.device_name
        count = Form(pool.world_size)
        print(f"{count} on {where}, {pool.network}" if pool.network else f"{count} on {where}")

    @cell_magic("ranks")
    def run(self, line: str, cell: str) -> None:
        """`%%ranks [N] [--hosts H --mbit M] [--only 0,2] [--timeout S] [--ledger] ...`.

        Runs the cell on every rank. `--hosts` deals the ranks out to H emulated hosts with links of
        M Mbit/s; `--only` leaves ranks out; `--timeout` ends it after S seconds (a deadlock ends by
        itself); `--ledger` shows what went over the wire, `--types` the type of each tensor
        (replicated, sharded, partial, varying) and which sums are missing; `--fresh` starts the
        ranks again first; `--expect-failure` shows a failure and lets the notebook go on.
        `--cluster 64x8xH100` simulates the ranks on such a cluster, and `--equal pp8,dp8*,tp8*`
        says which do the same.
        """
        if "--cluster" in line:
            self._simulate(_asked(simulated_parser(), line), cell)
            return
        asked = _asked(cell_parser(), line)
        pool = self._sized(asked, asked.fresh)
        source = "\n" + plain(cell)  # line numbers are the editor's: the magic stands on line 1
        shown = LiveText()
        try:
            self._last = pool.run_cell(
                source, f"Cell In[{self._number()}]", asked.only, asked.timeout,
                asked.ledger, asked.types, lambda outcome: shown.update(_so_far(outcome)),
            )  # fmt: skip
        except Refusal as error:
            raise UsageError(str(error)) from None
        except RanksError as error:
            self._last = error.outcome
        except KeyboardInterrupt:  # while the ranks were started: a running cell answers itself
            raise RanksFailed("Interrupted.") from None
        self._show(self._last, shown, asked)

    @cell_magic("torchrun")
    def torchrun(self, line: str, cell: str) -> None:
        """`%%torchrun [N] [--timeout S]`: runs the cell as a script under the real torchrun."""
        asked = _asked(torchrun_parser(), line)
        shown = LiveText()

        def watch(output: dict[int, bytes]) -> None:
            shown.update(text_of(output, 0, 30) or torchrun.STARTS)

        result = self._or_story(lambda: torchrun.run(cell, asked.world_size, asked.timeout, watch))
        shown.finish(text_of(result.output))
        if result.failure:
            raise RanksFailed(result.failure)

    def _number(self) -> int:
        """The number of the cell that runs; the shell's own is the next one's by then, or not."""
        result = self._shell.displayhook.exec_result
        own = None if result is None else result.execution_count
        return int(self._shell.execution_count if own is None else own)

    def _simulate(self, asked: argparse.Namespace, cell: str) -> None:
        """A cell on ranks that are simulated in this process."""
        name = f"Cell In[{self._number()}]"
        try:
            self._last = simulated_cell(
                "\n" + plain(cell), name, asked.world_size, asked.cluster, asked.equal
            )
        except Refusal as error:
            raise UsageError(str(error)) from None
        except KeyboardInterrupt:
            raise RanksFailed("Interrupted.") from None
        self._show(self._last, LiveText(), asked)

    # --- inside ----------------------------------------------------------------------------------
    def _sized(self, asked: argparse.Namespace, fresh: bool) -> Pool:
        """The pool that is asked for: the one there is, or a new one if that has another form.

        Raises:
            UsageError: there can be no such pool.
            RanksFailed: an interrupt came.
        """
        try:
            with held():
                return self._resized(asked, fresh)
        except Refusal as error:
            raise UsageError(str(error)) from None
        except KeyboardInterrupt:
            raise RanksFailed("Interrupted.") from None

    def _resized(self, asked: argparse.Namespace, fresh: bool) -> Pool:
        now, wanted = self._form, self._form.changed(asked)
        if self._pool is not None and wanted == now and not fresh:
            return self._pool
        pool = Pool(wanted.world_size, self.server(), hosts=wanted.hosts, mbit=wanted.mbit)
        before, self._pool, self._form = self._pool, pool, wanted
        if before is not None:
            if before.running and not fresh:
                change = wanted.words_after(now)
                print(f"{change}: all start again, their variables are gone.")
            before.close()
        return pool

    def _show(self, outcome: Outcome, shown: LiveText, asked: argparse.Namespace) -> None:
        """Shows output, pictures and the ledger; raises what went wrong."""
        shown.finish(text_of(outcome.output))
        many = len({rank for rank, _ in outcome.displays}) > 1
        for rank, data in sorted(outcome.displays, key=lambda item: item[0]):
            if many:
                display({"text/plain": names([rank])}, raw=True)
            display(data, raw=True)
        if asked.ledger and outcome.ledgers:
            display({"text/plain": outcome.timeline().table()}, raw=True)
        if asked.types and outcome.operations and not outcome.verdict:
            records = [record for _, record in sorted(outcome.operations.items())]
            display({"text/plain": types_of(records).table()}, raw=True)
        story = outcome.story()
        if outcome.verdict and not asked.expect_failure:
            raise RanksFailed(story)
        if asked.expect_failure and not outcome.verdict:
            raise RanksFailed("The cell was expected to fail, and every rank finished.")
        if story:
            display({"text/plain": story}, raw=True)

    def close(self) -> None:
        """Ends the ranks and the preloaded process."""
        with held():
            if self._pool is not None:
                self._pool.close()
            self._server.close()
