"""no_sync: the updates of one process, and one synchronisation for each of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.accumulation.windows import (
    UNUSED,
    Batches,
    Model,
    Updates,
    mean,
    optimizer_of,
    slips,
    squared_error,
    train,
    windows,
)
from grading.references.data_parallel.wrapper import alike, gradient_of

EXERCISE = Exercise(
    title="no_sync: several backwards, one synchronisation",
    core=True,
    minutes=20,
    order=1,
    defines=("DDP", "train_epoch"),
    hints=(
        "A context manager has three steps: remember and change the value on the way in, `yield`, "
        "put it back on the way out. What happens to the third if the block raises? Which value "
        "must be put back if the block was itself inside a `no_sync()`?",
        "Cut the micro-batches into windows first: slices of k, of which the last may be shorter. "
        "In a window, all micro-batches but the last run inside `no_sync()`, forward *and* "
        "backward, since it is the forward that looks at `synchronises`.",
        "`before, self.synchronises = self.synchronises, False`, then try / yield / finally. In "
        "the loop: zero_grad; for each micro-batch `with nullcontext() if last else "
        "ddp.no_sync():` forward, loss / len(window), backward; then step.",
    ),
)

WORLDS = (2, 3, 4, 1)  # with two ranks most slips can be told apart
CASES = ((7, 3, "SGD"), (4, 2, "AdamW"), (2, 5, "SGD"), (3, 1, "SGD"))  # batches, k, optimizer
SIZE, WIDTH, OUT = 3, 6, 4  # samples of a micro-batch, features, outputs
LEFT = 0.5  # what another backward has left in the gradients before the epoch
TRAINED = WIDTH * WIDTH + WIDTH * OUT + UNUSED  # numbers in the parameters that need a gradient


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, start: list[torch.Tensor], batches: Batches, cases: list[Any]
) -> list[dict[str, Any]]:
    """Trains one epoch for each case: gradients before each update, weights after the last."""
    found = []
    for count, k, name in cases:
        model = Model([value + group.rank for value in start])  # rank 0's replica is the one
        for parameter in model.trained():
            parameter.grad = torch.full_like(parameter, LEFT)
        ddp = learner.DDP(model, group)
        optimizer = optimizer_of(model, name)
        updates: Updates = []
        optimizer.register_step_pre_hook(partial(_note_gradients, updates, model))
        seen: dict[str, list[Any]] = {"forward": [], "backward": [], "order": []}
        model.register_forward_pre_hook(partial(_note_forward, seen, ddp))
        loss_fn = partial(_noted_loss, seen, ddp)
        since = len(group.ledger.events)
        learner.train_epoch(ddp, optimizer, loss_fn, batches[:count], k)
        events = group.ledger.events[since:]
        found.append(
            {
                "updates": updates,
                "weights": [p.detach().clone() for p in model.trained()],
                "payload": sum(event.payload for event in events),
                **seen,
            }
        )
    return found


def _note_gradients(updates: Updates, model: Model, *_: Any) -> None:
    updates.append([gradient_of(p) for p in model.trained()])


def _note_forward(seen: dict[str, list[Any]], ddp: Any, *_: Any) -> None:
    seen["forward"].append(bool(ddp.synchronises))
    seen["order"].append("forward")


def _noted_loss(
    seen: dict[str, list[Any]], ddp: Any, outputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    def note(_: torch.Tensor) -> None:
        seen["backward"].append(bool(ddp.synchronises))
        seen["order"].append("backward")

    outputs.register_hook(note)
    return squared_error(outputs, targets)


def drive_blocks(
    learner: Any, group: Any, start: list[torch.Tensor], batches: Batches
) -> dict[str, list[int]]:
    """How often backwards synchronise inside, after, nested in and after an error in no_sync.

    Of two more, the forward is on the other side of the border.
    """
    ddp = learner.DDP(Model(start), group)
    counts: dict[str, list[int]] = {}

    def forward() -> torch.Tensor:
        return squared_error(ddp(batches[0][0]), batches[0][1])

    def backward(name: str, loss: torch.Tensor | None = None) -> None:
        since = len(group.ledger.events)
        (forward() if loss is None else loss).backward()
        counts.setdefault(name, []).append(len(group.ledger.events) - since)

    backward("before no_sync()")
    with ddp.no_sync():
        backward("inside no_sync()")
        with ddp.no_sync():
            backward("inside a second, inner no_sync()")
        backward("after the inner no_sync()")
    backward("after no_sync()")
    loss = forward()
    with ddp.no_sync():
        backward("inside no_sync(), of a forward before it", loss)
        loss = forward()
    backward("after no_sync(), of a forward inside it", loss)
    try:
        with ddp.no_sync():
            raise KeyError("no such key")
    except KeyError:
        backward("after an exception in no_sync()")
    else:
        counts["swallowed"] = [1]
    return counts


# --- what they must bring back -------------------------------------------------------------------
def _inputs(run: Run, world: int) -> tuple[list[torch.Tensor], list[Batches]]:
    shapes = ((WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, OUT))
    start = [run.random(shape) / 2 for shape in shapes]
    most = max(count for count, _, _ in CASES)
    batches = [
        [(run.random((SIZE, WIDTH)), run.random((SIZE, OUT))) for _ in range(most)]
        for _ in range(world)
    ]
    return start, batches


def _epochs(run: Run, world: int) -> tuple[Any, list[torch.Tensor], list[Batches]]:
    start, batches = _inputs(run, world)
    cases = [list(case) for case in CASES]
    inputs = [{"start": start, "batches": batches[r], "cases": cases} for r in range(world)]
    return run(drive, inputs, world=world), start, batches


CAPTURED = (
    "no_sync() has changed what the forward has captured: it sets `synchronises`, no other value"
)
SKIPPED = "some micro-batches were left out"
BEFORE = "gradients from before the epoch are still in it: zero them where an update begins"


def _check_count(run: Run, found: dict[str, Any], count: int, k: int, rank: int) -> None:
    """As many updates as windows."""
    likely = {
        "the last window, with fewer than k micro-batches, was dropped": count // k,
        "an update after every micro-batch: step once per window": count,
    }
    what = f"the number of updates from {count} micro-batches with k = {k}"
    run.equal(len(found["updates"]), len(windows(count, k)), what, rank=rank, likely=likely)


@check("gradients before each update, and the weights after them, on 1–4 ranks", points=4, code="E")
@diagnosis("zero, then forward and backward of each micro-batch of the window, then step")
def check_epoch(run: Run) -> None:
    """E: float64; windows that divide, that do not, longer than the epoch, and of one."""
    for world in WORLDS:
        result, start, batches = _epochs(run, world)
        for place, case in enumerate(CASES):
            found = [output[place] for output in result.outputs]
            _compare_epoch(run, found, start, batches, case)


def _compare_epoch(
    run: Run, found: list[Any], start: list[torch.Tensor], batches: list[Batches], case: Any
) -> None:
    """One case on all ranks with one process."""
    count, k, name = case
    updates, weights = train(start, batches, windows(count, k), name, mean)
    what = f"{count} micro-batches, k = {k}, {name}, {len(batches)} ranks"
    for rank, got in enumerate(found):
        _check_count(run, got, count, k, rank)
        right = alike(got["updates"], updates)
        wrong = {} if right else slips(start, batches, count, k, name, rank)
        for number, gradients in enumerate(updates):
            likely = {why: u[number] for why, (u, _) in wrong.items() if number < len(u)}
            if number == 0:
                likely[BEFORE] = [gradient + LEFT for gradient in gradients]
            run.close(
                got["updates"][number],
                gradients,
                f"gradients before update {number + 1} ({what})",
                rank=rank,
                likely=likely,
                terms=len(batches) * k,
            )
        run.close(got["weights"], weights, f"weights after the epoch ({what})", rank=rank, terms=99)


@check("one synchronisation for each update", points=3, code="B")
@diagnosis("all micro-batches of a window but the last run inside no_sync()")
def check_once(run: Run) -> None:
    """B: the gradients' bytes, once an update."""
    result, _, _ = _epochs(run, 2)
    for output in run.each(result.outputs):
        for (count, k, _), found in zip(CASES, output, strict=True):
            updates, size = len(windows(count, k)), TRAINED * 8
            likely = {
                _why_each(found): count * size,
                "nothing was synchronised: the last micro-batch belongs outside no_sync()": 0,
                "only full windows synchronise; the last, shorter one does not": (
                    count // k * size
                ),
            }
            what = f"the bytes given to collectives in {updates} updates of {k} micro-batches"
            run.equal(found["payload"], updates * size, what, likely=likely)


