"""variant: parameters are counted on a model that is made"""

import math
from dataclasses import replace
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
    moe, m, tp = config.moe, micro_batches, sizes["tp"]
    first, last = stage == 0, stage == sizes["pp"] - 1
    dense = experts = end = 0
    for name, parameter in Transformer(replace(config, layers=blocks[stage])).named_parameters():
        whole = "norm" in name or "router" in name
        size = parameter.numel() // (1 if whole else tp)
        if name in ("embedding.weight", "head.weight"):
            end = size
        if ".experts." in name:
            experts += size
        elif name == "embedding.weight":
            dense += size * (first or (config.tied and last))
        elif name in ("norm.weight", "head.weight"):
            dense += size * last
        else:
            dense += size
    experts //= sizes["ep"]  # whole experts go to a rank, not a slice of each of their matrices
    both = sizes["dp"] * sizes["ep"]
    a, b = (math.ceil(Fraction(dense, both)), math.ceil(Fraction(experts, sizes["dp"])))
    token = rows * config.sequence * item
    wide = token * config.hidden

    def all_reduce(size: int) -> Fraction:
        return Fraction(2 * (tp - 1) * size, tp)

    def all_to_all(size: int) -> Fraction:
        return Fraction((sizes["ep"] - 1) * size, sizes["ep"])

    sent = {"tp": Fraction(0), "pp": Fraction(0), "ep": Fraction(0)}
    for _ in range(m):
        for _ in range(blocks[stage]):
            sent["tp"] += 4 * all_reduce(wide)
            if moe is not None:
                sent["tp"] += all_reduce(token * moe.top_k)
                sent["ep"] += 4 * all_to_all(wide * moe.top_k) + all_to_all(8 * moe.experts)
        if first:
            sent["tp"] += all_reduce(wide)
        else:
            sent["pp"] += wide
        if last:
            sent["tp"] += all_reduce(wide) + 3 * all_reduce(token)
        else:
            sent["pp"] += wide
    if config.tied and first != last:
        sent["pp"] += end * item
    waiting = m
    if schedule == "1F1B":
        waiting = min(m, sizes["pp"] - stage)
    return {
        **{axis: int(count) for axis, count in sent.items()},
        "dense": dense, "experts": experts, "optimizer": 2 * item * (a + b),
        "data": 2 * item * (a * both - a + b * sizes["dp"] - b),
        "in_flight": waiting,
        "bubble": 1 - Fraction(m, m + sizes["pp"] - 1),
    }
