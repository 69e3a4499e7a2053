"""Loss scaling: GradScaler's own sequence in one process, one verdict on many, then clipping."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, all_reduce
from course_lib.parallel import FSDP, Zero2, clip_grad_norm
from course_lib.precision.loss_scaler import DynamicLossScaler
from course_lib.precision.master_weights import MasterWeights

#          good, one infinity, NaN twice in a row, and enough good ones to grow three times
OVERFLOWS = ["", "", "inf", "", "nan", "nan", *[""] * 7, "inf", *[""] * 3]


def train(scaler: Any, ours: bool) -> tuple[list[float], torch.Tensor]:
    """The scale after each update, and the weights at the end."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    scales = []
    for step, overflow in enumerate(OVERFLOWS):
        x = torch.full((4, 3), float(step % 3))
        optimizer.zero_grad()
        scaler.scale(layer(x).pow(2).mean()).backward()
        if overflow:
            layer.weight.grad[1, 2] = float(overflow)
        scaler.unscale(layer.parameters()) if ours else scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.factor if ours else scaler.get_scale())
    return scales, layer.weight.detach().clone()


@pytest.mark.parametrize("options", [(8.0, 2.0, 0.5, 3), (2.0**126, 4.0, 0.25, 1)], ids=str)
def test_the_same_as_torch_in_one_process(ranks: Any, options: Any) -> None:
    """The second one reaches the largest scale that float32 has, and stays there."""

    def run(group: Any) -> Any:
        theirs = torch.amp.GradScaler("cpu", *options)
        expected = train(theirs, ours=False)
        ours = DynamicLossScaler(group, *options)
        found = train(ours, ours=True)
        state, saved = theirs.state_dict(), ours.state_dict()
        again = DynamicLossScaler(group)
        again.load_state_dict(state)
        theirs.load_state_dict(saved)
        states = [state, saved, again.state_dict(), theirs.state_dict()]
        return found, expected, states, ours.skipped

    (((scales, weights), (scales_torch, weights_torch), states, skipped),) = ranks(run, 1)
    assert scales == scales_torch
    assert len(set(scales)) > 2
    assert skipped == 4
    assert torch.equal(weights, weights_torch)
    assert weights.isfinite().all()
    assert all(state == states[0] for state in states)


def test_an_overflow_starts_the_count_anew(ranks: Any) -> None:
    def run(group: Any) -> Any:
        scaler = DynamicLossScaler(group, init=4.0, interval=3)
        weight = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        found = []
        for overflow in (False, False, True, False, False, False):
            weight.grad = torch.full((2,), math.inf if overflow else 1.0)
            scaler.unscale([weight])
            scaler.step(optimizer)
            scaler.update()
            found.append((scaler.factor, scaler.good))
        return found

    for found in ranks(run, 2):
        assert found == [(4.0, 1), (4.0, 2), (2.0, 0), (2.0, 1), (2.0, 2), (4.0, 0)]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_infinity_on_one_rank_stops_all(ranks: Any, world: int) -> None:
    """Each rank in turn; NaN as well; the ranks' own gradients are otherwise different."""

    def run(group: Any) -> Any:
        scaler = DynamicLossScaler(group, init=8.0, interval=100)
        weight = nn.Parameter(torch.zeros(3))
        nothing = nn.Parameter(torch.zeros(0))  # what a rank has of a small parameter under FSDP
        optimizer = torch.optim.SGD([weight, nothing], lr=1.0)
        since = len(group.ledger.events)
        log = []
        for step in range(2 * group.size + 1):
            weight.grad = torch.full((3,), 8.0 * (group.index + 1))
            nothing.grad = torch.zeros(0)
            if step % group.size == group.index and step < 2 * group.size:
                weight.grad[1] = math.inf if step < group.size else math.nan
            verdict = scaler.unscale([weight, nothing])
            log.append((verdict, scaler.step(optimizer), weight.grad is None))
            scaler.update()
        events = [(e.op, e.payload) for e in group.ledger.events[since:]]
        return log, scaler.factor, weight.detach(), events

    steps = 2 * world
    for index, (log, factor, weight, events) in enumerate(ranks(run, world)):
        assert log == [(True, False, True)] * steps + [(False, True, False)]
        assert factor == 8.0 / 2**steps
        assert torch.equal(weight, torch.full((3,), -(index + 1.0) * 2**steps))
        assert events == [("all_reduce", 32)] * (steps + 1)


