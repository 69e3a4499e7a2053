"""Well-known models, by their shapes.

Notebook: 15 Choosing a strategy (plan).
Source: beside each model; parameters as its authors, or its published weights, count them.
Costs nothing.
The production version reads the config.json that lies beside a checkpoint.

The course's model has neither biases nor learned positions, so that older models come out some
millions short, within the digits that are given here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from course_lib.model.config import LatentAttention, ModelConfig, MoEConfig
from course_lib.trace import Refusal


@dataclass(frozen=True)
class Known:
    """A published model.

    Attributes:
        config: its shape; `sequence` is what it was pre-trained on, in the main.
        billions: of parameters, as published, with as many digits as are known.
        source: of both.
    """

    config: ModelConfig
    billions: str
    source: str


def _gpt(layers: int, hidden: int, heads: int, sequence: int, vocabulary: int) -> ModelConfig:
    """GPT-2's shape: GELU, four times the width inside, the embedding used again at the end."""
    return ModelConfig(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=4 * hidden,
        gated=False,
        vocabulary=vocabulary,
        sequence=sequence,
        tied=True,
    )


def _llama(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocabulary: int,
    sequence: int,
    rope_base: float = 10_000.0,
    moe: MoEConfig | None = None,
    tied: bool = False,
) -> ModelConfig:
    return ModelConfig(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        sequence=sequence,
        vocabulary=vocabulary,
        rope_base=rope_base,
        moe=moe,
        tied=tied,
    )


def _deepseek() -> ModelConfig:
    """DeepSeek-V3, without the module that predicts a further token (one more block)."""
    shape = _llama(61, 7168, 128, 128, 2048, 129280, 4096)
    moe = MoEConfig(experts=256, top_k=8, shared=1, dense=3, dense_ffn=18432, nodes=4)
    latent = LatentAttention(queries=1536, keys=512, plain=128, turned=64, values=128)
    return replace(shape, moe=moe, latent=latent)


_SC21 = 'Narayanan et al., "Megatron-LM" (2021), table 1'
_LLAMA1 = 'Touvron et al., "LLaMA" (2023), table 2'
_LLAMA2 = 'Touvron et al., "Llama 2" (2023), and the published weights'
_LLAMA3 = 'Grattafiori et al., "The Llama 3 Herd of Models" (2024), table 3, and the weights'
_MIXTRAL = 'Jiang et al., "Mixtral of Experts" (2024), table 1, and the published weights'

MODELS: Mapping[str, Known] = MappingProxyType(
    {
        "gpt2-xl": Known(_gpt(48, 1600, 25, 1024, 50257), "1.56", 'Radford et al. (2019), "GPT-2"'),
        "gpt3-175b": Known(_gpt(96, 12288, 96, 2048, 50257), "175", 'Brown et al. (2020), "GPT-3"'),
        "megatron-22b": Known(
            _gpt(48, 6144, 64, 2048, 51200), "22", "Korthikanti et al. (2022), table 3"
        ),
        "megatron-145b": Known(_gpt(80, 12288, 96, 2048, 51200), "145.6", _SC21),
        "megatron-530b": Known(_gpt(105, 20480, 128, 2048, 51200), "530", _SC21),
        "megatron-1t": Known(_gpt(128, 25600, 160, 2048, 51200), "1008", _SC21),
        "llama-65b": Known(_llama(80, 8192, 64, 64, 22016, 32000, 2048), "65.2857", _LLAMA1),
        "llama2-7b": Known(_llama(32, 4096, 32, 32, 11008, 32000, 4096), "6.7384", _LLAMA2),
        "llama2-13b": Known(_llama(40, 5120, 40, 40, 13824, 32000, 4096), "13.0159", _LLAMA2),
        "llama2-70b": Known(_llama(80, 8192, 64, 8, 28672, 32000, 4096), "68.9766", _LLAMA2),
        "llama3-8b": Known(
            _llama(32, 4096, 32, 8, 14336, 128256, 8192, 5e5), "8.0303", _LLAMA3
        ),
        "llama3-70b": Known(
            _llama(80, 8192, 64, 8, 28672, 128256, 8192, 5e5), "70.5537", _LLAMA3
        ),
        "llama3-405b": Known(
            _llama(126, 16384, 128, 8, 53248, 128256, 8192, 5e5), "405.85", _LLAMA3
        ),
        "llama3.2-1b": Known(
            _llama(16, 2048, 32, 8, 8192, 128256, 8192, 5e5, tied=True),
            "1.2358", "Llama 3.2 model card (2024), and the published weights",
        ),
        "mistral-7b": Known(
            _llama(32, 4096, 32, 8, 14336, 32000, 8192),
            "7.2417", 'Jiang et al., "Mistral 7B" (2023), table 1, and the published weights',
        ),
        "mixtral-8x7b": Known(
            _llama(32, 4096, 32, 8, 14336, 32000, 32768, 1e6, MoEConfig(experts=8, top_k=2)),
            "46.7028", _MIXTRAL,
        ),
        "mixtral-8x22b": Known(
            _llama(56, 6144, 48, 8, 16384, 32768, 65536, 1e6, MoEConfig(experts=8, top_k=2)),
            "141", "Mistral AI, announcement of Mixtral 8x22B (2024), and the published weights",
        ),
        "deepseek-v3": Known(
            _deepseek(), "671.03", 'DeepSeek-AI, "DeepSeek-V3" (2024), section 4.2, and the weights'
        ),
    }
)  # fmt: skip


def model(name: str) -> ModelConfig:
    """The shape of a known model.

    Raises:
        Refusal: there is none of this name.
    """
    if name not in MODELS:
        raise Refusal(
            f"the model {name!r}",
            ", ".join(MODELS),
            "others are a ModelConfig(layers=..., hidden=..., ...)",
        )
    return MODELS[name].config
