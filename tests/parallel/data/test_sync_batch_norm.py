"""Batch norm over all ranks' rows: equal to one process, exact, one all-reduce each way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError
from course_lib.parallel.data.sync_batch_norm import SyncBatchNorm, convert_sync_batch_norm
from course_lib.trace import wire_bytes

ROWS = [5, 1, 3, 2]  # of ranks 0 to 3
KINDS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
SHAPES = {2: (4,), 3: (4, 3), 4: (4, 3, 2), 5: (4, 2, 3, 2)}


def made(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


def part(x: torch.Tensor, rank: int, rows: list[int]) -> torch.Tensor:
    return x.detach().split(rows)[rank].clone()


def train(norm: nn.Module, inputs: list[torch.Tensor], upstream: list[torch.Tensor]) -> Any:
    """Outputs, input gradients and parameter gradients of two steps; then an evaluation."""
    outputs, grads = [], []
    for x, g in zip(inputs, upstream, strict=True):
        x.requires_grad_()
        y = norm(3 + 2 * x)
        (y * g + y.pow(3)).sum().backward()
        outputs.append(y.detach())
        grads.append(x.grad)
    norm.eval()
    with torch.no_grad():
        outputs.append(norm(inputs[0]))
    return outputs, grads, [p.grad for p in norm.parameters()], dict(norm.named_buffers())


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("dims", list(KINDS))
@pytest.mark.parametrize(("momentum", "affine"), [(0.3, True), (None, False)])
def test_equal_to_one_process(
    ranks: Any, world: int, dims: int, momentum: float | None, affine: bool
) -> None:
    rows, shape = ROWS[:world], SHAPES[dims]
    inputs = [made(step, sum(rows), *shape) for step in (1, 2)]
    upstream = [made(step, sum(rows), *shape) for step in (3, 4)]

    def weigh(norm: nn.Module) -> nn.Module:
        norm = norm.double()
        if affine:
            with torch.no_grad():
                norm.weight.copy_(made(5, 4))
                norm.bias.copy_(made(6, 4))
        return norm

    def run(group: Any) -> Any:
        norm = weigh(SyncBatchNorm(4, group, 1e-3, momentum, affine))
        mine = [part(x, group.index, rows) for x in inputs]
        return train(norm, mine, [part(g, group.index, rows) for g in upstream])

    alone = weigh(KINDS[dims](4, 1e-3, momentum, affine))
    outputs, grads, parameters, buffers = train(alone, inputs, upstream)
    found = ranks(run, world)
    for rank, (got_outputs, got_grads, _, got_buffers) in enumerate(found):
        close(got_outputs, [part(y, rank, rows) for y in outputs])
        close(got_grads, [part(g, rank, rows) for g in grads])
        close(got_buffers, buffers)
    for number, grad in enumerate(parameters):
        close(torch.stack([result[2][number] for result in found]).sum(0), grad)


def test_bytes_are_the_formulas_and_evaluation_sends_nothing(ranks: Any) -> None:
    def run(group: Any) -> Any:
        norm = SyncBatchNorm(7, group)
        x = made(group.rank, 3 + group.rank, 7, 2).float().requires_grad_()
        norm(x).sum().backward()
        trained = [(e.op, e.payload, e.sent) for e in group.ledger.events]
        norm(x.detach()).sum().backward()  # no gradient for the input: nothing to sum
        calls = len(group.ledger.events)
        for quiet in (norm.eval(), SyncBatchNorm(7, group, track_running_stats=False).eval()):
            quiet(x).sum().backward()
        return group.index, trained, calls, len(group.ledger.events)

    for index, trained, calls, after in ranks(run, 3):
        payloads = [8 * (2 * 7 + 1), 8 * 2 * 7]
        sent = [wire_bytes("all_reduce", payload, 3, index, 8)[0] for payload in payloads]
        assert trained == [("all_reduce", *pair) for pair in zip(payloads, sent, strict=True)]
        assert calls == after == 3


def test_a_rank_without_rows_takes_part(ranks: Any) -> None:
    x, rows = made(1, 6, 4, 2), [4, 0, 2]

    def run(group: Any) -> Any:
        norm = SyncBatchNorm(4, group).double()
        mine = part(x, group.index, rows).requires_grad_()
        norm(mine).pow(3).sum().backward()
        return mine.grad, norm.running_var

    alone, whole = nn.BatchNorm1d(4).double(), x.clone().requires_grad_()
    alone(whole).pow(3).sum().backward()
    for rank, (grad, running) in enumerate(ranks(run, 3)):
        close(grad, part(whole.grad, rank, rows))
        close(running, alone.running_var)


def test_a_mean_far_from_zero_does_not_drown_the_spread(ranks: Any) -> None:
    x = (3000 + made(1, 64, 4)).float()
    true = x.double()
    reference = (true - true.mean(0)) / (true.var(0, correction=0) + 1e-5).sqrt()

    def run(group: Any) -> Any:
        norm = SyncBatchNorm(4, group, momentum=1.0)
        y = norm(x.chunk(group.size)[group.index])
        return y, norm.running_var

    in_float32 = x.square().mean(0) - x.mean(0).square()
    assert ((in_float32 - true.var(0, correction=0)).abs() > 0.1).any(), "the test is too easy"
    found = ranks(run, 2)
    got = torch.cat([y for y, _ in found]).double()
    loss = 3000 * torch.finfo(torch.float32).eps  # mean / spread once, not squared
    assert (got - reference).abs().max() < loss
    torch.testing.assert_close(found[0][1].double(), true.var(0), rtol=loss, atol=0)


def test_half_precision_keeps_its_dtype_and_float32_statistics(ranks: Any) -> None:
    x = (10 + made(1, 12, 4, 5)).to(torch.bfloat16)

    def run(group: Any) -> Any:
        mine = x.chunk(group.size)[group.index].clone().requires_grad_()
        norm = SyncBatchNorm(4, group)
        y = norm(mine)
        y.float().pow(2).sum().backward()
        return y, mine.grad, norm.running_mean

    wide = nn.BatchNorm1d(4)
    expected = wide(x.float()).to(torch.bfloat16)
    found = ranks(run, 2)
    torch.testing.assert_close(torch.cat([y for y, _, _ in found]), expected, rtol=0, atol=0.02)
    for _, grad, mean in found:
        assert grad.dtype == torch.bfloat16
        torch.testing.assert_close(mean, wide.running_mean, rtol=1e-5, atol=0)


def test_conversion_keeps_parameters_buffers_and_places(ranks: Any) -> None:
    def run(group: Any) -> Any:
        shared = nn.BatchNorm1d(6, affine=False, momentum=None)
        model = nn.Sequential(
            nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, eps=0.5), nn.Flatten(), nn.Linear(12, 6),
            nn.Sequential(shared, nn.Tanh(), shared), nn.BatchNorm1d(6, track_running_stats=False),
        ).double()  # fmt: skip
        model[1].eval()
        tensors = [*model.parameters(), *model.buffers()]
        names = list(model.state_dict())
        converted = convert_sync_batch_norm(model, group)
        same = [
            a is b
            for a, b in zip(tensors, [*converted.parameters(), *converted.buffers()], strict=True)
        ]
        norms = [m for m in converted.modules() if isinstance(m, SyncBatchNorm)]
        assert converted is model and list(converted.state_dict()) == names and all(same)
        assert model[4][0] is model[4][2], "one norm in two places stays one"
        assert not any(type(m) in KINDS.values() for m in converted.modules())
        model(made(group.rank, 3, 2, 2, 2)).sum().backward()
        assert isinstance(convert_sync_batch_norm(nn.BatchNorm3d(2), group), SyncBatchNorm)
        return [(m.eps, m.momentum, m.affine, m.running_mean is None, m.training) for m in norms]

    assert ranks(run, 2)[1] == [
        (0.5, 0.1, True, False, False),
        (1e-5, None, False, False, True),
        (1e-5, 0.1, True, True, True),
    ]


def test_what_cannot_be_normalised_is_named(ranks: Any) -> None:
    def run(group: Any) -> Any:
        norm = SyncBatchNorm(4, group)
        said = []
        for shape in ((1, 4) if group.rank == 0 else (0, 4), (3, 5), (4,)):
            try:
                norm(torch.ones(shape))
            except (CommError, ValueError) as error:
                said.append(str(error))
        return said

    for single, channels, dims in ranks(run, 2):
        assert "1 values in a channel" in single
        assert "(3, 5)" in channels and "(4,)" in dims


@pytest.mark.parametrize("dropped", ["weight", "bias"])
def test_weight_or_bias_alone(ranks: Any, dropped: str) -> None:
    def plain() -> nn.BatchNorm1d:
        norm = nn.BatchNorm1d(4).double()
        with torch.no_grad():
            norm.weight.copy_(made(1, 4))
            norm.bias.copy_(made(2, 4))
        setattr(norm, dropped, None)
        return norm

    def run(group: Any) -> Any:
        norm = convert_sync_batch_norm(plain(), group)
        mine = [[part(x, group.rank, ROWS[:2]) for x in given] for given in (inputs, upstream)]
        return train(norm, *mine)[:3]

    inputs, upstream = [made(3, 6, 4)], [made(4, 6, 4)]
    outputs, grads, own, _ = train(plain(), [x.clone() for x in inputs], upstream)
    results = ranks(run, 2)
    close(torch.cat([found[0][0] for found in results]), outputs[0])
    close(torch.cat([found[1][0] for found in results]), grads[0])
    close(sum(found[2][0] for found in results), own[0])


def test_what_a_copy_sends_is_booked_in_the_same_ledger(ranks: Any) -> None:
    def run(group: Any) -> int:
        model = convert_sync_batch_norm(nn.Sequential(nn.BatchNorm1d(2)), group)
        average = torch.optim.swa_utils.AveragedModel(model)
        before = len(group.ledger.events)
        average(torch.randn(3, 2))
        return len(group.ledger.events) - before

    assert ranks(run, 2) == [1, 1]
