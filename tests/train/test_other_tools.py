"""Files of other tools: a model's config.json and its weights, a DeepSpeed configuration."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.model import ModelConfig, MoEConfig, Transformer
from course_lib.model.config import RopeScaling
from course_lib.trace import Refusal
from course_lib.train import RunConfig, train
from course_lib.train.command.folder import CHECKPOINTS
from course_lib.train.command.other_tools.deepspeed import read_deepspeed
from course_lib.train.command.other_tools.hand_over import export
from course_lib.train.command.other_tools.hugging_face import (
    family_of,
    load_weights,
    their_config,
    their_name,
)
from course_lib.train.command.other_tools.model_file import read_model
from course_lib.train.command.other_tools.print_as import PRINT_AS
from course_lib.train.mesh_checkpoint import whole_model
from course_lib.train.run import main, parse

LLAMA = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 300, "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
           "router_aux_loss_coef": 0.02}  # fmt: skip
LLAMA_3_1 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
             "high_freq_factor": 4.0, "original_max_position_embeddings": 32}  # fmt: skip
LLAMA_LONG = {**LLAMA, "rope_scaling": LLAMA_3_1, "head_dim": 12, "attention_bias": False}
QWEN2 = {**LLAMA, "model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32768,
         "max_window_layers": 2, "tie_word_embeddings": True}  # fmt: skip
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 12, "attention_bias": False,
         "num_key_value_heads": 1}  # fmt: skip
QWEN3_MOE = {**QWEN3, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
             "moe_intermediate_size": 24, "norm_topk_prob": True, "decoder_sparse_step": 1,
             "mlp_only_layers": [], "router_aux_loss_coef": 0.001}  # fmt: skip
TINY = RunConfig(
    layers=2, hidden=16, heads=2, kv_heads=2, ffn=24, sequence=16, batch=8, steps=2, warmup=1,
    corpus_mib=1,
)  # fmt: skip


def written(folder: Path, found: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(found))
    return path


def test_a_model_in_our_own_keys(tmp_path: Path) -> None:
    path = written(tmp_path, {"layers": 3, "hidden": 32, "moe": {"experts": 4}, "gated": False})
    config = read_model(path, 64, 256)
    assert config == ModelConfig(3, 32, moe=MoEConfig(4), gated=False, sequence=64)
    with pytest.raises(Refusal, match="keys depth"):
        read_model(written(tmp_path, {"depth": 3}), 64, 256)
    with pytest.raises(Refusal, match="layers = 'three'"):
        read_model(written(tmp_path, {"layers": "three"}), 64, 256)


def test_a_model_in_hugging_faces_keys(tmp_path: Path) -> None:
    expected = ModelConfig(2, 32, 4, 2, 48, 300, 64, rope_base=500000.0, norm_epsilon=1e-6)
    assert read_model(written(tmp_path, LLAMA), 64, 256) == expected
    moe = MoEConfig(4, 2, balance=0.02, z=0.0)
    assert read_model(written(tmp_path, MIXTRAL).parent, 64, 256) == replace(expected, moe=moe)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ({**LLAMA, "model_type": "qwen2_moe"}, "an expert that every token uses"),
        ({**QWEN3_MOE, "norm_topk_prob": False}, "norm_topk_prob = False"),
        ({**QWEN3_MOE, "mlp_only_layers": [0]}, "mlp_only_layers = "),
        ({**QWEN3, "layer_types": ["sliding_attention"] * 2}, "layer_types = "),
        ({**QWEN3, "layer_types": 2}, "layer_types = 2"),
        ({**QWEN3, "attention_bias": True}, "attention_bias = True"),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": 64}, "sliding_window = 64"),
        ({**LLAMA, "model_type": "deepseek_v3"}, "latent attention"),
        ({**LLAMA, "model_type": "gpt2"}, "learned positions"),
        ({**LLAMA, "model_type": "bert"}, "unknown family"),
        ({**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "no key original_max"),
        ({**LLAMA, "rope_scaling": {**LLAMA_3_1, "factor": 0.5}}, "factor=0.5"),
        ({**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rope_type = 'yarn'"),
        ({**LLAMA, "attention_bias": True, "hidden_act": "gelu"}, "hidden_act = 'gelu'; attention"),
        ({**LLAMA, "head_dim": 7}, "head_dim = 7"),
        ({**MIXTRAL, "sliding_window": 4096}, "sliding_window = 4096"),
        ({**LLAMA, "max_position_embeddings": 8}, "windows of 64"),
        ({**LLAMA, "vocab_size": 100}, "a vocabulary of 100"),
        ({**LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 512}, "kv_lora_rank = 512"),
        ({**LLAMA, "quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({**LLAMA, "num_hidden_layers": "2"}, "num_hidden_layers = '2'"),
        ({**LLAMA, "num_hidden_layers": None}, "no key num_hidden_layers"),
        ({**LLAMA, "num_attention_heads": 0}, "heads = 0"),
        ({**LLAMA, "num_key_value_heads": -2}, "kv_heads = -2"),
        ({**LLAMA, "rms_norm_eps": float("nan")}, "norm_epsilon = nan"),
        ({**LLAMA, "rope_theta": 0}, "rope_base = 0"),
        ({**LLAMA, "rope_scaling": "linear"}, "rope_scaling = 'linear'"),
        ({**LLAMA, "max_position_embeddings": "64"}, "max_position_embeddings = '64'"),
        ({**LLAMA, "tie_word_embeddings": "yes"}, "it is true or false"),
        ({**MIXTRAL, "num_local_experts": "4"}, "num_local_experts = '4'"),
        ({"heads": 0}, "heads = 0"),
        ({"layers": None}, "layers = None"),
        ({"ffn": -4}, "ffn = -4"),
        ({"moe": [4]}, "moe = "),
        ({"moe": {"experts": 4, "top_k": None}}, "top_k = None"),
        ({"model_type": "llama"}, "no key num_hidden_layers"),
        ([1], "a JSON object"),
    ],
    ids=str,
)
def test_what_our_model_has_not_is_named(tmp_path: Path, found: Any, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        read_model(written(tmp_path, found), 64, 256)


def test_a_key_left_out_means_what_it_means_in_its_family(tmp_path: Path) -> None:
    short = {
        key: value
        for key, value in {**MIXTRAL, "num_attention_heads": 8}.items()
        if key not in ("num_key_value_heads", "rms_norm_eps", "rope_theta")
    }
    mixtral = read_model(written(tmp_path, short), 64, 256)
    assert (mixtral.kv_heads, mixtral.norm_epsilon, mixtral.rope_base) == (8, 1e-5, 1e6)
    unused = {**LLAMA, "use_sliding_window": False, "sliding_window": 4096, "rope_scaling": None}
    assert read_model(written(tmp_path, unused), 64, 256).layers == 2


def test_what_qwen_and_the_newer_llamas_have_besides(tmp_path: Path) -> None:
    def read(found: Any) -> ModelConfig:
        return read_model(written(tmp_path, found), 64, 256)

    llama = read(LLAMA)
    scaling = RopeScaling(32, 8.0, 1.0, 4.0)
    assert read({**LLAMA, "rope_scaling": LLAMA_3_1}) == replace(llama, rope_scaling=scaling)
    assert read(QWEN2) == replace(llama, qkv_bias=True, tied=True)
    qwen3 = replace(llama, qk_norm=True, head_dim=12, kv_heads=1)
    assert read(QWEN3) == qwen3
    moe = MoEConfig(4, 2, balance=0.001, z=0.0)
    assert read(QWEN3_MOE) == replace(qwen3, moe=moe, ffn=24)


@pytest.mark.parametrize("found", [QWEN2, QWEN3, QWEN3_MOE], ids=lambda found: found["model_type"])
def test_biases_and_norms_of_heads_on_a_mesh(ranks: Any, tmp_path: Path, found: Any) -> None:
    """Steps of a mesh are those of one process, also after going on with another mesh."""
    one = RunConfig(model_file=str(written(tmp_path, found)), weights="fp64", steps=3, batch=8,
                    sequence=16, corpus_mib=1)  # fmt: skip
    right = [row["loss"] for row in ranks(on, 1, one)[0]]
    folder = str(tmp_path / "run")
    first = replace(one, pp=2, tp=2, folder=folder, save_every=2, steps=2)
    cut = ranks(on, 4, first)[0]
    ep = {"ep": 2, "dp": 1, "zero": 1} if "num_experts" in found else {"dp": 2, "zero": 3}
    cut += ranks(on, 4, replace(first, pp=1, steps=3, resume=True, **ep))[0]
    assert [row["loss"] for row in cut] == pytest.approx(right, abs=1e-9)
    if "num_experts" not in found:
        rows = ranks(on, 2, replace(one, tp=2, sequence_parallel=True))[0]
        assert [row["loss"] for row in rows] == pytest.approx(right, abs=1e-9)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    with pytest.raises(Refusal, match="JSON object"):
        read_model(deep, 64, 256)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(Refusal, match="a pipe"):
        read_model(tmp_path / "pipe.json", 64, 256)
    for path in (tmp_path / "none.json", tmp_path, Path("x" * 300)):
        with pytest.raises(Refusal, match="--model takes a file of JSON"):
            read_model(path, 64, 256)


def on(group: Group, config: RunConfig) -> list[dict[str, float]]:
    return train(config, group)


@pytest.mark.parametrize("experts", [0, 4])
def test_weights_go_out_and_come_in(ranks: Any, tmp_path: Path, experts: int) -> None:
    """Trained on a mesh, handed over, and begun with: the first loss is that of the weights."""
    run, out = tmp_path / "run", tmp_path / "out"
    config = replace(TINY, experts=experts, dp=2, tp=2, folder=str(run), save_every=2)
    ranks(on, 4, config)
    assert export(run, out) == 2
    shape = read_model(out, 16, 256)
    assert shape.layers == 2 and (shape.moe is None) == (experts == 0)
    model = Transformer(shape, seed=5)
    load_weights(model, out)
    again = replace(RunConfig(), model_file=str(out), weights_from=str(out), sequence=16, batch=8,
                    steps=1, corpus_mib=1)  # fmt: skip
    first = ranks(on, 1, again)[0][0]["loss"]
    fresh = ranks(on, 1, replace(again, weights_from=""))[0][0]["loss"]
    assert first < fresh - 0.01, "it begins with what was learned"
    other = Transformer(replace(shape, layers=3))
    with pytest.raises(Refusal, match="9 tensors are not there" if not experts else "not there"):
        load_weights(other, out)


@pytest.mark.parametrize("found", [LLAMA, LLAMA_LONG, MIXTRAL, QWEN2, QWEN3, QWEN3_MOE], ids=str)
def test_the_same_logits_as_transformers(ranks: Any, tmp_path: Path, found: dict[str, Any]) -> None:
    """Their class computes what ours does: from their weights, and from what we hand over."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**{"attn_implementation": "eager", **found})
    ).eval()
    for parameter in theirs.parameters():  # biases that are not zero, norms that are not one
        parameter.data.add_(torch.randn_like(parameter), alpha=0.05)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = Transformer(read_model(tmp_path / "theirs", 64, 256))
    load_weights(ours, tmp_path / "theirs")
    tokens = torch.randint(0, 300, (2, 60))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-5)
    run = RunConfig(model_file=str(tmp_path / "theirs"), sequence=64, steps=1, save_every=1,
                    batch=2, corpus_mib=1, folder=str(tmp_path / "run"))  # fmt: skip
    ranks(on, 1, run)
    export(tmp_path / "run", tmp_path / "out")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    trained = whole_model(tmp_path / "run" / CHECKPOINTS, run.model)
    with torch.no_grad():
        torch.testing.assert_close(trained(tokens), back(tokens).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("found", [MIXTRAL, QWEN2, QWEN3_MOE], ids=str)
def test_names_are_one_to_one(tmp_path: Path, found: dict[str, Any]) -> None:
    config = read_model(written(tmp_path, found), 64, 256)
    family = family_of(config)
    assert family == found["model_type"]
    names = [their_name(name, family) for name, _ in Transformer(config).named_parameters()]
    assert len(set(names)) == len(names)
    assert read_model(written(tmp_path, their_config(config)), 64, 256) == replace(
        config, head_dim=config.head_width
    )


# --- DeepSpeed -----------------------------------------------------------------------------------
REAL = {
    "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5, "steps_per_print": 100,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7, "overlap_comm": True,
                          "contiguous_gradients": True, "allgather_bucket_size": 2e8,
                          "offload_optimizer": {"device": "none"}},
    "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 12,
             "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1},
    "bf16": {"enabled": False},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.98], "eps": 1e-8,
                                              "weight_decay": 0.01}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear",
                                                       "cos_min_ratio": 0.1,
                                                       "warmup_num_steps": 10,
                                                       "total_num_steps": 90}},
    "activation_checkpointing": {"partition_activations": False},
}  # fmt: skip


