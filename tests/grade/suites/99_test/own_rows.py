"""own_rows: a rank's part of a sum, by its index; repeated on a part of a larger world."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, in_part

EXERCISE = Exercise(
    title="Own rows",
    core=False,
    minutes=1,
    hints=("Add up over the group.", "Cut into group.size parts.", "Take part group.index."),
)


def drive(learner: Any, group: Any, tensor: torch.Tensor) -> dict[str, Any]:
    """The part of the sum, and the dropout that a rank draws."""
    return {"part": learner.own_rows(tensor.clone(), group), "drawn": torch.rand(3)}


@check("this rank's rows of the sum", points=2, code="E")
@in_part
def check_rows(run: Run) -> None:
    """E: three ranks."""
    tensors = [run.random((6, 2)) for _ in range(3)]
    result = run(drive, [{"tensor": tensor} for tensor in tensors], world=3)
    total = torch.stack(tensors).sum(0)
    for rank in range(3):
        run.close(result.outputs[rank]["part"], total.chunk(3)[rank], "the rows", rank=rank)


@check("one all-reduce", points=1, code="B")
@in_part
def check_calls(run: Run) -> None:
    """B: with the peers of a world of two."""
    result = run(drive, {"tensor": run.random((6, 2))}, world=2)
    for rank, ledger in enumerate(result.ledgers):
        found = [(event.op, event.rank, event.group) for event in ledger.events]
        run.equal(found, [("all_reduce", rank, (0, 1))], "the calls", rank=rank)


@check("ranks draw as they do in the world", points=1, code="E")
@in_part
def check_drawn(run: Run) -> None:
    """E: hidden inputs and random states are the same in both."""
    result = run(drive, {"tensor": run.random((6, 2))}, world=2)
    for rank, drawn in enumerate(result.column("drawn")):
        expected = torch.rand(3, generator=torch.Generator().manual_seed(1000 + rank))
        run.equal(drawn, expected, "what the rank draws", rank=rank)
