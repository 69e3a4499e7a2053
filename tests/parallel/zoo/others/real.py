"""Small models of real architectures, from transformers and timm where those are installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.parallel.zoo.specimen import Specimen

VOCAB, LENGTH = 40, 8
SMALL = {
    "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager",
    "experts_implementation": "eager",  # the others know no float64
}  # fmt: skip
LATENT: dict[str, Any] = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 4, "num_key_value_heads": 4,
}  # fmt: skip
CUT: dict[str, Any] = {
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 8,
}


def of_transformers(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A causal model of this family, in float64, without dropout."""

    def make() -> nn.Module:
        library: Any = importlib.import_module("transformers")
        config = getattr(library, name + "Config")(**{**SMALL, **options})
        model: nn.Module = library.AutoModelForCausalLM.from_config(config)
        return model.to(torch.float64)

    return make


def other(name: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of another kind, by the name of its class."""

    def make() -> nn.Module:
        library: Any = importlib.import_module("transformers")
        model: nn.Module = getattr(library, name)(getattr(library, config)(**options))
        return model.to(torch.float64)

    return make


def of_timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A model for images of 32 by 32."""

    def make() -> nn.Module:
        library: Any = importlib.import_module("timm")
        model: nn.Module = library.create_model(name, num_classes=5, **options)
        return model.to(torch.float64)

    return make


def tokens(step: int, part: int) -> torch.Tensor:
    """Two windows, [2, LENGTH]."""
    generator = torch.Generator().manual_seed(1000 * step + part)
    return torch.randint(3, VOCAB, (2, LENGTH), generator=generator)


def pictures(step: int, part: int) -> torch.Tensor:
    """[2, 3, 32, 32]."""
    generator = torch.Generator().manual_seed(1000 * step + part)
    return torch.randn(2, 3, 32, 32, generator=generator, dtype=torch.float64)


def sounds(step: int, part: int) -> torch.Tensor:
    """A mel spectrogram, [2, 8, 32]."""
    return pictures(step, part)[:, 0, :8]


def next_token(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """The loss that the model computes by itself."""
    loss: torch.Tensor = model(input_ids=batch, labels=batch, use_cache=False).loss
    return loss


def translated(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """An encoder reads the window, a decoder writes it backwards."""
    loss: torch.Tensor = model(input_ids=batch, labels=batch.flip(1), use_cache=False).loss
    return loss


def heard(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Words from sounds."""
    words = (batch[:, :, 0].abs() * 10).long() % VOCAB
    narrow = batch.to(next(p.dtype for p in model.parameters() if p.is_floating_point()))
    loss: torch.Tensor = model(input_features=narrow, labels=words, use_cache=False).loss
    return loss


def paired(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Pictures and sentences that belong together."""
    words = (batch[:, 0, 0, :LENGTH].abs() * 10).long() % (VOCAB - 3) + 3
    loss: torch.Tensor = model(input_ids=words, pixel_values=batch, return_loss=True).loss
    return loss


def classified(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """The square of what comes out, so that every output has a gradient."""
    found = model(batch)
    found = getattr(found, "logits", found)
    square: torch.Tensor = (found - 0.3).pow(2).mean()
    return square


def layers(*count: int, path: str = "model.layers") -> tuple[str, ...]:
    return tuple(f"{path}.{n}" for n in count or (0, 1))


def causal(
    name: str, family: str, path: str = "model.layers", unused: bool = False, **options: Any
) -> Specimen:
    """A row for a causal model."""
    return Specimen(
        name, family, of_transformers(family, **options), layers(path=path), next_token, tokens,
        tolerance=0.3, close=1e-6, slow=True, unused=unused,
    )  # fmt: skip


def _rows() -> Iterator[Specimen]:
    yield causal("llama", "Llama")
    yield causal("llama_tied", "Llama", tie_word_embeddings=True)
    yield causal("qwen3", "Qwen3", head_dim=4)
    yield causal("gemma2", "Gemma2", head_dim=4, query_pre_attn_scalar=4)
    yield causal("phi3", "Phi3")
    yield causal("olmo2", "Olmo2")
    yield causal("gpt2", "GPT2", "transformer.h", n_embd=16, n_layer=2, n_head=4, n_positions=32,
                 resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    yield causal("gpt_neox", "GPTNeoX", "gpt_neox.layers")
    yield causal("opt", "OPT", "model.decoder.layers", ffn_dim=32, word_embed_proj_dim=16,
                 dropout=0.0)  # fmt: skip
    yield causal("mamba", "Mamba", "backbone.layers", state_size=4)
    yield causal("falcon", "Falcon", "transformer.h", new_decoder_architecture=True)
    yield causal("mixtral", "Mixtral", num_local_experts=4, unused=True)
    yield causal("qwen3_moe", "Qwen3Moe", num_experts=4, num_experts_per_tok=2, head_dim=4,
                 moe_intermediate_size=8, unused=True)  # fmt: skip
    yield causal("deepseek_v3", "DeepseekV3", n_routed_experts=4, num_experts_per_tok=2,
                 unused=True, **LATENT, **CUT)  # fmt: skip
    yield causal("gpt_oss", "GptOss", num_local_experts=4, num_experts_per_tok=2, head_dim=4,
                 layer_types=["sliding_attention", "full_attention"], unused=True)  # fmt: skip
    small = {"d_model": 16, "d_ff": 32, "d_kv": 4, "num_heads": 4, "num_layers": 2,
             "vocab_size": VOCAB, "dropout_rate": 0.0, "decoder_start_token_id": 0}  # fmt: skip
    units = tuple(f"{half}.block.{n}" for half in ("encoder", "decoder") for n in (0, 1))
    yield Specimen("t5", "T5", other("T5ForConditionalGeneration", "T5Config", **small), units,
                   translated, tokens, tolerance=0.3, close=1e-6, slow=True)  # fmt: skip
    whisper = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": VOCAB,
               "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_mel_bins": 8,
               "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_source_positions": 16,
               "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1,
               "eos_token_id": 2, "decoder_start_token_id": 1, "dropout": 0.0,
               "suppress_tokens": None, "begin_suppress_tokens": None}  # fmt: skip
    units = tuple(f"model.{half}.layers.{n}" for half in ("encoder", "decoder") for n in (0, 1))
    yield Specimen("whisper", "Whisper",
                   other("WhisperForConditionalGeneration", "WhisperConfig", **whisper), units,
                   heard, sounds, tolerance=0.3, close=1e-6, slow=True)  # fmt: skip
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
             "num_attention_heads": 4}  # fmt: skip
    text = {**tower, "vocab_size": VOCAB, "max_position_embeddings": 32, "eos_token_id": 2}
    yield Specimen("clip", "CLIP",
                   other("CLIPModel", "CLIPConfig", text_config=text, projection_dim=8,
                         vision_config={**tower, "image_size": 32, "patch_size": 16}),
                   ("text_model.encoder.layers.0", "vision_model.encoder.layers.0"),
                   paired, pictures, tolerance=0.3, close=1e-6, slow=True)  # fmt: skip
    yield Specimen("vit", "ViT",
                   other("ViTForImageClassification", "ViTConfig", image_size=32, patch_size=16,
                         hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **tower),
                   (), classified, pictures, tolerance=0.3, close=1e-6, slow=True)  # fmt: skip
    for name, units in (
        ("resnet10t", ("layer1", "layer2")), ("convnext_atto", ("stages.0", "stages.1")),
    ):  # fmt: skip
        unfit = "its batch norms are buffers in float64" if name == "resnet10t" else ""
        yield Specimen(name, name, of_timm(name), units, classified, pictures,
                       tolerance=0.3, close=1e-6, slow=True, unfit=unfit)  # fmt: skip


REAL = {row.name: row for row in _rows()}
