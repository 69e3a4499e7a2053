"""How far a run is, in one live line on a terminal; elsewhere in ten lines, or more if it is slow.

Notebook: 13 3D parallelism.
Costs a line of text a step, on one rank.
The production version (tqdm) also knows how wide the terminal is.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, TextIO

from course_lib.comm import Group


class Progress:
    """How far a run is: a line that is overwritten, with the time left, or ten lines without.

    Args:
        steps: in all.
        out: where to.
        anew: whether a carriage return goes back to the beginning of the line, as in a terminal.
    """

    WIDTH = 24
    QUIET = 30.0  # seconds of steps after which a line is due

    def __init__(self, steps: int, out: TextIO | None = None, *, anew: bool | None = None) -> None:
        # None: a process may be started with its standard output closed.
        self.steps, self.out = steps, sys.stdout if out is None else out
        self.anew = self.out is not None and self.out.isatty() if anew is None else anew
        self._lines = 0
        self._quiet = 0.0  # seconds since the last line
        self._seconds = self._made = 0.0

    def add(self, row: dict[str, Any]) -> None:
        """Shows a step, if it is time to."""
        step = row["step"]
        text = f"step {step:{len(str(self.steps))}}/{self.steps}  loss {row['loss']:.3f}"
        if self.anew:
            full = step * self.WIDTH // self.steps
            bar = "█" * full + "·" * (self.WIDTH - full)
            self._say(f"\r{bar} {text}{self._rest(row)}")
            return
        self._quiet += row.get("seconds", 0.0)
        if step * 10 // self.steps > self._lines or self._quiet > self.QUIET:
            self._lines, self._quiet = step * 10 // self.steps, 0.0
            self._say(f"{text}\n")

    def _say(self, text: str) -> None:
        """Shows a text, until nobody can read it: a run does not end with its reader."""
        if self.out is None:
            return
        try:
            self.out.write(text)
            self.out.flush()
        except (OSError, ValueError) as error:
            if self.out is sys.stdout:  # or what waits in it fails again at the end of the process
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.out = None
            said = f"the progress cannot be shown any more ({error}); the run goes on"
            with suppress(OSError, ValueError):
                print(said, file=sys.stderr, flush=True)

    def _rest(self, row: dict[str, Any]) -> str:
        """How fast it is, and how long it will take; nothing where no step was timed."""
        if "tokens_per_second" not in row:
            return ""
        self._seconds, self._made = self._seconds + row["seconds"], self._made + 1
        left = int((self.steps - row["step"]) * self._seconds / self._made)
        hours, minutes, seconds = left // 3600, left // 60 % 60, left % 60
        return (
            f"  {row['tokens_per_second']:,.0f} tokens/s  {hours}:{minutes:02}:{seconds:02} left "
        )

    def close(self) -> None:
        """Ends the line."""
        if self.anew:
            self._say("\n")


class WaitWatch:
    """Says that this rank waits long for others, and in which call: one of them may be frozen.

    Args:
        group: all ranks.
        patience: seconds; the next words come after twice as long, and so on.
    """

    def __init__(self, group: Group, patience: float = 20.0) -> None:
        self.group, self.patience, self._due = group, patience, patience

    def start(self) -> None:
        """Watches in a thread until the process ends."""
        threading.Thread(target=self._watch, name="waits", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(1.0)
            if text := self.news():
                with suppress(OSError, ValueError):
                    print(text, file=sys.stderr, flush=True)

    def news(self) -> str:
        """What there is to say now; "" for nothing."""
        book = self.group.ledger
        now = book.clock()
        calls = [call for call in book.open_events() if now - call.begin > self.patience]
        if not calls:
            self._due = self.patience
            return ""
        if now - calls[0].begin < self._due:
            return ""
        call, self._due = calls[0], 2 * self._due
        ranks = ", ".join(map(str, call.group))
        where = f"{call.op} over {call.axis} (ranks {ranks})"
        return f"rank {self.group.rank} has waited for {now - call.begin:.0f} s in {where}"
