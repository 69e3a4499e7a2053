"""Every parallelism but ZeRO's and the pipeline's, on parts of the world that do not ascend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group
from course_lib.model import ModelConfig, MoE, MoEConfig, Transformer
from course_lib.parallel import (
    BucketedDDP,
    Compressed,
    CompressedDDP,
    DiLoCo,
    ErrorFeedback,
    FlatMean,
    Int8,
    LocalSGD,
    NaiveDDP,
    OneBitAdam,
    OverlapDDP,
    PowerSGD,
    RegionRng,
    StreamingDiLoCo,
    SyncBatchNorm,
    TopK,
    accumulate,
    clip_grad_norm,
    ring_attention,
    shard_sequence,
    ulysses_attention,
    vocab_parallel_cross_entropy,
)
from course_lib.parallel.context.context_parallel import SequenceLayout
from course_lib.train import expert_parallel, tensor_parallel

Ranks = Callable[..., list[Any]]
PARTS = [[3, 1], [2, 0, 4]]  # of five ranks


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3), nn.BatchNorm1d(3)).double()


def data_parallel(world: Group) -> None:
    """Rows are dealt out by the index; the replicas begin as index 0, which is no lowest rank."""
    group = world.split(PARTS, "dp")
    for kind in (NaiveDDP, OverlapDDP, BucketedDDP):
        for convert in (False, True):
            model, alone = net(group.index), net(0)
            if convert:
                model[3] = SyncBatchNorm(3, group).double()
            else:
                model[3], alone[3] = nn.Identity(), nn.Identity()
            wrapped = kind(model, group)
            optimizers = [torch.optim.SGD(m.parameters(), 0.1, 0.9) for m in (model, alone)]
            for step in range(2):
                whole = drawn(step, 12, 6)
                wrapped(whole.chunk(group.size)[group.index]).pow(2).add(1).log().mean().backward()
                if isinstance(wrapped, NaiveDDP):
                    wrapped.synchronize()
                alone(whole).pow(2).add(1).log().mean().backward()
                clip_grad_norm(model.parameters(), 0.1, group)
                nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            close(list(model.state_dict().values()), list(alone.state_dict().values()))


def rows_and_branches(world: Group) -> None:
    """Sparse rows, a part that one index alone uses, and windows with unequal counts of tokens."""
    group = world.split(PARTS, "dp")
    torch.manual_seed(group.index)
    table = nn.Embedding(9, 4, sparse=True).double()
    model = nn.ModuleDict({"table": table, "head": nn.Linear(4, 4).double()})
    wrapped = BucketedDDP(_Branch(model), group, find_unused_parameters=True)
    torch.manual_seed(0)
    alone = nn.ModuleDict({"table": nn.Embedding(9, 4).double(), "head": nn.Linear(4, 4).double()})
    words = torch.arange(12) % 7
    wrapped(words.chunk(group.size)[group.index], group.index == 0).sum().backward()
    total = sum(
        _Branch(alone)(part, index == 0).sum() for index, part in enumerate(words.chunk(group.size))
    )
    (total / group.size).backward()
    close(table.weight.grad.to_dense(), alone["table"].weight.grad)
    close(
        [p.grad for p in model["head"].parameters()], [p.grad for p in alone["head"].parameters()]
    )
    language, bare = (nn.Sequential(nn.Embedding(9, 9)).double() for _ in range(2))
    bare.load_state_dict({"0.weight": drawn(1, 9, 9)})
    language.load_state_dict({"0.weight": drawn(1 + group.index, 9, 9)})
    window = [(words[: 2 + i], words[: 2 + i] + 1) for i in range(group.size)]
    accumulate(BucketedDDP(language, group), [window[group.index]], group)
    loss = sum(F.cross_entropy(bare(x), y, reduction="sum") for x, y in window)
    (loss / sum(len(x) for x, _ in window)).backward()
    close(language[0].weight.grad, bare[0].weight.grad)


class _Branch(nn.Module):
    def __init__(self, parts: nn.ModuleDict) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, words: torch.Tensor, head: bool) -> torch.Tensor:
        x = self.parts["table"](words)
        return self.parts["head"](x) if head else x


def cut_models(world: Group) -> None:
    """Tensor, sequence and vocabulary parallelism, with key-value heads cut and shared."""
    group = world.split(PARTS, "tp")
    for sequence, kv_heads in ((False, 6), (True, 6), (False, 1)):
        config = ModelConfig(
            hidden=12, heads=6, kv_heads=kv_heads, ffn=10, vocabulary=11, sequence=6, layers=1
        )
        tokens = torch.arange(14).view(2, 7) * 5 % 11
        whole, model = (Transformer(config, seed=3).double() for _ in range(2))
        tensor_parallel(model, group, sequence=sequence)
        logits = model(tokens[:, :-1])
        loss = vocab_parallel_cross_entropy(logits, tokens[:, 1:], 11, group).mean()
        expected = F.cross_entropy(whole(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        close(loss.detach(), expected.detach())
        loss.backward()
        expected.backward()
        full = dict(whole.named_parameters())
        cut = 0
        for name, parameter in model.named_parameters():
            right = full[name].grad
            for dim in range(right.dim()):  # a part by columns or rows, and whole rows of heads
                if parameter.shape[dim] != right.shape[dim]:
                    cut += 1
                    size = right.shape[dim] // group.size
                    if name.endswith(("embedding.weight", "head.weight")):
                        right = right.tensor_split(group.size, dim)[group.index]
                    elif parameter.shape[dim] * group.size == right.shape[dim]:
                        right = right.narrow(dim, group.index * size, size)
                    else:
                        right = right.tensor_split(group.size, dim)[group.index]
            close(parameter.grad, right)
        assert cut >= 5, "most weights are cut"


def attention(world: Group) -> None:
    group = world.split(PARTS, "cp")
    q, k, v, weight = (drawn(seed, 2, 6, 13, 4) for seed in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    whole = F.scaled_dot_product_attention(*leaves, is_causal=True)
    (whole * weight).sum().backward()
    for attend in (ring_attention, ulysses_attention):
        for layout in (
            SequenceLayout.zigzag(13, group.size), SequenceLayout.contiguous(13, group.size)
        ):  # fmt: skip
            mine = [shard_sequence(x, 2, layout, group.index).requires_grad_() for x in (q, k, v)]
            out = attend(*mine, layout=layout, group=group)
            (out * shard_sequence(weight, 2, layout, group.index)).sum().backward()
            for found, right in zip(
                [out, *(x.grad for x in mine)], [whole, *(x.grad for x in leaves)], strict=True
            ):
                close(found.detach(), shard_sequence(right.detach(), 2, layout, group.index))


def experts(world: Group) -> None:
    group = world.split(PARTS, "ep")
    config = ModelConfig(
        hidden=6, heads=1, kv_heads=1, ffn=4, vocabulary=7, sequence=5, layers=1,
        moe=MoEConfig(experts=5, top_k=2),
    )  # fmt: skip
    torch.manual_seed(2)
    whole = MoE(config).double()
    torch.manual_seed(2)
    layer = MoE(config).double()
    expert_parallel(layer, group, group)
    counts = [4, 7, 2][: group.size]
    x = drawn(5, sum(counts), 6).requires_grad_()
    mine = x.detach().split(counts)[group.index].clone().requires_grad_()
    y, out = whole(x), layer(mine)
    y.pow(2).sum().backward()
    out.pow(2).sum().backward()
    close(out.detach(), y.detach().split(counts)[group.index])
    close(mine.grad, x.grad.split(counts)[group.index])
    full = dict(whole.named_parameters())
    own = [name for name, _ in layer.named_parameters() if ".experts." in f".{name}"]
    assert own and len(own) < sum(".experts." in f".{name}" for name in full)
    for name in own:  # a mean over the senders, as all gradients
        close(layer.get_parameter(name).grad, full[name].grad / group.size)


def less_communication(world: Group, parts: list[list[int]]) -> tuple[int, int, list[Any]]:
    """The index says which rows a rank has; its rank must not count."""
    group = world.split(parts, "dp")
    found: list[Any] = [FlatMean([drawn(group.index, 3)], group).wait()]

    def train(wrapped: Any, model: nn.Module, optimizer: Any) -> None:
        for step in range(4):
            optimizer.zero_grad()
            wrapped(drawn(10 * step + group.index, 4, 6)).pow(2).mean().backward()
            getattr(wrapped, "synchronize", lambda: None)()
            optimizer.step()
        found.append([p.detach() for p in model.parameters()])

    for reducer in (Compressed(Int8(8)), ErrorFeedback(TopK(0.3)), PowerSGD(1)):
        model = net(group.index)[:3]
        wrapped = CompressedDDP(model, group, reducer)
        train(wrapped, model, torch.optim.SGD(model.parameters(), 0.1))
    for method in (LocalSGD, DiLoCo, StreamingDiLoCo):
        model = net(group.index)[:3]
        inner = torch.optim.SGD(model.parameters(), 0.1)
        halves = [list(model[0].parameters()), list(model[2].parameters())]
        more: Any = (halves,) if method is StreamingDiLoCo else ()
        train(model, model, method(inner, group, 2, *more))
    model = net(0)[:3]
    train(model, model, OneBitAdam(model.parameters(), group, warmup=2))
    return group.size, group.index, found


def random_numbers(world: Group) -> tuple[int, float, float]:
    group = world.split(PARTS, "tp")
    rng = RegionRng(1, group)
    with rng.region("sharded"):
        sharded = float(torch.rand(()))
    with rng.region("replicated"):
        return group.index, sharded, float(torch.rand(()))


@pytest.mark.parametrize(
    "program", [data_parallel, rows_and_branches, cut_models, attention, experts]
)
def test_equal_to_one_process(ranks: Ranks, program: Callable[[Group], None]) -> None:
    ranks(program, 5)


def test_methods_with_less_communication_go_by_the_index(ranks: Ranks) -> None:
    ascending = [[0, 1], [2, 3, 4]]
    runs = [
        {(size, index): found for size, index, found in ranks(less_communication, 5, parts)}
        for parts in (PARTS, ascending)
    ]
    assert len(runs[0]) == 5
    close(*runs)


def test_streams_of_random_numbers_go_by_the_index(ranks: Ranks) -> None:
    found = ranks(random_numbers, 5)
    assert len({replicated for *_, replicated in found}) == 1
    assert len({(index, sharded) for index, sharded, _ in found}) == 3
    assert len({sharded for _, sharded, _ in found}) == 3
