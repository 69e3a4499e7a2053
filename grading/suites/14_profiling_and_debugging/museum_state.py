"""museum_state: what the ranks must share is shared, what they must not is not."""

from __future__ import annotations

import math
from typing import Any

import torch

from course_lib.comm import all_reduce, barrier
from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.debugging.museum_state import (
    RATE,
    Replicas,
    Shards,
    Update,
    accuracies,
    compare_order,
    examples,
    line_of,
    make_model,
    orders_of,
    slope,
    step_with_dropout,
    written_of,
)
from grading.references.debugging.named_fault import judge_name

EXERCISE = Exercise(
    title="The museum: state that ranks share, or must not",
    core=True,
    minutes=40,
    order=60,
    defines=("FAULT", "sharded_step", "save_state", "load_state", "train_epochs", "evaluate"),
    library=("comm", "data"),
    hints=(
        "Go through the variables of an exhibit and ask of each: must it be the same on all ranks, "
        "or different? Then ask who sees to that. If nothing in the code does, print it on every "
        "rank.",
        "1: which numbers has a rank seen when it decides? 2: two entries with one name are taken "
        "for copies of one thing. 3: who ever changes `sampler.epoch`? 4: add up the lengths of "
        "`mine` over the ranks, and compare with the number of examples.",
        '1: all-reduce the flag with "max" before the `if`. 2: put `group.index` into the name, '
        "and load your own, if there is one. 3: `sampler.set_epoch(epoch)` before the sampler is "
        "iterated. 4: `torch.arange(group.index, len(targets), group.size)` repeats nothing.",
    ),
)

# Lines of the starter that may be named, and the ranks in the example run.
NAMES: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "sharded_step": (
        ("overflow = not bool(gradient.isfinite().all())", "if overflow:"),
        ((0, 1, 3),),
    ),
    "save_state": (
        ('entries["random"] = generator.get_state()', 'generator.set_state(entries["random"])'),
        ((1, 2, 3),),
    ),
    "train_epochs": (
        ("for _ in epochs:", "for batch in torch.tensor(list(sampler)).split(size):"),
        ("all", (0, 1, 2, 3)),
    ),
    "evaluate": (
        ("mine = shard_indices(len(targets), group.index, group.size, epoch)",
         "score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)"),
        ("all", (0, 1, 2, 3)),
    ),
}  # fmt: skip
UPDATES = 6
# By world: in which update a number is not finite, on which ranks, and what it is.
OVERFLOWS: dict[int, dict[int, tuple[tuple[int, ...], float]]] = {
    3: {1: ((1,), math.inf), 3: ((1, 2), math.nan)},
    2: {1: ((0,), -math.inf), 4: ((1,), math.nan)},
}
HALF = 3  # steps before the checkpoint, and after it
ROWS, WIDTH = 10, 24
DIGITS = 6  # of an accuracy


# --- what runs on the ranks ----------------------------------------------------------------------
def table(learner: Any, group: Any) -> dict[str, Any]:
    """What the reader says is at fault."""
    return {"table": learner.FAULT}


def drive_step(
    learner: Any, group: Any, weights: torch.Tensor, gradients: list[torch.Tensor], scale: float
) -> list[dict[str, Any]]:
    """Some updates; the scale that one returns is used in the next."""
    weights, found = weights.clone(), []
    for gradient in gradients:
        scale = learner.sharded_step(weights, gradient.clone(), scale, RATE, group)
        found.append({"weights": weights.clone(), "scale": scale})
    return found


def drive_save(
    learner: Any, group: Any, weight: torch.Tensor, inputs: torch.Tensor, seed: int
) -> dict[str, Any]:
    """Steps before a checkpoint, and what this rank puts into it."""
    model, generator = make_model(weight), torch.Generator().manual_seed(seed + group.index)
    for _ in range(HALF):
        step_with_dropout(model, inputs, generator, group)
    return {"entries": learner.save_state(model, generator, group)}


def drive_load(
    learner: Any, group: Any, weight: torch.Tensor, inputs: torch.Tensor, seed: int, entries: Any
) -> dict[str, Any]:
    """The job again, in new processes that began with other numbers."""
    model, generator = make_model(weight), torch.Generator().manual_seed(seed + group.index)
    learner.load_state(entries, model, generator, group)
    loaded = model.weight.detach().clone()
    masks = [step_with_dropout(model, inputs, generator, group) for _ in range(HALF)]
    return {"loaded": loaded, "masks": torch.stack(masks), "weight": model.weight.detach()}


