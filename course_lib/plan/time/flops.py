"""FLOPs of a step as papers count them: TFLOP/s of two sources differ by what they call a FLOP.

Notebook: 14 Profiling and debugging (mfu), 15 Choosing a strategy (step_time).
Paper: Narayanan et al. (2021), section 5.1 (hardware, with recomputation); Korthikanti et al.
(2022), equation 7 (model); both count attention as if no mask hid half of it.
Costs nothing.
The production version counts the kernels that ran.
"""

from __future__ import annotations

from course_lib.model.config import ModelConfig
from course_lib.model.formulas import block_parameters


def matrices(config: ModelConfig) -> float:
    """Forward FLOPs of a sequence in the blocks' weights."""
    c = config
    per_block = block_parameters(c, active=True) - 2 * c.hidden
    return 2.0 * c.layers * per_block * c.sequence


def attention(config: ModelConfig) -> float:
    """Forward FLOPs of a sequence inside attention, all T×T of them."""
    return 4.0 * config.layers * config.heads * config.score_width * config.sequence**2


def logits(config: ModelConfig) -> float:
    """Forward FLOPs of a sequence in the head."""
    return 2.0 * config.vocabulary * config.hidden * config.sequence


def model(config: ModelConfig) -> float:
    """FLOPs of a sequence, forward and backward: 72·L·s·h²(1 + s/6h + V/12hL) for a GPT."""
    return 3 * (matrices(config) + attention(config) + logits(config))


def hardware(config: ModelConfig, recompute: str) -> float:
    """With what is computed again: 96·L·s·h²(1 + s/6h + V/16hL) for a GPT that keeps nothing."""
    again = {
        "none": 0.0,
        "selective": attention(config),
        "full": matrices(config) + attention(config),
    }
    return model(config) + again[recompute]
