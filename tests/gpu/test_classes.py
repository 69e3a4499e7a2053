"""Every class on every device: what one process computes on the CPU, and nothing left behind there.

A parameter, gradient, state or bucket that is silently on the CPU would make a step slow and right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib import comm
from course_lib.checkpoint import (
    hold_whole,
    load_resharded,
    model_pieces,
    optimizer_pieces,
    save_sharded,
)
from course_lib.comm import Group, Mesh
from course_lib.parallel import (
    FSDP,
    BucketedDDP,
    DevicePool,
    NaiveDDP,
    OffloadedAdam,
    OverlapDDP,
    RegionRng,
    SequenceLayout,
    Zero1,
    Zero2,
    convert_sync_batch_norm,
    ring_attention,
    shard_sequence,
    ulysses_attention,
)
from course_lib.precision import MasterWeights
from course_lib.recompute import checkpoint

ROWS, STEPS, RATE = 8, 3, 0.02
Weights = dict[str, torch.Tensor]


def build(device: torch.device, norm: bool = False) -> nn.Sequential:
    """A small model; the same weights on every device."""
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(10) if norm else nn.Tanh()
    model = nn.Sequential(nn.Linear(6, 10), middle, nn.Linear(10, 5), nn.Tanh(), nn.Linear(5, 3))
    return model.double().to(device)


def batch(step: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, 6, generator=draw, dtype=torch.float64)


def steps(model: nn.Module, optimizer: Any, group: Group | None) -> None:
    """Trains on this rank's rows of each batch; on all rows without a group."""
    for step in range(STEPS):
        rows = batch(step) if group is None else batch(step).chunk(group.size)[group.index]
        optimizer.zero_grad()
        model(rows.to(next(model.parameters()).device)).square().mean().backward()
        if isinstance(model, NaiveDDP):
            model.synchronize()
        if isinstance(optimizer, Zero1):
            optimizer.reduce_gradients()
        optimizer.step()


def alone(norm: bool = False) -> Weights:
    """What one process on the CPU ends with."""
    model = build(torch.device("cpu"), norm)
    steps(model, torch.optim.AdamW(model.parameters(), lr=RATE), None)
    return dict(model.state_dict())


def tensors_in(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested dicts, lists and modules' attributes, but for counts of steps."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "step":
                yield from tensors_in(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from tensors_in(inner, f"{name}.{number}")


def check_places(group: Group, model: nn.Module, optimizer: Any) -> None:
    """Parameters, gradients, buffers, optimizer state and buckets are where the rank computes."""
    inner = getattr(optimizer, "inner", optimizer)
    seen = {"parameter": dict(model.named_parameters()), "buffer": dict(model.named_buffers()),
            "gradient": [p.grad for p in model.parameters() if p.grad is not None],
            "state": {n: dict(s) for n, s in enumerate(inner.state.values())},
            "bucket": [b.flat for b in getattr(model, "buckets", ())]}  # fmt: skip
    found = list(tensors_in(seen, "its"))
    assert any(name.startswith("its.state") for name, _ in found)
    for name, tensor in found:
        assert tensor.device == group.device, f"{name} is on {tensor.device}, not {group.device}"


# --- data parallel -------------------------------------------------------------------------------
def replicas(group: Group, kind: str) -> Weights:
    module = build(group.device)
    wrapped: nn.Module = module
    if kind in ("FSDP", "HSDP"):
        mesh = Mesh(group, {"dp": group.size // 2, "tp": 2}) if kind == "HSDP" else None
        over, copies = (mesh["tp"], mesh["dp"]) if mesh else (group, None)
        wrapped = FSDP(module, over, [module[0], module[2]], replicas=copies)
    elif "ZeRO" not in kind:
        kinds = {"naive": NaiveDDP, "overlap": OverlapDDP, "buckets": BucketedDDP}
        wrapped = kinds[kind](module, group)
    adam = torch.optim.AdamW
    if "ZeRO" in kind:
        sharded = Zero1 if kind == "ZeRO-1" else Zero2
        optimizer: Any = sharded(module.parameters(), adam, group, lr=RATE)
    else:
        optimizer = adam(wrapped.parameters(), lr=RATE)
    steps(wrapped, optimizer, group)
    check_places(group, wrapped, optimizer)
    if isinstance(wrapped, FSDP):
        return wrapped.full_state_dict()
    return {name: tensor.cpu() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize(
    "kind", ["naive", "overlap", "buckets", "ZeRO-1", "ZeRO-2", "FSDP", "HSDP"]
)
def test_data_parallel(everywhere: Callable[..., Any], place: Any, kind: str) -> None:
    if kind == "HSDP" and place.world < 4:
        pytest.skip("HSDP needs two replicas of two shards")
    expected = alone()
    for found in everywhere(replicas, kind):
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, rtol=1e-9, atol=1e-11)


def batch_norm(group: Group) -> Weights:
    module = convert_sync_batch_norm(build(group.device, norm=True), group)
    wrapped = BucketedDDP(module, group)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=RATE)
    steps(wrapped, optimizer, group)
    check_places(group, wrapped, optimizer)
    return {name: tensor.cpu() for name, tensor in module.state_dict().items()}


def test_batch_norm_over_the_ranks(everywhere: Callable[..., Any]) -> None:
    expected = alone(norm=True)
    for found in everywhere(batch_norm):
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, rtol=1e-9, atol=1e-11)


# --- attention over a cut sequence ---------------------------------------------------------------
def qkv() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    shape = (2, 4, 16, 8)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(4)]


def attention(group: Group, kind: str) -> list[torch.Tensor]:
    """Output and gradients of this rank's tokens, and which tokens these are."""
    layout = SequenceLayout.zigzag(16, group.size)
    q, k, v, weight = (shard_sequence(t, 2, layout, group.index).to(group.device) for t in qkv())
    for part in (q, k, v):
        part.requires_grad_()
    attend = ring_attention if kind == "ring" else ulysses_attention
    out = attend(q, k, v, layout, group)
    (out * weight).sum().backward()
    found = [out.detach(), q.grad, k.grad, v.grad]
    assert all(t is not None and t.device == group.device for t in found)
    return [layout.positions(group.index), *(t.cpu() for t in found)]


@pytest.mark.parametrize("kind", ["ring", "Ulysses"])
def test_attention_over_a_cut_sequence(everywhere: Callable[..., Any], kind: str) -> None:
    q, k, v, weight = qkv()
    for part in (q, k, v):
        part.requires_grad_()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    (out * weight).sum().backward()
    whole = [out.detach(), q.grad, k.grad, v.grad]
    for positions, *found in everywhere(attention, kind):
        for mine, full in zip(found, whole, strict=True):
            torch.testing.assert_close(mine, full[:, :, positions], rtol=1e-9, atol=1e-11)


# --- memory --------------------------------------------------------------------------------------
def offloaded(group: Group) -> tuple[Weights, list[bool]]:
    module = build(group.device)
    with DevicePool(1 << 30, device=group.device) as pool:
        optimizer = OffloadedAdam(module.parameters(), pool, lr=RATE)
        steps(module, optimizer, None)
        on_host = [p for options in optimizer.inner.param_groups for p in options["params"]]
        states = [t for _, t in tensors_in(dict(optimizer.inner.state), "state")]
        assert {t.device.type for t in (*on_host, *states)} == {"cpu"}
        pinned = [pool.host_like(p).is_pinned() for p in module.parameters()]
    assert {p.device for p in module.parameters()} == {group.device}
    return {name: tensor.cpu() for name, tensor in module.state_dict().items()}, pinned


def test_offload_keeps_masters_and_states_on_the_host(
    everywhere: Callable[..., Any], place: Any
) -> None:
    """Pinned on a GPU, or copies could not run beside the computation."""
    expected = alone()
    for found, pinned in everywhere(offloaded):
        assert all(pinned) == (place.device == "cuda")
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, rtol=1e-9, atol=1e-11)


