"""Compressed gradients: sums telescope, bytes are the formulas', results are one process's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel import (
    Compressed,
    CompressedDDP,
    Compressor,
    ErrorFeedback,
    Int8,
    OneBitAdam,
    PowerSGD,
    Sign,
    TopK,
)
from course_lib.parallel.compress.feedback import Reducer
from course_lib.trace import wire_bytes

Ranks = Callable[..., list[Any]]

COMPRESSORS = (TopK(0.2), Sign(), Int8(block=8))
SHAPES = ((6, 9), (7,), (2, 3, 5))
SIZE = 3
LOW = ((1, (8, 2)), (3, (2, 9)))  # seeds and shapes of the factors of a matrix of rank 2


def drawn(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def gradients(rank: int, step: int) -> list[torch.Tensor]:
    return [drawn(100 * rank + 10 * step + n, *shape) for n, shape in enumerate(SHAPES)]


def arrives(compressor: Compressor, values: torch.Tensor) -> torch.Tensor:
    return compressor.decompress(compressor.compress(values), values)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("count", [1, 8, 29])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_message_is_as_long_as_it_says_and_never_worse_than_nothing(
    compressor: Compressor, count: int, dtype: torch.dtype
) -> None:
    values = drawn(count, count).to(dtype)
    parts = compressor.compress(values)
    assert sum(part.nbytes for part in parts) == compressor.nbytes(values)
    found = compressor.decompress(parts, values)
    assert found.dtype == dtype
    assert (values - found).norm() < values.norm()  # a contraction: feedback cannot blow up
    zeros = torch.zeros_like(values)
    assert torch.equal(arrives(compressor, zeros), zeros)


def test_what_each_compressor_leaves() -> None:
    values = torch.tensor([3.0, -4.0, 0.5, 0.0, 1.0])
    assert arrives(TopK(0.4), values).tolist() == [3.0, -4.0, 0.0, 0.0, 0.0]
    torch.testing.assert_close(arrives(Sign(), values), 1.7 * torch.tensor([1.0, -1, 1, 1, 1]))
    assert (arrives(Int8(block=2), values) - values).abs().max() <= 4 / 127 / 2


def test_what_was_sent_and_what_is_owed_are_the_sum_of_all_gradients(ranks: Ranks) -> None:
    """With whole numbers nothing is rounded, so the sums are equal to the bit."""

    def on_rank(group: Group) -> list[tuple[bool, bool, float]]:
        found = []
        for compressor in COMPRESSORS:
            feedback = ErrorFeedback(compressor)
            total = [torch.zeros(shape).double() for shape in SHAPES]
            got = [torch.zeros(shape).double() for shape in SHAPES]
            for step in range(6):
                mine = gradients(group.index, step)
                for sums, g in zip(total, mine, strict=True):
                    sums += g
                with group.ledger.record() as calls:
                    means = feedback.mean(mine, group)
                for sums, mean in zip(got, means, strict=True):
                    sums += mean
            message = sum(compressor.nbytes(g) for g in mine)
            # The mean of what is owed needs the ranks; plain sums of what each of them has.
            owed = ErrorFeedback(TopK(1.0)).mean(feedback.errors, group)
            given = ErrorFeedback(TopK(1.0)).mean(total, group)
            gap = max(
                float((g + o - t).abs().max()) for g, o, t in zip(got, owed, given, strict=True)
            )
            found.append(
                (calls.sent == (SIZE - 1) * message, calls.count == 1, gap),
            )
        return found

    for result in ranks(on_rank, SIZE):
        for bytes_are_right, one_call, gap in result:
            assert bytes_are_right and one_call
            assert gap < 1e-13


def test_with_whole_numbers_and_topk_the_sum_telescopes_to_the_bit(ranks: Ranks) -> None:
    def on_rank(group: Group) -> bool:
        feedback = ErrorFeedback(TopK(0.25))
        got, total = torch.zeros(16).double(), torch.zeros(16).double()
        for step in range(20):
            mine = drawn(step, 16).mul(10).round()
            total += mine
            got += feedback.mean([mine], group)[0]
        return torch.equal(got + feedback.errors[0], total)

    assert all(ranks(on_rank, 2))


def played(rank: int, steps: int) -> list[list[torch.Tensor]]:
    """PowerSGD of three ranks on one process, on the mean of their gradients."""
    state: dict[int, Any] = {}
    results = []
    for step in range(steps):
        each = zip(*(gradients(r, step) for r in range(SIZE)), strict=True)
        means = [torch.stack(some).mean(0) for some in each]
        for number, n in enumerate((0, 2)):
            m = means[n].flatten(1)
            if number not in state:
                first = drawn(number, m.shape[1], min(rank, *m.shape))
                state[number] = (first, torch.zeros_like(m))
            q, error = state[number]
            p = torch.linalg.qr((m + error) @ q).Q
            q = (m + error).T @ p
            state[number] = (q, m + error - p @ q.T)
            means[n] = (p @ q.T).view(means[n].shape)
        results.append(means)
    return results


def test_powersgd_is_what_one_process_makes_of_the_mean(ranks: Ranks) -> None:
    def on_rank(group: Group) -> tuple[float, bool, float]:
        power, gap, across = PowerSGD(rank=1), 0.0, 0.0
        expected = played(1, 4)
        for step in range(4):
            with group.ledger.record() as calls:
                means = power.mean(gradients(group.index, step), group)
            for mean, right in zip(means, expected[step], strict=True):
                gap = max(gap, float((mean - right).abs().max()))
        thin = [(6 + 2) * 8, (9 + 15) * 8]
        sizes = [7 * 8, *thin]
        right = sum(wire_bytes("all_reduce", s, SIZE, group.index, 8)[0] for s in sizes)
        for error, mean in zip(power.errors, (means[0], means[2].flatten(1)), strict=True):
            across = max(across, float((mean.T @ error).abs().max()))  # P'e = 0 on each rank
        return gap, calls.sent == right and calls.count == 3, across

    for gap, bytes_are_right, across in ranks(on_rank, SIZE):
        assert gap < 1e-12
        assert bytes_are_right
        assert across < 1e-12


def test_a_gradient_of_low_rank_is_found_and_nothing_is_owed(ranks: Ranks) -> None:
    def on_rank(group: Group) -> tuple[float, float]:
        power = PowerSGD(rank=2)
        mine = drawn(1, 8, 2) @ drawn(2, 2, 9)
        (mean,) = power.mean([mine], group)
        return float((mean - mine).abs().max()), float(power.errors[0].abs().max())

    for gap, owed in ranks(on_rank, 2):
        assert gap < 1e-12 and owed < 1e-12


@pytest.mark.parametrize("reducer", [PowerSGD(rank=2), Compressed(TopK(1.0))], ids=["P", "K"])
def test_gradients_that_are_complex_of_16_bits_or_empty(ranks: Ranks, reducer: Reducer) -> None:
    def on_rank(group: Group) -> list[float]:
        left, right = (torch.complex(drawn(n, *s), drawn(n + 1, *s)) for n, s in LOW)
        low = left @ right
        narrow = (left.real @ right.real).bfloat16()
        given = [low, narrow, torch.tensor(0.5), torch.empty(0, 3)]
        means = reducer.mean(given, group)
        assert [m.dtype for m in means] == [g.dtype for g in given]
        return [float((m - g).abs().sum()) for m, g in zip(means, given, strict=True)]

    for complex_, narrow, single, empty in ranks(on_rank, 2):
        assert complex_ < 1e-12 and narrow < 1 and single == empty == 0


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=lambda c: type(c).__name__)
def test_a_complex_gradient_is_sent_as_its_two_parts(ranks: Ranks, compressor: Compressor) -> None:
    def on_rank(group: Group) -> bool:
        parts = drawn(1, 4, 3, 2)
        whole = torch.view_as_complex(parts)
        (one,), (other,) = (Compressed(compressor).mean([g], group) for g in (whole, parts))
        return torch.equal(torch.view_as_real(one), other)

    assert all(ranks(on_rank, 2))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def test_ddp_with_a_reducer_that_loses_nothing_is_one_process(ranks: Ranks) -> None:
    def on_rank(group: Group) -> list[float]:
        found = []
        for reducer in (ErrorFeedback(TopK(1.0)), Compressed(TopK(1.0)), PowerSGD(rank=5)):
            ours = CompressedDDP(net(), group, reducer)
            ours(drawn(group.index, 4, 5)).square().mean().backward()
            ours.synchronize()
            whole = net()
            whole(torch.cat([drawn(r, 4, 5) for r in range(SIZE)])).square().mean().backward()
            found += [
                float((a.grad - b.grad).abs().max())
                for a, b in zip(ours.parameters(), whole.parameters(), strict=True)
                if a.grad is not None and b.grad is not None
            ]
        return found

    for gaps in ranks(on_rank, SIZE):
        assert len(gaps) == 12 and max(gaps) < 1e-12


def adam_played(steps: int, warmup: int) -> list[torch.Tensor]:
    """1-bit Adam of three ranks on one process, for a vector and its gradients."""
    weight, first, second = (torch.zeros(11).double() for _ in range(3))
    owed = [torch.zeros(11).double() for _ in range(SIZE)]
    after = []
    for step in range(1, steps + 1):
        each = [drawn(50 * r + step, 11) + 0.1 * weight for r in range(SIZE)]
        if step <= warmup:
            gradient = torch.stack(each).mean(0)
            first = 0.9 * first + 0.1 * gradient
            second = 0.99 * second + 0.01 * gradient**2
        else:
            moments = [0.9 * first + 0.1 * g + e for g, e in zip(each, owed, strict=True)]
            sent = [arrives(Sign(), m) for m in moments]
            owed = [m - s for m, s in zip(moments, sent, strict=True)]
            first = torch.stack(sent).mean(0)
        root = (second / (1 - 0.99 ** min(step, warmup))).sqrt() + 1e-8
        weight = weight - 0.1 / (1 - 0.9**step) * first / root
        after.append(weight)
    return after


def test_one_bit_adam_is_adam_and_then_signs_of_its_momentum(ranks: Ranks) -> None:
    def on_rank(group: Group) -> tuple[float, float, list[int]]:
        weight = nn.Parameter(torch.zeros(11).double())
        plain = nn.Parameter(torch.zeros(11).double())
        made = OneBitAdam([weight], group, warmup=3, lr=0.1, betas=(0.9, 0.99))
        adam = torch.optim.Adam([plain], lr=0.1, betas=(0.9, 0.99))
        gap = from_adam = 0.0
        sent = []
        for step, right in enumerate(adam_played(7, 3), 1):
            weight.grad = drawn(50 * group.index + step, 11) + 0.1 * weight.detach()
            with group.ledger.record() as calls:
                made.step()
            sent.append(calls.sent)
            gap = max(gap, float((weight - right).abs().max()))
            if step <= 3:
                each = [drawn(50 * r + step, 11) + 0.1 * plain.detach() for r in range(SIZE)]
                plain.grad = torch.stack(each).mean(0)
                adam.step()
                from_adam = max(from_adam, float((weight - plain).abs().max()))
            if step == 5:  # a run that is saved and goes on
                state = copy.deepcopy(made.state_dict())
                made = OneBitAdam([weight], group, warmup=3, lr=0.1, betas=(0.9, 0.99))
                made.load_state_dict(state)
        return gap, from_adam, sent

    for index, (gap, from_adam, sent) in enumerate(ranks(on_rank, SIZE)):
        assert gap < 1e-12 and from_adam < 1e-12
        warm = wire_bytes("all_reduce", 11 * 8, SIZE, index, 8)[0]
        assert sent == [warm] * 3 + [(SIZE - 1) * (2 + 8)] * 4


def test_what_cannot_be_is_refused(ranks: Ranks) -> None:
    def on_rank(group: Group) -> list[str]:
        weight = nn.Parameter(torch.zeros(4))
        fed = ErrorFeedback(Sign())
        fed.mean([torch.ones(4)], group)
        made = OneBitAdam([weight], group, warmup=1)
        other = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
        complex_step = OneBitAdam([other], group, warmup=1).step
        other.grad = torch.ones_like(other)
        said = []
        for call in (
            partial(TopK, 0.0),
            partial(Int8, 0),
            partial(PowerSGD, 0),
            partial(OneBitAdam, [weight], group, warmup=0),
            partial(fed.mean, [torch.ones(5)], group),
            made.step,
            complex_step,
        ):
            with pytest.raises(CommError) as error:
                call()
            said.append(error.value.found)
        return said

    assert ranks(on_rank, 2)[0] == [
        "a part outside of (0, 1]",
        "no elements in a block",
        "no columns",
        "a second moment of zero",
        "what is owed has shapes [(4,)]",
        "no gradient for a parameter of shape (4,) on rank 0",
        "a complex parameter of shape (2,)",
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1e-7, 1e-5, 1.0, 1e4])
def test_int8_keeps_every_sign_where_its_scale_is_rounded(dtype: torch.dtype, size: float) -> None:
    values = (size * drawn(5, 4096)).to(dtype)
    assert (arrives(Int8(block=16), values).sign() * values.sign() >= 0).all()


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=lambda c: type(c).__name__)
def test_a_model_of_which_nothing_is_trained_sends_nothing(
    ranks: Ranks, compressor: Compressor
) -> None:
    def run(group: Group) -> int:
        model = nn.Linear(2, 2).requires_grad_(False)
        wrapped = CompressedDDP(model, group, ErrorFeedback(compressor))
        before = len(group.ledger.events)
        wrapped.synchronize()
        return len(group.ledger.events) - before

    assert ranks(run, 2) == [0, 0]


def test_one_bit_adam_leaves_alone_what_it_has_no_second_moment_of(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        torch.manual_seed(0)
        table = nn.Embedding(5, 2)
        frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        optimizer = OneBitAdam([*table.parameters(), frozen], group, warmup=2, lr=0.01)
        before = table.weight.detach().clone()
        for step in range(5):
            table(torch.tensor([0, 1] if step < 2 else [1, 2])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return (table.weight.detach() - before).abs().amax(1).tolist(), frozen.tolist()

    for moved, frozen in ranks(run, 2):
        assert moved[2:] == [0, 0, 0]  # row 2 came after the warm-up
        assert all(0 < most < 0.1 for most in moved[:2])
        assert frozen == [1, 1]


def test_one_bit_adam_has_one_warm_up_for_all_and_no_step_that_failed(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        first, second = nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)
        optimizer = OneBitAdam([*first.parameters(), *second.parameters()], group, warmup=1)
        with pytest.raises(CommError, match="no gradient"):
            optimizer.step()
        assert optimizer.steps == 0
        first(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        with pytest.raises(CommError, match="one warm-up"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        second.requires_grad_(True)
        (first(torch.ones(1, 2)) + second(torch.ones(1, 2))).sum().backward()
        with pytest.raises(CommError, match="frozen in the first one"):
            optimizer.step()
        return optimizer.steps, len(optimizer.param_groups)

    assert ranks(run, 2) == [(1, 1)] * 2


@pytest.mark.parametrize("make", [lambda: ErrorFeedback(Int8(block=8)), lambda: PowerSGD(1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_an_overflow_is_seen_once_and_not_owed(
    ranks: Ranks, make: Callable[[], Reducer], dtype: torch.dtype, wrong: float
) -> None:
    def run(group: Group) -> list[bool]:
        reducer, finite = make(), []
        for step in range(3):
            gradient = drawn(step, 8, 6).to(dtype)
            if step == 1 and group.index == 1:
                gradient[2, 3] = wrong
            finite.append(bool(reducer.mean([gradient], group)[0].isfinite().all()))
        return finite

    assert ranks(run, 2) == [[True, False, True]] * 2
