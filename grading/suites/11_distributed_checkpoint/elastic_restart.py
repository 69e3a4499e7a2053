"""elastic_restart: ranks are killed, the job starts again, little work is lost."""

from __future__ import annotations

import copy
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, RunFault, check, diagnosis, in_part
from grading.references.checkpoint.resumed_training import (
    PARTS,
    WIDTH,
    Stream,
    Training,
    make_step,
    play,
    seed_all,
)

EXERCISE = Exercise(
    title="Killed, and started again",
    core=False,
    minutes=30,
    order=4,
    defines=("train",),
    hints=(
        "How can somebody who looks into the folder tell a checkpoint that is complete from one of "
        "which only half was written? Who knows that all parts are there?",
        "Every rank writes its part into a folder with a name that says unfinished; after a "
        "`barrier(group)` index 0 renames it. Compare step numbers as numbers: '9' > '12'.",
        "Begin with `saved = [int(p.name) for p in folder.iterdir() if p.name.isdigit()]`, restore "
        "from `max(saved)`; then `while job.step < steps`: a step, and if `job.step % interval == "
        "0`: `mkdir(exist_ok=True)`, capture, write, barrier, rename on index 0.",
    ),
)

INTERVAL, STEPS = 3, 14
OWN = "whether restore() got a state of this rank"
PATIENCE = 0.5  # seconds in which the other ranks may finish a save that this one takes no part in


# --- what runs on the ranks ----------------------------------------------------------------------
class TooEarly(BaseException):
    """More work was lost than may be: what the job does then does not matter."""


class CannotGoOn(RuntimeError):
    """A job that was started again found a checkpoint, and could not load it."""


class Deadly(dict[str, Any]):
    """A part of a state that kills the rank when it is written, in the middle of a file."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Job:
    """A training that dies when it is told to.

    Args:
        group: all ranks.
        seed: of weights and random numbers.
        data: inputs and targets.
        dies: this rank, in which method or `write`, and at which step; None if not.
        least: the step from which it must go on, at least.
    """

    def __init__(
        self, group: Any, seed: int, data: Any, dies: tuple[str, int] | None, least: int
    ) -> None:
        self._group, self._data, self._dies, self._least = group, data, dies, least
        self._training = Training(seed, len(data[0]))
        seed_all(seed + group.index)
        self.log: list[dict[str, Any]] = []
        self.saved: list[int] = []
        self.begun: dict[str, Any] | None = None

    @property
    def step(self) -> int:
        """How many steps were made."""
        return self._training.step

    def make_step(self) -> None:
        """One step; collective."""
        if not self.log and self.step < self._least:
            raise TooEarly
        self._die_in("step")
        self._die_in("write")  # the answer has a way of writing that is not noticed
        self.log.append(make_step(self._training, self._data, self._group))

    def capture(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the next step depends on."""
        if self._dies == ("capture", self.step):
            time.sleep(PATIENCE)
        self._die_in("capture")
        self.saved.append(self.step)
        whole = {name: getattr(self._training, name).state_dict() for name in PARTS}
        own = {"torch": torch.get_rng_state(), "python": random.getstate()}
        whole = copy.deepcopy({**whole, "step": self.step})
        if self._dies == ("write", self.step):
            whole["last"] = Deadly()
        return whole, own

    def restore(self, whole: dict[str, Any], own: dict[str, Any] | None) -> None:
        """Goes on from there."""
        for name in PARTS:
            getattr(self._training, name).load_state_dict(copy.deepcopy(whole[name]))
        self._training.step = whole["step"]
        if own is not None:
            torch.set_rng_state(own["torch"])
            random.setstate(own["python"])
        self.begun = {"own": own is not None, "random": torch.get_rng_state(), **self.weights()}

    def weights(self) -> dict[str, torch.Tensor]:
        """Copies of parameters and buffers."""
        return self._training.weights()

    def _die_in(self, method: str) -> None:
        if self._dies == (method, self.step):
            os.kill(os.getpid(), signal.SIGKILL)


