"""Offload: the same weights as one optimizer, no state on the device, the bytes of the formula."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.parallel.offload.device_pool import DevicePool, OutOfMemory
from course_lib.parallel.offload.nvme import NvmeStore
from course_lib.parallel.offload.nvme_optimizer import NvmeOptimizer
from course_lib.parallel.offload.optimizer import OffloadedAdam, OffloadedOptimizer
from course_lib.parallel.zero.zero1 import Zero1
from course_lib.trace import Refusal

CASES = [("SGD", {"lr": 0.1, "momentum": 0.9}), ("AdamW", {"lr": 0.05}), ("Adagrad", {"lr": 0.1})]


@pytest.fixture
def pool() -> Iterator[DevicePool]:
    with DevicePool(1 << 30) as made:
        yield made


def build(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(3, 3)).to(dtype)
    model[2].bias.requires_grad_(False)
    return model


def batch_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(12, 7, generator=generator, dtype=torch.float64)


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    parts = [part for part in model.children() if isinstance(part, nn.Linear)]
    return [{"params": list(parts[0].parameters()), "weight_decay": 0.1},
            {"params": [p for part in parts[1:] for p in part.parameters()]}]  # fmt: skip


def train(model: nn.Module, optimizer: Any, micro: int = 1, part: Any = lambda x: x) -> list[Any]:
    """Five steps; the last layer is not used in the second and third, and the rate halves."""
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(5):
        optimizer.zero_grad()
        used = model[:3] if step in (1, 2) else model
        for piece in part(batch_of(step)).chunk(micro):
            (used(piece).pow(2).mean() / micro).backward()
        optimizer.step()
        schedule.step()
    return [p.detach().clone() for p in model.parameters()]


def alone(name: str, options: dict[str, Any], micro: int = 1) -> list[torch.Tensor]:
    model = build()
    optimizer = getattr(torch.optim, name)(groups_of(model), **options)
    return train(model, optimizer, micro)


@pytest.mark.parametrize("during_backward", [False, True])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_equal_to_the_optimizer_itself(
    pool: DevicePool, name: str, options: dict[str, Any], during_backward: bool
) -> None:
    model = build()
    kind = getattr(torch.optim, name)
    optimizer = OffloadedOptimizer(
        groups_of(model), kind, pool, during_backward=during_backward, **options
    )
    assert optimizer.param_groups[1]["lr"] == options["lr"]
    torch.testing.assert_close(
        train(model, optimizer, 2), alone(name, options, 2), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(("name", "options"), CASES)
def test_state_in_files_changes_nothing(
    pool: DevicePool, tmp_path: Any, name: str, options: dict[str, Any]
) -> None:
    model = build()
    with NvmeStore(tmp_path / "rank0") as store:
        optimizer = NvmeOptimizer(
            groups_of(model), getattr(torch.optim, name), pool, store, **options
        )
        torch.testing.assert_close(
            train(model, optimizer), alone(name, options), rtol=1e-9, atol=1e-12
        )
        assert optimizer.host_bytes() == 0
        states = 2 if name == "AdamW" else 1
        each = [p.nbytes * (1 + states) for p in model.parameters() if p.requires_grad]
        assert optimizer.host_peak == max(sum(each[i : i + 3]) for i in range(len(each)))
        with pytest.raises(Refusal, match="copy the folder"):
            optimizer.state_dict()


@pytest.mark.parametrize("world", [1, 3])
def test_over_a_shard_of_zero(ranks: Any, world: int) -> None:
    def run(group: Any) -> Any:
        model = build()
        with DevicePool(1 << 20, group.ledger) as pool:
            made = partial(OffloadedOptimizer, optimizer=torch.optim.AdamW, pool=pool)
            optimizer = Zero1(groups_of(model), made, group, find_unused_parameters=True, lr=0.05)
            weights = train(model, optimizer, part=lambda x: x.chunk(group.size)[group.index])
            return weights, optimizer.inner.host_bytes(), pool.down

    results = ranks(run, world)
    for weights, _, _ in results:
        torch.testing.assert_close(weights, alone("AdamW", {"lr": 0.05}), rtol=1e-9, atol=1e-12)
    trained = sum(p.numel() for p in build().parameters() if p.requires_grad)
    assert sum(host for _, host, _ in results) == 3 * trained * 8  # each on one host only
    if world == 3:
        assert max(host for _, host, _ in results) < 0.4 * 3 * trained * 8


def test_only_gradients_and_parameters_travel_and_no_state_is_there(pool: DevicePool) -> None:
    model = build(torch.bfloat16)
    optimizer = OffloadedAdam(model.parameters(), pool, lr=0.05)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert pool.held == 2 * trained
    before = (pool.down, pool.up)
    model(batch_of(0).bfloat16()).float().pow(2).mean().backward()
    optimizer.step()
    assert (pool.down - before[0], pool.up - before[1]) == (2 * trained, 2 * trained)
    assert optimizer.host_bytes() == 12 * trained  # master, first and second moment in float32
    assert not pool.ledger.peak.get("optimizer state")


def test_updates_too_small_for_bfloat16_are_not_lost(pool: DevicePool) -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = OffloadedOptimizer([weight], torch.optim.SGD, pool, lr=1e-3)
    for _ in range(10):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert torch.equal(weight, torch.full_like(weight, 0.99))


def test_gradients_leave_the_device_during_backward(pool: DevicePool) -> None:
    model = build()
    optimizer = OffloadedAdam(model.parameters(), pool, during_backward=True)
    seen = []
    model[0].weight.register_post_accumulate_grad_hook(
        lambda _: seen.append([p.grad is None for p in model[2:].parameters()])
    )
    model(batch_of(0)).pow(2).mean().backward()
    assert all(seen[0])
    before = model[0].weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, model[0].weight)


def test_state_is_saved_and_loaded(pool: DevicePool) -> None:
    first, second = build(), build()
    ours = OffloadedAdam(first.parameters(), pool, lr=0.1)
    train(first, ours)
    theirs = OffloadedAdam(second.parameters(), pool, lr=0.1)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    for model, optimizer in ((first, ours), (second, theirs)):
        optimizer.zero_grad()
        model(batch_of(9)).sum().backward()
        optimizer.step()
    torch.testing.assert_close(list(first.parameters()), list(second.parameters()))


# --- the device ----------------------------------------------------------------------------------
def test_a_full_device_says_so_in_three_lines() -> None:
    with DevicePool(1000) as pool:
        pool.take(600, "parameters", "the embedding")
        with pytest.raises(OutOfMemory) as caught:
            pool.take(401, "activations", "block 3")
        assert str(caught.value).splitlines() == [
            "asked: 401 bytes for block 3 (activations)",
            "found: 600 of 1,000 bytes are in use",
            "why: 400 bytes are free: keep less on the device at a time",
        ]
        pool.give(600, "parameters")
        pool.take(1000, "activations")
        assert (pool.held, pool.peak) == (1000, 1000)
        with pytest.raises(OutOfMemory):
            OffloadedAdam([nn.Parameter(torch.ones(1))], pool)


def test_a_copy_takes_its_time_beside_other_work_and_poison_shows_who_does_not_wait() -> None:
    with DevicePool(1 << 20, bandwidth=80 * 8 / 0.3, poison=True) as pool:
        tensor = torch.empty(80, dtype=torch.float64)
        tensor.untyped_storage().resize_(0)
        pool.grow(tensor, "parameters", "a layer")
        begin = time.monotonic()
        copy = pool.copy_up(torch.ones(80, dtype=torch.float64), tensor)
        assert tensor.isnan().all()
        assert not copy.done
        assert copy.wait().eq(1).all()
        assert time.monotonic() - begin >= 0.3  # never quicker than the link
        values = tensor.view(8, 10)
        pool.shrink(tensor, "parameters")
        assert values.untyped_storage().nbytes() == 0
        assert pool.held == 0


def test_a_link_does_not_cast(pool: DevicePool) -> None:
    with pytest.raises(ValueError, match="a link moves bytes"):
        pool.copy_up(torch.ones(3), torch.ones(3, dtype=torch.float64))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu() -> None:
    model = build().cuda()
    with DevicePool(1 << 30, device="cuda") as pool:
        optimizer = OffloadedAdam(groups_of(model), pool, lr=0.05)
        weights = train(model, optimizer, part=lambda x: x.cuda())
    expected = alone("AdamW", {"lr": 0.05})
    for ours, theirs in zip(weights, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-9, atol=1e-12)


def rewrites() -> list[Any]:
    def loads(model: nn.Module, values: list[torch.Tensor]) -> None:
        model.load_state_dict(dict(zip(model.state_dict(), values, strict=True)))

    def replaces(model: nn.Module, values: list[torch.Tensor]) -> None:
        torch.nn.utils.vector_to_parameters(
            torch.cat([value.reshape(-1) for value in values]), model.parameters()
        )

    return [loads, replaces]


@pytest.mark.parametrize("write", rewrites())
@pytest.mark.parametrize("kind", ["host", "files"])
def test_what_somebody_else_writes_to_a_parameter_is_kept(
    pool: DevicePool, tmp_path: Any, write: Any, kind: str
) -> None:
    model, alone = build(), build()
    options = {"lr": 0.05}
    with NvmeStore(tmp_path) as store:
        optimizer: Any = (
            NvmeOptimizer(model.parameters(), torch.optim.AdamW, pool, store, **options)
            if kind == "files"
            else OffloadedAdam(model.parameters(), pool, **options)
        )
        other = torch.optim.AdamW(alone.parameters(), **options)
        for _ in range(2):
            for net in (model, alone):
                write(net, [3 * p.detach() for p in net.parameters()])
            train(model, optimizer)
            train(alone, other)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_only_what_was_written_goes_down_again_and_small_updates_stay(pool: DevicePool) -> None:
    parameter = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = OffloadedOptimizer([parameter], torch.optim.SGD, pool, lr=1e-3)
    for step in range(5):
        if step:
            down = pool.down
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        if step == 2:  # one element is written to; the others keep what bfloat16 does not show
            parameter.detach()[0] = 3
    assert pool.down - down == parameter.nbytes
    assert parameter.tolist() == [3, 0.99609375, 0.99609375, 0.99609375]


@pytest.mark.parametrize("world", [2])
def test_over_a_shard_of_zero_a_loaded_state_counts(ranks: Any, world: int) -> None:
    def run(group: Any) -> Any:
        model = build()
        with DevicePool(1 << 30) as pool:
            make = partial(OffloadedOptimizer, optimizer=torch.optim.SGD, pool=pool)
            optimizer = Zero1(model.parameters(), make, group, lr=0.0)
            model.load_state_dict({n: v * 0 + 0.5 for n, v in model.state_dict().items()})
            down = pool.down
            for step in range(2):
                model(batch_of(step)).sum().backward()
                optimizer.step()
            found = [p.detach().unique().tolist() for p in model.parameters()]
            return found, pool.down - down, sum(piece.nbytes for piece in optimizer.shard())

    for found, down, piece in ranks(run, world):
        assert found == [[0.5]] * 6
        assert down == 3 * piece  # the loaded values once, and two gradients


def test_an_earlier_optimizer_that_moves_gradients_down_is_refused(pool: DevicePool) -> None:
    model = build()
    earlier = OffloadedAdam(model.parameters(), pool, during_backward=True)
    later = OffloadedAdam(model.parameters(), pool, during_backward=True)
    with pytest.raises(Refusal, match="another hook"):
        model(batch_of(0)).sum().backward()
    del earlier
    model.zero_grad()
    before = model[0].weight.detach().clone()
    model(batch_of(0)).sum().backward()
    later.step()
    assert not torch.equal(model[0].weight, before)


def test_two_optimizers_do_not_share_a_store(pool: DevicePool, tmp_path: Any) -> None:
    with NvmeStore(tmp_path) as store:
        first, second = [
            (net, NvmeOptimizer(net.parameters(), torch.optim.SGD, pool, store, lr=0.1))
            for net in (build(), build())
        ]
        for net, _ in (first, second):
            net(batch_of(0)).sum().backward()
        with pytest.raises(Refusal, match="another optimizer was made with this store"):
            first[1].step()
        second[1].step()
        with pytest.raises(Refusal, match="copy the folder"):
            second[1].load_state_dict({})
