"""doubled: an answer that may use little of the library, and not all of torch."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check

EXERCISE = Exercise(
    title="Double",
    core=False,
    minutes=1,
    library=("comm.Group", "comm.send", "comm.recv"),
    own=("torch.nn.utils.clip_grad_norm_", "torch.optim.Adam"),
    hints=("Add it to itself.", "Twice.", "2 * tensor"),
)


def drive(learner: Any, group: Any, tensor: torch.Tensor) -> dict[str, Any]:
    """The answer's tensor; what an answer may not call, the driver may."""
    torch.optim.Adam([tensor.clone().requires_grad_()])
    return {"twice": learner.doubled(tensor.clone().requires_grad_(), group).detach()}


@check("twice the tensor", points=2, code="E")
def check_twice(run: Run) -> None:
    """E: two ranks."""
    tensor = run.random(5)
    result = run(drive, {"tensor": tensor}, world=2)
    for rank in range(2):
        run.close(result.outputs[rank]["twice"], 2 * tensor, "the tensor", rank=rank)


@check("twice another", points=1, code="E")
def check_another(run: Run) -> None:
    """E: one rank."""
    tensor = run.random(3)
    result = run(drive, {"tensor": tensor})
    run.close(result.outputs[0]["twice"], 2 * tensor, "the tensor")
