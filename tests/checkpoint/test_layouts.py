"""Training that goes on in another layout, on another number of ranks, as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib.checkpoint import (
    Box,
    CheckpointError,
    Held,
    Piece,
    find_checkpoint,
    hold_fsdp,
    hold_tensor_parallel,
    hold_whole,
    hold_zero,
    load_resharded,
    make_states,
    model_pieces,
    open_checkpoint,
    optimizer_pieces,
    save_sharded,
)
from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import (
    FSDP,
    BucketedDDP,
    Pipeline,
    Zero1,
    Zero2,
    sum_tied_gradient,
    vocab_parallel_cross_entropy,
)
from course_lib.schedule import one_f_one_b
from course_lib.trace.memory import LiveMemory
from course_lib.train import pipeline_stages, tensor_parallel
from course_lib.train.stage import tied_pair
from tests.tiers import sampled

ROWS, OPTIONS = 12, {"lr": 0.01, "weight_decay": 0.1}


def config_of(kv_heads: int, tied: bool = False) -> ModelConfig:
    return ModelConfig(layers=4, hidden=24, heads=12, kv_heads=kv_heads, ffn=31, vocabulary=29,
                       sequence=6, tied=tied)  # fmt: skip


def batch_of(step: int) -> torch.Tensor:
    return torch.randint(29, (ROWS, 7), generator=torch.Generator().manual_seed(step))


def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


@dataclass
class Job:
    """A training in some layout.

    Attributes:
        model: what each rank holds of the parameters.
        states: what it holds of the optimizer's.
        optimizer: whose states those are.
        train: one step on the whole batch.
    """

    model: list[Held]
    states: list[Held]
    optimizer: torch.optim.Optimizer
    train: Callable[[torch.Tensor], None]

    def pieces(self) -> list[Piece]:
        return model_pieces(self.model) + optimizer_pieces(self.states, self.optimizer)


def data_parallel(group: Group, config: ModelConfig, layout: str) -> Job:
    """DDP, ZeRO and FSDP: each rank has its rows of the batch."""
    # Seeds that differ, so that a parameter that is not loaded is noticed.
    model: Any = Transformer(config, seed=group.rank + 50).double()
    inner = model
    if layout == "fsdp":
        model = FSDP(model, group, model.blocks)
    elif layout == "hsdp":
        mesh = Mesh(group, {"replica": 2, "shard": group.size // 2})
        model = FSDP(model, mesh["shard"], model.blocks, replicas=mesh["replica"])
    elif layout == "ddp":
        model = BucketedDDP(model, group)
    kind = {"zero1": Zero1, "zero2": Zero2}.get(layout)
    optimizer: Any = (
        kind(model.parameters(), torch.optim.AdamW, group, cap=20_000, **OPTIONS)
        if kind else torch.optim.AdamW(model.parameters(), **OPTIONS)
    )  # fmt: skip

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss_of(model, batch.chunk(group.size)[group.index]).backward()
        optimizer.step()

    if kind:
        return Job(hold_whole(model), hold_zero(model, optimizer), optimizer.inner, train)
    held = hold_fsdp(model) if isinstance(model, FSDP) else hold_whole(inner)
    return Job(held, held, optimizer, train)


def tensor_cut(group: Group, config: ModelConfig, layout: str) -> Job:
    model = Transformer(config, seed=50).double()
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tensor_parallel(model, group)
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        vocab_parallel_cross_entropy(logits, batch[:, 1:], 29, group).mean().backward()
        optimizer.step()

    held = hold_tensor_parallel(model, shapes, group)
    return Job(held, held, optimizer, train)


def staged(group: Group, config: ModelConfig, layout: str) -> Job:
    schedule = one_f_one_b(group.size, 4)
    stages = pipeline_stages(Transformer(config, seed=50).double(), schedule, group)

    def border(tokens: torch.Tensor) -> torch.Tensor:
        return torch.empty(*tokens.shape, config.hidden, dtype=torch.float64)

    def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    pipe = Pipeline(stages, schedule, group, loss=cross_entropy, border=border)
    parameters = dict.fromkeys(p for stage in stages.values() for p in stage.parameters())
    optimizer = torch.optim.AdamW(parameters, **OPTIONS)
    pair = tied_pair(schedule, group) if config.tied else None

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        parts = batch.tensor_split(4)
        pipe.step([(p[:, :-1], p[:, 1:]) for p in parts], [len(p) / ROWS for p in parts])
        if pair is not None:
            ends = [w for s in stages.values() for w in (s.embedding, s.head) if w is not None]
            sum_tied_gradient(ends[0].weight, pair)
        optimizer.step()

    held = [h for stage in stages.values() for h in hold_whole(stage)]
    return Job(held, held, optimizer, train)


MAKE = {"tp": tensor_cut, "pp": staged}


def hop(group: Group, layout: str, config: ModelConfig, step: int, folder: Path) -> None:
    """Loads what there is, trains one step, saves."""
    job = MAKE.get(layout, data_parallel)(group, config, layout)
    if step:
        manifest = open_checkpoint(folder, group).manifest
        assert manifest.step == manifest.extra["position"] == step
        make_states(job.states, job.optimizer, manifest)
        load_resharded(job.pieces(), folder, group)
    else:  # all begin with the same values, from a seed
        whole = Transformer(config, seed=3).double().state_dict()
        for piece in model_pieces(job.model):
            name = piece.name.removeprefix("model.")
            slices = tuple(
                slice(o, o + s) for o, s in zip(piece.box.offsets, piece.box.sizes, strict=True)
            )
            piece.tensor.copy_(whole[name][slices])
    job.train(batch_of(step))
    save_sharded(job.pieces(), folder, group, step=step + 1, extra={"position": step + 1})


def alone(config: ModelConfig, steps: int) -> list[dict[str, torch.Tensor]]:
    """One process that is never interrupted: parameters and states by name, after each step."""
    model = Transformer(config, seed=3).double()
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
    seen = []
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch_of(step)).backward()
        optimizer.step()
        state = {f"model.{n}": t.clone() for n, t in model.state_dict().items()}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            for key, value in optimizer.state[parameter].items():
                state[f"optimizer.{name}.{key}"] = value.clone()
        seen.append(state)
    return seen


def read_all(folder: Path, step: int) -> dict[str, torch.Tensor]:
    """Everything in a checkpoint, by name."""
    checkpoint = find_checkpoint(folder, step)
    from course_lib.checkpoint.files.manifest import DTYPES

    blank = {name: torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
             for name, entry in checkpoint.manifest.tensors.items()}  # fmt: skip
    checkpoint.read([Piece(n, tuple(t.shape), Box.whole(t.shape), t) for n, t in blank.items()])
    return blank


CHAINS = {
    "every layout": (2, False, "ddp1 zero1-2 fsdp3 tp4 pp2 zero2-3 tp2 fsdp4 pp4 ddp2 tp1 zero2-4 "
                               "ddp3 pp3 hsdp4 zero1-1 fsdp2 tp4"),
    "tied": (1, True, "pp2 ddp1 tp3 pp4 fsdp3 zero1-2 pp3 tp2 zero2-3 pp1"),
    "fsdp": (12, False, "fsdp4 fsdp3 fsdp2 fsdp1"),
    "zero": (12, False, "zero1-1 zero1-2 zero2-3 zero1-4 zero1-1"),
    "tp": (12, False, "tp1 tp2 tp3 tp4 tp1"),
    "pp": (12, False, "pp4 pp3 pp2 pp1"),
}  # fmt: skip


@pytest.mark.parametrize("chain", sampled(CHAINS, 3))
def test_training_goes_on_in_another_layout(ranks: Any, tmp_path: Path, chain: str) -> None:
    """A step in each; all that is saved then is as in one process that was never interrupted."""
    kv_heads, tied, hops = CHAINS[chain]
    config = config_of(kv_heads, tied)
    expected = alone(config, len(hops.split()))
    for step, word in enumerate(hops.split()):
        ranks(hop, int(word[-1]), word[:-1].rstrip("-"), config, step, tmp_path)
        found = read_all(tmp_path, step + 1)
        assert found.keys() == expected[step].keys(), word
        for name, tensor in found.items():
            torch.testing.assert_close(
                tensor, expected[step][name], rtol=1e-8, atol=1e-11, msg=f"{word}: {name}"
            )


def test_the_same_layout_goes_on_bit_for_bit(ranks: Any, tmp_path: Path) -> None:
    def run(group: Group, interrupted: bool) -> dict[str, torch.Tensor]:
        job = data_parallel(group, config_of(2), "fsdp")
        for step in range(4):
            if interrupted and step == 2:
                save_sharded(job.pieces(), tmp_path, group, step=2)
                job = data_parallel(group, config_of(2), "fsdp")
                make_states(job.states, job.optimizer, open_checkpoint(tmp_path, group).manifest)
                load_resharded(job.pieces(), tmp_path, group)
            job.train(batch_of(step))
        return {f"{p.name} {p.box}": p.tensor.clone() for p in job.pieces()}

    for straight, resumed in zip(ranks(run, 3, False), ranks(run, 3, True), strict=True):
        assert straight.keys() == resumed.keys()
        assert all(torch.equal(tensor, resumed[key]) for key, tensor in straight.items())


def test_padding_is_in_no_file(ranks: Any, tmp_path: Path) -> None:
    def save(group: Group) -> None:
        model = torch.nn.Linear(5, 1)
        save_sharded(model_pieces(hold_fsdp(FSDP(model, group))), tmp_path, group, step=0)

    ranks(save, 4)  # six elements in four shards of two
    checkpoint = find_checkpoint(tmp_path)
    assert sum(checkpoint.manifest.files.values()) == 6 * 4
    assert len(checkpoint.manifest.files) == 3


def test_a_rank_of_fsdp_holds_its_share_only(ranks: Any, tmp_path: Path) -> None:
    """Saved on 4 ranks, loaded on 3: what loading adds is the states and one block."""

    def job(group: Group) -> tuple[FSDP, Any]:
        layers = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
        model = FSDP(layers, group, layers)
        return model, torch.optim.AdamW(model.parameters())

    def save(group: Group) -> None:
        model, optimizer = job(group)
        model(torch.ones(1, 512)).sum().backward()
        optimizer.step()
        held = hold_fsdp(model)
        pieces = model_pieces(held) + optimizer_pieces(held, optimizer)
        save_sharded(pieces, tmp_path, group, step=1)

    def load(group: Group) -> Any:
        model, optimizer = job(group)
        held = hold_fsdp(model)
        with LiveMemory() as memory:
            make_states(held, optimizer, open_checkpoint(tmp_path, group).manifest)
            states = memory.now
            pieces = model_pieces(held) + optimizer_pieces(held, optimizer)
            load_resharded(pieces, tmp_path, group)
        return states, memory.peak

    ranks(save, 4)
    whole = 4 * (512 * 512 + 512) * 4
    for states, peak in ranks(load, 3):
        assert states <= 2 * -(-whole // 3) + 200
        assert peak - states < (1 << 20) + (100 << 10), "a block, and some text"


def test_what_a_cut_cannot_be_is_refused(ranks: Any) -> None:
    def run(group: Group) -> str:
        module = torch.nn.Linear(5, 3)
        try:
            hold_tensor_parallel(module, {"weight": (9, 5), "bias": (9,)}, group)
        except CheckpointError as error:
            return str(error)
        return ""

    for text in ranks(run, 2):
        assert "weight, shape (9, 5)" in text and len(text.splitlines()) == 3


def test_what_a_cut_module_keeps_beside_its_tensors_is_refused(ranks: Any) -> None:
    class Keeps(torch.nn.Linear):
        def get_extra_state(self) -> int:
            return 3

    def run(group: Group) -> str:
        with pytest.raises(CheckpointError, match="get_extra_state") as refused:
            hold_tensor_parallel(Keeps(5, 3), {"weight": (3, 5), "bias": (3,)}, group)
        return str(refused.value)

    ranks(run, 1)


def test_a_state_that_is_not_cut_like_its_parameter_is_refused() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    with pytest.raises(CheckpointError, match="only states that are like their parameter"):
        optimizer_pieces(hold_whole(model), optimizer)


def test_momentum_that_is_none_is_no_piece() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    assert optimizer_pieces(hold_whole(model), optimizer) == []


def test_a_stretch_of_a_part_is_boxes_of_the_whole() -> None:
    """Cuts that follow each other: a box of a tensor, flattened, and each stretch of that."""
    whole = torch.arange(7 * 5 * 3).view(7, 5, 3)
    box = Box((2, 1, 0), (3, 4, 3))
    part = whole[2:5, 1:5].flatten()
    held = Held("w", (7, 5, 3), (box,), part, copy=True)
    for begin in range(len(part) + 1):
        for end in range(begin, len(part) + 1):
            stretch = held.cut(begin, end - begin, part[begin:end])
            pieces = stretch.pieces("w", stretch.tensor)
            assert sum(piece.box.count for piece in pieces) == end - begin and stretch.copy
            for piece in pieces:
                assert torch.equal(piece.tensor, whole[piece.box.slices(Box.whole(whole.shape))])
