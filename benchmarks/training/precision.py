"""Mixed precision against torch's own: rounding, FP8 products, loss scaling and training steps.

All that is compared is alive in the same processes and takes turns (A B C ..., then backwards); a
turn takes as long as its slowest rank, and medians are compared.

`round_to` is the rounding written out, beside the instruction that a cast is. `fp8 linear` is
forward and backward of one layer, current scaling, three products of 8-bit numbers: ours emulated
in float32, torch's `_scaled_mm` with the same scales; float32 is there as information. `scaler` is
unscale, SGD step and update for a GPT of 3.2 M parameters: ours asks all ranks for the verdict,
GradScaler only its own.

The steps train that GPT with AdamW and float32 weights, computing and reducing in bfloat16: `ddp`
beside torch DDP with autocast and a hook that sends bfloat16, `fsdp` beside FSDP2 with a
MixedPrecisionPolicy. `masters` keeps weights and gradients in bfloat16 and updates float32 masters,
which count as optimizer state. `ddp for float32` is our first one again, beside torch DDP that
mixes nothing: what there is to gain. `fsdp fp8` gathers the linear layers' weights in 8 bits, and
FSDP2 in bfloat16; its products are emulated, so its time would say nothing and is left out. Bytes
and peak are measured as in `data_parallel`; on one rank nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.peers.scaled_mm import TorchFp8
from benchmarks.row import Row
from benchmarks.training.data_parallel import BATCH, CONFIG, LR
from benchmarks.training.turns import SIDES, pairs_in_turns, rows_of, slowest_ms, time_calls
from course_lib.comm import Group
from course_lib.model import Transformer
from course_lib.parallel import FSDP, BucketedDDP, Precision
from course_lib.precision import (
    BF16,
    E4M3FN,
    E5M2,
    FP16,
    CurrentScaling,
    DynamicLossScaler,
    Fp8Pack,
    MasterWeights,
    Policy,
    cast_forward,
    fp8_linear,
    fp8_linears,
    round_to,
)
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.trace.memory import LiveMemory, held_bytes

NUMBERS = 1 << 20  # that are rounded
TOKENS, WIDTH = 512, 512  # of the linear layer
HALF = torch.bfloat16
Takers = dict[str, Callable[[], object]]


# --- rounding ------------------------------------------------------------------------------------
def measure_rounding(group: Group, rounds: int) -> dict[str, list[float]]:
    """Seconds of each format's rounding, ours and torch's."""
    x = torch.randn(NUMBERS, generator=torch.Generator().manual_seed(0))
    takers: Takers = {}
    for format in (BF16, FP16, E4M3FN, E5M2):
        takers[f"{format.name} ours"] = partial(round_to, format, x)
        takers[f"{format.name} peer"] = partial(_cast, x, format.dtype)
    return time_calls(takers, group, rounds)


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).float()


# --- a linear layer in 8 bits --------------------------------------------------------------------
def measure_linear(group: Group, rounds: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of forward and backward, and MB that are kept for the backward."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, WIDTH, generator=generator, requires_grad=True)
    weight = torch.randn(WIDTH, WIDTH, generator=generator, requires_grad=True)
    gradient = torch.randn(TOKENS, WIDTH, generator=generator)
    ways: dict[str, Callable[[Any, Any], torch.Tensor]] = {
        "ours": fp8_linear, "peer": TorchFp8.apply, "float32": F.linear
    }  # fmt: skip
    kept = {}
    for name, way in ways.items():
        with LiveMemory() as memory:
            out = way(x * 2, weight)  # an input that nobody else keeps
            kept[name] = (memory.now - out.nbytes) / 1e6
            out.backward(gradient)
            del out

    def both(way: Callable[[Any, Any], torch.Tensor]) -> None:
        x.grad = weight.grad = None
        way(x, weight).backward(gradient)

    return time_calls({name: partial(both, way) for name, way in ways.items()}, group, rounds), kept


# --- loss scaling --------------------------------------------------------------------------------
def measure_scaler(group: Group, rounds: int) -> dict[str, list[float]]:
    """Seconds of an update; the scale is 1, so that gradients stay what they are."""

    def trained() -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        parameters = list(Transformer(CONFIG).parameters())
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 1e-3)
        return parameters, torch.optim.SGD(parameters, lr=1e-6)

    parameters, optimizer = trained()
    _, same = trained()
    ours = DynamicLossScaler(group, init=1.0, interval=1 << 30)
    theirs = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=1 << 30)
    theirs.scale(torch.zeros(()))  # makes its state

    def update_ours() -> None:
        ours.unscale(parameters)
        ours.step(optimizer)
        ours.update()

    def update_theirs() -> None:
        theirs.unscale_(same)
        theirs.step(same)
        theirs.update()

    return time_calls({"ours": update_ours, "peer": update_theirs}, group, rounds)


# --- training steps ------------------------------------------------------------------------------
class MixedTrainer:
    """A model, its optimizer, and one training step with the loss in float32.

    Args:
        model: wrapped.
        optimizer: over its parameters; its `state` has all that it keeps.
        around: the context of forward and loss.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.model, self.optimizer, self.around = model, optimizer, around

    def step(self, tokens_BT: torch.Tensor) -> float:
        """Forward, backward and update; the loss."""
        self.optimizer.zero_grad()
        with self.around():
            logits_BTV = self.model(tokens_BT[:, :-1])
            loss = F.cross_entropy(logits_BTV.flatten(0, 1).float(), tokens_BT[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def held(self) -> dict[str, int]:
        """Bytes between steps: parameters with gradients, and the optimizer's state."""
        parameters = list(self.model.parameters())
        grads = [p.grad for p in parameters if p.grad is not None]
        state = [t for s in self.optimizer.state.values() for t in s.values()]
        return {
            "parameters and gradients": held_bytes([*parameters, *grads]),
            "optimizer state": held_bytes(t for t in state if torch.is_tensor(t) and t.dim()),
        }


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), LR)


