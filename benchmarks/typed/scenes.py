"""One training step for each exercise: what its answer is used for, on four ranks.

A scene takes an answer's module and the group of all ranks. What it returns are named tensors and
modules; types are read of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, Mesh, all_gather_to_group, copy_to_group, reduce_from_group

Scene = Callable[[Any, Group], dict[str, Any]]
WIDTH, WIDE, ROWS = 8, 16, 6


def _seed(number: int = 0) -> None:
    torch.manual_seed(number)


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDTH)).double()


def _rows(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (ROWS, WIDTH)), dtype=torch.float64)


def _trained(loss: torch.Tensor, *parts: nn.Module | torch.Tensor) -> None:
    """A backward, and a step of SGD."""
    loss.backward()
    _step(*parts)


def _step(*parts: nn.Module | torch.Tensor) -> None:
    given = [[*p.parameters()] if isinstance(p, nn.Module) else [p] for p in parts]
    torch.optim.SGD([each for some in given for each in some], lr=0.1).step()


# --- data parallel -------------------------------------------------------------------------------
def naive_ddp(learner: Any, group: Group) -> dict[str, Any]:
    """Replicas that differ, own batches, gradients synchronised by hand."""
    _seed(group.index)
    model = _model()
    ddp = learner.NaiveDDP(model, group)
    ddp(_rows()).square().mean().backward()
    ddp.synchronize()
    _step(model)
    return {"model": model}


def overlap_ddp(learner: Any, group: Group) -> dict[str, Any]:
    """The same with hooks."""
    _seed(group.index)
    model = _model()
    ddp = learner.OverlapDDP(model, group)
    ddp(_rows()).square().mean().backward()
    ddp.wait()
    _step(model)
    return {"model": model}


def bucketed_ddp(learner: Any, group: Group) -> dict[str, Any]:
    """Equal replicas, own batches, two buckets, two steps."""
    _seed()
    model = _model()
    params = [*model.parameters()][::-1]
    ddp = learner.BucketedDDP(model, group, [params[:2], params[2:]])
    _seed(group.index)
    for _ in range(2):
        model.zero_grad()
        ddp(_rows()).square().mean().backward()
        ddp.synchronize()
        _step(model)
    return {"model": model}


def zero1(learner: Any, group: Group) -> dict[str, Any]:
    """Equal replicas, own batches, the state of the optimizer cut."""
    _seed()
    model = _model()
    optimizer = learner.Zero1(model.parameters(), torch.optim.AdamW, group, lr=0.1)
    _seed(group.index)
    for _ in range(2):
        optimizer.zero_grad()
        model(_rows()).square().mean().backward()
        optimizer.step()
    return {"model": model}


def fsdp_unit(learner: Any, group: Group) -> dict[str, Any]:
    """Weights cut between uses, own batches."""
    _seed()
    inner = nn.Linear(WIDTH, WIDTH).double()
    weights = [_rows(WIDTH, WIDE), _rows(WIDE, WIDTH)]
    unit = learner.FSDPUnit(lambda x, a, b: torch.tanh(x @ a) @ b, weights, group)
    _seed(group.index)
    for _ in range(2):
        unit(inner(_rows())).square().mean().backward()
        _step(unit)
    return {"unit": unit}


# --- tensor parallel -----------------------------------------------------------------------------
def f_and_g(learner: Any, group: Group) -> dict[str, Any]:
    """A replicated matrix, then a block with two matrices cut, beside a residual."""
    _seed()
    inner, first, second = (_rows(*s) for s in ((WIDTH, WIDTH), (WIDTH, WIDE), (WIDE, WIDTH)))
    a = first.chunk(group.size, 1)[group.index].clone().requires_grad_()
    b = second.chunk(group.size, 0)[group.index].clone().requires_grad_()
    inner.requires_grad_()
    h = torch.tanh(_rows() @ inner)
    y = h + learner.g(torch.tanh(learner.f(h, group) @ a) @ b, group)
    _trained(y.square().mean(), inner, a, b)
    return {"inner": inner, "a": a, "b": b, "y": y}


def column_parallel_linear(learner: Any, group: Group) -> dict[str, Any]:
    """A whole layer, then the columns, then rows by hand."""
    _seed()
    inner, full = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, WIDE).double()
    layer = learner.ColumnParallelLinear(full, group)
    rows = _rows(WIDE, WIDTH).chunk(group.size, 0)[group.index].clone().requires_grad_()
    out = reduce_from_group(F.gelu(layer(inner(_rows()))) @ rows, group)
    _trained(out.square().mean(), inner, layer, rows)
    return {"inner": inner, "layer": layer, "rows": rows, "out": out}


def row_parallel_linear(learner: Any, group: Group) -> dict[str, Any]:
    """Columns by hand, then the layer."""
    _seed()
    inner, full = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDE, WIDTH).double()
    layer = learner.RowParallelLinear(full, group)
    columns = _rows(WIDTH, WIDE).chunk(group.size, 1)[group.index].clone().requires_grad_()
    out = layer(F.gelu(copy_to_group(inner(_rows()), group) @ columns))
    _trained(out.square().mean(), inner, layer, columns)
    return {"inner": inner, "layer": layer, "columns": columns, "out": out}


def async_row_parallel(learner: Any, group: Group) -> dict[str, Any]:
    """The same with messages in pieces."""
    _seed()
    inner, full = nn.Linear(WIDTH, WIDTH).double(), _rows(WIDTH, WIDE)
    weight = full.chunk(group.size, 1)[group.index].clone().requires_grad_()
    columns = _rows(WIDTH, WIDE).chunk(group.size, 1)[group.index].clone().requires_grad_()
    x = F.gelu(copy_to_group(inner(_rows()), group) @ columns)
    out = learner.async_row_parallel(x, weight, 3, lambda x, w: x @ w.mT, group)
    _trained(out.square().mean(), inner, weight, columns)
    return {"inner": inner, "weight": weight, "columns": columns, "out": out}


def tensor_parallel_attention(learner: Any, group: Group) -> dict[str, Any]:
    """Four query heads, two key-value heads, which two ranks share each."""
    sharers = group.split([[0, 1], [2, 3]], "sharers")
    _seed()
    inner = nn.Linear(WIDTH, WIDTH).double()
    qkv = nn.Linear(WIDTH, 2 * (4 + 2 * 2), bias=False).double()
    output = nn.Linear(8, WIDTH, bias=False).double()
    layer = learner.TensorParallelAttention(qkv, output, 4, 2, group, sharers)
    x = inner(_rows(2, ROWS, WIDTH))
    y = x + layer(x)
    _trained(y.square().mean(), inner, layer)
    return {"inner": inner, "layer": layer, "y": y, "sharers": sharers}


def vocab_parallel_embedding(learner: Any, group: Group) -> dict[str, Any]:
    """A cut embedding and a whole layer."""
    _seed()
    full, layer = nn.Embedding(19, WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()
    tokens = torch.randint(19, (2, ROWS))
    part = learner.VocabParallelEmbedding(full, group)
    out = layer(part(tokens))
    _trained(out.square().mean(), part, layer)
    return {"part": part, "layer": layer, "out": out}


def vocab_parallel_cross_entropy(learner: Any, group: Group) -> dict[str, Any]:
    """A whole layer, a cut output layer, the loss."""
    _seed()
    inner = nn.Linear(WIDTH, WIDTH).double()
    columns = _rows(WIDTH, 20).chunk(group.size, 1)[group.index].clone().requires_grad_()
    targets = torch.randint(20, (2, ROWS))
    logits = copy_to_group(inner(_rows(2, ROWS, WIDTH)), group) @ columns
    loss = learner.vocab_parallel_cross_entropy(logits, targets, 20, group).mean()
    _trained(loss, inner, columns)
    return {"inner": inner, "columns": columns, "loss": loss}


# --- sequence parallel, meshes -------------------------------------------------------------------
def sequence_parallel_block(learner: Any, group: Group) -> dict[str, Any]:
    """A block on its part of the sequence, then the loss of all of it."""
    _seed()
    norm = nn.LayerNorm(WIDTH).double()
    up, down = (
        nn.Linear(WIDTH, WIDE, bias=False).double(),
        nn.Linear(WIDE, WIDTH).double(),
    )
    block = learner.SequenceParallelBlock(norm, up, down, group)
    x = _rows(2, 8, WIDTH).chunk(group.size, 1)[group.index]
    y = all_gather_to_group(block(x), 1, group)
    (y.square().sum() / group.size).backward()  # of its backward's sum each rank brings a part
    _step(block)
    return {"block": block, "y": y}


def museum_gradients(learner: Any, group: Group) -> dict[str, Any]:
    """The first exhibit: a block whose norms have seen a part of the tokens."""
    _seed()
    whole = learner.Block(WIDTH, WIDE)
    block = learner.Block(WIDTH, WIDE // group.size)
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            full = dict(whole.named_parameters())[name]
            if name in learner.CUT:
                full = full.chunk(group.size, int(name == "down.weight"))[group.index]
            parameter.copy_(full)
    engine = learner.start_engine(block, group)
    x = _rows().repeat(2, 1).chunk(group.size, 0)[group.index]
    _trained(engine(x, group).square().sum(), engine)
    return {"engine": engine}


def finalize_grads(learner: Any, group: Group) -> dict[str, Any]:
    """A norm and a cut matrix on dp 2 × tp 2, gradients of own tokens, sequence parallel."""
    mesh = Mesh(group, {"pp": 1, "dp": 2, "ep": 1, "cp": 1, "tp": 2})
    _seed()
    norm = nn.Parameter(_rows(WIDTH))
    cut = nn.Parameter(_rows(WIDTH, WIDE).chunk(2, 1)[mesh["tp"].index].clone())
    _seed(1 + group.index)
    norm.grad, cut.grad = _rows(WIDTH), _rows(WIDTH, WIDE // 2)
    held = [learner.Held(norm, "norm"), learner.Held(cut, "other")]
    learner.finalize_grads(held, mesh, None, True)
    _step(norm, cut)
    return {"norm": norm, "cut": cut, "dp": mesh["dp"], "tp": mesh["tp"]}


def expert_grad_sync(learner: Any, group: Group) -> dict[str, Any]:
    """An expert that two ranks have, and a router that all have."""
    replicas = group.split([[0, 2], [1, 3]], "replicas")
    _seed(100 + group.index % 2)
    expert = nn.Parameter(_rows())
    _seed()
    router = nn.Parameter(_rows())
    _seed(1 + group.index)
    expert.grad, router.grad = _rows(), _rows()
    learner.expert_grad_sync([expert], [router], replicas, group)
    _step(expert, router)
    return {"expert": expert, "router": router, "replicas": replicas, "world": group}


SCENES: dict[str, Scene] = {
    "02_ddp/naive_ddp": naive_ddp,
    "02_ddp/overlap_ddp": overlap_ddp,
    "02_ddp/bucketed_ddp": bucketed_ddp,
    "04_zero/zero1": zero1,
    "04_zero/fsdp_unit": fsdp_unit,
    "06_tensor_parallel/f_and_g": f_and_g,
    "06_tensor_parallel/column_parallel_linear": column_parallel_linear,
    "06_tensor_parallel/row_parallel_linear": row_parallel_linear,
    "06_tensor_parallel/async_row_parallel": async_row_parallel,
    "06_tensor_parallel/tensor_parallel_attention": tensor_parallel_attention,
    "06_tensor_parallel/vocab_parallel_embedding": vocab_parallel_embedding,
    "06_tensor_parallel/vocab_parallel_cross_entropy": vocab_parallel_cross_entropy,
    "07_context_parallel/sequence_parallel_block": sequence_parallel_block,
    "12_expert_parallel/expert_grad_sync": expert_grad_sync,
    "13_3d_parallelism/finalize_grads": finalize_grads,
    "14_profiling_and_debugging/museum_gradients": museum_gradients,
}
