"""museum_loss: four public faults of losses, norms and steps, named and repaired."""

# mypy: enable-error-code="arg-type, misc, operator, union-attr"
from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_lib.comm import Mesh
from course_lib.grade.suite import Exercise, Run, check, in_part
from grading.references.accumulation.clipped_updates import total_norm
from grading.references.accumulation.token_mean import Model
from grading.references.accumulation.weighted_gradient import (
    Batch,
    Gradient,
    mesh_slips,
    norm_slips,
    parts_of,
    replica_slips,
    window_slips,
)
from grading.references.data_parallel.wrapper import Replica, gradient_of
from grading.references.debugging.named_fault import judge_name

EXERCISE = Exercise(
    title="The museum: losses, norms and steps",
    core=True,
    minutes=45,
    order=40,
    defines=("FAULT", "finetune_update", "context_update", "clip_stages", "replica_update"),
    hints=(
        "Write down, for the run in the docstring, the number by which one token's loss is "
        "multiplied before it reaches the optimizer: on each rank, in each micro-batch. In "
        "exhibits 1 and 2 it must be the same number where the docstring says `mean`. In 3, ask "
        "of each number who knows it. In 4, ask when the replica decides "
        "(course_lib/parallel/data/ddp.py).",
        "1: a mean of means is a mean only if all have equally many terms. 2: so is this one; over "
        "which ranks must the terms be counted, and over which are gradients divided? 3: which "
        "part of the sum of squares has this rank seen? 4: what happens under `no_sync()`, and "
        "what happened before?",
        "1: add up the losses, count the tokens of the window, all-reduce the count over `group`, "
        "and undo the replica's division by `group.size`. 2: all-reduce the count over "
        '`mesh["cp"]`, then multiply by its size. 3: all-reduce the sum of squares, on every rank, '
        "before the root. 4: the forward belongs under `no_sync()` as well.",
    ),
)

NAMES = {  # lines that name the fault, and the ranks with a wrong gradient in the told run
    "finetune_update": (
        ("loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())",
         "(loss / len(window)).backward()"),
        ("all", (0, 1)),
    ),
    "context_update": (
        ("loss = losses / counted", "counted = (targets != IGNORED).sum()"),
        ("all", (0, 1, 2, 3)),
    ),
    "clip_stages": (("norm = square.sqrt()", "square += gradient.square().sum()"), ((1, 2),)),
    "replica_update": (
        ("with nullcontext() if last else model.no_sync():", "logits = model(tokens)"),
        ("none", ()),
    ),
}  # fmt: skip
VOCABULARY, WIDTH, LENGTH = 7, 4, 12
SMALL = 64  # bytes


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_names(learner: Any, group: Any) -> Any:
    """What the reader says about the faults."""
    return learner.FAULT


def drive_finetune(
    learner: Any, group: Any, start: Gradient, windows: list[list[Batch]]
) -> list[Gradient]:
    """Gradients after each update, with the first weights."""
    found = []
    for window in windows:
        model = Model(start)
        learner.finetune_update(Replica(model, group), window, group)
        found.append([gradient_of(p) for p in model.parameters()])
    return found


def drive_context(
    learner: Any, group: Any, start: Gradient, sizes: dict[str, int], pieces: list[Batch]
) -> list[Gradient]:
    """The same on a mesh. The model looks at one token at a time, so no piece needs another."""
    mesh, found = Mesh(group, sizes), []
    for tokens, targets in pieces:
        model = Model(start)
        learner.context_update(model, tokens, targets, mesh)
        found.append([gradient_of(p) for p in model.parameters()])
    return found


def drive_clip(
    learner: Any, group: Any, gradients: list[Gradient], limits: list[float]
) -> list[dict[str, Any]]:
    """Clips the same stages to each limit; each stage has a frozen parameter too."""
    found = []
    for limit in limits:
        stages = [
            nn.ParameterList(nn.Parameter(torch.zeros_like(g)) for g in each) for each in gradients
        ]
        for stage, each in zip(stages, gradients, strict=True):
            for parameter, gradient in zip(stage, each, strict=True):
                parameter.grad = gradient.clone()
            stage.append(nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False))
        given = [parameter.grad for stage in stages for parameter in stage]
        since = len(group.ledger.events)
        norm = learner.clip_stages(stages, limit, group)
        sent = [event.payload for event in group.ledger.events[since:]]
        after = [gradient_of(p) for stage in stages for p in list(stage)[:-1]]
        now = [parameter.grad for stage in stages for parameter in stage]
        same = all(new is old for new, old in zip(now, given, strict=True))
        found.append(
            {"norm": norm, "gradients": after, "largest": max(sent, default=0), "same": same}
        )
    return found


