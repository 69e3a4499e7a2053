"""Bytes that one micro-batch leaves on a rank from forward to backward: of a block, of the head.

Notebook: 10 Activation checkpointing, 15 Choosing a strategy (memory_model).
Paper: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
section 4 and table 2.
Costs nothing; tests hold the fused kernels against the paper, the eager ones against a measurement.
The production version records what is saved, with torch.autograd.graph.saved_tensors_hooks.

Two kinds of kernels. Fused ones keep the input of a norm, of a product, of attention and of the
activation function. Eager ones, the course's model, also keep what is between the operations that
a norm consists of, and keys and values repeated for every query head.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.recipe import Recipe
from course_lib.plan.memory.share import Share


@dataclass(frozen=True)
class Kept:
    """Bytes of one micro-batch in one part of a model.

    Attributes:
        held: from its forward to its backward.
        brief: more than that, for a while during its backward: gradients of what is between two
            operations, and all that is computed again.
    """

    held: float
    brief: float


def block_kept(config: ModelConfig, layout: Layout, share: Share, recipe: Recipe) -> Kept:
    """What one block keeps, as the layout recomputes it."""
    held, gradients = (_eager, _eager_gradients) if recipe.eager else (_fused, _fused_gradients)
    whole, made = held(config, layout, share, recipe), gradients(config, share, recipe)
    if layout.recompute == "none":
        return Kept(whole, made)
    entry = share.outside * config.hidden * recipe.activation
    if layout.recompute == "full":
        return Kept(entry, whole - entry + made)
    if not recipe.eager:
        core = _core(config, share, recipe)
        return Kept(whole - core, core + made)
    products = entry + _products(config, share, recipe)
    # All results but the last are freed as soon as they have been used instead of computed again.
    unused = share.token_count * config.hidden * _choices(config) * recipe.activation
    return Kept(products, whole - products + unused + made)


def head_kept(config: ModelConfig, share: Share, recipe: Recipe) -> Kept:
    """What final norm, output layer and loss keep: of the logits, numbers as many in fp32.

    The logits themselves are gone when the loss is there; then comes their gradient.
    """
    width, item = config.hidden, recipe.activation
    logits, values = logits_bytes(share), share.token_count * share.vocabulary
    if not recipe.eager:
        return Kept(2 * share.outside * width * item + logits, values * item)
    norm = share.outside * (2 * width + 1) + share.token_count * width
    loss = (3 if share.vocabulary < config.vocabulary else 2) * logits
    layer = (share.token_count + share.vocabulary) * width * item
    return Kept(norm * item + logits, max(loss, layer))


def logits_bytes(share: Share) -> float:
    """The part of `head_kept` that is the loss's own."""
    return share.token_count * share.vocabulary * 4


def _choices(config: ModelConfig) -> int:
    """How many networks each token goes through."""
    return config.moe.top_k + config.moe.shared if config.moe else 1


# --- fused kernels -------------------------------------------------------------------------------
def _core(config: ModelConfig, share: Share, recipe: Recipe) -> float:
    """What is inside attention: a number a row in fp32, or the matrix of T×T and its dropout."""
    rows = share.token_count * share.heads
    if recipe.flash:
        return 4 * rows
    each = recipe.activation + (1 + recipe.activation if recipe.dropout else 0)
    return rows * config.sequence * each


def _fused(config: ModelConfig, layout: Layout, share: Share, recipe: Recipe) -> float:
    width, item, fed = config.hidden, recipe.activation, recipe.product_input
    # Around each of the two regions: a norm's input, the product's input, a mask.
    around = 2 * share.outside * width * (item + fed + (1 if recipe.dropout else 0))
    channels = share.heads * config.query_width
    channels += share.kv_heads * (config.query_width + config.value_width)
    if config.latent:  # what queries, keys and values are made of, before its norm and after
        channels += 2 * (config.latent.queries + config.latent.keys)
    output = share.heads * config.value_width
    # Attention's output feeds a product: kept once if that takes it as it is.
    attention = share.token_count * (channels * item + output * (item + (fed if fed < item else 0)))
    rest = _core(config, share, recipe) + _fused_ffn(config, share, recipe)
    return around + attention + rest


def _fused_ffn(config: ModelConfig, share: Share, recipe: Recipe) -> float:
    inner = share.ffn * ((2 if config.gated else 1) * recipe.activation + recipe.product_input)
    if config.moe is None:
        return share.token_count * inner
    # Each choice of a token has a row of its own: into the expert, and out of it.
    row = config.hidden * (recipe.product_input + recipe.activation) + inner
    shared = config.moe.shared * inner
    return share.token_count * (config.moe.top_k * row + shared + 8 * config.moe.experts)


def _fused_gradients(config: ModelConfig, share: Share, recipe: Recipe) -> float:
    """Gradients that are there at once where there are most of them: in the network."""
    inner = (3 if config.gated else 2) * share.ffn * _choices(config)
    return share.token_count * (inner + 2 * config.hidden) * recipe.activation


# --- eager kernels -------------------------------------------------------------------------------
def _eager(config: ModelConfig, layout: Layout, share: Share, recipe: Recipe) -> float:
    width, own = config.hidden, share.heads * config.head_width
    # A norm: its input, that times its scale, the scale; and what enters the region, gathered.
    values: float = 2 * (share.outside * (2 * width + 1) + share.token_count * width)
    if layout.cp == 1:
        values += share.token_count * (4 * own + share.heads)
    else:  # round the ring they are not repeated, and the output is copied once more
        kv = share.kv_heads * config.head_width
        values += share.token_count * (3 * own + 2 * kv + share.heads)
    values += _rotary(config, layout, share)
    return values * recipe.activation + _eager_ffn(config, share, recipe)


def _rotary(config: ModelConfig, layout: Layout, share: Share) -> float:
    """Cosines and sines of half a head, for queries and for keys, the same for all rows."""
    return share.token_count / layout.micro_batch_size * 2 * config.head_width


def _eager_ffn(config: ModelConfig, share: Share, recipe: Recipe) -> float:
    inner = (4 if config.gated else 2) * share.ffn * recipe.activation
    if config.moe is None:
        return share.token_count * inner
    experts, top_k = config.moe.experts, config.moe.top_k
    # A row goes in, comes home, and is put in its place; its numbers are int64.
    row = 3 * config.hidden * recipe.activation + inner + 5 * 8
    return share.token_count * (top_k * row + (3 * experts + 3 * top_k) * 4)


def _products(config: ModelConfig, share: Share, recipe: Recipe) -> float:
    """Results of a block's products with weights, which `recompute.selective` keeps."""
    own = (share.heads + 2 * share.kv_heads) * config.head_width
    network = _choices(config) * ((2 if config.gated else 1) * share.ffn + config.hidden)
    router = config.moe.experts if config.moe else 0
    return share.token_count * (own + config.hidden + network + router) * recipe.activation


def _eager_gradients(config: ModelConfig, share: Share, recipe: Recipe) -> float:
    """Behind the network's last product: of its input, its output and its weight."""
    values = share.token_count * (config.hidden + share.ffn) + config.hidden * share.ffn
    return values * recipe.activation
