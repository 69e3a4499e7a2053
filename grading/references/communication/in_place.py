"""Collectives that change a tensor in place: how they are called, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib.grade.suite import Result, Run

Call = Callable[[torch.Tensor], object]


# --- what runs on the ranks ----------------------------------------------------------------------
def called(calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Makes each call with a copy of each tensor; says whether that stayed the same tensor."""
    values, stayed = [], []
    for call in calls:
        for given in tensors:
            tensor = given.clone()
            place = tensor.data_ptr()
            call(tensor)
            values.append(tensor)
            stayed.append(tensor.data_ptr() == place)
    return {"values": values, "stayed": stayed}


def called_on_a_view(call: Call, tensor: torch.Tensor) -> dict[str, Any]:
    """Makes a call with a view that is not contiguous; the memory around it must stay."""
    whole = tensor.clone()
    call(whole.t()[1:])
    return {"whole": whole}


# --- what they must bring back -------------------------------------------------------------------
def of_any_dtype(run: Run, world: int) -> list[list[torch.Tensor]]:
    """For each rank a tensor in float64, float32 and int64: that with numbers float32 rounds."""
    large = 1 << 40
    return [
        [run.random(23), run.random(23, torch.float32), run.integers(-large, large, 23)]
        for _ in range(world)
    ]


def shape_of(tensor: torch.Tensor) -> str:
    """A tensor's shape in words."""
    return "×".join(map(str, tensor.shape)) or "scalar"


def compare_memory(run: Run, result: Result) -> None:
    """That what `called` called kept the memory of its tensors."""
    cause = "write into the tensor that you got; `tensor.data = ...` only replaces its memory"
    for found in run.each(result.outputs):
        run.true(all(found["stayed"]), "the tensor's memory was replaced", cause=cause)


def compare_view(
    run: Run, result: Result, given: list[torch.Tensor], value: torch.Tensor, verb: str
) -> None:
    """That what `called_on_a_view` called wrote to the view alone.

    Args:
        run: of the check.
        result: of the run.
        given: each rank's tensor.
        value: one of their size, of which the view must become a part.
        verb: what an answer may have done to a copy.
    """
    for own, found in run.each(zip(given, result.outputs, strict=True)):
        expected = own.clone()
        expected[:, 1:] = value[:, 1:]
        likely = {f"a non-contiguous tensor was copied and the copy {verb}": own}
        what = "the memory under a transposed view"
        run.close(found["whole"], expected, what, terms=len(given), likely=likely)