def drive_replica(
    learner: Any, group: Any, start: Gradient, windows: list[list[Batch]]
) -> list[dict[str, Any]]:
    """Updates one after the other with one replica, whose old gradients stay between them."""
    model = Model(start)
    replica, found = Replica(model, group), []
    for window in windows:
        since = len(replica.own)
        total = learner.replica_update(replica, window)
        found.append(
            {
                "gradients": [gradient_of(p) for p in model.parameters()],
                "synchronised": (len(replica.own) - since) / len(list(model.parameters())),
                "total": total,
            }
        )
    return found


# --- what they must bring back -------------------------------------------------------------------
def _start(run: Run) -> Gradient:
    return [run.random((VOCABULARY, WIDTH)), run.random((WIDTH, WIDTH))]


def _batch(run: Run, counted: int, rows: int = 1) -> Batch:
    """Random tokens; only the first targets count."""
    both = run.integers(0, VOCABULARY, (2, rows, LENGTH))
    both[1].view(-1)[counted:] = -100
    return both[0], both[1]


def _compare(
    run: Run, got: Gradient, right: Gradient, what: str, rank: int, likely: dict[str, Gradient]
) -> None:
    """One rank's gradient with one process's; says how far it is away."""
    flat, wanted = (torch.cat([g.flatten() for g in each]) for each in (got, right))
    away = float((flat - wanted).norm() / wanted.norm())
    name = f"the gradient ({what}; {away:.0%} away from one process's)"
    run.close(got, right, name, rank=rank, likely=likely, terms=1 << 20)


def _named(run: Run, exhibit: str) -> None:
    """Whether the reader's line and ranks are an exhibit's."""
    judge_name(run, run(drive_names).outputs[0], exhibit, *NAMES[exhibit])


# --- 1 -------------------------------------------------------------------------------------------
UNEVEN, EMPTY = ([1, 8], [5, 3], [10, 2]), ([0, 9, 3], [0, 0, 0], [11, 0, 1])
TOKENS = (UNEVEN, ([4, 4, 4],) * 3, EMPTY, ([2], [7], [0]), ([0], [1], [0]))  # of three ranks


@check("1 repaired: the gradient of one large batch", points=2, code="E")
@in_part
def check_finetune(run: Run) -> None:
    """E: 3 ranks; equal and unequal texts, micro-batches and ranks without a counted token."""
    start, world = _start(run), 3
    plans = [[[_batch(run, n) for n in row] for row in plan] for plan in TOKENS]
    inputs = [{"start": start, "windows": [plan[r] for plan in plans]} for r in range(world)]
    result = run(drive_finetune, inputs, world=world)
    for number, batches in enumerate(plans):
        parts = parts_of(start, batches)
        what = "counted tokens " + " | ".join("+".join(map(str, row)) for row in parts.tokens)
        right = parts.combined(parts.by_token)
        likely = window_slips(parts, LENGTH)
        for rank, output in enumerate(result.outputs):
            _compare(run, output[number], right, what, rank, likely)


@check("1 named: the fault's line and ranks", points=1, code="E")
def check_finetune_name(run: Run) -> None:
    """The line, and who holds a wrong gradient."""
    _named(run, "finetune_update")


# --- 2 -------------------------------------------------------------------------------------------
MESHES = (  # dp, cp, counted tokens of each replica's pieces
    (2, 2, ([[1, 7], [9, 2]], [[3, 0], [0, 2]], [[5, 5], [3, 3]])),
    (1, 3, ([[0, 6, 2]], [[4, 4, 4]])),
)


