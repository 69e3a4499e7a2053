"""Wrong and right answers to `memory_model`: see `course dev show memory_model`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_micro_batches", ["1F1B holds pp - stage micro-batches", "not all"], '''
-        "activations": own * kept * min(layout.micro_batches, layout.pp - stage),
+        "activations": own * kept * layout.micro_batches,
'''),
    Wrong("as_many_key_heads", ["keys and values have `kv_heads` heads"], '''
-    keys, networks = c.kv_heads * c.head_width, 3 if c.gated else 2
+    keys, networks = c.hidden, 3 if c.gated else 2
'''),
    Wrong("ends_on_every_stage", ["embedding and output layer are not on every stage"], '''
-    ends = first + last - (c.tied and first and last)
+    ends = 2 - c.tied
'''),
    Wrong("first_stage_is_fullest", ["the first stage is not always the fullest"], '''
-    return max(sum(memory_model(config, layout, i).values()) for i in range(layout.pp))
+    return sum(memory_model(config, layout, 0).values())
'''),
    Wrong("gib", ["in bytes", "not in GiB"], '''
     kept = {"none": block, "selective": block - scores, "full": item * outside}[layout.recompute]
+    gib = 2**30
@@
-        "parameters": held[0] * each[0],
-        "gradients": held[1] * each[1],
-        "optimizer": held[2] * each[2],
-        "activations": own * kept * min(layout.micro_batches, layout.pp - stage),
-        "head": last * (2 * item * outside + 4 * tokens * c.vocabulary // tp),
+        "parameters": held[0] * each[0] / gib,
+        "gradients": held[1] * each[1] / gib,
+        "optimizer": held[2] * each[2] / gib,
+        "activations": own * kept * min(layout.micro_batches, layout.pp - stage) / gib,
+        "head": last * (2 * item * outside + 4 * tokens * c.vocabulary // tp) / gib,
'''),
    Wrong("gradients_cut_at_stage_1", ["ZeRO cuts gradients from stage 2 on"], '''
-    held = [piece if layout.zero >= level else count for level in (3, 2, 1)]
+    held = [piece if layout.zero >= level else count for level in (3, 1, 1)]
'''),
    Wrong("half_gradients", ["gradients are summed in fp32"], '''
-    each = (2, 4, 12) if item == 2 and layout.zero < 3 else (4, 4, 8)
+    each = (2, 2, 12) if item == 2 and layout.zero < 3 else (4, 4, 8)
'''),
    Wrong("half_pieces_under_zero_3", ["with ZeRO-3 the pieces are fp32"], '''
-    each = (2, 4, 12) if item == 2 and layout.zero < 3 else (4, 4, 8)
+    each = (2, 4, 12) if item == 2 else (4, 4, 8)
'''),
    Wrong("head_on_every_stage", ["it is on the last stage only"], '''
-        "head": last * (2 * item * outside + 4 * tokens * c.vocabulary // tp),
+        "head": (2 * item * outside + 4 * tokens * c.vocabulary // tp),
'''),
    Wrong("masks_forgotten", ["the masks of the two dropouts outside are missing"], '''
-    block = (4 * item + 2) * outside + item * tokens * wide // tp + scores
+    block = (4 * item) * outside + item * tokens * wide // tp + scores
'''),
    Wrong("master_among_parameters", ["the fp32 master copy is a part of the optimizer"], '''
-    each = (2, 4, 12) if item == 2 and layout.zero < 3 else (4, 4, 8)
+    each = (6, 4, 8) if item == 2 and layout.zero < 3 else (4, 4, 8)
'''),
    Wrong("more_than_there_are", ["no more micro-batches than"], '''
-        "activations": own * kept * min(layout.micro_batches, layout.pp - stage),
+        "activations": own * kept * (layout.pp - stage),
'''),
    Wrong("no_dict", ["memory_model does not return a dict"], '''
-    return {
+    return sum({
@@
-    }
+    }.values())
@@
-    return max(sum(memory_model(config, layout, i).values()) for i in range(layout.pp))
+    return max(memory_model(config, layout, i) for i in range(layout.pp))
'''),
    Wrong("no_master_weights", ["the fp32 master weights are missing"], '''
-    each = (2, 4, 12) if item == 2 and layout.zero < 3 else (4, 4, 8)
+    each = (2, 4, 8) if item == 2 and layout.zero < 3 else (4, 4, 8)
'''),
    Wrong("norms_cut", ["tp leaves norms whole"], '''
-    count = own * (c.hidden * wide // tp + 2 * c.hidden) + last * c.hidden
+    count = own * (c.hidden * wide // tp + 2 * c.hidden // tp) + last * c.hidden // tp
'''),
    Wrong("one_micro_batch", ["of all micro-batches in flight", "not of one"], '''
-        "activations": own * kept * min(layout.micro_batches, layout.pp - stage),
+        "activations": own * kept,
'''),
    Wrong("parameters_cut_at_stage_1", ["ZeRO cuts parameters from stage 3 only"], '''
-    held = [piece if layout.zero >= level else count for level in (3, 2, 1)]
+    held = [piece if layout.zero >= level else count for level in (1, 2, 1)]
'''),
    Wrong("pieces_rounded_down", ["ZeRO rounds up"], '''
-    piece = -(-count // layout.dp)
+    piece = count // layout.dp
'''),
    Wrong("scores_forgotten", ["the scores are missing"], '''
-    scores = (2 * item + 1) * tokens * c.heads * c.sequence // tp
+    scores = 0 * (2 * item + 1) * tokens * c.heads * c.sequence // tp
'''),
    Wrong("scores_of_all_heads", ["tp cuts the scores"], '''
-    scores = (2 * item + 1) * tokens * c.heads * c.sequence // tp
+    scores = (2 * item + 1) * tokens * c.heads * c.sequence
'''),
    Wrong("selective_keeps_scores", ["`recompute` is 'selective' here"], '''
-    kept = {"none": block, "selective": block - scores, "full": item * outside}[layout.recompute]
+    kept = {"none": block, "selective": block, "full": item * outside}[layout.recompute]
'''),
    Wrong("sequence_forgotten", ["`sequence` cuts what is outside the regions"], '''
-    outside = (tokens // tp if layout.sequence else tokens) * c.hidden
+    outside = tokens * c.hidden
'''),
    Wrong("ten_divided_by_tp", ["without `sequence` tp does not cut what is outside"], '''
-    block = (4 * item + 2) * outside + item * tokens * wide // tp + scores
+    block = (4 * item + 2) * (tokens // tp * c.hidden) + item * tokens * wide // tp + scores
'''),
    Wrong("tied_counted_twice", ["a tied weight is one on a rank with both ends"], '''
-    ends = first + last - (c.tied and first and last)
+    ends = first + last
'''),
    Wrong("rounded_tensor_by_tensor", ["all tensors together are rounded up once"], '''
-    piece = -(-count // layout.dp)
+    cut = [c.hidden * c.hidden // tp, c.hidden * keys // tp] * (2 * own)
+    cut += [c.hidden * c.ffn // tp] * (networks * own) + [c.vocabulary * c.hidden // tp] * ends
+    cut += [c.hidden] * (2 * own + last)
+    piece = sum(-(-size // layout.dp) for size in cut)
'''),
    Wrong("floats", ["is a float, not an int", "divide with //"], '''
-        "parameters": held[0] * each[0],
+        "parameters": held[0] * float(each[0]),
'''),
    Wrong("full_always_cut", ["'activations'", "recompute full"], '''
-    kept = {"none": block, "selective": block - scores, "full": item * outside}[layout.recompute]
+    inputs = item * tokens * c.hidden // tp
+    kept = {"none": block, "selective": block - scores, "full": inputs}[layout.recompute]
'''),
]

RIGHT = [
    Right("variant_a_formula_of_34", "Korthikanti's 10, 24 and 5 as they stand, item by item", '''
from course_lib.model import ModelConfig
from course_lib.layout import Layout


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

    tokens = layout.micro_batch_size * c.sequence
    outside = (tokens // tp if layout.sequence else tokens) * c.hidden
    scores = (2 * item + 1) * tokens * c.heads * c.sequence // tp
    block = (10 if item == 2 else 18) * outside + (2 if item == 2 else 4) * (tokens * wide // tp) + scores
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
'''),
    Right("variant_tensor_by_tensor", "a list of tensors, each with what cuts it", '''
from math import ceil

from course_lib.model import ModelConfig
from course_lib.layout import Layout


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
    tokens = layout.micro_batch_size * c.sequence
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
'''),
    Right("variant_from_the_last_class", "a part and a rest; ZeRO's stages from the last class on", '''
from course_lib.layout import Layout
from course_lib.model import ModelConfig


def memory_model(config: ModelConfig, layout: Layout, stage: int) -> dict[str, int]:
    """Returns the bytes that a rank of this stage holds at its peak.

    Args:
        config: the model; its sequences are all `config.sequence` tokens long.
        layout: how it is divided; `ep`, `cp` and `chunks` are 1.
        stage: the rank's place on pp, from 0.

    Returns:
        Bytes, as ints: `parameters`, `gradients`, `optimizer`, the blocks' `activations`, and
        `head`, the activations of the head.
    """
    c, tp, item = config, layout.tp, 2 if layout.precision == "bf16" else 4
    first, last, own = stage == 0, stage == layout.pp - 1, c.layers // layout.pp
    keys, networks = c.kv_heads * c.head_width, 3 if c.gated else 2
    wide = 2 * (c.hidden + keys) + networks * c.ffn
    ends = first + last - (c.tied and first and last)
    count = own * (c.hidden * wide // tp + 2 * c.hidden) + last * c.hidden
    count += ends * c.vocabulary * c.hidden // tp
    piece, rest = divmod(count, layout.dp)
    piece += rest > 0
    each = (2, 4, 12) if item == 2 and layout.zero < 3 else (4, 4, 8)
    held = [count, count, count]
    for level in range(layout.zero):
        held[2 - level] = piece

    tokens = layout.micro_batch_size * c.sequence
    outside = (tokens // tp if layout.sequence else tokens) * c.hidden
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
    """Returns the bytes of the rank that holds most, which decide whether the layout fits.

    Args:
        config: as in `memory_model`.
        layout: as in `memory_model`.
    """
    return max(sum(memory_model(config, layout, i).values()) for i in range(layout.pp))
'''),
]
