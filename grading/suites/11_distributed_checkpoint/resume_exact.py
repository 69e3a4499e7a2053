"""resume_exact: a job whose processes all ended goes on as if nothing had been."""

from __future__ import annotations

import copy
import random
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Opaque, Run, check, diagnosis
from grading.references.checkpoint.resumed_training import (
    WIDTH,
    Stream,
    Training,
    load,
    make_step,
    play,
    seed_all,
)

EXERCISE = Exercise(
    title="10 steps = 5 + save + 5",
    core=True,
    minutes=25,
    order=3,
    defines=("capture", "restore"),
    library=(),
    hints=(
        "Go through one training step and list all that it reads. Which of it is the same on every "
        "rank, and which is not? And who else works on the tensors in `optimizer.state_dict()`?",
        "For the job: the five `state_dict()`s and `step`. For the rank: `torch.get_rng_state()` "
        "and `random.getstate()`; not a seed, which says where the numbers began. "
        "`copy.deepcopy` copies tensors inside of dicts, too.",
        "`job = {'model': training.model.state_dict(), ..., 'step': training.step}` and return "
        "`copy.deepcopy(job), own`; `restore` begins with `job = copy.deepcopy(job)`, calls "
        "`load_state_dict` five times, sets `training.step`, and sets the random states if `own` "
        "is not None.",
    ),
)

BEFORE = AFTER = 5
OWN_BYTES = 24_000


# --- what runs on the ranks ----------------------------------------------------------------------
def first(learner: Any, group: Any, seed: int, data: tuple[Any, Any]) -> dict[str, Any]:
    """Steps, a capture, and more steps, which the states must not notice."""
    training = Training(seed, len(data[0]))
    seed_all(seed + group.index)
    steps = [make_step(training, data, group) for _ in range(BEFORE)]
    drawn = torch.get_rng_state(), random.getstate()
    states = learner.capture(training)
    quiet = torch.equal(torch.get_rng_state(), drawn[0]) and random.getstate() == drawn[1]
    at_once = copy.deepcopy(states)
    steps += [make_step(training, data, group) for _ in range(AFTER)]
    return {"steps": steps, "weights": training.weights(), "at_once": at_once, "later": states,
            "quiet": quiet}  # fmt: skip


def second(
    learner: Any, group: Any, seed: int, data: tuple[Any, Any], job: Any, own: Any
) -> dict[str, Any]:
    """The same job in other processes, begun with other numbers."""
    training = Training(seed, len(data[0]))
    seed_all(seed + group.index)
    before = copy.deepcopy((job, own))
    learner.restore(training, job, own)
    generator = torch.Generator()
    generator.set_state(torch.get_rng_state())  # to look without drawing
    found = {"step": training.step, "loaded": training.weights(),
             "drawn": torch.rand((), generator=generator)}  # fmt: skip
    steps = [make_step(training, data, group) for _ in range(AFTER)]
    return {**found, "steps": steps, "weights": training.weights(), "states": [before, (job, own)],
            "changed": _changed(learner, training, job, own)}  # fmt: skip


def _changed(learner: Any, training: Any, job: Any, own: Any) -> list[str]:
    """What both functions change that no state has: the mode, what is frozen, gradients."""
    model = training.model.eval()
    model.outer.requires_grad_(False)
    model.inner.grad = torch.ones_like(model.inner)
    learner.capture(training)
    learner.restore(training, job, own)
    grad = model.inner.grad
    kept = {
        "the model is in training mode": not model.training,
        "a frozen parameter is not frozen": not model.outer.requires_grad,
        "a gradient is not what it was": grad is not None and bool((grad == 1).all()),
    }
    return [what for what, right in kept.items() if not right]


# --- what they must bring back -------------------------------------------------------------------
def inputs_of(run: Run) -> dict[str, Any]:
    """Hidden numbers: a seed and the data; an epoch is two batches and a rest."""
    seed, count = run.number(10, 10_000), run.number(27, 35)
    return {"seed": seed, "data": (run.random((count, WIDTH)), run.random(count))}


def save(run: Run, given: dict[str, Any], world: int = 2) -> Any:
    """Runs the first half, and looks whether its states could be written to a disk."""
    result = run(first, given, world=world)
    for found in run.each(result.outputs):
        states = found["at_once"]
        if not isinstance(states, tuple) or len(states) != 2:
            run.fail(
                "capture() does not return two states",
                expected="a tuple: of the job, of this rank",
                measured=repr(states)[:80],
                cause="`return job, own`",
            )
        bad = _opaque(states)
        run.true(
            bad is None,
            "a state cannot be written to a disk",
            expected="tensors, numbers, strings, None, lists, tuples, dicts",
            measured=repr(bad)[:80],
            cause="an object is in it: save what its state_dict() says",
        )
    return result