def drive_epochs(
    learner: Any,
    group: Any,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    size: int,
    spans: list[tuple[int, int]],
) -> list[dict[str, Any]]:
    """Trains spans of epochs, each from the same start."""
    found = []
    for first, end in spans:
        weight, batches, kinds = torch.zeros(inputs.shape[1], dtype=torch.float64), [], set()

        def step(batch: torch.Tensor) -> None:
            kinds.add(str(getattr(batch, "dtype", type(batch).__name__)))  # noqa: B023
            batches.append(torch.as_tensor(batch).tolist())  # noqa: B023
            gradient = slope(weight, inputs[batch], targets[batch])  # noqa: B023
            all_reduce(gradient, group, "avg")
            weight.sub_(RATE * gradient)  # noqa: B023

        learner.train_epochs(step, len(targets), size, range(first, end), group)
        found.append({"batches": batches, "weight": weight, "kinds": kinds})
    return found


def drive_evaluate(
    learner: Any, group: Any, weight: torch.Tensor, cases: list[tuple[Any, Any, int]]
) -> list[dict[str, Any]]:
    """Accuracies; the model's forward has a collective in it, as with sharded weights."""
    found = []
    for inputs, targets, epoch in cases:
        rows: list[int] = []

        def model(x: torch.Tensor) -> torch.Tensor:
            rows.append(len(x))  # noqa: B023
            barrier(group)
            return x @ weight

        score = learner.evaluate(model, inputs, targets, epoch, group)
        found.append({"score": score, "rows": rows})
    return found


def _check_name(run: Run, exhibit: str) -> None:
    judge_name(run, run(table).outputs[0]["table"], exhibit, *NAMES[exhibit])


# --- 1 -------------------------------------------------------------------------------------------
@check("1 repaired: a step of a sharded optimizer", points=2, code="H")
@diagnosis("print what each rank decides, update by update")
@in_part
def check_step(run: Run) -> None:
    """H, E: six updates on 3 and on 2 ranks, two of them with an overflow on one rank."""
    for world, overflows in OVERFLOWS.items():
        part, scale = run.number(3, 7), 2.0 ** run.number(9, 15) if world == 3 else 1.0
        weights = run.random(part * world)
        gradients = [[run.random(part) * scale for _ in range(UPDATES)] for _ in range(world)]
        for update, (ranks, value) in overflows.items():
            for rank in ranks:
                gradients[rank][update][-1] = value
        gradients[0][-1][0] = 1e200  # finite, though its square is not
        inputs = [{"weights": weights, "scale": scale, "gradients": own} for own in gradients]
        result = run(drive_step, inputs, world=world)
        case = Shards(weights, gradients, scale)
        plays = [case.play(how) for how in ("", "alone", "replaced")]
        for update in range(UPDATES):
            for rank, found in enumerate(result.column(update)):
                _check_update(run, [play[update] for play in plays], update, rank, found)


def _check_update(run: Run, plays: list[Update], update: int, rank: int, found: Any) -> None:
    """Scale and weights of one rank after one update."""
    right, alone, replaced = plays
    after = f"after update {update}"
    likely: dict[str, Any] = {
        "each rank halves its own scale: it has not heard of the others": alone.scales[rank]
    }
    run.close(found["scale"], right.scales[rank], f"the scale {after}", rank=rank, likely=likely)
    run.true(
        bool(found["weights"].isfinite().all()),
        f"the weights {after} are not finite",
        rank=rank,
        measured=f"{found['weights'].tolist()}"[:80],
        cause="an overflow on another rank, or a NaN, went unnoticed",
    )
    likely = {
        "only the part that overflowed has stayed: half a step was made": alone.weights,
        "the numbers that are not finite were replaced, and the step made": replaced.weights,
    }
    run.close(found["weights"], right.weights, f"the weights {after}", rank=rank, likely=likely)


@check("1 named: the fault's line and ranks", points=1, code="E")
@diagnosis("who decides, and what has it seen?")
def check_step_name(run: Run) -> None:
    """The line that decides, and the ranks that decide wrongly."""
    _check_name(run, "sharded_step")


# --- 2 -------------------------------------------------------------------------------------------
@check("2 repaired: dropout after a resume", points=2, code="E")
@diagnosis("print what each rank draws after the resume, and would have drawn")
@in_part
def check_state(run: Run) -> None:
    """E: 3 steps and a checkpoint of 3 ranks, then 3 steps: of 4 ranks, and of 2."""
    weight, seed = run.random((2, WIDTH)), run.number(10, 10_000)
    inputs = [run.random((ROWS, WIDTH)) for _ in range(4)]
    given = [{"weight": weight, "seed": seed, "inputs": own} for own in inputs]
    saved = run(drive_save, given[:3], world=3)
    entries = written_of(run, saved.column("entries"), weight)
    case, other = Replicas(weight, inputs, seed, HALF), run.random((2, WIDTH))
    given = [
        {**each, "weight": other, "seed": seed + case.LATER, "entries": entries} for each in given
    ]
    for world in (4, 2):
        result = run(drive_load, given[:world], world=world)
        masks, loaded, weight = case.resumed(world)
        for rank, found in enumerate(result.outputs):
            run.close(found["loaded"], loaded, "the weights that were loaded", rank=rank)
            _check_masks(run, case, rank, result.column("masks"), masks[rank])
        for found in run.each(result.outputs):
            run.close(found["weight"], weight, f"the weights {HALF} steps later", terms=ROWS)


