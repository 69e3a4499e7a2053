"""What a run would be called elsewhere: as options of Megatron-LM, torchtitan or DeepSpeed.

Source: NVIDIA/Megatron-LM, megatron/training/arguments.py; pytorch/torchtitan,
torchtitan/config/job_config.py; deepspeed.ai/docs/config-json. Options move: these are those of
Megatron-core 0.12, torchtitan in mid 2025 and DeepSpeed 0.17.
Costs nothing.

What the other tool does not have, or calls by no option, is said in a line of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isinf

from course_lib.train.command.config import RunConfig
from course_lib.train.command.other_tools.deepspeed import OUR_CURVE, THEIR_CURVE

Words = list[tuple[str, object]]
TITAN_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
TITAN_SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}


def as_megatron(c: RunConfig) -> str:
    """Megatron-LM's command line."""
    rows = max(1, c.batch // (c.dp * c.ep * c.micro_batches))
    words: Words = [
        ("--pipeline-model-parallel-size", c.pp),
        ("--tensor-model-parallel-size", c.tp),
        ("--context-parallel-size", c.cp),
        ("--micro-batch-size", rows),
        ("--global-batch-size", c.batch),
        ("--num-layers", c.model.layers),
        ("--hidden-size", c.model.hidden),
        ("--ffn-hidden-size", c.model.ffn),
        ("--num-attention-heads", c.model.heads),
        ("--group-query-attention", None),
        ("--num-query-groups", c.model.kv_heads),
        ("--seq-length", c.sequence),
        ("--max-position-embeddings", c.sequence),
        ("--normalization", "RMSNorm"),
        ("--swiglu", None),
        ("--disable-bias-linear", None),
        ("--position-embedding-type", "rope"),
        ("--train-iters", c.steps),
        ("--lr", c.rate),
        ("--min-lr", c.rate / 10),
        ("--lr-decay-style", "cosine"),
        ("--lr-warmup-iters", c.warmup),
        ("--clip-grad", 0 if isinf(c.max_norm) else c.max_norm),
        ("--weight-decay", c.decay),
        ("--adam-beta1", c.beta1),
        ("--adam-beta2", c.beta2),
        ("--seed", c.seed),
    ]
    words += [("--untie-embeddings-and-output-weights", None)] if not c.model.tied else []
    words += _megatron_attention(c)
    words += [("--sequence-parallel", None)] if c.sequence_parallel else []
    words += [("--use-distributed-optimizer", None)] if c.zero == 1 else []
    words += [(f"--{c.precision}", None)] if c.precision in ("bf16", "fp16") else []
    words += [("--bf16", None), ("--fp8-format", "hybrid")] if c.precision == "fp8" else []
    words += _megatron_recompute(c)
    if c.model.moe is not None:
        words += [
            ("--num-experts", c.model.moe.experts),
            ("--moe-router-topk", c.model.moe.top_k),
            ("--expert-model-parallel-size", c.ep),
        ]
    if c.schedule == "interleaved":
        words += [("--num-virtual-stages-per-pipeline-rank", c.chunks)]
    if c.save_every:
        words += [("--save", c.folder), ("--save-interval", c.save_every)]
    words += [("--load", c.folder)] if c.resume else []
    line = " ".join(name if value is None else f"{name} {value}" for name, value in words)
    launch = f"torchrun --nproc-per-node {c.world} pretrain_gpt.py"
    other = _without(c, schedules=("1f1b", "interleaved"), zeros=(0, 1))
    return "\n".join([f"{launch} {line}", *other])


def _megatron_attention(c: RunConfig) -> Words:
    """What only some models have, and what a token sees."""
    model = c.model
    words: Words = [("--rotary-base", f"{model.rope_base:g}")]
    words += [("--kv-channels", model.head_dim)] if model.head_dim else []
    words += [("--add-qkv-bias", None)] if model.qkv_bias else []
    words += [("--qk-layernorm", None)] if model.qk_norm else []
    words += [("--use-rope-scaling", None)] if model.rope_scaling else []
    return words + ([("--reset-attention-mask", None)] if c.mask_documents else [])


def _megatron_recompute(c: RunConfig) -> Words:
    if c.recompute == "full":
        full: Words = [("--recompute-granularity", "full"), ("--recompute-method", "uniform")]
        return [*full, ("--recompute-num-layers", 1)]
    return [("--recompute-granularity", "selective")] if c.recompute == "selective" else []


def as_torchtitan(c: RunConfig) -> str:
    """Torchtitan's command line."""
    sharded = c.dp * c.ep if c.zero == 3 or c.ep > 1 else 1
    words: Words = [
        ("parallelism.pipeline_parallel_degree", c.pp),
        ("parallelism.tensor_parallel_degree", c.tp),
        ("parallelism.context_parallel_degree", c.cp),
        ("parallelism.expert_parallel_degree", c.ep),
        ("parallelism.data_parallel_shard_degree", sharded),
        ("parallelism.data_parallel_replicate_degree", c.dp * c.ep // sharded),
        ("training.local_batch_size", c.batch // (c.dp * c.ep)),
        ("training.global_batch_size", c.batch),
        ("training.seq_len", c.sequence),
        ("training.steps", c.steps),
        ("training.max_norm", c.max_norm),
        ("training.mixed_precision_param", TITAN_DTYPES.get(c.precision, "bfloat16")),
        ("optimizer.lr", c.rate),
        ("optimizer.weight_decay", c.decay),
        ("lr_scheduler.warmup_steps", c.warmup),
        ("lr_scheduler.decay_type", "cosine"),
        ("lr_scheduler.lr_min", 0.1),
        ("activation_checkpoint.mode", c.recompute),
        ("training.seed", c.seed),
    ]
    if c.pp > 1:
        schedule = TITAN_SCHEDULES.get(c.schedule, "1F1B")
        words += [("parallelism.pipeline_parallel_schedule", schedule)]
    if c.save_every:
        words += [("checkpoint.interval", c.save_every), ("job.dump_folder", c.folder)]
    line = " ".join(f"--{name} {value}" for name, value in words)
    known = (*TITAN_SCHEDULES,)
    said = _without(c, schedules=known, zeros=(0, 3))
    if c.precision not in TITAN_DTYPES:
        said.append(f"# no --precision {c.precision} by these options there")
    said.append("# the model's shape is a flavor of torchtitan's, in code: there are no options")
    return "\n".join([f"torchrun --nproc-per-node {c.world} -m torchtitan.train {line}", *said])


def as_deepspeed(c: RunConfig) -> str:
    """DeepSpeed's configuration."""
    rows = max(1, c.batch // (c.dp * c.ep * c.micro_batches))
    found: dict[str, object] = {
        "train_batch_size": c.batch,
        "train_micro_batch_size_per_gpu": rows,
        "gradient_accumulation_steps": c.micro_batches,
        "gradient_clipping": 0.0 if isinf(c.max_norm) else c.max_norm,
        "zero_optimization": {
            "stage": c.zero,
            "reduce_bucket_size": (c.bucket_mib << 20) // 4,
        },
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": c.rate, "betas": [c.beta1, c.beta2], "weight_decay": c.decay},
        },
        "scheduler": {
            "type": OUR_CURVE["type"],
            "params": {
                "warmup_num_steps": c.warmup,
                "total_num_steps": c.steps,
                **{key: OUR_CURVE[key] for key in THEIR_CURVE},
            },
        },
    }
    if c.precision == "bf16":
        found["bf16"] = {"enabled": True}
    if c.precision == "fp16":
        found["fp16"] = {
            "enabled": True,
            "initial_scale_power": c.scale_power,
            "loss_scale_window": c.scale_window,
        }
    if c.recompute == "full":
        found["activation_checkpointing"] = {"partition_activations": False}
    axes = [f"{axis} {size}" for axis, size in c.degrees.items() if size > 1 and axis != "dp"]
    said = [f"# not in this file, but in the program: {', '.join(axes)}"] if axes else []
    said += ["# DeepSpeed has no FP8 of its own"] if c.precision == "fp8" else []
    return "\n".join([json.dumps(found, indent=2), *said])


def _without(c: RunConfig, schedules: tuple[str, ...], zeros: tuple[int, ...]) -> list[str]:
    """What a tool has not."""
    said = []
    if c.pp > 1 and c.schedule not in schedules:
        said.append(f"# no --schedule {c.schedule} there")
    if c.zero not in zeros:
        said.append(f"# no ZeRO-{c.zero} by these options there")
    if c.weights == "fp64":
        said.append("# no weights in fp64 there")
    return said


PRINT_AS: dict[str, Callable[[RunConfig], str]] = {
    "megatron": as_megatron,
    "torchtitan": as_torchtitan,
    "deepspeed": as_deepspeed,
}
