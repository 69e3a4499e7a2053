"""Types of programs on real ranks: what is found in wrong ones, and nothing in right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from course_lib.comm import (
    Group,
    Mesh,
    all_gather,
    all_reduce,
    copy_to_group,
    reduce_from_group,
    reduce_scatter,
    ring_reduce_scatter,
)
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import FSDP, BucketedDDP, Zero1, vocab_parallel_cross_entropy
from course_lib.ranks import ForkServer
from course_lib.ranks.pool.pool import Pool
from course_lib.spmd import Report, types_of
from course_lib.spmd.record import Recorder
from course_lib.train import tensor_parallel

CONFIG = ModelConfig(layers=1, hidden=16, heads=4, kv_heads=4, ffn=20, sequence=8)
Program = Callable[[Group], dict[str, Any]]


@pytest.fixture(scope="module")
def pool(server: ForkServer) -> Iterator[Pool]:
    """Four ranks that stay for this file."""
    with Pool(4, server) as started:
        yield started


def _recorded(group: Group, program: Program) -> dict[str, Any]:
    with Recorder(group.ledger) as record:
        names = program(group)
    return record.to_dict(names)


def report(pool: Pool, program: Program) -> Report:
    """The types of a program."""
    return types_of(pool.run(_recorded, program))


def block(group: Group, fault: str = "") -> dict[str, Any]:
    """A norm, columns, rows, a residual connection, a bias and a step."""
    torch.manual_seed(0)
    norm, bias = nn.LayerNorm(8), nn.Parameter(torch.zeros(8))
    A, B = torch.randn(8, 16), torch.randn(16, 8)  # noqa: N806
    a = A.chunk(group.size, 1)[group.index].clone().requires_grad_()
    b = B.chunk(group.size, 0)[group.index].clone().requires_grad_()
    x = norm(torch.randn(6, 8))
    z = F.gelu((x if fault == "no f" else copy_to_group(x, group)) @ a)
    part = z @ b + bias if fault == "bias" else z @ b
    out = part if fault == "no g" else reduce_from_group(part, group)
    out = reduce_from_group(out, group) if fault == "g twice" else out
    y = x + out if fault == "bias" else x + out + bias
    y.square().mean().backward()
    torch.optim.SGD([*norm.parameters(), a, b, bias], lr=0.1).step()
    return {"norm": norm, "a": a, "b": b, "z": z, "part": part, "y": y}


def test_types_of_a_tensor_parallel_block(pool: Pool) -> None:
    found = report(pool, block)
    types = {name: found.type_of(name, "world") for name in ("a", "b", "z", "part", "y")}
    assert types == {"a": "S(1)", "b": "S(0)", "z": "S(1)", "part": "P", "y": "R"}
    assert found.type_of("a.grad", "world") == "S(1)"
    assert found.type_of("norm.weight.grad", "world") == "R"
    assert found.findings == []
    assert "No sum is missing" in found.table()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("no f", "update"), ("no g", "nonlinear"), ("g twice", "counted"), ("bias", "added")],
)
def test_a_wrong_sum_of_the_block_is_found(pool: Pool, fault: str, kind: str) -> None:
    found = report(pool, lambda group: block(group, fault))
    assert kind in [each.kind for each in found.findings]
    assert found.findings[0].line.startswith("test_programs.py, line ")


def library_tensor_parallel(group: Group) -> dict[str, Any]:
    """The library's own cut of a transformer."""
    torch.manual_seed(0)
    model = Transformer(CONFIG).double()
    tensor_parallel(model, group)
    tokens = torch.randint(0, 256, (2, 9))
    logits = model(tokens[:, :-1])
    vocab_parallel_cross_entropy(logits, tokens[:, 1:], 256, group).mean().backward()
    torch.optim.AdamW(model.parameters()).step()
    return {"model": model}


def library_ddp(group: Group) -> dict[str, Any]:
    """The library's DDP, on own batches."""
    torch.manual_seed(group.index)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    ddp = BucketedDDP(model, group)
    ddp(torch.randn(5, 8)).square().mean().backward()
    torch.optim.AdamW(model.parameters()).step()
    return {"model": model}


