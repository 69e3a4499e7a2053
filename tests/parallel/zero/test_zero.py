"""ZeRO: the same weights as one process, 1/N of the state, the bytes of an all-reduce."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError
from course_lib.parallel.zero.fsdp import FSDP
from course_lib.parallel.zero.shard import FlatLayout, flatten
from course_lib.parallel.zero.zero1 import Zero1


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def batch_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(12, 7, generator=generator, dtype=torch.float64)


def train(model: nn.Module, optimizer: Any, part: Any, steps: int = 5) -> list[torch.Tensor]:
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(steps):
        optimizer.zero_grad()
        model(part(batch_of(step))).pow(2).mean().backward()
        optimizer.step()
        schedule.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize(("name", "options"), [("SGD", {"lr": 0.1, "momentum": 0.9}),
                                               ("AdamW", {"lr": 0.05})])  # fmt: skip
def test_equal_to_one_process(ranks: Any, world: int, name: str, options: dict[str, Any]) -> None:
    def run(group: Any) -> Any:
        model = build()
        if group.rank:
            model[0].weight.data.add_(1)
        model[2].bias.requires_grad_(False)
        kind = getattr(torch.optim, name)
        groups = [{"params": model[0].parameters(), "weight_decay": 0.1},
                  {"params": model[2].parameters()}]  # fmt: skip
        optimizer = Zero1(groups, kind, group, **options)
        return train(model, optimizer, lambda x: x.chunk(group.size)[group.index])

    alone = build()
    alone[2].bias.requires_grad_(False)
    groups = [{"params": alone[0].parameters(), "weight_decay": 0.1},
              {"params": [alone[2].weight]}]  # fmt: skip
    expected = train(alone, getattr(torch.optim, name)(groups, **options), lambda x: x)
    for weights in ranks(run, world):
        torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-12)


def test_state_is_one_nth_and_bytes_are_an_all_reduce(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = build()
        optimizer = Zero1(model.parameters(), torch.optim.AdamW, group)
        since = len(group.ledger.events)
        train(model, optimizer, lambda x: x, steps=1)
        sent = sum(e.sent for e in group.ledger.events[since:] if e.parent < 0)
        return optimizer.state_bytes(), sent

    total = sum(p.numel() for p in build().parameters())
    world = 4
    padded = -(-total // world) * world
    results = ranks(run, world)
    assert sum(state for state, _ in results) == 2 * total * 8
    assert max(state for state, _ in results) <= 2 * padded // world * 8
    assert {sent for _, sent in results} == {2 * (world - 1) * padded // world * 8}


def test_another_ranks_state_is_refused(ranks: Any) -> None:
    def run(group: Any) -> str:
        optimizer = Zero1(build().parameters(), torch.optim.AdamW, group)
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        try:
            optimizer.load_state_dict({**state, "index": 1 - group.index})
        except CommError as error:
            return str(error)
        return ""

    assert "the state of index 1 of 2" in ranks(run, 2)[0]


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 40])
def test_the_layout_is_balanced_and_complete(parts: int) -> None:
    shapes = [torch.Size([3, 4]), torch.Size([]), torch.Size([5]), torch.Size([0])]
    layout = FlatLayout(shapes, parts)
    seen = [[False] * n for n in layout.counts]
    for index in range(parts):
        pieces = layout.pieces(index)
        assert sum(p.count for p in pieces) <= layout.shard_size
        for piece in pieces:
            for element in range(piece.begin, piece.begin + piece.count):
                assert not seen[piece.parameter][element]
                seen[piece.parameter][element] = True
    assert all(all(row) for row in seen)
    assert layout.padded - layout.total < parts


def test_flatten_keeps_values_and_makes_views() -> None:
    parameters = [nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(4))]
    before = [p.detach().clone() for p in parameters]
    _, flat = flatten(parameters, 3)
    for parameter, value in zip(parameters, before, strict=True):
        assert torch.equal(parameter, value)
    flat.zero_()
    assert not parameters[0].any()
    with pytest.raises(ValueError, match="flatten each kind by itself"):
        flatten([nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1).double())], 2)


def test_an_optimizer_that_needs_whole_tensors_is_refused(ranks: Any) -> None:
    def run(group: Any) -> list[str]:
        found = []
        for kind in (torch.optim.Muon, torch.optim.Adafactor):
            try:
                Zero1([torch.nn.Parameter(torch.ones(4, 4))], kind, group, lr=0.1)
            except (CommError, ValueError) as error:
                found.append(str(error))
        model = FSDP(torch.nn.Linear(4, 4, bias=False), group)
        optimizer = torch.optim.Adafactor(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        try:
            optimizer.step()
        except CommError as error:
            found.append(str(error))
        return found

    muon, adafactor, sharded = ranks(run, 2)[0]
    assert "2D" in muon, "torch itself refuses pieces of one dimension"
    assert "Adafactor, whose update" in adafactor and "Adafactor, whose update" in sharded
