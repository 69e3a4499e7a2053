"""Activation checkpointing: the same gradients, one run more, and one block's activations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint as production
from torch import nn

from course_lib.parallel.pipeline.split_backward import WeightQueue
from course_lib.recompute.checkpoint import Recompute, checkpoint, checkpoint_module
from course_lib.trace import Refusal
from course_lib.trace.memory import LiveMemory

WIDTH = 8
torchs = partial(production.checkpoint, use_reentrant=False)


class Block(nn.Module):
    """A residual block with dropout, which counts its runs."""

    def __init__(self, seed: int, width: int = WIDTH) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) / 3)

        self.inner, self.bias, self.outer = weight(width, 24), weight(24), weight(24, width)
        self.runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        hidden = F.dropout(torch.tanh(x @ self.inner + self.bias), 0.25, self.training)
        return x + F.dropout(hidden @ self.outer, 0.25, self.training)


class Model(nn.Module):
    """A first layer, blocks, one of them perhaps used twice or frozen, and the first layer again.

    Args:
        kind: `plain`, `repeated`, `frozen` or `tied`.
        how: which checkpoint each block gets; None for none.
    """

    def __init__(self, kind: str = "plain", how: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.kind, self.how = kind, how
        self.ends = nn.Parameter(torch.linspace(-1, 1, 56, dtype=torch.float64).view(7, WIDTH))
        self.blocks = nn.ModuleList(Block(n) for n in range(3))
        if kind == "frozen":
            self.blocks[1].requires_grad_(False)
        if kind == "tied":
            self.blocks[2].inner = self.blocks[0].inner
        for block in self.blocks if how is not None else ():
            checkpoint_module(block, how)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ self.ends
        for block in self.blocks:
            x = block(x)
        if self.kind == "repeated":
            x = self.blocks[0](x)
        return x @ self.ends.t()


KINDS = ("plain", "repeated", "frozen", "tied")


def batch_of(step: int) -> torch.Tensor:
    return torch.randn(12, 7, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def train(model: nn.Module, steps: int = 3) -> Any:
    """Gradients of the first step, weights after the last, and the place of the random numbers."""
    torch.manual_seed(5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    first: dict[str, torch.Tensor] = {}
    for step in range(steps):
        optimizer.zero_grad()
        model(batch_of(step)).pow(2).mean().backward()
        if not step:
            first = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}
    return first, weights, torch.rand(3)


# --- the same gradients --------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [checkpoint, torchs], ids=["ours", "torch's"])
def test_training_with_dropout_is_the_same(kind: str, how: Callable[..., Any]) -> None:
    close(train(Model(kind, how)), train(Model(kind)))


def test_nested_checkpoints_run_each_level_once_more() -> None:
    plain, nested = Model(), Model(how=checkpoint)
    whole = nn.Sequential(*nested.blocks)
    results = []
    for run in (nn.Sequential(*plain.blocks), partial(checkpoint, whole)):
        torch.manual_seed(5)
        x = torch.ones(4, WIDTH, dtype=torch.float64, requires_grad=True)
        run(x).pow(2).sum().backward()
        results.append([x.grad, *(p.grad for block in plain.blocks for p in block.parameters())])
        plain = nested
    close(results[1], results[0])
    # Forward, again for the outer checkpoint, again for the block's own; the outer one needs no
    # more of the last block than its input.
    assert [block.runs for block in nested.blocks] == [3, 3, 2]


def test_any_arguments_and_any_results() -> None:
    def fn(pair: Any, *, table: dict[str, torch.Tensor], times: int, note: str) -> Any:
        first, second = pair
        mixed = torch.sin(first * second) * times
        return {"mixed": (mixed, mixed.argmax()), "note": note, "untouched": table["index"]}, first

    results = []
    for run in (fn, partial(checkpoint, fn)):
        x = torch.linspace(0, 1, 5, dtype=torch.float64, requires_grad=True)
        fixed = torch.linspace(1, 2, 5, dtype=torch.float64)
        index = torch.arange(3)
        found, same = run((x, fixed), table={"index": index}, times=3, note="kept")
        assert found["note"] == "kept"
        assert found["untouched"] is index
        (found["mixed"][0].sum() + same.pow(2).sum()).backward()
        assert fixed.grad is None
        results.append((found["mixed"], x.grad))
    close(results[1], results[0])


def test_tensors_that_are_no_arguments_get_their_gradients() -> None:
    weight = torch.linspace(0, 1, 5, requires_grad=True)
    scale = (weight * 2).exp()  # in the graph outside
    data = torch.ones(5)  # the only argument, and it needs no gradient
    checkpoint(lambda x: torch.sigmoid(x * scale) * weight, data).sum().backward()
    got, weight.grad = weight.grad, None
    (torch.sigmoid(data * (weight * 2).exp()) * weight).sum().backward()
    close(got, weight.grad)


def test_gradients_of_gradients() -> None:
    results = []
    for run in (torch.tanh, partial(checkpoint, torch.tanh)):
        x = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        results.append(x.grad)
    close(results[1], results[0])


def test_autocast_is_as_it_was() -> None:
    layer = nn.Linear(WIDTH, WIDTH)
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(layer(x))
        seen.append(y.dtype)
        return y.sin()

    grads = []
    for run in (fn, partial(checkpoint, fn)):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run(torch.ones(2, WIDTH)).sum()
        loss.backward()  # outside of autocast
        grads.append(layer.weight.grad.clone())
    assert torch.equal(grads[0], grads[1])
    assert seen == [torch.bfloat16] * 3


def test_random_numbers_of_further_generators() -> None:
    def noisy(generator: torch.Generator, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * torch.rand(5, generator=generator)).exp()

    results = []
    for restored in (False, True):
        generator = torch.Generator().manual_seed(1)
        how = Recompute([generator]) if restored else lambda fn, *args: fn(*args)
        x = torch.ones(5, requires_grad=True)
        y = how(noisy, generator, x)
        between = torch.rand(2, generator=generator)
        y.sum().backward()
        results.append((x.grad, between, torch.rand(2, generator=generator)))
    close(results[1], results[0])


def test_a_default_device_and_a_split_backward_are_as_they_were() -> None:
    queue = WeightQueue()
    layers = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5)).double()
    made: list[torch.device] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        made.append(torch.empty(1).device)
        return layers(x).tanh()

    results = []
    for run in (fn, partial(checkpoint, fn)):
        layers.zero_grad()
        x = torch.ones(5, 5, dtype=torch.float64, requires_grad=True)
        with queue.watched(), torch.device("meta"):
            loss = run(x).sum()
        with queue.put_off("later"):
            loss.backward()
        assert all(p.grad is None for p in layers.parameters())
        queue.run("later")
        results.append([x.grad, *(p.grad for p in layers.parameters())])
    close(results[1], results[0])
    assert made == [torch.device("meta")] * 3


def second_order(how: Callable[..., Any], x: torch.Tensor) -> Any:
    y = how(lambda t: t.sin() * t, x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return torch.autograd.grad(slope.pow(2).sum(), x)


def two_retained(how: Callable[..., Any], x: torch.Tensor) -> Any:
    y = how(lambda t: F.dropout(t.sin(), 0.5).exp(), x)
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    return x.grad, torch.rand(2)


def nested_and_retained(how: Callable[..., Any], x: torch.Tensor) -> Any:
    y = how(lambda t: how(torch.sin, how(torch.exp, t)).cos(), x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return x.grad


def odd_values(how: Callable[..., Any], x: torch.Tensor) -> Any:
    def fn(a: Any, *, times: int, more: dict[str, torch.Tensor], nothing: Any = 0) -> Any:
        return None, {"y": a[0] * times + more["b"].exp(), "count": times}, nothing, a[1]

    none, found, nothing, word = how(fn, (x, "word"), times=3, more={"b": x * 2}, nothing=None)
    found["y"].pow(2).sum().backward()
    assert none is None and nothing is None and word == "word"
    return found["count"], x.grad


def products_in_low_precision(how: Callable[..., Any], x: torch.Tensor) -> Any:
    x = x.detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = how(lambda t: (t[:, None] @ t[None]).exp(), x)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    return x.grad


def an_output_that_is_not_used(how: Callable[..., Any], x: torch.Tensor) -> Any:
    y, _ = how(lambda t: (t.sin().exp(), t.cos().tanh()), x)
    y.sum().backward()
    return x.grad


CASES = (second_order, two_retained, nested_and_retained, odd_values, products_in_low_precision,
         an_output_that_is_not_used)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("how", [checkpoint, torchs])
def test_what_torchs_does(how: Callable[..., Any], case: Callable[..., Any]) -> None:
    results = []
    for way in (how, lambda fn, *args, **kwargs: fn(*args, **kwargs)):
        torch.manual_seed(3)
        results.append(case(way, torch.linspace(0.1, 1, 6, dtype=torch.float64).requires_grad_()))
    torch.testing.assert_close(*results)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_random_numbers_and_autocast_on_a_gpu() -> None:
    layer = nn.Linear(WIDTH, WIDTH).cuda()
    grads = []
    for run in (checkpoint, lambda fn, x: fn(x)):
        layer.zero_grad()
        torch.manual_seed(5)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = run(lambda x: F.dropout(layer(x).sin(), 0.5).tanh(), torch.ones(9, WIDTH).cuda())
        torch.rand(3, device="cuda")
        y.sum().backward()
        grads.append(layer.weight.grad.clone())
    assert torch.equal(grads[0], grads[1])


# --- how often it runs ---------------------------------------------------------------------------
def test_one_recomputation_a_block() -> None:
    model = Model(how=checkpoint)
    model(batch_of(0)).sum().backward()
    assert [block.runs for block in model.blocks] == [2, 2, 2]


def test_a_retained_graph_is_computed_again_in_each_backward() -> None:
    model = Model(how=checkpoint)
    torch.manual_seed(5)
    loss = model(batch_of(0)).sum()
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    loss.backward()
    close([p.grad for p in model.parameters()], list(first))
    assert [block.runs for block in model.blocks] == [3, 3, 3]


def test_nothing_is_computed_again_without_need() -> None:
    model = Model(how=checkpoint)
    with torch.no_grad():
        model(batch_of(0))
    model.requires_grad_(False)
    assert not model(batch_of(0)).requires_grad
    assert [block.runs for block in model.blocks] == [2, 2, 2]


# --- memory --------------------------------------------------------------------------------------
def memory_of(layers: int, how: Callable[..., Any] | None) -> tuple[int, int]:
    """Bytes held after forward, and at most, by blocks of which only one is run at a time."""
    blocks = [Block(n) for n in range(layers)]
    x = torch.ones(512, WIDTH, dtype=torch.float64, requires_grad=True)
    x.grad = torch.zeros_like(x)
    for block in blocks:
        for parameter in block.parameters():
            parameter.grad = torch.zeros_like(parameter)
    with LiveMemory() as memory:
        y = x
        for block in blocks:
            y = block(y) if how is None else how(block, y)
        kept = memory.now
        y.sum().backward()
        del y
    return kept, memory.peak


def test_memory_is_the_inputs_and_one_block() -> None:
    one_input = 512 * WIDTH * 8
    _, alone = memory_of(1, None)
    for layers in (2, 8):
        kept, peak = memory_of(layers, checkpoint)
        # The first input is not made here, but the last output is. A few bytes are for bookkeeping.
        assert layers * one_input <= kept <= layers * (one_input + 64)
        assert peak <= layers * one_input + alone + layers * 64
        assert memory_of(layers, None)[0] >= layers * 5 * one_input


@pytest.mark.parametrize("how", [checkpoint, torchs])
def test_a_retained_graph_keeps_nothing(how: Callable[..., Any]) -> None:
    """Neither what has been used, nor what this backward had no need for."""
    blocks = [Block(n) for n in range(4)]
    x = torch.ones(512, WIDTH, dtype=torch.float64, requires_grad=True)
    with LiveMemory() as memory:
        y = x
        for block in blocks:
            y = how(block, y)
        kept = memory.now
        for part in ([x], [blocks[2].inner]):
            torch.autograd.grad(y.sum(), part, retain_graph=True)
            assert memory.settle(kept) <= kept + 64


def test_a_saved_tensor_may_be_read_twice_and_from_outside() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, x * 2)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            (one, _), (_, two) = ctx.saved_tensors, ctx.saved_tensors
            return grads[0] * (one + two / 2)

    x = torch.arange(4.0, requires_grad=True)
    y = checkpoint(lambda t: Twice.apply(t.sin()).cos(), x)
    assert torch.equal(y.grad_fn._saved_self, x.sin() ** 2)
    (found,) = torch.autograd.grad(y.sum(), x)
    (right,) = torch.autograd.grad((x.sin() ** 2).cos().sum(), x)
    torch.testing.assert_close(found, right)


def test_a_backward_that_breaks_keeps_nothing_and_can_be_made_again() -> None:
    x = torch.ones(512, WIDTH, dtype=torch.float64, requires_grad=True)
    block = Block(0).eval()
    with LiveMemory() as memory:
        middle = x * 1.0
        y = checkpoint(block, middle)
        kept = memory.now
        broken = middle.register_hook(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            y.sum().backward(retain_graph=True)
        broken.remove()
        for parameter in block.parameters():
            parameter.grad = None
        assert memory.settle(kept) <= kept + 64
        y.sum().backward()
    again = Block(0).eval()
    x.grad, found = None, x.grad
    again(x * 1.0).sum().backward()
    torch.testing.assert_close(found, x.grad)


def test_memory_is_not_more_than_production_holds() -> None:
    for ours, theirs in zip(memory_of(6, checkpoint), memory_of(6, torchs), strict=True):
        assert ours <= theirs + 6 * 64


def test_nested_checkpoints_keep_one_input() -> None:
    def all_of(how: Callable[..., Any], blocks: list[Block], x: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            x = how(block, x)
        return x

    blocks = [Block(n) for n in range(6)]
    x = torch.ones(512, WIDTH, dtype=torch.float64, requires_grad=True)
    with LiveMemory() as memory:
        y = checkpoint(all_of, checkpoint, blocks, x)
        assert memory.now <= y.nbytes + 64


def test_an_input_dies_with_its_block() -> None:
    with LiveMemory() as memory:
        x = torch.ones(100, requires_grad=True)
        checkpoint(torch.tanh, x * 2).sum().backward()
        x.grad = None
        assert memory.settle(x.nbytes) == x.nbytes


# --- refusals ------------------------------------------------------------------------------------
def test_a_second_backward_is_refused() -> None:
    x = torch.ones(5, requires_grad=True)
    loss = checkpoint(torch.tanh, x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_an_input_changed_in_place_is_refused() -> None:
    x = torch.ones(5, requires_grad=True)
    middle = x * 2
    y = checkpoint(torch.tanh, middle)
    middle.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_second_run_of_another_shape_is_refused() -> None:
    lengths = iter([4, 3])

    def shrinking(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x[: next(lengths)])

    y = checkpoint(shrinking, torch.ones(5, requires_grad=True))
    with pytest.raises(Refusal) as error:
        y.sum().backward()
    assert "saved tensor 1 of shrinking" in str(error.value)
    assert "shape (3,), torch.float32 on cpu, where the first run saved shape (4,)" in str(
        error.value
    )


def test_a_second_run_that_saves_less_is_refused() -> None:
    times = iter([3, 2])

    class Tiring(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(next(times)):
                x = torch.tanh(x)
            return x

    y = checkpoint(Tiring(), torch.ones(5, requires_grad=True))
    with pytest.raises(Refusal) as error:
        y.sum().backward()
    assert "the activations of Tiring" in str(error.value)
    assert "2 saved tensors, where the first run saved 3" in str(error.value)


def test_names_of_parameters_stay() -> None:
    assert list(Model(how=checkpoint).state_dict()) == list(Model().state_dict())


def test_an_error_of_the_function_is_its_own() -> None:
    calls = itertools.count()

    def failing(x: torch.Tensor) -> torch.Tensor:
        if next(calls):
            raise KeyError("second")
        return torch.tanh(x).exp()

    place = torch.get_rng_state()
    y = checkpoint(failing, torch.ones(5, requires_grad=True))
    with pytest.raises(KeyError, match="second"):
        y.sum().backward()
    assert torch.equal(torch.get_rng_state(), place)


def test_a_function_that_catches_every_exception() -> None:
    def careful(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.sin().exp()
        except Exception:
            return x

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    checkpoint(careful, x).sum().backward()
    torch.testing.assert_close(x.grad, (x.cos() * x.sin().exp()).detach())
