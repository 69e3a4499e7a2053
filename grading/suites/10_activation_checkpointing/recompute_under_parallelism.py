"""recompute_under_parallelism: one count for all ranks, and sums that are sent once."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint as recompute_all

from course_lib.comm import reduce_from_group
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.data_parallel.training import explained, only_bf16
from grading.references.recompute import block_runs
from grading.references.tensor_parallel import block_stack
from grading.references.tensor_parallel.cut_layers import one_all_reduce, stretches

EXERCISE = Exercise(
    title="Recomputing blocks that communicate",
    core=False,
    minutes=35,
    order=4,
    defines=("agreed_count", "recomputed"),
    library=("comm", "recompute.Recompute"),
    hints=(
        "Each rank knows how many blocks it needs to recompute. How do all ranks get from these "
        "numbers to one that is enough for each? A rank for which nothing is enough can also say "
        "so with a number. And where does the second run find what the first has received?",
        "The need is a number from 0 to n, or n + 1 if nothing is enough. After one all-reduce "
        'with "max", all ranks have the same number. `recomputed`: a new queue for each call; '
        "the function that `checkpoint` runs must know whether it runs for the first time.",
        "`runs = iter((True, False))` and `first = next(runs)` inside the function that "
        "`checkpoint` calls. `Sum.forward`: if not first, `return sums.popleft()`; else clone, "
        "all_reduce, `sums.append(total.detach())`, return. Its backward: `grads[0], None, None, "
        "None`.",
    ),
)

WORLD = 3
COUNTS = (1, 4, 2)  # blocks that each rank recomputes if it decides by itself
BUDGETS = (130, 80, 100)  # of the ranks, whose needs are 1, 3 and 2 blocks of the stack
COUNT = 32768  # numbers of an input of the stack that is measured, in bf16
ASK = "Every rank takes part in the all-reduce, even one that already knows that nothing is enough."
ALIKE = (
    "Ranks that recompute different blocks repeat different all-reduces: all need the same count."
)
AGAIN = (
    "The second run repeats the all-reduce, although not all ranks recompute: it must take kept "
    "sums."
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_counts(learner: Any, group: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The count for each case, and what is sent for it."""
    events, counts, marks = group.ledger.events, [], [len(group.ledger.events)]
    for case in cases:
        try:
            counts.append(learner.agreed_count(group=group, **case))
        except MemoryError:
            counts.append("MemoryError")
        marks.append(len(events))
    return {"counts": counts, "marks": marks}


def drive_stack(
    learner: Any,
    group: Any,
    weights: list[block_stack.Values],
    x: torch.Tensor,
    slope: torch.Tensor,
    plan: dict[str, Any] | None,
    count: int,
) -> dict[str, Any]:
    """Forward and backward of the stack, whose first blocks are recomputed.

    Args:
        learner: the learner's module.
        group: the ranks.
        weights: this rank's slices, of each block.
        x: the input, [tokens, width].
        slope: the output's gradient.
        plan: arguments of `agreed_count`, for blocks recomputed with their sums; None for
            `recomputed`.
        count: then this many are recomputed.
    """
    count = count if plan is None else learner.agreed_count(group=group, **plan)
    runs: block_runs.Runs = []
    blocks = [block_stack.Block(each, group, runs) for each in weights]
    leaf = x.clone().requires_grad_()
    y, marks = leaf, [len(group.ledger.events)]
    add = partial(reduce_from_group, group=group)
    for place, number in enumerate(block_stack.ORDER):
        block = blocks[number]
        if place >= count:
            y = block(y, add)
        elif plan is None:
            y = block_runs.tensor_of(learner.recomputed(block, y, group))
        else:
            y = recompute_all(block, y, add, use_reentrant=False)
    marks.append(len(group.ledger.events))
    y.backward(slope)
    marks.append(len(group.ledger.events))
    found = {"y": y.detach().clone(), "x": leaf.grad, **block_stack.grads_of(blocks)}
    return {"found": found, "marks": marks, "runs": runs}


def drive_all(learner: Any, group: Any, large: torch.Tensor, **stack: Any) -> dict[str, Any]:
    """The stack with kept sums; then what another one holds, of blocks with two sums of `large`."""
    found = drive_stack(learner, group, **stack)
    return found | {"memory": _memory(learner, group, large)}


def _memory(learner: Any, group: Any, x: torch.Tensor) -> dict[str, int]:
    gain = torch.full((), 1.1, dtype=x.dtype, requires_grad=True)

    def block(x: torch.Tensor, add: block_stack.Add) -> torch.Tensor:
        return block_runs.waves(x, lambda y: add(y * gain))

    return block_runs.live_bytes(lambda x: learner.recomputed(block, x, group), x)


