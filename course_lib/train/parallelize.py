"""What is applied to the model and in which order: the table of contents of model parallelism.

Notebook: 06 Tensor parallel, 07 Sequence and context parallel, 12 Expert parallel.
Paper: Shoeybi et al., "Megatron-LM" (2019), figure 3; Korthikanti et al. (2022), figure 5.
Costs, with S the bytes of [B, T, D], tensor parallel: 2L+1 sums of 2(N-1)/N·S forward, two a block
and the embedding's; as many backward, the output layer's instead of the embedding's. Experts:
one more backward sum of [T, K], for their weights; see parallel/expert/expert_parallel.py for the
rest.
The production version (torchtitan's parallelize.py) reads like this, on DTensor's plans.
"""

from __future__ import annotations

import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.layout import cut_misfits
from course_lib.model import Transformer
from course_lib.model.moe import Experts, moe_layers
from course_lib.model.transformer import Attention, FeedForward, RMSNorm
from course_lib.parallel.expert.expert_gradients import TotalCounts
from course_lib.parallel.expert.expert_parallel import ExpertParallel
from course_lib.parallel.tensor.sequence_parallel import SequenceRegion
from course_lib.parallel.tensor.tensor_parallel import (
    ColumnParallelLinear,
    HeadCut,
    InnerRegion,
    RowParallelLinear,
    TensorRegion,
    sum_gradients_of,
)
from course_lib.parallel.tensor.vocab_parallel import VocabParallelEmbedding


def tensor_parallel(model: Transformer, group: Group, *, sequence: bool = False) -> None:
    """Cuts a model in place; it then returns this rank's part of the logits, [B, T, V/N].

    Parameters keep their names and hold their part. Train it with `vocab_parallel_cross_entropy`.

    Args:
        model: the same on every rank.
        group: the ranks that share each layer.
        sequence: also cut what is between the regions, along the sequence, whose length must then
            be a multiple of N.

    Raises:
        CommError: the heads cannot be cut over so many ranks, a rank would get no part, or
            `sequence` with a model that has experts.
    """
    config = model.config
    for refusal in cut_misfits(config, group.size, sequence=sequence):
        raise CommError(refusal.asked, f"{refusal.found}, {group}", refusal.why)
    region = SequenceRegion(group) if sequence else TensorRegion(group)
    cut = HeadCut(config.heads, config.kv_heads, group)
    embedding = VocabParallelEmbedding(model.embedding, region)
    head = ColumnParallelLinear(model.head, region)
    if config.tied:
        head.weight = embedding.weight
    model.embedding, model.head = embedding, head  # type: ignore[assignment]
    of_heads = {
        norm
        for module in model.modules()
        if isinstance(module, Attention)
        for norm in (module.query_norm, module.key_norm)
    }
    inside = {expert for moe in moe_layers(model) for expert in moe.experts.values()}
    for module in list(model.modules()):
        if isinstance(module, Attention):
            _cut_attention(module, cut, region)
        elif isinstance(module, Experts):
            _surround_experts(module, region)
        elif isinstance(module, FeedForward):
            _cut_ffn(module, InnerRegion(group) if module in inside else region)
        elif isinstance(module, RMSNorm) and (sequence or module in of_heads):
            sum_gradients_of(list(module.parameters()), group)


def _cut_attention(attention: Attention, cut: HeadCut, region: TensorRegion) -> None:
    """Query, key and value by heads, the output layer by the same heads' channels."""
    width = attention.config.head_width
    own, shared = cut.query_rows(width), cut.key_value_rows(width)
    region.entered_by(attention)
    query = ColumnParallelLinear(attention.query, region, entered=True, rows=own)
    attention.query = query  # type: ignore[assignment]
    for name in ("key", "value"):
        part = ColumnParallelLinear(getattr(attention, name), region, entered=True, rows=shared)
        if cut.sharers is not None:
            sum_gradients_of(list(part.parameters()), cut.sharers)
        setattr(attention, name, part)
    output = RowParallelLinear(attention.output, region, columns=own)
    attention.output = output  # type: ignore[assignment]


def _cut_ffn(ffn: FeedForward, region: TensorRegion) -> None:
    """Gate and up by columns, down by rows."""
    region.entered_by(ffn)
    for name in ("gate", "up"):
        full = getattr(ffn, name)
        if full is not None:
            setattr(ffn, name, ColumnParallelLinear(full, region, entered=True))
    ffn.down = RowParallelLinear(ffn.down, region)  # type: ignore[assignment]


def _surround_experts(experts: Experts, region: TensorRegion) -> None:
    """Tokens and weights enter once for all experts, and the sums leave: [T, D], not [T·K, D]."""

    def enter(_: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        x_TD, chosen_TK, weights_TK = args
        return region.enter(x_TD), chosen_TK, region.enter(weights_TK)

    experts.register_forward_pre_hook(enter)
    experts.register_forward_hook(lambda _, __, y_TD: region.leave(y_TD))


def expert_parallel(model: nn.Module, group: Group, tokens: Group) -> None:
    """Keeps only each rank's own experts, in place; names and everything else stay.

    Experts' gradients are then averaged by `average_over_replicas`, all others by a wrapper that
    skips `expert_parameters(model)`. Tensor parallelism comes before this, optimizer and wrapper
    after it.

    Args:
        model: a model or a stage of it, the same on every rank.
        group: the ranks that share the experts, each with tokens of its own.
        tokens: all ranks that have tokens of their own, for the statistics of auxiliary losses.

    Raises:
        CommError: there are fewer experts than ranks.
    """
    for moe in moe_layers(model):
        spread = ExpertParallel(moe.config.experts, group)
        spread.keep_own(moe.experts)
        moe.experts.run, moe.total = spread, TotalCounts(tokens)
