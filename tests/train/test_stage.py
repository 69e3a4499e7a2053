"""The course's transformer in stages: names, costs, and training equal to one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.model import ModelConfig, MoEConfig, Transformer, auxiliary_loss
from course_lib.model.transformer import cross_entropy
from course_lib.parallel import Pipeline, sum_tied_gradient
from course_lib.schedule import (
    Schedule,
    ScheduleError,
    interleaved_1f1b,
    one_f_one_b,
    zb_v,
)
from course_lib.train import StagedModel, pipeline_stages
from course_lib.train.stage import stage_blocks, stage_costs, tied_pair

SIZES = {"layers": 7, "hidden": 16, "heads": 4, "kv_heads": 2, "ffn": 20, "vocabulary": 23,
         "sequence": 9}  # fmt: skip
ROWS = 5


def config_of(**changes: Any) -> ModelConfig:
    return ModelConfig(**{**SIZES, **changes})


def batch_of(step: int) -> torch.Tensor:
    return torch.randint(23, (ROWS, 10), generator=torch.Generator().manual_seed(step))


def train(parameters: dict[str, Any], backward: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Gradients of the first step, weights after the third."""
    unique = {id(p): p for p in parameters.values()}  # a V has both ends of a tied weight
    optimizer = torch.optim.AdamW(unique.values(), lr=0.01)
    first: dict[str, Any] = {}
    for step in range(3):
        optimizer.zero_grad()
        backward(batch_of(step))
        first = first or {name: p.grad.clone() for name, p in parameters.items()}
        optimizer.step()
    return first, {name: p.detach().clone() for name, p in parameters.items()}


def piped(group: Group, schedule: Schedule, config: ModelConfig) -> tuple[dict[str, Any], ...]:
    stages = pipeline_stages(Transformer(config, seed=1).double(), schedule, group)

    def border(tokens: torch.Tensor) -> torch.Tensor:
        return torch.empty(*tokens.shape, config.hidden, dtype=torch.float64)

    pipe = Pipeline(stages, schedule, group, loss=cross_entropy, border=border)
    pair = tied_pair(schedule, group) if config.tied else None

    def backward(batch: torch.Tensor) -> None:
        parts = batch.tensor_split(schedule.micro_batches)
        shares = [len(part) / ROWS for part in parts]
        pipe.step([(part[:, :-1], part[:, 1:]) for part in parts], shares)
        if pair is not None:
            ends = [w for s in stages.values() for w in (s.embedding, s.head) if w is not None]
            sum_tied_gradient(ends[0].weight, pair)

    return train({n: p for s in stages.values() for n, p in s.named_parameters()}, backward)


def alone(config: ModelConfig) -> tuple[dict[str, Any], ...]:
    model = Transformer(config, seed=1).double()

    def backward(batch: torch.Tensor) -> None:
        cross_entropy(model(batch[:, :-1]), batch[:, 1:]).backward()

    return train(dict(model.named_parameters()), backward)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    "schedule",
    [one_f_one_b(1, 2), one_f_one_b(3, 4), interleaved_1f1b(2, 4, 3), zb_v(3, 5)],
    ids=lambda s: f"{s.name} {s.ranks}",
)
def test_equal_to_one_process(ranks: Any, schedule: Schedule, tied: bool) -> None:
    config = config_of(tied=tied)
    expected = alone(config)
    results = ranks(piped, schedule.ranks, schedule, config)
    for which, whole in enumerate(expected):
        found = [item for result in results for item in result[which].items()]
        # A tied weight is on both ends, under the name that it has there.
        assert {name for name, _ in found} - {"head.weight"} == set(whole) - {"head.weight"}
        for name, tensor in found:
            right = whole.get(name, whole["embedding.weight"])
            torch.testing.assert_close(tensor, right, rtol=1e-9, atol=1e-12, msg=name)


def test_the_dear_output_layer_gets_fewer_blocks() -> None:
    config = config_of(layers=8, vocabulary=600)
    costs = stage_costs(config)
    assert len(costs) == 10 and costs[0] == 0 and len(set(costs[1:-1])) == 1
    parts = stage_blocks(config, 4)
    sums = [sum(costs[1 + i] for i in part) for part in parts]
    sums[-1] += costs[-1]
    assert [i for part in parts for i in part] == list(range(8))
    assert len(parts[-1]) < 2 and max(sums) < sum(costs[7:9]) + costs[-1]


def test_costs_are_the_operations_of_the_products() -> None:
    """Counted by torch itself: two operations for each number of a product's weight."""
    from torch.utils.flop_counter import FlopCounterMode

    config = config_of(layers=1)
    model = Transformer(config)
    tokens = torch.zeros(1, config.sequence, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.head(model.norm(model.embedding(tokens)))
    assert counter.get_total_flops() == stage_costs(config)[-1] * config.sequence


def test_more_stages_than_blocks() -> None:
    with pytest.raises(ScheduleError, match="8 stages of 7 layers"):
        stage_blocks(config_of(), 8)


def staged(group: Group, config: ModelConfig, rows: int, m: int) -> dict[str, torch.Tensor]:
    model = StagedModel(Transformer(config, seed=1).double(), one_f_one_b(2, m), group)
    batch = batch_of(0)[:rows]
    model.forward_backward(batch[:, :-1], batch[:, 1:])
    return {name: p.grad for name, p in model.own.items() if p.grad is not None}


def test_experts_losses_are_a_mean_over_the_micro_batches(ranks: Any) -> None:
    config = config_of(layers=2, moe=MoEConfig(3, 2, balance=1.0, z=1.0))
    model, batch = Transformer(config, seed=1).double(), batch_of(0)[:4]
    for part in batch.tensor_split(2):
        loss = cross_entropy(model(part[:, :-1]), part[:, 1:])
        ((loss + auxiliary_loss(model)) / 2).backward()
    first, last = ranks(staged, 2, config, 4, 2)
    assert len(first | last) == len(list(model.parameters()))
    for name, p in model.named_parameters():
        torch.testing.assert_close((first | last)[name], p.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 2])
def test_a_micro_batch_has_a_sequence(ranks: Any, rows: int) -> None:
    def run(group: Group) -> None:
        with pytest.raises(ScheduleError, match=f"a batch of {rows} sequences"):
            staged(group, config_of(), rows, 3)

    ranks(run, 2)
