"""hang_lab: each of six repaired functions ends, is right, and sends no more than needed."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.debugging.hang_lab import (
    DAMAGED,
    LOSSES,
    NUMBER,
    ORDERS,
    kept_epochs,
    misgathered,
    mistrained,
    reduced,
    synced,
    trained,
)

EXERCISE = Exercise(
    title="Six hangs to repair",
    core=True,
    minutes=60,
    order=30,
    defines=(
        "keep_best",
        "sync_gradients",
        "sync_tied",
        "gather_predictions",
        "ring_scores",
        "train",
    ),
    hints=(
        "Read the lines of the score card rank by rank. Where one rank has finished and others "
        "wait, it left a call out: what did it decide by, and do all ranks know that? Where all "
        "wait, they are in different calls, or all in the same half of a message.",
        "What decides about a call must be the same on all ranks: reduce the loss, the number of "
        "rows or a flag first, then decide. What orders calls must be the same too: a dict's order "
        "is each rank's own, sorted names are not. Only the members of a group call on it.",
        "keep_best: average the loss in every epoch and compare the average. sync_gradients: "
        "`sorted(...)`. sync_tied: the group `ends`. gather_predictions: gather the counts, pad "
        "to the largest, cut the padding off. ring_scores: `comm.exchange`. train: all-reduce a "
        "flag that says whether the batch is damaged, before anybody leaves the step.",
    ),
)

STAGES = 4
ROWS = ((4, 4, 0), (3, 5, 1))  # of ranks 0, 1, 2 in two last batches; in the first, one has none


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_best(
    learner: Any, group: Any, losses: torch.Tensor, weights: torch.Tensor
) -> dict[str, Any]:
    """Keeps the best epoch's weights."""
    best, kept = learner.keep_best(losses, weights, group)
    return {"best": best, "kept": kept, "given": [losses, weights]}


