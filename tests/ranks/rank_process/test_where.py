"""Where a rank is said to wait: the line, the call, the peer, whatever way it came there."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from course_lib import comm
from course_lib.ranks import ForkServer, Pool, RanksError
from course_lib.ranks.pool import gather
from course_lib.ranks.rank_process import where
from course_lib.trace import Ledger

LOOK, STALL = 0.1, 0.3  # seconds: five times quicker than in a notebook

Function = Callable[[comm.Group], Any]


@pytest.fixture(autouse=True)
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "LOOK", LOOK)


def stuck(server: ForkServer, function: Function, world_size: int = 2) -> dict[int, dict[str, Any]]:
    """What each rank reports when the function has come to a standstill; `text` is the story."""
    with Pool(world_size, server, stall=STALL) as pool, pytest.raises(RanksError) as caught:
        pool.run(function, timeout=30)
    outcome = caught.value.outcome
    assert outcome.verdict == "deadlock"
    return {**outcome.reports, -1: {"text": " ".join(str(caught.value).split())}}


def line_of(function: Function, fragment: str) -> int:
    """The number of the line of the function that holds `fragment`."""
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if fragment in line)


def all_reduce(group: comm.Group) -> None:
    if group.rank == 0:
        dist.all_reduce(torch.ones(3))


def barrier(group: comm.Group) -> None:
    if group.rank == 0:
        dist.barrier()


def all_gather_object(group: comm.Group) -> None:
    if group.rank == 0:
        dist.all_gather_object([None, None], "x")


def ours(group: comm.Group) -> None:
    if group.rank == 0:
        comm.all_reduce(torch.ones(3), group)


def ours_from_messages(group: comm.Group) -> None:
    if group.rank == 0:
        comm.ring_all_reduce(torch.ones(100), group)


def ours_async(group: comm.Group) -> None:
    if group.rank == 0:
        first = comm.all_reduce(torch.ones(3), group, async_op=True)
        second = comm.broadcast(torch.ones(5), 0, group, async_op=True)
        first.wait()
        second.wait()


def a_call_in_a_hook(group: comm.Group) -> None:
    def reduce(gradient: torch.Tensor) -> torch.Tensor:
        if group.rank == 0:
            dist.all_reduce(gradient)
        return gradient

    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(reduce)
    (2 * weight).sum().backward()


@pytest.mark.parametrize(
    ("function", "fragment", "call", "shape"),
    [
        (all_reduce, "dist.all_reduce", "all_reduce", [3]),
        (barrier, "dist.barrier", "barrier", None),
        (all_gather_object, "dist.all_gather_object", "all_gather_object", None),
        (ours, "comm.all_reduce", "all_reduce", [3]),
        (ours_from_messages, "comm.ring_all_reduce", "ring all_reduce", [100]),
        (ours_async, "first.wait", "all_reduce", [3]),
        (a_call_in_a_hook, "dist.all_reduce", "all_reduce", [3]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_collectives(
    server: ForkServer, function: Function, fragment: str, call: str, shape: list[int] | None
) -> None:
    reports = stuck(server, function)
    mine = reports[0]
    assert mine["talking"]
    assert (mine["call"], mine["axis"], mine["group"], mine["seq"]) == (call, "world", [0, 1], 0)
    assert mine["line"] == line_of(function, fragment)
    assert fragment in mine["source"]
    if shape is not None:
        assert mine["shape"] == shape
    assert reports[1]["state"] == "finished"
    assert "rank 1 finished without making that call" in reports[-1]["text"]


def recv(group: comm.Group) -> None:
    if group.rank == 0:
        dist.recv(torch.ones(3), 1)


def send(group: comm.Group) -> None:
    if group.rank == 0:
        dist.send(torch.ones(1 << 20), 1)


def our_recv(group: comm.Group) -> None:
    if group.rank == 0:
        comm.recv(torch.ones(3), 1, group)


def our_irecv(group: comm.Group) -> None:
    if group.rank == 0:
        coming = comm.irecv(torch.ones(3), 1, group)
        comm.isend(torch.ones(3), 1, group)
        coming.wait()


def exchange(group: comm.Group) -> None:
    if group.rank == 0:
        comm.exchange(torch.ones(3), 1, torch.ones(3), 1, group)


@pytest.mark.parametrize(
    ("function", "fragment", "call"),
    [
        (recv, "dist.recv", "recv"),
        (send, "dist.send", "send"),
        (our_recv, "comm.recv", "recv"),
        (our_irecv, "coming.wait", "recv"),
        (exchange, "comm.exchange", "recv"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_messages(server: ForkServer, function: Function, fragment: str, call: str) -> None:
    mine = stuck(server, function)[0]
    assert (mine["call"], mine["peer"], mine["seq"]) == (call, 1, 0)
    assert mine["line"] == line_of(function, fragment)


def raw_wait(group: comm.Group) -> None:
    if group.rank == 0:
        under_way = dist.all_reduce(torch.ones(3), async_op=True)
        under_way.wait()


def raw_waits_in_a_comprehension(group: comm.Group) -> None:
    if group.rank == 0:
        some = [dist.irecv(torch.ones(3), 1) for _ in range(2)]
        _ = [work.wait() for work in some]


@pytest.mark.parametrize("function", [raw_wait, raw_waits_in_a_comprehension])
def test_a_wait_of_torchs_own(server: ForkServer, function: Function) -> None:
    reports = stuck(server, function)
    assert reports[0]["call"] == "work.wait()"
    assert reports[0]["line"] == line_of(function, ".wait()")
    assert "Rank 0 waits in work.wait(); rank 1 finished" in reports[-1]["text"]


def production_ddp(group: comm.Group) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
    if group.rank == 0:
        model(torch.ones(2, 3)).sum().backward()


def test_a_wait_inside_backward(server: ForkServer) -> None:
    reports = stuck(server, production_ddp)
    assert (reports[0]["talking"], reports[0]["call"]) == (True, "backward")
    assert reports[0]["line"] == line_of(production_ddp, "backward()")


def group_of_some(group: comm.Group) -> None:
    dist.all_reduce(torch.ones(1))
    if group.rank < 2:
        dist.new_group([0, 1, 2])


def test_a_group_made_by_only_some_ranks(server: ForkServer) -> None:
    reports = stuck(server, group_of_some, world_size=3)
    for rank in (0, 1):
        assert reports[rank]["call"] == "new_group"
        assert reports[rank]["line"] == line_of(group_of_some, "new_group")
        assert "seq" not in reports[rank], "it is no collective call of world"
    text = "Ranks 0 and 1 wait in new_group; rank 2 finished without making that call"
    assert text in reports[-1]["text"]


def in_different_groups(group: comm.Group) -> None:
    half = group.split([[0, 1]], "dp")
    comm.all_reduce(torch.ones(1), half if group.rank == 0 else group)


def test_different_groups_of_the_same_ranks(server: ForkServer) -> None:
    reports = stuck(server, in_different_groups)
    assert [reports[rank]["axis"] for rank in (0, 1)] == ["dp", "world"]
    assert "The ranks wait in different groups" in reports[-1]["text"]


def a_helper_in_between(group: comm.Group) -> None:
    def helper() -> None:
        torch.utils._pytree.tree_map(lambda leaf: dist.all_reduce(leaf), [torch.ones(3)])

    if group.rank == 0:
        helper()


def test_library_frames_are_passed_over(server: ForkServer) -> None:
    mine = stuck(server, a_helper_in_between)[0]
    assert mine["line"] == line_of(a_helper_in_between, "tree_map")
    names = [name for _, _, name, _ in mine["stack"]]
    assert names == ["a_helper_in_between", "helper", "<lambda>"]


def after_messages(group: comm.Group) -> None:
    tensor = torch.ones(1)
    if group.rank == 0:
        comm.send(tensor, 1, group)
        comm.send(tensor, 1, group)
    if group.rank == 1:
        comm.recv(tensor, 0, group)
        comm.recv(tensor, 0, group)
    if group.rank < 2:
        comm.all_reduce(tensor, group)


def test_messages_do_not_count_as_collective_calls(server: ForkServer) -> None:
    reports = stuck(server, after_messages, world_size=3)
    assert [reports[rank]["seq"] for rank in (0, 1)] == [0, 0]
    assert "rank 2 finished without making that call" in reports[-1]["text"]


def computes_while_others_wait(group: comm.Group) -> None:
    import time

    if group.rank == 1:
        end = time.monotonic() + 4 * STALL
        while time.monotonic() < end:
            pass
    dist.barrier()


def sleeps_while_others_wait(group: comm.Group) -> None:
    import time

    if group.rank == 1:
        time.sleep(4 * STALL)
    dist.barrier()


@pytest.mark.parametrize("function", [computes_while_others_wait, sleeps_while_others_wait])
def test_waiting_for_a_slow_rank_is_no_standstill(server: ForkServer, function: Function) -> None:
    with Pool(2, server, stall=STALL) as pool:
        assert pool.run(function, timeout=30) == [None, None]


def test_a_look_keeps_nothing_alive() -> None:
    def look_while_a_tensor_is_here() -> weakref.ref[torch.Tensor]:
        tensor = torch.zeros(4)
        look = threading.Thread(target=where.report, args=(threading.get_ident(), Ledger(0)))
        look.start()
        look.join()
        return weakref.ref(tensor)

    gc.disable()  # a circle of references would be freed by it, some time or other
    try:
        assert look_while_a_tensor_is_here()() is None
    finally:
        gc.enable()


def test_no_frame_is_held_while_its_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    started, asked = threading.Event(), threading.Event()
    left, alive = [], []

    def program() -> None:
        tensor = torch.zeros(4)
        left.append(weakref.ref(tensor))
        started.set()
        asked.wait()

    def read(_file: str, _line: int) -> str:  # meanwhile the other thread goes on
        asked.set()
        thread.join()
        alive.append(left[0]() is not None)
        return ""

    monkeypatch.setattr(where.linecache, "getline", read)
    thread = threading.Thread(target=program)
    thread.start()
    started.wait()
    assert thread.ident is not None
    where.report(thread.ident, Ledger(0))
    assert alive
    assert not any(alive)


def test_no_collection_starts_while_frames_are_read() -> None:
    within = []

    def starts(phase: str, _: dict[str, int]) -> None:
        frame = inspect.currentframe()
        while frame and phase == "start":
            within.extend(["_chain"] * (frame.f_code.co_name == "_chain"))
            frame = frame.f_back

    started, asked = threading.Event(), threading.Event()
    waiting = threading.Thread(target=lambda: (started.set(), asked.wait()))
    waiting.start()
    started.wait()
    ident, before = waiting.ident, gc.get_threshold()
    assert ident is not None
    gc.callbacks.append(starts)
    gc.set_threshold(1)  # each new object that the collector knows, a frame's too, starts one
    try:
        chains = [where._frames_of(ident) for _ in range(20)]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(starts)
        asked.set()
        waiting.join()
    assert all(chain[0].f_code.co_name == "_bootstrap" for chain in chains)
    assert not within
    assert gc.isenabled()