def library_zero1(group: Group) -> dict[str, Any]:
    """The library's ZeRO-1, on own batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = Zero1(model.parameters(), torch.optim.AdamW, group)
    torch.manual_seed(group.index)
    model(torch.randn(5, 8)).square().mean().backward()
    optimizer.step()
    return {"model": model}


def library_fsdp(group: Group) -> dict[str, Any]:
    """The library's FSDP, on own batches."""
    torch.manual_seed(0)
    model = FSDP(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), group)
    torch.manual_seed(group.index)
    model(torch.randn(5, 8)).square().mean().backward()
    torch.optim.AdamW(model.parameters()).step()
    return {"model": model}


@pytest.mark.parametrize(
    "program", [library_tensor_parallel, library_ddp, library_zero1, library_fsdp]
)
def test_no_false_alarm_on_the_librarys_own_steps(pool: Pool, program: Program) -> None:
    found = report(pool, program)
    assert found.findings == []
    assert found.parted == ""
    assert len(found.rows) >= 4


def test_gradients_that_nobody_has_averaged(pool: Pool) -> None:
    def program(group: Group) -> dict[str, Any]:
        torch.manual_seed(0)
        model = nn.Linear(8, 4)
        torch.manual_seed(group.index)
        model(torch.randn(5, 8)).square().mean().backward()
        return {"model": model}

    found = report(pool, program)
    assert [each.kind for each in found.findings] == ["gradient", "gradient"]
    assert "model.weight is replicated on world" in found.findings[0].text


def test_a_sum_over_the_wrong_axis(pool: Pool) -> None:
    def program(group: Group) -> dict[str, Any]:
        mesh = Mesh(group, {"dp": 2, "tp": 2})
        dp, tp = mesh["dp"], mesh["tp"]
        torch.manual_seed(0)
        x = torch.randn(6, 8).chunk(2, 1)[tp.index]
        part = x @ torch.randn(8, 4).chunk(2, 0)[tp.index]
        before = part.clone()
        all_reduce(part, dp)
        return {"before": before, "part": part, "dp": dp, "tp": tp}

    found = report(pool, program)
    assert (found.type_of("before", "dp"), found.type_of("before", "tp")) == ("R", "P")
    [finding] = found.findings
    assert (finding.kind, finding.axis) == ("counted", "dp")
    assert "partial sum on tp" in finding.text


def test_counting_the_ranks_is_no_sum_of_replicas(pool: Pool) -> None:
    def program(group: Group) -> dict[str, Any]:
        count = torch.ones(1)
        all_reduce(count, group)
        share = torch.arange(4.0) / group.size
        all_reduce(share, group)
        return {"count": count, "share": share}

    found = report(pool, program)
    assert found.findings == []
    assert found.type_of("share", "world") == "R"


def test_a_view_of_a_whole_weight_is_this_ranks_piece(pool: Pool) -> None:
    def program(group: Group) -> dict[str, Any]:
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(8, 4))
        shard = nn.Parameter(weight.data.chunk(group.size)[group.index])
        torch.manual_seed(group.index)
        (torch.randn(5, 8) @ weight).square().mean().backward()
        shard.grad = torch.empty_like(shard)
        reduce_scatter(shard.grad, weight.grad, group, "avg")
        torch.optim.AdamW([shard]).step()
        all_gather(weight.data, shard.data, group)
        return {"weight": weight, "shard": shard}

    found = report(pool, program)
    assert found.findings == []
    assert found.type_of("weight", "world") == "R"


def test_ranks_may_do_something_alone(pool: Pool) -> None:
    def program(group: Group) -> dict[str, Any]:
        torch.manual_seed(0)
        x = torch.randn(6, 8)
        if group.index == 1:
            assert x.sum().item() < 100
        y = x.chunk(group.size, 1)[group.index] * 2
        return {"x": x, "y": y}

    found = report(pool, program)
    assert found.parted == ""
    assert (found.type_of("x", "world"), found.type_of("y", "world")) == ("R", "S(1)")