def drive(
    learner: Any,
    group: Any,
    seed: int,
    data: Any,
    steps: int,
    dies: Any,
    least: int,
    interval: int = INTERVAL,
) -> dict[str, Any]:
    """Starts the job once, in the folder that all runs of a check share."""
    folder = Path("checkpoints")
    folder.mkdir(exist_ok=True)
    job = Job(group, seed, data, dies, least)
    try:
        learner.train(group, folder, job, steps, interval)
    except TooEarly:
        pass
    except Exception as error:
        if job.log or job.saved or least <= -INTERVAL:
            raise
        raise CannotGoOn(
            "started again after a kill, the job cannot load what it takes for a complete "
            f"checkpoint ({type(error).__name__}: {error})"
        ) from error
    return {"log": job.log, "saved": job.saved, "begun": job.begun, "weights": job.weights(),
            "step": job.step}  # fmt: skip


# --- what they must bring back -------------------------------------------------------------------
class Case(NamedTuple):
    """Hidden numbers, and what one process makes of them."""

    given: dict[str, Any]
    steps: list[Any]
    weights: dict[str, torch.Tensor]
    early: dict[str, torch.Tensor]  # weights after the first interval
    streams: list[torch.Tensor]  # torch's random state of both ranks then


def case_of(run: Run) -> Case:
    """Two ranks, played by one process that nobody kills."""
    seed, count = run.number(10, 10_000), run.number(27, 35)
    data = run.random((count, WIDTH)), run.random(count)
    training, streams = Training(seed, count), [Stream(seed + index) for index in range(2)]
    found = play(training, streams, data, INTERVAL)
    early, states = training.weights(), [stream.torch for stream in streams]
    found += play(training, streams, data, STEPS - INTERVAL)
    return Case({"seed": seed, "data": data}, found, training.weights(), early, states)


def start(
    run: Run,
    case: Case,
    world: int = 2,
    steps: int = STEPS,
    died: int = 0,
    interval: int = INTERVAL,
) -> Any:
    """Runs the job to its end; `died` is the step that the one before was killed in."""
    about = {"steps": steps, "dies": None, "least": died - INTERVAL, "interval": interval}
    inputs = {**case.given, **about}
    result = run(drive, inputs, world=world, folder=run.folder)
    begins(run, result, died)
    return result


def kill(
    run: Run, case: Case, rank: int, dies: tuple[str, int], died: int = 0, world: int = 2
) -> None:
    """Runs the job until a rank is killed."""
    inputs = [
        {
            **case.given,
            "steps": STEPS,
            "dies": dies if index == rank else None,
            "least": died - INTERVAL,
        }
        for index in range(world)
    ]
    result = run.attempt(drive, inputs, world=world, folder=run.folder)
    if result.fault is None:
        begins(run, result, died)
        run.fail(
            "train() ended before the rank was to be killed",
            rank=rank,
            expected=f"{dies[0]} at step {dies[1]}",
            measured="it was not",
            cause=f"a save is due at each multiple of {INTERVAL}",
        )
    if result.fault.kind != "killed" or rank not in result.fault.ranks:
        raise RunFault(result.fault, result.printed)


def begins(run: Run, result: Any, died: int) -> None:
    """A job that was started again goes on from a step that is not too early."""
    for found in run.each(result.outputs):
        first = found["step"] - len(found["log"])
        run.at_most(
            died - first,
            INTERVAL,
            f"the work lost by a kill in step {died}, in steps,",
            cause=f"it went on from step {first}, and not from the newest "
            "checkpoint that is complete",
        )


def went_on(run: Run, case: Case, result: Any, when: str) -> None:
    """The restarted job ended as if nothing had been."""
    for rank, found in enumerate(run.each(result.outputs)):
        first = found["step"] - len(found["log"])
        made = list(range(first + 1, STEPS + 1))
        what = f"the list of steps made after a kill {when}"
        run.equal([step["step"] for step in found["log"]], made, what)
        due = [step for step in made if step % INTERVAL == 0]
        likely = {f"step {first} is saved again: it was loaded from a checkpoint": [first, *due]}
        run.equal(found["saved"], due, f"the list of saves after a kill {when}", likely=likely)
        run.close(
            [step["loss"] for step in found["log"]],
            [step["losses"][rank] for step in case.steps[first:]],
            f"the losses after a kill {when}",
        )
        run.close(found["weights"], case.weights, f"the weights at the end, after a kill {when},")


