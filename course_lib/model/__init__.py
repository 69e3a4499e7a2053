"""A language model for one device: no file here knows a word of parallelism."""

from course_lib.model.adamw import AdamW
from course_lib.model.config import ModelConfig
from course_lib.model.formulas import (
    activation_bytes,
    flops_per_token,
    parameter_count,
)
from course_lib.model.transformer import Transformer, cross_entropy, generate

__all__ = [
    "AdamW",
    "ModelConfig",
    "Transformer",
    "activation_bytes",
    "cross_entropy",
    "flops_per_token",
    "generate",
    "parameter_count",
]
