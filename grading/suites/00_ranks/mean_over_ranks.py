"""mean_over_ranks: the first exercise, three lines."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="The mean over ranks",
    core=True,
    minutes=5,
    order=1,
    hints=(
        "A sum over the ranks is one call. What is still missing to make it a mean?",
        "all_reduce changes the tensor that it gets. Give it one that nobody else needs.",
        "`total = tensor.clone()`, then `all_reduce(total, group)`, and the result is `total` "
        "divided by the number of ranks in the group.",
    ),
)


def drive(learner: Any, group: Any, tensor: torch.Tensor) -> dict[str, Any]:
    """Calls the answer with this rank's tensor; brings back what it is afterwards, too."""
    mine = tensor.clone()
    mean = learner.mean_over_ranks(mine, group)
    same = isinstance(mean, torch.Tensor) and mean.is_set_to(mine)
    return {"mean": mean, "given": mine, "same": same}


def _run(
    run: Run, world: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> tuple[list[torch.Tensor], Any]:
    tensors = [run.random(shape, dtype) for _ in range(world)]
    return tensors, run(drive, [{"tensor": each} for each in tensors], world=world)


@check("every rank has the mean", points=3, code="E")
@in_part
def check_mean(run: Run) -> None:
    """E: a matrix on three ranks and a scalar on two, in float64 and in float32."""
    for world, shape, dtype in ((3, (4, 5), torch.float64), (2, (), torch.float32)):
        tensors, result = _run(run, world, shape, dtype)
        total = torch.stack(tensors).sum(0)
        for rank, output in enumerate(run.each(result.outputs)):
            likely = {
                "this is the sum: divide by the number of ranks": total,
                "this is the rank's own tensor": tensors[rank],
                "this is the rank's own tensor, divided: nothing was added": tensors[rank] / world,
                "divided twice": total / world**2,
            }
            run.close(output["mean"], total / world, "the mean", likely=likely)


@check("the input tensor keeps its value, and the result is another one", points=1, code="E")
@diagnosis("all_reduce works in place: give it a copy")
def check_given(run: Run) -> None:
    """E: on three ranks, on one, and with no elements."""
    for world, shape in ((3, (4, 5)), (1, (3,)), (2, (0,))):
        tensors, result = _run(run, world, shape)
        for rank, output in enumerate(run.each(result.outputs)):
            run.close(output["given"], tensors[rank], "the input tensor")
            what = f"the result is the input itself, {list(shape)} on {world} ranks"
            run.true(not output["same"], what, cause="the result is a new tensor, always")


@check("no more bytes than one all-reduce", points=1, code="B")
def check_bytes(run: Run) -> None:
    """B: 2(N-1)/N·S on each of three ranks."""
    tensors, result = _run(run, 3, (4, 6))
    size = tensors[0].nbytes
    likely = {"the tensors were gathered: (N-1)·S": 2 * size, "two all-reduces": 2 * 4 * size // 3}
    run.bytes(result, 4 * size // 3, likely=likely)