def ours_ddp(model: Transformer, group: Group) -> MixedTrainer:
    """A policy under BucketedDDP."""
    policy = Policy(HALF, HALF)
    wrapped = BucketedDDP(cast_forward(model, policy), group, reduce_dtype=policy.reduce_dtype)
    return MixedTrainer(wrapped, _adamw(model))


def ours_masters(model: Transformer, group: Group) -> MixedTrainer:
    """Weights of 16 bits with float32 masters."""
    model.to(HALF)
    optimizer = MasterWeights(model.parameters(), torch.optim.AdamW, lr=LR)
    return MixedTrainer(BucketedDDP(model, group), optimizer)


def send_bf16(size: int, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What torch's bf16_compress_hook does, which insists on NCCL."""
    sent = bucket.buffer().to(HALF).div_(size)
    work = dist.all_reduce(sent, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


def torch_ddp(model: Transformer, group: Group) -> MixedTrainer:
    """DistributedDataParallel that sends bf16, under autocast."""
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    # A lambda, since torch compares annotations, which are text here.
    wrapped.register_comm_hook(group.size, lambda size, bucket: send_bf16(size, bucket))
    return MixedTrainer(wrapped, _adamw(model), partial(torch.autocast, "cpu", HALF))


def torch_wide(model: Transformer, group: Group) -> MixedTrainer:
    """DistributedDataParallel in float32."""
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return MixedTrainer(wrapped, _adamw(model))


def ours_fsdp(model: Transformer, group: Group, *, fp8: bool = False) -> MixedTrainer:
    """FSDP with a unit for each block; its linear layers in 8 bits if asked for."""
    if fp8:
        fp8_linears(model, CurrentScaling(), keep=["head"])
    precision = Precision(HALF, HALF, Fp8Pack(model) if fp8 else None)
    wrapped = FSDP(model, group, model.blocks, precision=precision)
    return MixedTrainer(wrapped, _adamw(wrapped))


def torch_fsdp(model: Transformer, group: Group) -> MixedTrainer:
    """FSDP2, wrapped in the same way."""
    mesh = init_device_mesh("cpu", (group.size,))
    policy = MixedPrecisionPolicy(param_dtype=HALF, reduce_dtype=HALF)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    return MixedTrainer(model, _adamw(model))


Make = Callable[[Transformer, Group], MixedTrainer]
PAIRS: dict[str, tuple[Make, Make, str]] = {
    "ddp bf16": (ours_ddp, torch_ddp, "torch DDP, autocast, bf16 hook"),
    "masters": (ours_masters, torch_ddp, "torch DDP, autocast, bf16 hook"),
    "ddp for float32": (ours_ddp, torch_wide, "torch DDP, float32"),
    "fsdp bf16": (ours_fsdp, torch_fsdp, "FSDP2, MixedPrecisionPolicy"),
    "fsdp fp8": (partial(ours_fsdp, fp8=True), torch_fsdp, "FSDP2, MixedPrecisionPolicy"),
}
EMULATED = "fsdp fp8 step"


def measure_steps(group: Group, rounds: int) -> dict[str, dict[str, Any]]:
    """What each pair takes on this rank."""
    return pairs_in_turns(PAIRS, CONFIG, BATCH, rounds, group)


# --- all of it -----------------------------------------------------------------------------------
def single_rows(server: ForkServer) -> Iterator[Row]:
    """What one process does by itself."""
    (times,) = run_on_ranks(measure_rounding, 1, 20, server=server, timeout=300)
    for name in dict.fromkeys(key.rpartition(" ")[0] for key in times):
        ours, theirs = (slowest_ms([times[f"{name} {side}"]]) for side in SIDES)
        yield Row(
            "precision", f"round to {name}", 1, 4 * NUMBERS, ours, theirs, "torch's cast", "ms",
            "ours is the definition, in float64",
        )  # fmt: skip
    ((times, kept),) = run_on_ranks(measure_linear, 1, 20, server=server, timeout=300)
    size = 4 * WIDTH * WIDTH
    for other, peer in (("peer", "torch._scaled_mm"), ("float32", "float32, no 8 bits")):
        ours, theirs = (slowest_ms([times[name]]) for name in ("ours", other))
        yield Row("precision", "fp8 linear", 1, size, ours, theirs, peer, "ms", "ours is emulated")
        ours, theirs = (round(kept[name], 3) for name in ("ours", other))
        yield Row("precision", "fp8 linear kept", 1, size, ours, theirs, peer, "MB")


def group_rows(world: int, server: ForkServer) -> Iterator[Row]:
    """What so many ranks do together."""
    size = sum(p.nbytes for p in Transformer(CONFIG).parameters())
    per_rank = run_on_ranks(measure_scaler, world, 20, server=server, timeout=300)
    ours, theirs = (slowest_ms([rank[side] for rank in per_rank]) for side in SIDES)
    yield Row("precision", "scaler", world, size, ours, theirs, "torch.amp.GradScaler", "ms")
    per_rank = run_on_ranks(measure_steps, world, 16, server=server, timeout=900)
    names = {name: pair[2] for name, pair in PAIRS.items()}
    for row in rows_of("precision", per_rank, names, size):
        if row.peer and row.what != EMULATED:
            yield row


def rows() -> Iterator[Row]:
    """All parts; about three minutes on two cores."""
    with ForkServer() as server:
        yield from single_rows(server)
        for world in (4, 1):
            yield from group_rows(world, server)