@check("one micro-batch after another", points=1, code="O")
@diagnosis("a forward, then its backward, then the next micro-batch")
def check_order(run: Run) -> None:
    """O: no second forward while the graph of the first is alive."""
    result, _, _ = _epochs(run, 2)
    for output in run.each(result.outputs):
        for (count, k, _), found in zip(CASES, output, strict=True):
            whole = len(found["order"])
            what = f"the number of forwards and backwards of {count} micro-batches, k = {k},"
            run.equal(whole, 2 * count, what, likely={SKIPPED: min(whole, 2 * count - 1)})
            run.true(
                found["order"] == ["forward", "backward"] * count,
                f"forwards and backwards do not alternate ({count} micro-batches, k = {k})",
                expected="forward, backward, forward, backward, ...",
                measured=", ".join(found["order"][:6]),
                cause="the graphs of several micro-batches are held at once, which is what "
                "accumulation is there to avoid",
            )


def _why_each(found: dict[str, Any]) -> str:
    """Why every micro-batch was synchronised: the flag's values in forwards and backwards tell."""
    pairs = zip(found["forward"], found["backward"], strict=False)
    if any(forward and not backward for forward, backward in pairs):
        return (
            "the flag was set around the backward only, but the forward has already captured it: "
            "both belong inside no_sync()"
        )
    return "each micro-batch is synchronised: all but the last of a window belong inside no_sync()"


