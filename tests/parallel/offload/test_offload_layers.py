"""Layers and activations that come and go: the same gradients, two on the device, no race."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.model import ModelConfig, Transformer, cross_entropy
from course_lib.parallel.offload.activation_offload import offload_activations
from course_lib.parallel.offload.device_pool import DevicePool, OutOfMemory
from course_lib.parallel.offload.layer_stream import LayerStream
from course_lib.trace import Ledger, Refusal

LAYERS = 5


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Residual(6) for _ in range(LAYERS))).double()


def layer_bytes() -> int:
    return sum(p.nbytes for p in build()[0].parameters())


def batch_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, 6, generator=generator, dtype=torch.float64)


def train(model: nn.Module, optimizer: Any, steps: int = 4) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        with torch.no_grad():
            model(batch_of(99))  # a forward without a backward in between
        for micro in batch_of(step).chunk(2):
            (model(micro).pow(2).mean() / 2).backward()
        optimizer.step()


@pytest.mark.parametrize("frozen", [0, 2])
@pytest.mark.parametrize(("kind", "lr"), [(torch.optim.SGD, 0.1), (torch.optim.AdamW, 0.01)])
def test_streamed_layers_train_as_resident_ones(kind: Any, lr: float, frozen: int) -> None:
    alone, model = build(), build()
    for part in (alone, model):
        part[:frozen].requires_grad_(False)
    train(alone, kind(alone.parameters(), lr=lr))
    # A slow link: if anything reads before the copy has ended, it reads NaN.
    budget = 3 * layer_bytes()  # two layers, and one layer's gradients
    with DevicePool(budget, bandwidth=layer_bytes() / 2e-3, poison=True) as pool:
        stream = LayerStream(list(model), pool)
        assert pool.held == 0
        train(model, kind(stream.parameters(), lr=lr))
        assert pool.held == 0
        masters = stream.parameters()
    expected = list(alone.parameters())
    torch.testing.assert_close(masters, expected, rtol=1e-9, atol=1e-12)


def run_once(pool: DevicePool, ledger: Ledger) -> None:
    model = build()
    with pool:
        LayerStream(list(model), pool)
        model(batch_of(0)).sum().backward()


def test_two_layers_are_resident_and_the_next_comes_while_one_computes() -> None:
    ledger = Ledger(0)
    run_once(DevicePool(1 << 20, ledger, bandwidth=layer_bytes() / 1e-3), ledger)
    resident: set[str] = set()
    moments = [(s.begin, s.name) for s in ledger.spans if s.begin == s.end]
    for _, name in sorted(moments):
        word, layer = name.split()
        if word == "gather":
            resident.add(layer)
        elif word == "free":
            resident.discard(layer)
        assert len(resident) <= 2
    assert not resident
    assert ledger.peak["parameters"] == 2 * layer_bytes()
    assert ledger.peak["gradients"] == layer_bytes()

    def at(what: str, layer: int, which: int) -> float:
        return [s.begin for s in ledger.spans if s.name == f"{what} blocks.{layer}"][which]

    def end(what: str, layer: int) -> float:
        return next(s.end for s in ledger.spans if s.name == f"{what} blocks.{layer}")

    for layer in range(LAYERS - 1):
        assert at("gather", layer + 1, 0) <= end("forward", layer)
        assert at("gather", layer, -1) <= end("backward", layer + 1)
        assert at("gathered", layer, 0) <= at("forward", layer, 0)
        assert at("gathered", layer, -1) <= at("backward", layer, 0)


def test_bytes_are_twice_up_and_once_down() -> None:
    ledger = Ledger(0)
    pool = DevicePool(1 << 20, ledger)
    run_once(pool, ledger)
    whole = LAYERS * layer_bytes()
    assert pool.up == 2 * whole - layer_bytes()  # the last one stays between the passes
    assert pool.down == whole + whole  # once when it was moved out, once as gradients


def test_a_device_that_is_too_small_says_which_layer() -> None:
    model = build()
    with DevicePool(2 * layer_bytes() - 1) as pool:
        LayerStream(list(model), pool)
        with pytest.raises(OutOfMemory, match="blocks.1"):
            model(batch_of(0))


def test_tied_layers_are_refused() -> None:
    layer = Residual(4)
    with DevicePool(1 << 20) as pool, pytest.raises(ValueError, match="in two of them"):
        LayerStream([layer, layer], pool)


# --- activations ---------------------------------------------------------------------------------
def test_activations_come_back_and_the_device_holds_few() -> None:
    config = ModelConfig(layers=3, hidden=32, heads=4, kv_heads=2, ffn=48, vocabulary=64)
    tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(0))
    alone, model = Transformer(config).double(), Transformer(config).double()
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        is_weight = isinstance(tensor._base if tensor._base is not None else tensor, nn.Parameter)
        kept.append(0 if is_weight else tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = cross_entropy(alone(tokens), tokens)
    loss.backward()
    with DevicePool(1 << 24) as pool:
        with offload_activations(pool, smallest=1024):
            again = cross_entropy(model(tokens), tokens)
        down = pool.down
        assert pool.up == 0
        assert pool.ledger.held["activations"] <= 2 * max(kept)
        again.backward()
        del again
        assert down <= pool.up <= sum(kept)
        assert 0.5 * sum(kept) < down < sum(kept)  # what is saved several times goes down once
        assert pool.ledger.peak["activations"] < 0.2 * sum(kept)
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_a_tensor_that_is_not_contiguous_comes_back_as_it_was() -> None:
    with DevicePool(1 << 20) as pool:
        x = torch.randn(8, 9, dtype=torch.float64, requires_grad=True)
        with offload_activations(pool, smallest=1):
            y = (x.t()[1:].exp() * x.t()[1:].sin()).sum()
        y.backward()
        wide = x.detach().clone().requires_grad_(True)
        (wide.t()[1:].exp() * wide.t()[1:].sin()).sum().backward()
        torch.testing.assert_close(x.grad, wide.grad)


def stream_of(*layers: nn.Module) -> tuple[nn.Sequential, nn.Sequential, LayerStream]:
    """Layers that are streamed, the same that are not, and the stream."""
    model = nn.Sequential(*layers)
    alone = copy.deepcopy(model)
    return model, alone, LayerStream(list(model), DevicePool(1 << 20, poison=True))


def linears() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(4, 4) for _ in range(4)]


def evaluation_between(model: nn.Sequential, x: torch.Tensor) -> None:
    loss = model(x).square().sum()
    with torch.no_grad():
        model(x)
    loss.backward()


def the_first_half(model: nn.Sequential, x: torch.Tensor) -> None:
    model[1](model[0](x)).square().sum().backward()


def two_losses(model: nn.Sequential, x: torch.Tensor) -> None:
    (model(x).square().sum() + model(x + 1).square().sum()).backward()


@pytest.mark.parametrize("backward", [evaluation_between, the_first_half, two_losses])
def test_what_was_counted_is_given_back_once(backward: Any) -> None:
    model, alone, stream = stream_of(*linears())
    x = torch.randn(2, 4)
    for _ in range(2):
        backward(model, x)
        assert stream.pool.held == 0
        backward(alone, x)
    for ours, theirs in zip(stream.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


class Fails(nn.Module):
    """Hands on what it gets; its backward raises the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x * 1
        out.register_hook(self._once)
        return out

    def _once(self, _gradient: torch.Tensor) -> None:
        self.times += 1
        if self.times == 1:
            raise KeyError


