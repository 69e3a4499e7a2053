"""Offloaded activations: changes in place, views that differ in a bit, and no backward at all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.parallel.offload.activation_offload import _Saved, offload_activations
from course_lib.parallel.offload.device_pool import DevicePool
from course_lib.trace import Refusal


@pytest.fixture
def pool() -> Iterator[DevicePool]:
    with DevicePool(1 << 20) as made:
        yield made


def test_a_change_in_place_before_the_copy_is_down_is_no_wrong_gradient() -> None:
    with DevicePool(1 << 20, bandwidth=1e6) as pool:
        x = torch.randn(64, 64, requires_grad=True)
        with offload_activations(pool):
            y = x.exp()
            y.add_(1)
        with pytest.raises(Refusal, match="changed in place"):
            y.sum().backward()


def test_a_change_in_place_after_the_copy_is_down_does_no_harm(pool: DevicePool) -> None:
    x = torch.randn(64, 64, requires_grad=True)
    with offload_activations(pool):
        y = x.exp()
    y.add_(1)
    y.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())


class Bits(torch.autograd.Function):
    """Saves one memory as two dtypes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, x.view(torch.int64))
        return x * 1

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        numbers, bits = ctx.saved_tensors
        return torch.where(bits >> 63 == 0, grads[0], -grads[0]) * numbers


def conjugated(x: torch.Tensor) -> torch.Tensor:
    return (x * x.conj() * x).abs().sum()


def negated(x: torch.Tensor) -> torch.Tensor:
    plain = torch.view_as_real(x)[..., 1]
    return (plain * x.conj().imag * plain).sum()


def in_two_dtypes(x: torch.Tensor) -> torch.Tensor:
    return Bits.apply(x.real.contiguous()).sum()


@pytest.mark.parametrize("loss", [conjugated, negated, in_two_dtypes])
def test_two_views_of_one_memory_that_are_read_otherwise(
    pool: DevicePool, loss: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x = torch.randn(9, dtype=torch.complex128, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(x), x)
    with offload_activations(pool, smallest=0):
        again = loss(x)
    torch.testing.assert_close(torch.autograd.grad(again, x)[0], expected)


def test_what_no_backward_asks_for_is_not_counted_for_ever(pool: DevicePool) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))
    for _ in range(3):
        with offload_activations(pool, smallest=0):
            loss = model(torch.randn(8, 32)).exp().sum()
        assert pool.held == 0
        with suppress(KeyError), offload_activations(pool, smallest=0):
            loss = model(torch.randn(8, 32)).exp().sum()
            raise KeyError
        assert pool.held == 0
        del loss


def test_a_tensor_that_every_step_saves_leaves_nothing_behind(pool: DevicePool) -> None:
    mask, x = torch.rand(64, 64), torch.randn(64, 64, requires_grad=True)
    gc.collect()
    before = len([known for known in gc.get_objects() if type(known) is _Saved])
    for _ in range(3):
        with offload_activations(pool):
            loss = (x * mask).sum()
        loss.backward()
        del loss
    gc.collect()
    assert len([known for known in gc.get_objects() if type(known) is _Saved]) == before
