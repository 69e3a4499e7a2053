"""Expert parallelism beside one process: gradients, weights, biases, and bytes to the byte."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.checkpoint import hold_whole, load_resharded, model_pieces, save_sharded
from course_lib.comm import CommError, Group, Mesh
from course_lib.model import (
    ModelConfig,
    MoE,
    MoEConfig,
    Transformer,
    auxiliary_loss,
    expert_parameters,
    update_router_bias,
)
from course_lib.model.moe import moe_layers
from course_lib.parallel import (
    BucketedDDP,
    ExpertParallel,
    Zero1,
    average_over_replicas,
    vocab_parallel_cross_entropy,
)
from course_lib.recompute import checkpoint_module
from course_lib.train import expert_parallel, tensor_parallel

SIZES: dict[str, Any] = {"hidden": 8, "heads": 2, "kv_heads": 1, "ffn": 6, "vocabulary": 23,
                         "sequence": 5, "layers": 2}  # fmt: skip
STEPPERS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}
# Added to the scores: a router that knows its favourites, and leaves some experts without a token.
SKEWS = {"even": [0.0] * 5, "skewed": [3.0, 0, 0, -3, -3], "one": [-3.0, -3, -3, -3, 3]}
# Rows of the batch that each rank has, out of 7.
ROWS = {1: [7], 2: [5, 2], 3: [1, 4, 2], 4: [3, 1, 1, 2]}
Result = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


def config_of(top_k: int = 2, **moe: Any) -> ModelConfig:
    options = {"experts": 5, "top_k": top_k, "bias_rate": 0.001, "balance": 0.1, "z": 0.01, **moe}
    return ModelConfig(**SIZES, moe=MoEConfig(**options))


def model_of(config: ModelConfig, skew: str = "even") -> Transformer:
    model = Transformer(config, seed=3).double()
    for moe in moe_layers(model):
        with torch.no_grad():
            moe.router.weight.mul_(20)  # scores far enough apart for an expert to be one's own
            moe.router.bias.copy_(torch.tensor(SKEWS[skew]))
    return model


def batch_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(40 + step)
    return torch.randint(23, (7, SIZES["sequence"] + 1), generator=generator)


def loss_sum(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits, targets = model(tokens[:, :-1]), tokens[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def train(model: nn.Module, stepper: str, backward: Any) -> Result:
    """Gradients of the first step, and weights and biases after the third."""
    optimizer = STEPPERS[stepper](model.parameters())
    first = {}
    for step in range(3):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        backward(step)
        if not step:
            first = {n: p.grad.clone() for n, p in model.named_parameters()}
        optimizer.step()
        update_router_bias(model)
    return first, {n: t.detach().clone() for n, t in model.state_dict().items()}


def alone(config: ModelConfig, skew: str, stepper: str) -> Result:
    model = model_of(config, skew)

    def backward(step: int) -> None:
        tokens = batch_of(step)
        loss = loss_sum(model, tokens) / tokens[:, 1:].numel()
        (loss + auxiliary_loss(model)).backward()

    return train(model, stepper, backward)


def spread(group: Group, config: ModelConfig, ep: int, skew: str, stepper: str) -> Result:
    """The same on ranks that share the experts `ep` at a time, each with its own rows."""
    mesh = Mesh(group, {"dp": group.size // ep, "ep": ep})
    model = model_of(config, skew)
    expert_parallel(model, mesh["ep"], group)
    experts = expert_parameters(model)
    wrapped = BucketedDDP(model, group, skip=experts)

    def backward(step: int) -> None:
        whole = batch_of(step)
        mine = whole.split(ROWS[group.size])[group.index]
        loss = loss_sum(wrapped, mine) / whole[:, 1:].numel() * group.size
        (loss + auxiliary_loss(model)).backward()
        average_over_replicas(experts, mesh["dp"])

    return train(model, stepper, backward)


def check(results: list[Result], expected: Result, ep: int) -> None:
    """Each rank's part is the whole's, and ranks that share experts have all of them together."""
    for rank, found in enumerate(results):
        for parts, whole in zip(found, expected, strict=True):
            for name, part in parts.items():
                torch.testing.assert_close(part, whole[name], rtol=1e-9, atol=1e-12, msg=name)
        line = range(rank - rank % ep, rank - rank % ep + ep)
        assert {name for other in line for name in results[other][1]} == set(expected[1])


@pytest.mark.parametrize("stepper", list(STEPPERS))
@pytest.mark.parametrize(
    ("world", "ep", "top_k", "skew"),
    [(1, 1, 2, "even"), (2, 2, 1, "one"), (2, 1, 2, "even"), (3, 3, 3, "even"),
     (3, 3, 2, "skewed"), (4, 2, 2, "skewed"), (4, 4, 2, "even"), (4, 4, 1, "one")],
)  # fmt: skip
def test_equal_to_one_process(
    ranks: Any, world: int, ep: int, top_k: int, skew: str, stepper: str
) -> None:
    config = config_of(top_k)
    results = ranks(spread, world, config, ep, skew, stepper)
    check(results, alone(config, skew, stepper), ep)
    experts = sum(".experts." in name for name in results[0][1])
    assert experts < 2 * 5 * 3 or ep == 1, "a rank holds its part of the experts"


# --- a layer by itself ---------------------------------------------------------------------------
def layer_of(**moe: Any) -> MoE:
    torch.manual_seed(2)
    return MoE(config_of(**{"experts": 5, **moe})).double()


def tokens_of(counts: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in counts]


def spread_layer(group: Group, counts: list[int], moe: dict[str, Any]) -> Any:
    layer = layer_of(**moe)
    expert_parallel(layer, group, group)
    x_TD = tokens_of(counts)[group.index].requires_grad_()
    y_TD = layer(x_TD)
    (y_TD.pow(2).sum() + auxiliary_loss(layer)).backward()
    grads = {name: p.grad for name, p in layer.named_parameters()}
    return y_TD.detach(), x_TD.grad, grads


@pytest.mark.parametrize("counts", [[0, 9], [4, 0, 7], [0, 0, 0, 3], [0, 0]], ids=str)
def test_ranks_without_tokens_take_part(ranks: Any, counts: list[int]) -> None:
    layer, world = layer_of(), len(counts)
    x_TD = torch.cat(tokens_of(counts)).requires_grad_()
    y_TD = layer(x_TD)
    (y_TD.pow(2).sum() + world * auxiliary_loss(layer)).backward()
    expected = {name: p.grad for name, p in layer.named_parameters()}
    results = ranks(spread_layer, world, counts, {})
    close = {"rtol": 1e-10, "atol": 1e-13}
    torch.testing.assert_close(torch.cat([r[0] for r in results]), y_TD.detach(), **close)
    torch.testing.assert_close(torch.cat([r[1] for r in results]), x_TD.grad, **close)
    router = sum(r[2]["router.weight"] for r in results)
    torch.testing.assert_close(router, expected["router.weight"], **close)
    for _, _, grads in results:
        for name in [n for n in grads if ".experts." in f".{n}"]:
            assert grads[name] is not None, f"{name} has no gradient"
            torch.testing.assert_close(grads[name] * world, expected[name], **close)


def test_an_expert_that_nobody_chose_has_gradients_of_zero(ranks: Any) -> None:
    def run(group: Group) -> dict[str, bool]:
        layer = layer_of()
        layer.router.bias[2:] = -9
        expert_parallel(layer, group, group)
        layer(tokens_of([6] * 3)[group.index]).sum().backward()
        return {n: bool(p.grad.any()) for n, p in layer.experts.named_parameters()}

    found = {name: any_ for result in ranks(run, 3) for name, any_ in result.items()}
    assert len(found) == 15
    assert found == {name: name[0] in "01" for name in found}


def test_capacity_is_of_each_ranks_own_tokens(ranks: Any) -> None:
    moe = {"capacity_factor": 0.7, "balance": 0.0, "z": 0.0}
    counts = [6, 10, 3]
    layer, outputs = layer_of(**moe), []
    for x_TD in tokens_of(counts):
        outputs.append(layer(x_TD))
        outputs[-1].pow(2).sum().backward()
    assert any((y_TD == 0).all(1).any() for y_TD in outputs), "nothing was dropped"
    results = ranks(spread_layer, 3, counts, moe)
    for result, y_TD in zip(results, outputs, strict=True):
        torch.testing.assert_close(result[0], y_TD.detach(), rtol=1e-10, atol=1e-13)
    expected = {name: p.grad for name, p in layer.experts.named_parameters()}
    for name, right in expected.items():
        found = next(r[2][f"experts.{name}"] for r in results if f"experts.{name}" in r[2])
        torch.testing.assert_close(found * 3, right, rtol=1e-10, atol=1e-13)


# --- bytes ---------------------------------------------------------------------------------------
def routed_traffic(group: Group, experts: int, chosen: list[torch.Tensor]) -> Any:
    """Bytes sent by each call, forward and backward, with 8 numbers of 8 bytes a row."""
    spread_experts = ExpertParallel(experts, group)
    every = nn.ModuleDict({str(number): nn.Linear(8, 8).double() for number in range(experts)})
    spread_experts.keep_own(every)
    mine_TK = chosen[group.index]
    x_TD = tokens_of([len(mine_TK)])[0].requires_grad_()
    place = group.ledger.place()
    y_TD = spread_experts(every, x_TD, mine_TK, torch.ones(mine_TK.shape, dtype=torch.float64))
    middle = group.ledger.place()
    y_TD.sum().backward()
    events = group.ledger.events
    assert {e.op for e in events[place.events :]} == {"all_to_all"}
    return ([e.sent for e in events[place.events : middle.events]],
            [e.sent for e in events[middle.events :]])  # fmt: skip


@pytest.mark.parametrize("world", [2, 3, 4])
def test_bytes_of_even_use_are_the_formula(ranks: Any, world: int) -> None:
    tokens, top_k, experts = 2 * world, 2, 2 * world
    # Choice number c of every rank goes to expert c mod E: as many to each rank.
    one = torch.arange(tokens * top_k).view(tokens, top_k) % experts
    travel = tokens * top_k * 8 * 8 * (world - 1) // world
    counts = (experts - 2) * 8
    for found in ranks(routed_traffic, world, experts, [one] * world):
        assert found == ([counts, travel, travel], [travel, travel])


@pytest.mark.parametrize("world", [2, 3])
def test_bytes_of_uneven_use_are_the_rows_of_others(ranks: Any, world: int) -> None:
    generator = torch.Generator().manual_seed(5)
    chosen = [torch.rand(3 + rank, 5, generator=generator).topk(2).indices for rank in range(world)]
    chosen[0][1, 1] = 5  # dropped: does not travel
    owner = torch.arange(5).tensor_split(world)
    sizes = [len(part) for part in owner]
    of = torch.arange(world).repeat_interleave(torch.tensor(sizes)).tolist() + [-1]
    # rows[a][b]: what rank a sends to the experts of rank b.
    rows = [[[of[e] for e in c.flatten().tolist()].count(b) for b in range(world)] for c in chosen]
    for rank, found in enumerate(ranks(routed_traffic, world, 5, chosen)):
        sent = 64 * (sum(rows[rank]) - rows[rank][rank])
        received = 64 * (sum(line[rank] for line in rows) - rows[rank][rank])
        counts = (5 - sizes[rank]) * 8
        assert found == ([counts, sent, received], [sent, received])


def model_traffic(group: Group, recompute: bool) -> list[str]:
    model = model_of(config_of())
    expert_parallel(model, group, group)
    if recompute:
        for moe in moe_layers(model):
            checkpoint_module(moe)
    wrapped = BucketedDDP(model, group, skip=expert_parameters(model))
    place = group.ledger.place()
    tokens = batch_of(group.index)
    (loss_sum(wrapped, tokens) + auxiliary_loss(model)).backward()
    payload = 5 * 8  # the counts of five experts
    return [
        "counts" if e.op == "all_reduce" and e.payload == payload else e.op
        for e in group.ledger.events[place.events :]
        if e.op != "broadcast"  # of the routers' biases, which are buffers
    ]


def test_calls_of_a_step(ranks: Any) -> None:
    layers = SIZES["layers"]
    forward = ["counts"] + ["all_to_all"] * 3
    for calls in ranks(model_traffic, 2, False):
        assert [c for c in calls if c != "all_reduce"] == [
            *forward * layers, *["all_to_all"] * 2 * layers
        ]  # fmt: skip
        assert "all_reduce" in calls
    for calls in ranks(model_traffic, 2, True):
        # A block that is computed again sends again, on every rank.
        again = [*forward, "all_to_all", "all_to_all"]
        assert [c for c in calls if c != "all_reduce"] == [*forward * layers, *again * layers]


def test_replicas_of_experts_cost_an_all_reduce_of_their_own(ranks: Any) -> None:
    def run(group: Group) -> Any:
        mesh = Mesh(group, {"dp": 2, "ep": 2})
        model = model_of(config_of())
        expert_parallel(model, mesh["ep"], group)
        loss_sum(model, batch_of(0)).backward()
        place = group.ledger.place()
        average_over_replicas(expert_parameters(model), mesh["dp"])
        calls = [(e.op, e.axis, e.sent) for e in group.ledger.events[place.events :]]
        return calls, sum(p.nbytes for p in expert_parameters(model))

    for calls, size in ranks(run, 4):
        assert calls == [("all_reduce", "dp", size)]  # 2(R-1)/R = 1
    assert [size for _, size in ranks(run, 4)] == [2 * n * 3 * 8 * 6 * 8 for n in (3, 2, 3, 2)]


# --- together with others ------------------------------------------------------------------------
def test_recomputed_blocks_give_the_same(ranks: Any) -> None:
    def run(group: Group, recompute: bool) -> dict[str, torch.Tensor]:
        model = model_of(config_of(), "skewed")
        expert_parallel(model, group, group)
        if recompute:
            for block in model.blocks:
                checkpoint_module(block)
        mine = batch_of(0).split(ROWS[3])[group.index]
        (loss_sum(model, mine) + auxiliary_loss(model)).backward()
        update_router_bias(model)
        return {**{n: p.grad for n, p in model.named_parameters()}, **dict(model.named_buffers())}

    for plain, again in zip(ranks(run, 3, False), ranks(run, 3, True), strict=True):
        torch.testing.assert_close(again, plain, rtol=1e-12, atol=1e-15)


def test_accumulated_over_two_windows(ranks: Any) -> None:
    def run(group: Group) -> dict[str, torch.Tensor]:
        mesh = Mesh(group, {"dp": 2, "ep": 2})
        model = model_of(config_of())
        expert_parallel(model, mesh["ep"], group)
        experts = expert_parameters(model)
        wrapped = BucketedDDP(model, group, skip=experts)

        def backward(step: int) -> None:
            mine = batch_of(step)[:4].split(1)[group.index]
            (loss_sum(wrapped, mine) + auxiliary_loss(model)).backward()

        with wrapped.no_sync():
            backward(0)
        backward(1)
        average_over_replicas(experts, mesh["dp"])
        return {n: p.grad for n, p in model.named_parameters()}

    model = model_of(config_of())
    for step in range(2):
        loss = loss_sum(model, batch_of(step)[:4]) / 4 + auxiliary_loss(model)
        loss.backward()
    expected = {n: p.grad for n, p in model.named_parameters()}
    for grads in ranks(run, 4):
        for name, grad in grads.items():
            torch.testing.assert_close(grad, expected[name], rtol=1e-9, atol=1e-12, msg=name)


def test_beside_tensor_parallelism(ranks: Any) -> None:
    config = replace(config_of(), kv_heads=2)

    def run(group: Group) -> Any:
        mesh = Mesh(group, {"ep": 2, "tp": 2})
        model = model_of(config)
        tensor_parallel(model, mesh["tp"])
        expert_parallel(model, mesh["ep"], mesh["ep"])
        wrapped = BucketedDDP(model, mesh["ep"], skip=expert_parameters(model))
        mine = batch_of(0)[:4].split(2)[mesh["ep"].index]
        calls = [len(group.ledger.calls(axis="tp"))]
        logits = wrapped(mine[:, :-1])
        calls.append(len(group.ledger.calls(axis="tp")))
        loss = vocab_parallel_cross_entropy(logits, mine[:, 1:], 23, mesh["tp"]).mean()
        calls.append(len(group.ledger.calls(axis="tp")))
        (loss + auxiliary_loss(model)).backward()
        calls.append(len(group.ledger.calls(axis="tp")))
        return {n: p.grad for n, p in model.named_parameters()}, calls

    model = model_of(config)
    tokens = batch_of(0)[:4]
    (loss_sum(model, tokens) / tokens[:, 1:].numel() + auxiliary_loss(model)).backward()
    expected = {n: p.grad for n, p in model.named_parameters()}
    for rank, (grads, (begin, forward, loss, end)) in enumerate(ranks(run, 4)):
        for name, grad in grads.items():
            whole = expected[name]
            cut = [d for d in range(whole.dim()) if whole.shape[d] != grad.shape[d]]
            part = whole.tensor_split(2, cut[0])[rank % 2] if cut else whole
            torch.testing.assert_close(grad, part, rtol=1e-9, atol=1e-12, msg=name)
        assert forward - begin == 2 * SIZES["layers"] + 1, "sums leave once for all experts"
        assert end - loss == 3 * SIZES["layers"] + 1, "tokens and weights enter once"


def test_beside_zero(ranks: Any) -> None:
    """Two optimizers: one shards over all ranks, the experts' one over those that hold the same."""

    def run(group: Group) -> dict[str, torch.Tensor]:
        mesh = Mesh(group, {"dp": 2, "ep": 2})
        model = model_of(config_of())
        expert_parallel(model, mesh["ep"], group)
        experts = expert_parameters(model)
        others = [p for p in model.parameters() if all(p is not e for e in experts)]
        optimizers = [
            Zero1(others, torch.optim.AdamW, group, lr=0.01),
            Zero1(experts, torch.optim.AdamW, mesh["dp"], lr=0.01),
        ]
        for step in range(3):
            mine = batch_of(step)[:4].split(1)[group.index]
            (loss_sum(model, mine) + auxiliary_loss(model)).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return {n: p.detach() for n, p in model.named_parameters()}

    model = model_of(config_of())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        (loss_sum(model, batch_of(step)[:4]) / 4 + auxiliary_loss(model)).backward()
        optimizer.step()
    expected = {n: p.detach() for n, p in model.named_parameters()}
    for weights in ranks(run, 4):
        for name, weight in weights.items():
            torch.testing.assert_close(weight, expected[name], rtol=1e-9, atol=1e-12, msg=name)


