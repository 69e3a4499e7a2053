"""Running a program again from where its random generators stood, each call held against a record.

Notebook: 14 Profiling and debugging (record and replay).
Source: rr's replay, which stops where a process leaves its record.
Costs what recording does, and an all-reduce of 8 bytes a step.
The production version replays one rank alone, from the values that the record keeps.

A rank that finds other values goes on to the next step, where all ranks agree to stop: if it
stopped at once, the others would wait for it in the call. A rank that is about to make another call
than the record has does stop at once, since its call would meet the wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checkpoint.agree import gather_json
from course_lib.checkpoint.files.plain import from_plain as state_from_plain
from course_lib.checkpoint.random_state import restore_random
from course_lib.comm import Group, all_reduce
from course_lib.replay.compare import Difference, first_difference
from course_lib.replay.entries import Call, Entry, from_plain, to_plain
from course_lib.replay.own import Walk, first_of_rank
from course_lib.replay.record import Recorder, listening
from course_lib.replay.recording import RankLog, Recording
from course_lib.trace import Ledger, Refusal


class Diverged(Refusal):
    """A replay that left its record; inside `replay`, and on a rank that makes another call."""


def replay(fn: Callable[[Recorder], Any], recording: Recording, group: Group) -> Difference | None:
    """Runs a program again, on all ranks, until it differs from its record; collective.

    The random generators are set to where they stood. Everything else that the program begins with
    it must make itself, as it did then: weights from a seed, batches from a sampler.

    Args:
        fn: the program; it is given the recorder and tells it of steps and losses, as in `record`.
        recording: of the same program on as many ranks.
        group: all ranks.

    Returns:
        Where the program differed first, the same on every rank; it was stopped at the end of that
        step. None if it was equal to the bit, as far as the record goes.

    Raises:
        Refusal: the record is of another number of ranks, or a rank's log is missing.
        Diverged: on a rank that was about to make another call than it made then.
    """
    if recording.world != group.size or recording.missing:
        raise Refusal(
            f"replay a run on {group.size} ranks",
            f"a recording of {recording.world} ranks, without {recording.missing or 'none'}",
            "each rank is held against its own log",
        )
    log = recording.ranks[group.rank]
    restore_random(state_from_plain(log.start.random, "random"), {})
    again = _Again(recording, group)
    try:
        with listening(again, group):
            fn(again)
        again.end()
    except _Stop as stop:
        return stop.difference
    return None


class _Stop(Exception):
    """All ranks end the replay here.

    Args:
        difference: why.
    """

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.text)
        self.difference = difference


class _Again(Recorder):
    """A recorder that looks at what was written then.

    Args:
        recording: of then.
        group: all ranks.
    """

    def __init__(self, recording: Recording, group: Group) -> None:
        super().__init__(self._meets)
        self._recording, self._log = recording, recording.ranks[group.rank]
        self._aside = group.under("replay", Ledger(group.rank))  # its calls are not the program's
        self._kept: list[Entry] = []
        self._walk, self._differs = Walk(self._log), False

    def step(self, number: int, batch: Any = None) -> None:
        """See `Recorder.step`; before it, all ranks agree whether to go on. Collective."""
        self.agree()
        super().step(number, batch)

    def _meets(self, entry: Entry) -> None:
        self._kept.append(entry)
        if isinstance(entry, Call) and entry.number < len(self._log.calls):
            then = self._log.calls[entry.number]
            if then.what != entry.what:
                raise Diverged(
                    f"replay call {entry.number} of rank {self._log.rank}: {then.text}",
                    entry.text,
                    "the program is another one, or it went another way",
                )
        if not (self._differs or self._walk.over):
            self._differs = self._walk.meets(entry) is not None

    def agree(self) -> None:
        """Stops all ranks if one of them has differed; collective.

        Raises:
            _Stop: it has.
        """
        flag = torch.tensor([float(self._differs)], device=self._aside.device)
        all_reduce(flag, self._aside, "max")
        if flag.item():
            plain = gather_json([to_plain(entry) for entry in self._kept], self._aside)
            logs = [RankLog.of([from_plain(one) for one in rank]) for rank in plain]
            found = first_difference(self._recording, Recording(logs))
            assert found is not None
            raise _Stop(found.of_a_replay())

    def end(self) -> None:
        """The program has ended: has the record's, too? Collective.

        Raises:
            _Stop: not on every rank.
        """
        self._differs = first_of_rank(self._log, RankLog.of(self._kept)) is not None
        self.agree()