def test_a_backward_that_raised_is_no_part_of_the_next() -> None:
    first, second, third, last = linears()
    model, alone, stream = stream_of(first, second, nn.Sequential(Fails(), third), last)
    optimizer, x = torch.optim.SGD(stream.parameters(), lr=0.1), torch.randn(2, 4)
    with pytest.raises(KeyError):
        model(x).square().sum().backward()
    optimizer.zero_grad()
    model(x).square().sum().backward()
    alone[2][0].times = 1
    alone(x).square().sum().backward()
    assert stream.pool.held == 0
    for ours, theirs in zip(stream.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_layers_that_are_away_can_be_read_saved_and_loaded() -> None:
    model, alone, stream = stream_of(*linears())
    x = torch.randn(2, 4)
    model(x)  # in training: the last layer stays on the device
    assert repr(model[0].weight).startswith("Parameter containing:\ntensor([]")
    model.load_state_dict({name: 2 * value for name, value in alone.state_dict().items()})
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, 2 * alone.state_dict()[name])
    alone.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(x), alone(x))


def test_a_backward_of_weights_from_before_a_step_is_refused() -> None:
    model, _, stream = stream_of(*linears())
    optimizer, x = torch.optim.SGD(stream.parameters(), lr=0.1), torch.randn(2, 4)
    early, late = (model(x).square().sum() for _ in range(2))
    early.backward()
    optimizer.step()
    with pytest.raises(Refusal, match="changed since that forward"):
        late.backward()
    model(x).square().sum().backward()
    assert stream.pool.held == 0
