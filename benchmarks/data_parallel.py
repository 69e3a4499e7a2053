"""Data parallelism against torch's own, 4 ranks, a GPT of 3.2 M parameters, AdamW, float32.

All strategies are alive in the same processes and take turns (A B C ..., then backwards), one
training step a turn; a turn takes as long as its slowest rank, and medians are compared. Bytes are
what a rank sends in a step: ours from the ledger, torch's from the `c10d` operations that a
dispatch mode sees, by the formula of each. Peak is the most that a step holds beyond what was there
before it, measured by `trace.memory.LiveMemory` on both sides; the other memory rows are what is
held between steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.row import Row
from course_lib.comm import Group, barrier
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import FSDP, BucketedDDP, Zero1, Zero2
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.trace import wire_bytes
from course_lib.trace.memory import LiveMemory, held_bytes

WORLD = 4
CONFIG = ModelConfig(layers=4, hidden=256, heads=4, kv_heads=4, ffn=688, sequence=64)
BATCH = 4
LR = 1e-3

# The c10d operations that torch's strategies make: whose name in `trace.wire`, and which argument
# of the call is the full tensor.
C10D = {
    "c10d.allreduce_": ("all_reduce", 0),
    "c10d.broadcast_": ("broadcast", 0),
    "c10d._allgather_base_": ("all_gather", 0),
    "c10d._reduce_scatter_base_": ("reduce_scatter", 1),
}  # fmt: skip


class WireBytes(TorchDispatchMode):
    """Adds up what torch's collectives put on the wire of this rank, by their formulas.

    Args:
        index: this rank.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index, self.sent = index, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation, and books it if it is a collective.

        Raises:
            ValueError: a collective whose bytes are not known here.
        """
        name = str(func.overloadpacket)
        if name.startswith("c10d."):
            if name not in C10D:
                raise ValueError(f"{name} has no formula here")
            op, place = C10D[name]
            tensors = [t for t in tree_leaves(args[place]) if torch.is_tensor(t)]
            index = self.index if op != "broadcast" else (self.index - int(args[2])) % WORLD
            for tensor in tensors:
                self.sent += wire_bytes(op, tensor.nbytes, WORLD, index, tensor.element_size())[0]
        return func(*args, **(kwargs or {}))


class Trainer:
    """A model, its optimizer, and one training step.

    Args:
        model: wrapped.
        optimizer: over its parameters.
    """

    def __init__(self, model: nn.Module, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer

    def step(self, tokens_BT: torch.Tensor) -> float:
        """Forward, backward and update; the loss."""
        self.optimizer.zero_grad()
        logits_BTV = self.model(tokens_BT[:, :-1])
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def held(self) -> dict[str, int]:
        """Bytes between steps: parameters with gradients, and the optimizer's state."""
        inner = getattr(self.optimizer, "inner", getattr(self.optimizer, "optim", self.optimizer))
        parameters = list(self.model.parameters())
        grads = [p.grad for p in parameters if p.grad is not None]
        state = [t for s in inner.state.values() for t in s.values() if torch.is_tensor(t)]
        return {
            "parameters and gradients": held_bytes([*parameters, *grads]),
            "optimizer state": held_bytes(t for t in state if t.dim()),
        }


def ours_ddp(model: Transformer, group: Group) -> Trainer:
    """BucketedDDP with torch's bucket sizes."""
    return Trainer(BucketedDDP(model, group), torch.optim.AdamW(model.parameters(), LR))


def torch_ddp(model: Transformer, group: Group) -> Trainer:
    """DistributedDataParallel with gradients as views of the buckets."""
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return Trainer(wrapped, torch.optim.AdamW(model.parameters(), LR))


def ours_zero1(model: Transformer, group: Group) -> Trainer:
    """Zero1 synchronises the gradients itself."""
    return Trainer(model, Zero1(model.parameters(), torch.optim.AdamW, group, lr=LR))


def ours_zero2(model: Transformer, group: Group) -> Trainer:
    """Zero2 does so during the backward, in buckets of 4 MiB, and keeps its shard of them."""
    optimizer = Zero2(model.parameters(), torch.optim.AdamW, group, cap=4 << 20, lr=LR)
    return Trainer(model, optimizer)


def torch_zero1(model: Transformer, group: Group) -> Trainer:
    """ZeroRedundancyOptimizer steps on what DDP has averaged."""
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return Trainer(wrapped, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=LR))


def ours_fsdp(model: Transformer, group: Group, reshard: bool = True) -> Trainer:
    """FSDP with a unit for each block."""
    wrapped = FSDP(model, group, model.blocks, reshard=reshard)
    return Trainer(wrapped, torch.optim.AdamW(wrapped.parameters(), LR))


