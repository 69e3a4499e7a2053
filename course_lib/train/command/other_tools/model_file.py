"""A model's shape from a file: in the course's own keys, or as a Hugging Face config.json has it.

Source: transformers' configuration_llama.py and configuration_mixtral.py, for keys and defaults.
Costs reading a page of JSON.
The production version has a converter for every family; here what our model does not have is named
and refused, since a model without it would be another one with the same name.

    {"layers": 8, "hidden": 512, "heads": 8, "kv_heads": 2, "ffn": 1408, "moe": {"experts": 8}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from course_lib.model import ModelConfig, MoEConfig
from course_lib.trace import Refusal

FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "deepseek_v2", "deepseek_v3")
# What a family has that this model does not, whatever its config.json says.
LACKING = {
    "qwen2": "biases of queries, keys and values",
    "qwen3": "norms of queries and keys",
    "deepseek_v2": "multi-head latent attention, shared experts",
    "deepseek_v3": "multi-head latent attention, shared experts",
}
# Keys whose other values would be another model, with the value that ours has; () is any of them.
ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "sliding_window": (None,),
    "partial_rotary_factor": (1, 1.0),
    "attention_dropout": (0, 0.0),
    "pretraining_tp": (1,),
}


def read_model(path: Path, sequence: int, vocabulary: int) -> ModelConfig:
    """The model in a file, for windows of a length, and for text of so many tokens.

    Args:
        path: of the JSON, or of the folder with a config.json.
        sequence: T of the training.
        vocabulary: tokens of the text; our own file may leave the model's out.

    Raises:
        Refusal: no such file, a key that nobody knows, or something that our model does not have.
    """
    found = _read(path / "config.json" if path.is_dir() else path)
    if "model_type" in found:
        config = from_hugging_face(found, sequence)
    else:
        config = _own({"vocabulary": vocabulary, **found, "sequence": sequence}, path)
    if config.vocabulary < vocabulary:
        raise Refusal(
            f"the model in {path} for text of {vocabulary} tokens",
            f"a vocabulary of {config.vocabulary}",
            "every token of the text has a row of the embedding",
        )
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refusal(f"the model in {path}", str(error), "it is a JSON object") from None
    if not isinstance(found, dict):
        raise Refusal(f"the model in {path}", type(found).__name__, "it is a JSON object")
    return found


def _own(given: dict[str, Any], path: Path) -> ModelConfig:
    """From the fields of ModelConfig, `moe` with those of MoEConfig."""
    moe = given.pop("moe", None)
    _refuse_unknown(given, ModelConfig, path)
    if moe is not None:
        _refuse_unknown(moe, MoEConfig, path)
        moe = MoEConfig(**moe)
    return ModelConfig(**given, moe=moe)


def _refuse_unknown(given: dict[str, Any], kind: type, path: Path) -> None:
    types = {each.name: type(each.default) for each in fields(kind)}
    unknown = sorted(given.keys() - types.keys())
    if unknown:
        known = ", ".join(types)
        raise Refusal(f"the model in {path}", f"keys {', '.join(unknown)}", f"known are: {known}")
    for name, value in given.items():
        number = types[name] in (int, float) and type(value) in (int, types[name])
        if not (type(value) is types[name] or number or value is None):
            wanted = types[name].__name__
            raise Refusal(f"the model in {path}", f"{name} = {value!r}", f"{name} is of {wanted}")


def from_hugging_face(found: dict[str, Any], sequence: int) -> ModelConfig:
    """Our shape of a config.json.

    Args:
        found: what is in the file.
        sequence: T of the training.

    Raises:
        Refusal: our model has not all that it asks for; it names every such thing.
    """
    asked = f"a model of the type {found['model_type']}"
    if found["model_type"] not in FAMILIES:
        raise Refusal(asked, "an unknown family", f"known are: {', '.join(FAMILIES)}")
    lacking = list(_lacking(found, sequence))
    if lacking:
        raise Refusal(asked, "; ".join(lacking), "our model has none of this, and would be another")
    try:
        moe = None
        if found["model_type"] == "mixtral":
            weight = float(found.get("router_aux_loss_coef", 0.001))
            moe = MoEConfig(
                found["num_local_experts"], found["num_experts_per_tok"], None, weight, 0
            )
        return ModelConfig(
            layers=found["num_hidden_layers"],
            hidden=found["hidden_size"],
            heads=found["num_attention_heads"],
            kv_heads=found.get("num_key_value_heads") or found["num_attention_heads"],
            ffn=found["intermediate_size"],
            vocabulary=found["vocab_size"],
            sequence=sequence,
            tied=found.get("tie_word_embeddings", False),
            rope_base=float(_rope(found).get("rope_theta", 10_000.0)),
            moe=moe,
            norm_epsilon=float(found.get("rms_norm_eps", 1e-6)),
        )
    except KeyError as error:
        raise Refusal(asked, f"no key {error.args[0]}", "the shape cannot be known") from None


def _rope(found: dict[str, Any]) -> dict[str, Any]:
    """The rotary embedding's options, which newer files have in an object of their own."""
    inner = found.get("rope_parameters") or found.get("rope_scaling") or {}
    return {"rope_theta": found.get("rope_theta", 10_000.0), **inner}


def _lacking(found: dict[str, Any], sequence: int) -> Iterator[str]:
    """All that a file asks for and our model does not have, by name."""
    family = found["model_type"]
    if family in LACKING:
        yield LACKING[family]
    for key, allowed in ONLY.items():
        if key in found and found[key] not in allowed:
            yield f"{key} = {found[key]!r}"
    rope = _rope(found)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        yield f"rope_type = {kind!r}"
    heads, width = found.get("num_attention_heads"), found.get("hidden_size")
    if heads and width and found.get("head_dim") not in (None, width // heads):
        yield f"head_dim = {found['head_dim']}, where {width} / {heads} = {width // heads}"
    longest = found.get("max_position_embeddings")
    if longest is not None and longest < sequence:
        yield f"max_position_embeddings = {longest}, for windows of {sequence} tokens"
