"""Weights of Llama, Mistral, Mixtral and Qwen in Hugging Face's names, to begin with or hand over.

Source: the names in transformers' modeling_llama.py, _mixtral.py, _qwen2.py, _qwen3.py and
_qwen3_moe.py; `checkpoint/formats` knows the file.
Costs reading or writing the model once. Every rank reads all of it before it is cut.
The production version (torchtitan's state-dict adapter) reads on each rank only what it holds.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from course_lib.checkpoint import CheckpointError, hold_whole, model_pieces
from course_lib.checkpoint.formats.safetensors import open_safetensors
from course_lib.model import ModelConfig, Transformer
from course_lib.trace import Refusal
from course_lib.train.command.other_tools.hugging_face_shape import EXPERTS

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
BLOCK = re.compile(r"blocks\.(\d+)\.(.*)\.(weight|bias)")
EXPERT = re.compile(r"ffn\.experts\.(\d+)\.(\w+)")
ENDS = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
INSIDE = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
}
# What a mixture is called, and the three matrices of an expert.
MIXTURES = {
    "mixtral": ("block_sparse_moe", {"gate": "w1", "up": "w3", "down": "w2"}),
    "qwen3_moe": ("mlp", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


def family_of(config: ModelConfig) -> str:
    """The type of model that is shaped so.

    Raises:
        Refusal: there is none.
    """
    moe = config.moe
    odd = not config.gated or (moe and (moe.bias_rate or moe.top_k == 1 or config.qkv_bias))
    if odd or (config.qkv_bias and config.qk_norm):
        raise Refusal(
            "a config.json for this model",
            "GELU networks, a router's bias, one expert a token, or biases beside experts or norms",
            f"{', '.join(CLASSES)} have none of these",
        )
    if config.qk_norm:
        return "qwen3_moe" if moe else "qwen3"
    return "mixtral" if moe else "qwen2" if config.qkv_bias else "llama"


def their_name(name: str, family: str) -> str:
    """Hugging Face's name of a parameter of ours."""
    if name in ENDS:
        return ENDS[name]
    block = BLOCK.fullmatch(name)
    assert block is not None, name
    mixture, matrices = MIXTURES.get(family, ("", {}))
    expert = EXPERT.fullmatch(block[2])
    if expert:
        inside = f"{mixture}.experts.{expert[1]}.{matrices[expert[2]]}"
    else:
        inside = f"{mixture}.gate" if block[2] == "ffn.router" else INSIDE[block[2]]
    return f"model.layers.{block[1]}.{inside}.{block[3]}"


def load_weights(model: Transformer, folder: Path) -> None:
    """Fills a whole model with the weights in a folder; refuses before anything is changed.

    Args:
        model: on one process, not cut yet.
        folder: with model.safetensors, or with an index and its parts.

    Raises:
        CheckpointError: a tensor is missing, or has another shape.
    """
    family = family_of(model.config)
    wanted = {
        f"model.{name}": f"model.{their_name(name, family)}" for name, _ in model.named_parameters()
    }
    files = [open_safetensors(path) for path in _files(folder)]
    of = {name: file for file in files for name in file.manifest.tensors}
    missing = [theirs for theirs in wanted.values() if theirs not in of]
    if missing:
        raise CheckpointError(
            f"begin with the weights in {folder}",
            f"{len(missing)} tensors are not there, such as {missing[0].removeprefix('model.')}",
            "the shape that --model says is that of the weights",
        )
    pieces = [p for p in model_pieces(hold_whole(model)) if p.name in wanted]
    for piece in pieces:
        theirs = wanted[piece.name]
        of[theirs].read([replace(piece, name=theirs)])


def _files(folder: Path) -> list[Path]:
    """The files of a model: one, or those that its index names."""
    if not (folder / INDEX).exists():
        return [folder / WEIGHTS]
    try:
        parts = set(json.loads((folder / INDEX).read_text())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"read {folder / INDEX}", str(error), "it has a weight_map") from None
    if any(not isinstance(part, str) or Path(part).name != part for part in parts):
        raise CheckpointError(f"read {folder / INDEX}", "a part elsewhere", "parts lie beside it")
    return [folder / part for part in sorted(parts)]


def their_config(config: ModelConfig) -> dict[str, Any]:
    """What a config.json says of a model of ours.

    Raises:
        Refusal: it is of no family that is known here.
    """
    family, scaling = family_of(config), config.rope_scaling
    found = {
        "architectures": [CLASSES[family]],
        "model_type": family,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "intermediate_size": config.ffn,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.sequence,
        "tie_word_embeddings": config.tied,
        "rope_theta": config.rope_base,
        "rms_norm_eps": config.norm_epsilon,
        "hidden_act": "silu",
    }
    if scaling is not None:
        found["rope_scaling"] = {
            "rope_type": "llama3",
            "original_max_position_embeddings": scaling.original,
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
        }
    return found | _of_experts(config, family)


def _of_experts(config: ModelConfig, family: str) -> dict[str, Any]:
    if config.moe is None:
        return {}
    count, width = EXPERTS[family]
    return {
        count: config.moe.experts,
        width: config.ffn,
        "num_experts_per_tok": config.moe.top_k,
        "norm_topk_prob": True,
        "router_aux_loss_coef": config.moe.balance,
    }