# --- what they must bring back -------------------------------------------------------------------
def _plans(run: Run) -> list[list[dict[str, Any]]]:
    """For each case the arguments on all ranks."""
    cases = []
    for n in (1, 4, 7, 5, 8, 3):
        kept = run.number(5, 20)
        plans = []
        for _ in range(WORLD):
            whole = (kept + run.integers(0, 60, n)).tolist()
            low, high = n * kept, sum(whole)
            plans.append(
                {"kept": kept, "whole": whole, "budget": run.number(low, high + high // 3)}
            )
        cases.append(plans)
    exact = {"kept": 10, "whole": [30, 50, 20, 20, 50, 30]}, (140, 80, 200)
    front = {"kept": 10, "whole": [60, 10, 10]}, (40, 100, 90)
    free = {"kept": 10, "whole": [30, 50, 40]}, (120, 121, 122)
    every = {"kept": 10, "whole": [30, 50, 40]}, (30, 500, 60)
    known = [
        [plan | {"budget": budget} for budget in budgets]
        for plan, budgets in (exact, front, free, every)
    ]
    return known + cases


def _need(plan: dict[str, Any]) -> int:
    """The least count with which one rank is content."""
    kept, whole = plan["kept"], plan["whole"]
    sizes = (sum([kept] * k) + sum(whole[k:]) for k in range(len(whole) + 1))
    return next((k for k, size in enumerate(sizes) if size <= plan["budget"]), len(whole))


def _counted(run: Run) -> tuple[Any, list[list[dict[str, Any]]]]:
    cases = _plans(run)
    inputs = [{"cases": [plans[rank] for plans in cases]} for rank in range(WORLD)]
    return explained(run, drive_counts, inputs, WORLD, ASK), cases


def _stack(run: Run, given: block_stack.Given, way: str) -> Any:
    """A run of the stack.

    Args:
        run: of the check.
        given: to the ranks, which get their slices.
        way: `agreed` counts, with which sums are sent again; or with kept sums `all` blocks, or
            each rank its `own`.
    """
    whole, x, slope = given
    counts = COUNTS if way == "own" else (len(block_stack.ORDER),) * WORLD
    plan = {"kept": 10, "whole": [40] * len(block_stack.ORDER)}
    inputs = [
        {
            "weights": [block_stack.cut(each, rank) for each in whole],
            "x": x,
            "slope": slope,
            "plan": plan | {"budget": BUDGETS[rank]} if way == "agreed" else None,
            "count": counts[rank],
        }
        for rank in range(WORLD)
    ]
    if way == "all":
        large = {"large": run.random(COUNT, torch.bfloat16)}
        return explained(run, drive_all, [each | large for each in inputs], WORLD, AGAIN)
    return explained(run, drive_stack, inputs, WORLD, ALIKE if way == "agreed" else AGAIN)


@check("one count for all ranks, the smallest that is enough for each", points=3, code="E")
@diagnosis(
    "the first k blocks hold k·kept, the others whole[k] + ... + whole[n-1]; the largest need of "
    "all ranks is the count"
)
def check_counts(run: Run) -> None:
    """E: hidden budgets and sizes; a budget that is just enough; nothing and all to recompute."""
    result, cases = _counted(run)
    for number, plans in enumerate(cases):
        needs = [_need(plan) for plan in plans]
        ends = [_need(plan | {"whole": plan["whole"][::-1]}) for plan in plans]
        tight = [_need(plan | {"budget": plan["budget"] - 1}) for plan in plans]
        free = [_need(plan | {"kept": 0}) for plan in plans]
        counts = [output["counts"][number] for output in result.outputs]
        wrong = {
            "this is the rank's own need: all ranks must have the same count": needs,
            "this is the least need of the ranks: one of them has too little": [min(needs)] * WORLD,
            "this is the need of rank 0: it must be enough for each": needs[:1] * WORLD,
            "this is the sum of the needs: the largest is enough for all": [sum(needs)] * WORLD,
            "the first blocks are recomputed, not the last": [max(ends)] * WORLD,
            "a budget that is just enough is enough": [max(tight)] * WORLD,
            "a recomputed block holds something, too: `kept`": [max(free)] * WORLD,
        }
        held = "; ".join(f"{plan['whole']} within {plan['budget']}" for plan in plans)
        what = f"the count on ranks that hold {held} (kept: {plans[0]['kept']})"
        run.equal(counts, [max(needs)] * WORLD, what, likely=wrong)


@check("it costs one all-reduce of 8 bytes", points=2, code="B")
@diagnosis("a rank's need is one number, and so is the largest of them")
def check_question(run: Run) -> None:
    """B: what is sent for each count, from the ledger."""
    result, cases = _counted(run)
    for rank, found in enumerate(run.each(result.outputs)):
        once = one_all_reduce(1, WORLD, rank)
        for sent in stretches(result, rank, found["marks"]):
            likely = {
                "no rank asks the others": [],
                "one all-reduce is enough": once * 2,
                "one number is enough": one_all_reduce(WORLD, WORLD, rank),
            }
            run.equal(sent, once, "what agreed_count sends", likely=likely)


@check("too little memory on one rank: all ranks say so", points=2, code="H")
@diagnosis("say it with a number in the all-reduce, and raise after it")
def check_refusal(run: Run) -> None:
    """H: what is not enough for rank 1, although it would be for the others."""
    plan: dict[str, Any] = {"kept": run.number(5, 20), "whole": run.integers(40, 60, 4).tolist()}
    budgets = (1000, 4 * plan["kept"] - 1)
    inputs = [{"cases": [plan | {"budget": budget}]} for budget in budgets]
    result = explained(run, drive_counts, inputs, 2, ASK)
    for output in run.each(result.outputs):
        run.equal(
            output["counts"],
            ["MemoryError"],
            what="the answer where rank 1 has too little memory for 4 recomputed blocks",
            likely={
                "the rank goes on, but rank 1 cannot: all raise": [5],
                "recomputing all of them is not enough for rank 1": [4],
            },
        )


@check(
    "the agreed count: blocks recomputed with their sums, gradients as in one process",
    points=3,
    code="H",
)
@diagnosis("all ranks must recompute the same blocks: look at the first check")
def check_agreed(run: Run) -> None:
    """H: torch's checkpoint, for as many blocks as agreed_count says to ranks that differ."""
    given = block_stack.given_of(run)
    _check_values(run, given, _stack(run, given, "agreed"))


@check("kept sums: nothing is sent again", points=3, code="B")
@diagnosis("backward sends f's sums of gradients; what forward has received is kept")
def check_sent(run: Run) -> None:
    """B: what a stack of recomputed blocks sends in forward and backward; and another, in bf16."""
    given = block_stack.given_of(run)
    result = _stack(run, given, "all")
    for rank, found in enumerate(run.each(result.outputs)):
        each = one_all_reduce(given.x.numel(), WORLD, rank)
        once = each * 2 * len(block_stack.ORDER)
        passes = stretches(result, rank, found["marks"])
        for way, sent in zip(("forward", "backward"), passes, strict=True):
            likely = {
                "the second runs send the sums of forward again, or the backward of "
                "a sum sends its gradient": 2 * len(once)
            }
            run.equal(len(sent), len(once), f"the all-reduces in {way} of 4 blocks", likely=likely)
            run.equal(sent, once, f"what is sent in {way} of 4 blocks")
        only_bf16(run, result.ledgers[rank].events[found["marks"][-1] :], rank)


@check("kept sums: each rank recomputes what it likes", points=4, code="H")
@diagnosis(
    "the n-th sum of a second run is the n-th of its own first run; the gradient of a part is the "
    "gradient of the sum"
)
def check_kept(run: Run) -> None:
    """H: all blocks on all ranks, then 1, 4 and 2 of them; the sums that each run sees."""
    given = block_stack.given_of(run)
    for way in ("all", "own"):
        result = _stack(run, given, way)
        for rank, output in enumerate(result.outputs):
            count = COUNTS[rank] if way == "own" else len(block_stack.ORDER)
            words = f" (recomputed: {count} blocks)"
            block_runs.runs_agree(run, output["runs"], len(block_stack.ORDER), count, words, rank)
        _check_values(run, given, result)


def _check_values(run: Run, given: block_stack.Given, result: Any) -> None:
    """Output and gradients on all ranks, against one process."""
    wanted = block_stack.one_process(given)
    for rank, output in enumerate(run.each(result.outputs)):
        run.close(
            output["found"],
            block_stack.cut(wanted, rank),
            terms=20,
            what="of the stack, output or gradient",
        )


@check("between forward and backward: inputs and sums", points=3, code="M")
@diagnosis("`checkpoint` holds the input; hold nothing but the sums, and those for their call")
def check_memory(run: Run) -> None:
    """M: every byte that is alive after forward, after backward, and without a backward."""
    result = _stack(run, block_stack.given_of(run), "all")
    for rank, output in enumerate(result.outputs):
        block_runs.live_bytes_are(run, output["memory"], COUNT * 2, rank)
