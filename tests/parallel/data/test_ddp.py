"""Data parallelism: equal to one process, at the bytes that the formula says, overlapping."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError
from course_lib.parallel import BucketedDDP, NaiveDDP, OverlapDDP, build_buckets
from course_lib.trace import wire_bytes

KINDS = {"naive": NaiveDDP, "overlap": OverlapDDP, "bucketed": BucketedDDP}


class Odd(nn.Module):
    """A model with what breaks data parallelism: tied, frozen and unused weights, a buffer."""

    def __init__(self, unused: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))

        self.first = weight(7, 5)
        self.frozen = weight(5, 5).requires_grad_(False)
        self.second = weight(5, 3)
        self.tied = self.first
        self.unused = weight(4) if unused else None
        self.register_buffer("shift", torch.ones(5, dtype=torch.float64))

    def forward(self, x: torch.Tensor, skip: bool = False) -> torch.Tensor:
        hidden = torch.tanh(x @ self.first + self.shift) @ self.frozen
        back = hidden @ self.tied.t()
        return (torch.tanh(back @ self.first) @ self.second) if not skip else back


def batch_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(12, 7, generator=generator, dtype=torch.float64)


def train(
    model: nn.Module, optimizer: Any, part: Any, wrapped: Any = None, steps: int = 4
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Gradients before the first step, and weights after the last."""
    first: list[torch.Tensor] = []
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        (wrapped or model)(part(batch_of(step))).pow(2).mean().backward()
        if isinstance(wrapped, NaiveDDP):
            wrapped.synchronize()
        if step == 0:
            first = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return first, [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_equal_to_one_process(ranks: Any, world: int, kind: str, optimizer: str) -> None:
    def run(group: Any) -> Any:
        torch.manual_seed(group.rank)
        model = Odd(unused=False)
        if group.rank:
            with torch.no_grad():
                model.second.add_(1)  # replicas that begin apart must be made equal
                model.shift.add_(1)
        wrapped = KINDS[kind](model, group)
        made = getattr(torch.optim, optimizer)(
            [p for p in model.parameters() if p.requires_grad], lr=0.05
        )
        return train(model, made, lambda x: x.chunk(group.size)[group.index], wrapped)

    alone = Odd(unused=False)
    made = getattr(torch.optim, optimizer)([p for p in alone.parameters() if p.requires_grad], 0.05)
    gradients, weights = train(alone, made, lambda x: x)
    for got_gradients, got_weights in ranks(run, world):
        torch.testing.assert_close(got_gradients, gradients, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(got_weights, weights, rtol=1e-9, atol=1e-12)


def test_bytes_are_the_formulas(ranks: Any) -> None:
    def run(group: Any, kind: str) -> Any:
        model = Odd(unused=False)
        wrapped = KINDS[kind](model, group)
        since = len(group.ledger.events)
        out = wrapped(batch_of(0)).pow(2).mean()
        out.backward()
        if isinstance(wrapped, NaiveDDP):
            wrapped.synchronize()
        events = [e for e in group.ledger.events[since:] if e.op == "all_reduce"]
        sizes = [b.nbytes for b in wrapped.buckets] if kind == "bucketed" else None
        return group.index, [e.payload for e in events], sum(e.sent for e in events), sizes

    for kind in KINDS:
        for index, payloads, sent, sizes in ranks(run, 3, kind):
            assert sum(payloads) == (7 * 5 + 5 * 3) * 8, "tied once, frozen not at all"
            expected = [wire_bytes("all_reduce", p, 3, index, 8)[0] for p in payloads]
            assert sent == sum(expected)
            assert sizes is None or sizes == payloads


def test_overlap_is_real(ranks: Any) -> None:
    def run(group: Any, kind: str) -> Any:
        layers = [nn.Linear(8, 8).double() for _ in range(6)]
        wrapped = KINDS[kind](nn.Sequential(*layers), group, *([600, 600] * (kind == "bucketed")))
        order: list[tuple[str, int]] = []
        for number, layer in enumerate(layers):
            layer.weight.register_hook(lambda g, n=number: order.append(("ready", n)))
        before = group.ledger.begin

        def note(op: str, **fields: Any) -> Any:
            order.append((op, 0))
            return before(op, **fields)

        group.ledger.begin = note
        wrapped(torch.ones(2, 8, dtype=torch.float64)).sum().backward()
        return [what for what, _ in order if what != "broadcast"]

    for kind in ("overlap", "bucketed"):
        for order in ranks(run, 2, kind):
            last_ready = len(order) - 1 - order[::-1].index("ready")
            assert "all_reduce" in order[:last_ready], "nothing was sent before the last gradient"


def test_no_sync_sends_once_for_several_backwards(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Odd(unused=False)
        wrapped = BucketedDDP(model, group)
        since = len(group.ledger.events)
        parts = [batch_of(step).chunk(group.size)[group.index] for step in range(3)]
        with wrapped.no_sync():
            for part in parts[:-1]:
                wrapped(part).pow(2).mean().backward()
        wrapped(parts[-1]).pow(2).mean().backward()
        calls = [e.op for e in group.ledger.events[since:]].count("all_reduce")
        return calls, len(wrapped.buckets), [p.grad for p in model.parameters()]

    alone = Odd(unused=False)
    for step in range(3):
        alone(batch_of(step)).pow(2).mean().backward()
    for calls, buckets, gradients in ranks(run, 2):
        assert calls == buckets
        for got, parameter in zip(gradients, alone.parameters(), strict=True):
            torch.testing.assert_close(got, parameter.grad, rtol=1e-9, atol=1e-12)


def test_a_part_that_only_some_ranks_use(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Odd(unused=False)
        wrapped = BucketedDDP(model, group, 200, 200, find_unused_parameters=True)
        wrapped(batch_of(0).chunk(2)[group.index], skip=group.index == 1).pow(2).sum().backward()
        return [p.grad for p in model.parameters() if p.requires_grad]

    alone = Odd(unused=False)
    halves = batch_of(0).chunk(2)
    loss = alone(halves[0]).pow(2).sum() + alone(halves[1], skip=True).pow(2).sum()
    (loss / 2).backward()
    for gradients in ranks(run, 2):
        expected = [p.grad for p in alone.parameters() if p.requires_grad]
        torch.testing.assert_close(gradients, expected, rtol=1e-9, atol=1e-12)


def test_an_unused_parameter_is_named(ranks: Any) -> None:
    def run(group: Any) -> str:
        found = []
        for kind in (OverlapDDP, BucketedDDP):
            try:
                kind(Odd(unused=True), group)(batch_of(0)).sum().backward()
            except CommError as error:
                found.append(str(error))
        return found

    for overlap, bucketed in ranks(run, 2):
        assert "none for unused on rank" in overlap and "use BucketedDDP" in overlap
        assert "none for unused on rank" in bucketed and "find_unused_parameters=True" in bucketed


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_what_no_rank_uses_is_left_alone(ranks: Any, optimizer: str) -> None:
    def make(model: nn.Module) -> Any:
        options = {"momentum": 0.9} if optimizer == "SGD" else {}
        kind = getattr(torch.optim, optimizer)
        return kind(model.parameters(), lr=0.05, weight_decay=0.1, **options)

    def run(group: Any) -> Any:
        model = Odd(unused=True)
        wrapped = BucketedDDP(model, group, find_unused_parameters=True)
        return train(model, make(model), lambda x: x.chunk(group.size)[group.index], wrapped)

    alone = Odd(unused=True)
    assert alone.unused is not None
    before = alone.unused.detach().clone()
    gradients, weights = train(alone, make(alone), lambda x: x)
    assert alone.unused.equal(before), "no decay without a gradient"
    for got in ranks(run, 3):
        torch.testing.assert_close(got, (gradients, weights), rtol=1e-9, atol=1e-12)


def test_a_step_on_local_gradients_is_refused(ranks: Any) -> None:
    def run(group: Any) -> list[str]:
        found = []

        def trial(action: Any) -> None:
            try:
                action()
                found.append("")
            except CommError as error:
                found.append(str(error))

        model = Odd(unused=False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        naive = NaiveDDP(model, group)
        naive(batch_of(0)).sum().backward()
        trial(optimizer.step)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        trial(naive.synchronize)
        optimizer.zero_grad()
        naive(batch_of(0)).sum().backward()
        naive.synchronize()
        trial(optimizer.step)
        del naive
        model = Odd(unused=False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        bucketed = BucketedDDP(model, group)
        with bucketed.no_sync():
            bucketed(batch_of(0)).sum().backward()
        trial(optimizer.step)
        optimizer.zero_grad()
        trial(optimizer.step)
        return found

    for local, changed, fine, inside, empty in ranks(run, 2):
        assert "gradient of first" in local and "synchronize()" in local
        assert "changed since the backward" in changed
        assert "no other rank has seen" in inside
        assert fine == empty == ""
        assert all(len(text.splitlines()) == 3 for text in (local, changed, inside))


def test_state_dict_is_the_bare_modules(ranks: Any) -> None:
    def run(group: Any) -> Any:
        wrapped = BucketedDDP(Odd(unused=False), group)
        bare = Odd(unused=False)
        bare.load_state_dict(wrapped.state_dict())
        wrapped.load_state_dict(bare.state_dict())
        return list(wrapped.state_dict())

    assert ranks(run, 1)[0] == list(Odd(unused=False).state_dict())


def test_buckets_go_backwards_by_dtype_and_cap() -> None:
    a, b, c = (nn.Parameter(torch.zeros(10)) for _ in range(3))
    half = nn.Parameter(torch.zeros(10, dtype=torch.float16))
    frozen = nn.Parameter(torch.zeros(10), requires_grad=False)
    buckets = build_buckets([a, half, b, frozen, c, a], cap=80, first_cap=40)
    assert [[id(p) for p in bucket.parameters] for bucket in buckets] == [
        [id(c)], [id(b), id(a)], [id(half)],
    ]  # fmt: skip
    buckets[1].view(a).fill_(2)
    assert buckets[1].flat.tolist() == [0.0] * 10 + [2.0] * 10
