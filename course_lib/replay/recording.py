"""A recorded run, read back: each rank's entries, and what is missing of them.

Notebook: 14 Profiling and debugging (record and replay).
Source: as the log of a training run, whose last line may be cut off by a crash.
Costs one pass over the files.
The production version (a database of runs) reads only the steps that it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.replay.entries import VERSION, Call, Done, End, Entry, Loss, Start, Step, from_plain
from course_lib.trace import Refusal

FILE = "rank{}.jsonl"


@dataclass
class RankLog:
    """What one rank has written.

    Attributes:
        start: its first entry.
        entries: all that follow.
        damage: what is wrong with the end of its file; "" if nothing is.
        calls: those among the entries.
        results: what each call gave, by its number.
        steps: those among the entries.
        losses: of each step, by its number; -1 before the first.
    """

    start: Start
    entries: list[Entry]
    damage: str = ""
    calls: list[Call] = field(init=False)
    results: dict[int, str] = field(init=False)
    steps: list[Step] = field(init=False)
    losses: dict[int, list[Loss]] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = [e for e in self.entries if isinstance(e, Call)]
        self.results = {e.call: e.taken for e in self.entries if isinstance(e, Done)}
        self.steps = [e for e in self.entries if isinstance(e, Step)]
        self.losses = {}
        step = -1
        for entry in self.entries:
            if isinstance(entry, Step):
                step = entry.number
            elif isinstance(entry, Loss):
                self.losses.setdefault(step, []).append(entry)

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> RankLog:
        """The log of a recorder that kept its entries."""
        start, *rest = entries
        assert isinstance(start, Start)
        return cls(start, rest)

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.start.rank

    @property
    def complete(self) -> bool:
        """Whether the program came to its end."""
        return bool(self.entries) and isinstance(self.entries[-1], End)


class Recording:
    """A run as its ranks have recorded it.

    Args:
        logs: of its ranks; those that have written nothing are missing.

    Raises:
        Refusal: there is none, or they are of different runs.
    """

    def __init__(self, logs: Sequence[RankLog]) -> None:
        self.ranks = {log.rank: log for log in sorted(logs, key=lambda log: log.rank)}
        worlds = sorted({log.start.world for log in logs})
        if len(worlds) != 1 or len(self.ranks) < len(logs) or max(self.ranks) >= worlds[0]:
            ranks, sizes = ", ".join(map(str, self.ranks)), " and of ".join(map(str, worlds))
            raise Refusal(
                "a recording of one run",
                f"{len(logs)} logs, of ranks {ranks or 'none'}, of worlds of {sizes or 'none'}",
                "each rank of a run writes one log, into a folder of this run alone",
            )
        self.world = worlds[0]

    @property
    def missing(self) -> list[int]:
        """Ranks that have written nothing."""
        return [rank for rank in range(self.world) if rank not in self.ranks]

    @property
    def damage(self) -> Iterator[str]:
        """What is not as a run leaves it that comes to its end, in sentences."""
        for rank in self.missing:
            yield f"Rank {rank} has written nothing."
        for rank, log in self.ranks.items():
            if log.damage:
                yield f"Rank {rank}: {log.damage}."
            elif not log.complete:
                yield f"Rank {rank} did not come to its end: {len(log.calls)} calls are there."

    @property
    def losses(self) -> dict[int, Loss]:
        """The last one that the lowest rank has told of each step."""
        log = next(iter(self.ranks.values()))
        return {step: told[-1] for step, told in log.losses.items()}

    def __repr__(self) -> str:
        steps = max(len(log.steps) for log in self.ranks.values())
        calls = sum(len(log.calls) for log in self.ranks.values())
        what = f"Recording: {self.world} ranks, {steps} steps, {calls} calls."
        return " ".join([what, *self.damage])


def read_recording(folder: Path | str) -> Recording:
    """The recording in a folder; of a run that was killed, what it had written by then.

    A last line that was cut off is left out, and `damage` says so.

    Raises:
        Refusal: there is none, or one that no run has written like this.
    """
    paths = sorted(Path(folder).glob(FILE.format("*")))
    if not paths:
        raise Refusal(
            f"the recording in {folder}",
            f"no file {FILE.format(0)} in it",
            "a run writes one with `record`, or with --record on the training command",
        )
    return Recording([log for path in paths if (log := _read(path)) is not None])


def _read(path: Path) -> RankLog | None:
    """One rank's log; None if the rank ended before its first line was whole."""
    lines = path.read_bytes().split(b"\n")
    tail = lines.pop()
    damage = f"line {len(lines) + 1} is cut off and left out" if tail else ""
    entries = [_entry(line, number, path) for number, line in enumerate(lines, 1)]
    if not entries:
        return None
    start, *rest = entries
    if not isinstance(start, Start) or any(isinstance(entry, Start) for entry in rest):
        raise _damaged(path, 1, "not one beginning, at its beginning")
    if start.version != VERSION:
        raise _damaged(path, 1, f"version {start.version} of the format, and not {VERSION}")
    _check_numbers(rest, path)
    return RankLog(start, rest, damage)


def _entry(line: bytes, number: int, path: Path) -> Entry:
    try:
        return from_plain(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, number, f"{type(error).__name__}: {error}") from error


def _check_numbers(entries: Sequence[Entry], path: Path) -> None:
    """Calls are numbered as they come, and none ends that has not begun."""
    made = 0
    for number, entry in enumerate(entries, 2):
        if isinstance(entry, Call):
            if entry.number != made:
                raise _damaged(path, number, f"call {entry.number} after {made} calls")
            made += 1
        elif isinstance(entry, Done) and not 0 <= entry.call < made:
            raise _damaged(path, number, f"the end of call {entry.call} after {made} calls")


def _damaged(path: Path, line: int, what: str) -> Refusal:
    return Refusal(
        f"read the recording {path}",
        f"line {line}: {what}",
        "only a last line may be cut off: this file was changed or written by something else",
    )