def torch_fsdp(model: Transformer, group: Group, reshard: bool = True) -> Trainer:
    """FSDP2, wrapped in the same way."""
    mesh = init_device_mesh("cpu", (group.size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return Trainer(model, torch.optim.AdamW(model.parameters(), LR))


def ours_kept(model: Transformer, group: Group) -> Trainer:
    """FSDP that keeps parameters whole from forward to backward."""
    return ours_fsdp(model, group, reshard=False)


def torch_kept(model: Transformer, group: Group) -> Trainer:
    """The same of FSDP2."""
    return torch_fsdp(model, group, reshard=False)


Make = Callable[[Transformer, Group], Trainer]
PAIRS: dict[str, tuple[Make, Make, str]] = {
    "ddp": (ours_ddp, torch_ddp, "torch DDP"),
    "zero1": (ours_zero1, torch_zero1, "ZeroRedundancyOptimizer"),
    "zero2": (ours_zero2, torch_zero1, "ZeroRedundancyOptimizer"),
    "fsdp": (ours_fsdp, torch_fsdp, "FSDP2"),
    "fsdp no reshard": (ours_kept, torch_kept, "FSDP2, no reshard"),
}
SIDES = ("ours", "peer")


def measure(group: Group, rounds: int) -> dict[str, dict[str, Any]]:
    """For each strategy and side: losses, bytes, memory, and seconds by turn on this rank."""
    makers = {
        f"{name} {side}": make
        for name, pair in PAIRS.items()
        for side, make in zip(SIDES, pair[:2], strict=True)
    }
    found: dict[str, dict[str, Any]] = {}
    trainers = {}
    generator = torch.Generator().manual_seed(group.rank)
    batches = torch.randint(0, 256, (rounds + 2, BATCH, CONFIG.sequence + 1), generator=generator)
    for name, make in makers.items():
        trainers[name] = make(Transformer(CONFIG), group)
        found[name] = _first_steps(trainers[name], batches, group, name.endswith("peer"))
    for number, batch in enumerate(batches[2:]):
        for name in makers if number % 2 else reversed(makers):
            barrier(group)
            begin = time.perf_counter()
            found[name]["losses"].append(trainers[name].step(batch))
            found[name]["seconds"].append(time.perf_counter() - begin)
    return found


def _first_steps(
    trainer: Trainer, batches: torch.Tensor, group: Group, peer: bool
) -> dict[str, Any]:
    """Warms up, then measures bytes and memory, in steps whose time does not count."""
    losses = [trainer.step(batches[0])]
    before, wire = group.ledger.sent(), WireBytes(group.index)
    with LiveMemory() as memory, wire if peer else nullcontext():
        losses.append(trainer.step(batches[1]))
    sent = wire.sent if peer else group.ledger.sent() - before
    held = {f"{k} MB": v / 1e6 for k, v in trainer.held().items()}
    return {
        "losses": losses, "seconds": [], "peak MB": memory.peak / 1e6, "sent MB": sent / 1e6, **held
    }  # fmt: skip


def rows() -> Iterator[Row]:
    """One row for each strategy and quantity; about two minutes on two cores."""
    with ForkServer() as server:
        per_rank = run_on_ranks(measure, WORLD, 20, server=server, timeout=600)
    parameters = sum(p.numel() for p in Transformer(CONFIG).parameters())
    for name, (_, _, peer_name) in PAIRS.items():
        ours, peer = ([rank[f"{name} {side}"] for rank in per_rank] for side in SIDES)
        gap = max(abs(a - b) for a, b in zip(_losses(ours), _losses(peer), strict=True))
        yield Row(
            "data_parallel", f"{name} step", WORLD, parameters * 4, _ms(ours), _ms(peer),
            peer_name, "ms", f"losses differ by {gap:.0e} at most",
        )  # fmt: skip
        for what in ("sent MB", "peak MB", "parameters and gradients MB", "optimizer state MB"):
            mine, theirs = (max(rank[what] for rank in side) for side in (ours, peer))
            label, unit = what.removesuffix(" MB"), "MB"
            yield Row(
                "data_parallel", f"{name} {label}", WORLD, parameters * 4, round(mine, 3),
                round(theirs, 3), peer_name, unit,
            )  # fmt: skip


def _ms(per_rank: list[dict[str, Any]]) -> float:
    slowest = map(max, zip(*(rank["seconds"] for rank in per_rank), strict=True))
    return round(statistics.median(slowest) * 1e3, 2)


def _losses(per_rank: list[dict[str, Any]]) -> list[float]:
    return [statistics.mean(step) for step in zip(*(r["losses"] for r in per_rank), strict=True)]
