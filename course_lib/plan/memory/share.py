"""What one rank has of a model: heads, channels, experts, tokens, and so its parameters.

Notebook: 06 Tensor parallel, 12 Expert parallel, 15 Choosing a strategy (memory_model).
Paper: Shoeybi et al., "Megatron-LM" (2019), section 3; Rajbhandari et al., "ZeRO" (2020),
section 5, for what replicas may cut.
Costs nothing; where a size does not divide, it counts the rank with the larger part.
The production version pads instead, the vocabulary for instance to a multiple of 128·tp.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.layout import Layout, misfits, tokens_of_ranks
from course_lib.model.config import ModelConfig
from course_lib.model.formulas import head_vectors, latent_down, latent_up


@dataclass(frozen=True)
class Share:
    """Sizes on the rank that has the most.

    Attributes:
        heads: query heads.
        kv_heads: key-value heads; at least one, which several ranks may share.
        ffn: channels inside a feed-forward network.
        vocabulary: rows of the embedding and of the output layer.
        experts: how many; 0 without a mixture.
        token_count: tokens of a micro-batch, inside the regions of tensor parallelism.
        outside: tokens of a micro-batch between those regions, fewer with sequence parallelism.
    """

    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    experts: int
    token_count: int
    outside: int


def share_of(config: ModelConfig, layout: Layout) -> Share:
    """The largest share of a layout's ranks.

    Raises:
        Refusal: heads, experts or tokens cannot be cut so.
    """
    for refusal in misfits(config, layout):
        raise refusal
    tp = layout.tp
    token_count = layout.micro_batch_size * max(tokens_of_ranks(config.sequence, layout.cp))
    return Share(
        heads=config.heads // tp,
        kv_heads=max(1, config.kv_heads // tp),
        ffn=-(-config.ffn // tp),
        vocabulary=-(-config.vocabulary // tp),
        experts=-(-config.moe.experts // layout.ep) if config.moe else 0,
        token_count=token_count,
        outside=token_count // tp if layout.sequence else token_count,
    )


@dataclass(frozen=True)
class Counts:
    """Parameters of a part of a model on one rank.

    Attributes:
        dense: those that all replicas dp × ep × cp have.
        experts: those that only dp × cp have.
    """

    dense: int = 0
    experts: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.dense + other.dense, self.experts + other.experts)

    def __mul__(self, times: int) -> Counts:
        return Counts(self.dense * times, self.experts * times)

    def cut(self, layout: Layout) -> int:
        """What one of the replicas has if they cut it among them."""
        others = layout.dp * layout.cp
        return -(-self.dense // (others * layout.ep)) + -(-self.experts // others)

    @property
    def whole(self) -> int:
        """All of them."""
        return self.dense + self.experts


def block_counts(config: ModelConfig, share: Share) -> Counts:
    """Parameters of one block on a rank."""
    width = config.hidden
    if config.latent:
        attention = latent_down(config) + share.heads * latent_up(config)
    else:
        attention = width * config.head_width * (2 * share.heads + 2 * share.kv_heads)
        attention += head_vectors(config, share.heads, share.kv_heads)
    network = (3 if config.gated else 2) * width * share.ffn
    norms = 2 * width
    if config.moe is None:
        return Counts(attention + network + norms)
    router = width * config.moe.experts
    return Counts(attention + router + norms + network * config.moe.shared, network * share.experts)


def end_counts(config: ModelConfig, share: Share, *, first: bool, last: bool) -> Counts:
    """Parameters of embedding, and of norm and output layer, on a rank that has these ends.

    A tied weight is counted once on a rank that has both, and on either rank if they differ.
    """
    matrix = share.vocabulary * config.hidden
    ends = first + last - (config.tied and first and last)
    return Counts(ends * matrix + last * config.hidden)