def resume(run: Run, given: dict[str, Any], saved: Any, world: int = 2) -> Any:
    """Runs the second half, from the states as they were when they were captured."""
    job = saved.outputs[0]["at_once"][0]
    owns = [found["at_once"][1] for found in saved.outputs] + [None] * world
    return run(
        second,
        [
            {"seed": given["seed"] + 777, "data": given["data"], "job": job, "own": own}
            for own in owns[:world]
        ],
        world=world,
    )


def _opaque(state: Any) -> Any:
    """The first thing in a state that is no plain data."""
    if isinstance(state, Opaque):
        return state
    items = [*state.keys(), *state.values()] if isinstance(state, dict) else state
    if not isinstance(items, (list, tuple, set)):
        return None
    return next((bad for item in items if (bad := _opaque(item)) is not None), None)


def _size(state: Any) -> int:
    """Bytes of a state, counting eight for a number."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    if isinstance(state, (str, bytes)):
        return len(state)
    if isinstance(state, dict):
        return sum(_size(key) + _size(item) for key, item in state.items())
    if isinstance(state, (list, tuple, set)):
        return sum(map(_size, state))
    return 8


def expected(given: dict[str, Any], how: str = "", world: int = 2) -> tuple[list[Any], Any]:
    """One process' ten steps and its weights; `how` names what goes wrong at the resume."""
    seed, data = given["seed"], given["data"]
    training = Training(seed, len(data[0]))
    streams = [Stream(seed + index) for index in range(world)]
    found = play(training, streams, data, BEFORE)
    fresh = Training(seed + 777, len(data[0]))
    load(fresh, training, without=(how,))
    new = [Stream(seed + 777 + index) for index in range(world)]
    begun = [Stream(seed + index) for index in range(world)]
    for index, stream in enumerate(new):
        if how != "torch":
            source = {"rank 0": streams[0], "seed": begun[index]}.get(how, streams[index])
            stream.torch = source.torch
        if how != "python":
            source = streams[0] if how == "rank 0" else streams[index]
            stream.python = source.python
    if how in ("one back", "one on"):
        fresh.sampler.state["next"] += 12 if how == "one on" else -12
    if how == "buffer":
        fresh.model.seen.zero_()
    if how == "later":
        found += play(training, streams, data, AFTER)
        load(fresh, training)
        return found[:BEFORE] + play(fresh, new, data, AFTER), fresh.weights()
    return found + play(fresh, new, data, AFTER), fresh.weights()


CAUSES = {
    "every rank has rank 0's random numbers: each must save its own": "rank 0",
    "torch's random numbers are not restored": "torch",
    "torch's random numbers begin again at the seed: a seed is not where they are": "seed",
    "Python's random numbers are not restored": "python",
    "the optimizer is not restored: its moments begin at zero": "optimizer",
    "the schedule is not restored: the learning rate begins again": "schedule",
    "the weights are not restored": "model",
    "a buffer of the model is not restored": "buffer",
    "the sampler begins again": "sampler",
    "the state went on with the training: it was saved by reference, not copied": "later",
}


@check("capture changes nothing", points=2, code="E")
@diagnosis("look at everything, touch nothing: no draw, no step")
def check_quiet(run: Run) -> None:
    """E: ten steps with a capture in the middle are one process' ten steps."""
    given = inputs_of(run)
    steps, weights = expected(given)
    for rank, found in enumerate(run.each(save(run, given).outputs)):
        cause = "a number was drawn: the steps after a save are other ones"
        run.true(found["quiet"], "capture() moves the random numbers on", cause=cause)
        run.close(
            [step["loss"] for step in found["steps"]],
            [step["losses"][rank] for step in steps],
            "the loss of step",
        )
        run.close(found["weights"], weights, "the weights after 10 steps")


@check("the data and the count of steps go on where they were", points=3, code="E")
@diagnosis("the sampler's state and `step` belong to the job's state")
def check_data(run: Run) -> None:
    """E: the rows of each batch after the restart."""
    given = inputs_of(run)
    right = [step["rows"] for step in expected(given)[0]]
    likely = {
        "the sampler begins again, with data that was seen already": expected(given, "sampler")[0],
        "one batch is skipped": expected(given, "one on")[0],
        "one batch is seen twice": expected(given, "one back")[0],
    }
    wrong = {why: [step["rows"] for step in steps[BEFORE:]] for why, steps in likely.items()}
    for found in run.each(resume(run, given, save(run, given)).outputs):
        what = "the data of the five steps after the restart"
        run.equal([step["rows"] for step in found["steps"]], right[BEFORE:], what, likely=wrong)
        known = {"the count of steps begins again": 0}
        run.equal(found["step"], BEFORE, "training.step after restore()", likely=known)


