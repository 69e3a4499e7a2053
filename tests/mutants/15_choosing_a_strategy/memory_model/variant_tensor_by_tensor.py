"""variant: a list of tensors, each with what cuts it"""

from math import ceil

from course_lib.model import ModelConfig
from course_lib.plan import Layout


def tensors(c: ModelConfig, layout: Layout, stage: int) -> list[tuple[int, int]]:
    keys = c.kv_heads * c.head_width
    square, narrow, wide = (c.hidden * n for n in (c.hidden, keys, c.ffn))
    block = [(square, layout.tp)] * 2 + [(narrow, layout.tp)] * 2 + [(c.hidden, 1)] * 2
    block += [(wide, layout.tp)] * (3 if c.gated else 2)
    found = block * (c.layers // layout.pp)
    table = (c.vocabulary * c.hidden, layout.tp)
    if stage == 0:
        found.append(table)
    if stage == layout.pp - 1:
        found.append((c.hidden, 1))
        if layout.pp > 1 or not c.tied:
            found.append(table)
    return found


def memory_model(config: ModelConfig, layout: Layout, stage: int) -> dict[str, int]:
    c, tp, value = config, layout.tp, 4 if layout.precision == "fp32" else 2
    whole = sum(size // cut for size, cut in tensors(c, layout, stage))
    cut = ceil(whole / layout.dp)
    if value == 4 or layout.zero == 3:
        weight, gradient, state = 4, 4, 8
    else:
        weight, gradient, state = 2, 4, 12
    tokens = layout.rows * c.sequence
    stream = tokens * c.hidden // (tp if layout.sequence else 1)
    kept = 4 * stream * value + 2 * stream
    kept += tokens * (2 * c.hidden + 2 * c.kv_heads * c.head_width) // tp * value
    kept += tokens * c.ffn // tp * (3 if c.gated else 2) * value
    if layout.recompute == "none":
        kept += tokens * c.sequence * c.heads // tp * (2 * value + 1)
    if layout.recompute == "full":
        kept = stream * value
    head = 2 * stream * value + 4 * tokens * c.vocabulary // tp
    behind = layout.pp - stage
    return {
        "parameters": weight * (cut if layout.zero == 3 else whole),
        "gradients": gradient * (cut if layout.zero > 1 else whole),
        "optimizer": state * (cut if layout.zero else whole),
        "activations": c.layers // layout.pp * kept * min(behind, layout.micro_batches),
        "head": head if behind == 1 else 0,
    }


def fullest(config: ModelConfig, layout: Layout) -> int:
    most = 0
    for stage in range(layout.pp):
        most = max(most, sum(memory_model(config, layout, stage).values()))
    return most
