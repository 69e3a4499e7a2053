"""mutant: `sequence` cuts what is outside the regions"""

from course_lib.model import ModelConfig
from course_lib.plan import Layout


def memory_model(config: ModelConfig, layout: Layout, stage: int) -> dict[str, int]:
    """The bytes that a rank holds when it holds most.
"""
    c, tp, item = config, layout.tp, 2 if layout.precision == "bf16" else 4
    first, last, own = stage == 0, stage == layout.pp - 1, c.layers // layout.pp
    keys, networks = c.kv_heads * c.head_width, 3 if c.gated else 2
    wide = 2 * (c.hidden + keys) + networks * c.ffn
    ends = first + last - (c.tied and first and last)
    count = own * (c.hidden * wide // tp + 2 * c.hidden) + last * c.hidden
    count += ends * c.vocabulary * c.hidden // tp
    piece = -(-count // layout.dp)
    each = (2, 4, 12) if item == 2 and layout.zero < 3 else (4, 4, 8)
    held = [piece if layout.zero >= level else count for level in (3, 2, 1)]

    tokens = layout.rows * c.sequence
    outside = tokens * c.hidden
    scores = (2 * item + 1) * tokens * c.heads * c.sequence // tp
    block = (4 * item + 2) * outside + item * tokens * wide // tp + scores
    kept = {"none": block, "selective": block - scores, "full": item * outside}[layout.recompute]
    return {
        "parameters": held[0] * each[0],
        "gradients": held[1] * each[1],
        "optimizer": held[2] * each[2],
        "activations": own * kept * min(layout.micro_batches, layout.pp - stage),
        "head": last * (2 * item * outside + 4 * tokens * c.vocabulary // tp),
    }


def fullest(config: ModelConfig, layout: Layout) -> int:
    """The bytes of the rank that holds most: they decide whether the layout fits.
"""
    return max(sum(memory_model(config, layout, i).values()) for i in range(layout.pp))