@check("the learning rate and the loss scale go on", points=3, code="E")
@diagnosis("schedule, optimizer and scaler have a state_dict each")
def check_rates(run: Run) -> None:
    """E: both in each step after the restart."""
    given = inputs_of(run)
    right = expected(given)[0][BEFORE:]
    rates = {
        "the schedule is not restored": expected(given, "schedule")[0],
        "the optimizer is not restored: the rate is among its options": expected(
            given, "optimizer"
        )[0],
    }
    scales = expected(given, "scaler")[0][BEFORE:]
    for found in run.each(resume(run, given, save(run, given)).outputs):
        run.close(
            torch.tensor([step["rate"] for step in found["steps"]]).double(),
            torch.tensor([step["rate"] for step in right]).double(),
            "the learning rate of the five steps after the restart",
            likely={
                why: torch.tensor([step["rate"] for step in steps[BEFORE:]]).double()
                for why, steps in rates.items()
            },
        )
        run.equal(
            [step["scale"] for step in found["steps"]],
            [step["scale"] for step in right],
            "the loss scale of the five steps after the restart",
            likely={"the scaler is not restored": [step["scale"] for step in scales]},
        )


@check("10 steps = 5 + save + 5, bit for bit", points=5, code="E")
@diagnosis("something that a step reads has begun again")
def check_exact(run: Run) -> None:
    """E: losses and weights on each rank; one process' numbers name the cause."""
    given = inputs_of(run)
    steps, weights = expected(given)
    saved = save(run, given)
    resumed = resume(run, given, saved).outputs
    found_losses = [torch.stack([step["loss"] for step in found["steps"]]) for found in resumed]
    right = [torch.stack([step["losses"][r] for step in steps[BEFORE:]]) for r in range(2)]
    fine = all(map(torch.allclose, found_losses, right))
    wrong = {} if fine else {why: expected(given, how)[0] for why, how in CAUSES.items()}
    for rank, found in enumerate(resumed):
        likely = {
            why: torch.stack([step["losses"][rank] for step in other[BEFORE:]])
            for why, other in wrong.items()
        }
        what = "the losses of the five steps after the restart"
        run.close(found_losses[rank], right[rank], what, rank=rank, likely=likely)
        run.close(found["weights"], weights, "the weights after 10 steps", rank=rank)
        went_on = saved.outputs[rank]
        same = [step["loss"] for step in went_on["steps"][BEFORE:]]
        run.equal(list(found_losses[rank]), same, "the losses, bit for bit,", rank=rank)
        run.equal(found["weights"], went_on["weights"], "the weights, bit for bit,", rank=rank)


@check("a state stays what it was", points=3, code="E")
@diagnosis("state_dict() hands out what training works on: copy.deepcopy")
def check_copies(run: Run) -> None:
    """E: no job changes a state, and a restore changes nothing that no state has."""
    given = inputs_of(run)
    saved = save(run, given)
    for found in run.each(saved.outputs):
        for number, name in enumerate(("the job", "this rank")):
            likely = {
                "saved by reference: it changes while training goes on": found["later"][number]
            }
            what = f"the state of {name}, five steps after capture(),"
            run.equal(found["later"][number], found["at_once"][number], what, likely=likely)
    for found in run.each(resume(run, given, saved).outputs):
        before, after = found["states"]
        likely = {"restored by reference: training works on the state's own tensors": after}
        run.equal(after, before, "the state, five steps after restore(),", likely=likely)
        what = "after another capture() and restore(), something else has changed"
        run.true(not found["changed"], what, measured="; ".join(found["changed"]))


@check("another number of ranks goes on with the same weights and data", points=3, code="E")
@diagnosis("the job's state is for any number of ranks; `own` may be None")
def check_worlds(run: Run) -> None:
    """E: saved by 2, resumed by 3 and by 1; a new rank keeps its random numbers."""
    given = inputs_of(run)
    saved = save(run, given)
    right = [step["rows"] for step in expected(given)[0]]
    training = Training(given["seed"], len(given["data"][0]))
    streams = [Stream(given["seed"] + index) for index in range(2)]
    play(training, streams, given["data"], BEFORE)
    streams.append(Stream(given["seed"] + 777 + 2))
    for world in (3, 1):
        for rank, found in enumerate(run.each(resume(run, given, saved, world).outputs)):
            what = f"on {world} ranks instead of 2"
            run.close(found["loaded"], training.weights(), f"the weights {what}")
            run.equal([step["rows"] for step in found["steps"]], right[BEFORE:], f"the data {what}")
            generator = torch.Generator()
            generator.set_state(streams[rank].torch)
            name = f"the next random number {what}"
            run.equal(found["drawn"], torch.rand((), generator=generator), name)


@check("a rank saves little of its own", points=1, code="M")
@diagnosis("what is the same on all ranks belongs to the job's state")
def check_small(run: Run) -> None:
    """M: bytes of each rank's own state."""
    for found in run.each(save(run, inputs_of(run)).outputs):
        cause = "weights or moments are in it, on every rank"
        what = "the state of one rank, in bytes,"
        run.at_most(_size(found["at_once"][1]), OWN_BYTES, what, cause=cause)