def test_a_checkpoint_does_not_show_where_experts_were(ranks: Any, tmp_path: Path) -> None:
    def save(group: Group) -> None:
        model = model_of(config_of())
        expert_parallel(model, group, group)
        save_sharded(model_pieces(hold_whole(model)), tmp_path, group, step=1)

    def load(group: Group) -> list[str]:
        model = model_of(config_of())
        expert_parallel(model, group, group)
        right = {n: t.clone() for n, t in model.state_dict().items()}
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.zero_()
        load_resharded(model_pieces(hold_whole(model)), tmp_path, group)
        return [n for n, t in model.state_dict().items() if not torch.equal(t, right[n])]

    ranks(save, 3)
    assert ranks(load, 2) == [[], []]


# --- refusals ------------------------------------------------------------------------------------
def test_fewer_experts_than_ranks_are_refused(ranks: Any) -> None:
    def run(group: Group) -> str:
        with pytest.raises(CommError) as caught:
            ExpertParallel(2, group)
        return str(caught.value)

    for text in ranks(run, 3):
        assert text.startswith("asked: 2 experts, spread over 3 ranks")
        assert text.count("\n") == 2


def test_experts_of_another_rank_are_refused(ranks: Any) -> None:
    def run(group: Group) -> None:
        layer = layer_of()
        layer.experts.run = ExpertParallel(5, group)  # without keep_own
        with pytest.raises(CommError, match="keep_own"):
            layer(tokens_of([3])[0])

    ranks(run, 2)


def test_experts_are_cut_once(ranks: Any) -> None:
    """As by running a cell again: a second hook would divide their gradients once more."""

    def run(group: Group) -> None:
        layer = layer_of()
        expert_parallel(layer, group, group)
        with pytest.raises(CommError, match="a second time"):
            expert_parallel(layer, group, group)

    ranks(run, 2)


def test_a_copy_trains_on_the_same_gradients(ranks: Any) -> None:
    def run(group: Group) -> None:
        layer = layer_of()
        expert_parallel(layer, group, group)
        grads = []
        for module in (layer, copy.deepcopy(layer)):
            module(tokens_of([3, 2])[group.index]).pow(2).sum().backward()
            grads.append([p.grad for p in module.experts.parameters()])
        for mine, copied in zip(*grads, strict=True):
            torch.testing.assert_close(copied, mine)

    ranks(run, 2)


def test_experts_are_not_cut_along_a_sequence(ranks: Any) -> None:
    def run(group: Group) -> None:
        with pytest.raises(CommError, match="many sequences"):
            tensor_parallel(model_of(config_of()), group, sequence=True)

    ranks(run, 2)