def test_fp16_gradients_survive_under_a_scale(ranks: Any) -> None:
    """A gradient of 1e-8 is nothing in fp16; scaled by 2^16 it is kept, to fp16's precision."""

    def run(group: Any) -> Any:
        found = []
        for init in (1.0, 2.0**16):
            scaler = DynamicLossScaler(group, init=init)
            weight = nn.Parameter(torch.ones(4, dtype=torch.float16))
            optimizer = MasterWeights([weight], torch.optim.SGD, lr=1e4)
            loss = (weight.float() * 1e-8).sum()
            scaler.scale(loss).backward()
            masters = optimizer.gradients_up()
            scaler.unscale(masters)
            found.append(masters[0].grad.clone())
            scaler.step(optimizer)
            scaler.update()
            found.append(weight.detach().clone())
        half = DynamicLossScaler(group).scale(torch.ones((), dtype=torch.float16))
        return found, half

    (((lost, same, kept, moved), half),) = ranks(run, 1)
    assert torch.equal(lost, torch.zeros(4)) and torch.equal(same, torch.ones_like(same))
    torch.testing.assert_close(kept, torch.full((4,), 1e-8), rtol=2**-10, atol=0)
    torch.testing.assert_close(moved, torch.full_like(moved, 1 - 1e-4), rtol=2**-11, atol=0)
    assert half.item() == 65536.0 and half.dtype == torch.float32


@pytest.mark.parametrize("where", ["fsdp", "zero2"])
def test_sharded_gradients_are_unscaled_before_they_are_clipped(ranks: Any, where: str) -> None:
    """Each rank sees a part; the norm is that of the true gradient, and infinity anywhere stops."""

    def run(group: Any) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        fsdp = FSDP(net, group) if where == "fsdp" else None
        optimizer: Any = (
            torch.optim.SGD(net.parameters(), lr=0.1) if fsdp
            else Zero2(net.parameters(), torch.optim.SGD, group, lr=0.1)
        )  # fmt: skip
        model: Any = fsdp or net
        scaler = DynamicLossScaler(group, init=1024.0)
        x = torch.linspace(-1, 1, 20, dtype=torch.float64).view(4, 5)
        log = []
        for overflow in (False, True, False):
            scaler.scale(model(x).pow(2).mean()).backward()
            mine = list(net.parameters() if fsdp else optimizer.shard())
            if overflow and group.index == group.size - 1:
                next(p.grad for p in reversed(mine) if p.numel()).fill_(math.inf)
            scaler.unscale(mine)
            norm = fsdp.clip_grad_norm(0.1) if fsdp else shard_norm(mine, group)
            log.append((norm.item(), scaler.step(optimizer)))
            scaler.update()
            optimizer.zero_grad()
        whole = fsdp.full_state_dict() if fsdp else net.state_dict()
        return log, {name.removeprefix("module."): t.clone() for name, t in whole.items()}

    def alone(clip: bool) -> tuple[list[float], nn.Module]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        x = torch.linspace(-1, 1, 20, dtype=torch.float64).view(4, 5)
        norms = []
        for _ in range(2):
            net.zero_grad()
            net(x).pow(2).mean().backward()
            norms.append(clip_grad_norm(net.parameters(), 0.1 if clip else math.inf).item())
            torch.optim.SGD(net.parameters(), lr=0.1).step()
        return norms, net

    norms, net = alone(clip=where == "fsdp")
    for world in (1, 3):
        for log, weights in ranks(run, world):
            assert [made for _, made in log] == [True, False, True]
            assert not math.isfinite(log[1][0])
            assert [log[0][0], log[2][0]] == pytest.approx(norms, rel=1e-9)
            for name, right in net.state_dict().items():
                torch.testing.assert_close(weights[name], right, rtol=1e-9, atol=1e-12)


def shard_norm(pieces: list[nn.Parameter], group: Any) -> torch.Tensor:
    """The norm over all ranks' pieces."""
    squares = sum((p.grad.pow(2).sum() for p in pieces), torch.zeros((), dtype=torch.float64))
    all_reduce(squares, group)
    return squares.sqrt()


