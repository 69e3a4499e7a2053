"""PyTorch's own parts on one mesh: pipelining × FSDP2 × DTensor, put together as torchtitan does.

Clipping is by hand, as there: PyTorch's `clip_grad_norm_` knows neither the other stages nor
parameters that lie on meshes of their own (norms are not cut over tp, so FSDP puts them on dp
alone). The loss stays on the ranks that compute it.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from course_lib.model.transformer import cross_entropy
from course_lib.trace.memory import held_bytes
from course_lib.train import TransformerStage


def cut_tensors(stage: TransformerStage, mesh: DeviceMesh) -> None:
    """Tensor parallelism by a plan; query, key and value have one conversion of their input."""
    plan: dict[str, Any] = {}
    if stage.embedding is not None:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate())
    if stage.head is not None:
        plan["head"] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    for name, others in (("attention", 2), ("ffn", 0)):  # attention takes cosines and sines too
        layouts = (Replicate(), *[None] * others)
        plan[f"blocks.*.{name}"] = PrepareModuleInput(
            input_layouts=layouts, desired_input_layouts=layouts
        )
    columns = ("attention.query", "attention.key", "attention.value", "ffn.gate", "ffn.up")
    plan |= {f"blocks.*.{name}": ColwiseParallel() for name in columns}
    plan |= {f"blocks.*.{name}": RowwiseParallel() for name in ("attention.output", "ffn.down")}
    parallelize_module(stage, mesh, plan)


class TorchMesh:
    """One stage of a model on a mesh of PyTorch's, its optimizer, and one training step.

    Args:
        number: of the stage; it is changed in place.
        stage: whole in tp and dp.
        mesh: with axes pp, dp and tp.
        micro_batches: of this rank's part of a batch; 1 without a pipeline.
        rate: AdamW's learning rate.
        max_norm: gradients are clipped to.
    """

    def __init__(
        self,
        number: int,
        stage: TransformerStage,
        mesh: DeviceMesh,
        micro_batches: int,
        rate: float,
        max_norm: float,
    ) -> None:
        self.stage, self.mesh, self.max_norm = stage, mesh, max_norm
        self.sizes = dict(zip(mesh.mesh_dim_names or (), mesh.shape, strict=True))
        if self.sizes["tp"] > 1:
            cut_tensors(stage, mesh["tp"])
        if self.sizes["dp"] > 1:
            for part in (*stage.blocks.values(), stage):
                fully_shard(part, mesh=mesh["dp"])
        self.runner = None
        if self.sizes["pp"] > 1:
            count, group = self.sizes["pp"], mesh.get_group("pp")
            place = PipelineStage(stage, number, count, torch.device("cpu"), group=group)
            self.runner = Schedule1F1B(place, micro_batches, loss_fn=cross_entropy)
        self.by_mesh = self._parameters_by_mesh()
        groups = [{"params": held} for held in self.by_mesh]
        self.optimizer = torch.optim.AdamW(groups, rate, fused=True)

    def step(self, batch: torch.Tensor) -> float | None:
        """Forward, backward, clipping and update with this rank's rows of a batch.

        Returns:
            The mean loss of these rows on the last stage, None on others.
        """
        mine = batch.chunk(self.sizes["dp"])[self.mesh.get_local_rank("dp")]
        self.optimizer.zero_grad()
        with loss_parallel() if self.sizes["tp"] > 1 else nullcontext():
            losses = self._run(mine[:, :-1], mine[:, 1:])
        self._clip()
        self.optimizer.step()
        return sum(map(_number, losses)) / len(losses) if losses else None

    def _run(self, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> list[torch.Tensor]:
        """All micro-batches, forward and backward; their losses on the last stage."""
        if self.runner is None:
            loss = cross_entropy(self.stage(inputs_BT), targets_BT)
            loss.backward()
            return [loss.detach()]
        losses: list[torch.Tensor] = []
        inputs = () if self.stage.embedding is None else (inputs_BT,)
        targets: dict[str, Any] = {}
        if self.stage.head is not None:
            targets = {"target": targets_BT, "losses": losses}
        self.runner.step(*inputs, **targets)
        return [loss.detach() for loss in losses]

    def _parameters_by_mesh(self) -> list[list[nn.Parameter]]:
        """What one fused operation may take together: tensors of one kind, on one mesh."""
        found: dict[Any, list[nn.Parameter]] = {}
        for parameter in self.stage.parameters():
            key = parameter.device_mesh if isinstance(parameter, DTensor) else None
            found.setdefault(key, []).append(parameter)
        return list(found.values())

    @torch.no_grad()
    def _clip(self) -> None:
        norms = [get_total_norm([p.grad for p in held if p.grad is not None])
                 for held in self.by_mesh]  # fmt: skip
        square = torch.tensor(sum(_number(norm) ** 2 for norm in norms))
        if self.sizes["pp"] > 1:
            dist.all_reduce(square, group=self.mesh.get_group("pp"))
        for held in self.by_mesh:
            clip_grads_with_norm_(held, self.max_norm, torch.tensor(math.sqrt(square)))

    def held(self) -> dict[str, int]:
        """Bytes of this rank's parameters and their gradients."""
        parameters = [p for held in self.by_mesh for p in held]
        tensors = [*parameters, *(p.grad for p in parameters if p.grad is not None)]
        return {"parameters and gradients": held_bytes(tensors)}


def _number(tensor: torch.Tensor) -> float:
    """The value of a tensor of one element, whole: a DTensor's summands are on several ranks."""
    return float(tensor.full_tensor() if isinstance(tensor, DTensor) else tensor)
