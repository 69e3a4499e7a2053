"""What a benchmark has to know about a way to run cells on N processes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

FIRST = "t = torch.ones(1); dist.all_reduce(t); print(f'sum {int(t)}')"


@dataclass(frozen=True)
class Way:
    """One way, as cells.

    Attributes:
        name: whose it is.
        load: a cell that makes it known to the kernel.
        start: cells after which four ranks have a process group.
        header: the first line of a cell that runs on all ranks.
        pull: a cell that brings rank 0's `big` into the kernel.
        restart: cells that bring the ranks back after one has died.
        python: the interpreter of the kernel.
        env: environment variables for the kernel.
    """

    name: str
    load: str
    start: tuple[str, ...]
    header: str
    pull: str
    restart: tuple[str, ...]
    python: str = sys.executable
    env: dict[str, str] = field(default_factory=dict)

    def on_all(self, body: str) -> str:
        """A cell that runs `body` on every rank."""
        return f"{self.header}\n{body}"
