"""A language model for one device: no file here knows a word of parallelism."""

from course_lib.model.adamw import AdamW
from course_lib.model.config import ModelConfig, MoEConfig
from course_lib.model.formulas import (
    activation_bytes,
    flops_per_token,
    parameter_count,
)
from course_lib.model.moe import MoE, auxiliary_loss, expert_parameters, update_router_bias
from course_lib.model.transformer import FeedForward, RMSNorm, Transformer, cross_entropy, generate

__all__ = [
    "AdamW",
    "FeedForward",
    "MoE",
    "MoEConfig",
    "ModelConfig",
    "RMSNorm",
    "Transformer",
    "activation_bytes",
    "auxiliary_loss",
    "cross_entropy",
    "expert_parameters",
    "flops_per_token",
    "generate",
    "parameter_count",
    "update_router_bias",
]
