"""Data parallelism against torch's own, 4 ranks, a GPT of 3.2 M parameters, AdamW, float32.

All strategies are alive in the same processes and take turns (A B C ..., then backwards), one
training step a turn; a turn takes as long as its slowest rank, and medians are compared. Bytes are
what a rank sends in a step: ours from the ledger, torch's from the `c10d` operations that a
dispatch mode sees, by the formula of each. Peak is the most that is held in a step, parameters,
gradients, state and buckets included, measured on both sides by `trace.memory.LiveMemory` from
before the model was made, the least of three steps; the other memory rows are what is held between
steps, as far as Python sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from benchmarks.row import Row
from benchmarks.training.turns import pairs_in_turns, rows_of
from course_lib.comm import Group
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import FSDP, BucketedDDP, Zero1, Zero2
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.trace.memory import held_bytes

WORLD = 4
CONFIG = ModelConfig(layers=4, hidden=256, heads=4, kv_heads=4, ffn=688, sequence=64)
BATCH = 4
LR = 1e-3


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
    mesh = init_device_mesh(group.device.type, (group.size,))
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


def measure(group: Group, rounds: int) -> dict[str, dict[str, Any]]:
    """What each strategy and side takes on this rank."""
    return pairs_in_turns(PAIRS, CONFIG, BATCH, rounds, group)


def rows() -> Iterator[Row]:
    """One row for each strategy and quantity; about two minutes on two cores."""
    with ForkServer() as server:
        per_rank = run_on_ranks(measure, WORLD, 20, server=server, timeout=600)
    parameters = sum(p.numel() for p in Transformer(CONFIG).parameters())
    names = {name: pair[2] for name, pair in PAIRS.items()}
    yield from rows_of("data_parallel", per_rank, names, parameters * 4)
