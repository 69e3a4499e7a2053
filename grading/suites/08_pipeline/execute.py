"""execute: any list of actions, in its order, with its memory, without a deadlock."""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.pipeline import one_process, stage_log
from grading.references.pipeline.one_process import Whole

EXERCISE = Exercise(
    title="A runtime that runs any schedule",
    core=True,
    minutes=35,
    order=4,
    library=("comm.Group", "comm.Work", "comm.send", "comm.recv", "comm.isend", "comm.irecv"),
    hints=(
        "Take the two loop bodies of `gpipe_step`, and put them into the two branches of one loop "
        "over the actions. A forward must find its micro-batch in the list by its number, and a "
        "backward must find what the forward of its micro-batch has kept: use a dict.",
        "`kept.pop(k)` returns what forward k has kept, and forgets it. Start each send with "
        "`isend` and put the Work that it returns into a list; wait for all of them after the "
        "loop. The Work also keeps the tensor alive. Receives may block.",
        "Send `outputs.detach()` and `inputs.grad`. On the last rank keep the loss divided by "
        "`len(micro_batches)` in place of the output, and put `value.detach()` on the list of "
        "losses: a loss with its graph holds the activations of its micro-batch.",
    ),
)

PARTS = ((1, 3), (2, 0))  # two pipelines in a job of four ranks
WIDE, ROWS = 2047, 16  # of messages of 256 KiB
MANY = 12  # micro-batches: numbers with two digits
LOPSIDED = [  # valid, if more than one message may be under way in each direction
    ["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2", "0B3"],
    ["1F0", "1F1", "1B0", "1B1", "1F2", "1F3", "1B2", "1B3"],
]
DEADLOCK = (
    "in this schedule a rank has more to send before the others receive what it has sent: start "
    "every send with `isend`, and wait at the end"
)
Lists = list[list[str]]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, **given: Any) -> list[dict[str, Any]]:
    """One step for each case, by this rank's list."""
    return stage_log.drive(
        lambda case, *rest: learner.execute(list(case["actions"]), *rest), group, **given
    )


# --- what they must bring back -------------------------------------------------------------------
def _given(whole: Whole, lists: list[Lists], stage: int, **more: Any) -> dict[str, Any]:
    """What a stage's rank gets: its own list for each case."""
    given = whole.given(stage, **more)
    given["cases"] = [
        {**case, "actions": each[stage]} for case, each in zip(whole.cases, lists, strict=True)
    ]
    return given


def _lists(run: Run, p: int) -> list[Lists]:
    """GPipe; 1F1B with many and with few micro-batches; one at random."""
    few = max(1, p - 1)
    return [one_process.gpipe(p, 4), one_process.one_f_one_b(p, MANY),
            one_process.one_f_one_b(p, few), one_process.drawn(run, p, 5)]  # fmt: skip


def _run(run: Run, p: int) -> tuple[Whole, list[Lists], Any]:
    """One pipeline over all ranks."""
    lists = _lists(run, p)
    whole = Whole(run, p, [len(each[0]) // 2 for each in lists])
    inputs = [_given(whole, lists, stage) for stage in range(p)]
    return whole, lists, one_process.explained(run, drive, inputs, DEADLOCK)


def _cases(lists: list[Lists], outputs: list[Any]) -> Iterator[tuple[int, list[str], Any]]:
    """(stage, its list, what it found) of every case."""
    for stage, output in enumerate(outputs):
        for case, found in enumerate(output):
            yield stage, lists[case][stage], found


def _check_order(run: Run, lists: list[Lists], outputs: list[Any]) -> None:
    for stage, line, found in _cases(lists, outputs):
        ran = [f"{stage}{what}" for what in found["order"]]
        if ran != line:
            run.fail(
                f"stage {stage} did not do what its list says, in that order",
                rank=stage,
                expected=" ".join(line),
                measured=" ".join(ran),
                cause=one_process.order_fault(found["order"]),
            )


@check(
    "one process's gradients on 1, 3 and 4 ranks: GPipe, 1F1B, a random schedule",
    points=4,
    code="E",
)
@diagnosis("follow one micro-batch: its activations, its loss over m, its gradient back")
def check_gradients(run: Run) -> None:
    """E: the gradient of the mean, added to what was there."""
    for p in (3, 1, 4):
        whole, _, result = _run(run, p)
        one_process.compare(run, whole, result.outputs, range(p))


@check("two pipelines of two ranks in a job of four", points=2, code="E")
@diagnosis("as in check 1; if only here: stages and peers are indices in the group, not ranks")
def check_parts(run: Run) -> None:
    """E: groups whose order is not that of the ranks."""
    lists = _lists(run, 2)
    whole = Whole(run, 2, [len(each[0]) // 2 for each in lists])
    stages = {rank: stage for part in PARTS for stage, rank in enumerate(part)}
    inputs = [_given(whole, lists, stages[rank], parts=PARTS) for rank in range(4)]
    result = one_process.explained(run, drive, inputs, DEADLOCK)
    for part in PARTS:
        one_process.compare(run, whole, [result.outputs[rank] for rank in part], part)


@check("the losses are returned on the last rank", points=1, code="E")
@diagnosis("return the mean of each micro-batch, in order, detached and not divided")
@in_part
def check_losses(run: Run) -> None:
    """E: what is returned."""
    for p in (3, 1):
        whole, _, result = _run(run, p)
        one_process.check_losses(run, whole, result.outputs, range(p))


@check("each rank runs exactly the actions of its list", points=4, code="S")
@diagnosis("one loop over the actions; nothing runs before its turn")
def check_order(run: Run) -> None:
    """S: what each stage really ran, in order."""
    for p in (3, 4):
        _, lists, result = _run(run, p)
        _check_order(run, lists, result.outputs)


@check("a backward frees its micro-batch's memory", points=3, code="M")
@diagnosis(
    "a backward takes what its forward has kept (`pop`); keep and send nothing else that has a "
    "graph"
)
def check_memory(run: Run) -> None:
    """M: micro-batches whose activations live, at every forward, by weak references."""
    for p in (3, 4):
        _, lists, result = _run(run, p)
        for stage, line, found in _cases(lists, result.outputs):
            limit = one_process.in_flight(line) + stage_log.LOCAL
            cause = "something that a forward has kept outlives its backward"
            what = (
                f"stage {stage}'s number of micro-batches alive at once ({len(line) // 2} in all)"
            )
            run.at_most(found["most"], limit, what, rank=stage, cause=cause)


@check(
    "one message in each direction for each micro-batch and border, and no collective",
    points=2,
    code="B",
)
@diagnosis("m activations to the next rank, m gradients to the one before")
def check_messages(run: Run) -> None:
    """B: exact bytes and number, messages alone."""
    for p in (3, 4):
        whole, _, result = _run(run, p)
        run.messages_alone(result)
        one_process.check_messages(run, whole, result)


@check("large messages and a slow neighbour", points=3, code="H")
def check_large(run: Run) -> None:
    """H: 256 KiB, several under way in both directions, to a rank that takes them late."""
    lists = [LOPSIDED, one_process.gpipe(2, 4), one_process.one_f_one_b(2, 4)]
    whole = Whole(run, 2, [4] * len(lists), width=WIDE, rows=ROWS)
    inputs = [_given(whole, lists, stage, slow=stage == 1) for stage in range(2)]
    result = one_process.explained(run, drive, inputs, DEADLOCK)
    _check_order(run, lists, result.outputs)
    one_process.check_losses(run, whole, result.outputs, range(2))
