"""Where a rank is whose waiting is asking a GPU, and what CUDA is asked before ranks are forked."""

from __future__ import annotations

import _thread
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from course_lib.comm import Work
from course_lib.comm import work as work_file
from course_lib.ranks.pool.autopsy import standstill
from course_lib.ranks.rank_process import where
from course_lib.ranks.start.launch import CAREFUL
from course_lib.trace import Ledger

PROBE = """
import torch
def refuse(*_): raise SystemExit("CUDA was asked before the fork")
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device"):
    setattr(torch.cuda, name, refuse)
from course_lib.ranks.start.preloaded import preload
preload()
print("forkable", torch.cuda.is_initialized())
"""


@pytest.mark.slow
def test_nothing_asks_cuda_before_the_fork() -> None:
    """Or no rank could use a GPU: CUDA's answer forbids it in processes that are forked later."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "forkable False\n", done.stderr[-1000:] + done.stdout
    assert CAREFUL == {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class _Held:
    """A call that does not end before it is let go, and a GPU that has come to it or has not."""

    def __init__(self) -> None:
        self.let_go, self.asked, self.come = threading.Event(), threading.Event(), True

    def is_completed(self) -> bool:
        self.asked.set()
        return self.let_go.is_set()

    def wait(self) -> None:
        pass

    def query(self) -> bool:
        return self.come


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> _Held:
    made = _Held()
    monkeypatch.setattr(work_file, "_turn_of", lambda data: made)
    return made


def work_of(held: _Held, ledger: Ledger) -> Work:
    group: Any = SimpleNamespace(ledger=ledger)
    event = ledger.begin("all_reduce", axis="dp", group=(0, 1), payload=8, shape=(1,))
    return Work(held, group, event, data=SimpleNamespace(is_cuda=True))  # type: ignore[arg-type]


def seen_while(run: Any, held: _Held, ledger: Ledger, looks: int = 1) -> list[dict[str, Any]]:
    """Reports on a thread that runs `run`, which waits for `held`."""
    thread = threading.Thread(target=run)
    thread.start()
    assert held.asked.wait(10) and thread.ident is not None
    reports = [where.report(thread.ident, ledger) for _ in range(looks)]
    held.let_go.set()
    thread.join(10)
    return reports


def test_asking_again_and_again_is_waiting(held: _Held) -> None:
    ledger = Ledger(0)
    work = work_of(held, ledger)
    first, second = seen_while(work.wait, held, ledger, looks=2)
    assert (first["talking"], first["asks"]) == (True, True)
    assert (first["call"], first["axis"], first["seq"]) == ("all_reduce", "dp", 0)
    second["threads"] = {"main": [10**6, 10**6]}  # it wakes up all the time, and must not count
    second["at"] = first["at"] + 0.5
    running = {"state": "running"}
    assert standstill({0: {**first, **running}}, {0: {**second, **running}}, 0.5)
    moved = {**second, **running, "seq": 1}
    assert not standstill({0: {**first, **running}}, {0: moved}, 0.5)


def test_a_gpu_that_still_computes_waits_for_nobody(held: _Held) -> None:
    held.come = False
    ledger = Ledger(0)
    (found,) = seen_while(work_of(held, ledger).wait, held, ledger)
    assert not found["talking"]


def test_a_hook_in_autograds_own_thread(held: _Held) -> None:
    """There the backward of what a GPU has computed runs, and the rank's program only waits."""
    ledger = Ledger(0)
    work = work_of(held, ledger)

    class InAnotherThread(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            done = threading.Event()
            _thread.start_new_thread(lambda: (work.wait(), done.set()), ())
            assert done.wait(10)
            return grads[0]

    x = torch.ones(2, requires_grad=True)
    (found,) = seen_while(lambda: InAnotherThread.apply(x).sum().backward(), held, ledger)
    assert (found["talking"], found["asks"], found["call"]) == (True, True, "all_reduce")
    assert "lambda" in found["source"] or "work.wait()" in found["source"]
