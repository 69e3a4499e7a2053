"""A consecutive part of the transformer: what one stage of a pipeline holds.

Notebook: 08 Pipeline parallel.
Paper: Huang et al., "GPipe" (2019), section 2.
Costs: the parameters of its blocks; the first stage has the embedding too, the last the output
layer, so in a small model with a large vocabulary the ends are the most expensive.
The production version builds the stage alone, without the whole model beside it.

Shapes: B batch, T sequence, D hidden, V vocabulary.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from course_lib.comm import Group, broadcast
from course_lib.model import ModelConfig, Transformer, auxiliary_loss, cross_entropy
from course_lib.model.formulas import stage_costs
from course_lib.model.transformer import rotary
from course_lib.parallel import Pipeline
from course_lib.schedule import Schedule, ScheduleError, split_model
from course_lib.train.side_loss import with_side_loss


class TransformerStage(nn.Module):
    """Some blocks of a model, and what belongs to its ends; parameters keep their names.

    Args:
        model: the whole, whose modules it takes (they are not copied).
        blocks: which blocks it holds.
        first: it holds the embedding, and takes tokens.
        last: it holds norm and output layer, and returns logits.

    Attributes:
        positions: the place in its sequence of each token that comes in, int64; None for 0, 1, 2,
            ... Context parallelism deals out others, and where sequence parallelism cuts what
            stages hand on, a later stage cannot count its tokens.
        auxiliary_weight: weight of its experts' auxiliary losses in each micro-batch, which join
            the backward of the stage's output; 1/m with m micro-batches.
    """

    def __init__(self, model: Transformer, blocks: range, *, first: bool, last: bool) -> None:
        super().__init__()
        self.config = model.config
        self.embedding = model.embedding if first else None
        self.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in blocks})
        self.norm = model.norm if last else None
        self.head = model.head if last else None
        self.positions: torch.Tensor | None = None
        self.auxiliary_weight = 1.0

    def forward(self, x: torch.Tensor, *seen: torch.Tensor) -> torch.Tensor:
        """int64 [B, T] at the first stage, [B, T, D] at others; [B, T, D], or [B, T, V] at last."""
        positions_T = torch.arange(x.shape[1]) if self.positions is None else self.positions
        cos, sin = rotary(self.config, positions_T.to(x.device))
        x_BTD = x if self.embedding is None else self.embedding(x)
        for block in self.blocks.values():
            x_BTD = block(x_BTD, cos, sin, *seen)
        x_BTD = with_side_loss(x_BTD, auxiliary_loss(self), self.auxiliary_weight)
        if self.norm is None or self.head is None:
            return x_BTD
        return self.head(self.norm(x_BTD))


@cache
def stage_blocks(config: ModelConfig, count: int) -> tuple[range, ...]:
    """The blocks of each stage, so that the most expensive stage costs least.

    Raises:
        ScheduleError: there are more stages than blocks.
    """
    return tuple(split_model(stage_costs(config), count))


def drop_other_blocks(model: Transformer, schedule: Schedule, group: Group) -> None:
    """Puts nothing in the place of each block that is in no stage of this rank, before any is cut.

    To cut what is dropped afterwards takes longer than all else, in a deep model on many stages.

    Raises:
        ScheduleError: there are more stages than blocks.
    """
    parts = stage_blocks(model.config, schedule.stages)
    own = {block for stage in schedule.stages_of(group.index) for block in parts[stage]}
    for block in set(range(model.config.layers)) - own:
        model.blocks[block] = nn.Identity()


def pipeline_stages(
    model: Transformer, schedule: Schedule, group: Group
) -> dict[int, TransformerStage]:
    """This rank's stages of a model, as a schedule places them.

    Args:
        model: the whole, the same on every rank. Drop it afterwards, and what this rank does not
            hold is freed.
        schedule: for the number of stages, and where they are.
        group: the ranks of the pipeline.

    Raises:
        ScheduleError: there are more stages than blocks.
    """
    parts = stage_blocks(model.config, schedule.stages)
    return {
        stage: TransformerStage(
            model, parts[stage], first=stage == 0, last=stage == schedule.stages - 1
        )
        for stage in schedule.stages_of(group.index)
    }


class StagedModel:
    """A transformer in a pipeline, which trains on a batch at a time like a whole one.

    Args:
        model: the whole, the same on every rank; this rank's stages take their modules from it.
        schedule: of the pipeline. A batch is cut into its micro-batches.
        group: the ranks of the pipeline.

    A tied embedding whose two ends are on two ranks has the gradient of its own end on each: sum
    them with `tied_pair` and `sum_tied_gradient`. Experts' auxiliary losses are in the gradients,
    as their mean over the micro-batches.

    Attributes:
        pipe: the pipeline.
        own: this rank's parameters, by the whole model's names.

    Raises:
        ScheduleError: the schedule does not fit the group, or has more stages than blocks.
    """

    def __init__(self, model: Transformer, schedule: Schedule, group: Group) -> None:
        like = next(model.parameters())

        def border(tokens_BT: torch.Tensor) -> torch.Tensor:
            return like.new_empty(*tokens_BT.shape, model.config.hidden)

        stages = pipeline_stages(model, schedule, group)
        for stage in stages.values():
            stage.auxiliary_weight = 1 / schedule.micro_batches
        self.pipe = Pipeline(stages, schedule, group, loss=cross_entropy, border=border)
        self.own = {n: p for stage in stages.values() for n, p in stage.named_parameters()}

    def forward_backward(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Adds the gradients of the mean loss of a batch, and returns that loss on every rank.

        Micro-batches are as equal as they can be, and count by their sequences. Collective; sends
        what `Pipeline.step` sends, and the loss in a broadcast of 8 bytes.

        Args:
            inputs: int64 [B, T], the same on every rank.
            targets: the tokens that follow, int64 [B, T].

        Raises:
            ScheduleError: there are fewer sequences than micro-batches.
        """
        pipe, m = self.pipe, self.pipe.schedule.micro_batches
        if len(inputs) < m:
            raise ScheduleError(
                f"a step of the schedule {pipe.schedule.name} with {m} micro-batches",
                f"a batch of {len(inputs)} sequences",
                "every micro-batch has at least one: its loss is a mean",
            )
        parts = list(zip(inputs.tensor_split(m), targets.tensor_split(m), strict=True))
        weights = [len(part) / len(inputs) for part, _ in parts]
        losses = pipe.step(parts, weights)
        loss = torch.zeros((), dtype=torch.float64, device=pipe.group.device)
        for one, weight in zip(losses, weights, strict=False):
            loss += one.detach() * weight
        broadcast(loss, pipe.schedule.placement[-1], pipe.group)
        return loss.item()


def tied_pair(schedule: Schedule, group: Group) -> Group | None:
    """The ranks of the first and the last stage, which share a tied embedding.

    Collective over the world. Returns None on every other rank, and on all ranks if one rank holds
    both stages: it then has the parameter only once.
    """
    ends = {schedule.placement[0], schedule.placement[-1]}
    if len(ends) == 1:
        return None
    alone = [[index] for index in range(group.size) if index not in ends]
    pair = group.split([sorted(ends), *alone], "tied")
    return pair if group.index in ends else None