def recomputed(group: Group) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Gradients with dropout, kept and computed again: the masks must be the same."""
    found = []
    for how in (lambda fn, x: fn(x), checkpoint):
        module = build(group.device)
        torch.manual_seed(5)
        mask = nn.Dropout(0.5)
        x = batch(0).to(group.device)
        how(lambda x, m=module, d=mask: d(m[:3](x)).square(), x).mean().backward()
        found.append([p.grad.cpu() for p in module[:3].parameters() if p.grad is not None])
    return found[0], found[1]


def test_recomputation_draws_the_same_mask(everywhere: Callable[..., Any]) -> None:
    for kept, again in everywhere(recomputed):
        assert len(kept) == 4 and all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def random_regions(group: Group) -> dict[str, list[float]]:
    streams = RegionRng(7, group)
    drawn = {}
    for name in ("replicated", "sharded"):
        with streams.region(name):
            drawn[name] = torch.rand(4, device=group.device).tolist()
        with streams.region(name):  # on the CPU as well, wherever the rank computes
            drawn[f"{name}, CPU"] = torch.rand(4).tolist()
    return drawn


def test_random_regions(everywhere: Callable[..., Any], place: Any) -> None:
    drawn = everywhere(random_regions)
    for name in drawn[0]:
        different = {tuple(found[name]) for found in drawn}
        assert len(different) == (place.world if "sharded" in name else 1), name


# --- precision and checkpoints -------------------------------------------------------------------
def masters(group: Group) -> list[float]:
    module = build(group.device).to(torch.bfloat16)
    optimizer = MasterWeights(module.parameters(), torch.optim.AdamW, lr=RATE)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = module(batch(0).to(group.device, torch.bfloat16)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    check_places(group, module, optimizer)
    wide = [p for options in optimizer.inner.param_groups for p in options["params"]]
    assert {(p.dtype, p.device) for p in wide} == {(torch.float32, group.device)}
    return losses


def test_master_weights(everywhere: Callable[..., Any]) -> None:
    for losses in everywhere(masters):
        assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def saved_and_loaded(group: Group, folder: Path) -> float:
    """The largest difference after a step, a save, and a load into a model of other weights."""
    module, other = build(group.device), build(group.device)
    adam = {net: torch.optim.AdamW(net.parameters(), lr=RATE) for net in (module, other)}
    steps(module, adam[module], None)
    steps(other, adam[other], None)
    for tensor in other.state_dict().values():
        tensor.zero_()

    def pieces(net: nn.Module) -> list[Any]:
        held = hold_whole(net)
        return [*model_pieces(held), *optimizer_pieces(held, adam[net])]

    save_sharded(pieces(module), folder, group, step=1)
    load_resharded(pieces(other), folder, group)
    comm.barrier(group)
    check_places(group, other, adam[other])
    pairs = zip(module.parameters(), other.parameters(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def test_checkpoints(everywhere: Callable[..., Any], place: Any, tmp_path: Path) -> None:
    assert everywhere(saved_and_loaded, tmp_path) == [0.0] * place.world
