"""Saving: ranks agree on who writes what, each writes its own file, the manifest comes last.

Notebook: 11 Distributed checkpoint (save_sharded).
Source: torch.distributed.checkpoint's save and async_save; Mohan et al., "CheckFreq" (2021).
Costs two all-gathers of names and boxes, S/N bytes to each rank's disk, and no tensor on the wire.
An asynchronous save holds a copy of what the rank writes, until it is written.
The production version stages into pinned buffers that it keeps, and writes from another process.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from course_lib.checkpoint.agree import together
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.store import begin
from course_lib.checkpoint.files.write import commit, write_part
from course_lib.checkpoint.plan import Piece, Plan, claim, make_plan
from course_lib.comm import Group


class AsyncSaver:
    """Saves in the background: training goes on while a thread writes copies of the tensors.

    Every rank makes the same calls. At most one save is under way; the next one waits for it. An
    error of the thread, of whichever rank, is raised on all ranks by the next call. Call `wait`
    before the program ends, or the last save may be left unfinished.

    Args:
        folder: of all checkpoints, on a disk that every rank sees. One job at a time saves there.
        group: all ranks of the job.
        keep: how many complete checkpoints to keep, the newest up to this one; None keeps all.
    """

    def __init__(self, folder: Path | str, group: Group, *, keep: int | None = None) -> None:
        self.folder, self.group, self.keep = Path(folder), group, keep
        self._thread: ThreadPoolExecutor
        self._given_up = threading.Event()
        self._written: Future[None] | None = None
        self._published: Future[Path] | None = None

    def save(
        self,
        pieces: Sequence[Piece],
        *,
        step: int,
        extra: Any = None,
        rank_extra: Any = None,
        copy: bool = True,
    ) -> None:
        """Begins to save, and returns as soon as the tensors may be changed; collective.

        Args:
            pieces: what this rank has. What several ranks have is written once.
            step: of the training; names the checkpoint.
            extra: JSON for the whole job, from index 0: position in the data, schedule, options.
            rank_extra: JSON of this rank, such as its random state in hex.
            copy: whether to take copies; without, the tensors must not change until `wait`.

        Raises:
            CheckpointError: the ranks' pieces do not make up whole tensors, the step exists or is
                not the same everywhere, a rank could not write; or the save before this one failed.
        """
        self.wait()
        asked = f"save step {step} in {self.folder}"

        def my_claim() -> Any:
            unfinished = str(begin(self.folder, step)) if self.group.index == 0 else None
            return [claim(pieces), unfinished, extra, rank_extra, step]

        answers = together(asked, my_claim, self.group)
        steps = [answer[4] for answer in answers]
        if len(set(steps)) > 1:
            raise CheckpointError(
                f"save one step in {self.folder}",
                f"the steps {steps}, by index",
                "tensors of different steps are no state that a training was ever in",
            )
        plan = make_plan([answer[0] for answer in answers])
        per_rank = [answer[3] for answer in answers]
        about = {"step": step, "extra": answers[0][2], "per_rank": per_rank}
        mine = [pieces[number] for number in plan.writes[self.group.index]]
        if copy:
            mine = [_copied(piece) for piece in mine]
        self._start(Path(answers[0][1]), plan, mine, about)

    def _start(
        self, unfinished: Path, plan: Plan, mine: Sequence[Piece], about: dict[str, Any]
    ) -> None:
        self._given_up = given_up = threading.Event()
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._written = self._thread.submit(write_part, unfinished, self.group.index, mine)
        if self.group.index == 0:

            def end(seconds: float) -> bool:
                return given_up.wait(seconds) or not threading.main_thread().is_alive()

            self._published = self._thread.submit(
                commit, unfinished, self.group.size, plan.tensors, about, self.keep, end
            )

    def wait(self) -> Path | None:
        """Returns the checkpoint under way once it is complete; collective. None if there is none.

        Raises:
            CheckpointError: a rank could not write its part, or index 0 could not commit; nothing
                of the checkpoint is to be seen.
        """
        written, published = self._written, self._published
        self._written = self._published = None
        if written is None:
            return None
        asked = f"finish a save in {self.folder}"
        try:
            together(asked, written.result, self.group)
            path = together(asked, lambda: str(published.result()) if published else "", self.group)
        finally:
            # After whatever error, a dead peer's or an interrupt too: index 0's thread would wait
            # for ever for the missing part. After none, it has ended.
            self._given_up.set()
            # Here, and not when the process ends: torch would end in it while Python is gone.
            self._thread.shutdown()
        return Path(path[0])


def _copied(piece: Piece) -> Piece:
    values = piece.tensor.detach()
    copy = values.clone() if values.device.type == "cpu" else values.cpu()
    return dataclasses.replace(piece, tensor=copy)


def save_sharded(
    pieces: Sequence[Piece],
    folder: Path | str,
    group: Group,
    *,
    step: int,
    extra: Any = None,
    rank_extra: Any = None,
    keep: int | None = None,
) -> Path:
    """Saves what the ranks have together as one checkpoint, which appears all at once; collective.

    Args:
        pieces: what this rank has. What several ranks have is written once.
        folder: of all checkpoints, on a disk that every rank sees. One job at a time saves there.
        group: all ranks of the job.
        step: of the training; names the checkpoint.
        extra: JSON for the whole job, from index 0: position in the data, schedule, options.
        rank_extra: JSON of this rank, such as its random state in hex.
        keep: how many complete checkpoints to keep, the newest up to this one; None keeps all.

    Returns:
        The folder of the complete checkpoint.

    Raises:
        CheckpointError: the same on every rank: the pieces do not make up whole tensors, the step
            exists, or a rank could not write. Nothing of the checkpoint is to be seen then.
    """
    saver = AsyncSaver(folder, group, keep=keep)
    saver.save(pieces, step=step, extra=extra, rank_extra=rank_extra, copy=False)
    path = saver.wait()
    assert path is not None
    return path
