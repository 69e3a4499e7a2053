"""scale_by_present: means over some of the ranks, with anything in the tensors of the others."""

from __future__ import annotations

import math
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="The mean over the ranks that took part",
    core=True,
    minutes=15,
    order=3,
    hints=(
        "Which two sums over all ranks give the mean of some of them? What does an absent rank "
        "add to each sum?",
        "An absent rank sends zeros instead of its tensor, and 0 instead of 1 for the count. It "
        "makes the same calls. (Multiplying by 0 is not enough: 0 · NaN is NaN.)",
        "If not present, `tensor.zero_()`. All-reduce the tensor, and then `number = "
        "torch.tensor(int(present))`: that is the count. Divide in place by `max(int(number), 1)`.",
    ),
)

SHAPE = (3, 5)
ROOMS = ((1, 1, 1), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 0, 0))
PAIRS = ((1, 1), (0, 1))


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, rounds: list[list[Any]]) -> dict[str, Any]:
    """One mean after the other."""
    found: list[dict[str, Any]] = []
    for present, values in rounds:
        mine = values.clone()
        memory = mine.view(-1)
        count = learner.scale_by_present(mine, bool(present), group)
        stayed = mine.data_ptr() == memory.data_ptr()
        found.append({"count": count, "mean": mine, "stayed": stayed})
    return {"found": found}


def drive_strided(learner: Any, group: Any, present: bool, values: Any) -> dict[str, Any]:
    """A tensor whose memory is transposed."""
    mine = values.t().contiguous().t()
    learner.scale_by_present(mine, bool(present), group)
    return {"mean": mine}


# --- what they must bring back -------------------------------------------------------------------
def values_of(run: Run, ranks: int, count: int) -> list[list[torch.Tensor]]:
    """For each round each rank's tensor."""
    return [[run.random(SHAPE) for _ in range(ranks)] for _ in range(count)]


def compare(run: Run, rooms: Any, junk: float | None = None) -> None:
    """Every round of a world against the mean of those who are present."""
    size = len(rooms[0])
    values = values_of(run, size, len(rooms))
    if junk is not None:
        for present, tensors in zip(rooms, values, strict=True):
            for here, tensor in zip(present, tensors, strict=True):
                if not here:
                    tensor.view(-1)[::2] = junk
    inputs = [
        {"rounds": [[room[r], tensors[r]] for room, tensors in zip(rooms, values, strict=True)]}
        for r in range(size)
    ]
    result = run(drive, inputs, world=size)
    for rank, output in enumerate(run.each(result.outputs)):
        for room, tensors, found in zip(rooms, values, output["found"], strict=True):
            here = [t for t, present in zip(tensors, room, strict=True) if present]
            total = torch.stack(here).sum(0) if here else torch.zeros(SHAPE).double()
            every = torch.stack(tensors).sum(0)
            what = f"the mean of {len(here)} of {size} ranks"
            likely = {
                "this is the rank's own tensor": tensors[rank],
                "divided by the group's size: absent ranks must not count in the divisor": total
                / size,
                "absent ranks count in the sum": every / max(len(here), 1),
                "this is the mean over all ranks: `present` is ignored": every / size,
                "this is the sum: it is not divided": total,
            }
            mean = found["mean"]
            run.true(
                junk is None or not isinstance(mean, torch.Tensor) or bool(mean.isfinite().all()),
                f"{what} is not finite",
                cause="an absent rank's values must not matter: 0 · NaN is NaN",
            )
            run.close(mean, total / max(len(here), 1), what, likely=likely)
            cause = "others may refer to its memory: write into it"
            run.true(found["stayed"], "the tensor has moved to other memory", cause=cause)
            run.equal(found["count"], len(here), f"the number that is returned with {what}")


@check("all, some, or one rank present", points=5, code="E")
@diagnosis("the sum over the present ranks, divided by their number")
@in_part
def check_means(run: Run) -> None:
    """E: three and two ranks, in float64."""
    compare(run, ROOMS[:4])
    compare(run, PAIRS)


@check("anything in an absent rank's tensor", points=3, code="E")
@diagnosis("an absent rank sends zeros, not its tensor times 0")
def check_junk(run: Run) -> None:
    """E: NaN and infinity where nobody looks; and in a present one, where it must be seen."""
    compare(run, ROOMS[1:4], torch.nan)
    compare(run, ROOMS[1:4], torch.inf)
    broken = {"rounds": [[True, torch.full(SHAPE, torch.nan)], [True, torch.ones(SHAPE)]]}
    for output in run.each(run(drive, broken, world=2).outputs):
        run.true(
            bool(output["found"][0]["mean"].isnan().all()),
            "the mean of present ranks that have NaN is not NaN",
            cause="only an absent rank's values do not matter: a NaN of the others must be seen",
        )


@check("no rank is present", points=2, code="E")
@diagnosis("zeros, and a count of 0")
def check_nobody(run: Run) -> None:
    """E: no division by zero; also in a group of one rank, that heals alone."""
    compare(run, ROOMS[4:])
    compare(run, ((0,), (1,)))


@check("dtype and strides", points=2, code="E")
@diagnosis("in place, whatever the tensor's strides")
def check_form(run: Run) -> None:
    """E: float32, a transposed tensor, and shapes that are easily forgotten."""
    rooms = (1, 0, 1)
    for dtype in (torch.float32, torch.float64):
        tensors = [run.random(SHAPE, dtype) for _ in rooms]
        inputs = [{"present": p, "values": t} for p, t in zip(rooms, tensors, strict=True)]
        for output in run.each(run(drive_strided, inputs, world=3).outputs):
            run.close(output["mean"], (tensors[0] + tensors[2]) / 2,
                      f"the mean of transposed tensors in {dtype}")  # fmt: skip
    for shape in ((), (0, 4)):
        odd = [run.random(shape) for _ in rooms]
        rounds = [{"rounds": [[p, t]]} for p, t in zip(rooms, odd, strict=True)]
        for output in run.each(run(drive, rounds, world=3).outputs):
            what = f"the mean of tensors of shape {shape}"
            run.close(output["found"][0]["mean"], (odd[0] + odd[2]) / 2, what)


@check("what is sent", points=2, code="B")
@diagnosis("one all-reduce of the tensor, and one of a number")
def check_bytes(run: Run) -> None:
    """B: 2(N-1)/N of the tensor in its own dtype and of one number, at most, in two calls."""
    tensor, room = run.random((40, 30), torch.bfloat16), (1, 0, 1)
    inputs = [{"present": present, "values": tensor} for present in room]
    result = run(drive_strided, inputs, world=3)
    for output in run.each(result.outputs):
        run.close(output["mean"], tensor, "the mean of two equal tensors in bfloat16")
    for ledger in run.each(result.ledgers):
        calls = [event for event in ledger.events if event.parent < 0]
        sent = sum(event.sent for event in calls)
        run.at_most(sent, 2 * 2 * (tensor.nbytes + 24) // 3, "bytes sent of a bfloat16 tensor",
                    cause="one all-reduce of the tensor is enough, in its own dtype")  # fmt: skip
        ops = [event.op for event in calls]
        cause = "the tensor and a number are summed, in one all-reduce or in two"
        run.true(set(ops) == {"all_reduce"} and len(ops) <= 2, f"the calls are {ops}", cause=cause)
        run.true(sent > 0, "nothing was sent")
        counts = [event.dtype for event in calls if math.prod(event.shape) != tensor.numel()]
        run.true(
            "bfloat16" not in counts,
            "the ranks are counted in bfloat16",
            cause="it counts only to 256: sum the number in a call of its own, in another dtype",
        )
