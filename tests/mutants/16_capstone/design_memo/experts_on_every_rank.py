"""mutant: ep deals the experts out"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch

from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel.schedule import gpipe, one_f_one_b
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step


def rehearse(
    world: Group,
    config: ModelConfig,
    sizes: Mapping[str, int],
    *,
    rows: int,
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
    count = rows * micro_batches * sizes["dp"] * sizes["ep"]
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
    rows: int,
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
        rows: sequences in a micro-batch of one rank; they are `config.sequence` tokens long.
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
    experts = own * network * moe.experts if moe else 0
    parts = [(-(-dense // (dp * ep)), dp * ep), (-(-experts // dp), dp)]
    number = m * rows * c.sequence * item  # bytes of one number for each token
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