def drive_gradients(
    learner: Any, group: Any, gradients: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Synchronises gradients on a mesh of 2 × 2 ranks."""
    tp = group.split([[0, 1], [2, 3]], "tp")
    dp = group.split([[0, 2], [1, 3]], "dp")
    learner.sync_gradients(gradients, dp, tp)
    return gradients


def drive_tied(
    learner: Any, group: Any, gradient: torch.Tensor | None
) -> dict[str, torch.Tensor | None]:
    """Synchronises the tied weight of the first and the last stage."""
    last = group.size - 1
    ends = group.split([[0, last], list(range(1, last))], "ends")
    learner.sync_tied(gradient, group.split([list(range(last + 1))], "pp"), ends)
    return {"gradient": gradient}


def drive_predictions(learner: Any, group: Any, mine: torch.Tensor) -> dict[str, Any]:
    """Collects the predictions for one batch."""
    return {"rows": learner.gather_predictions(mine, group)}


def drive_scores(
    learner: Any, group: Any, queries: torch.Tensor, keys: torch.Tensor
) -> dict[str, Any]:
    """Scores against the keys of all ranks."""
    return {"scores": learner.ring_scores(queries, keys, group), "keys": keys}


def drive_train(
    learner: Any, group: Any, weight: torch.Tensor, batches: list[torch.Tensor], rate: float
) -> dict[str, Any]:
    """Trains through damaged batches."""
    trained, left_out = learner.train(weight, batches, rate, group)
    alone = learner.train(weight, batches[1:2], rate, group)  # its only batch is damaged
    return {"weight": trained, "left_out": left_out, "alone": list(alone)}


# --- 1: a condition that differs -----------------------------------------------------------------
@check("keep_best: the ranks agree which epoch is the best", points=2, code="H")
@diagnosis("a rank's own loss decides whether it makes a call that all must make")
@in_part
def check_keep_best(run: Run) -> None:
    """H, E, B: losses that improve on some ranks and not on others."""
    world, width = 3, 6
    losses = torch.tensor(LOSSES, dtype=torch.float64).t()
    losses += 0.05 * run.random(losses.shape).clamp(-1, 1)
    losses[:, -1] = losses[:, 5]  # as good as the best: not better
    weights = run.random((world, len(LOSSES), width))
    inputs = [{"losses": losses[rank], "weights": weights[rank]} for rank in range(world)]
    result = run(drive_best, inputs, world=world)
    mean = losses.mean(0)
    better = kept_epochs(mean.tolist())
    for rank, found in enumerate(run.each(result.outputs)):
        answer, place = found, better[-1]
        own = kept_epochs(losses[rank].tolist())[-1]
        likely: dict[str, Any] = {
            "the best epoch by this rank's own loss": mean[own],
            "the smallest loss of any rank, not of the average": losses.min(),
        }
        run.close(answer["best"], mean[place], "the best averaged loss", likely=likely)
        likely = {
            "these are this rank's own weights: average them": weights[rank, place],
            "the sum over the ranks, not the average": weights[:, place].sum(0),
            "the weights of the last epoch, not of the best": weights[:, -1].mean(0),
        }
        run.close(answer["kept"], weights[:, place].mean(0), "the weights kept", likely=likely)
        run.equal(answer["given"], list(inputs[rank].values()), "what was given")
    small, large = reduced(1, world), reduced(width, world)

    def sent(epochs: int) -> list[int]:
        return [len(LOSSES) * s + epochs * w for s, w in zip(small, large, strict=True)]

    likely = {
        "the weights are averaged in every epoch, not only in better ones": sent(len(LOSSES)),
        "the weights are averaged only once: those of the best epoch so far "
        "must be kept at once": sent(1),
    }
    run.bytes(result, sent(len(better)), what="bytes sent by keep_best", likely=likely)


# --- 2: an order that differs --------------------------------------------------------------------
@check("sync_gradients: the same order on all ranks", points=2, code="H")
@diagnosis(
    "the calls of two ranks of one group are made in another order, so that gradients of "
    "different names are added up"
)
def check_sync_gradients(run: Run) -> None:
    """H, E, B: backward gives gradients in another order on two of four ranks."""
    world, names = 4, sorted(ORDERS[0])
    given = [{name: run.random(8) for name in names} for _ in range(world)]
    orders = [ORDERS[rank in (1, 2)] for rank in range(world)]
    inputs = [
        {"gradients": {name: given[rank][name] for name in orders[rank]}} for rank in range(world)
    ]
    result = run(drive_gradients, inputs, world=world)
    for name in names:
        tensors = [each[name] for each in given]
        for rank, found in enumerate(run.each(result.outputs)):
            likely = {
                "it was not synchronised": tensors[rank],
                "summed over dp, not averaged": 2 * synced(tensors, name, rank),
                "not added up over tp": synced(tensors, "", rank),
            }
            what = f"the gradient of {name!r}"
            run.close(found.get(name), synced(tensors, name, rank), what, likely=likely)
    norms = sum(name.endswith("norm") for name in names)
    run.bytes(result, len(names) * 8 * NUMBER, axis="dp", what="bytes sent over dp")
    run.bytes(result, norms * 8 * NUMBER, axis="tp", what="bytes sent over tp")
    run.bytes(result, (len(names) + norms) * 8 * NUMBER, what="bytes sent in all")


# --- 3: the wrong group --------------------------------------------------------------------------
@check("sync_tied: the two ends alone", points=2, code="H")
@diagnosis(
    "a collective ends when all members of its group have called it: take the group that has just "
    "the ranks that do"
)
def check_sync_tied(run: Run) -> None:
    """H, E, B: four stages."""
    parts = {0: run.random((5, 4)), STAGES - 1: run.random((5, 4))}
    result = run(
        drive_tied, [{"gradient": parts.get(rank)} for rank in range(STAGES)], world=STAGES
    )
    total = parts[0] + parts[STAGES - 1]
    for rank, found in enumerate(run.each(result.outputs)):
        answer = found["gradient"]
        if rank not in parts:
            run.equal(answer, None, "the gradient of a stage between")
            continue
        likely: dict[str, Any] = {
            "this is a rank's own part alone: the other end's must be added": parts[rank],
            "the average; both parts belong to one weight, so they add up": total / 2,
        }
        run.close(answer, total, "the tied gradient", likely=likely)
    size = 20 * NUMBER
    likely = {"stages that have no part of the weight take part, with zeros": reduced(20, STAGES)}
    run.bytes(result, [size, 0, 0, size], what="bytes sent by sync_tied", likely=likely)


# --- 4: shapes that differ -----------------------------------------------------------------------
@check("gather_predictions: uneven rows", points=2, code="H")
@diagnosis(
    "the ranks gave tensors of different sizes: an all-gather takes the same number of rows from "
    "each"
)
@in_part
def check_gather_predictions(run: Run) -> None:
    """H, E, B: a rank without rows, and three that have different numbers."""
    width = 3
    for rows in ROWS:
        parts = [run.random((count, width)) for count in rows]
        inputs = [{"mine": part} for part in parts]
        fault = run.attempt(drive_predictions, inputs, world=len(rows)).fault
        if fault is not None and fault.kind == "mismatch":
            run.fail(fault.message, cause="the ranks gave tensors of different sizes")
        result = run(drive_predictions, inputs, world=len(rows))
        for found in run.each(result.outputs):
            answer = found["rows"]
            for cause, wrong in misgathered(parts).items():
                if isinstance(answer, torch.Tensor) and torch.equal(answer, wrong):
                    run.fail(
                        f"{sum(rows)} rows were to be collected",
                        cause=cause,
                        expected=f"{rows} rows of the ranks",
                        measured=f"{len(answer)} rows",
                    )
            run.close(answer, torch.cat(parts), f"the predictions ({rows} rows)")
        limit = (len(rows) - 1) * NUMBER * (max(rows) * width + 1)
        cause = "a number of each rank, and once as many rows as the longest rank has"
        for sent in run.each(result.timeline.sent()):
            run.at_most(sent, limit, f"what is sent for {rows} rows", cause=cause)


# --- 5: a message that nobody takes --------------------------------------------------------------
@check("ring_scores: blocks go round the ring", points=2, code="H")
@diagnosis("a rank that waits for a message before it sends its own keeps the next one waiting")
@in_part
def check_ring_scores(run: Run) -> None:
    """H, E, B, X: three ranks, blocks of 32 KiB."""
    world, rows, width = 3, 64, 64
    queries = [run.random((rows, width)) for _ in range(world)]
    keys = [run.random((rows, width)) for _ in range(world)]
    inputs = [{"queries": queries[rank], "keys": keys[rank]} for rank in range(world)]
    result = run(drive_scores, inputs, world=world)
    for rank, found in enumerate(run.each(result.outputs)):
        answer, mine = found, queries[rank].t()
        expected = torch.cat([block @ mine for block in keys])
        own = torch.cat([keys[rank] @ mine] * world)
        turned = torch.cat([keys[(2 * rank - i) % world] @ mine for i in range(world)])
        likely: dict[str, Any] = {
            "only this rank's own keys were used": own,
            "the blocks stand in the wrong order: they came the other way round": turned,
        }
        run.close(answer["scores"], expected, "the scores", terms=width, likely=likely)
        run.equal(answer["keys"], keys[rank], "the keys that were given")
    run.messages_alone(result)
    size = rows * width * NUMBER
    likely = {"one step too many: the last block need not go on": world * size}
    run.bytes(result, (world - 1) * size, what="bytes sent by ring_scores", likely=likely)
    run.ring(result, "every block goes to the next rank, and on from there", either=False)


# --- 6: an exception on one rank -----------------------------------------------------------------
@check("train: all leave a damaged step out together", points=2, code="H")
@diagnosis("a rank that leaves its step out makes one call less than the others")
@in_part
def check_train(run: Run) -> None:
    """H, E, B: damaged batches on different ranks, in four of seven steps."""
    world, width, rate = 3, 6, 0.1
    weight = run.random(width)
    batches = [[run.random((4, width + 1)) for _ in DAMAGED] for _ in range(world)]
    given = [[batch.clone() for batch in own] for own in batches]
    for step, bad in enumerate(DAMAGED):
        for rank in bad:
            given[rank][step][rank, 2] = float("nan")
    inputs = [{"weight": weight, "batches": own, "rate": rate} for own in given]
    result = run(drive_train, inputs, world=world)
    out = sum(bool(bad) for bad in DAMAGED)
    right, likely = trained(weight, batches, rate), mistrained(weight, batches, rate)
    for rank, answer in enumerate(run.each(result.outputs)):
        run.close(answer["weight"], right, "the weight", likely=likely)
        own = sum(rank in bad for bad in DAMAGED)
        known = {"only this rank's own damaged batches were counted": own}
        run.equal(answer["left_out"], out, "the number of steps left out", likely=known)
        run.close(answer["alone"], [weight, 1], "what one damaged step gives")
    limit = [
        (len(DAMAGED) + 1) * (a + b)
        for a, b in zip(reduced(1, world), reduced(width, world), strict=True)
    ]
    for rank, sent in enumerate(run.each(result.timeline.sent())):
        cause = "a step needs one number more than the gradient"
        run.at_most(sent, limit[rank], "what is sent in training", cause=cause)
