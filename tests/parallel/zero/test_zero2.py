"""ZeRO-1 and ZeRO-2 beside one process: weights, bytes, state, and the gradients that are held."""

from __future__ import annotations

import copy
import gc
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError
from course_lib.parallel.data.unused import agree_used
from course_lib.parallel.zero.zero1 import Zero1
from course_lib.parallel.zero.zero2 import Zero2
from course_lib.precision import MasterWeights
from course_lib.trace.memory import LiveMemory, held_bytes

SGD = ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1})
ADAMW = ("AdamW", {"lr": 0.05})
BOTH = pytest.mark.parametrize("kind", [Zero1, Zero2])
SMALL = 300  # bytes of a bucket: several of them, and a parameter that is larger


class Model(nn.Module):
    """A tied, a frozen, an unused parameter, one that only some ranks use, and two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(7, 5).double()
        self.middle = nn.Linear(5, 5).double()
        self.again = nn.Linear(5, 5).double()
        self.again.weight = self.middle.weight
        self.head = nn.Linear(5, 3).double()
        self.head.bias.requires_grad_(False)
        self.beside = nn.Linear(7, 3)
        self.unused = nn.Parameter(torch.ones(4, dtype=torch.float64))
        self.sometimes = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x: torch.Tensor, sometimes: bool) -> torch.Tensor:
        hidden = self.again(self.middle(self.first(x).tanh()).tanh())
        y = self.head(hidden)
        loss = (y * self.sometimes if sometimes else y).pow(2).mean()
        return loss + self.beside(x.float()).pow(2).mean().double()

    def groups(self) -> list[dict[str, Any]]:
        late = [*self.middle.parameters(), *self.again.parameters(), *self.head.parameters()]
        early = [*self.first.parameters(), *self.beside.parameters(), self.unused, self.sometimes]
        unique = {id(p): p for p in late}
        return [{"params": early, "weight_decay": 0.01}, {"params": list(unique.values())}]


def loss_of(model: Model, step: int, rank: int, world: int) -> torch.Tensor:
    """The loss of one rank; `sometimes` is used by the last rank, from the second step on."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    return model(x, step // 2 > 0 and rank == world - 1)


def train(optimizer: Any, backward: Any, steps: int = 4) -> None:
    """Two backwards a step, and a learning rate that falls."""
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(steps):
        optimizer.zero_grad()
        backward(2 * step)
        backward(2 * step + 1)
        optimizer.step()
        schedule.step()


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


@BOTH
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize(("name", "options"), [SGD, ADAMW])
def test_equal_to_one_process(
    ranks: Any, kind: Any, world: int, name: str, options: dict[str, Any]
) -> None:
    def run(group: Any) -> Any:
        model = Model()
        if group.rank:
            model.head.weight.data.add_(1)  # another seed than index 0
        optimizer = kind(
            model.groups(), getattr(torch.optim, name), group,
            cap=SMALL, find_unused_parameters=True, **options,
        )  # fmt: skip
        train(optimizer, lambda step: loss_of(model, step, group.index, group.size).backward())
        return weights(model), all(p.grad is None for p in model.parameters())

    alone = Model()
    expected = getattr(torch.optim, name)(alone.groups(), **options)

    def backward(step: int) -> None:
        for rank in range(world):
            (loss_of(alone, step, rank, world) / world).backward()

    train(expected, backward)
    for found, all_none in ranks(run, world):
        assert all_none
        for value, right in zip(found, weights(alone), strict=True):
            rtol, atol = (1e-9, 1e-12) if right.dtype == torch.float64 else (1e-4, 1e-5)
            torch.testing.assert_close(value, right, rtol=rtol, atol=atol)
    assert torch.equal(alone.unused, torch.ones(4, dtype=torch.float64)), "one process skips it"