@check("without a kill: every step once, a save at each interval", points=3, code="E")
@diagnosis("a loop of steps, and a save if job.step % interval is 0")
def check_alone(run: Run) -> None:
    """E: weights of one process; which steps are saved."""
    case = case_of(run)
    due = list(range(INTERVAL, STEPS + 1, INTERVAL))
    for found in run.each(start(run, case).outputs):
        run.equal(found["step"], STEPS, "job.step at the end")
        run.close(found["weights"], case.weights, "the weights at the end")
        likely = {
            "saved after every step: that costs more than it is worth": list(range(1, STEPS + 1)),
            "saved too seldom, at every second interval": due[1::2],
            "saved too seldom, at the end alone": [STEPS],
            "never saved: a kill costs everything": [],
            "step 0 is saved: nothing was done yet": [0, *due],
        }
        run.equal(found["saved"], due, "the list of steps that are saved", likely=likely)


@check("a rank killed in a step: at most an interval is lost", points=5, code="E")
@diagnosis("go on from the newest complete checkpoint")
def check_killed(run: Run) -> None:
    """E: killed twice in one job, with one and with two digits in the newest step."""
    case = case_of(run)
    kill(run, case, 1, ("step", 7))
    kill(run, case, 0, ("step", 13), died=7)
    went_on(run, case, start(run, case, died=13), "in a step")


@check("a rank killed in a save: the torn checkpoint is not loaded", points=5, code="E")
@diagnosis("a checkpoint counts once all ranks have written their part")
def check_torn(run: Run) -> None:
    """E: others have written their part; or half of a file of step 12 is there.

    Step 3 is saved by two ranks after one of three died in it, and begun again by three.
    """
    case = case_of(run)
    kill(run, case, 1, ("capture", INTERVAL), world=3)
    start(run, case, steps=INTERVAL, died=INTERVAL)
    likely = {"it was left by a save that died, and is not of this checkpoint": True}
    new = start(run, case, world=3, steps=INTERVAL, died=INTERVAL).outputs[-1]["begun"]
    run.equal(bool(new) and new["own"], False, OWN, rank=2, likely=likely)
    kill(run, case, 1, ("capture", 6))
    kill(run, case, 0, ("capture", 9), died=6)
    kill(run, case, 0, ("write", 12), died=9)
    went_on(run, case, start(run, case, died=12), "in a save")


@check("the job goes on with another number of ranks", points=4, code="E")
@diagnosis("the state of the job is for all; a new rank has none of its own")
@in_part
def check_worlds(run: Run) -> None:
    """E: two ranks, then three, then one with another interval.

    Weights, data, and each rank's random numbers.
    """
    case = case_of(run)
    start(run, case, steps=INTERVAL)
    grown = start(run, case, world=3, steps=2 * INTERVAL)
    fewer = start(run, case, world=1, interval=4)
    for saved in fewer.column("saved"):
        likely = {"an interval was counted from the restart": [10, 14]}
        run.equal(saved, [8, 12], "the steps saved, begun at 6, every 4 steps,", likely=likely)
    for result, begins in ((grown, INTERVAL), (fewer, 2 * INTERVAL)):
        what = f"on {len(result.outputs)} ranks, after other ranks' {begins} steps,"
        for found in run.each(result.outputs):
            ends = begins + len(found["log"])
            cause = "each rank must load: all of them were made again"
            run.true(found["begun"] is not None, "job.restore() was not called", cause=cause)
            run.equal(
                [step["rows"] for step in found["log"]],
                [step["rows"] for step in case.steps[begins:ends]],
                f"the data {what}",
            )
    for rank, found in enumerate(run.each(grown.outputs)):
        begun = dict(found["begun"])
        run.equal(begun.pop("own"), rank < 2, OWN)
        state = begun.pop("random")
        if rank < 2:
            other = {"it is another rank's": case.streams[1 - rank]}
            name = "the random state of a rank that was there"
            run.equal(state, case.streams[rank], name, likely=other)
        run.close(begun, case.early, "the weights after restore()")
