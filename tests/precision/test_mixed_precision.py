"""Mixed precision: losses beside float32, sums in bf16 within the bound, on every wrapper."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import (
    FSDP,
    BucketedDDP,
    NaiveDDP,
    OverlapDDP,
    Precision,
    Zero1,
    Zero2,
    clip_grad_norm,
)
from course_lib.precision.loss_scaler import DynamicLossScaler
from course_lib.precision.master_weights import MasterWeights
from course_lib.precision.mixed_precision import Policy, cast_forward, reduction_bound
from course_lib.trace.memory import LiveMemory

BF16 = Policy(torch.bfloat16, torch.bfloat16, torch.float32)
FP16 = Policy(torch.float16, torch.float16, torch.float32)
FP32 = Policy()
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}


class Net(nn.Module):
    """Tied ends, a frozen bias, a buffer, integers beside floats."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ends = nn.Parameter(torch.randn(8, 16) / 4)
        self.inner = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 16))
        self.inner[0].bias.requires_grad_(False)
        self.tied = self.ends
        self.register_buffer("shift", torch.full((16,), 0.25))

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        hidden = (x @ self.ends + self.shift.to(x.dtype))[rows]
        return self.inner(hidden) @ self.tied.t()


def batch_of(step: int, part: int = 0, parts: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(12, 8, generator=torch.Generator().manual_seed(step)).chunk(parts)[part]
    return x, torch.arange(len(x)).flip(0)


def loss_of(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return (output.float() - batch[0].roll(1, 1)).pow(2).mean()


# --- computing in another dtype ------------------------------------------------------------------
def test_parameters_stay_and_the_graph_casts() -> None:
    seen = []
    net = Net()
    net.inner[0].register_forward_hook(
        lambda m, args, out: seen.append((args[0].dtype, m.weight.dtype, out.dtype))
    )
    wrapped = cast_forward(net, BF16)
    output = wrapped(*batch_of(0))
    loss_of(output, batch_of(0)).backward()
    assert seen == [(torch.bfloat16,) * 3]
    assert output.dtype == torch.float32
    assert {p.dtype for p in wrapped.parameters()} == {torch.float32}
    trained = [p for p in net.parameters() if p.requires_grad]
    assert {p.grad.dtype for p in trained} == {torch.float32}
    assert net.inner[0].bias.grad is None
    assert wrapped.state_dict().keys() == Net().state_dict().keys()
    assert net.shift.dtype == torch.float32, "buffers are not cast"

    other = cast_forward(Net(), FP32)
    other.load_state_dict(wrapped.state_dict())
    assert torch.equal(other(*batch_of(1)), net(*batch_of(1))), "no policy, no change"


def test_gradients_are_those_of_a_model_in_that_dtype() -> None:
    """The tied weight's two uses add up in bf16, as they do where the weight is bf16 itself."""
    net, low = Net(), Net().bfloat16()
    loss_of(cast_forward(net, BF16)(*batch_of(0)), batch_of(0)).backward()
    x, rows = batch_of(0)
    loss_of(low(x.bfloat16(), rows), (x, rows)).backward()
    for (name, mine), theirs in zip(net.named_parameters(), low.parameters(), strict=True):
        if mine.requires_grad:
            torch.testing.assert_close(mine.grad, theirs.grad.float(), rtol=2**-7, atol=1e-5)
            assert not torch.equal(mine.grad, torch.zeros_like(mine)), name


def losses(policy: Policy, scaled: Any = None, steps: int = 20) -> list[float]:
    """A small transformer that learns a sequence by heart."""
    model = Transformer(ModelConfig(vocabulary=17, hidden=32, layers=2, heads=4, kv_heads=2))
    computed = cast_forward(model, policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.8)
    tokens = torch.randint(17, (2, 25), generator=torch.Generator().manual_seed(5))
    found = []
    for _ in range(steps):
        logits = computed(tokens[:, :-1]).float()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        found.append(loss.item())
        (loss if scaled is None else scaled.scale(loss)).backward()
        if scaled is None:
            optimizer.step()
        else:
            scaled.unscale(model.parameters())
            scaled.step(optimizer)
            scaled.update()
        optimizer.zero_grad()
    return found


def test_losses_stay_beside_float32(ranks: Any) -> None:
    """Within two units of roundoff of the loss: 0.8 % in bf16, 0.1 % in fp16 with a scale.

    Later the run begins to swing, and small differences grow, in float32 as well.
    """

    def run(group: Any) -> Any:
        scaler = DynamicLossScaler(group, init=2.0**12)
        return losses(FP32), losses(BF16), losses(FP16, scaler), scaler.skipped

    ((exact, bf16, fp16, skipped),) = ranks(run, 1)
    assert exact[-1] < 0.6 * exact[0], "it learns at all"
    assert skipped == 0
    for low, dtype in ((bf16, torch.bfloat16), (fp16, torch.float16)):
        assert low != exact
        for mine, right in zip(low, exact, strict=True):
            assert abs(mine - right) <= 2 * ROUNDOFF[dtype] * right


# --- on the wrappers -----------------------------------------------------------------------------
def train(group: Any, kind: str, policy: Policy, steps: int = 3) -> dict[str, torch.Tensor]:
    """The same three steps under a wrapper; weights afterwards, whole."""
    net = Net()
    if kind == "fsdp":
        precision = Precision(policy.param_dtype, policy.reduce_dtype)
        model: Any = FSDP(net, group, [net.inner], precision=precision)
    elif kind == "bucketed":
        model = BucketedDDP(cast_forward(net, policy), group, 400, 400,
                            reduce_dtype=policy.reduce_dtype)  # fmt: skip
    elif kind in ("zero1", "zero2"):
        model = cast_forward(net, policy)
    else:
        model = {"naive": NaiveDDP, "overlap": OverlapDDP}[kind](cast_forward(net, policy), group)
    sharded = {"zero1": Zero1, "zero2": Zero2}.get(kind)
    make = partial(sharded, optimizer=torch.optim.SGD, group=group) if sharded else torch.optim.SGD
    optimizer = make(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        batch = batch_of(step, group.index, group.size)
        loss_of(model(*batch), batch).backward()
        if kind == "naive":
            model.synchronize()
        optimizer.step()
        optimizer.zero_grad()
    return model.full_state_dict() if kind == "fsdp" else net.state_dict()


WRAPPERS = ("naive", "overlap", "bucketed", "fsdp", "zero1", "zero2")


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_wrapper_computes_the_same(ranks: Any, world: int) -> None:
    policy = Policy(torch.bfloat16, torch.float32, torch.float32)

    def run(group: Any) -> Any:
        return {kind: train(group, kind, policy) for kind in WRAPPERS}

    alone = Net()
    computed = cast_forward(alone, policy)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        for index in range(world):
            batch = batch_of(step, index, world)
            (loss_of(computed(*batch), batch) / world).backward()
        optimizer.step()
        optimizer.zero_grad()
    start = Net().state_dict()
    for result in ranks(run, world):
        for kind, weights in result.items():
            for name, right in alone.state_dict().items():
                moved = (right - start[name]).abs().max()
                # The loss is divided by N before or after it is rounded to bf16.
                error = (weights[name] - right).abs().max()
                assert error <= 4 * 2**-8 * moved + 1e-7, (kind, name, error, moved)


# --- reducing in another dtype -------------------------------------------------------------------
@pytest.mark.parametrize("world", [2, 3, 4])
def test_sums_in_bf16_are_within_the_bound(ranks: Any, world: int) -> None:
    """Also where terms cancel, where they are subnormal, and where they are all of one sign."""

    def terms(index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        plain = torch.randn(2000, generator=generator)
        cancels = plain.abs() * (-1) ** index
        tiny = torch.randn(2000, generator=generator) * 1e-7
        return torch.cat([plain, plain.abs(), cancels, tiny])

    def run(group: Any) -> Any:
        found = {}
        for dtype in ROUNDOFF:
            low = terms(group.index).to(dtype)
            all_reduce(low, group)
            found[dtype] = low.double()
        return found

    exact = sum(terms(index).double() for index in range(world))
    magnitudes = sum(terms(index).abs() for index in range(world))
    worst = {}
    for found in ranks(run, world):
        for dtype, total in found.items():
            share = (total - exact).abs() / reduction_bound(magnitudes, world, dtype)
            assert share.max() <= 1, dtype
            worst[dtype] = float((total - exact).abs().max())
    assert worst[torch.bfloat16] > 4 * worst[torch.float16] > 16 * worst[torch.float32] > 0


def test_the_bound_grows_with_the_ranks_and_the_terms() -> None:
    """It is nearly reached by the worst case, 1 + u + u + ..., where every addition rounds down."""
    one = torch.ones(1)
    bounds = [reduction_bound(one, ranks, torch.bfloat16).item() for ranks in (2, 4, 8)]
    assert bounds[1] == pytest.approx(2 * bounds[0], rel=0.02)
    assert bounds[2] == pytest.approx(4 * bounds[0], rel=0.04)
    assert reduction_bound(3 * one, 2, torch.bfloat16).item() == pytest.approx(3 * bounds[0])

    ranks, u = 16, 2.0**-8
    total = torch.ones((), dtype=torch.bfloat16)
    for _ in range(ranks - 1):
        total = total + torch.tensor(u, dtype=torch.bfloat16)
    exact = 1 + (ranks - 1) * u
    assert total.item() == 1.0, "each is half of the distance to the next number, and is lost"
    bound = reduction_bound(torch.tensor(exact), ranks, torch.bfloat16).item()
    assert 0.8 * bound < exact - total.item() <= bound


@pytest.mark.parametrize("find_unused", [False, True])
def test_bucketed_ddp_reduces_in_the_dtype_asked_for(ranks: Any, find_unused: bool) -> None:
    def run(group: Any, reduce_dtype: Any) -> Any:
        net = Net()
        wrapped = BucketedDDP(net, group, 400, 400, find_unused, reduce_dtype=reduce_dtype)
        since = len(group.ledger.events)
        with wrapped.no_sync():
            loss_of(wrapped(*batch_of(7, group.index, 3)), batch_of(7, group.index, 3)).backward()
        batch = batch_of(0, group.index, group.size)
        loss_of(wrapped(*batch), batch).backward()
        events = [e for e in group.ledger.events[since:] if e.dtype != "uint8"]
        sent = {(e.op, e.dtype) for e in events if "float" in e.dtype}
        grads = [p.grad.clone() for p in net.parameters() if p.requires_grad]
        return sent, sum(e.sent for e in events if e.op == "all_reduce"), grads

    for world in (1, 2, 3):
        wide = ranks(run, world, None)
        narrow = ranks(run, world, torch.bfloat16)
        for (sent, count, grads), (sent_wide, count_wide, grads_wide) in zip(
            narrow, wide, strict=True
        ):
            assert ("all_reduce", "bfloat16") in sent
            assert ("all_reduce", "float32") not in sent
            assert ("all_reduce", "float32") in sent_wide
            assert 2 * count == count_wide
            magnitude = 2 * max(g.abs().max().item() for g in grads_wide)
            for mine, right in zip(grads, grads_wide, strict=True):
                assert mine.dtype == torch.float32
                bound = reduction_bound(torch.full_like(mine, magnitude), world, torch.bfloat16)
                assert ((mine - right).abs() <= bound).all()
        assert all(torch.equal(a, b) for a, b in zip(narrow[0][2], narrow[-1][2], strict=True))


def test_copies_that_are_sent_are_given_back(ranks: Any) -> None:
    def run(group: Any) -> Any:
        wrapped = BucketedDDP(Net(), group, reduce_dtype=torch.bfloat16)
        batch = batch_of(0)
        loss_of(wrapped(*batch), batch).backward()
        with LiveMemory() as memory:
            loss_of(wrapped(*batch), batch).backward()
            left = memory.settle(0)
        kind, ledger = "communication buffers", group.ledger
        return left, ledger.held[kind], ledger.peak[kind]

    trained = sum(p.numel() for p in Net().parameters() if p.requires_grad)
    for left, booked, peak in ranks(run, 2):
        assert left == booked == 0
        assert peak == 2 * trained


def test_bf16_weights_summed_in_float32(ranks: Any) -> None:
    """1 + u + u + u: in bf16 the small ones may be lost, in float32 they are not."""

    def run(group: Any, reduce_dtype: Any) -> Any:
        layer = nn.Linear(1, 1, bias=False).bfloat16()
        wrapped = BucketedDDP(layer, group, reduce_dtype=reduce_dtype)
        x = torch.full((1, 1), 4.0 if group.index == 0 else 4 * 2.0**-8, dtype=torch.bfloat16)
        wrapped(x).sum().backward()
        return layer.weight.grad.dtype, layer.weight.grad.item()

    exact = 1 + 3 * 2.0**-8
    for dtype, gradient in ranks(run, 4, torch.float32):
        assert dtype == torch.bfloat16
        assert gradient == torch.tensor(exact).bfloat16().item(), "rounded once, at the end"


# --- ZeRO with masters ---------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [Zero1, Zero2])
def test_masters_in_zero(ranks: Any, kind: Any) -> None:
    """bf16 weights on every rank, 12/N bytes of state, equal to one process with masters."""

    def run(group: Any) -> Any:
        net = Net().bfloat16()
        masters = partial(MasterWeights, optimizer=torch.optim.AdamW)
        optimizer = kind(net.parameters(), masters, group, lr=0.01)
        for step in range(4):
            x, rows = batch_of(step)  # the same on all: their mean is exact for two
            loss_of(net(x.bfloat16(), rows), (x, rows)).backward()
            optimizer.step()
            optimizer.zero_grad()
        saved = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(saved)
        return net.state_dict(), optimizer.state_bytes()

    alone = Net().bfloat16()
    optimizer = MasterWeights(alone.parameters(), torch.optim.AdamW, lr=0.01)
    for step in range(4):
        x, rows = batch_of(step)
        loss_of(alone(x.bfloat16(), rows), (x, rows)).backward()
        optimizer.step()
    count = sum(p.numel() for p in alone.parameters() if p.requires_grad)
    for world in (1, 2):
        results = ranks(run, world)
        assert sum(state for _, state in results) == 12 * count
        for weights, _ in results:
            for name, right in alone.state_dict().items():
                assert torch.equal(weights[name], right), name


@pytest.mark.parametrize("world", [1, 3])
def test_fp16_masters_in_zero_2_under_a_scale(ranks: Any, world: int) -> None:
    """A rank's shard overflows; nothing of it is left in the update after."""

    def run(group: Any, tried: bool) -> Any:
        net = Net().half()
        masters = partial(MasterWeights, optimizer=torch.optim.AdamW)
        optimizer = Zero2(net.parameters(), masters, group, lr=0.01)
        scaler = DynamicLossScaler(group, init=256.0, backoff=0.5)
        for overflow in (False, True, False) if tried else (False, False):
            x, rows = batch_of(0)
            scaler.scale(loss_of(net(x.half(), rows), (x, rows))).backward()
            if overflow and group.index == group.size - 1:
                next(p.grad for p in reversed(optimizer.shard()) if p.numel()).fill_(torch.inf)
            scaler.unscale(optimizer.inner.gradients_up())
            made = scaler.step(optimizer)
            assert made is not overflow
            scaler.update()
            optimizer.zero_grad()
        return net.state_dict(), scaler.factor

    for (weights, factor), (expected, _) in zip(
        ranks(run, world, True), ranks(run, world, False), strict=True
    ):
        assert factor == 128.0
        for name, right in expected.items():
            torch.testing.assert_close(weights[name], right, rtol=2**-9, atol=1e-4)


# --- all of it: fp16 on ranks of which one overflows ---------------------------------------------
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["bucketed", "fsdp", "zero1"])
def test_one_rank_overflows_and_all_go_on_together(ranks: Any, world: int, kind: str) -> None:
    def run(group: Any) -> Any:
        net = Net()
        policy = Policy(torch.float16, torch.float32, torch.float32)
        model: Any = cast_forward(net, policy)
        if kind == "fsdp":
            precision = Precision(policy.param_dtype, policy.reduce_dtype)
            model = FSDP(net, group, [net.inner], precision=precision)
        elif kind == "bucketed":
            model = BucketedDDP(model, group)
        sgd = torch.optim.SGD
        optimizer: Any = (
            Zero1(net.parameters(), sgd, group, lr=0.1) if kind == "zero1" else
            sgd(net.parameters(), lr=0.1)
        )  # fmt: skip
        scaler = DynamicLossScaler(group, init=2.0**10, interval=3)
        made, scales = [], []
        for step in range(6):
            x, rows = batch_of(step, group.index, group.size)
            if step == 1 and group.index == group.size - 1:
                x = x * 1e5  # beyond fp16's 65504, on the last rank alone
            scaler.scale(loss_of(model(x, rows), (x, rows))).backward()
            scaler.unscale(net.parameters())
            if kind == "bucketed":
                clip_grad_norm(net.parameters(), 1.0)
            made.append(scaler.step(optimizer))
            scaler.update()
            scales.append(scaler.factor)
            optimizer.zero_grad()
        state = model.full_state_dict() if kind == "fsdp" else net.state_dict()
        return made, scales, {n: t.clone() for n, t in state.items()}

    results = ranks(run, world)
    for made, scales, weights in results:
        assert made == [True, False, True, True, True, True]
        assert scales == [1024.0, 512.0, 512.0, 512.0, 1024.0, 1024.0]
        for name, right in results[0][2].items():
            assert right.isfinite().all()
            assert torch.equal(weights[name], right), name


def test_inside_another_module_it_loads_what_that_has_saved() -> None:
    def made() -> nn.Sequential:
        return nn.Sequential(cast_forward(nn.Linear(2, 3), BF16), nn.Linear(3, 1))

    first, second = made(), made()
    second.load_state_dict(first.state_dict())
    assert list(first.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    for ours, theirs in zip(second.parameters(), first.parameters(), strict=True):
        assert torch.equal(ours, theirs)
