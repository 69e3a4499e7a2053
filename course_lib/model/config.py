"""The shape of a model, as data: what every formula and every parallelism computes with.

Notebook: 02 Data parallel; all later ones.
Paper: Touvron et al., "LLaMA" (2023), section 2.2, for the defaults (pre-norm, SwiGLU, RoPE).
Costs nothing.
The production version has a hundred more fields, and reads them from a checkpoint's config.json.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer.

    Attributes:
        layers: L, blocks.
        hidden: D, width of the residual stream.
        heads: H, query heads; D/H is the width of a head and must be even for RoPE.
        kv_heads: K, key and value heads, a divisor of H; H is ordinary attention, fewer is
            grouped-query attention.
        ffn: F, width inside the feed-forward network.
        vocabulary: V, tokens.
        sequence: T, the longest sequence.
        gated: SwiGLU (three matrices) or GELU (two).
        tied: whether the output layer is the embedding, transposed.
        rope_base: base of the rotary embedding's wavelengths.

    Raises:
        ValueError: the sizes do not fit together.
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

    def __post_init__(self) -> None:
        if self.hidden % self.heads or self.heads % self.kv_heads or self.head_width % 2:
            raise ValueError(
                f"asked for {self.heads} heads and {self.kv_heads} key-value heads\n"
                f"found a width of {self.hidden}\n"
                "heads must divide the width into even parts, and key-value heads the heads"
            )

    @property
    def head_width(self) -> int:
        """Width of one head, D/H."""
        return self.hidden // self.heads