def stack(width: int = 16, depth: int = 8, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(dtype)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_gradients_in_their_own_dtype(ranks: Any, kind: Any, dtype: torch.dtype) -> None:
    def run(group: Any) -> Any:
        model = stack(5, 3, dtype)
        optimizer = kind(model.parameters(), torch.optim.SGD, group, cap=100, lr=0.1)
        x = torch.linspace(-1, 1, 10).view(2, 5).to(dtype) * (group.index + 1)
        model(x).pow(2).mean().backward()
        optimizer.step()
        return weights(model)

    alone = stack(5, 3, dtype)
    for index in range(3):
        x = torch.linspace(-1, 1, 10).view(2, 5).to(dtype) * (index + 1)
        (alone(x).pow(2).mean() / 3).backward()
    torch.optim.SGD(alone.parameters(), lr=0.1).step()
    tolerance = 8 * torch.finfo(dtype).eps
    for found in ranks(run, 3):
        torch.testing.assert_close(found, weights(alone), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "passes"), [(Zero1, 2), (Zero2, 4)])
def test_bytes_and_state_are_the_formula(ranks: Any, kind: Any, passes: int) -> None:
    """ZeRO-1: one reduce-scatter, one all-gather. ZeRO-2: one reduce-scatter each backward."""

    def run(group: Any) -> Any:
        model = stack(7, 3)
        optimizer = kind(model.parameters(), torch.optim.AdamW, group, cap=SMALL)
        since = len(group.ledger.events)
        for _ in range(3):
            model(torch.ones(2, 7, dtype=torch.float64)).sum().backward()
        optimizer.step()
        calls = [e for e in group.ledger.events[since:] if e.parent < 0]
        sizes = [sum(p.numel() for p in bucket.parameters) for bucket in optimizer.buckets]
        return optimizer.state_bytes(), sum(e.sent for e in calls), len(calls), sizes

    world = 4
    results = ranks(run, world)
    sizes = results[0][3]
    padded = sum(-(-size // world) * world for size in sizes)
    assert sum(sizes) == 3 * (49 + 7)
    assert sizes == [7, 49, 7, 49, 7, 49]  # 56 bytes of biases would fit, 392 of weights do not
    assert {sent for _, sent, _, _ in results} == {passes * (world - 1) * padded // world * 8}
    assert {count for _, _, count, _ in results} == {passes * len(sizes)}
    states = [state for state, _, _, _ in results]
    assert sum(states) == 2 * sum(sizes) * 8
    assert max(states) <= 2 * padded // world * 8


@pytest.mark.parametrize("world", [1, 2, 4])
def test_peak_of_the_gradients(ranks: Any, world: int) -> None:
    """S/N and two buckets during backward, S/N after it, nothing after the step."""
    layer, activations = 64 * 65 * 8, 4 * 64 * 8

    def once(group: Any) -> Any:
        model = stack(64, 12)
        optimizer = Zero2(model.parameters(), torch.optim.SGD, group, cap=2 * layer, lr=0.1)
        x = torch.ones(1, 64, dtype=torch.float64)
        peaks, rests = [], []
        for _ in range(2):  # the second adds to the shard of the first
            loss = model(x).sum()
            with LiveMemory() as memory:
                loss.backward()
            peaks.append(memory.peak)
            held = held_bytes([p.grad for p in optimizer.shard() if p.grad is not None])
            full = sum(p.grad is not None for p in model.parameters())
            rests.append((held, full, group.ledger.held["gradients"]))
        peak = group.ledger.peak["gradients"]
        optimizer.step()
        left = [p for p in optimizer.shard() if p.grad is not None]
        return peaks, rests, peak, (group.ledger.held["gradients"], len(left))

    total = 12 * layer
    # A backend's thread may hold a bucket a little longer than its call: the least of some tries.
    for tries in ranks(lambda group: [once(group) for _ in range(5)], world):
        first, second = (min(peaks[n] for peaks, *_ in tries) for n in (0, 1))
        assert first <= total // world + 2 * 2 * layer + activations
        assert second <= 2 * 2 * layer + activations, "the shard was there already"
        for _, rests, peak, after_step in tries:
            assert rests == [(total // world, 0, total // world)] * 2
            assert peak <= total // world + 2 * layer
            assert after_step == (0, 0)


@BOTH
def test_a_missing_gradient_is_refused_unless_allowed(ranks: Any, kind: Any) -> None:
    def run(group: Any) -> str:
        model = Model()
        optimizer = kind(model.groups(), torch.optim.SGD, group, lr=0.1)
        try:
            loss_of(model, 0, group.index, group.size).backward()
            optimizer.step()
        except CommError as error:
            return str(error)
        return ""

    first, second, third = ranks(run, 2)[1].splitlines()
    assert first == f"asked: {kind.__name__} with a gradient for each of 10 parameters"
    assert second.startswith("found: none for 2 of them on rank 1, of shapes ")
    assert "(4,)" in second and "(3,)" in second
    assert "find_unused_parameters=True" in third


def test_ranks_that_use_different_parameters(ranks: Any) -> None:
    """Buckets become complete in another order on every rank, and still meet."""

    def run(group: Any) -> Any:
        model = stack(6, 4)
        optimizer = Zero2(
            model.parameters(), torch.optim.SGD, group,
            cap=100, find_unused_parameters=True, lr=0.1, weight_decay=0.1,
        )  # fmt: skip
        x = torch.ones(1, 6, dtype=torch.float64)
        model[group.index](x).sum().backward()
        optimizer.step()
        return weights(model)

    alone = stack(6, 4)
    for layer in alone[:3]:
        (layer(torch.ones(1, 6, dtype=torch.float64)).sum() / 3).backward()
    torch.optim.SGD(alone.parameters(), lr=0.1, weight_decay=0.1).step()
    for found in ranks(run, 3):
        torch.testing.assert_close(found, weights(alone), rtol=1e-12, atol=1e-12)


def test_agree_used(ranks: Any) -> None:
    def run(group: Any) -> Any:
        agreed = agree_used([group.index == 0, False, group.index == 2, True], group)
        (event,) = [e for e in group.ledger.events if e.parent < 0]
        return agreed, event.op, event.payload

    assert ranks(run, 3) == [([True, False, True, True], "all_reduce", 4)] * 3


def test_clipping_between_backward_and_step(ranks: Any) -> None:
    """The pieces of all ranks are all the gradients, each element once."""

    def run(group: Any) -> Any:
        model = stack(6, 3)
        optimizer = Zero2(model.parameters(), torch.optim.SGD, group, cap=100, lr=1.0)
        (model(torch.ones(2, 6, dtype=torch.float64) + group.index).sum() * 100).backward()
        return sum(float(p.grad.pow(2).sum()) for p in optimizer.shard() if p.grad is not None)

    alone = stack(6, 3)
    for index in range(4):
        (alone(torch.ones(2, 6, dtype=torch.float64) + index).sum() * 25).backward()
    norm = nn.utils.get_total_norm(p.grad for p in alone.parameters() if p.grad is not None)
    assert sum(ranks(run, 4)) == pytest.approx(float(norm) ** 2, rel=1e-12)


@BOTH
def test_later_groups_more_ranks_than_elements_and_a_saved_state(ranks: Any, kind: Any) -> None:
    def run(group: Any) -> Any:
        def make(model: nn.Sequential) -> Any:
            optimizer = kind(model[0].parameters(), torch.optim.AdamW, group, lr=0.1)
            optimizer.add_param_group({"params": [model[1].weight], "lr": 0.2})
            optimizer.add_param_group({"params": [model[1].bias]})
            return optimizer

        def steps(model: nn.Sequential, optimizer: Any) -> None:
            for _ in range(2):
                model.zero_grad()  # not the optimizer's: a step has used the gradients up
                model(torch.ones(2, 2, dtype=torch.float64)).pow(2).sum().backward()
                optimizer.step()

        first, again = stack(2, 2), stack(2, 2)
        before, after = make(first), make(again)
        steps(first, before)
        again.load_state_dict(first.state_dict())
        after.load_state_dict(copy.deepcopy(before.state_dict()))
        steps(first, before)
        steps(again, after)
        return weights(first), weights(again), len(after.param_groups)

    alone = stack(2, 2)
    optimizer = torch.optim.AdamW(
        [{"params": alone[0].parameters()}, {"params": [alone[1].weight], "lr": 0.2},
         {"params": [alone[1].bias]}], lr=0.1)  # fmt: skip
    for _ in range(4):
        alone.zero_grad()
        alone(torch.ones(2, 2, dtype=torch.float64)).pow(2).sum().backward()
        optimizer.step()
    for found, resumed, groups in ranks(run, 3):
        assert groups == 3
        torch.testing.assert_close(found, weights(alone), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(resumed, found, rtol=0, atol=0)


def test_a_backward_that_breaks_leaves_nothing_behind(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = stack(4, 3)
        optimizer = Zero2(model.parameters(), torch.optim.SGD, group, cap=SMALL, lr=0.1)
        broken = model[1].register_full_backward_hook(lambda *_: 1 / 0)
        x = torch.ones(2, 4, dtype=torch.float64)
        with pytest.raises(ZeroDivisionError):
            model(x).sum().backward()
        broken.remove()
        optimizer.zero_grad()
        held = group.ledger.held["gradients"]
        model(x).sum().backward()
        optimizer.step()
        return held, weights(model)

    alone = stack(4, 3)
    alone(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    torch.optim.SGD(alone.parameters(), lr=0.1).step()
    for held, found in ranks(run, 2):
        assert held == 0
        torch.testing.assert_close(found, weights(alone), rtol=1e-12, atol=1e-12)


def test_zero_grad_reaches_the_gradients_of_masters(ranks: Any) -> None:
    """They are not the parameters' own, and would be added to those of the next step."""

    def run(group: Any, throw_away: bool) -> list[torch.Tensor]:
        model = stack(depth=2, dtype=torch.bfloat16)
        make = partial(MasterWeights, optimizer=torch.optim.SGD)
        optimizer = Zero2(model.parameters(), make, group, lr=0.5)
        x = torch.ones(2, 16, dtype=torch.bfloat16)
        if throw_away:  # as a loss scaler does after an overflow
            model(x).sum().backward()
            optimizer.inner.gradients_up()
            optimizer.zero_grad()
            assert all(p.grad is None for p in optimizer.inner.inner.param_groups[0]["params"])
        model(-x).sum().backward()
        optimizer.inner.gradients_up()
        optimizer.step()
        return weights(model)

    for with_it, without in zip(ranks(run, 2, True), ranks(run, 2, False), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(with_it, without, strict=True))


def test_two_of_one_model_are_refused(ranks: Any) -> None:
    def run(group: Any) -> tuple[str, bool]:
        model = stack(4, 1)
        both = [Zero2(model.parameters(), torch.optim.SGD, group, lr=0.1) for _ in range(2)]
        text = ""
        try:
            model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
        except CommError as error:
            text = str(error)
        del both[0]  # a model may get a new one in place of the old
        gc.collect()
        both[0].zero_grad()
        model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
        return text, all(piece.grad is not None for piece in both[0].shard())

    assert ranks(run, 1)[0][1]
    assert "two Zero2 of one model" in ranks(run, 1)[0][0]


@pytest.mark.parametrize("unused", [False, True])
def test_gradients_that_no_backward_gave_are_not_passed_over(ranks: Any, unused: bool) -> None:
    """With find_unused_parameters, a step would take their parameters for unused."""

    def run(group: Any) -> str:
        model = stack(4, 1)
        optimizer = Zero2(model.parameters(), torch.optim.SGD, group, lr=0.1,
                          find_unused_parameters=unused)  # fmt: skip
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        with pytest.raises(CommError) as caught:
            optimizer.step()
        return str(caught.value)

    assert all("that no backward has given it" in text for text in ranks(run, 2))
