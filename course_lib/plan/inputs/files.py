"""A model and a machine of one's own, from files: config.json and a node's numbers.

Notebook: 15 Choosing a strategy; `course plan --config model.json --hardware machine.json`.
Source: the keys of Hugging Face's transformers for LLaMA, Mistral, Mixtral, Qwen and GPT-2.
Costs nothing.
The production version instantiates the model without data and counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any

from course_lib.layout import PRECISIONS
from course_lib.model.config import LatentAttention, ModelConfig, MoEConfig, RopeScaling
from course_lib.plan.inputs.hardware import GB, NODES, TERA, Gpu, Link, Node
from course_lib.trace import Refusal

# Ours, and what others call it; the first that is there counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "ffn": ("moe_intermediate_size", "intermediate_size", "n_inner"),
    "vocabulary": ("vocab_size",),
    "sequence": ("max_position_embeddings", "n_positions"),
    "tied": ("tie_word_embeddings",),
    "rope_base": ("rope_theta",),
}
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
UNKNOWN = {
    "shared_expert_intermediate_size": "an expert that every token uses",
    "encoder_layers": "an encoder",
}
MORE = ("head_dim", "num_nextn_predict_layers", "num_experts_per_tok", "n_shared_experts",
        "first_k_dense_replace", "n_group", "topk_group")  # fmt: skip
SIZES = {*NAMES, *EXPERTS, *LATENT, *MORE, *(name for names in NAMES.values() for name in names)}
SIZES -= {"tied", "tie_word_embeddings"}
FRACTIONS = ("rope_base", *NAMES["rope_base"])  # of the sizes, those that may be none
DEEPEST = 10_000  # layers
HARDWARE = ("like", "name", "node", "adapters", "memory", "bandwidth", "watts", "peak", "reached",
            "inside", "between")  # fmt: skip
LINK = tuple(field.name for field in fields(Link))


def _load(path: Path, kind: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(
            f"{kind} from {path}", str(error), "it is a file with a JSON object"
        ) from None
    if not isinstance(found, dict):
        raise Refusal(f"{kind} from {path}", type(found).__name__, "the file has a JSON object")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < inf


# --- models --------------------------------------------------------------------------------------
def read_config(path: Path) -> ModelConfig:
    """A model's shape: the fields of our `ModelConfig`, or Hugging Face's.

    Args:
        path: of the config.json.

    Raises:
        Refusal: no such file, a field is missing, or the model has parts that are not known here.
    """
    found = _load(path, "a model")
    for key, what in UNKNOWN.items():
        if found.get(key):
            raise Refusal(
                f"the model of {path}",
                f"{key} {found[key]}: {what}",
                "memory and time are known of dense models and of mixtures of equal experts",
            )
    wrong = [
        f"{key} {found[key]!r}"
        for key in found
        if key in SIZES
        and found[key] is not None
        and not (_is_number(found[key]) and (key in FRACTIONS or type(found[key]) is int))
    ]
    if wrong:
        raise Refusal(f"the model of {path}", ", ".join(wrong), "sizes are whole numbers")
    try:
        config = _ours(found, path) if "layers" in found else _theirs(found, path)
    except (TypeError, LookupError) as error:
        why = "parts have the fields of our `ModelConfig`, or Hugging Face's, with numbers"
        raise Refusal(f"the model of {path}", f"{type(error).__name__}: {error}", why) from None
    if config.layers > DEEPEST:
        why = f"blocks are laid on stages one by one; {DEEPEST:,} are more than any model has"
        raise Refusal(f"the model of {path}", f"{config.layers:,} layers", why)
    return config


def _ours(found: dict[str, Any], path: Path) -> ModelConfig:
    known = {field.name for field in fields(ModelConfig)}
    if extra := sorted(set(found) - known):
        raise Refusal(
            f"the model of {path}", ", ".join(extra), f"it has {', '.join(sorted(known))}"
        )
    moe, latent, scaling = (found.get(name) for name in ("moe", "latent", "rope_scaling"))
    parts = {
        "moe": MoEConfig(**moe) if moe else None,
        "latent": LatentAttention(**latent) if latent else None,
        "rope_scaling": RopeScaling(**scaling) if scaling else None,
    }
    return ModelConfig(**(found | parts))


def _theirs(found: dict[str, Any], path: Path) -> ModelConfig:
    values: dict[str, Any] = {}
    for ours, names in NAMES.items():
        value = next((found[name] for name in names if found.get(name) is not None), None)
        if value is not None:
            values[ours] = value
    gpt2 = found.get("model_type") == "gpt2"
    values |= {"gated": not gpt2} | ({"tied": True} if gpt2 else {})
    if missing := [n for n in ("layers", "hidden", "heads", "vocabulary") if n not in values]:
        why = f"they are called {', '.join(NAMES[n][0] for n in missing)} there"
        raise Refusal(f"the model of {path}", f"no {', '.join(missing)}", why)
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("ffn", 4 * values["hidden"])
    values["latent"] = _latent(found, path)
    if not values["latent"]:
        values["head_dim"] = found.get("head_dim") or 0
        values["qkv_bias"] = found.get("model_type") in ("qwen2", "qwen2_moe")
        values["qk_norm"] = found.get("model_type") in ("qwen3", "qwen3_moe")
    values["moe"] = _experts(found, path)
    # A module that predicts a further token (MTP) is a block, and shares embedding and head.
    values["layers"] += found.get("num_nextn_predict_layers") or 0
    return ModelConfig(**values)


def _latent(found: dict[str, Any], path: Path) -> LatentAttention | None:
    if not found.get("kv_lora_rank"):
        return None
    if missing := [name for name in LATENT if not found.get(name)]:
        raise Refusal(
            f"the model of {path}",
            f"kv_lora_rank without {', '.join(missing)}",
            "attention through latent vectors has a width for each of them",
        )
    return LatentAttention(*(found[name] for name in LATENT))


def _experts(found: dict[str, Any], path: Path) -> MoEConfig | None:
    """A mixture as Mixtral's, Qwen's or DeepSeek's; what kind of scores its router has is free."""
    experts = next((found[name] for name in EXPERTS if found.get(name)), 0)
    shared = found.get("n_shared_experts") or 0
    if not experts and shared:
        raise Refusal(
            f"the model of {path}",
            f"n_shared_experts {shared}",
            "experts that every token uses are beside others, of which it names no number",
        )
    if not experts:
        return None
    dense, groups = found.get("first_k_dense_replace") or 0, found.get("n_group") or 1
    return MoEConfig(
        experts=experts,
        top_k=found.get("num_experts_per_tok", 2),
        shared=shared,
        dense=dense,
        dense_ffn=found["intermediate_size"] if dense else 0,
        nodes=found["topk_group"] if groups > 1 else 0,
    )


