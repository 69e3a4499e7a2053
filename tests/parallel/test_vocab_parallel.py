"""Embedding and cross-entropy cut along the vocabulary, and random numbers by region."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel.tensor.region_rng import RegionRng
from course_lib.parallel.tensor.tensor_parallel import TensorRegion, own_range
from course_lib.parallel.tensor.vocab_parallel import (
    VocabParallelEmbedding,
    vocab_parallel_cross_entropy,
)

TOKENS = torch.tensor([[0, 1, 2, 6], [6, 5, 3, 3]])


def loss_and_gradient(
    group: Group, logits: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    own = own_range(logits.shape[-1], group)
    part = logits[..., own.start : own.stop].clone().requires_grad_()
    before = part.detach().clone()
    loss = vocab_parallel_cross_entropy(part, targets, logits.shape[-1], group)
    (loss * torch.arange(1, loss.numel() + 1).view_as(loss)).sum().backward()
    assert torch.equal(part.detach(), before) and part.grad is not None
    return loss.detach(), part.grad


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("vocabulary", [7, 3, 12])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_cross_entropy(ranks: Any, world: int, vocabulary: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = scale * torch.randn(2, 4, vocabulary, generator=generator, dtype=torch.float64)
    targets = torch.randint(vocabulary, (2, 4), generator=generator)
    full = logits.clone().requires_grad_()
    right = F.cross_entropy(full.flatten(0, 1), targets.flatten(), reduction="none").view(2, 4)
    (right * torch.arange(1, 9).view(2, 4)).sum().backward()
    assert full.grad is not None
    parts = full.grad.tensor_split(world, -1)
    for (loss, grad), part in zip(
        ranks(loss_and_gradient, world, logits, targets), parts, strict=True
    ):
        torch.testing.assert_close(loss, right.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(grad, part, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("world", [2, 3])
def test_logits_that_are_masked_out(ranks: Any, world: int) -> None:
    """A vocabulary that was padded has logits of -inf, also where a rank looks for its first."""
    logits = torch.linspace(-1, 1, 64, dtype=torch.float64).sin().view(2, 4, 8)
    logits[..., 3:7] = -torch.inf
    targets = torch.tensor([[0, 1, 7, 2], [7, 7, 0, 1]])
    right = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(2, 4)
    for loss, grad in ranks(loss_and_gradient, world, logits, targets):
        torch.testing.assert_close(loss, right, rtol=1e-12, atol=1e-12)
        assert grad.isfinite().all()


def strangers(group: Group, targets: torch.Tensor, tokens: torch.Tensor) -> list[str]:
    """What is said about a target, then a token, that no rank has."""
    table = VocabParallelEmbedding(nn.Embedding(7, 2), TensorRegion(group))
    said, part = [], torch.zeros(2, 4, len(own_range(7, group)))
    for call in (
        lambda: vocab_parallel_cross_entropy(part, targets, 7, group),
        lambda: table(tokens),
    ):
        with pytest.raises(CommError) as caught:
            call()
        said.append(str(caught.value))
    assert not group.ledger.events, "nothing was sent"
    return said


@pytest.mark.parametrize("stranger", [-1, 7, -101])
def test_a_token_outside_of_the_vocabulary_is_refused(ranks: Any, stranger: int) -> None:
    tokens = TOKENS.clone()
    tokens[1, 2] = stranger
    for rank, (loss, row) in enumerate(ranks(strangers, 2, tokens, tokens)):
        for text in (loss, row):
            assert "from a vocabulary of 7" in text and "index is out of range" in text
            assert f"found: {stranger} on rank {rank}, and 0 others" in text


def ignoring(group: Group, logits: torch.Tensor, targets: torch.Tensor, index: int) -> Any:
    own = own_range(logits.shape[-1], group)
    part = logits[..., own.start : own.stop].clone().requires_grad_()
    loss = vocab_parallel_cross_entropy(part, targets, logits.shape[-1], group, index)
    loss.sum().backward()
    return loss.detach(), part.grad


@pytest.mark.parametrize("index", [-100, 3])
@pytest.mark.parametrize("world", [1, 3])
def test_ignored_targets_count_as_in_torch(ranks: Any, world: int, index: int) -> None:
    targets = TOKENS.clone()
    targets[0, 1] = targets[1, 3] = index
    logits = torch.randn(2, 4, 7, dtype=torch.float64)
    full = logits.clone().requires_grad_()
    right = F.cross_entropy(
        full.flatten(0, 1), targets.flatten(), ignore_index=index, reduction="none"
    )
    right.sum().backward()
    assert full.grad is not None
    parts = full.grad.tensor_split(world, -1)
    for (loss, grad), part in zip(
        ranks(ignoring, world, logits, targets, index), parts, strict=True
    ):
        torch.testing.assert_close(loss.flatten(), right.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(grad, part, rtol=1e-9, atol=1e-12)


def half_precision(group: Group) -> tuple[torch.dtype, torch.dtype]:
    part = torch.zeros(2, 3, len(own_range(8, group)), dtype=torch.bfloat16, requires_grad=True)
    loss = vocab_parallel_cross_entropy(part, torch.zeros(2, 3, dtype=torch.int64), 8, group)
    loss.sum().backward()
    assert part.grad is not None
    return loss.dtype, part.grad.dtype


def test_bf16_logits_give_a_float32_loss(ranks: Any) -> None:
    assert ranks(half_precision, 2) == [(torch.float32, torch.bfloat16)] * 2


def wrong_part(group: Group) -> str:
    try:
        vocab_parallel_cross_entropy(torch.zeros(2, 4, 7), TOKENS, 7, group)
    except CommError as error:
        return str(error)
    return ""


def test_logits_of_the_whole_vocabulary_are_refused(ranks: Any) -> None:
    first, second = ranks(wrong_part, 2)
    assert "a loss over 4 of 7 logits" in first and "a loss over 3 of 7 logits" in second
    assert "shape (2, 4, 7)" in first


def embed(group: Group, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    full = nn.Embedding.from_pretrained(weight, freeze=False)
    part = VocabParallelEmbedding(full, TensorRegion(group))
    out = part(TOKENS)
    out.square().sum().backward()
    assert part.weight.grad is not None
    return out.detach(), part.weight.grad, len(group.ledger.events)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_embedding(ranks: Any, world: int) -> None:
    weight = torch.randn(7, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    full = nn.Embedding.from_pretrained(weight, freeze=False)
    right = full(TOKENS)
    right.square().sum().backward()
    assert full.weight.grad is not None
    parts = full.weight.grad.tensor_split(world)
    for (out, grad, calls), part in zip(ranks(embed, world, weight), parts, strict=True):
        torch.testing.assert_close(out, right.detach())
        torch.testing.assert_close(grad, part)
        assert calls == 1


def few_tokens(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
    full = nn.Embedding.from_pretrained(torch.eye(2), freeze=False)
    part = VocabParallelEmbedding(full, TensorRegion(group))
    out = part(torch.tensor([1, 0]))
    out.sum().backward()
    assert part.weight.grad is not None
    return out.detach(), part.weight.grad


def test_more_ranks_than_tokens(ranks: Any) -> None:
    for rank, (out, grad) in enumerate(ranks(few_tokens, 3)):
        assert torch.equal(out, torch.eye(2).flip(0))
        assert grad.shape == ((1, 2) if rank < 2 else (0, 2))


def draws(group: Group) -> dict[str, list[torch.Tensor]]:
    torch.manual_seed(group.index)
    alone = torch.rand(3, generator=torch.Generator().manual_seed(group.index))
    rng = RegionRng(5, group)
    found: dict[str, list[torch.Tensor]] = {"replicated": [], "sharded": []}
    for name in ("replicated", "sharded", "replicated", "sharded"):
        with rng.region(name):
            found[name].append(F.dropout(torch.ones(64)))
    try:
        with rng.region("sharded"):
            raise KeyError
    except KeyError:
        pass
    assert torch.equal(torch.rand(3), alone), "the default stream goes on as if nothing"
    return found


def test_random_numbers_by_region(ranks: Any) -> None:
    found = ranks(draws, 3)
    for turn in range(2):
        assert all(torch.equal(f["replicated"][turn], found[0]["replicated"][turn]) for f in found)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            assert not torch.equal(found[a]["sharded"][turn], found[b]["sharded"][turn])
        assert not torch.equal(found[0]["sharded"][turn], found[0]["replicated"][turn])
    assert not torch.equal(found[0]["replicated"][0], found[0]["replicated"][1])


def again(group: Group) -> list[torch.Tensor]:
    """Two draws, and the second once more from the state before it."""
    rng, found = RegionRng(5, group), []
    for turn in range(3):
        if turn == 1:
            state = rng.get_state()
        if turn == 2:
            rng.set_state(state)
        with rng.region("sharded"):
            found.append(torch.rand(4))
    return found


def test_streams_can_be_put_back(ranks: Any) -> None:
    for first, second, third in ranks(again, 2):
        assert torch.equal(second, third) and not torch.equal(first, second)


def unknown(group: Group) -> str:
    try:
        with RegionRng(0, group).region("middle"):
            return ""
    except CommError as error:
        return str(error)


def test_an_unknown_region(ranks: Any) -> None:
    assert "replicated and sharded" in ranks(unknown, 1)[0]


def nested(group: Group) -> list[torch.Tensor]:
    """Draws in one region: three in a row, or the second in the same region inside, and again."""
    plain, inside, found = RegionRng(5, group), RegionRng(5, group), []
    with plain.region("sharded"):
        found += [torch.rand(2) for _ in range(4)]
    with inside.region("sharded"):
        found.append(torch.rand(2))
        with inside.region("sharded"):
            found.append(torch.rand(2))
            state = inside.get_state()
            with inside.region("replicated"):
                torch.rand(1)
        found.append(torch.rand(2))
    inside.set_state(state)
    with inside.region("sharded"):
        found.append(torch.rand(2))
    return found


def test_a_region_inside_another_repeats_no_numbers(ranks: Any) -> None:
    for found in ranks(nested, 2):
        first, second, third = found[:3]
        assert len(torch.cat(found[:4]).unique()) == 8
        assert all(map(torch.equal, found[4:], (first, second, third, third)))


# --- what one process would do -------------------------------------------------------------------
def strange_rows(group: Group) -> torch.Tensor:
    table = nn.Embedding(7, 2).double()
    with torch.no_grad():
        table.weight.fill_(1.0)
        for first in {own_range(7, group).start, 0, 3, 5}:
            table.weight[first] = torch.inf
    return VocabParallelEmbedding(table, TensorRegion(group))(torch.tensor([1, 2, 4, 6])).detach()


def test_an_infinite_row_is_seen_by_its_own_token_alone(ranks: Any) -> None:
    """Each rank looks up its row 0 for the tokens of others."""
    for found in ranks(strange_rows, 3):
        assert torch.equal(found, torch.ones(4, 2).double())


def test_an_embedding_with_an_option_that_is_not_cut_is_refused(ranks: Any) -> None:
    def run(group: Group) -> None:
        for option in ({"sparse": True}, {"max_norm": 1.0}, {"padding_idx": 0}):
            with pytest.raises(CommError, match="leave them out"):
                VocabParallelEmbedding(nn.Embedding(7, 2, **option), TensorRegion(group))

    ranks(run, 2)


def test_a_second_derivative_of_the_loss_is_refused(ranks: Any) -> None:
    def run(group: Group) -> None:
        logits = torch.zeros(1, 2, 3, requires_grad=True)
        weight = torch.ones((), requires_grad=True)
        loss = vocab_parallel_cross_entropy(logits, torch.zeros(1, 2).long(), 6, group).sum()
        (slope,) = torch.autograd.grad(loss * weight, logits, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            slope.pow(2).sum().backward()

    ranks(run, 2)
