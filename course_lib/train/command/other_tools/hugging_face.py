"""Weights of Llama, Mistral and Mixtral in Hugging Face's names, to begin with and to hand over.

Source: the names in transformers' modeling_llama.py and modeling_mixtral.py; `checkpoint/formats`
knows the file.
Costs reading or writing the model once. Every rank reads all of it before it is cut.
The production version (torchtitan's state-dict adapter) reads on each rank only what it holds.

    python -m course_lib.train.command.other_tools.hugging_face runs/mine out

writes config.json and the weights.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from course_lib.checkpoint import CheckpointError, find_checkpoint, hold_whole, model_pieces
from course_lib.checkpoint.formats.safetensors import export_safetensors, open_safetensors
from course_lib.model import ModelConfig, Transformer
from course_lib.trace import Refusal
from course_lib.train.command.folder import CHECKPOINTS, read_config

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
BLOCK = re.compile(r"blocks\.(\d+)\.(.*)\.weight")
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
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
    "ffn.router": "block_sparse_moe.gate",
}
OF_EXPERT = {"gate": "w1", "up": "w3", "down": "w2"}


def their_name(name: str) -> str:
    """Hugging Face's name of a parameter of ours."""
    if name in ENDS:
        return ENDS[name]
    block = BLOCK.fullmatch(name)
    assert block is not None, name
    expert = EXPERT.fullmatch(block[2])
    inside = (
        f"block_sparse_moe.experts.{expert[1]}.{OF_EXPERT[expert[2]]}"
        if expert
        else INSIDE[block[2]]
    )
    return f"model.layers.{block[1]}.{inside}.weight"


def load_weights(model: Transformer, folder: Path) -> None:
    """Fills a whole model with the weights in a folder; refuses before anything is changed.

    Args:
        model: on one process, not cut yet.
        folder: with model.safetensors, or with an index and its parts.

    Raises:
        CheckpointError: a tensor is missing, or has another shape.
    """
    wanted = {f"model.{name}": f"model.{their_name(name)}" for name, _ in model.named_parameters()}
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
        Refusal: it is of neither family.
    """
    if not config.gated or (config.moe and (config.moe.bias_rate or config.moe.top_k == 1)):
        raise Refusal(
            "a config.json for this model",
            "GELU networks, a router's bias, or one expert a token",
            "Llama and Mixtral have none of these",
        )
    family = "Llama" if config.moe is None else "Mixtral"
    found = {
        "architectures": [f"{family}ForCausalLM"],
        "model_type": family.lower(),
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "intermediate_size": config.ffn,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.sequence,
        "tie_word_embeddings": config.tied,
        "rope_theta": config.rope_base,
        "rms_norm_eps": config.norm_epsilon,
        "hidden_act": "silu",
    }
    if config.moe is not None:
        found |= {
            "num_local_experts": config.moe.experts,
            "num_experts_per_tok": config.moe.top_k,
            "router_aux_loss_coef": config.moe.balance,
        }
    return found


def export(run: Path, out: Path) -> int:
    """Writes the newest checkpoint of a run's folder as config.json and model.safetensors.

    Returns:
        The step that it is of.
    """
    about = their_config(read_config(run).model)
    checkpoint = find_checkpoint(run / CHECKPOINTS)
    out.mkdir(parents=True, exist_ok=True)
    export_safetensors(checkpoint, out / WEIGHTS, rename=their_name)
    (out / "config.json").write_text(json.dumps(about, indent=1))
    return checkpoint.manifest.step


def main(words: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if len(words) != 2:
        print(
            "usage: python -m course_lib.train.command.other_tools.hugging_face RUN OUT",
            file=sys.stderr,
        )
        return 2
    try:
        step = export(Path(words[0]), Path(words[1]))
    except (Refusal, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{words[1]}: the weights after step {step}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