def _check_masks(
    run: Run, case: Replicas, rank: int, masks: list[torch.Tensor], right: torch.Tensor
) -> None:
    """Like two coins, and those that this rank would have drawn."""
    agree = float((masks[rank] == masks[0]).double().mean())
    run.true(
        rank == 0 or agree < 0.75,
        f"ranks 0 and {rank} have the same dropout masks after the resume",
        rank=rank,
        measured=f"they agree in {agree:.0%}",
        expected="they agree in about 50 % of their places, as before",
    )
    what = "the dropout of this rank after the resume"
    run.equal(masks[rank].tolist(), right.tolist(), what, rank=rank, likely=case.slips(rank))


@check("2 named: the fault's line and ranks", points=1, code="E")
@diagnosis("whose state does each rank get back?")
def check_state_name(run: Run) -> None:
    """One of two lines, and the ranks that get another rank's state."""
    _check_name(run, "save_state")


# --- 3 -------------------------------------------------------------------------------------------
@check("3 repaired: the order of the examples", points=2, code="E")
@diagnosis("print the first batch of each epoch")
@in_part
def check_epochs(run: Run) -> None:
    """E: three epochs, and those of a resumed job, on 3 ranks."""
    world, size, spans = 3, 4, [(0, 3), (2, 5)]
    count = 3 * (size * run.number(1, 3) + 1) + 1  # so each epoch's last batch is smaller
    inputs, targets = run.random((count, 5)), run.random(count)
    given = {"inputs": inputs, "targets": targets, "size": size, "spans": spans}
    result = run(drive_epochs, given, world=world)
    for place, epochs in enumerate(range(*span) for span in spans):
        found = result.column(place)
        orders = [
            orders_of(run, rank, found[rank]["batches"], size, -(-count // world), epochs)
            for rank in range(world)
        ]
        for number in range(len(epochs)):
            compare_order(run, [own[number] for own in orders], epochs, number, count)
        for own in run.each(found):
            run.equal(own["kinds"], {"torch.int64"}, "the types of the batches")
        right = line_of(inputs, targets, size, epochs, world)
        for rank in range(world):
            run.close(found[rank]["weight"], right, "the weights at the end", rank=rank, terms=size)


@check("3 named: the fault's line and ranks", points=1, code="E")
@diagnosis("what does the order depend on?")
def check_epochs_name(run: Run) -> None:
    """Either loop."""
    _check_name(run, "train_epochs")


# --- 4 -------------------------------------------------------------------------------------------
@check("4 repaired: the accuracy on a validation set", points=2, code="E")
@diagnosis("count how often each example is counted")
@in_part
def check_evaluate(run: Run) -> None:
    """E, H: three sizes, two epochs, 3 ranks; one size is smaller than 3."""
    weight, sizes, world = run.random((6, 5)), (3 * run.number(7, 12) + 2, 2, 24), 3
    sets = [examples(run.random((n, 6)), weight, run.random(n) > 0) for n in sizes]
    cases = [(*each, epoch) for each in sets for epoch in (3, 4)]
    result = run(drive_evaluate, {"weight": weight, "cases": cases}, world=world)
    for place, (inputs, targets, epoch) in enumerate(cases):
        right = (inputs @ weight).argmax(1) == targets
        for rank, found in enumerate(result.column(place)):
            _check_score(run, right, epoch, world, rank, found)


def _check_score(
    run: Run, right: torch.Tensor, epoch: int, world: int, rank: int, found: Any
) -> None:
    """The accuracy, and the work that was done for it."""
    what = f"{len(right)} examples, {int(right.sum())} of them right, {world} ranks, epoch {epoch}"
    run.equal(len(found["rows"]), 1, f"{what}: the number of the model's calls", rank=rank)
    score = found["score"]
    run.true(
        isinstance(score, float),
        f"{what}: the accuracy is no float",
        rank=rank,
        measured=repr(score)[:80],
    )
    # Rounded: the mean of a float32 tensor is an honest answer.
    likely = {
        why: round(value, DIGITS) for why, value in accuracies(right, epoch, world, rank).items()
    }
    run.close(
        round(score, DIGITS),
        round(float(right.double().mean()), DIGITS),
        f"{what}: the accuracy",
        rank=rank,
        likely=likely,
    )
    cause = "every rank evaluates everything: share the work"
    name = f"{what}: the rows given to the model"
    run.at_most(found["rows"][0], -(-len(right) // world), name, rank=rank, cause=cause)


@check("4 named: the fault's line and ranks", points=1, code="E")
@diagnosis("how often is each example counted?")
def check_evaluate_name(run: Run) -> None:
    """Where the examples are dealt out, or where they are counted."""
    _check_name(run, "evaluate")
