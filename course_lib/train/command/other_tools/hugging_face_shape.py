"""The shape of a model as a Hugging Face config.json has it, or why it is not one of ours.

Source: transformers' configuration_llama.py, _mistral.py, _mixtral.py, _qwen2.py, _qwen3.py and
_qwen3_moe.py for keys and defaults; the other families' files for what they have and ours has not.
Costs nothing.
The production version has a converter for every family; here what our model does not have is named
and refused, since a model without it would be another one with the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from course_lib.model import ModelConfig, MoEConfig
from course_lib.model.config import RopeScaling
from course_lib.trace import Refusal

# Families that are read, with what their files mean where they leave a key out.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    "qwen2": {"num_key_value_heads": 32, "use_sliding_window": False},
    "qwen3": {"num_key_value_heads": 32, "use_sliding_window": False, "head_dim": 128},
    "qwen3_moe": {"num_key_value_heads": 4, "use_sliding_window": False, "norm_topk_prob": False},
}
# What a mixture's number of experts, and the width inside one, are called.
EXPERTS = {
    "mixtral": ("num_local_experts", "intermediate_size"),
    "qwen3_moe": ("num_experts", "moe_intermediate_size"),
}
# What a family always has and this model does not, whatever its config.json says.
LACKING = {
    "qwen2_moe": "an expert that every token uses, with a gate of its own",
    "deepseek": "experts beside shared ones",
    "deepseek_v2": "multi-head latent attention",
    "deepseek_v3": "multi-head latent attention",
    "gemma": "embeddings times the root of the width, norms that multiply by 1 + weight",
    "gemma2": "embeddings times the root of the width, norms that multiply by 1 + weight",
    "gpt2": "learned positions, LayerNorm, biases",
}
# Keys whose other values would be another model, with those that mean what ours has.
ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "hidden_activation": ("silu", None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (1, None),
    "attention_dropout": (0, None),
    "pretraining_tp": (1, None),
    "router_jitter_noise": (0, None),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "kv_lora_rank": (None,),
    "q_lora_rank": (None,),
    "n_shared_experts": (0, None),
    "shared_expert_intermediate_size": (0, None),
    "first_k_dense_replace": (0, None),
    "mlp_only_layers": ([], None),
    "decoder_sparse_step": (1, None),
    "scoring_func": ("softmax", None),
    "norm_topk_prob": (True, None),
    "routed_scaling_factor": (1, None),
    "num_nextn_predict_layers": (0, None),
    "quantization_config": (None,),
}
KINDS = {int: "a whole number", float: "a number", bool: "true or false", dict: "an object",
         list: "a list"}  # fmt: skip


def from_hugging_face(found: dict[str, Any], sequence: int) -> ModelConfig:
    """Our shape of a config.json.

    Args:
        found: what is in the file.
        sequence: T of the training.

    Raises:
        Refusal: our model has not all that it asks for; it names every such thing. Or a key that
            the shape needs is not there, or has a value that cannot be.
    """
    family = found["model_type"]
    if family not in [*FAMILIES, *LACKING]:
        readable = f"read are {', '.join(FAMILIES)}"
        raise Refusal(_asked(found), "an unknown family", readable)
    given = {**FAMILIES.get(family, {}), **found}
    lacking = list(_lacking(given, sequence))
    if lacking:
        why = "our model has none of this, and would be another"
        raise Refusal(_asked(found), "; ".join(lacking), why)
    layers, heads = (
        _value(given, key, int) for key in ("num_hidden_layers", "num_attention_heads")
    )
    return ModelConfig(
        layers=layers,
        hidden=_value(given, "hidden_size", int),
        heads=heads,
        kv_heads=_value(given, "num_key_value_heads", int, heads),
        ffn=_value(given, EXPERTS.get(family, ("", "intermediate_size"))[1], int),
        vocabulary=_value(given, "vocab_size", int),
        sequence=sequence,
        tied=_value(given, "tie_word_embeddings", bool, False),
        rope_base=_value(_rope(given), "rope_theta", float, 10_000.0),
        moe=_experts(given) if family in EXPERTS else None,
        norm_epsilon=_value(given, "rms_norm_eps", float, 1e-6),
        head_dim=_value(given, "head_dim", int, 0),
        qkv_bias=family == "qwen2",
        qk_norm=family.startswith("qwen3"),
        rope_scaling=_scaling(_rope(given)),
    )


def _experts(given: dict[str, Any]) -> MoEConfig:
    name = EXPERTS[given["model_type"]][0]
    name = "num_local_experts" if name not in given else name  # as newer files call it everywhere
    count = _value(given, name, int)
    each = _value(given, "num_experts_per_tok", int)
    return MoEConfig(count, each, None, _value(given, "router_aux_loss_coef", float, 0.001), 0)


def _scaling(rope: dict[str, Any]) -> RopeScaling | None:
    if _kind(rope) == "default":
        return None
    original = _value(rope, "original_max_position_embeddings", int)
    names = ("factor", "low_freq_factor", "high_freq_factor")
    return RopeScaling(original, *(_value(rope, name, float) for name in names))


def _kind(rope: dict[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _asked(found: dict[str, Any]) -> str:
    return f"a model of the type {found.get('model_type')}"


def _value(found: dict[str, Any], key: str, kind: type, *instead: Any) -> Any:
    """What a key has; `instead` where it has nothing or null.

    Raises:
        Refusal: it has something of another kind, or there is nothing and no other value.
    """
    value = found.get(key)
    if value is None and instead:
        return instead[0]
    if value is None:
        raise Refusal(_asked(found), f"no key {key}", "the shape cannot be known")
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise Refusal(_asked(found), f"{key} = {value!r}", f"it is {KINDS[kind]}")
    return value


def _rope(found: dict[str, Any]) -> dict[str, Any]:
    """The rotary embedding's options, which newer files have in an object of their own."""
    inner = _value(found, "rope_parameters", dict, {}) or _value(found, "rope_scaling", dict, {})
    return {key: found.get(key) for key in ("model_type", "rope_theta")} | inner


def _lacking(found: dict[str, Any], sequence: int) -> Iterator[str]:
    """All that a file asks for and our model does not have, by name."""
    family = found["model_type"]
    if family in LACKING:
        yield f"{LACKING[family]}, as every {family} has"
    for key, allowed in ONLY.items():
        if key in found and found[key] not in allowed:
            yield f"{key} = {found[key]!r}"
    window = found.get("sliding_window")
    if window is not None and found.get("use_sliding_window", True):
        yield f"sliding_window = {window!r}"
    if any(kind != "full_attention" for kind in _value(found, "layer_types", list, [])):
        yield f"layer_types = {found['layer_types']!r}"
    kind = _kind(_rope(found))
    if kind not in ("default", "llama3"):
        yield f"rope_type = {kind!r}"
    longest = _value(found, "max_position_embeddings", int, sequence)
    if longest < sequence:
        yield f"max_position_embeddings = {longest}, for windows of {sequence} tokens"
