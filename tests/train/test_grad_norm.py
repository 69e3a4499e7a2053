"""The norm over a mesh, of gradients made by hand: cut, copied, missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import Group, Mesh
from course_lib.train import clip_grad_norm_nd, grad_norm_nd

# Shapes of two stages, and whether tp cuts dim 0 or leaves the whole on each of its ranks.
STAGES = [
    {"embedding": ((6, 5), True), "norm": ((7,), False)},
    {"matrix": ((4, 3), True), "norm": ((5,), False), "head": ((6, 5), True)},
]


def gradient(stage: int, name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * stage + len(name))
    return torch.randn(STAGES[stage][name][0], dtype=torch.float64, generator=generator)


def whole_norm(tied: bool) -> torch.Tensor:
    """As one process computes it; a tied head is the embedding."""
    grads = [gradient(s, n) for s, names in enumerate(STAGES) for n in names]
    if tied:
        grads.pop()
    return torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]))


def on_a_mesh(group: Group, tied: bool, max_norm: float) -> dict[str, Any]:
    mesh = Mesh(group, {"pp": 2, "dp": 2, "tp": 2})
    stage, tp = mesh["pp"].index, mesh["tp"]
    copies: dict[nn.Parameter, int] = {nn.Parameter(torch.ones(3)): 1}  # one without a gradient
    for name, (_, cut) in STAGES[stage].items():
        full = gradient(0, "embedding") if tied and name == "head" else gradient(stage, name)
        parameter = nn.Parameter(full.tensor_split(2)[tp.index] if cut else full)
        parameter.grad = parameter.detach().clone()
        ends = 2 if tied and name in ("embedding", "head") else 1
        copies[parameter] = mesh["dp"].size * (1 if cut else tp.size) * ends
    everyone = mesh["pp", "dp", "tp"]
    place = group.ledger.place()
    norm = grad_norm_nd(copies, copies.__getitem__, everyone)
    events = group.ledger.events[place.events :]
    return {
        "norm": float(norm),
        "calls": [(e.op, e.payload) for e in events],
        "copies forgotten": float(grad_norm_nd(copies, lambda _: 1, everyone)),
        "stage alone": float(grad_norm_nd(copies, copies.__getitem__, mesh["dp", "tp"])),
        "clipped": float(clip_grad_norm_nd(copies, copies.__getitem__, everyone, max_norm)),
        "after": float(grad_norm_nd(copies, copies.__getitem__, everyone)),
    }


@pytest.mark.parametrize(("tied", "max_norm"), [(False, 0.25), (True, float("inf"))])
def test_the_norm_of_one_process(ranks: Any, tied: bool, max_norm: float) -> None:
    right = float(whole_norm(tied))
    found = ranks(on_a_mesh, 8, tied, max_norm)
    assert len({one["norm"] for one in found}) == 1, "to the bit, or copies would drift apart"
    for one in found:
        assert one["norm"] == pytest.approx(right, rel=1e-12)
        assert one["calls"] == [("all_reduce", 8)]
        assert one["copies forgotten"] > 1.2 * right
        assert one["stage alone"] < 0.95 * right
        assert one["clipped"] == one["norm"]
        assert one["after"] == pytest.approx(min(right, max_norm), rel=1e-5)


def test_without_a_limit_an_infinite_norm_changes_nothing(ranks: Any) -> None:
    """Infinity divided by itself would turn every gradient into nan."""

    def run(group: Group) -> None:
        parameter = nn.Parameter(torch.ones(2))
        parameter.grad = torch.tensor([1.0, torch.inf])
        assert clip_grad_norm_nd([parameter], lambda _: group.size, group, torch.inf) == torch.inf
        assert parameter.grad.tolist() == [1.0, torch.inf]

    ranks(run, 2)