def test_a_real_deepspeed_configuration(tmp_path: Path) -> None:
    config = read_deepspeed(written(tmp_path, REAL), RunConfig(dp=2))
    assert config == RunConfig(
        dp=2, batch=32, micro_batches=4, max_norm=0.5, zero=2, bucket_mib=191, precision="fp16",
        scale_power=12, scale_window=500, rate=1e-3, beta1=0.9, beta2=0.98, decay=0.01, warmup=10,
        steps=90, recompute="full",
    )  # fmt: skip
    path = written(tmp_path, {"train_batch_size": "auto", "zero_optimization": {"stage": "auto"}})
    assert read_deepspeed(path, RunConfig(zero=1)) == RunConfig(zero=1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sparse_attention": {}, "zero_optimization": {"zero_hpz_partition_size": 8}},
         r"sparse_attention, zero_optimization\.zero_hpz_partition_size"),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}, "offload"),
        ({"optimizer": {"type": "Lamb"}}, "Lamb"),
        ({"fp16": {"enabled": True, "loss_scale": 128}}, "a fixed scale"),
        ({"train_batch_size": 30}, "4 rows × 4"),
        ({"scheduler": {"type": "WarmupDecayLR"}}, "WarmupDecayLR.*ours is.*WarmupCosineLR"),
        ({"scheduler": {"type": "WarmupCosineLR"}}, "0.0001.*ours is.*0.1"),
        ({"zero_optimization": {"stage": "two"}}, "two"),
        ({"zero_optimization": 3}, "DeepSpeed configuration"),
    ],
    ids=str,
)  # fmt: skip
def test_deepspeeds_keys_that_are_not_here_are_named(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(Refusal, match=named):
        read_deepspeed(written(tmp_path, {**REAL, **change}), RunConfig(dp=2))


def test_deepspeed_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, REAL))
    assert parse(["--dp", "2", "--deepspeed", path])[0].zero == 2
    assert main(["--check", "--dp", "2", "--deepspeed", path]) == 0
    assert "--zero 2" in capsys.readouterr().out
    path = str(written(tmp_path, {"nonsense": 1}))
    assert main(["--check", "--deepspeed", path]) == 2
    assert "nonsense" in capsys.readouterr().err


