"""Wrong and right answers to `design_memo`: see `course dev show design_memo`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("makes_a_model", ["make no model and no tensor"], '''
-    experts = own * network * moe.experts // ep if moe else 0
+    made = Transformer(config).named_parameters()
+    whole = sum(p.numel() for n, p in made if ".experts." in n)
+    experts = own * whole // (c.layers * ep * tp)
'''),
    Wrong("as_many_key_heads", ["as many heads as kv_heads says"], '''
-    attention = 2 * c.hidden * c.head_width * (c.heads + c.kv_heads) // tp
+    attention = 2 * c.hidden * c.head_width * (c.heads + c.heads) // tp
'''),
    Wrong("bubble_of_the_work", ["the bubble is part of the step"], '''
-        "bubble": Fraction(pp - 1, m + pp - 1),
+        "bubble": Fraction(pp - 1, m),
'''),
    Wrong("counts_forgotten", ["how many rows come is told first"], '''
-        counts = m * own * moe.experts * 8
+        counts = 0
'''),
    Wrong("embedding_not_summed", ["the embedding's sum", "forward on the first stage", "is missing"], '''
-    sums = own * 4 * c.hidden + (first + last) * c.hidden + 3 * last
+    sums = own * 4 * c.hidden + last * c.hidden + 3 * last
'''),
    Wrong("ends_send_both_ways", ["the last stage sends nothing on", "the first nothing back"], '''
-        "pp": (2 - first - last) * c.hidden * number + shared * end * item,
+        "pp": 2 * (pp > 1) * c.hidden * number + shared * end * item,
'''),
    Wrong("experts_on_every_rank", ["ep deals the experts out"], '''
-    experts = own * network * moe.experts // ep if moe else 0
+    experts = own * network * moe.experts if moe else 0
'''),
    Wrong("experts_over_the_world", ["ranks of ep have other ones"], '''
     parts = [(-(-dense // (dp * ep)), dp * ep), (-(-experts // dp), dp)]
+    wrong = [parts[0], (-(-experts // (dp * ep)), dp * ep)]
@@
-        "data": 2 * item * sum((replicas - 1) * part for part, replicas in parts),
+        "data": 2 * item * sum((replicas - 1) * part for part, replicas in wrong),
'''),
    Wrong("float_bubble", ["a quotient of integers is a float"], '''
-        "bubble": Fraction(pp - 1, m + pp - 1),
+        "bubble": (pp - 1) / (m + pp - 1),
'''),
    Wrong("float_bytes", ["divide with //"], '''
-        "tp": 2 * (tp - 1) * sums * number // tp,
+        "tp": 2 * (tp - 1) * sums * number / tp,
'''),
    Wrong("forward_exchange_only", ["backward each row's gradient goes the same ways"], '''
-        rows_out = 4 * own * moe.top_k * c.hidden * number
+        rows_out = 2 * own * moe.top_k * c.hidden * number
'''),
    Wrong("gpipe_like_1f1b", ["GPipe makes all forwards before the first backward"], '''
-        "in_flight": min(m, pp - stage) if schedule == "1F1B" else m,
+        "in_flight": min(m, pp - stage),
'''),
    Wrong("half_an_all_reduce", ["an all-reduce sends 2(N-1)/N of its bytes", "not (N-1)/N"], '''
-        "tp": 2 * (tp - 1) * sums * number // tp,
+        "tp": (tp - 1) * sums * number // tp,
'''),
    Wrong("half_the_sums", ["only half of a block's four sums"], '''
-    sums = own * 4 * c.hidden + (first + last) * c.hidden + 3 * last
+    sums = own * 2 * c.hidden + (first + last) * c.hidden + 3 * last
'''),
    Wrong("last_norm_forgotten", ["the last stage has a norm before its output layer"], '''
-    dense = own * (attention + inside + 2 * c.hidden) + ends * end + last * c.hidden
+    dense = own * (attention + inside + 2 * c.hidden) + ends * end
'''),
    Wrong("loss_not_summed", ["the loss sums three numbers a token on the last stage"], '''
-    sums = own * 4 * c.hidden + (first + last) * c.hidden + 3 * last
+    sums = own * 4 * c.hidden + (first + last) * c.hidden
'''),
    Wrong("more_than_there_are", ["there are no more micro-batches than there are"], '''
-        "in_flight": min(m, pp - stage) if schedule == "1F1B" else m,
+        "in_flight": pp - stage if schedule == "1F1B" else m,
'''),
    Wrong("no_dict", ["return a dict of all nine numbers"], '''
     shared = c.tied and first != last
-    return {
+    return list({
@@
         "bubble": Fraction(pp - 1, m + pp - 1),
-    }
+    }.values())
'''),
    Wrong("no_gradient_back", ["the gradient goes back to the stage before"], '''
-        "pp": (2 - first - last) * c.hidden * number + shared * end * item,
+        "pp": (1 - last) * c.hidden * number + shared * end * item,
'''),
    Wrong("norms_cut", ["tp does not cut the norms"], '''
-    dense = own * (attention + inside + 2 * c.hidden) + ends * end + last * c.hidden
+    dense = own * (attention + inside + 2 * c.hidden // tp) + ends * end + last * c.hidden
'''),
    Wrong("one_expert_a_token", ["a token goes to each of its top_k experts"], '''
-        rows_out = 4 * own * moe.top_k * c.hidden * number
+        rows_out = 4 * own * c.hidden * number
'''),
    Wrong("only_reduce_scatter", ["then parameters all-gathered"], '''
-        "data": 2 * item * sum((replicas - 1) * part for part, replicas in parts),
+        "data": item * sum((replicas - 1) * part for part, replicas in parts),
'''),
    Wrong("reduced_each_micro_batch", ["once a step", "not for each micro-batch"], '''
-        "data": 2 * item * sum((replicas - 1) * part for part, replicas in parts),
+        "data": 2 * m * item * sum((replicas - 1) * part for part, replicas in parts),
'''),
    Wrong("rounded_down", ["rounded up: a shard is as long on every rank"], '''
-        "optimizer": 2 * item * sum(part for part, _ in parts),
+        "optimizer": 2 * item * (dense // (dp * ep) + experts // dp),
'''),
    Wrong("router_cut_by_ep", ["the router is whole on every rank of ep"], '''
-    inside = moe.experts * c.hidden if moe else network
+    inside = moe.experts * c.hidden // ep if moe else network
'''),
    Wrong("router_forgotten", ["the router is missing"], '''
-    inside = moe.experts * c.hidden if moe else network
+    inside = 0 if moe else network
'''),
    Wrong("sends_to_itself", ["what stays on its rank is not sent"], '''
-        "ep": (ep - 1) * (rows_out + counts) // ep,
+        "ep": (ep > 1) * (rows_out + counts),
'''),
    Wrong("state_of_experts_over_ep", ["of an expert there are dp replicas", "not dp · ep"], '''
-        "optimizer": 2 * item * sum(part for part, _ in parts),
+        "optimizer": 2 * item * sum(-(-n // (dp * ep)) for n in (dense, experts)),
'''),
    Wrong("tied_counted_twice", ["a rank with both ends has a tied weight once"], '''
-    ends = first + last - (c.tied and first and last)
+    ends = first + last
'''),
    Wrong("tied_gradient_forgotten", ["the gradient of a tied weight is summed between the ends"], '''
-        "pp": (2 - first - last) * c.hidden * number + shared * end * item,
+        "pp": (2 - first - last) * c.hidden * number,
'''),
    Wrong("tied_on_first_only", ["a tied weight is on both ends of the pipeline"], '''
-    ends = first + last - (c.tied and first and last)
+    ends = first + (last and not c.tied)
'''),
    Wrong("weights_not_summed", ["the choices' weights have a backward sum in each block"], '''
-        sums += own * moe.top_k
+        sums += 0
'''),
    Wrong("whole_state", ["ZeRO-1 cuts the state over the replicas"], '''
-        "optimizer": 2 * item * sum(part for part, _ in parts),
+        "optimizer": 2 * item * (dense + experts),
'''),
    Wrong("rounded_together", ["'optimizer'", "dp 4096"], '''
     parts = [(-(-dense // (dp * ep)), dp * ep), (-(-experts // dp), dp)]
+    if ep == 1:
+        parts = [(-(-(dense + experts) // dp), dp)]
'''),
]

RIGHT = [
    Right("variant_bubble_is_an_integer", "the bubble of one stage is the integer 0", '''
from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch

from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig, Transformer
from course_lib.schedule import gpipe, one_f_one_b
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step


def rehearse(
    world: Group,
    config: ModelConfig,
    sizes: Mapping[str, int],
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
) -> dict[str, int]:
    """Given: makes one real step in float64; what each axis sent is in `world.ledger`.

    Returns:
        What this rank holds: `dense`, `experts` and `optimizer`, as in `design_memo`.
    """
    actions = {"GPipe": gpipe, "1F1B": one_f_one_b}[schedule](sizes["pp"], micro_batches)
    model = lay_out(Transformer(config).double(), Mesh(world, sizes), actions, zero=1)
    optimizers = make_optimizers(model, torch.optim.AdamW)
    count = micro_batch_size * micro_batches * sizes["dp"] * sizes["ep"]
    tokens = torch.arange(count * (config.sequence + 1)) % config.vocabulary
    tokens = tokens.view(count, -1)
    batches = own_micro_batches(tokens[:, :-1], tokens[:, 1:], model)
    train_step(model, batches, optimizers)
    experts = sum(p.numel() for p in model.experts)
    return {
        "dense": sum(p.numel() for p in model.parameters) - experts,
        "experts": experts,
        "optimizer": sum(optimizer.state_bytes() for optimizer in optimizers),
    }


def design_memo(
    config: ModelConfig,
    sizes: Mapping[str, int],
    blocks: Sequence[int],
    stage: int,
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
    item: int,
) -> dict[str, int | Fraction]:
    """The numbers of a rank of one pipeline stage.

    Args:
        config: the model; `config.moe` is None for one without experts, and ep then 1.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`.
        blocks: how many each stage has.
        stage: the rank's place on pp.
        micro_batch_size: sequences in a micro-batch of one rank, each of `config.sequence` tokens.
        micro_batches: of one rank, in a step.
        schedule: `GPipe` or `1F1B`.
        item: bytes of a number.

    Returns:
        Integers, and for the bubble a `Fraction`:
            `dense`: parameters that this rank holds, those of experts left out;
            `experts`: parameters of its experts;
            `optimizer`: bytes of optimizer state that it keeps;
            `tp`, `pp`, `ep`, `data`: bytes that it sends in a step, as above;
            `in_flight`: the most micro-batches that are forward but not yet backward on it;
            `bubble`: the part of the step's time in which it does nothing.
    """
    c, moe, m = config, config.moe, micro_batches
    pp, dp, ep, tp = (sizes[axis] for axis in ("pp", "dp", "ep", "tp"))
    first, last, own = stage == 0, stage == pp - 1, blocks[stage]
    attention = 2 * c.hidden * c.head_width * (c.heads + c.kv_heads) // tp
    network = (3 if c.gated else 2) * c.hidden * c.ffn // tp
    end = c.vocabulary * c.hidden // tp
    inside = moe.experts * c.hidden if moe else network
    ends = first + last - (c.tied and first and last)
    dense = own * (attention + inside + 2 * c.hidden) + ends * end + last * c.hidden
    experts = own * network * moe.experts // ep if moe else 0
    parts = [(-(-dense // (dp * ep)), dp * ep), (-(-experts // dp), dp)]
    number = m * micro_batch_size * c.sequence * item  # bytes of one number for each token
    sums = own * 4 * c.hidden + (first + last) * c.hidden + 3 * last
    rows_out = counts = 0
    if moe:
        sums += own * moe.top_k
        rows_out = 4 * own * moe.top_k * c.hidden * number
        counts = m * own * moe.experts * 8
    shared = c.tied and first != last
    return {
        "dense": dense,
        "experts": experts,
        "optimizer": 2 * item * sum(part for part, _ in parts),
        "tp": 2 * (tp - 1) * sums * number // tp,
        "pp": (2 - first - last) * c.hidden * number + shared * end * item,
        "ep": (ep - 1) * (rows_out + counts) // ep,
        "data": 2 * item * sum((replicas - 1) * part for part, replicas in parts),
        "in_flight": min(m, pp - stage) if schedule == "1F1B" else m,
        "bubble": Fraction(pp - 1, m + pp - 1) if pp > 1 else 0,
    }
'''),
    Right("variant_more_numbers", "the memo has another number", '''
from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch

from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig, Transformer
from course_lib.schedule import gpipe, one_f_one_b
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step


def rehearse(
    world: Group,
    config: ModelConfig,
    sizes: Mapping[str, int],
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
) -> dict[str, int]:
    """Given: makes one real step in float64; what each axis sent is in `world.ledger`.

    Returns:
        What this rank holds: `dense`, `experts` and `optimizer`, as in `design_memo`.
    """
    actions = {"GPipe": gpipe, "1F1B": one_f_one_b}[schedule](sizes["pp"], micro_batches)
    model = lay_out(Transformer(config).double(), Mesh(world, sizes), actions, zero=1)
    optimizers = make_optimizers(model, torch.optim.AdamW)
    count = micro_batch_size * micro_batches * sizes["dp"] * sizes["ep"]
    tokens = torch.arange(count * (config.sequence + 1)) % config.vocabulary
    tokens = tokens.view(count, -1)
    batches = own_micro_batches(tokens[:, :-1], tokens[:, 1:], model)
    train_step(model, batches, optimizers)
    experts = sum(p.numel() for p in model.experts)
    return {
        "dense": sum(p.numel() for p in model.parameters) - experts,
        "experts": experts,
        "optimizer": sum(optimizer.state_bytes() for optimizer in optimizers),
    }


def design_memo(
    config: ModelConfig,
    sizes: Mapping[str, int],
    blocks: Sequence[int],
    stage: int,
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
    item: int,
) -> dict[str, int | Fraction]:
    """The numbers of a rank of one pipeline stage.

    Args:
        config: the model; `config.moe` is None for one without experts, and ep then 1.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`.
        blocks: how many each stage has.
        stage: the rank's place on pp.
        micro_batch_size: sequences in a micro-batch of one rank, each of `config.sequence` tokens.
        micro_batches: of one rank, in a step.
        schedule: `GPipe` or `1F1B`.
        item: bytes of a number.

    Returns:
        Integers, and for the bubble a `Fraction`:
            `dense`: parameters that this rank holds, those of experts left out;
            `experts`: parameters of its experts;
            `optimizer`: bytes of optimizer state that it keeps;
            `tp`, `pp`, `ep`, `data`: bytes that it sends in a step, as above;
            `in_flight`: the most micro-batches that are forward but not yet backward on it;
            `bubble`: the part of the step's time in which it does nothing.
    """
    c, moe, m = config, config.moe, micro_batches
    pp, dp, ep, tp = (sizes[axis] for axis in ("pp", "dp", "ep", "tp"))
    first, last, own = stage == 0, stage == pp - 1, blocks[stage]
    attention = 2 * c.hidden * c.head_width * (c.heads + c.kv_heads) // tp
    network = (3 if c.gated else 2) * c.hidden * c.ffn // tp
    end = c.vocabulary * c.hidden // tp
    inside = moe.experts * c.hidden if moe else network
    ends = first + last - (c.tied and first and last)
    dense = own * (attention + inside + 2 * c.hidden) + ends * end + last * c.hidden
    experts = own * network * moe.experts // ep if moe else 0
    parts = [(-(-dense // (dp * ep)), dp * ep), (-(-experts // dp), dp)]
    number = m * micro_batch_size * c.sequence * item  # bytes of one number for each token
    sums = own * 4 * c.hidden + (first + last) * c.hidden + 3 * last
    rows_out = counts = 0
    if moe:
        sums += own * moe.top_k
        rows_out = 4 * own * moe.top_k * c.hidden * number
        counts = m * own * moe.experts * 8
    shared = c.tied and pp > 1 and stage in (0, pp - 1)
    return {
        "dense": dense,
        "experts": experts,
        "optimizer": 2 * item * sum(part for part, _ in parts),
        "tp": 2 * (tp - 1) * sums * number // tp,
        "pp": (2 - first - last) * c.hidden * number + shared * end * item,
        "ep": (ep - 1) * (rows_out + counts) // ep,
        "data": 2 * item * sum((replicas - 1) * part for part, replicas in parts),
        "in_flight": min(m, pp - stage) if schedule == "1F1B" else m,
        "sent in all": 0,
        "bubble": Fraction(pp - 1, m + pp - 1),
    }
'''),
    Right("variant_rounds_with_fractions", "a part is a fraction, rounded up", '''
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch

from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig, Transformer
from course_lib.schedule import gpipe, one_f_one_b
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step


def rehearse(
    world: Group,
    config: ModelConfig,
    sizes: Mapping[str, int],
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
) -> dict[str, int]:
    """Given: runs one real step in float64; `world.ledger` has what each axis sent.

    Returns:
        What this rank holds: `dense`, `experts` and `optimizer`, as in `design_memo`.
    """
    actions = {"GPipe": gpipe, "1F1B": one_f_one_b}[schedule](sizes["pp"], micro_batches)
    model = lay_out(Transformer(config).double(), Mesh(world, sizes), actions, zero=1)
    optimizers = make_optimizers(model, torch.optim.AdamW)
    count = micro_batch_size * micro_batches * sizes["dp"] * sizes["ep"]
    tokens = torch.arange(count * (config.sequence + 1)) % config.vocabulary
    tokens = tokens.view(count, -1)
    batches = own_micro_batches(tokens[:, :-1], tokens[:, 1:], model)
    train_step(model, batches, optimizers)
    experts = sum(p.numel() for p in model.experts)
    return {
        "dense": sum(p.numel() for p in model.parameters) - experts,
        "experts": experts,
        "optimizer": sum(optimizer.state_bytes() for optimizer in optimizers),
    }


def design_memo(
    config: ModelConfig,
    sizes: Mapping[str, int],
    blocks: Sequence[int],
    stage: int,
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
    item: int,
) -> dict[str, int | Fraction]:
    """Returns the numbers of a rank of one pipeline stage.

    Args:
        config: the model; `config.moe` is None for one without experts, and ep then 1.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`.
        blocks: number of blocks of each stage.
        stage: the rank's place on pp.
        micro_batch_size: sequences in a micro-batch of one rank, each of `config.sequence` tokens.
        micro_batches: of one rank, in a step.
        schedule: `GPipe` or `1F1B`.
        item: bytes of a number.

    Returns:
        Integers, and for the bubble a `Fraction`:
            `dense`: parameters that this rank holds, without those of experts; `experts`:
            parameters of its experts; `optimizer`: bytes of optimizer state that it keeps; `tp`,
            `pp`, `ep`, `data`: bytes that it sends in a step, as above; `in_flight`: the most
            micro-batches that are forward but not yet backward on it; `bubble`: the fraction of the
            step's time in which it is idle.
    """
    c, moe, m = config, config.moe, micro_batches
    pp, dp, ep, tp = (sizes[axis] for axis in ("pp", "dp", "ep", "tp"))
    first, last, own = stage == 0, stage == pp - 1, blocks[stage]
    attention = 2 * c.hidden * c.head_width * (c.heads + c.kv_heads) // tp
    network = (3 if c.gated else 2) * c.hidden * c.ffn // tp
    end = c.vocabulary * c.hidden // tp
    inside = moe.experts * c.hidden if moe else network
    ends = first + last - (c.tied and first and last)
    dense = own * (attention + inside + 2 * c.hidden) + ends * end + last * c.hidden
    experts = own * network * moe.experts // ep if moe else 0
    parts = [
        (math.ceil(Fraction(count, replicas)), replicas)
        for count, replicas in ((dense, dp * ep), (experts, dp))
    ]
    number = m * micro_batch_size * c.sequence * item  # bytes of one number for each token
    sums = own * 4 * c.hidden + (first + last) * c.hidden + 3 * last
    rows_out = counts = 0
    if moe:
        sums += own * moe.top_k
        rows_out = 4 * own * moe.top_k * c.hidden * number
        counts = m * own * moe.experts * 8
    shared = c.tied and first != last
    return {
        "dense": dense,
        "experts": experts,
        "optimizer": 2 * item * sum(part for part, _ in parts),
        "tp": 2 * (tp - 1) * sums * number // tp,
        "pp": (2 - first - last) * c.hidden * number + shared * end * item,
        "ep": (ep - 1) * (rows_out + counts) // ep,
        "data": 2 * item * sum((replicas - 1) * part for part, replicas in parts),
        "in_flight": min(m, pp - stage) if schedule == "1F1B" else m,
        "bubble": Fraction(pp - 1, m + pp - 1),
    }
'''),
]
