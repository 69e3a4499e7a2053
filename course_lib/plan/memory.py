"""Bytes on a rank, class by class, for any layout, before a process starts.

Notebook: 04 ZeRO (the memory table), 10 Activation checkpointing, 15 Choosing a strategy
    (memory_model).
Paper: Rajbhandari et al., "ZeRO" (2020), figure 1; Korthikanti et al. (2022), sections 4 and 5.
Costs nothing: arithmetic on the sizes of tensors.
The production version also knows the allocator's waste, and what a driver and NCCL keep (some GB).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from course_lib.model.config import ModelConfig
from course_lib.plan.kept import Kept, block_kept, head_kept, logits_bytes
from course_lib.plan.layout import Layout
from course_lib.plan.recipe import Recipe, usual_recipe
from course_lib.plan.share import Counts, Share, block_counts, end_counts, share_of
from course_lib.plan.stages import Stages

BUCKET = 25 << 20  # bytes of gradients that are reduced together, as DDP has it


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank at the moment when it has most.

    Attributes:
        parameters: kept between steps.
        gradients: kept from the first backward to the step.
        optimizer: its state, fp32 master copies included.
        activations: kept from forwards to their backwards, of all micro-batches in flight.
        logits: what the loss keeps of them, the same.
        working: what is there for a while: the gradients inside a block, or of the logits; what is
            computed again.
        buffers: parameters that are gathered, gradients on their way, messages between stages.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    working: float
    buffers: float

    @property
    def total(self) -> float:
        """All of them."""
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def states(self) -> float:
        """Parameters, gradients and optimizer: what does not depend on the batch."""
        return self.parameters + self.gradients + self.optimizer


def memory(
    config: ModelConfig,
    layout: Layout,
    stage: int | None = None,
    recipe: Recipe | None = None,
    stages: Stages | None = None,
) -> Memory:
    """What a rank holds.

    Tokens are taken to be spread evenly over experts; where sizes do not divide, the rank is one
    with a larger part.

    Args:
        config: the model; its sequences are all as long as it says.
        layout: how it is spread.
        stage: index of the rank along pp; the fullest if None.
        recipe: bytes of everything; a production program's for the layout's precision if None.
        stages: the pipeline, if it is not cut as `train` cuts it.

    Raises:
        ValueError: the model cannot be cut so.
        ScheduleError: the schedule cannot be made, or has more stages than blocks.
    """
    share = share_of(config, layout)
    recipe = recipe or usual_recipe(layout)
    stages = stages or Stages.of(config, layout)
    ranks = range(stages.schedule.ranks) if stage is None else [stage]
    found = [_on_rank(config, layout, share, recipe, stages, rank) for rank in ranks]
    return max(found, key=lambda one: one.total)


def _on_rank(
    config: ModelConfig, layout: Layout, share: Share, recipe: Recipe, stages: Stages, rank: int
) -> Memory:
    own = stages.schedule.stages_of(rank)
    first, last = 0 in own, stages.last in own
    count = sum(len(stages.blocks[number]) for number in own)
    one, ends = block_counts(config, share), end_counts(config, share, first=first, last=last)
    weights, gradients, state = state_bytes(one * count + ends, layout, recipe)
    weights += recipe.copy * (one * count).whole
    block, head = block_kept(config, layout, share, recipe), head_kept(config, share, recipe)
    activations, logits = _in_flight(block, head, share, stages, rank)
    working = block.brief
    if last:  # when a block's backward begins, the head's is over, and what that kept is gone
        working = max(head.brief, block.brief - head.held + _waiting(config, layout, ends, recipe))
    buffers = _buffers(one, one * count + ends, ends, layout, recipe)
    if layout.pp > 1:  # a message that is coming, and one that is going
        buffers += 2 * share.outside * config.hidden * recipe.activation
    return Memory(weights, gradients, state, activations, logits, working, buffers)


def state_bytes(counts: Counts, layout: Layout, recipe: Recipe) -> tuple[float, float, float]:
    """Bytes of parameters, gradients and optimizer state, as a stage of ZeRO cuts them.

    Args:
        counts: parameters of the rank's part of the model.
        layout: its replicas, and the stage.
        recipe: bytes of each.
    """
    held = [counts.cut(layout) if layout.zero >= stage else counts.whole for stage in (3, 2, 1)]
    return held[0] * recipe.weight, held[1] * recipe.gradient, held[2] * recipe.state


def _in_flight(
    block: Kept, head: Kept, share: Share, stages: Stages, rank: int
) -> tuple[float, float]:  # fmt: skip
    """Bytes of activations and of logits at the moment when there are most of both."""
    logits = logits_bytes(share)

    def at(moment: dict[int, int]) -> tuple[float, float]:
        blocks = sum(len(stages.blocks[number]) * n for number, n in moment.items())
        heads = moment.get(stages.last, 0)
        return blocks * block.held + heads * (head.held - logits), heads * logits

    return max((at(dict(moment)) for moment in stages.in_flight[rank]), key=sum)


def _waiting(config: ModelConfig, layout: Layout, ends: Counts, recipe: Recipe) -> float:
    """The gradient of a tied output layer, until the embedding's is there to be added to it."""
    if not (config.tied and recipe.eager and layout.pp == 1 and layout.zero < 3):
        return 0.0
    return ends.whole * recipe.gathered


def _buffers(block: Counts, all_: Counts, ends: Counts, layout: Layout, recipe: Recipe) -> float:
    """What ZeRO has whole for a while.

    ZeRO-2 a bucket of gradients; ZeRO-3 the ends and their gradients, two blocks of parameters and
    one of gradients.
    """
    if layout.zero < 2 or layout.replicas == 1:
        return 0.0
    if layout.zero == 2:
        return min(BUCKET, all_.whole * recipe.gradient)
    return (2 * ends.whole + 3 * block.whole) * recipe.gathered