@check("no_sync restores the old value: nested, and after an exception", points=3, code="B")
@diagnosis("remember the value on the way in, and restore it in a `finally`")
def check_blocks(run: Run) -> None:
    """B: collectives of single backwards."""
    start, batches = _inputs(run, 2)
    inputs = [{"start": start, "batches": batches[rank]} for rank in range(2)]
    result = run(drive_blocks, inputs, world=2)
    each = 3  # parameters that need a gradient
    expected = {
        "before no_sync()": (each, "synchronises is not True at the start"),
        "inside no_sync()": (0, "no_sync() does not change `synchronises`"),
        "inside a second, inner no_sync()": (
            0,
            "the inner no_sync() does not change `synchronises`",
        ),
        "after the inner no_sync()": (
            0,
            "the inner no_sync() set it to True instead of the value from before",
        ),
        "after no_sync()": (each, "the old value is not restored when the block ends"),
        "inside no_sync(), of a forward before it": (each, CAPTURED),
        "after no_sync(), of a forward inside it": (0, CAPTURED),
        "after an exception in no_sync()": (
            each,
            "an exception skipped the line that restores it: use `finally`",
        ),
    }
    for counts in run.each(result.outputs):
        why = "use try and finally, and no `except` or `return` in them"
        run.true("swallowed" not in counts, "no_sync() swallowed an exception", cause=why)
        for name, (count, cause) in expected.items():
            what = f"the number of collectives in a backward {name}"
            run.equal(counts[name], [count], what, likely={cause: [each - count]})