@check("2 repaired: the same gradient on every mesh", points=2, code="E")
def check_context(run: Run) -> None:
    """E: dp 2 × cp 2 and dp 1 × cp 3; one token, equal masks, unequal ones."""
    start = _start(run)
    for dp, cp, plans in MESHES:
        batches = [[[_batch(run, n, 2) for n in row] for row in plan] for plan in plans]
        inputs = [
            {
                "start": start,
                "sizes": {"dp": dp, "cp": cp},
                "pieces": [plan[rank // cp][rank % cp] for plan in batches],
            }
            for rank in range(dp * cp)
        ]
        result = run(drive_context, inputs, world=dp * cp)
        for number, plan in enumerate(batches):
            parts = parts_of(start, plan)
            what = f"dp {dp} × cp {cp}, counted tokens " + " | ".join(
                "+".join(map(str, row)) for row in parts.tokens
            )
            right = parts.combined(parts.by_replica)
            for rank, output in enumerate(result.outputs):
                _compare(run, output[number], right, what, rank, mesh_slips(parts))


@check("2 named: the fault's line and ranks", points=1, code="E")
def check_context_name(run: Run) -> None:
    """The line, and who holds a wrong gradient."""
    _named(run, "context_update")


# --- 3 -------------------------------------------------------------------------------------------
STAGES = ((0.64, 0.48), (), (0.9,))  # norms of each rank's stages; rank 1 is frozen
LIMITS = (1.0, 0.125, 100.0)


@check("3 repaired: one norm for the whole model", points=2, code="E")
@in_part
def check_clip(run: Run) -> None:
    """E: 3 ranks, a frozen one, two stages on another; limits that clip, one that does not."""
    stages = [[_long(run, norm) for norm in each] for each in STAGES]
    inputs = [{"gradients": each, "limits": list(LIMITS)} for each in stages]
    result = run(drive_clip, inputs, world=len(STAGES))
    for number, limit in enumerate(LIMITS):
        _compare_clip(run, [output[number] for output in result.outputs], stages, limit)
    for output in run.each(result.outputs):
        cause = "a number says all that the others need to know of this rank's gradients"
        what = "bytes given to one collective"
        run.at_most(max(each["largest"] for each in output), SMALL, what, cause=cause)


def _long(run: Run, norm: float) -> Gradient:
    """A stage's gradients, which have this norm together."""
    each = [run.random((3, 4)), run.random(5)]
    return [gradient * norm / total_norm(each) for gradient in each]


def _compare_clip(
    run: Run, found: list[dict[str, Any]], stages: list[list[Gradient]], limit: float
) -> None:
    """The norm on every rank, then the gradients."""
    flat = [[g for stage in each for g in stage] for each in stages]
    own = torch.stack([total_norm(g) if g else torch.zeros(()).double() for g in flat])
    norm = own.square().sum().sqrt()
    shown = ", ".join(f"{value:.3g}" for value in own.tolist())
    what = f"ranks' own norms {shown}; max_norm {limit:g}"
    for rank, got in enumerate(found):
        name = f"the norm returned ({what})"
        run.close(got["norm"], norm, name, rank=rank, terms=99, likely=norm_slips(own, rank, limit))
        factor = min(1.0, limit / (float(norm) + 1e-6))
        mine = min(1.0, limit / (float(own[rank]) + 1e-6))
        run.close(
            got["gradients"],
            [g * factor for g in flat[rank]],
            f"the gradients ({what})",
            rank=rank,
            terms=99,
            likely={
                "the norm returned is right, but this rank's own norm was used to clip": [
                    g * mine for g in flat[rank]
                ],
                "made longer: the factor is at most 1": [
                    g * limit / (float(norm) + 1e-6) for g in flat[rank]
                ],
            },
        )
        run.true(
            got["same"],
            f"a parameter has another gradient than before ({what})",
            rank=rank,
            cause="multiply the gradient itself, in place: it may be a view of a bucket",
        )


@check("3 named: the fault's line and ranks", points=1, code="E")
def check_clip_name(run: Run) -> None:
    """The line, and who holds a wrong gradient."""
    _named(run, "clip_stages")


# --- 4 -------------------------------------------------------------------------------------------
WINDOWS = (3, 1, 2)  # micro-batches of the updates


@check("4 repaired: the right gradient, synchronised once", points=2, code="B")
def check_replica(run: Run) -> None:
    """E and B: 2 ranks, windows of three lengths one after the other."""
    start, world = _start(run), 2
    plans = [[[_batch(run, LENGTH) for _ in range(k)] for _ in range(world)] for k in WINDOWS]
    inputs = [{"start": start, "windows": [plan[r] for plan in plans]} for r in range(world)]
    result = run(drive_replica, inputs, world=world)
    for number, (k, batches) in enumerate(zip(WINDOWS, plans, strict=True)):
        parts = parts_of(start, batches)
        what = f"update {number + 1}, a window of {k}"
        for rank, output in enumerate(result.outputs):
            _compare(
                run,
                output[number]["gradients"],
                parts.combined(parts.by_token),
                what,
                rank,
                replica_slips(parts, rank),
            )
            run.close(
                output[number]["total"],
                sum(parts.losses[rank]) / (k * LENGTH),
                f"the loss returned ({what})",
                rank=rank,
            )
    for k, *found in zip(WINDOWS, *result.outputs, strict=True):
        for rank, got in enumerate(found):
            name = f"synchronisations of all gradients in an update of {k} micro-batches"
            run.equal(got["synchronised"], 1.0, name, rank=rank)


@check("4 named: the fault's line and ranks", points=1, code="E")
def check_replica_name(run: Run) -> None:
    """The line, and who holds a wrong gradient."""
    _named(run, "replica_update")
