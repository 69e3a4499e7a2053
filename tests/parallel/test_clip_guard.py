"""Torch's clipping of parameters under ZeRO: refused, with ours named; ours is one process's."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import (  # names copied before a wrapper is made, as a script has them
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
)

from course_lib.comm import CommError, Group
from course_lib.parallel import Zero1, Zero2

CALLS: dict[str, Callable[[Any], Any]] = {
    "clip_grad_norm_": lambda parameters: clip_grad_norm_(parameters, 0.1),
    "clip_grad_value_": lambda parameters: clip_grad_value_(parameters, 0.1),
    "clip_grads_with_norm_": lambda parameters: clip_grads_with_norm_(
        parameters, 0.1, torch.ones(())
    ),
}
BOTH = pytest.mark.parametrize("kind", [Zero1, Zero2])


def model_of(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).to(dtype)


def batch(index: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(4, 5, dtype=dtype, generator=torch.Generator().manual_seed(index))


def said(call: Callable[[Any], Any], parameters: Any) -> str:
    try:
        call(parameters)
    except CommError as error:
        return str(error)
    return ""


@BOTH
def test_torchs_clipping_is_refused(ranks: Any, kind: Any) -> None:
    def run(group: Group) -> Any:
        model = model_of()
        optimizer = kind(model.parameters(), torch.optim.SGD, group, lr=0.1)
        model(batch(group.index)).pow(2).mean().backward()
        refused = {name: said(call, model.parameters()) for name, call in CALLS.items()}
        one = said(CALLS["clip_grad_norm_"], model[0].weight)
        optimizer.clip_grad_norm(1.0)
        pieces = {name: said(call, optimizer.shard()) for name, call in CALLS.items()}
        return refused, one, pieces

    for refused, one, pieces in ranks(run, 2):
        assert one == refused["clip_grad_norm_"]
        for name, text in refused.items():
            assert text.splitlines()[0] == f"asked: torch.nn.utils.{name}"
            assert f"call clip_grad_norm of the {kind.__name__}" in text
        assert "pieces" in pieces.pop("clip_grad_norm_")
        assert not any(pieces.values()), "what works element by element works on pieces"


@BOTH
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_ours_is_the_clipping_of_one_process(ranks: Any, kind: Any, dtype: torch.dtype) -> None:
    def run(group: Group) -> Any:
        model = model_of(dtype)
        optimizer = kind(model.parameters(), torch.optim.SGD, group, lr=0.1)
        norms = []
        for step in range(2):
            model(batch(3 * step + group.index, dtype)).abs().pow(2).mean().backward()
            norms.append(float(optimizer.clip_grad_norm(0.1)))
            optimizer.step()
        return norms, [p.detach() for p in model.parameters()]

    alone, norms = model_of(dtype), []
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(2):
        for index in range(3):
            (alone(batch(3 * step + index, dtype)).abs().pow(2).mean() / 3).backward()
        norms.append(float(clip_grad_norm_(alone.parameters(), 0.1)))
        optimizer.step()
        optimizer.zero_grad()
    for found, weights in ranks(run, 3):
        assert found == pytest.approx(norms, rel=1e-9)
        torch.testing.assert_close(weights, [p.detach() for p in alone.parameters()])


def test_others_are_clipped_as_ever_and_a_wrapper_that_is_gone_refuses_nothing(ranks: Any) -> None:
    def run(group: Group) -> Any:
        model, other = model_of(), model_of()
        first = Zero1(model.parameters(), torch.optim.SGD, group, lr=0.1)
        second = Zero2(model[0].parameters(), torch.optim.SGD, group, lr=0.1)
        del first
        gc.collect()
        for module in (model[1], other):
            for p in module.parameters():
                p.grad = torch.ones_like(p)
        free = [float(clip_grad_norm_(m.parameters(), 1.0)) for m in (model[1], other)]
        left = said(CALLS["clip_grad_norm_"], model.parameters())
        return free, left, second is not None

    (free, left, _), _ = ranks(run, 2)
    assert free == pytest.approx([24**0.5, 66**0.5])
    assert "Zero2" in left
    with pytest.warns(UserWarning, match="empty generator"):
        clip_grad_norm_((p for p in ()), 1.0)


@pytest.mark.parametrize("kind", [Zero1, Zero2])
def test_torchs_scaler_is_refused_by_the_later_of_two_wrappers(ranks: Any, kind: Any) -> None:
    def run(group: Any) -> str:
        model = nn.Linear(2, 2)
        for _ in range(2):
            optimizer = kind(model.parameters(), torch.optim.SGD, group, lr=0.1)
            gc.collect()
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        with pytest.raises(CommError) as said:
            scaler.step(optimizer)
        return str(said.value)

    assert all("DynamicLossScaler" in said for said in ranks(run, 2))
