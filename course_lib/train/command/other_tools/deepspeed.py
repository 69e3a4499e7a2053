"""A DeepSpeed configuration as a run of ours: keys that we implement are taken, others are named.

Source: DeepSpeed's page "DeepSpeed Configuration JSON" (deepspeed.ai/docs/config-json), for the
keys and their defaults.
Costs reading a page of JSON.
The production version is DeepSpeed, whose own parser takes what it does not know without a word.

    train_batch_size                          --batch
    gradient_accumulation_steps               --micro-batches
    train_micro_batch_size_per_gpu            must agree with these two and the ranks of dp × ep
    gradient_clipping                         --max-norm, 0 for no clipping
    zero_optimization.stage                   --zero
    zero_optimization.reduce_bucket_size      --bucket-mib; elements there, of 4 bytes here
    bf16.enabled, fp16.enabled                --precision
    fp16.initial_scale_power                  --scale-power
    fp16.loss_scale_window                    --scale-window
    optimizer.params.lr, betas, weight_decay  --rate, --beta1, --beta2, --decay
    scheduler.params.warmup_num_steps, ...    --warmup, --steps; of WarmupCosineLR, with a linear
                                              warm-up and a cos_min_ratio of 0.1
    activation_checkpointing                  --recompute full, if there is anything in it

A value of "auto" leaves our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from course_lib.trace import Refusal
from course_lib.train.command.config import RunConfig

AUTO = "auto"
# Keys that change how something is done there, and not what comes out of it.
HARMLESS = {
    "steps_per_print", "wall_clock_breakdown", "dump_state", "zero_optimization.overlap_comm",
    "zero_optimization.contiguous_gradients", "zero_optimization.reduce_scatter",
    "zero_optimization.allgather_partitions", "zero_optimization.allgather_bucket_size",
    "zero_optimization.round_robin_gradients", "zero_optimization.sub_group_size",
    "zero_optimization.stage3_prefetch_bucket_size", "optimizer.params.eps",
    "zero_optimization.stage3_max_live_parameters", "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_param_persistence_threshold", "fp16.hysteresis",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save", "fp16.min_loss_scale",
    "zero_allow_untested_optimizer", "scheduler.params.warmup_min_lr", "fp16.loss_scale",
}  # fmt: skip
SIMPLE = {
    "train_batch_size": ("batch", int),
    "gradient_accumulation_steps": ("micro_batches", int),
    "zero_optimization.stage": ("zero", int),
    "fp16.initial_scale_power": ("scale_power", int),
    "fp16.loss_scale_window": ("scale_window", int),
    "optimizer.params.lr": ("rate", float),
    "optimizer.params.weight_decay": ("decay", float),
    "scheduler.params.warmup_max_lr": ("rate", float),
    "scheduler.params.warmup_num_steps": ("warmup", int),
    "scheduler.params.total_num_steps": ("steps", int),
}

# The curve of the learning rate: DeepSpeed's where it says nothing, and the only one of ours.
THEIR_CURVE = {"warmup_type": "log", "cos_min_ratio": 0.0001}
OUR_CURVE = {"type": "WarmupCosineLR", "warmup_type": "linear", "cos_min_ratio": 0.1}


def read_deepspeed(path: Path, config: RunConfig) -> RunConfig:
    """The run with what a DeepSpeed configuration says in place of its own options.

    Args:
        path: of the JSON.
        config: for what the file leaves open, the ranks among it.

    Raises:
        Refusal: no JSON, a value that cannot be, or keys that we do not implement, all of them.
    """
    try:
        found = json.loads(path.read_text())
        given = {key: value for key, value in _flat(found) if value != AUTO}
        unknown = sorted(given.keys() - SIMPLE.keys() - HARMLESS - _TAKEN.keys())
        changes = {name: kind(given[key]) for key, (name, kind) in SIMPLE.items() if key in given}
        for key, take in _TAKEN.items():
            if key in given:
                changes |= take(given[key], given)
    except (OSError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise Refusal(
            f"--deepspeed {path}", str(error), "it is a DeepSpeed configuration"
        ) from None
    if given.get("fp16.loss_scale", 0) and given.get("fp16.enabled"):
        unknown.append("fp16.loss_scale other than 0 (a fixed scale)")
    if unknown:
        why = "the run would be another one than DeepSpeed's: take them out, or set them to auto"
        raise Refusal(f"--deepspeed {path}", f"unknown here: {', '.join(unknown)}", why)
    return _checked(replace(config, **changes), given, path)


def _flat(value: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Keys as `zero_optimization.stage`; an object whose inside we do not name stays whole."""
    for key, inner in value.items():
        name = f"{before}{key}"
        opened = name in ("zero_optimization", "fp16", "bf16", "optimizer", "optimizer.params",
                          "scheduler", "scheduler.params")  # fmt: skip
        if opened:
            yield from _flat(inner, f"{name}.")
        else:
            yield name, inner


