"""Bytes on a rank, class by class, for any layout, before a process starts.

Notebook: 04 ZeRO (the memory table), 10 Activation checkpointing, 15 Choosing a strategy
    (memory_model).
Paper: Rajbhandari et al., "ZeRO" (2020), figure 1; Korthikanti et al. (2022), sections 4 and 5.
Costs nothing: arithmetic on the sizes of tensors.
The production version also knows the allocator's waste, and what a driver and NCCL keep (some GB).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.recipe import Recipe, usual_recipe
from course_lib.plan.memory.kept import Kept, block_kept, head_kept, logits_bytes
from course_lib.plan.memory.share import Counts, Share, block_counts, end_counts, share_of
from course_lib.plan.time.stages import Stages
from course_lib.trace import Refusal

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
        Refusal: the model cannot be cut so, or the pipeline has no such rank.
        ScheduleError: the schedule cannot be made, or has more stages than blocks.
    """
    share = share_of(config, layout)
    recipe = recipe or usual_recipe(layout)
    stages = stages or Stages.of(config, layout)
    block, head = block_kept(config, layout, share, recipe), head_kept(config, share, recipe)
    setting = _Setting(config, layout, share, recipe, stages, block, head)
    ranks = range(stages.schedule.ranks)
    if stage is not None and stage not in ranks:
        raise Refusal(f"the memory of rank {stage} of a pipeline", f"{ranks}", "it is one of these")
    held = ranks if stage is None else [stage]
    return max((_on_rank(setting, rank) for rank in held), key=lambda one: one.total)


class _Setting(NamedTuple):
    """What all ranks have in common."""

    config: ModelConfig
    layout: Layout
    share: Share
    recipe: Recipe
    stages: Stages
    block: Kept
    head: Kept


def _on_rank(s: _Setting, rank: int) -> Memory:
    own = s.stages.of_rank[rank]
    first, last = 0 in own, s.stages.last in own
    blocks = block_counts(s.config, s.share) * sum(len(s.stages.blocks[stage]) for stage in own)
    ends = end_counts(s.config, s.share, first=first, last=last)
    weights, gradients, state = state_bytes(blocks + ends, s.layout, s.recipe)
    activations, logits = _in_flight(s, rank)
    working = s.block.brief
    if last:  # when a block's backward begins, the head's is over, and what that kept is gone
        working = max(s.head.brief, s.block.brief - s.head.held + _waiting(s, ends))
    return Memory(
        weights + s.recipe.copy * blocks.whole,
        gradients,
        state,
        activations,
        logits,
        working,
        _buffers(s, blocks + ends, ends) + _messages(s),
    )


def state_bytes(counts: Counts, layout: Layout, recipe: Recipe) -> tuple[float, float, float]:
    """Bytes of parameters, gradients and optimizer state, as a stage of ZeRO cuts them.

    Args:
        counts: parameters of the rank's part of the model.
        layout: its replicas, and the stage.
        recipe: bytes of each.
    """
    held = [counts.cut(layout) if layout.zero >= stage else counts.whole for stage in (3, 2, 1)]
    return held[0] * recipe.weight, held[1] * recipe.gradient, held[2] * recipe.state


def _in_flight(s: _Setting, rank: int) -> tuple[float, float]:
    """Bytes of activations and of logits at the moment when there are most of both."""
    logits = logits_bytes(s.share)

    def at(moment: Mapping[int, int]) -> tuple[float, float]:
        blocks = sum(len(s.stages.blocks[number]) * n for number, n in moment.items())
        heads = moment.get(s.stages.last, 0)
        return blocks * s.block.held + heads * (s.head.held - logits), heads * logits

    return max((at(moment) for moment in s.stages.in_flight[rank]), key=sum)


def _waiting(s: _Setting, ends: Counts) -> float:
    """The gradient of a tied output layer, which waits for the embedding's to be added to it."""
    if not (s.config.tied and s.recipe.eager and s.layout.pp == 1 and s.layout.zero < 3):
        return 0.0
    return ends.whole * s.recipe.gathered


def _buffers(s: _Setting, held: Counts, ends: Counts) -> float:
    """What ZeRO has whole for a while.

    ZeRO-2 a bucket of gradients; ZeRO-3 the ends and their gradients, two blocks of parameters and
    one of gradients.
    """
    if s.layout.zero < 2 or s.layout.replicas == 1:
        return 0.0
    if s.layout.zero == 2:
        return min(BUCKET, held.whole * s.recipe.gradient)
    block = block_counts(s.config, s.share)
    return (2 * ends.whole + 3 * block.whole) * s.recipe.gathered


def _messages(s: _Setting) -> float:
    """Between stages: one that is coming, and one that is going."""
    one = s.share.outside * s.config.hidden * s.recipe.activation
    return 2 * one if s.layout.pp > 1 else 0.0
