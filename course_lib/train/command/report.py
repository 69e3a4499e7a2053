"""What is done with the numbers of each step: measured, looked at, shown, written.

Notebook: 13 3D parallelism.
Costs what `meter` and `log` cost.
The production version sends them to a server, and wakes somebody.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from course_lib.checkpoint import AsyncSaver
from course_lib.checkpoint.agree import together
from course_lib.train.command.config import RunConfig
from course_lib.train.command.finite import LossWatch, is_finite, not_finite
from course_lib.train.command.folder import LOG
from course_lib.train.command.log import JsonLines, Log, TensorBoard
from course_lib.train.command.meter import Meter
from course_lib.train.command.progress import Progress
from course_lib.train.mesh_model import MeshModel
from course_lib.train.step import Optimizers


class Reporter:
    """Takes each step of a run; index 0 shows and writes it. Collective.

    Args:
        model: on its mesh.
        optimizers: the model's.
        config: of the run.
        start: the step after which it goes on.
        bar: as for `train`.

    Raises:
        CheckpointError: the log cannot be opened; the same on every rank.
    """

    def __init__(
        self,
        model: MeshModel,
        optimizers: Optimizers,
        config: RunConfig,
        start: int,
        bar: bool | None,
    ) -> None:
        self.config, self.group = config, model.everyone
        self.meter = Meter(model, optimizers, config.peak_tflops * 1e12)
        self.watch = LossWatch(model)
        self.logs: list[Log] = []
        self._failed: OSError | None = None
        asked = f"open the log in {config.folder}" if config.folder else "show the progress"
        together(asked, lambda: self._open(start, bar), self.group)

    def _open(self, start: int, bar: bool | None) -> None:
        if self.group.index:
            return
        if self.config.folder:
            folder = Path(self.config.folder)
            lines = JsonLines(folder / LOG, start)
            self.logs.append(lines)
            with suppress(ImportError):  # not installed, and the lines of JSON have the same
                self.logs.append(TensorBoard(folder / "tensorboard", start))
            if start:
                again = f"; {lines.cut} later rows of the log are made again" if lines.cut else ""
                if start >= self.config.steps:
                    again = f": nothing is left to do of {self.config.steps}"
                print(f"resumed after step {start}{again}", file=sys.stdout, flush=True)
        self.logs.append(Progress(self.config.steps, anew=bar))

    def add(self, row: dict[str, Any], saver: AsyncSaver | None) -> None:
        """Completes a step's row, and writes it.

        Args:
            row: of `train`; what was measured is added.
            saver: whose checkpoint under way is finished first if the run ends here.

        Raises:
            NotFinite: the step gave no numbers.
        """
        row |= self.meter.measure(self.group.ledger.events, row["tokens"], row["seconds"])
        if self._failed is None:
            self._write(row)
        if not is_finite(row):
            if saver is not None:
                saver.wait()
            raise not_finite(row, self.watch, self.group, self.config.folder)

    def _write(self, row: dict[str, Any]) -> None:
        try:
            for log in self.logs:
                log.add(row)
        except OSError as error:  # the others must hear of it, where all of them listen
            self._failed = error

    def settle(self) -> None:
        """Refuses, on all ranks, if a row could not be written. Collective.

        Raises:
            CheckpointError: it could not.
        """

        def look() -> None:
            if self._failed is not None:
                raise self._failed

        together(f"write the log in {self.config.folder}", look, self.group)

    def close(self) -> None:
        """Ends the logs."""
        self.settle()
        for log in self.logs:
            log.close()
