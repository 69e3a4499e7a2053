"""The runtime on every device: deadlocks, dead ranks, the doctor, the grader and two lessons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import ForkServer
from course_lib.ranks.doctor import examine
from course_lib.ranks.pool.outcome import RanksError

ROOT = Path(__file__).resolve().parents[2]
RUN = [sys.executable, "-m", "course_lib.grade.cli"]
LESSONS = ["00_ranks_and_the_ledger", "04_zero_and_fsdp"]


# --- what goes wrong -----------------------------------------------------------------------------
def one_call_too_few(group: Group) -> None:
    total = torch.ones(3, device=group.device)
    for _ in range(2 if group.index else 1):
        comm.all_reduce(total, group)


def test_a_deadlock_ends_with_an_autopsy(everywhere: Callable[..., Any], place: Any) -> None:
    if place.world == 1:
        pytest.skip("one rank waits for nobody")
    with pytest.raises(RanksError, match="wait in all_reduce|waits in all_reduce") as error:
        everywhere(one_call_too_few)
    assert "rank 0 finished without making that call" in " ".join(str(error.value).split())


def killed_in_a_collective(group: Group) -> None:
    if group.index == group.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.all_reduce(torch.ones(3, device=group.device), group)


def test_a_killed_rank_is_reported(everywhere: Callable[..., Any], place: Any) -> None:
    with pytest.raises(RanksError) as error:
        everywhere(killed_in_a_collective)
    assert f"rank {place.world - 1}" in str(error.value)
    assert "SIGKILL" in str(error.value)


def reached_in_backward(group: Group) -> None:
    """A hook calls a collective that one rank leaves out; on GPUs, in a thread of autograd's."""
    x = torch.ones(3, device=group.device, requires_grad=True)
    if group.index:
        x.register_hook(lambda grad: comm.all_reduce(grad.clone(), group) and None)
    x.sum().backward()


def test_a_deadlock_in_a_backward(everywhere: Callable[..., Any], place: Any) -> None:
    if place.world == 1:
        pytest.skip("one rank waits for nobody")
    with pytest.raises(RanksError, match="all_reduce"):
        everywhere(reached_in_backward)


# --- the machine ---------------------------------------------------------------------------------
def place_and_backend(group: Group) -> tuple[str, bool]:
    return str(group.device), group.has_nccl


def test_each_rank_has_its_gpu(everywhere: Callable[..., Any], place: Any) -> None:
    if not place.gpus:
        expected = [("cpu", False)] * place.world
    else:
        expected = [(f"cuda:{rank % place.gpus}", place.nccl) for rank in range(place.world)]
    assert everywhere(place_and_backend) == expected


@pytest.mark.gpu
def test_the_doctor_names_the_gpus(server: ForkServer) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU; this machine has none")
    found = {one.what: one for one in examine(ROOT, server).findings}["devices"]
    assert torch.cuda.get_device_name() in found.found
    assert f"{torch.cuda.device_count()} ×" in found.found


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ring_all_reduce", "bucketed_ddp"])
def test_grading_is_the_same_beside_a_gpu(name: str) -> None:
    """The grader's ranks are on the CPU everywhere, so a score does not depend on the machine."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU; this machine has none")
    done = subprocess.run(
        [*RUN, "dev", "zoo", name], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.gpu
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_runs_to_its_end(lesson: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the devices that the ranks choose by themselves; its numbers may differ in rounding."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU; this machine has none")
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    book = nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4)
    NotebookClient(
        book, timeout=300, resources={"metadata": {"path": ROOT / "notebooks"}}
    ).execute()
    outputs = [out for cell in book.cells for out in cell.get("outputs", [])]
    assert outputs and not [out for out in outputs if out.output_type == "error"]
