"""Loss curves of strategies on the course's text, beside that of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from course_lib.comm import Group, all_reduce, broadcast
from course_lib.data import WindowSampler, load_corpus
from course_lib.lesson.strategy import Strategy, one_process, train_step
from course_lib.model import ModelConfig, Transformer

CONFIG = ModelConfig(layers=2, hidden=64, heads=4, kv_heads=2, ffn=176, sequence=64)
TEXT = 2 << 20  # bytes of the corpus that are read
ALONE = "one process"


def learn(
    strategies: Mapping[str, Strategy],
    group: Group,
    *,
    steps: int = 40,
    batch: int = 16,
    rate: float = 3e-3,
    same_batch: bool = False,
) -> dict[str, list[float]]:
    """Trains a small transformer with each strategy, and alone, with the same global batches.

    Collective. Only index 0 trains alone; the others wait for it.

    Args:
        strategies: name to strategy.
        group: the ranks that train together.
        steps: how many updates are made.
        batch: windows of 64 tokens in a global batch; divides by the group's size.
        rate: AdamW's learning rate.
        same_batch: every rank gets the whole batch, because the model is cut and not the batch.

    Returns:
        The mean loss of every step, for `one process` and for each strategy; the same on every
        rank.
    """
    alone = [0.0] * steps
    if group.index == 0:
        alone = _losses(one_process, None, steps, batch, rate, seed=0)
    shared = torch.tensor(alone, dtype=torch.float64, device=group.device)
    broadcast(shared, 0, group)
    curves = {ALONE: shared.tolist()}
    for name, strategy in strategies.items():
        curves[name] = loss_curve(
            strategy, group, steps=steps, batch=batch, rate=rate, same_batch=same_batch
        )
    return curves


def loss_curve(
    strategy: Strategy,
    group: Group,
    *,
    steps: int = 40,
    batch: int = 16,
    rate: float = 3e-3,
    seed: int = 0,
    same_batch: bool = False,
) -> list[float]:
    """The mean loss over the ranks of every step of one training; collective.

    Args:
        strategy: how it trains.
        group: the ranks that train together.
        steps: how many updates are made.
        batch: windows of 64 tokens in a global batch; divides by the group's size.
        rate: AdamW's learning rate.
        seed: of the weights and of the order of the data; a claim takes more than one.
        same_batch: as for `learn`.
    """
    losses = _losses(strategy, group, steps, batch, rate, seed, same_batch)
    shared = torch.tensor(losses, dtype=torch.float64, device=group.device)
    all_reduce(shared, group, "avg")
    return shared.tolist()


def _losses(
    strategy: Callable[..., Any],
    group: Group | None,
    steps: int,
    batch: int,
    rate: float,
    seed: int,
    same_batch: bool = False,
) -> list[float]:
    index, size = (group.index, group.size) if group and not same_batch else (0, 1)
    text = load_corpus(limit=TEXT).train
    windows = WindowSampler(text, CONFIG.sequence, batch, index, size, seed)
    make = partial(torch.optim.AdamW, lr=rate)
    model, optimizer = strategy(Transformer(CONFIG, seed), group, make)
    return [train_step(model, optimizer, *next(windows)) for _ in range(steps)]
