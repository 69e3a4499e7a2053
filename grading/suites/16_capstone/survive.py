"""survive: ranks are killed, the job goes on on other meshes, and nothing is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, RunFault, check, diagnosis
from course_lib.model import ModelConfig, MoEConfig
from grading.references.capstone.training import Alone

EXERCISE = Exercise(
    title="Killed, and started on another mesh",
    core=True,
    minutes=35,
    order=20,
    defines=("survive",),
    library=(
        "checkpoint",
        "comm",
        "model",
        "schedule",
        "data.WindowSampler",
        "train.MeshModel",
        "train.lay_out",
        "train.make_optimizers",
        "train.mesh_training",
        "train.own_micro_batches",
        "train.train_step",
    ),
    hints=(
        "What does a step depend on besides weights and moments? Which object knows how many "
        "steps were made, before and after the job was started again?",
        "`training = mesh_training(job.model, job.optimizers, {'sampler': job.sampler})`, then "
        "`resume_training`; a loop while `job.sampler.step < steps`; a save if the number of steps "
        "made is a multiple of the interval.",
        "`saver = AsyncSaver(folder, group, keep=keep)` before the loop; in it `make_step(job, "
        "watch)`, `if job.sampler.step % interval == 0: save_training(training, saver, group, "
        "step=job.sampler.step)`; `saver.wait()` after it.",
    ),
)

STEPS, MICRO, ROWS, LR, SEED = 8, 2, 7, 0.01, 5
FOLDER = "checkpoints"
AGAIN = "the job begins again: nothing is loaded, or the position in the data is not"
OTHERS = "saved at other steps than multiples of the interval"
MESHES = {"dp": 2}, {"ep": 3}, {"pp": 2}  # meshes that a job is on, one after the other
SIZE: dict[str, Any] = {"layers": 2, "hidden": 8, "heads": 2, "kv_heads": 1, "ffn": 5,
                        "sequence": 4, "tied": False}  # fmt: skip
MOE: dict[str, Any] = {"experts": 3, "top_k": 2, "balance": 0.1, "z": 0.01, "bias_rate": 0.01}


class Saves(NamedTuple):
    """What `survive` is told about checkpoints."""

    interval: int
    keep: int

    def due(self, begin: int = 0) -> list[int]:
        """The steps after which one is saved, beginning after so many."""
        return [step for step in range(begin + 1, STEPS + 1) if step % self.interval == 0]


# --- what runs on the ranks ----------------------------------------------------------------------
class TooEarly(BaseException):
    """More work was lost than may be: what the job does then does not matter."""


def drive(
    learner: Any,
    group: Any,
    sizes: dict[str, int],
    vocabulary: int,
    tokens: torch.Tensor,
    dies: tuple[str, int] | None,
    steps: int,
    saves: dict[str, int],
    least: int = 0,
) -> dict[str, Any]:
    """Starts the job once, in the folder that all runs of a check share.

    Args:
        learner: the answer.
        group: all ranks.
        sizes: of the mesh.
        vocabulary: of the model.
        tokens: the text.
        dies: this rank, in a `step` or a `save`, and after how many steps; None if not.
        steps: of the whole training.
        saves: `interval` and `keep`.
        least: the step from which it goes on, if all is well.
    """
    seen: list[list[Any]] = []
    folders: list[list[int]] = []
    if dies is not None and dies[0] == "save":
        _die_while_writing(dies[1])

    def watch(step: int, inputs: torch.Tensor, loss: float) -> None:
        seen.append([step, inputs.clone(), loss])
        folders.append(_complete())
        if step < least:
            raise TooEarly
        if dies == ("step", step + 1):
            os.kill(os.getpid(), signal.SIGKILL)

    config = ModelConfig(**SIZE, vocabulary=vocabulary, moe=MoEConfig(**MOE))
    job = learner.make_job(group, sizes, config, tokens, ROWS)
    with suppress(TooEarly):
        learner.survive(job, group, Path(FOLDER), watch, steps=steps, **saves)
    for thread in threading.enumerate():
        if thread.name.startswith("checkpoint"):
            thread.join(5)  # a saver's, which ends when the saver is gone
    return {"seen": seen, "folders": [*folders, _complete()]}


def _complete() -> list[int]:
    """The steps of all complete checkpoints."""
    names = os.listdir(FOLDER) if os.path.isdir(FOLDER) else []
    return sorted(int(name[5:]) for name in names if name[5:].isdigit())


def _die_while_writing(step: int) -> None:
    """Has this rank killed when it begins to write its part of a checkpoint."""
    saving = sys.modules.get("course_lib.checkpoint.save")
    if saving is None:
        return
    write = saving.write_part

    def writes(unfinished: Path, *args: Any) -> Any:
        if f"step-{step:08}." in unfinished.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(unfinished, *args)

    saving.write_part = writes  # type: ignore[attr-defined]


# --- what they must bring back -------------------------------------------------------------------
class Case(NamedTuple):
    """Hidden numbers, and what one process makes of them."""

    given: dict[str, Any]
    windows: list[torch.Tensor]
    losses: list[float]


def case_of(run: Run) -> Case:
    """A text that repeats itself, so that it can be learned."""
    vocabulary = 2 * run.number(5, 9) + 1
    tokens = run.integers(0, vocabulary, 23).repeat(11).to(torch.uint8)
    alone = Alone({**SIZE, "vocabulary": vocabulary, "moe": MOE}, MICRO, LR, float("inf"), scale=1)
    windows, losses = [], []
    for step in range(STEPS):
        both = _windows(tokens.long(), step)
        windows.append(both[:, :-1])
        losses.append(alone.step(both[:, :-1], both[:, 1:]).loss)
    return Case({"vocabulary": vocabulary, "tokens": tokens, "steps": STEPS}, windows, losses)


def _windows(tokens: torch.Tensor, step: int) -> torch.Tensor:
    """Those of a step, [B, T + 1], as the course's sampler gives them."""
    length = SIZE["sequence"]
    count = (len(tokens) - 1) // length
    epoch, place = divmod(step, count // ROWS)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED * 1_000_003 + epoch))
    begins = order[place * ROWS :][:ROWS, None] * length
    return tokens[begins + torch.arange(length + 1)]


def start(
    run: Run,
    case: Case,
    sizes: dict[str, int],
    when: str,
    saves: Saves,
    at: int = 0,
    died: int = 0,
    found: Sequence[int] = (),
) -> Any:
    """Runs the job to its end, and compares.

    Args:
        run: of the check.
        case: its numbers.
        sizes: of the mesh.
        when: for messages.
        saves: how often it saves.
        at: the newest complete checkpoint.
        died: after how many steps the run before was killed.
        found: all complete checkpoints.
    """
    world = next(iter(sizes.values()), 1)
    inputs = {**case.given, "sizes": sizes, "dies": None, "least": at, "saves": saves._asdict()}
    result = run(drive, inputs, world=world, folder=run.folder, wall=40.0)
    when = f"{when}, on {sizes or 'one rank'}"
    for rank, each in enumerate(result.outputs):
        if died and each["seen"]:
            lost = died - each["seen"][0][0]
            what = f"the work lost by a kill after {died} steps {when}, in steps,"
            run.at_most(lost, saves.interval, what, rank=rank, cause=AGAIN)
        _went_on(run, case, each["seen"], rank, when, at)
    for each in run.each(result.outputs):
        _same_folder(run, each["folders"], saves, when, at, found)
    return result


def _went_on(run: Run, case: Case, seen: list[Any], rank: int, when: str, at: int) -> None:
    """The steps made, their windows and their losses."""
    numbers, right = [step[0] for step in seen], list(range(at, STEPS))
    likely = {
        "as many steps as in a whole training are made again: `steps` counts those of earlier "
        "processes": list(range(at, at + STEPS)),
        AGAIN: [0],
        f"a step is missing: it was left out, or {OTHERS}": right[1:],
    }
    run.equal(numbers, right, f"the list of steps made {when}", rank=rank, likely=likely)
    for (step, inputs, _), windows in zip(seen, case.windows[at:], strict=True):
        run.equal(inputs, windows, f"the windows of step {step} {when}", rank=rank)
    what = f"the losses {when}, from step {at},"
    run.close([step[2] for step in seen], case.losses[at:], what, rank=rank)


def _same_folder(
    run: Run, folders: list[list[int]], saves: Saves, when: str, at: int, found: Sequence[int]
) -> None:
    """The complete checkpoints at the end: the newest of those found and those saved."""
    (interval, keep), due = saves, saves.due(at)
    there = [*found, *due]
    one = "one is kept: keep the newest `keep`" if any(folders[:-1]) else "saved only at the end"
    likely = {
        "the interval was counted from the step at which this process began":
            [*found, *range(at + interval, STEPS + 1, interval)][-keep:],
        "all are kept, or all of earlier processes: keep the newest `keep` in the folder": there,
        OTHERS: [*there, STEPS][-keep:],
        "saved after every step": list(range(STEPS - keep + 1, STEPS + 1)),
        "never saved": list(found),
        "the last save is missing or not complete: make it, and wait for it": there[:-1][-keep:],
        "the checkpoints are one step off: a step that is made counts":
            [step - 1 for step in due[-keep:]],
        one: [STEPS],
    }  # fmt: skip
    what = f"the list of complete checkpoints at the end {when}"
    run.equal(folders[-1], there[-keep:], what, likely=likely)


def kill(
    run: Run, case: Case, sizes: dict[str, int], rank: int, dies: tuple[str, int], saves: Saves
) -> None:
    """Runs the job until a rank is killed."""
    world = next(iter(sizes.values()))
    given = {**case.given, "sizes": sizes, "saves": saves._asdict()}
    inputs = [{**given, "dies": dies if index == rank else None} for index in range(world)]
    result = run.attempt(drive, inputs, world=world, folder=run.folder, wall=40.0)
    if result.fault is None:
        run.fail(
            "survive() ended before the rank was to be killed",
            rank=rank,
            expected=f"a {dies[0]} after {dies[1]} steps",
            measured="none",
            cause=f"a save is due at each multiple of {saves.interval}",
        )
    if result.fault.kind != "killed" or rank not in result.fault.ranks:
        raise RunFault(result.fault, result.printed)


# --- checks --------------------------------------------------------------------------------------
@check(
    "no rank is killed: the losses are those of one process, and the newest checkpoints stay",
    points=4,
    code="E",
)
@diagnosis("a save at each multiple of the interval; keep=keep")
def check_alone(run: Run) -> None:
    """E: and at no time more checkpoints than `keep`, or other ones than are due."""
    saves = Saves(2, 2)
    for found in run.each(start(run, case_of(run), MESHES[0], "without a kill", saves).outputs):
        for step, names in enumerate(found["folders"][:-1]):
            # A new one may be there for a moment before the oldest goes, but not for two steps.
            fewest = min(len(names), len(found["folders"][step + 1]))
            what = f"the number of checkpoints kept after step {step}"
            run.at_most(fewest, saves.keep, what, cause="each save removes old ones: keep=keep")
            run.true(
                set(names) <= set(saves.due()),
                f"a checkpoint of step {max(names, default=0)}",
                cause=OTHERS,
            )


@check(
    "a rank is killed in a step: the job continues on other ranks, and little is lost",
    points=6,
    code="E",
)
@diagnosis("resume_training before the loop, with the sampler in parts")
def check_killed(run: Run) -> None:
    """E: two ranks of dp, then three of ep; one checkpoint is kept."""
    case, saves = case_of(run), Saves(3, 1)
    kill(run, case, MESHES[0], 1, ("step", 5), saves)
    start(run, case, MESHES[1], "after a kill in a step", saves, at=3, died=5, found=[3])


@check(
    "a rank is killed while it saves: the job continues from the previous checkpoint",
    points=5,
    code="E",
)
@diagnosis("only complete checkpoints count")
def check_torn(run: Run) -> None:
    """E: three ranks of ep, then a pipeline of two; three checkpoints are kept."""
    case, saves = case_of(run), Saves(2, 3)
    kill(run, case, MESHES[1], 1, ("save", 6), saves)
    start(run, case, MESHES[2], "after a kill in a save", saves, at=4, died=6, found=[2, 4])


@check(
    "a job that has ended makes no more steps, and a job may continue on one rank",
    points=2,
    code="E",
)
@diagnosis("`steps` counts those of earlier processes")
def check_ended(run: Run) -> None:
    """E: a shorter training, its last step not saved; the rest, saved more seldom; nothing."""
    case, seldom = case_of(run), Saves(4, 2)
    given = {**case.given, "steps": 4, "sizes": MESHES[2], "dies": None}
    run(
        drive, {**given, "saves": {"interval": 3, "keep": 2}}, world=2, folder=run.folder, wall=40.0
    )
    start(run, case, {}, "after other ranks' 4 steps", seldom, at=3, found=[3])
    start(run, case, {}, "after the end", seldom, at=STEPS, found=[4, 8])