# --- machines ------------------------------------------------------------------------------------
def read_node(path: Path) -> Node:
    """A machine: a known one, and what is different.

    The file says `like`, a GPU of the table, and any of `name`; `node` and `adapters`, numbers;
    `memory` in GB and `bandwidth` in TB/s; `watts`; `peak` and `reached`, TFLOP/s by precision; and
    `inside` and `between`: `alpha` in microseconds, `bandwidth`, `switched`, `direct` in GB/s.

    Args:
        path: of the file.

    Raises:
        Refusal: no such file or key, or the machine that it is like is not known.
    """
    found = _load(path, "a machine")
    like = str(found.get("like", "H100"))
    if like not in NODES or (extra := sorted(set(found) - set(HARDWARE))):
        asked = f"like {like}" if like not in NODES else ", ".join(extra)
        known = ", ".join(NODES) if like not in NODES else ", ".join(HARDWARE)
        raise Refusal(f"{asked} in {path}", f"there are {known}", "a machine is like a known one")
    _check_numbers(found, path, "the file")
    base = NODES[like]
    size = int(found.get("node", base.size))
    return Node(
        gpu=_gpu(base.gpu, found),
        size=size,
        adapters=min(size, int(found.get("adapters", size))),
        inside=_link(base.inside, found.get("inside", {})),
        between=_link(base.between, found.get("between", {})),
    )


def _check_numbers(found: Mapping[str, Any], path: Path, where: str) -> None:
    """Refuses what is no number above 0, and no object where several numbers belong.

    A link may lack a switch that adds up, or wires, or the time of a message: these may be 0.
    """
    parts = {"inside": LINK, "between": LINK, "peak": PRECISIONS, "reached": PRECISIONS}
    for key, value in found.items():
        if key in ("like", "name"):
            right, what = isinstance(value, str) and bool(value.strip()), "a name"
        elif key in parts:
            right = isinstance(value, dict) and set(value) <= set(parts[key])
            what = f"an object with any of {', '.join(parts[key])}"
        else:
            zero = key in LINK and key != "bandwidth"
            right, what = _is_number(value) and (zero or value > 0), "a number above 0"
            if key in ("node", "adapters"):
                right, what = right and value == int(value), "a whole number above 0"
        if not right:
            raise Refusal(f"the machine of {path}", f"{key} {value!r} in {where}", f"it is {what}")
        if key in parts:
            _check_numbers(value, path, key)


def _gpu(base: Gpu, found: dict[str, Any]) -> Gpu:
    def rates(kind: str) -> Mapping[str, float]:
        return dict(getattr(base, kind)) | {p: r * TERA for p, r in found.get(kind, {}).items()}

    return replace(
        base,
        name=found.get("name", f"{base.name}*"),
        memory=found["memory"] * GB if "memory" in found else base.memory,
        bandwidth=found["bandwidth"] * TERA if "bandwidth" in found else base.bandwidth,
        watts=found.get("watts", base.watts),
        peak=rates("peak"),
        reached=rates("reached"),
    )


def _link(base: Link, found: dict[str, float]) -> Link:
    alpha = found["alpha"] * 1e-6 if "alpha" in found else base.alpha
    rest = {key: value * GB for key, value in found.items() if key != "alpha"}
    return replace(base, alpha=alpha, **rest)
