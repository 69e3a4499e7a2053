"""Writing a run down: each call's bits as it begins and as it ends, each step's batch and loss.

Notebook: 14 Profiling and debugging (record and replay).
Source: rr (O'Callahan et al., "Engineering Record and Replay for Deployability", 2017).
Costs a digest of what each call reads and of what it gives: see `digest.py`. Nothing is sent.
The production version also keeps the values, so that one rank can be replayed without the others.

It listens to the ledger, so it sees the calls of every group of this rank, also of groups that were
made before. A line is on its way to the disk when the call goes on: a run that is killed leaves all
that it had done. (The operating system writes it out; a machine that loses power loses the last
seconds.)
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoint.files.plain import to_plain as state_to_plain
from course_lib.checkpoint.random_state import random_state
from course_lib.comm import Group
from course_lib.replay.digest import digest
from course_lib.replay.entries import Call, Done, End, Entry, Loss, Start, Step, to_plain
from course_lib.replay.recording import FILE
from course_lib.trace import Event, Refusal

Write = Callable[[Entry], None]


class Recorder:
    """Notes what a rank does; a `Listener` of its ledger.

    Args:
        write: takes each entry, in order; if None, they stay in `entries`.
    """

    def __init__(self, write: Write | None = None) -> None:
        self.entries: list[Entry] = []
        self.write = write or self.entries.append
        self._calls = 0
        self._seqs: Counter[tuple[Any, ...]] = Counter()
        # By the event's identity, which is its own as long as the event is kept here.
        self._open: dict[int, tuple[Event, int, Any]] = {}
        self._paused = False
        self._random_at_start = _random_digits()

    # --- what the program says -------------------------------------------------------------------
    def step(self, number: int, batch: Any = None) -> None:
        """A step begins.

        Args:
            number: as the program counts.
            batch: this rank's: tensors, in lists, tuples and dicts.
        """
        number, bits = index(number), "" if batch is None else digest(batch)
        now, start = _random_digits(), self._random_at_start
        moved = tuple(name for name in now if start.get(name) != now[name])
        self.write(Step(number, self._calls, bits, now, moved))

    def loss(self, value: float | torch.Tensor) -> None:
        """The loss of the step that began last."""
        number = value.item() if isinstance(value, torch.Tensor) else value
        self.write(Loss(float(number).hex()))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Calls in this block are not noted: those that send times, which never are the same."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # --- what the ledger says --------------------------------------------------------------------
    def began(self, event: Event, line: str, given: Any, taken: Any) -> None:
        """See `Listener.began`."""
        if self._paused:
            return
        number, self._calls = self._calls, self._calls + 1
        self._open[id(event)] = event, number, taken
        bits = "" if given is None or not _reads(event) else digest(_own(event, given))
        sort = (event.op, event.peer) if event.op in ("send", "recv") else ()
        seq = self._seqs[event.group, *sort]
        self._seqs[event.group, *sort] += 1
        self.write(
            Call(
                number,
                event.label,
                event.axis,
                event.group,
                seq,
                event.shape,
                event.dtype,
                event.peer,
                event.reduction,
                bits,
                line,
            )  # fmt: skip
        )

    def ended(self, event: Event) -> None:
        """See `Listener.ended`."""
        if id(event) not in self._open:
            return
        _, number, taken = self._open.pop(id(event))
        bits = "" if taken is None or not _writes(event) else digest(_result(event, taken))
        self.write(Done(number, bits))


def _random_digits() -> dict[str, str]:
    """Of each default generator's state, by its name."""
    states = random_state({})
    return {n: digest(s if torch.is_tensor(s) else repr(s)) for n, s in states.items()}


def _reads(event: Event) -> bool:
    """Whether the call reads this rank's tensor: not where it only receives."""
    return event.op != "recv" and not (event.op == "broadcast" and event.peer != event.rank)


def _writes(event: Event) -> bool:
    """Whether the call leaves a result here that is defined."""
    return event.op != "send" and not (event.op == "reduce" and event.peer != event.rank)


def _own(event: Event, given: Any) -> Any:
    """What counts of the tensor that is given.

    An all-gather that is built from messages gets the whole tensor, of which only this rank's chunk
    is filled.
    """
    in_place = event.op == "all_gather" and event.algorithm
    return _chunk(event, given) if in_place else given


def _result(event: Event, taken: Any) -> Any:
    """What counts of the result: a ring's reduce-scatter leaves partial sums beside its chunk."""
    return _chunk(event, taken) if event.label == "ring reduce_scatter" else taken


def _chunk(event: Event, tensor: torch.Tensor) -> torch.Tensor:
    parts = tensor.detach().reshape(-1).tensor_split(len(event.group))
    return parts[event.group.index(event.rank)]


# --- as a block ----------------------------------------------------------------------------------
@contextmanager
def record(folder: Path | str | None, group: Group) -> Iterator[Recorder]:
    """Records what this rank does in the block; every rank enters it. Nothing is sent.

    Args:
        folder: for the files, one a rank, on a disk that every rank sees; made if need be. None
            keeps the entries in memory, in the recorder.
        group: all ranks; calls of every group that has its ledger are seen.

    Yields:
        The recorder, which wants to be told of steps and losses.

    Raises:
        Refusal: the ledger is being recorded already.
    """
    if folder is None:
        with listening(Recorder(), group) as recorder:
            yield recorder
        return
    _refuse_second(group)  # before the file of the first is overwritten
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / FILE.format(group.rank)).open("w", buffering=1) as file:

        def write(entry: Entry) -> None:
            file.write(json.dumps(to_plain(entry)) + "\n")

        with listening(Recorder(write), group) as recorder:
            yield recorder


@contextmanager
def listening(recorder: Recorder, group: Group) -> Iterator[Recorder]:
    """The recorder hears of this rank's calls in the block.

    Raises:
        Refusal: the ledger has a listener already.
    """
    _refuse_second(group)
    ledger = group.ledger
    recorder.write(start_of(group))
    ledger.listener = recorder
    try:
        yield recorder
    finally:
        ledger.listener = None
    recorder.write(End())


def _refuse_second(group: Group) -> None:
    if group.ledger.listener is not None:
        raise Refusal(
            f"record rank {group.rank}",
            "a recording that is under way",
            "one at a time: end the other block first",
        )


def start_of(group: Group) -> Start:
    """How this rank stands now: random states, and all that its bits may depend on."""
    environment = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": group.device.type,
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    random = state_to_plain(random_state({}), "random")
    return Start(group.rank, group.size, environment, random)
