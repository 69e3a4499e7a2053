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
) -> dict[str, list[float]]:
    """Trains a small transformer with each strategy, and alone, with the same global batches.

    Collective. Only index 0 trains alone; the others wait for it.

    Args:
        strategies: name to strategy.
        group: the ranks that train together.
        steps: how many updates are made.
        batch: windows of 64 tokens in a global batch; divides by the group's size.
        rate: AdamW's learning rate.

    Returns:
        The mean loss of every step, for `one process` and for each strategy; the same on every
        rank.
    """
    make = partial(torch.optim.AdamW, lr=rate)
    alone = torch.zeros(steps, dtype=torch.float64)
    if group.index == 0:
        alone = _losses(one_process, None, make, steps, batch)
    alone = alone.to(group.device)
    broadcast(alone, 0, group)
    curves = {ALONE: alone.tolist()}
    for name, strategy in strategies.items():
        losses = _losses(strategy, group, make, steps, batch).to(group.device)
        all_reduce(losses, group, "avg")
        curves[name] = losses.tolist()
    return curves


def _losses(
    strategy: Callable[..., Any], group: Group | None, make: Any, steps: int, batch: int
) -> torch.Tensor:
    index, size = (group.index, group.size) if group else (0, 1)
    windows = WindowSampler(load_corpus(limit=TEXT).train, CONFIG.sequence, batch, index, size)
    model, optimizer = strategy(Transformer(CONFIG), group, make)
    found = [train_step(model, optimizer, *next(windows)) for _ in range(steps)]
    return torch.tensor(found, dtype=torch.float64)