def test_nothing_is_near_a_nan(pool: Pool) -> None:
    """A partial sum with a NaN or an infinity in it is still one."""

    def program(group: Group) -> dict[str, Any]:
        torch.manual_seed(0)
        A, x = torch.randn(8, 4), torch.randn(2, 8)  # noqa: N806
        x[0] = float("inf")
        x[1, 3] = float("nan")
        mine = x.chunk(group.size, 1)[group.index] @ A.chunk(group.size, 0)[group.index]
        total = reduce_from_group(mine, group)
        return {"mine": mine, "total": total}

    found = report(pool, program)
    assert found.type_of("mine", "world") == "P"
    assert not found.findings, found.table()


def test_each_rank_writes_another_part(pool: Pool) -> None:
    """Where each rank writes the same at another place, the whole is not the same."""

    def program(group: Group) -> dict[str, Any]:
        ones, part = torch.zeros(group.size), torch.zeros(4 * group.size)
        ones[group.index] = 1.0
        twice = ones * 2
        part[4 * group.index : 4 * group.index + 4] = torch.arange(4.0)
        same = torch.zeros(4)
        same[1:3] = torch.arange(2.0)
        return {"ones": ones, "twice": twice, "part": part, "same": same}

    found = report(pool, program)
    names = ("ones", "twice", "part", "same")
    assert [found.type_of(name, "world") for name in names] == ["V", "V", "V", "R"]


def test_the_same_elements_in_another_order_are_not_the_same(pool: Pool) -> None:
    """Masks of a dropout: as many ones on each rank, at other places."""

    def mask(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.bernoulli(torch.full((16,), 0.5))

    seeds = [seed for seed in range(200) if mask(seed).sum() == 8][:4]

    def program(group: Group) -> dict[str, Any]:
        return {"kept": mask(seeds[group.index])}

    assert report(pool, program).type_of("kept", "world") == "V"


def test_values_of_every_kind_are_recorded(pool: Pool) -> None:
    """Conjugates and negatives have their bits elsewhere, sparse tensors have none in one place."""

    def program(group: Group) -> dict[str, Any]:
        z = torch.full((3,), 1 + 1j * (group.index + 1)).conj()
        imaginary, doubled = z.imag, z * 2
        table = nn.Embedding(4, 2, sparse=True)
        table(torch.tensor([1, 2])).sum().backward()
        given = torch.full((3, 2), float(group.index))
        product = torch.sparse.mm(torch.eye(3).to_sparse(), given)
        alike = torch.eye(3).to_sparse_csr() @ torch.ones(3, 2)
        return {"z": z, "imaginary": imaginary, "doubled": doubled, "table": table,
                "product": product, "alike": alike}  # fmt: skip

    found = report(pool, program)
    for name in ("imaginary", "doubled", "product"):
        assert found.type_of(name, "world") == "V", name
    assert found.type_of("alike", "world") == "R"


def test_what_one_rank_does_last(pool: Pool) -> None:
    def program(group: Group) -> dict[str, Any]:
        x = torch.ones(3) * 2
        if group.index == 0:
            x.sum() + 1
        return {"x": x}

    found = report(pool, program)
    assert not found.parted
    assert found.type_of("x", "world") == "R"


def test_calls_past_the_ledger_are_not_taken_for_those_in_it(pool: Pool) -> None:
    """What torch.distributed has written is seen anew, whatever comm has done before."""

    def program(group: Group) -> dict[str, Any]:
        mine = torch.zeros(2)
        parts = [torch.full((2,), float(rank)) for rank in range(group.size)]
        dist.scatter(mine, parts if group.index == 0 else None)
        torch.manual_seed(0)
        total, same = torch.full((2,), float(group.index)), torch.randn(4)
        all_reduce(total, group)
        dist.broadcast(same, 0)
        return {"total": total, "same": same, "mine": mine}

    found = report(pool, program)
    assert [found.type_of(name, "world") for name in ("total", "same", "mine")] == ["R", "R", "V"]
    assert not found.findings, found.table()


def test_a_ring_leaves_its_sum_in_one_chunk(pool: Pool) -> None:
    def program(group: Group) -> dict[str, Any]:
        x = torch.arange(8.0) + group.index
        ring_reduce_scatter(x, group)
        return {"x": x}

    assert report(pool, program).type_of("x", "world") == "V"
