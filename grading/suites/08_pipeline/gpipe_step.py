"""gpipe_step: one process's gradients, all forwards before all backwards, 2m messages."""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.pipeline import one_process, stage_log
from grading.references.pipeline.one_process import Whole

EXERCISE = Exercise(
    title="GPipe: all forwards, then all backwards",
    core=True,
    minutes=30,
    order=2,
    library=("comm.Group", "comm.Work", "comm.send", "comm.recv", "comm.isend", "comm.irecv"),
    hints=(
        "Write the forwards first, for three kinds of rank: the first takes inputs from the list, "
        "the others receive them; the last computes a loss, the others send their output. What "
        "of each micro-batch must you keep so that its backward can run later?",
        "The received activations are a leaf: call `requires_grad_()` on them before the stage "
        "runs, so that the backward leaves the gradient for the previous rank in their `grad`. "
        "Keep (inputs, outputs) of each micro-batch in a list; on the last rank keep the loss "
        "divided by the number of micro-batches instead of the output.",
        "In the second loop, over what was kept: on the last rank `value.backward()`; on the "
        "others receive a gradient from `group.index + 1`, then `outputs.backward(gradient)`. On "
        "all but the first send `inputs.grad` to `group.index - 1`.",
    ),
)

PARTS = ((1, 3), (2, 0))  # two pipelines in a job of four ranks
WIDE, ROWS = 2047, 16  # of messages of 256 KiB
DEADLOCK = (
    "run all forwards before all backwards, on every rank: then no rank sends a gradient while "
    "the previous rank still sends activations"
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, **given: Any) -> list[dict[str, Any]]:
    """One step for each case."""
    return stage_log.drive(lambda case, *rest: learner.gpipe_step(*rest), group, **given)


# --- what they must bring back -------------------------------------------------------------------
def _counts(p: int) -> tuple[int, int]:
    """More micro-batches than ranks, and fewer."""
    return 5, max(1, p - 1)


def _run(run: Run, p: int) -> tuple[Whole, Any]:
    """One pipeline over all ranks."""
    whole = Whole(run, p, _counts(p))
    inputs = [whole.given(stage) for stage in range(p)]
    return whole, one_process.explained(run, drive, inputs, DEADLOCK)


@check("one process's gradients on 1, 3 and 4 ranks, m above and below p", points=4, code="E")
@diagnosis("follow one micro-batch: its activations, its loss over m, its gradient back")
def check_gradients(run: Run) -> None:
    """E: the gradient of the mean, added to what was there."""
    for p in (3, 1, 4):
        whole, result = _run(run, p)
        one_process.compare(run, whole, result.outputs, range(p))


@check("two pipelines of two ranks in a job of four", points=2, code="E")
@diagnosis("as in check 1; if only here: stages and peers are indices in the group, not ranks")
def check_parts(run: Run) -> None:
    """E: groups whose order is not that of the ranks."""
    whole = Whole(run, 2, _counts(2))
    stages = {rank: stage for part in PARTS for stage, rank in enumerate(part)}
    inputs = [whole.given(stages[rank], parts=PARTS) for rank in range(4)]
    result = one_process.explained(run, drive, inputs, DEADLOCK)
    for part in PARTS:
        one_process.compare(run, whole, [result.outputs[rank] for rank in part], part)


@check("the losses are returned on the last rank", points=1, code="E")
@diagnosis("return the mean of each micro-batch, in order, detached and not divided")
@in_part
def check_losses(run: Run) -> None:
    """E: what is returned."""
    for p in (3, 1):
        whole, result = _run(run, p)
        one_process.check_losses(run, whole, result.outputs, range(p))


@check("all forwards, then all backwards; m micro-batches in flight", points=3, code="S")
@diagnosis("two loops: the first runs every forward, the second every backward")
def check_order(run: Run) -> None:
    """S: what each stage really ran, in order."""
    for p in (3, 4):
        whole, result = _run(run, p)
        for stage, output in enumerate(run.each(result.outputs)):
            for m, found in zip(whole.counts, output, strict=True):
                ahead = [f"F{k}" for k in range(m)]
                back = [f"B{k}" for k in range(m)]
                if found["order"] not in (ahead + back, ahead + back[::-1]):
                    run.fail(
                        f"stage {stage} did not run {m} forwards and then {m} backwards",
                        expected=" ".join(ahead + back),
                        measured=" ".join(found["order"]),
                        cause=one_process.order_fault(found["order"]),
                    )


@check("one message in each direction for each micro-batch and border", points=2, code="B")
@diagnosis("m activations to the next rank, m gradients to the one before")
def check_messages(run: Run) -> None:
    """B: exact bytes and number."""
    for p in (3, 4):
        whole, result = _run(run, p)
        one_process.check_messages(run, whole, result)


@check("messages alone", points=1, code="X")
@diagnosis("send, recv, isend and irecv between neighbours are enough")
def check_alone(run: Run) -> None:
    """X: no collective of torch or of comm."""
    run.messages_alone(_run(run, 3)[1])


@check("large messages end", points=2, code="H")
def check_large(run: Run) -> None:
    """H: 256 KiB, so that a send cannot hide in a buffer."""
    whole = Whole(run, 3, (4,), width=WIDE, rows=ROWS)
    inputs = [whole.given(stage) for stage in range(3)]
    result = one_process.explained(run, drive, inputs, DEADLOCK)
    one_process.check_losses(run, whole, result.outputs, range(3))