def test_a_skipped_step_leaves_nothing_behind(ranks: Any) -> None:
    """Momentum, masters and gradients are as if the update had not been tried."""

    def run(group: Any, tried: bool) -> Any:
        scaler = DynamicLossScaler(group, init=2.0)
        weight = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        optimizer = MasterWeights([weight], torch.optim.AdamW, lr=0.1)
        for overflow in (False, True, False):
            if overflow and not tried:
                continue
            weight.grad = torch.full_like(weight, math.inf if overflow else 1.0) * scaler.factor
            scaler.unscale(optimizer.gradients_up())
            scaler.step(optimizer)
            scaler.update()
        return optimizer.state_dict()["state"][0], weight.detach(), scaler.skipped

    ((state, weight, skipped),) = ranks(run, 1, True)
    ((expected, right, _),) = ranks(run, 1, False)
    assert skipped == 1
    assert torch.equal(weight, right)
    assert all(torch.equal(state[key], expected[key]) for key in expected)


def refusals(group: Any) -> dict[str, str]:
    """What wrong use is answered with."""

    def trial(action: Any) -> str:
        try:
            action()
        except CommError as error:
            return str(error)
        return "no error"

    def weight(dtype: torch.dtype = torch.float32, value: float = 1.0) -> nn.Parameter:
        made = nn.Parameter(torch.zeros(2, dtype=dtype))
        made.grad = torch.full_like(made, value)
        return made

    def twice() -> None:
        scaler = DynamicLossScaler(group)
        scaler.unscale([weight()])
        scaler.unscale([weight()])

    def diverged() -> None:
        scaler = DynamicLossScaler(group, backoff=1e-9)
        for _ in range(10):
            scaler.unscale([weight(value=math.nan)])
            scaler.update()

    half = weight(torch.float16)
    sgd = torch.optim.SGD([weight()], lr=1.0)
    return {
        "twice": trial(twice),
        "half": trial(lambda: DynamicLossScaler(group).unscale([half])),
        "still scaled": trial(lambda: DynamicLossScaler(group).step(sgd)),
        "no verdict": trial(lambda: DynamicLossScaler(group).update()),
        "no gradient": trial(lambda: DynamicLossScaler(group).unscale([nn.Parameter(half.data)])),
        "scales": trial(lambda: DynamicLossScaler(group, init=group.rank + 1).unscale([weight()])),
        "diverged": trial(diverged),
        "shrinks": trial(lambda: DynamicLossScaler(group, growth=0.5)),
    }


def test_wrong_use_is_one_clear_error(ranks: Any) -> None:
    words = {
        "twice": "unscaled already",
        "half": "MasterWeights",
        "still scaled": "unscale() them first",
        "no verdict": "unscale() them first",
        "no gradient": "no gradient on any rank",
        "scales": "scales from 1 to 2",
        "diverged": "diverged",
        "shrinks": "grows by more than 1",
    }
    for found in ranks(refusals, 2):
        assert found.keys() == words.keys()
        for case, text in found.items():
            assert words[case] in text, (case, text)
            assert len(text.splitlines()) == 3


def test_parameters_given_twice_sparse_and_complex_ones(ranks: Any) -> None:
    def run(group: Any) -> Any:
        table = nn.Embedding(4, 2, sparse=True)
        phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))
        shared = nn.Parameter(torch.ones(2))
        scaler = DynamicLossScaler(group, init=1024.0)
        found = []
        for wrong in (1.0, math.inf):
            table.zero_grad()
            phase.grad = shared.grad = None
            loss = table(torch.tensor([1, 1])).sum() + (phase.real * 3).sum() + shared.sum()
            scaler.scale(loss * (wrong if group.rank == 1 else 1.0)).backward()
            found.append(scaler.unscale([shared, *table.parameters(), phase, shared]))
            sizes = [p.grad.to_dense().abs().sum() for p in (shared, table.weight, phase)]
            found.append([float(size) for size in sizes])
            scaler.update()
        return found

    good, bad = ranks(run, 2)
    assert good[:3] == [False, [2.0, 4.0, 6.0], True]
    assert bad[:3] == good[:3]


def test_a_state_is_loaded_in_the_middle_of_an_update(ranks: Any) -> None:
    def run(group: Any) -> list[float]:
        layer, scaler = nn.Linear(2, 2), DynamicLossScaler(group, init=64.0)
        saved = scaler.state_dict()
        for _ in range(2):  # the first time an exception ends the update before its step
            layer.zero_grad()
            scaler.load_state_dict(saved)
            scaler.scale(layer(torch.ones(1, 2)).sum()).backward()
            scaler.unscale(layer.parameters())
        return layer.bias.grad.tolist()

    assert ranks(run, 2) == [[1.0, 1.0]] * 2
