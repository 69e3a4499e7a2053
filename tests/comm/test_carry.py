"""How tensors on GPUs are carried and waited for, as far as it can be said without a GPU."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from course_lib.comm import CommError
from course_lib.comm import work as work_file
from course_lib.comm.carry import HOST, by_host, carried, place_for
from course_lib.comm.start import choose_backend, choose_device
from course_lib.comm.work import Work
from course_lib.trace import Ledger

GPU = torch.device("cuda:0")


def group(has_nccl: bool) -> Any:
    return SimpleNamespace(has_nccl=has_nccl, ledger=Ledger(0), device=GPU)


@pytest.mark.parametrize(
    ("gpus", "ranks", "device", "backend"),
    [(0, 2, "cpu", "gloo"), (1, 2, "cpu", "gloo"), (2, 2, "cuda:1", "cpu:gloo,cuda:nccl"),
     (8, 2, "cuda:1", "cpu:gloo,cuda:nccl")],
)  # fmt: skip
def test_a_gpu_a_rank_or_none(
    monkeypatch: pytest.MonkeyPatch, gpus: int, ranks: int, device: str, backend: str
) -> None:
    """With NCCL there is gloo as well, for what a lesson leaves on the CPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    chosen = choose_device("auto", 1, ranks)
    assert (chosen, choose_backend(chosen, ranks)) == (torch.device(device), backend)


def test_ranks_share_a_gpu_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    chosen = choose_device("cuda", 3, 4)
    assert (chosen, choose_backend(chosen, 4)) == (torch.device("cuda", 0), "gloo")


@pytest.mark.parametrize(("wanted", "found"), [("cuda", "no GPU"), ("gpu", "auto, cpu and cuda")])
def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, wanted: str, found: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(CommError, match=found):
        choose_device(wanted, 0, 1)


def test_only_nccl_moves_a_gpus_tensors() -> None:
    here = torch.ones(2, 3)
    assert not by_host(here, group(False)) and not by_host(here, group(True))
    assert carried(here, group(False)) is here
    with FakeTensorMode():  # a tensor that says it is on a GPU
        there = torch.empty(2, 3, device=GPU)
        assert by_host(there, group(False)) and not by_host(there, group(True))
        assert carried(there, group(True)) is there
        buffer = place_for(there, group(False))
        assert (buffer.device, buffer.shape, buffer.dtype) == (HOST, there.shape, there.dtype)
        assert place_for(there, group(True)) is there
        columns = place_for(there.t(), group(True))
        assert columns.device == GPU and columns.is_contiguous()


class _Handle:
    """A call that ends when it has been asked `times` times; it waits for nobody on the host."""

    def __init__(self, times: int) -> None:
        self.times, self.asked = times, 0

    def is_completed(self) -> bool:
        self.asked += 1
        return self.asked > self.times

    def wait(self) -> None:
        assert self.asked > self.times, "the stream waits, and the host would go on"


class _Turn:
    """An event of a GPU's that has not got so far."""

    def query(self) -> bool:
        return False


def test_the_host_waits_until_a_gpu_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the ledger would have the time at which the call was asked for, not that of its end."""
    monkeypatch.setattr(work_file, "_turn_of", lambda data: _Turn())
    monkeypatch.setattr(work_file, "PATIENCE", 0.0)
    where, handle = group(True), _Handle(3)
    event = where.ledger.begin("all_reduce", axis="world", group=(0, 1), payload=8)
    finished: list[threading.Thread] = []
    work = Work(handle, where, event, lambda: finished.append(threading.current_thread()),
                data=SimpleNamespace(is_cuda=True))  # type: ignore[arg-type] # fmt: skip
    assert work.asks and not work.has_begun
    work.wait()
    assert handle.asked == 4 and len(finished) == 1
    assert event.end is not None and event.end >= event.waited + 3 * work_file.PAUSE
    work.wait()
    assert handle.asked == 4 and len(finished) == 1


def test_a_detour_is_said_in_the_ledger() -> None:
    book = Ledger(0)
    event = book.begin("send", axis="world", group=(0, 1), payload=8, peer=1, by_host=True)
    assert (event.label, event.shown) == ("send", "send by the host")
    assert Ledger.from_dict(book.to_dict()).events[0].by_host
