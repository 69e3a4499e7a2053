"""The shape of a model, as data: what every formula and every parallelism computes with.

Notebook: 02 Data parallel; all later ones; 12 Expert parallel for the experts.
Paper: Touvron et al., "LLaMA" (2023), section 2.2, for the defaults (pre-norm, SwiGLU, RoPE).
Costs nothing.
The production version has a hundred more fields, and reads them from a checkpoint's config.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from course_lib.trace import Refusal


@dataclass(frozen=True)
class MoEConfig:
    """A mixture of experts: several feed-forward networks, of which each token uses a few.

    Attributes:
        experts: E, networks of the model's inner width.
        top_k: K, how many of them a token uses.
        capacity_factor: an expert takes at most this many times its even share K·T/E of the T
            tokens of a device, rounded up, and what is beyond is dropped; None drops nothing.
        balance: weight of the load-balancing loss; 0 leaves it out.
        z: weight of the router's z-loss; 0 leaves it out.
        bias_rate: how far an update moves the router's bias, which balances without a loss
            (DeepSeek-V3's γ, 0.001 there); 0 for no bias.
        shared: experts that every token uses besides; planned with, and not trained here.
        dense: first blocks that have an ordinary network instead; as `shared`.
        dense_ffn: width inside their networks.
        nodes: on how many nodes at most the experts of a token are; as `shared`. 0 sets no limit.

    Raises:
        Refusal: a token cannot use so many experts, no token fits into them, or a weight is below
            0, which would make experts uneven.
    """

    experts: int = 8
    top_k: int = 2
    capacity_factor: float | None = None
    balance: float = 0.01
    z: float = 0.001
    bias_rate: float = 0.0
    shared: int = 0
    dense: int = 0
    dense_ffn: int = 0
    nodes: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.experts:
            raise Refusal(
                f"{self.top_k} experts a token",
                f"{self.experts} experts",
                "a token uses at least one, and each of them once",
            )
        if self.capacity_factor is not None and not 0 < self.capacity_factor < inf:
            raise Refusal(
                f"experts with {self.capacity_factor} times their even share of tokens",
                "a capacity without room for any, or none at all",
                "the factor is a number above 0, and None drops nothing",
            )
        if not (self.balance >= 0 and self.z >= 0 and self.bias_rate >= 0):
            raise Refusal(
                "a mixture of experts",
                f"balance {self.balance}, z {self.z}, bias_rate {self.bias_rate}",
                "a loss with a weight below 0 would be made larger",
            )


@dataclass(frozen=True)
class LatentAttention:
    """Attention through latent vectors (MLA): what a head needs is made of one narrow vector.

    Source: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1. It is planned with, and not trained
    here.

    Attributes:
        queries: width of the vector that all queries of a token are made of.
        keys: of the vector that its keys and values are made of.
        plain: width of the part of a query and a key that knows no positions.
        turned: of the part that rotary embedding turns, in a key the same for all heads.
        values: width of a head's values.
    """

    queries: int
    keys: int
    plain: int
    turned: int
    values: int


@dataclass(frozen=True)
class RopeScaling:
    """Wavelengths made longer, so that a model trained on short texts reads longer ones.

    Source: Meta, "The Llama 3 Herd of Models" (2024), and the code beside Llama 3.1.

    Attributes:
        original: T of the first training. Wavelengths up to original/high stay as they are.
        factor: those above original/low become so many times as long, those between a part of it.
        low: see there.
        high: see there; more than `low`.

    Raises:
        Refusal: numbers that cannot be.
    """

    original: int = 8192
    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        if not (self.original >= 1 and 1 <= self.factor < inf and 0 < self.low < self.high < inf):
            raise Refusal(
                "rotary positions with longer wavelengths",
                str(self),
                "original and factor are 1 or more, and low is between 0 and high",
            )


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer.

    Attributes:
        layers: L, blocks.
        hidden: D, width of the residual stream.
        heads: H, query heads. The width of a head must be even for RoPE.
        kv_heads: K, key and value heads, a divisor of H; H is ordinary attention, fewer is
            grouped-query attention.
        ffn: F, width inside the feed-forward network.
        vocabulary: V, tokens.
        sequence: T, the longest sequence.
        gated: SwiGLU (three matrices) or GELU (two).
        tied: whether the output layer is the embedding, transposed.
        rope_base: base of the rotary embedding's wavelengths.
        moe: a mixture of experts, each of inner width F, in place of every feed-forward network.
        norm_epsilon: what RMSNorm adds to the mean square.
        latent: attention through latent vectors in place of the ordinary one.
        head_dim: the width of a head; 0 is D/H.
        qkv_bias: whether queries, keys and values have biases, as Qwen2's.
        qk_norm: whether each head's queries and keys go through an RMSNorm, as Qwen3's.
        rope_scaling: how wavelengths are made longer; None leaves them.

    Raises:
        Refusal: the sizes do not fit together.
    """

    layers: int = 4
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 4
    ffn: int = 352
    vocabulary: int = 256
    sequence: int = 128
    gated: bool = True
    tied: bool = False
    rope_base: float = 10_000.0
    moe: MoEConfig | None = None
    norm_epsilon: float = 1e-5
    latent: LatentAttention | None = None
    head_dim: int = 0
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "sequence")
        none = [f"{name} = {getattr(self, name)}" for name in sizes if getattr(self, name) < 1]
        if none:
            raise Refusal("a transformer", ", ".join(none), "there is at least one of each")
        if not (0 < self.rope_base < inf and 0 <= self.norm_epsilon < inf):
            raise Refusal(
                "a transformer",
                f"rope_base = {self.rope_base}, norm_epsilon = {self.norm_epsilon}",
                "the first is a number above 0, the second one that is not below it",
            )
        if self.head_dim < 0 or self.head_dim % 2:
            found = f"head_dim = {self.head_dim}"
            raise Refusal("a transformer", found, "0 is D/H, and rotary positions turn pairs")
        uneven = not self.head_dim and (self.hidden % self.heads or self.head_width % 2)
        if uneven or self.heads % self.kv_heads:
            raise Refusal(
                f"{self.heads} heads and {self.kv_heads} key-value heads",
                f"a width of {self.hidden}",
                "heads must divide the width into even parts, and key-value heads the heads",
            )

    @property
    def head_width(self) -> int:
        """Width of one head, D/H where nothing else is said."""
        return self.head_dim or self.hidden // self.heads

    @property
    def query_width(self) -> int:
        """Width of one head's queries and keys."""
        return self.latent.plain + self.latent.turned if self.latent else self.head_width

    @property
    def value_width(self) -> int:
        """Width of one head's values."""
        return self.latent.values if self.latent else self.head_width

    @property
    def key_value_width(self) -> int:
        """Width of a token's keys and values, of all heads together."""
        return self.kv_heads * (self.query_width + self.value_width)

    @property
    def score_width(self) -> float:
        """Numbers of a head in each of the two products inside attention, on average."""
        return (self.query_width + self.value_width) / 2
