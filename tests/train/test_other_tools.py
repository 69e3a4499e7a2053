"""Files of other tools: a model's config.json and its weights, a DeepSpeed configuration."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.model import ModelConfig, MoEConfig, Transformer
from course_lib.trace import Refusal
from course_lib.train import RunConfig, train
from course_lib.train.command.other_tools.deepspeed import read_deepspeed
from course_lib.train.command.other_tools.hugging_face import (
    export,
    load_weights,
    their_config,
    their_name,
)
from course_lib.train.command.other_tools.model_file import read_model
from course_lib.train.command.other_tools.print_as import PRINT_AS
from course_lib.train.run import main, parse

LLAMA = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 300, "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
           "router_aux_loss_coef": 0.02}  # fmt: skip
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
        ({**LLAMA, "model_type": "qwen2"}, "biases of queries"),
        ({**LLAMA, "model_type": "qwen3"}, "norms of queries"),
        ({**LLAMA, "model_type": "deepseek_v3"}, "latent attention"),
        ({**LLAMA, "model_type": "gpt2"}, "learned positions"),
        ({**LLAMA, "model_type": "bert"}, "unknown family"),
        ({**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_type = 'llama3'"),
        ({**LLAMA, "attention_bias": True, "hidden_act": "gelu"}, "hidden_act = 'gelu'; attention"),
        ({**LLAMA, "head_dim": 16}, "head_dim = 16"),
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


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    with pytest.raises(Refusal, match="JSON object"):
        read_model(deep, 64, 256)
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


@pytest.mark.parametrize("moe", [None, MoEConfig(4, 2)], ids=["llama", "mixtral"])
def test_the_same_logits_as_transformers(tmp_path: Path, moe: MoEConfig | None) -> None:
    """Their class, with our weights under their names, computes what ours computes."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = ModelConfig(2, 32, 4, 2, 48, 300, 64, moe=moe, norm_epsilon=1e-6)
    torch.manual_seed(0)
    kind = transformers.LlamaForCausalLM if moe is None else transformers.MixtralForCausalLM
    shape = transformers.AutoConfig.for_model(**their_config(config))
    theirs = kind(shape).eval()
    theirs.save_pretrained(tmp_path)
    assert replace(read_model(tmp_path, 64, 256), moe=moe) == config
    ours = Transformer(config)
    load_weights(ours, tmp_path)
    tokens = torch.randint(0, 300, (2, 17))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-5)


def test_names_are_one_to_one() -> None:
    model = Transformer(ModelConfig(2, 32, 4, 2, 48, moe=MoEConfig(3)))
    names = [their_name(name) for name, _ in model.named_parameters()]
    assert len(set(names)) == len(names)


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
    assert main(["--tp", "8", "--print-as", "megatron"]) == 2, "what cannot be is no line"
