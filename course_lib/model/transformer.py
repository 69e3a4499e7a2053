"""A decoder-only transformer on one device: pre-norm, rotary positions, grouped-query attention.

Notebook: 02 Data parallel; every lesson cuts this same model in another way.
Paper: Touvron et al., "LLaMA" (2023), section 2.2; Su et al., "RoFormer" (2021); Ainslie et al.,
"GQA" (2023).
Costs 2 operations per parameter and token forward, 4 backward, and attention on top (formulas.py).
The production version fuses norms, rotary embedding and SwiGLU into single kernels.

Shapes: B batch, T sequence, D hidden, H query heads, K key-value heads, C head width, V vocabulary.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.model.config import ModelConfig, RopeScaling
from course_lib.model.feed_forward import FeedForward
from course_lib.model.moe import MoE
from course_lib.trace import Refusal


class RMSNorm(nn.Module):
    """Scales each vector to length √D, then by a learned weight.

    Args:
        width: D.
        epsilon: added to the mean square.
    """

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Normalised in float32 whatever the dtype of the input is."""
        scale = torch.rsqrt(x_BTD.float().pow(2).mean(-1, keepdim=True) + self.epsilon)
        if x_BTD.dtype == torch.float64:
            scale = torch.rsqrt(x_BTD.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return x_BTD * scale.to(x_BTD.dtype) * self.weight


def rotary(config: ModelConfig, positions_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary embedding, [T, C/2] each, in float64.

    Args:
        config: for the width of a head and the base.
        positions_T: the place of each token in the *whole* sequence, int64.
    """
    half = config.head_width // 2
    steps = torch.arange(half, dtype=torch.float64, device=positions_T.device) / half
    turns = config.rope_base**-steps
    if config.rope_scaling is not None:
        turns = _slower(turns, config.rope_scaling)
    angles = positions_T.double()[:, None] * turns
    return angles.cos(), angles.sin()


def _slower(turns: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """The angles of one position, with the longest wavelengths made longer by `factor`."""
    waves = scaling.original * turns / (2 * math.pi)  # of each, in the first training's T
    kept = ((waves - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return turns * (kept + (1 - kept) / scaling.factor)


def rotate(x_BTHC: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns each pair of channels (c, c + C/2) by the angle of its position."""
    first, second = x_BTHC.chunk(2, -1)
    cos, sin = cos[:, None].to(x_BTHC.dtype), sin[:, None].to(x_BTHC.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def causal_attention(
    q_BHTC: torch.Tensor,
    k_BKTC: torch.Tensor,
    v_BKTC: torch.Tensor,
    seen_BTT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Each token's mean of the values up to its own; K heads are repeated for H. [B, H, T, C].

    Args:
        q_BHTC: queries.
        k_BKTC: keys.
        v_BKTC: values.
        seen_BTT: whether the token of a row sees that of a column; all before it and itself if
            None.
    """
    groups = q_BHTC.shape[1] // k_BKTC.shape[1]
    k_BHTC, v_BHTC = (t.repeat_interleave(groups, 1) for t in (k_BKTC, v_BKTC))
    if seen_BTT is None:
        return F.scaled_dot_product_attention(q_BHTC, k_BHTC, v_BHTC, is_causal=True)
    return F.scaled_dot_product_attention(q_BHTC, k_BHTC, v_BHTC, attn_mask=seen_BTT[:, None])


def seen_in_documents(begins_BT: torch.Tensor) -> torch.Tensor:
    """Which tokens a token sees that looks at its own document only: bool [B, T, T].

    Args:
        begins_BT: whether another document begins *after* this token.
    """
    number_BT = begins_BT.cumsum(1) - begins_BT.long()
    return (number_BT[:, :, None] == number_BT[:, None, :]).tril()


class Attention(nn.Module):
    """Causal self-attention with rotary positions and grouped key-value heads.

    Args:
        config: D, H, K, and what there is besides.

    Attributes:
        attend: queries [B, H, T, C], keys and values [B, K, T, C] to [B, H, T, C]; may be replaced
            by another way to compute the same.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.attend: Callable[..., torch.Tensor] = causal_attention
        width, bias = config.head_width, config.qkv_bias
        inner, outer = config.kv_heads * width, config.heads * width
        self.query = nn.Linear(config.hidden, outer, bias=bias)
        self.key = nn.Linear(config.hidden, inner, bias=bias)
        self.value = nn.Linear(config.hidden, inner, bias=bias)
        self.output = nn.Linear(outer, config.hidden, bias=False)
        self.query_norm, self.key_norm = (
            RMSNorm(width, config.norm_epsilon) if config.qk_norm else None for _ in range(2)
        )

    def forward(
        self,
        x_BTD: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        seen_BTT: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[B, T, D] to the same; head counts come from the weights, which may be a part of them."""
        width = self.config.head_width
        q_BTHC, k_BTKC, v_BTKC = (
            project(x_BTD).unflatten(-1, (-1, width))
            for project in (self.query, self.key, self.value)
        )
        if self.query_norm is not None and self.key_norm is not None:
            q_BTHC, k_BTKC = self.query_norm(q_BTHC), self.key_norm(k_BTKC)
        q_BTHC, k_BTKC = rotate(q_BTHC, cos, sin), rotate(k_BTKC, cos, sin)
        seen = () if seen_BTT is None else (seen_BTT,)
        out_BHTC = self.attend(*(t.transpose(1, 2) for t in (q_BTHC, k_BTKC, v_BTKC)), *seen)
        return self.output(out_BHTC.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and feed-forward (or experts), each behind a norm and beside the residual stream.

    Args:
        config: the model's.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.norm_epsilon)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.hidden, config.norm_epsilon)
        self.ffn = FeedForward(config) if config.moe is None else MoE(config)

    def forward(
        self, x_BTD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *seen: torch.Tensor
    ) -> torch.Tensor:
        """[B, T, D] to the same; `seen` as for `causal_attention`, if not all before it is."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), cos, sin, *seen)
        return x_BTD + self.ffn(self.ffn_norm(x_BTD))


class Transformer(nn.Module):
    """Embedding, blocks, norm, output layer.

    Args:
        config: its shape.
        seed: of the weights; each parameter's own generator is seeded by its *name*, so that a
            part of the model gets the values that it would have in the whole.
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        _check_can_be_built(config)
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_epsilon)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        self.reset(seed)

    @torch.no_grad()
    def reset(self, seed: int) -> None:
        """Initial values: matrices normal, 0.02, output matrices / √(2L); no bias yet."""
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            elif parameter.dim() == 2:
                generator = torch.Generator().manual_seed(seed * 7919 + zlib.crc32(name.encode()))
                deep = name.endswith(("attention.output.weight", ".down.weight"))
                scale = 0.02 / (2 * self.config.layers) ** 0.5 if deep else 0.02
                values = torch.randn(parameter.shape, generator=generator) * scale
                parameter.copy_(values)

    def forward(
        self, tokens_BT: torch.Tensor, positions_T: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits [B, T, V] for the token after each.

        Args:
            tokens_BT: int64.
            positions_T: the place of each in its sequence, int64; 0, 1, 2, ... if None.
        """
        if positions_T is None:
            positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        cos, sin = rotary(self.config, positions_T)
        x_BTD = self.embedding(tokens_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD, cos, sin)
        return self.head(self.norm(x_BTD))


def cross_entropy(logits_BTV: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood of the targets, in nats per token, float32 or wider."""
    logits_BTV = logits_BTV.float() if logits_BTV.dtype.itemsize < 4 else logits_BTV
    return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


@torch.no_grad()
def generate(
    model: nn.Module, prompt: bytes, count: int, sequence: int, temperature: float = 0.8
) -> bytes:
    """Continues a text, byte by byte; the same continuation every time.

    Args:
        model: tokens to logits.
        prompt: at least one byte.
        count: bytes to add.
        sequence: how many of the last bytes the model sees, at least one.
        temperature: above 0; below 1 is more cautious.

    Raises:
        Refusal: one of these is not so.
    """
    if not prompt or sequence < 1 or not temperature > 0:
        raise Refusal(
            f"{count} bytes after {prompt!r}",
            f"sequence {sequence}, temperature {temperature}",
            "a model sees at least one byte, and its logits are divided by a number above 0",
        )
    tokens = torch.tensor([list(prompt)])
    generator = torch.Generator().manual_seed(0)  # the CPU's: the same text on every device
    where = next(model.parameters()).device
    for _ in range(count):
        logits_V = model(tokens[:, -sequence:].to(where))[0, -1].float().cpu() / temperature
        new = torch.multinomial(logits_V.softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, new[None]], 1)
    return bytes(tokens[0].tolist())


def _check_can_be_built(config: ModelConfig) -> None:
    moe = config.moe
    if config.latent or (moe and (moe.shared or moe.dense or moe.nodes)):
        raise Refusal(
            "a model with latent attention, shared experts, first dense blocks or a limit of nodes",
            "blocks of grouped-query attention and equal experts",
            "such a model can be planned with, not built: leave these fields out",
        )
