"""Where the tests of this folder run: on CPU ranks always, on GPUs where there are enough.

A test is written once, over `everywhere`. So what it asserts is known to hold before it meets the
first GPU, and what fails there is the device's doing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from course_lib.ranks import ForkServer, run_on_ranks

PATIENCE = 300  # seconds; NCCL connects, and CUDA loads, in the first call of each rank


class Place(NamedTuple):
    """Ranks, and what they compute on."""

    name: str
    world: int
    gpus: int  # that it takes
    device: str = "cuda"

    @property
    def nccl(self) -> bool:
        return self.gpus == self.world


PLACES = [
    Place("4 ranks on CPU", 4, 0, "cpu"),
    Place("1 rank, NCCL", 1, 1),
    Place("2 ranks on 1 GPU", 2, 1),
    Place("4 ranks on 1 GPU", 4, 1),
    Place("2 ranks, NCCL", 2, 2),
    Place("4 ranks, NCCL", 4, 4),
]


def skip_without(gpus: int) -> None:
    """Skips the test, with the reason, on a machine with fewer GPUs."""
    there = torch.cuda.device_count()
    if there < gpus:
        pytest.skip(f"needs {gpus} GPU{'s' * (gpus > 1)}; this machine has {there}")


@pytest.fixture(scope="session")
def one_gpu_server() -> Iterator[ForkServer]:
    """A preloaded process whose ranks see the first GPU only, so that they must share it."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if before is None else before.partition(",")[0]
    try:
        with ForkServer() as started:
            started.wait_ready(120)
            yield started
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


@pytest.fixture(
    params=[pytest.param(p, id=p.name, marks=pytest.mark.gpu if p.gpus else ()) for p in PLACES]
)
def place(request: pytest.FixtureRequest) -> Place:
    """Each place in turn; skipped where the machine has too few GPUs."""
    skip_without(request.param.gpus)
    return request.param


@pytest.fixture
def everywhere(
    place: Place, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[Any]]:
    """`everywhere(function, *args)`: `function(group, *args)` on the ranks of the place."""
    shared = 0 < place.gpus < place.world
    server = request.getfixturevalue("one_gpu_server" if shared else "server")
    monkeypatch.setenv("COURSE_DEVICE", place.device)

    def call(function: Callable[..., Any], *args: Any) -> list[Any]:
        return run_on_ranks(function, place.world, *args, server=server, timeout=PATIENCE)

    return call
