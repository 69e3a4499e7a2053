"""Muon: torch's on one process; over pieces of FSDP the same weights, and bytes to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel import FSDP, Muon, OwnerMuon

Ranks = Callable[..., list[Any]]


SHAPES = ((6, 20), (20, 6), (8, 30))


def drawn(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = (nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 4))
    return nn.Sequential(*layers).double()


def batch(step: int) -> torch.Tensor:
    return drawn(step, 12, 6)


def split(parameters: Any, shape_of: Any) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    listed = list(parameters)
    matrices = [p for p in listed if len(shape_of(p)) == 2]
    return matrices, [p for p in listed if len(shape_of(p)) != 2]


def alone(steps: int, **options: Any) -> dict[str, torch.Tensor]:
    net = model()
    matrices, rest = split(net.parameters(), lambda p: p.shape)
    optimizers = [Muon(matrices, **options), torch.optim.AdamW(rest, lr=0.01)]
    for step in range(steps):
        net(batch(step)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return net.state_dict()


@pytest.mark.parametrize("scale, torchs", [("spectral", "original"), ("rms", "match_rms_adamw")])
def test_it_is_torchs_muon(scale: str, torchs: str) -> None:
    weights = [[nn.Parameter(drawn(0, *shape)) for shape in SHAPES] for _ in range(2)]
    ours = Muon(weights[0], lr=0.01, weight_decay=0.1, scale=scale)
    theirs = torch.optim.Muon(weights[1], lr=0.01, weight_decay=0.1, adjust_lr_fn=torchs)
    for step in range(3):
        for parameters, optimizer in zip(weights, (ours, theirs), strict=True):
            for parameter in parameters:
                parameter.grad = drawn(step + 1, *parameter.shape)
            optimizer.step()
    for mine, other, shape in zip(*weights, SHAPES, strict=True):
        way = (other - drawn(0, *shape)).norm()
        assert (mine - other).norm() / way < 0.02  # torch computes in bfloat16


@pytest.mark.parametrize("members", [(0, 1, 2), (2, 0)])
@pytest.mark.parametrize("options", [{"lr": 0.05}, {"nesterov": False, "weight_decay": 0.3}])
def test_over_pieces_of_fsdp_it_is_muon(
    ranks: Ranks, members: tuple[int, ...], options: dict[str, Any]
) -> None:
    steps = 3

    def on_rank(world: Group) -> tuple[float, int, int] | None:
        others = [i for i in range(3) if i not in members]
        group = world.split([p for p in (members, others) if p], "dp")
        if world.rank not in members:
            return None
        net = FSDP(model(seed=group.index), group)
        assert isinstance(net.module, nn.Sequential)
        cuts = net.cuts()
        matrices, rest = split(net.parameters(), lambda p: cuts[p].shape)
        muon = OwnerMuon(matrices, cuts, group, **options)
        optimizers = [muon, torch.optim.AdamW(rest, lr=0.01)]
        sent = 0
        for step in range(steps):
            size = 12 // group.size
            mine = batch(step)[group.index * size :][:size]
            net(mine).square().mean().backward()
            for optimizer in optimizers:
                with group.ledger.record() as calls:
                    optimizer.step()
                sent += calls.sent
                optimizer.zero_grad()
        expected = alone(steps, **options)
        got = net.full_state_dict()
        gap = max(float((got[name] - expected[name]).abs().max()) for name in expected)
        state = sum(s["momentum"].numel() for s in muon.state.values())
        return gap, sent, state

    found = [r for r in ranks(on_rank, 3) if r is not None]
    elements = 6 * 10 + 10 * 10 + 10 * 4
    assert max(gap for gap, _, _ in found) < 1e-10
    assert sum(state for _, _, state in found) == elements  # each once, over the ranks
    # What an owner has of its matrix does not travel; all else goes there and back, in float64.
    assert 0 < sum(sent for _, sent, _ in found) < steps * 2 * 8 * elements


def test_pieces_are_refused_by_muon_and_strangers_by_owner_muon(
    ranks: Ranks,
) -> None:
    def on_rank(world: Group) -> list[str]:
        net = FSDP(model(), world)
        said = []
        with pytest.raises(CommError) as error:
            Muon(net.parameters(), lr=0.1)
        said.append(str(error.value))
        with pytest.raises(CommError) as error:
            OwnerMuon(net.parameters(), net.cuts(), world)
        said.append(str(error.value))
        with pytest.raises(CommError) as error:
            OwnerMuon([nn.Parameter(torch.ones(3))], net.cuts(), world)
        said.append(str(error.value))
        return said

    muon, vector, stranger = ranks(on_rank, 2)[0]
    assert "AdamW takes other shapes" in muon
    assert "one of shape (10,)" in vector
    assert "not among the cuts" in stranger


def test_an_unknown_scale_and_a_vector_are_refused() -> None:
    with pytest.raises(CommError, match="the scales"):
        Muon([nn.Parameter(torch.ones(2, 2))], scale="none")
    with pytest.raises(CommError, match=r"one of shape \(4,\)"):
        Muon([nn.Parameter(torch.ones(4))])


class TwoDtypes(nn.Module):
    """Of which the first is the narrower one, and one rank of three owns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 7, bias=False), nn.Linear(7, 3, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(drawn(1, 7, 5))
            self.last.weight.copy_(drawn(2, 3, 7))
        self.last.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x.float()).double())


def test_matrices_of_two_dtypes_in_one_group(ranks: Ranks) -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for step in range(3):
            optimizer.zero_grad()
            model(drawn(10 + step, 4, 5)).square().sum().backward()
            optimizer.step()

    def on_rank(group: Group) -> dict[str, torch.Tensor]:
        model = TwoDtypes()
        wrapped = FSDP(model, group, [model.first, model.last])
        train(wrapped, OwnerMuon(wrapped.parameters(), wrapped.cuts(), group))
        return wrapped.full_state_dict()

    plain = TwoDtypes()
    train(plain, Muon(plain.parameters()))
    for found in ranks(on_rank, 3):
        torch.testing.assert_close(found, dict(plain.state_dict()), rtol=1e-4, atol=1e-4)
