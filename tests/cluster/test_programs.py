"""Programs as learners write them: on simulated ranks they do what they do on real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.cluster import Deadlocked, Failed, simulate
from course_lib.comm import Group, all_reduce, all_to_all, barrier, irecv, isend, recv
from course_lib.ranks.pool.run import run_on_ranks
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.trace import Refusal
from course_lib.trace.memory import LiveMemory

NODE = "1x8xH100"


def flat_gradients(group: Group) -> None:
    """Data parallel by hand, with an attention that torch fuses."""
    model = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0).to(group.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        model(torch.randn(4, 16, 64)).pow(2).mean().backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        all_reduce(flat, group, "avg")
        optimizer.step()
        optimizer.zero_grad()


def sends_kept(group: Group) -> None:
    """A pipeline forward that waits for its sends at the end; until then they are in memory."""
    stage, works = nn.Linear(128, 128).to(group.device), []
    for _ in range(4):
        x = torch.randn(8, 128)
        if group.index:
            recv(x, group.index - 1, group)
        if group.index + 1 < group.size:
            works.append(isend(stage(x).detach(), group.index + 1, group))
    for work in works:
        work.wait()


def masked(group: Group) -> None:
    """Attention with a mask, with grouped queries, and with both ends of it known."""
    query = torch.randn(2, 4, 16, 8, requires_grad=True)
    few = torch.randn(2, 2, 16, 8)
    seen = torch.ones(16, 16, dtype=torch.bool).tril()
    F.scaled_dot_product_attention(query, query, query, seen).sum().backward()
    F.scaled_dot_product_attention(query, few, few, enable_gqa=True).sum().backward()
    query.detach().flatten(2) @ query.detach().flatten(2).transpose(1, 2)


def held(group: Group, program: Callable[[Group], None]) -> tuple[int, list[Any]]:
    with LiveMemory() as memory:
        program(group)
    events = group.ledger.events
    return memory.peak, [(e.op, e.seq, e.payload, e.sent, e.peer, e.dtype) for e in events]


@pytest.mark.parametrize("program", [flat_gradients, sends_kept, masked])
def test_memory_and_calls_are_those_of_real_ranks(
    program: Callable[[Group], None], server: ForkServer
) -> None:
    real = run_on_ranks(held, 2, program, server=server)
    simulated = run_on_ranks(held, 2, program, cluster=NODE)
    for (peak, calls), (found, same) in zip(real, simulated, strict=True):
        assert calls == same and found == pytest.approx(peak, rel=0.01)


def drawn(group: Group) -> list[int]:
    torch.manual_seed(7)
    before = torch.randint(0, 1000, (3,)).tolist()
    barrier(group)
    return [*before, *torch.randint(0, 1000, (3,)).tolist(), *torch.randperm(9).tolist()]


def test_ranks_draw_from_generators_of_their_own(server: ForkServer) -> None:
    """Ranks take turns in one process: what one draws must not change what the next one does."""
    before = torch.get_rng_state()
    assert run_on_ranks(drawn, 2, cluster=NODE) == run_on_ranks(drawn, 2, server=server)
    assert torch.get_rng_state().equal(before)


def looks_for_ever(group: Group) -> None:
    if group.index == 0:
        work = irecv(torch.zeros(4), 1, group)
        while not work.is_completed():
            pass


def test_a_rank_that_looks_for_what_nobody_sends_is_a_deadlock() -> None:
    with pytest.raises(Deadlocked, match="rank 1 has ended") as caught:
        simulate(looks_for_ever, 2, cluster=NODE)
    assert set(caught.value.reports()) == {0}


def looks_long(group: Group) -> float:
    """One rank looks for 0.2 s of virtual time, while the other computes."""
    if group.index == 0:
        work = irecv(torch.zeros(4), 1, group)
        while not work.is_completed():
            pass
    else:
        for _ in range(80):
            torch.zeros(8192, 8192) @ torch.zeros(8192, 8192)
        isend(torch.zeros(4), 0, group).wait()
    return group.ledger.clock()


def test_looks_that_follow_each_other_take_longer_and_are_few() -> None:
    waited, computed = run_on_ranks(looks_long, 2, cluster=NODE)
    assert computed > 0.1 and waited == pytest.approx(computed, rel=0.02)


UNKNOWN: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.tolist(),
    lambda x: x.numpy(),
    lambda x: x[x > 0],
    lambda x: x.nonzero(),
    lambda x: bool((x > 0).any()),
    lambda x: torch.testing.assert_close(x, torch.ones(4)),
]


@pytest.mark.parametrize("asks", UNKNOWN)
def test_whoever_asks_for_values_is_told_so(asks: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(Failed, match="floats have no values") as caught:
        simulate(lambda group: asks(torch.randn(4)), 1, cluster=NODE)
    assert isinstance(caught.value.cause, Refusal)


def test_what_is_known_may_be_asked_for() -> None:
    def program(group: Group) -> Any:
        counts = torch.arange(4)
        torch.testing.assert_close(counts, torch.tensor([0, 1, 2, 3]))
        return counts.tolist(), counts[counts > 1].numpy().sum(), f"{torch.randn(2).mean():8.3f}"

    assert simulate(program, 1, cluster=NODE).values[0] == ([0, 1, 2, 3], 5, "       ?")


@pytest.mark.parametrize("device", ["meta", "cpu", "cuda"])
def test_autocast_is_refused_and_not_left_out(device: str) -> None:
    def program(group: Group) -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            torch.randn(4, 4) @ torch.randn(4, 4)

    with pytest.raises(Failed, match=r"convert with \.to"):
        simulate(program, 1, cluster=NODE)


def test_a_rank_without_rows_takes_those_of_others() -> None:
    """An all-to-all in which one rank gives nothing, as a router of experts may have it."""

    def program(group: Group) -> tuple[int, ...]:
        given = torch.empty(0 if group.index else 4, 3)
        output = torch.empty(4 if group.index else 0, 3)
        going, coming = ([0, 0], [4, 0]) if group.index else ([0, 4], [0, 0])
        all_to_all(output, given, group, coming, going)
        return tuple(output.shape)

    assert simulate(program, 2, cluster=NODE).values == {0: (0, 3), 1: (4, 3)}
