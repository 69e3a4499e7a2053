"""A model and a machine from files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from course_lib.model import ModelConfig, MoEConfig, Transformer, parameter_count
from course_lib.plan.inputs.files import read_config, read_node
from course_lib.plan.inputs.hardware import NODES
from course_lib.plan.inputs.models import model
from course_lib.trace import Refusal

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "rope_theta": 500000.0,
}  # fmt: skip


# Of DeepSeek-V3 (deepseek-ai/DeepSeek-V3, config.json).
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "scoring_func": "sigmoid", "vocab_size": 129280,
    "max_position_embeddings": 163840, "num_nextn_predict_layers": 1, "rope_theta": 10000,
    "tie_word_embeddings": False,
}  # fmt: skip


def written(folder: Path, found: object) -> Path:
    path = folder / "found.json"
    path.write_text(json.dumps(found))
    return path


def test_hugging_faces_llama_is_ours(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, LLAMA)) == model("llama3-8b")


def test_our_own_comes_back(tmp_path: Path) -> None:
    config = ModelConfig(2, 64, 4, 2, 128, 100, 32, moe=MoEConfig(4, 2))
    assert read_config(written(tmp_path, asdict(config))) == config


def test_deepseek_v3_has_its_parameters(tmp_path: Path) -> None:
    """671 billion, 37 of which a token uses (DeepSeek-AI, "DeepSeek-V3", 2024, abstract).

    The weights are 671,026,419,200 without the module for a further token: all but the biases of
    58 routers are counted here.
    """
    config = read_config(written(tmp_path, DEEPSEEK | {"num_nextn_predict_layers": 0}))
    assert parameter_count(config) + 58 * 256 == 671_026_419_200
    assert parameter_count(config, active=True) / 1e9 == pytest.approx(37.5, abs=0.1)
    assert config.moe and config.moe.nodes == 4
    further = read_config(written(tmp_path, DEEPSEEK))
    assert further.layers == 62
    assert read_config(written(tmp_path, asdict(further))) == further
    with pytest.raises(ValueError, match="not built"):
        Transformer(config)


def test_heads_with_a_width_of_their_own(tmp_path: Path) -> None:
    """Qwen3-0.6B: 16 heads of 128 in a model of width 1024; 0.596 billion parameters."""
    qwen3 = {"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024,
             "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
             "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960,
             "tie_word_embeddings": True}  # fmt: skip
    assert parameter_count(read_config(written(tmp_path, qwen3))) == 596_049_920


def test_mixtures_and_gpt2(tmp_path: Path) -> None:
    mixtral = LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2}
    assert read_config(written(tmp_path, mixtral)).moe == MoEConfig(8, 2)
    gpt2 = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257,
            "n_positions": 1024}  # fmt: skip
    assert read_config(written(tmp_path, gpt2)) == model("gpt2-xl")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_lora_rank": 512}, "latent"),
        ({"n_shared_experts": 1}, "every token uses"),
        ({"shared_expert_intermediate_size": 5632}, "every token uses"),
        ({"num_hidden_layers": None}, "no layers"),
        ({"num_hidden_layers": 10_001}, "10,001 layers"),
        ({"head_dim": 255}, "head_dim = 255"),
        ({"layers": 3}, "model_type"),
        ({"hidden_size": "wide"}, "hidden_size 'wide'"),
        ({"vocab_size": True}, "vocab_size True"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers 2.5"),
        ({"num_nextn_predict_layers": 0.5}, "num_nextn_predict_layers 0.5"),
        ({"head_dim": "wide"}, "head_dim 'wide'"),
        ({"num_local_experts": [8]}, "num_local_experts"),
    ],
)
def test_what_cannot_be_planned_is_said(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_config(written(tmp_path, LLAMA | change))


def test_nesting_without_end_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(Refusal, match="a model from"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("part", [{"moe": {"experts": "x"}}, {"latent": {"queries": 1}}])
def test_parts_of_our_own_form(tmp_path: Path, part: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="parts have the fields"):
        read_config(written(tmp_path, {"layers": 2, **part}))


def test_a_machine_is_like_a_known_one_but_for_what_it_says(tmp_path: Path) -> None:
    said = {"like": "H100", "name": "mine", "adapters": 4, "memory": 94, "reached": {"bf16": 600},
            "between": {"alpha": 20, "bandwidth": 23}}  # fmt: skip
    own, base = read_node(written(tmp_path, said)), NODES["H100"]
    assert (own.gpu.name, own.size, own.adapters, own.gpu.memory) == ("mine", 8, 4, 94e9)
    assert (own.between.alpha, own.between.bandwidth) == (pytest.approx(20e-6), 23e9)
    assert own.gpu.reached == {**base.gpu.reached, "bf16": 600e12}
    assert (own.inside, own.gpu.peak) == (base.inside, base.gpu.peak)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"like": "TPU"}, "like TPU"),
        ({"like": ["H100"]}, "like"),
        ({"gpus": 8}, "gpus in"),
        ([8], "found: list"),
        ("mine", "found: str"),
        ({"name": ""}, "name '' in the file\nwhy: it is a name"),
        ({"memory": "lots"}, "memory 'lots' in the file\nwhy: it is a number above 0"),
        ({"memory": -80}, "memory -80"),
        ({"watts": float("nan")}, "watts nan"),
        ({"node": 0}, "node 0"),
        ({"node": 7.5}, "node 7.5 in the file\nwhy: it is a whole number"),
        ({"inside": 5}, "inside 5 in the file\nwhy: it is an object with any of alpha"),
        ({"inside": {"speed": 5}}, "any of alpha, bandwidth, switched, direct"),
        ({"between": {"bandwidth": 0}}, "bandwidth 0 in between"),
        ({"peak": {"bf16": 0}}, "bf16 0 in peak"),
        ({"peak": {"int3": 1}}, "any of fp32"),
    ],
)
def test_what_is_no_machine_is_refused(tmp_path: Path, said: object, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        read_node(written(tmp_path, said))
    with pytest.raises(ValueError, match="No such file"):
        read_node(tmp_path / "none.json")
