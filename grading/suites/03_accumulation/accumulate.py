"""accumulate: every counted token weighs the same, whoever has it in which micro-batch."""

# mypy: enable-error-code="arg-type, misc, operator, union-attr"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, RunFault, check, diagnosis
from course_lib.trace.memory import LiveMemory
from grading.references.accumulation.token_mean import (
    LENGTH,
    ROWS,
    Batches,
    Feed,
    Model,
    Reference,
    optimizer_of,
    padded,
)
from grading.references.data_parallel.wrapper import Replica, alike, gradient_of

EXERCISE = Exercise(
    title="Accumulation in which every token counts the same",
    core=True,
    minutes=25,
    order=2,
    hints=(
        "The denominator is not known until all targets of the update have been seen, on all "
        "ranks. So take the k micro-batches from the iterator first (`itertools.islice`), count "
        "their targets that are not `ignore_index`, and all-reduce that one number.",
        "`F.cross_entropy(..., ignore_index=ignore_index, reduction='sum')` gives 0 where no token "
        "counts; the default mean gives 0/0. Divide each sum by the number of all tokens. What "
        "does the model's own average over the ranks do to that gradient?",
        "Call backward on `loss * group.size`, since the average divides by the group's size. All "
        "micro-batches but the last run inside `model.no_sync()`, forward and backward. Return the "
        "sum of the losses without the factor, as numbers (`loss.item()`).",
    ),
)

VOCABULARY, WIDTH = 7, 4
PARTS = [[0, 2], [1, 3]]  # groups in a job of four ranks
CASES = ((7, 3, "SGD", -100), (4, 2, "AdamW", 0), (2, 5, "SGD", -100))  # batches, k, ..., ignored
SMALL = 64  # bytes that an agreement may have
ROUNDING = 1 << 32  # "terms" of a sum: a factor computed in float32 is no fault (1e-6)

NO_TOKEN = (
    "the mean over a micro-batch without a counted token is 0/0: add up the losses, and divide by "
    "the number of all counted tokens"
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    start: list[torch.Tensor],
    batches: Batches,
    cases: list[Any],
    parts: list[list[int]],
) -> list[dict[str, Any]]:
    """One epoch for each case, on all ranks or on one of the parts."""
    if parts:
        group = group.split(parts, "dp")
    found = []
    for count, k, name, ignored in cases:
        model = Model(start)
        replica, optimizer = Replica(model, group), optimizer_of(model, name)
        replica.train(k > 2)
        since, kept = len(group.ledger.events), padded(batches[:count], ignored)
        feed, losses, taken, gradients = Feed(padded(batches[:count], ignored)), [], [], []
        for _ in range(count + 1):
            optimizer.zero_grad()
            part = learner.accumulate(replica, feed, k, group, ignored)
            if part is None:
                break
            losses.append(float(part))
            taken.append(feed.taken)
            gradients.append([gradient_of(p) for p in model.parameters()])
            optimizer.step()
        events = list(enumerate(group.ledger.events))[since:]
        found.append(
            {
                "losses": losses,
                "taken": taken,
                "gradients": gradients,
                "weights": [p.detach().clone() for p in model.parameters()],
                "modes": sorted({module.training for module in replica.modules()}),
                "kept": all(
                    torch.equal(now, before)
                    for pair in zip(feed.batches, kept, strict=True)
                    for now, before in zip(*pair, strict=True)
                ),
                "synchronised": len(replica.own) // 2,
                "agreed": [event.payload for place, event in events if place not in replica.own],
            }
        )
    return found


def drive_added(
    learner: Any, group: Any, start: list[torch.Tensor], batches: Batches
) -> list[list[torch.Tensor]]:
    """The gradients of an update where there were none before, and where each was 1."""
    found: list[list[torch.Tensor]] = []
    for there in (False, True):
        model = Model(start)
        for parameter in model.parameters() if there else []:
            parameter.grad = torch.ones_like(parameter)
        learner.accumulate(Replica(model, group), Feed(batches), 2, group)
        found.append([gradient_of(p) for p in model.parameters()])
    return found


def drive_memory(
    learner: Any, group: Any, start: list[torch.Tensor], batches: Batches, windows: list[int]
) -> dict[str, Any]:
    """Peak of what is made during an update of k micro-batches, and whether a graph is left."""
    peaks, graph = [], False
    for k in windows:
        model = Model(start)
        with LiveMemory() as memory:
            part = learner.accumulate(Replica(model, group), Feed(batches), k, group)
        graph = graph or (isinstance(part, torch.Tensor) and part.requires_grad)
        peaks.append(memory.peak)
    return {"peaks": peaks, "graph": graph}


