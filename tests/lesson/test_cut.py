"""`prove_cut` and `learn` with the same batch: what they say of right and of wrong cuts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from course_lib.comm import Group, gather_from_group
from course_lib.lesson import learn, prove_cut
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.ranks import run_on_ranks
from course_lib.train import tensor_parallel

CONFIG = ModelConfig(layers=1, hidden=16, heads=4, kv_heads=1, ffn=22, sequence=8)


def mean_loss(logits: torch.Tensor, targets: torch.Tensor, group: Group) -> torch.Tensor:
    return vocab_parallel_cross_entropy(logits, targets, CONFIG.vocabulary, group).mean()


def sum_loss(logits: torch.Tensor, targets: torch.Tensor, group: Group) -> torch.Tensor:
    """Wrong: not the mean."""
    return vocab_parallel_cross_entropy(logits, targets, CONFIG.vocabulary, group).sum()


def without_f(model: Transformer, group: Group) -> None:
    """Wrong: the gradient of attention's input is not summed."""
    tensor_parallel(model, group)
    model.blocks[0].attention._forward_pre_hooks.clear()


def proved(group: Group) -> tuple[Any, ...]:
    prove = partial(prove_cut, {"small": CONFIG}, group, optimizers=("SGD",))
    return (
        prove(cut=tensor_parallel, loss=mean_loss),
        prove(cut=tensor_parallel, loss=sum_loss),
        prove(cut=without_f, loss=mean_loss),
    )


def test_a_right_cut_is_one_process_and_wrong_ones_are_not() -> None:
    right, summed, torn = run_on_ranks(proved, 2)[0]
    assert right.largest < 1e-12
    assert summed.gaps["small", "SGD"].gradients == pytest.approx(23)  # 3 · 8 targets, one too many
    assert torn.largest > 1e-3
    assert "small  SGD  gradients within" in repr(right)


def gathered(model: Any, group: Group, make: Any) -> tuple[Any, Any]:
    tensor_parallel(model, group)
    model.register_forward_hook(lambda _, args, part: gather_from_group(part, -1, group))
    return model, make(model.parameters())


def curves(group: Group) -> dict[str, list[float]]:
    return learn({"cut": gathered}, group, steps=2, batch=2, same_batch=True)


@pytest.mark.slow
def test_ranks_that_share_a_model_learn_from_the_same_batch() -> None:
    found = run_on_ranks(curves, 2)[0]
    assert found["cut"] == pytest.approx(found["one process"], rel=1e-4)
