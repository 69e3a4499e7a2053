"""Ranks in virtual time: what they meet in, what it takes, and what is refused."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from course_lib.cluster import Deadlocked, Failed, OutOfMemory, engine, simulate
from course_lib.cluster.fold import Fold
from course_lib.comm import (
    Group,
    Mesh,
    all_reduce,
    exchange,
    irecv,
    recv,
    ring_all_reduce,
    send,
)
from course_lib.model import AdamW, ModelConfig, MoEConfig, Transformer
from course_lib.model.moe import moe_layers
from course_lib.ranks.magic.simulated import simulated_cell
from course_lib.ranks.pool.run import run_on_ranks
from course_lib.schedule import one_f_one_b
from course_lib.trace import Refusal
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step
from course_lib.train.command.config import RunConfig
from course_lib.train.simulated import one_step, simulated_step

NODE = "1x8xH100"


def seconds(group: Group, elements: int) -> float:
    begin = group.ledger.clock()
    all_reduce(torch.zeros(elements), group)
    return group.ledger.clock() - begin


def test_a_collective_takes_longer_between_nodes_than_in_one() -> None:
    near = run_on_ranks(seconds, 8, 1 << 28, cluster=NODE)
    far = run_on_ranks(seconds, 8, 1 << 28, cluster="8x1xH100")
    assert len(set(near)) == len(set(far)) == 1 and far[0] > 2 * near[0] > 0


def overlapped(group: Group) -> tuple[float, float]:
    """Seconds of a product and a sum, one after the other and side by side."""
    a, data, clock = torch.zeros(8192, 8192), torch.zeros(1 << 28), group.ledger.clock
    begin = clock()
    all_reduce(data, group)
    between = clock()
    a @ a
    after = clock()
    work = all_reduce(data, group, async_op=True)
    a @ a
    work.wait()
    return max(between - begin, after - between), clock() - after


def test_communication_goes_on_while_a_rank_computes() -> None:
    for longer, together in run_on_ranks(overlapped, 2, cluster=NODE):
        assert together == pytest.approx(longer, rel=1e-6)


def counted(group: Group) -> int:
    count = torch.tensor(group.rank + 1)
    all_reduce(count, group)
    return int(count)


def test_integers_are_known_and_travel() -> None:
    assert run_on_ranks(counted, 4, cluster=NODE) == [10] * 4


def ring(group: Group) -> list[Any]:
    ring_all_reduce(torch.zeros(1 << 22), group)
    exchange(torch.zeros(8), group.next, torch.zeros(8), group.previous, group)
    return [group.ledger.sent(), group.ledger.clock()]


def test_equal_ranks_are_run_once_and_end_at_the_same_time() -> None:
    whole = simulate(ring, 8, cluster=NODE)
    folded = simulate(ring, 8, cluster=NODE, equal="dp8*")
    assert list(folded.ledgers) == [0] and folded.value(5) == folded.value(0)
    assert folded.value(0)[0] == whole.value(0)[0]
    assert folded.seconds == pytest.approx(whole.seconds, rel=0.05)


def test_a_fold_names_each_ranks_representative() -> None:
    fold = Fold(16, "pp2 dp2* tp4*")
    assert fold.representatives == (0, 8) and fold.of(7) == 0 and fold.of(13) == 8
    for wrong in ("pp2 dp2*", "2pp", "dp4 dp4"):
        with pytest.raises(Refusal):
            Fold(16, wrong)


def everybody_receives(group: Group) -> None:
    recv(torch.zeros(4), group.previous, group)


def test_a_deadlock_is_known_at_once() -> None:
    with pytest.raises(Deadlocked, match="Rank 0 waits in recv from rank 1") as caught:
        simulate(everybody_receives, 2, cluster=NODE)
    assert set(caught.value.reports()) == {0, 1}


def too_much(group: Group) -> None:
    kept = torch.zeros(1, 1) @ torch.zeros(1, 1)
    kept = torch.zeros(30 << 30, dtype=torch.bfloat16)
    kept = torch.stack([kept, kept])


def test_simulations_of_two_threads_leave_torch_as_it_was() -> None:
    """One goes after the other; a simulated rank that simulates is inside of its own."""

    def long(group: Group) -> float:
        for _ in range(50):
            all_reduce(torch.ones(64, 64) @ torch.ones(64, 64), group)
        return simulate(counted, 2, cluster=NODE).seconds

    def watched() -> list[Any]:
        return [torch.tensor, torch.Tensor.tolist, torch.UntypedStorage.resize_]

    before, found = watched(), list[float]()
    threads = [
        threading.Thread(target=lambda: found.append(simulate(long, 2, cluster=NODE).seconds))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert watched() == before and len(set(found)) == 1 and len(found) == 3


def test_errors_are_made_again_by_copy_and_pickle() -> None:
    """A pool of processes hands them on so, and waits for ever for one that cannot be."""

    def raises(group: Group) -> None:
        raise ValueError("boom")

    with pytest.raises(Failed) as failed:
        simulate(raises, 2, cluster=NODE)
    again = pickle.loads(pickle.dumps(failed.value))
    assert str(again) == str(failed.value) == "rank 0: boom"
    assert (again.rank, str(again.cause)) == (0, "boom")
    deadlock = Deadlocked("nobody comes", {})
    assert str(copy.copy(deadlock)) == str(deadlock)


def test_out_of_memory_names_rank_node_and_class() -> None:
    with pytest.raises(OutOfMemory, match="on rank 0 on node 0(.|\n)*of 85.9: activations") as it:
        simulate(too_much, 1, cluster=NODE)
    assert "(2, 32212254720)" in it.value.asked


def needs_a_value(group: Group) -> float:
    return torch.zeros(3).sum().item()


def test_what_needs_values_is_refused() -> None:
    with pytest.raises(Failed, match="no values") as caught:
        simulate(needs_a_value, 2, cluster=NODE)
    assert isinstance(caught.value.cause, Refusal)


@pytest.mark.parametrize(
    ("ranks", "cluster", "says"),
    [(16, NODE, "2x8xH100"), (8, "1x8xH1", "H100"), (8, "H100", "512xH100")],
)
def test_a_cluster_that_cannot_be_is_refused(ranks: int, cluster: str, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        simulate(counted, ranks, cluster=cluster)


def test_a_cell_runs_on_simulated_ranks() -> None:
    source = "from course_lib.comm import all_reduce\nx = torch.randn(1 << 20)\n"
    found = simulated_cell(source + "all_reduce(x, group)\nprint(rank)\nx.shape", "Cell", 4, NODE)
    assert not found.verdict and found.output[3] == b"3\ntorch.Size([1048576])\n"
    assert found.timeline().chrome_trace().count("all_reduce") >= 4
    assert "4 simulated ranks" in found.displays[0][1]["text/plain"]
    stuck = simulated_cell("if rank: all_reduce(torch.ones(1), group)", "Cell", 2, NODE)
    assert stuck.verdict == "raised" and "all_reduce" in stuck.story()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("a = torch.zeros(8, 8)\na @ torch.zeros(8, 1 << 36)", "on rank 0 on node 0"),
        ("if rank == 2:\n    1 / 0", "ZeroDivisionError"),
        ("if rank == 2:\n    torch.zeros(3).sum().item()", "no values"),
    ],
)
def test_a_cell_that_raises_shows_the_readers_line_alone(source: str, says: str) -> None:
    found = simulated_cell(source, "Cell In[7]", 4, NODE)
    assert found.verdict == "raised" and says in found.story()
    assert 'File "Cell In[7]", line 2' in found.story() and "course_lib/" not in found.story()


def looked_at(group: Group) -> int:
    data, looks = torch.zeros(4), 0
    if group.index == 0:
        work = irecv(data, 1, group)
        while not work.is_completed():
            looks += 1
        work.wait()
        return looks
    torch.zeros(2048, 2048) @ torch.zeros(2048, 2048)
    send(data, 0, group)
    return looks


def test_a_rank_that_looks_again_and_again_gets_on() -> None:
    assert run_on_ranks(looked_at, 2, cluster=NODE)[0] > 1


def two_steps(group: Group) -> None:
    """Of a small transformer on pp2 dp2 tp4, with ZeRO-1."""
    config = ModelConfig(layers=4, hidden=64, heads=4, kv_heads=4, ffn=128, sequence=32)
    model = lay_out(
        Transformer(config).to(group.device),
        Mesh(group, {"pp": 2, "dp": 2, "tp": 4}),
        one_f_one_b(2, 4),
        zero=1,
        sequence=True,
    )
    optimizers = make_optimizers(model, AdamW)
    tokens = torch.zeros(16, 32, dtype=torch.int64)
    for _ in range(2):
        train_step(model, own_micro_batches(tokens, tokens, model), optimizers, 1.0)


@pytest.mark.slow
def test_ranks_declared_equal_make_the_same_calls() -> None:
    """A sample of what a fold believes: all ranks are run, and each is held against its stand-in.

    Only the root of a broadcast sends what the others receive, and of a number that a ring cannot
    cut into as many pieces as there are ranks some send more.
    """
    whole = simulate(two_steps, 16, cluster="2x8xH100")
    folded = simulate(two_steps, 16, cluster="2x8xH100", equal="pp2 dp2* tp4*")
    assert tuple(folded.ledgers) == (0, 8) and len(whole.ledgers) == 16
    for rank, ledger in whole.ledgers.items():
        stand_in = folded.ledgers[folded.fold.of(rank)]
        assert len(ledger.events) == len(stand_in.events) > 100
        for mine, its in zip(ledger.events, stand_in.events, strict=True):
            for field in ("op", "axis", "seq", "payload", "shape", "dtype", "step", "parent"):
                assert getattr(mine, field) == getattr(its, field), (rank, field)
            if mine.op != "broadcast" and mine.payload >= 8 * mine.item:
                assert (mine.sent, mine.received) == (its.sent, its.received), (rank, mine.op)
        peak = folded.memories[folded.fold.of(rank)].peak
        assert whole.memories[rank].peak == pytest.approx(peak, rel=0.001)
    assert folded.seconds == pytest.approx(whole.seconds, rel=0.05)


CONFIG = RunConfig(layers=2, hidden=32, heads=2, kv_heads=2, ffn=64, batch=8)


@pytest.mark.parametrize("more", [{"tied": True}, {"precision": "fp8"}])
def test_every_kind_of_training_has_a_step(more: dict[str, Any]) -> None:
    assert "parameters" in simulated_step(replace(CONFIG, dp=2, **more), NODE)


def test_a_gpu_without_eight_bit_units_is_said() -> None:
    with pytest.raises(Refusal, match="8-bit numbers on A100-80"):
        simulated_step(replace(CONFIG, precision="fp8"), "1x8xA100-80")


def routed(group: Group) -> list[int]:
    shape = ModelConfig(layers=1, hidden=32, heads=2, kv_heads=2, moe=MoEConfig(experts=4, top_k=2))
    (layer,) = moe_layers(Transformer(shape))
    routing = layer.router(torch.zeros(8, 32))
    assert all(len(set(row)) == 2 for row in routing.chosen.tolist())
    return list(routing.counts.tolist())


def test_a_router_chooses_by_the_expected_load() -> None:
    assert simulate(routed, 1, cluster=NODE).values[0] == [4, 4, 4, 4]
    assert simulate(routed, 1, cluster=NODE, load=(4, 2, 1, 1)).values[0] == [8, 4, 2, 2]
    with pytest.raises(Refusal, match="none negative"):
        simulate(routed, 1, cluster=NODE, load=(1, -1))


def test_experts_on_simulated_ranks_send_what_an_even_load_sends() -> None:
    found = simulate(one_step, 4, replace(CONFIG, ep=4, experts=4), cluster=NODE)
    exchanged = [e for e in found.ledgers[0].events if e.label == "all_to_all" and e.sent]
    # Of 2 windows of 128 tokens, each to 2 of 4 experts, three quarters go to others; there and
    # back, in the forward and in the backward of 2 layers.
    vectors = [e for e in exchanged if e.sent == 2 * 128 * 2 * 3 / 4 * 32 * 4]
    assert len(vectors) == 2 * 2 * 2


def test_a_program_that_has_just_ended_is_not_stopped_aloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread may still live when the others are stopped."""

    class Slow(SimpleQueue[None]):
        def put(self, item: None, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.05)

    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    monkeypatch.setattr(engine, "SimpleQueue", Slow)
    monkeypatch.setattr(engine, "KNOCK", 0.001)
    assert simulate(lambda group: group.rank, 2, cluster=NODE).values == {0: 0, 1: 1}
    assert not said
