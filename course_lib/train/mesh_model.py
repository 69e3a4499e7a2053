"""This rank's part of a model on a mesh, ready to run, and who else has the same.

Notebook: 13 3D parallelism (finalize_grads, train_3d).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Zhao et al., "PyTorch FSDP" (2023).
Costs what its axes cost; what it says of copies costs nothing.
The production version (torchtitan) asks each parameter, a DTensor, where its copies are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Mesh
from course_lib.comm.mesh import AXES
from course_lib.model import ModelConfig, expert_parameters
from course_lib.model.transformer import seen_in_documents
from course_lib.parallel import FSDP, Pipeline
from course_lib.parallel.context.context_parallel import SequenceLayout
from course_lib.parallel.data.accumulate import token_loss_sum
from course_lib.parallel.tensor.vocab_parallel import vocab_parallel_cross_entropy
from course_lib.parallel.zero.precision import Precision
from course_lib.schedule import Schedule
from course_lib.train.copies import tensor_copies
from course_lib.train.stage import TransformerStage, tied_pair

IGNORED = -100  # a target that the loss does not count
NO_RING_MASK = "ring attention has no such mask: leave out cp, or let tokens see the whole window"


def zero_refusal(zero: int, schedule: Schedule, config: ModelConfig) -> tuple[str, str] | None:
    """Why a stage of ZeRO is refused, as what was found and why; None if it is not.

    Args:
        zero: the stage.
        schedule: of the pipeline.
        config: of the model.
    """
    ends = schedule.placement[0] == schedule.placement[-1] and schedule.stages > 1
    if zero == 3 and config.tied and ends:
        return (
            f"the schedule {schedule.name}, with both ends of a tied embedding on one rank",
            "FSDP cuts each stage by itself, and a parameter once: use ZeRO-1",
        )
    if zero == 3 and config.moe is not None:
        return (
            "experts, which only some of the ranks have",
            "FSDP cuts a stage over all ranks that have other tokens: use ZeRO-1",
        )
    if zero == 3 and any(action.kind in "IW" for line in schedule.actions for action in line):
        return (
            f"the schedule {schedule.name}, whose backwards come in halves",
            "FSDP cuts a unit's gradients all at once: use ZeRO-1",
        )
    if zero == 2 and schedule.ranks > 1:
        return (
            f"a pipeline of {schedule.ranks} ranks",
            "gradients would be cut after each micro-batch, and sent as often: use ZeRO-1",
        )
    return None


class MeshModel:
    """This rank's stages of a model on a mesh, and who else has the same; made by `lay_out`.

    Args:
        stages: by number.
        mesh: who is where.
        schedule: of the pipeline.
        tokens: which positions of a sequence each rank of cp has.
        sequence: stages hand on tensors that are cut along the sequence, over tp.
        dtype: what is computed in and handed on; None for the parameters' own.
        zero: the stage of ZeRO; with 3 the stages are cut here, over dp × ep × cp.
        shard: with ZeRO-3, how many of these ranks share one copy; 0 for all.
        documents: a token sees its own document only: another begins after each ignored target.

    Attributes:
        config: of the whole model.
        data: the ranks that have other tokens of the batch: dp × ep × cp.
        everyone: all ranks.
        parameters: those of this rank that are trained, each once.
        tied: this rank's copy of a tied embedding, and the two ranks that have one; or None.
        pipeline: runs the stages; its losses are sums over the counted tokens of a micro-batch.
    """

    def __init__(
        self,
        stages: Mapping[int, TransformerStage],
        mesh: Mesh,
        schedule: Schedule,
        tokens: SequenceLayout,
        *,
        sequence: bool = False,
        dtype: torch.dtype | None = None,
        zero: int = 0,
        shard: int = 0,
        documents: bool = False,
    ) -> None:
        self.mesh, self.tokens, self.sequence, self.zero = mesh, tokens, sequence, zero
        self.documents = documents
        self.config = next(iter(stages.values())).config
        self.data, self.everyone = mesh["dp", "ep", "cp"], mesh[AXES]
        for axes in (("dp", "ep"), ("dp", "cp"), ("pp", "dp", "ep", "cp")):
            mesh[axes]  # made here, where all ranks pass, and not when first used
        held = nn.ModuleList(stages.values())
        self.parameters = [p for p in held.parameters() if p.requires_grad]
        self.dtype = dtype or next(held.parameters()).dtype
        self.experts = set(expert_parameters(held))
        self._sharers, self._replicas = self._hybrid(shard or self.data.size)
        self._tensor_copies = tensor_copies(held, self.config, mesh["tp"])
        self.tied = self._tied(list(stages.values()), schedule)
        run = (
            {n: self._sharded(stage, dtype) for n, stage in stages.items()} if zero == 3 else stages
        )
        self.pipeline = Pipeline(
            run,
            schedule,
            mesh["pp"],
            loss=self.loss_sum,
            border=self.handed_on,
            beside=self.beside,
        )

    def _hybrid(self, shard: int) -> tuple[Group, Group | None]:
        """The ranks that share a copy with this one, and those that hold the same piece of it."""
        n = self.data.size
        if shard == n:
            return self.data, None
        neighbours = [list(range(first, first + shard)) for first in range(0, n, shard)]
        alike = [list(range(place, n, shard)) for place in range(shard)]
        return self.data.split(neighbours, "shard"), self.data.split(alike, "replicas")

    def _tied(
        self, stages: list[TransformerStage], schedule: Schedule
    ) -> tuple[nn.Parameter, Group] | None:
        pair = tied_pair(schedule, self.mesh["pp"]) if self.config.tied else None
        if pair is None:
            return None
        ends = [end for stage in stages for end in (stage.embedding, stage.head) if end is not None]
        return ends[0].get_parameter("weight"), pair

    def _sharded(self, stage: TransformerStage, dtype: torch.dtype | None) -> FSDP:
        """A unit for each block; one for a tied weight too, so that both ends cut it alike.

        What is computed with is gathered in its dtype; gradients are summed in the parameters'.
        """
        units: list[nn.Module] = list(stage.blocks.values())
        if self.tied is not None:
            units += [end for end in (stage.embedding, stage.head) if end is not None]
        wide = next(stage.parameters()).dtype
        precision = Precision(dtype, wide)
        return FSDP(stage, self._sharers, units, replicas=self._replicas, precision=precision)

    # --- what the pipeline needs -----------------------------------------------------------------
    def loss_sum(self, logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        """Negative log-likelihood, summed over the counted tokens, from this rank's logits."""
        tp = self.mesh["tp"]
        if tp.size == 1:
            wide = logits.float() if logits.dtype.itemsize < 4 else logits
            return token_loss_sum(wide, targets_BT, IGNORED)
        vocabulary = self.config.vocabulary
        return vocab_parallel_cross_entropy(logits, targets_BT, vocabulary, tp, IGNORED).sum()

    def handed_on(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """A tensor like those that stages hand on for a micro-batch."""
        rows, length = tokens_BT.shape
        length = length // self.mesh["tp"].size if self.sequence else length
        shape = (rows, length, self.config.hidden)
        return torch.empty(shape, dtype=self.dtype, device=tokens_BT.device)

    def beside(self, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> tuple[Any, ...]:
        """What every stage gets of a micro-batch: which tokens see which, if not all before."""
        return (seen_in_documents(targets_BT == IGNORED),) if self.documents else ()

    def weigh_side_losses(self, weight: float) -> None:
        """Sets the weight of experts' auxiliary losses of a whole batch, beside the main loss."""
        for stage in self.pipeline.stages.values():
            if isinstance(stage, TransformerStage):  # FSDP's have no experts
                stage.auxiliary_weight = weight / self.pipeline.schedule.micro_batches

    # --- who has the same ------------------------------------------------------------------------
    def replicas(self, parameter: nn.Parameter) -> Group:
        """The ranks that have the same part of a parameter, and use it for other tokens."""
        return self.mesh["dp", "cp"] if parameter in self.experts else self.data

    def copies(self, parameter: nn.Parameter) -> int:
        """How many ranks have what this rank has of a parameter; without ZeRO-1 and 2."""
        cut = self.data.size // self._sharers.size
        cut = cut if self.zero == 3 else self.replicas(parameter).size
        ends = 2 if self.tied is not None and parameter is self.tied[0] else 1
        return cut * self._tensor_copies[parameter] * ends

    def by_replicas(self) -> list[tuple[Group, list[nn.Parameter]]]:
        """The parameters, by the ranks that average their gradients; same order on all ranks."""
        experts = [p for p in self.parameters if p in self.experts]
        others = [p for p in self.parameters if p not in self.experts]
        pairs = [(self.data, others), (self.mesh["dp", "cp"], experts)]
        return [(group, parameters) for group, parameters in pairs if parameters]