def _optimizer(name: Any, _: dict[str, Any]) -> dict[str, Any]:
    if str(name).lower() not in ("adamw", "adam"):
        raise ValueError(f"optimizer.type is {name!r}, and ours is AdamW")
    return {}


def _schedule(name: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Ours is a line up and a cosine down to a tenth; DeepSpeed's defaults are others."""
    has = {"type": name}
    has |= {key: given.get(f"scheduler.params.{key}", there) for key, there in THEIR_CURVE.items()}
    if has != OUR_CURVE:
        raise ValueError(f"the scheduler {has}, and ours is {OUR_CURVE}")
    return {}


def _offload(where: Any, _: dict[str, Any]) -> dict[str, Any]:
    if (where or {}).get("device", "none") != "none":
        raise ValueError(
            "offload: this command keeps everything on the device; "
            "use course_lib/parallel/offload in your own program"
        )
    return {}


def _half(name: str) -> Any:
    return lambda on, _: {"precision": name} if on is True else {}


def _recompute(inside: Any, _: dict[str, Any]) -> dict[str, Any]:
    if inside.get("cpu_checkpointing") or inside.get("partition_activations"):
        raise ValueError("activation_checkpointing on the host, or cut over tp, is not here")
    return {"recompute": "full"} if inside else {}


_TAKEN: dict[str, Any] = {
    "gradient_clipping": lambda norm, _: {"max_norm": float(norm) or inf},
    "zero_optimization.reduce_bucket_size": lambda count, _: {
        "bucket_mib": max(1, round(float(count) * 4 / (1 << 20)))
    },
    "zero_optimization.offload_optimizer": _offload,
    "zero_optimization.offload_param": _offload,
    "bf16.enabled": _half("bf16"),
    "fp16.enabled": _half("fp16"),
    "optimizer.type": _optimizer,
    "optimizer.params.betas": lambda both, _: dict(
        zip(("beta1", "beta2"), map(float, both), strict=True)
    ),
    "scheduler.type": _schedule,
    "scheduler.params.warmup_type": lambda _, __: {},
    "scheduler.params.cos_min_ratio": lambda _, __: {},
    "activation_checkpointing": _recompute,
    "train_micro_batch_size_per_gpu": lambda _, __: {},
}


def _checked(config: RunConfig, given: dict[str, Any], path: Path) -> RunConfig:
    """DeepSpeed's rule: batch = rows in a micro-batch × accumulation × ranks with other rows."""
    rows = given.get("train_micro_batch_size_per_gpu")
    if rows is None:
        return config
    product = int(rows) * config.micro_batches * config.dp * config.ep
    if "train_batch_size" not in given:
        return replace(config, batch=product)
    if product != config.batch:
        raise Refusal(
            f"--deepspeed {path}",
            f"train_batch_size {config.batch}, and {rows} rows × {config.micro_batches} "
            f"micro-batches × {config.dp * config.ep} ranks of dp and ep = {product}",
            "the two say the same batch",
        )
    return config
