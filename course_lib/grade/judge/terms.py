"""What a run is about: whose code, under which rules, and how much of the machine it may use."""

from __future__ import annotations

from dataclasses import dataclass

STARVED = 5  # times the seconds of a run may pass, if others have the processors for so long


@dataclass(frozen=True)
class Limits:
    """What one run may use on each rank.

    Attributes:
        cpu: processor seconds.
        wall: seconds that the run may have (see `Clock`).
        memory: bytes beyond what a rank has at its start.
        output: bytes printed.
        disk: bytes in the files that it leaves in its folder, or that its ranks have written.
        threads: that a rank may have at a time.
    """

    cpu: float = 5.0
    wall: float = 20.0
    memory: int = 2 << 30
    output: int = 1 << 20
    disk: int = 1 << 30
    threads: int = 256

    @property
    def longest(self) -> float:
        """Seconds after which it ends on any machine."""
        return STARVED * self.wall


@dataclass(frozen=True)
class Subject:
    """Whose code is run, and under which rules.

    Attributes:
        name: the exercise.
        defines: names that the source must define.
        path: where the source is from; frames and messages name it so.
        source: its text, read once.
        suite: path of the suite.
        root: the course's folder; suites import from `grading` in it.
        protected: folders in which the ranks may change nothing.
        hidden: folders from which they may read nothing.
        processes: limit on this user's processes; 0 for none.
        network: `switch`, or `torch` where the exercise is about torch.distributed itself.
        allowance: what the source may use: `library`, `own` and `allowed` of the `Exercise`.
    """

    name: str
    defines: tuple[str, ...]
    path: str
    source: str
    suite: str
    root: str
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    processes: int = 0
    network: str = "switch"
    allowance: tuple[tuple[str, ...], tuple[str, ...], str] = ((), (), "")
