"""A peer's ranks under the faults that ours meet, and what happened, as the record that ours keep.

The ranks are those of `replica.py`: a line of JSON says what each does. Faults come by the rules of
`course_lib.failures`: one waits while its rank is away, or if it would take the last weights. While
a whole job is starting again there is nothing to strike, and what was due then is left out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from course_lib.failures import Counted, Fault, Record
from course_lib.failures.record import Happening

SCRIPT = Path(__file__).with_name("replica.py")
TURN = 0.01  # seconds between two looks at the lines
PATIENCE = 300.0  # seconds in which nobody says anything
SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}
Line = dict[str, Any]


class Ranks:
    """The ranks of a peer while they train.

    Args:
        folder: an empty one, for what they write.
        ranks: how many.
        faults: what befalls them: kills and freezes.
        start: starts a rank that was killed; None if the peer does that itself, at once and with
            all the others.
        alive: whether the peer's own process still runs.
    """

    def __init__(
        self,
        folder: Path,
        ranks: int,
        faults: Sequence[Fault],
        start: Callable[[int], None] | None,
        alive: Callable[[], bool],
    ) -> None:
        self.folder, self.ranks, self.faults = folder, ranks, sorted(faults)
        self.start, self.alive = start, alive
        self.lines: list[Line] = []
        self.rest = ""
        self.happenings: list[Happening] = []
        self.log = (folder / "log").open("a+")
        self.pids: dict[int, int] = {}  # of ranks that have said hello
        self.whole: set[int] = set()  # those that have made a step that counted
        self.heals: set[int] = set()  # those that are back, and have made none since
        self.away: dict[int, tuple[Fault, float, int]] = {}  # fault, its end, process
        self.ended: set[int] = set()
        self.begin = self.heard = time.monotonic()

    def run(self) -> Record:
        """Until all ranks that are left have the last step.

        Raises:
            RuntimeError: the peer has ended before, or nobody has said anything for minutes.
        """
        while len(self.pids) < self.ranks:
            self._listen()
        self.begin = time.monotonic()
        (self.folder / "go").touch()
        while not self.ended:
            self._cure()
            self._strike()
            self._listen()
        last = time.monotonic()
        while len(self.ended) < self.ranks - len(self.away) and time.monotonic() < last + 2.0:
            self._listen()
        self.log.close()
        return self._record()

    def _listen(self) -> None:
        """What was said since the last look."""
        time.sleep(TURN)
        self.rest += self.log.read()
        *texts, self.rest = self.rest.split("\n")  # the last one may not be whole yet
        for line in map(parsed, texts):
            self.heard, rank, what = time.monotonic(), line["rank"], line["say"]
            self.lines.append(line)
            if what == "hello":
                self.pids[rank] = line["pid"]
            elif what == "step" and line["counts"] and rank in self.pids:
                self.whole.add(rank)
                if line["mine"] and rank in self.heals:
                    self.heals.remove(rank)
                    self._note(rank, "works")
            elif what == "end":
                self.ended.add(rank)
        if not self.ended and not (self.alive() and time.monotonic() < self.heard + PATIENCE):
            raise RuntimeError(f"the ranks stopped after {len(self.lines)} lines of their log")

    def _note(self, rank: int, what: str) -> None:
        self.happenings.append(Happening(time.monotonic() - self.begin, rank, what))

    def _strike(self) -> None:
        """Faults that are due."""
        now = time.monotonic() - self.begin
        for fault in [fault for fault in self.faults if fault.time <= now]:
            rank = fault.rank
            if self.start is None and not self.pids:  # no job to strike: it is just starting
                self.faults.remove(fault)
                continue
            if rank not in self.pids or rank in self.away or not self.whole - {rank, *self.away}:
                continue
            self.faults.remove(fault)
            self._note(rank, fault.kind)
            pid = self.pids[rank]
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(pid, SIGNALS[fault.kind])
            if fault.kind == "kill" and self.start is None:  # all start again, and at once
                self.pids, self.whole = {}, set()
                self._note(rank, "over")
                for each in range(self.ranks):
                    self._heal(each)
                continue
            self.away[rank] = fault, now + fault.seconds, pid
            self.whole.discard(rank)
            if fault.kind == "kill":
                del self.pids[rank]

    def _cure(self) -> None:
        """Faults that are over."""
        for rank, (fault, end, pid) in list(self.away.items()):
            if time.monotonic() - self.begin < end:
                continue
            del self.away[rank]
            if fault.kind == "kill" and self.start is not None:
                self.start(rank)
            else:
                with suppress(ProcessLookupError):  # the peer may have given it up
                    os.kill(pid, signal.SIGCONT)
            self._note(rank, "over")
            if self.start is not None:  # else the others have waited for it
                self._heal(rank)

    def _heal(self, rank: int) -> None:
        self.heals.add(rank)
        self._note(rank, "heals")

    def _record(self) -> Record:
        record = as_record(self.ranks, self.lines, self.begin)
        record.happenings = self.happenings
        for rank in self.ended:
            record.states[rank] = torch.load(self.folder / f"end_{rank}")
        return record


def as_record(ranks: int, lines: Sequence[Line], begin: float) -> Record:
    """The steps of a log; one that was made again counts as it was made last.

    A rank may be killed when its gradient is in the sum and its line is not yet written: then the
    others know of one rank more than have a line, and it has begun a batch of that step.
    """
    steps: dict[int, dict[int, list[Line]]] = {}
    begun: dict[tuple[int, int], dict[int, int]] = {}
    for line in lines:
        if line["say"] == "batch":
            begun.setdefault((line["step"], line["attempt"]), {})[line["rank"]] = line["batch"]
        elif line["say"] == "step" and line["counts"] and line["mine"]:
            steps.setdefault(line["step"], {}).setdefault(line["attempt"], []).append(line)
    record = Record(ranks)
    for step, attempts in sorted(steps.items()):
        *before, last = (attempts[attempt] for attempt in sorted(attempts))
        times = min(x["begin"] for x in last) - begin, max(x["time"] for x in last) - begin
        batches = {line["rank"]: line["batch"] for line in last}
        losses = {line["rank"]: line["loss"] for line in last}
        if len(batches) < last[0]["present"]:
            batches = begun[step, last[0]["attempt"]] | batches
        record.counted.append(Counted(*times, step, batches, losses))
        record.lost += sum(map(len, before))
    record.seconds = max(step.end for step in record.counted)
    return record


def parsed(text: str) -> Line:
    """What a line says; before it there may be the beginning of one whose rank was killed."""
    found: Line = json.loads(text[text.rindex('{"say"') :])
    return found


def made(log: Path) -> int:
    """How many batches were begun, by the lines in a log."""
    return sum(parsed(text)["say"] == "batch" for text in log.read_text().splitlines())


def _settings(folder: Path, **settings: Any) -> str:
    """The file with what `replica.py` has to know."""
    more = {"folder": str(folder), "log": str(folder / "log"), "go": str(folder / "go")}
    (folder / "settings").write_text(json.dumps({**settings, **more}))
    return str(folder / "settings")


@contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process and what it says, which is shown only if the run fails; it is ended in any case."""
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1",
           "GLOO_SOCKET_IFNAME": "lo", "RUST_LOG": "warn"}  # fmt: skip
    with (folder / "words").open("w+") as words:
        process = subprocess.Popen(
            command, env={**os.environ, **own}, text=True, stdin=subprocess.PIPE,
            stdout=words, stderr=words,
        )  # fmt: skip
        try:
            yield process
        except RuntimeError as error:
            words.seek(0)
            raise RuntimeError(f"{error}:\n{words.read()[-2000:]}") from error
        finally:
            assert process.stdin is not None
            process.stdin.close()  # torchft's ranks end with it
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()


def torchft(folder: Path, python: str, faults: Sequence[Fault], **settings: Any) -> Record:
    """Its ranks train; `settings` are those of `replica.py`."""
    command = [python, str(SCRIPT), "torchft", _settings(folder, **settings)]
    with _process(command, folder) as process:
        assert process.stdin is not None
        ask = process.stdin

        def start(rank: int) -> None:
            print(rank, file=ask, flush=True)

        ranks = settings["ranks"]
        for rank in range(ranks):
            start(rank)
        return Ranks(folder, ranks, faults, start, lambda: process.poll() is None).run()


def torchrun(folder: Path, faults: Sequence[Fault], **settings: Any) -> Record:
    """Its ranks train, and are all started again from the last checkpoint when one was killed."""
    ranks = settings["ranks"]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
        "--max-restarts=1000", str(SCRIPT), "torchrun", _settings(folder, **settings),
    ]  # fmt: skip
    with _process(command, folder) as process:
        return Ranks(folder, ranks, faults, None, lambda: process.poll() is None).run()
