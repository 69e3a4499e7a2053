"""What a model costs, by arithmetic: parameters, operations, and the bytes that activations take.

Notebook: 02 Data parallel, 10 Activation checkpointing, 12 Expert parallel, 15 Choosing a strategy.
Paper: Narayanan et al. (2021), section 5.1, for operations; Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models" (2022), section 4, for activations.
Costs nothing; tests hold these against a real model, to the parameter and to the byte.
The production version also counts what kernels save and what the allocator wastes.
"""

from __future__ import annotations

from dataclasses import replace

from course_lib.model.config import ModelConfig


def block_parameters(config: ModelConfig, *, active: bool = False) -> int:
    """Parameters of one block: attention, feed-forward (experts and router), two norms.

    Args:
        config: the model's shape.
        active: count only the experts that one token uses.
    """
    c = config
    ffn = (3 if c.gated else 2) * c.hidden * c.ffn
    if c.moe is not None:
        used = c.moe.shared + (c.moe.top_k if active else c.moe.experts)
        ffn = ffn * used + c.hidden * c.moe.experts
    return attention_parameters(c) + ffn + 2 * c.hidden


def block_products(config: ModelConfig) -> int:
    """Weights of one block that a token is multiplied with: no norms, no biases, its experts."""
    vectors = 2 * config.hidden + head_vectors(config, config.heads, config.kv_heads)
    return block_parameters(config, active=True) - vectors


def attention_parameters(config: ModelConfig) -> int:
    """Parameters of one block's attention: its four matrices; of latent attention five, two norms.

    Where queries, keys and values have biases, or queries and keys norms, these count as well.
    Those of latent attention are on the way down to the two vectors, and from them up to the heads.
    """
    c, way = config, config.latent
    if way is None:
        matrices = 2 * c.hidden * (c.heads + c.kv_heads) * c.head_width
        return matrices + head_vectors(c, c.heads, c.kv_heads)
    return latent_down(c) + c.heads * latent_up(c)


def head_vectors(config: ModelConfig, heads: int, kv_heads: int) -> int:
    """Parameters of biases and norms beside so many heads, which most models do not have."""
    biases = (heads + 2 * kv_heads) * config.head_width if config.qkv_bias else 0
    return biases + (2 * config.head_width if config.qk_norm else 0)


def latent_down(config: ModelConfig) -> int:
    """Parameters that make the latent vectors of a token, which every rank of tp does."""
    way = config.latent
    assert way is not None
    return config.hidden * (way.queries + way.keys + way.turned) + way.queries + way.keys


def latent_up(config: ModelConfig) -> int:
    """Parameters of one head: its query, key and value out of the vectors, and its way out."""
    way = config.latent
    assert way is not None
    key_value = way.keys * (way.plain + way.values)
    return way.queries * config.query_width + key_value + way.values * config.hidden


def parameter_count(config: ModelConfig, *, active: bool = False) -> int:
    """All parameters, or those that one token uses; a tied output layer is counted once."""
    embeddings = config.vocabulary * config.hidden * (1 if config.tied else 2)
    blocks = config.layers * block_parameters(config, active=active)
    return blocks + _dense_instead(config, active) + config.hidden + embeddings


def _dense_instead(config: ModelConfig, active: bool) -> int:
    """By how many parameters the first blocks differ that have no experts."""
    moe = config.moe
    if moe is None or not moe.dense:
        return 0
    plain = replace(config, ffn=moe.dense_ffn, moe=None)
    return moe.dense * (block_parameters(plain) - block_parameters(config, active=active))


def flops_per_token(config: ModelConfig, sequence: int | None = None) -> int:
    """Operations of forward and backward for one token: a multiplication and an addition are two.

    6 for each active parameter in a matrix multiplication (2 forward, 4 backward), and 12·L·D·T for
    the two multiplications inside attention, of which a causal mask needs half.
    """
    c = config
    length = sequence or c.sequence
    matrices = c.layers * block_products(c)
    scores = int(c.layers * c.heads * c.score_width) * length
    return 6 * (matrices + c.vocabulary * c.hidden) + 6 * scores


def stage_costs(config: ModelConfig) -> list[float]:
    """Operations a token forward of embedding, blocks and output layer, in that order.

    Two for each weight in a product; the embedding is a look-up and costs nothing.
    """
    scores = config.sequence * config.heads * config.score_width
    return [
        0.0,
        *[2.0 * (block_products(config) + scores)] * config.layers,
        2.0 * config.hidden * config.vocabulary,
    ]


def activation_bytes(config: ModelConfig, batch: int, sequence: int | None = None) -> int:
    """Bytes of fp16 activations that one device keeps for the backward pass, after Korthikanti.

    s·b·h·(34 + 5·a·s/h) for a block with ordinary attention, a GELU network of width 4h and
    dropout; it counts the S×S matrices, which flash attention does not keep. The formula is the
    paper's and so is its model: use it for models of that shape.
    """
    c = config
    length = sequence or c.sequence
    per_token = 34 * c.hidden + 5 * c.heads * length
    return c.layers * length * batch * per_token