# --- what they must bring back -------------------------------------------------------------------
def _inputs(run: Run, world: int, empty: bool) -> tuple[list[torch.Tensor], list[Batches]]:
    """First weights, and each rank's micro-batches with very different numbers of targets."""
    start = [run.random((VOCABULARY, WIDTH)), run.random((WIDTH, WIDTH))]
    most = max(count for count, *_ in CASES)
    batches: list[Batches] = []
    for rank in range(world):
        batches.append([])
        for number in range(most):
            both = run.integers(1, VOCABULARY, (2, ROWS, LENGTH))
            kept = 1 + (3 * rank + 4 * number + 3 * rank * number) % (ROWS * LENGTH)
            both[1].view(-1)[kept * (not empty or (rank // 2 + number) % 2) :] = -100
            batches[-1].append((both[0], both[1]))
    return start, batches


def _epochs(
    run: Run, world: int, empty: bool = False, parts: Sequence[list[int]] = ()
) -> tuple[Any, list[torch.Tensor], list[Batches]]:
    start, batches = _inputs(run, world, empty)
    same = {"start": start, "cases": [list(case) for case in CASES], "parts": list(parts)}
    result = run(drive, [{**same, "batches": batches[r]} for r in range(world)], world=world)
    return result, start, batches


def _check_windows(run: Run, found: dict[str, Any], case: Any, rank: int) -> None:
    """What was taken from the iterator in each update."""
    count, k = case[0], case[1]
    wanted = _ends(count, k)
    likely = {
        "the last update, with fewer than k micro-batches, is missing": wanted[: count // k],
        "one more than k was taken in each update": _ends(count, k + 1),
    }
    if k > 1:
        likely["one micro-batch fewer than k was taken in each update"] = _ends(count, k - 1)
    what = f"the micro-batches taken up to each update ({count} in all, k = {k})"
    run.equal(found["taken"], wanted, what, rank=rank, likely=likely)


def _ends(count: int, k: int) -> list[int]:
    """How many micro-batches have been taken after each update."""
    return [min(end, count) for end in range(k, count + k, k)]


def _compare(run: Run, result: Any, start: Any, batches: list[Batches], group: list[int]) -> None:
    """All cases on the ranks of one group with one process that has their micro-batches."""
    for case_number, case in enumerate(CASES):
        reference = Reference(start, [batches[rank] for rank in group], case, len(batches))
        gradients, _, weights = reference.train(reference.right)
        for index, rank in enumerate(group):
            found = result.outputs[rank][case_number]
            _check_windows(run, found, case, rank)
            wrong = {
                why: reference.train(w)[0]
                for why, w in reference.slips(index).items()
                if not alike(found["gradients"], gradients)
            }
            what = f"{case[0]} micro-batches, k = {case[1]}, group of {len(group)}"
            cause = "they are the caller's, and may be used again: work on new tensors"
            changed = f"tokens or targets of the micro-batches were changed ({what})"
            run.true(found["kept"], changed, rank=rank, cause=cause)
            mode = f"the mode of the model's modules, training or not ({what})"
            likely = {"the caller has chosen it: leave it": found["modes"]}
            run.equal(found["modes"], [case[1] > 2], mode, rank=rank, likely=likely)
            for number, expected in enumerate(gradients):
                got = found["gradients"][number]
                run.true(
                    not any(bool(g.isnan().any()) for g in got),
                    f"gradients are NaN ({what})",
                    rank=rank,
                    cause=NO_TOKEN,
                )
                likely = {why: g[number] for why, g in wrong.items()}
                name = f"gradients before update {number + 1} ({what})"
                run.close(got, expected, name, rank=rank, likely=likely, terms=ROUNDING)
            name = f"weights after the epoch ({what})"
            run.close(found["weights"], weights, name, rank=rank, terms=ROUNDING)


@check("each token weighs the same: 1–3 ranks, windows that do not divide", points=4, code="E")
@diagnosis("sum of the token losses, over the number of all counted tokens on all ranks")
def check_tokens(run: Run) -> None:
    """E: float64, gradients before each update, weights after SGD and AdamW."""
    for world in (2, 3, 1):
        result, start, batches = _epochs(run, world)
        _compare(run, result, start, batches, list(range(world)))
    _check_added(run)


def _check_added(run: Run) -> None:
    """What was in the gradients before stays there: zeroing is the loop's."""
    start, batches = _inputs(run, 2, empty=False)
    result = run(drive_added, [{"start": start, "batches": own} for own in batches], world=2)
    for alone, added in run.each(result.outputs):
        likely = {"accumulate must not zero gradients: the training loop does": alone}
        if not alike([added], [alone]):
            likely = {"what was there before was scaled with this update's gradients": added}
        what = "the gradients, each of which was 1 before the call,"
        run.close(added, [g + 1 for g in alone], what, likely=likely, terms=ROUNDING)


@check("a group of two of four ranks; micro-batches without a counted token", points=2, code="E")
@diagnosis("use the size and the tokens of the group, not of the whole job")
def check_empty(run: Run) -> None:
    """E: a data-parallel group inside a larger job, and padding alone in some micro-batches."""
    result, start, batches = _two_groups(run)
    for group in PARTS:
        _compare(run, result, start, batches, group)


def _two_groups(run: Run) -> tuple[Any, list[torch.Tensor], list[Batches]]:
    """The epochs on two groups of two; says what to look at if a run breaks off only here."""
    try:
        return _epochs(run, 4, empty=True, parts=PARTS)
    except RunFault as broken:
        cause = broken.fault.cause or (
            "some windows have no counted token on one rank: it must still take part in the "
            "agreement, run forward and synchronise like the others"
        )
        raise RunFault(replace(broken.fault, cause=cause), broken.output) from broken


@check("what it returns: this rank's part of the loss", points=1, code="E")
@diagnosis("the losses of this rank's counted tokens, over the number of all")
def check_loss(run: Run) -> None:
    """E: one group of three; then two groups, with micro-batches in which nothing counts."""
    result, start, batches = _epochs(run, 3)
    _compare_losses(run, result, start, batches, [0, 1, 2])
    result, start, batches = _two_groups(run)
    for group in PARTS:
        _compare_losses(run, result, start, batches, group)


def _compare_losses(
    run: Run, result: Any, start: Any, batches: list[Batches], group: list[int]
) -> None:
    """What each rank of a group returned in each update."""
    for case_number, case in enumerate(CASES):
        reference = Reference(start, [batches[rank] for rank in group], case, len(batches))
        _, losses, _ = reference.train(reference.right)
        for index, rank in enumerate(group):
            found = result.outputs[rank][case_number]
            _check_windows(run, found, case, rank)
            for number, each in enumerate(losses):
                got, right, whole = (
                    torch.tensor(value, dtype=torch.float64)
                    for value in (found["losses"][number], each[index], sum(each))
                )
                run.true(
                    not bool(got.isnan()),
                    f"the loss returned in update {number + 1} is NaN",
                    rank=rank,
                    cause=NO_TOKEN,
                )
                likely = {
                    "this is the loss of all ranks, not this rank's part": whole,
                    "times the group's size: that factor is only for the backward": right
                    * len(group),
                }
                what = f"the loss returned in update {number + 1}"
                run.close(got, right, what, rank=rank, terms=ROUNDING, likely=likely)


@check("one synchronisation and one small collective for each update", points=3, code="B")
@diagnosis("all micro-batches but the last inside no_sync(); count the tokens once, before")
def check_calls(run: Run) -> None:
    """B: what the model sends, and what the learner sends."""
    result, _, _ = _epochs(run, 2)
    for output in run.each(result.outputs):
        for case, found in zip(CASES, output, strict=True):
            updates = -(-case[0] // case[1])
            where = f"{case[0]} micro-batches, k = {case[1]}"
            what = f"the number of synchronisations ({where})"
            run.equal(found["synchronised"], updates, what, likely={
                "one for each micro-batch: forward and backward of all but the last belong inside "
                "model.no_sync()": case[0],
                "none: the last micro-batch of a window must be outside no_sync()": 0,
            })  # fmt: skip
            run.true(
                all(size <= SMALL for size in found["agreed"]),
                f"a collective is larger than {SMALL} bytes ({where})",
                measured=f"{max(found['agreed'], default=0)} bytes",
                cause="the model synchronises its gradients itself",
            )
            likely = {
                "the ranks agree on each micro-batch: count the whole window first": case[0],
                "the ranks never agree on the number of tokens": 0,
                "two for each update: one is enough": 2 * updates,
                "the call that found no micro-batch made one, too": updates + 1,
            }
            name = f"the number of small collectives ({where})"
            run.equal(len(found["agreed"]), updates, name, likely=likely)


@check("the peak memory does not grow with k", points=2, code="M")
@diagnosis(
    "run the backward of each micro-batch before the next forward, and keep no loss with its graph"
)
def check_memory(run: Run) -> None:
    """M: what is alive at most, measured, for one and for six micro-batches."""
    start = [run.random((VOCABULARY, WIDTH)), run.random((WIDTH, WIDTH))]
    batches = [tuple(run.integers(0, VOCABULARY, (2, 16, 32))) for _ in range(6)]
    inputs = {"start": start, "batches": batches, "windows": [1, 6]}
    result = run(drive_memory, inputs, world=1)
    one, six = result.outputs[0]["peaks"]
    gradients = sum(value.nbytes for value in start)
    cause = f"with k = 1 it is {one:,}: the graphs of several micro-batches are held at once"
    run.at_most(six, one + 2 * gradients + 4096, "the peak with k = 6 (bytes)", rank=0, cause=cause)
    run.true(
        not result.outputs[0]["graph"],
        "the loss that is returned holds a graph",
        rank=0,
        cause="return a number: loss.item(), or loss.detach()",
    )