# --- what a run would be there -------------------------------------------------------------------
def test_what_deepspeed_is_told_comes_back(tmp_path: Path) -> None:
    config = RunConfig(dp=2, zero=2, micro_batches=4, batch=32, precision="bf16", bucket_mib=8,
                       recompute="full", max_norm=float("inf"))  # fmt: skip
    text = PRINT_AS["deepspeed"](config)
    (tmp_path / "ds.json").write_text(text)
    assert read_deepspeed(tmp_path / "ds.json", RunConfig(dp=2)) == config


def test_megatron_and_torchtitan(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--pp 2 --tp 2 --dp 2 --zero 1 --micro-batches 4 --sequence-parallel --precision bf16"
    assert main([*shlex.split(words), "--print-as", "megatron"]) == 0
    line = capsys.readouterr().out
    for part in ("--pipeline-model-parallel-size 2", "--tensor-model-parallel-size 2",
                 "--micro-batch-size 4", "--global-batch-size 32", "--sequence-parallel",
                 "--use-distributed-optimizer", "--bf16", "--nproc-per-node 8"):  # fmt: skip
        assert part in line
    assert main([*shlex.split(words), "--print-as", "torchtitan"]) == 0
    line = capsys.readouterr().out
    assert "--parallelism.pipeline_parallel_degree 2" in line and "# no ZeRO-1" in line
    assert "--training.mixed_precision_param bfloat16" in line
    assert main(["--precision", "fp8", "--print-as", "torchtitan"]) == 0
    assert "# no --precision fp8" in capsys.readouterr().out
    assert main(["--tp", "8", "--print-as", "megatron"]) == 2, "what cannot be is no line"
