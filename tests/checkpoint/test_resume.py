"""10 steps are 5, a save and 5, bit for bit; on another number of ranks, with the same data."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from course_lib.checkpoint import (
    AsyncSaver,
    CheckpointError,
    Piece,
    Resumed,
    Training,
    find_checkpoint,
    hold_fsdp,
    hold_whole,
    hold_zero,
    resume_training,
    save_sharded,
    save_training,
)
from course_lib.checkpoint.files.plain import from_plain, to_plain
from course_lib.comm import Group
from course_lib.data import WindowSampler
from course_lib.parallel import FSDP, BucketedDDP, Zero1, Zero2
from course_lib.parallel.tensor.region_rng import RegionRng
from course_lib.precision import DynamicLossScaler, MasterWeights

TOKENS = torch.randint(29, (700,), generator=torch.Generator().manual_seed(8)).to(torch.uint8)
LAYOUTS = ("ddp", "zero1", "zero2", "fsdp", "masters", "zero1 masters")


class Net(nn.Module):
    """Embedding, dropout, a batch norm whose averages are the rank's own, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(29, 7)
        self.norm = nn.BatchNorm1d(7)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(7, 29)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.embedding(tokens).flatten(0, 1).to(self.norm.weight.dtype))
        return self.head(self.dropout(hidden))


@dataclass
class Job:
    """A training in some layout, made again with seeds that no other job has."""

    group: Group
    training: Training
    module: Net
    model: Any

    def step(self) -> float:
        """One step; every source of random numbers has a hand in its loss."""
        import numpy

        parts: Any = self.training.parts
        optimizer: Any = self.training.optimizer
        inputs, targets = next(parts["sampler"])
        logits = self.model(inputs).float()
        with self.training.generators["region"].region("sharded"):  # type: ignore[attr-defined]
            logits = F.dropout(logits, 0.2)
        noise = random.random() + numpy.random.standard_normal()
        noise += torch.rand((), generator=self.training.generators["own"]).item()  # type: ignore
        loss = F.cross_entropy(logits, targets.flatten()) * (1 + noise / 100)
        parts["scaler"].scale(loss).backward()
        parts["scaler"].unscale(self.with_gradients())
        if parts["scaler"].step(optimizer):
            parts["schedule"].step()
        parts["scaler"].update()
        optimizer.zero_grad()
        return loss.item()

    def with_gradients(self) -> Any:
        optimizer: Any = self.training.optimizer
        if isinstance(optimizer, MasterWeights):
            return optimizer.gradients_up()
        return optimizer.shard() if isinstance(optimizer, Zero2) else self.model.parameters()

    def values(self) -> dict[str, torch.Tensor]:
        """All tensors of the training on this rank."""
        values = {f"{p.name} {p.box}": p.tensor.clone() for p in self.training.pieces()}
        scaler: Any = self.training.parts["scaler"]
        values["scale"] = torch.tensor(scaler.factor)  # a power of two: no weight depends on it
        if not isinstance(self.model, BucketedDDP) and self.group.index:
            # No one makes averages the same there: index 0's are saved, none is used in training.
            return {key: v for key, v in values.items() if "running" not in key}
        return values


def make(group: Group, layout: str, seed: int) -> Job:
    """A job of layout `ddp`, `zero1`, `zero2` or `fsdp`, perhaps with bf16 weights and masters."""
    import numpy.random

    torch.manual_seed(seed + group.index)
    random.seed(seed + group.index)
    numpy.random.seed(seed + group.index)
    net: Any = Net()
    if "masters" in layout:
        net.to(torch.bfloat16)
    model: Any = net
    if layout == "fsdp":
        model = FSDP(net, group, [net.embedding])
    elif not layout.startswith("zero"):
        model = BucketedDDP(net, group)
    adam: Any = torch.optim.AdamW
    if "masters" in layout:
        adam = partial(MasterWeights, optimizer=adam)
    kind = {"zero1": Zero1, "zero2": Zero2}.get(layout.split()[0])
    optimizer: Any = (
        kind(model.parameters(), adam, group, cap=500, lr=0.01)
        if kind else adam(model.parameters(), lr=0.01)
    )  # fmt: skip
    parts: Any = {
        "sampler": WindowSampler(TOKENS, 9, 12, group.index, group.size, seed=4),
        "schedule": lr_scheduler.MultiStepLR(optimizer, [2, 4, 7], 0.7),
        "scaler": DynamicLossScaler(group, 2.0**10, interval=3),
    }
    generators: Any = {
        "region": RegionRng(seed, group),
        "own": torch.Generator().manual_seed(seed + 7 * group.index),
    }
    held = hold_fsdp(model) if isinstance(model, FSDP) else hold_whole(net)
    states = hold_zero(net, optimizer) if kind else None
    return Job(group, Training(held, optimizer, states, parts, generators), net, model)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ten_steps_are_five_and_a_save_and_five(
    ranks: Any, tmp_path: Path, layout: str, size: int
) -> None:
    def run(group: Group) -> list[str]:
        job = make(group, layout, 11)
        assert resume_training(job.training, tmp_path, group) is None
        losses = [job.step() for _ in range(5)]
        saver = AsyncSaver(tmp_path, group)
        save_training(job.training, saver, group, step=5)
        losses += [job.step() for _ in range(5)]  # while it is being written
        saver.wait()
        expected = job.values()

        job = make(group, layout, 500)
        resumed = resume_training(job.training, tmp_path, group)
        assert resumed == Resumed(5, True, range(size, size))
        again = [job.step() for _ in range(5)]
        found = job.values()
        wrong = [name for name in expected if not torch.equal(found[name], expected[name])]
        return wrong + [] if again == losses[5:] else [f"{again} for {losses[5:]}"]

    assert ranks(run, size) == [[]] * size


@pytest.mark.parametrize("forgotten", ["sampler", "schedule", "scaler", "region", "own"])
def test_each_part_counts(ranks: Any, tmp_path: Path, forgotten: str) -> None:
    """Without any one of them the second half is another: so the test above would notice."""

    def run(group: Group) -> tuple[bool, bool]:
        def without(job: Job) -> Training:
            t = job.training
            parts = {n: p for n, p in t.parts.items() if n != forgotten}
            generators = {n: g for n, g in t.generators.items() if n != forgotten}
            return Training(t.model, t.optimizer, t.states, parts, generators)

        job = make(group, "ddp", 11)
        for _ in range(5):
            job.step()
        save_training(without(job), tmp_path, group, step=5)
        for _ in range(5):
            job.step()
        expected, job = job.values(), make(group, "ddp", 500)
        resume_training(without(job), tmp_path, group)
        for _ in range(5):
            job.step()
        with pytest.raises(CheckpointError) as refused:
            resume_training(job.training, tmp_path, group)
        found = job.values()
        same = all(torch.equal(found[name], expected[name]) for name in expected)
        return same, forgotten in str(refused.value).replace(str(tmp_path), "")

    assert ranks(run, 2) == [(False, True)] * 2


def test_another_number_of_ranks_goes_on_with_the_same_data(ranks: Any, tmp_path: Path) -> None:
    def begin(group: Group) -> Any:
        job = make(group, "zero1", 11)
        for _ in range(3):
            job.step()
        save_training(job.training, tmp_path, group, step=3)
        return torch.rand(2), [next(job.training.parts["sampler"])[0] for _ in range(3)]

    def go_on(group: Group, layout: str, seed: int) -> Any:
        job = make(group, layout, seed)
        resumed = resume_training(job.training, tmp_path, group)
        fresh = torch.Generator().manual_seed(seed + 7 * group.index)
        own: Any = job.training.generators["own"]
        assert torch.equal(own.get_state(), fresh.get_state()), "generators are the caller's then"
        options = job.training.optimizer.param_groups[0]
        windows = [next(job.training.parts["sampler"])[0] for _ in range(3)]
        return resumed, torch.rand(2), windows, options["lr"], job.training.parts["scaler"].factor

    before = ranks(begin, 2)
    wanted = [torch.cat(parts) for parts in zip(*(windows for _, windows in before), strict=True)]
    for size, layout in ((1, "fsdp"), (3, "zero2"), (4, "ddp"), (4, "fsdp")):
        after = ranks(go_on, size, layout, 70 + size)
        for number, whole in enumerate(wanted):
            assert torch.equal(torch.cat([rank[2][number] for rank in after]), whole)
        assert all(rank[0] == Resumed(3, False, range(2, size)) for rank in after)
        assert all(rank[3:] == (0.01 * 0.7, 2.0**11) for rank in after)
        drawn = [rank[1] for rank in after]
        for index in range(min(2, size)):
            assert torch.equal(drawn[index], before[index][0]), "who was there goes on"
        assert len({tuple(d.tolist()) for d in drawn}) == size, "and no two draw the same"
        if size == 4 and layout == "ddp":
            seeded = drawn[2:]
    assert all(torch.equal(a, b) for a, b in zip(drawn[2:], seeded, strict=True)), "not by chance"


def test_the_same_number_of_ranks_in_another_layout_is_not_exact(
    ranks: Any, tmp_path: Path
) -> None:
    def run(group: Group) -> Any:
        job = make(group, "ddp", 11)
        job.step()
        save_training(job.training, tmp_path, group, step=1)
        return resume_training(make(group, "fsdp", 12).training, tmp_path, group)

    assert ranks(run, 2) == [Resumed(1, False, range(2, 2))] * 2


def test_buffers_are_those_of_the_lowest_index(ranks: Any, tmp_path: Path) -> None:
    def run(group: Group) -> bool:
        job = make(group, "zero1", 11)
        with torch.no_grad():
            job.module.norm.running_mean.fill_(group.index + 1)
            job.module.head.weight.fill_(1.0)
        save_training(job.training, tmp_path, group, step=1)
        job = make(group, "ddp", 12)
        resume_training(job.training, tmp_path, group)
        return bool((job.module.norm.running_mean == 1).all())

    assert all(ranks(run, 3))


def test_what_differs_between_ranks_is_no_part_of_the_job(ranks: Any, tmp_path: Path) -> None:
    def run(group: Group) -> str:
        job = make(group, "ddp", 11)
        job.training.parts["sampler"].step = group.index // 2
        with pytest.raises(CheckpointError) as refused:
            save_training(job.training, tmp_path, group, step=1)
        return str(refused.value)

    for text in ranks(run, 3):
        assert "sampler" in text and "index 2" in text and len(text.splitlines()) == 3
    assert not list(tmp_path.iterdir())


def test_weights_alone_are_no_training(ranks: Any, tmp_path: Path) -> None:
    def run(group: Group) -> str:
        job = make(group, "ddp", 11)
        save_sharded(job.training.pieces(), tmp_path, group, step=1)
        with pytest.raises(CheckpointError) as refused:
            resume_training(job.training, tmp_path, group)
        return str(refused.value)

    assert all("not saved by save_training" in text for text in ranks(run, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_random_numbers_of_a_gpu_go_on() -> None:
    from course_lib.checkpoint.random_state import random_state, restore_random

    torch.rand(1, device="cuda")
    state = from_plain(to_plain(random_state({}), "random"), "random")
    drawn = torch.rand(5, device="cuda")
    restore_random(state, {})
    assert torch.equal(torch.rand(5, device="cuda"), drawn)


VALUES = [
    None, True, 7, "text", -0.0, 1e-320, math.inf, (1, (2.5, None)), [(), {}, []],
    {"a": {"b": (1,)}}, {3: 1, (1, 2): "x"}, {"!odd": 1}, Counter({3: 2, 5: 1}),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_were(value: Any) -> None:
    import json

    found = from_plain(json.loads(json.dumps(to_plain(value, "it"), allow_nan=False)), "it")
    assert found == value and type(found) is type(value) and repr(found) == repr(value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float8_e4m3fn, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
def test_tensors_come_back_as_they_were(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.ones(shape).to(dtype)
    found = from_plain(to_plain(value, "it"), "it")
    assert found.dtype == dtype and found.shape == value.shape
    assert torch.equal(found.float(), value.float())
    assert math.isnan(from_plain(to_plain(math.nan, "it"), "it"))


def test_what_is_no_plain_state_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match=r"schedule\.rules\[1\] as JSON"):
        to_plain({"rules": [1, object()]}, "schedule")
    for bad in (
        {"!tensor": ["float32", [3], "AAAA"]},
        {"!code": []},
        {"!tuple": 3},
        {"!float": []},
    ):
        with pytest.raises(CheckpointError, match="it from JSON"):
            from_plain(bad, "it")


def test_an_older_checkpoint_is_left_as_it_is(ranks: Any, tmp_path: Path) -> None:
    """A snapshot is taken when it is asked for: what comes after does not get into it."""

    def run(group: Group) -> bool:
        job = make(group, "ddp", 11)
        job.step()
        saver = AsyncSaver(tmp_path, group)
        save_training(job.training, saver, group, step=1)
        before = {name: tensor.clone() for name, tensor in job.module.state_dict().items()}
        job.step()
        saver.wait()
        checkpoint = find_checkpoint(tmp_path)
        assert checkpoint.manifest.extra["parts"]["sampler"]["step"] == 1
        weight = before["head.weight"]
        from course_lib.checkpoint import Box

        shape = tuple(weight.shape)
        piece = Piece("model.head.weight", shape, Box.whole(shape), torch.empty_like(weight))
        checkpoint.read([piece])
        return torch.equal(piece.tensor, weight)

    assert all(ranks(run, 2))


class Counts(torch.optim.SGD):
    """Counts its steps in a number, of the parameters of which it has elements."""

    def step(self, closure: Any = None) -> None:
        super().step()
        for parameter in self.param_groups[0]["params"]:
            if parameter.numel():
                self.state[parameter]["steps"] = 1


def test_what_one_rank_cannot_save_is_refused_on_all(ranks: Any, tmp_path: Path) -> None:
    """Of two elements on three ranks one has none, and no state that would stop it."""

    def run(group: Group) -> str:
        model = FSDP(nn.Linear(2, 1, bias=False), group)
        optimizer = Counts(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        with pytest.raises(CheckpointError) as refused:
            save_training(Training(hold_fsdp(model), optimizer), tmp_path, group, step=1)
        return str(refused.value)

    assert len(texts := set(ranks(run, 3))) == 1 and "weight.steps" in texts.pop()


def test_another_model_or_optimizer_changes_nothing(ranks: Any, tmp_path: Path) -> None:
    def job(inputs: int, groups: int) -> tuple[nn.Linear, torch.optim.Optimizer]:
        model = nn.Linear(inputs, 1)
        some = list(model.parameters())
        cut = [some] if groups == 1 else [some[:1], some[1:]]
        return model, torch.optim.Adam([{"params": each} for each in cut], lr=0.01)

    def run(group: Group) -> list[str]:
        model, optimizer = job(3, 1)
        model(torch.ones(3)).sum().backward()
        optimizer.step()
        save_training(Training(hold_whole(model), optimizer), tmp_path, group, step=1)
        texts = []
        for inputs, groups in ((4, 1), (3, 2)):
            model, optimizer = job(inputs, groups)
            before = model.weight.detach().clone()
            with pytest.raises(CheckpointError) as refused:
                resume_training(Training(hold_whole(model), optimizer), tmp_path, group)
            texts.append(str(refused.value))
            assert not optimizer.state and model.weight.equal(before)
        return texts

    for shape, count in ranks(run, 2):
        assert "shape (1, 4)" in shape and "2 groups of parameters" in count


class WideMomentum(torch.optim.Optimizer):
    """Narrow weights whose momentum is wide, and counted in whole numbers."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state.setdefault("momentum", torch.zeros_like(parameter, dtype=torch.float32))
            state.setdefault("count", torch.tensor(0))
            state["momentum"].add_(parameter.grad.float() / 3)
            state["count"] += 1
            parameter.sub_(self.param_groups[0]["lr"] * state["momentum"])


def test_a_state_keeps_the_dtype_that_it_had(ranks: Any, tmp_path: Path) -> None:
    """Torch's own loading would make it the parameter's: a third of the momentum's digits."""

    def run(group: Group) -> bool:
        def made() -> tuple[nn.Linear, WideMomentum]:
            model = nn.Linear(5, 3).bfloat16()
            return model, WideMomentum(model.parameters())

        model, optimizer = made()
        model(torch.ones(1, 5).bfloat16()).sum().backward()
        optimizer.step()
        save_training(Training(hold_whole(model), optimizer), tmp_path, group, step=1)
        again, other = made()
        resumed = resume_training(Training(hold_whole(again), other), tmp_path, group)
        assert resumed is not None and resumed.exact
        mine, its = optimizer.state[model.weight], other.state[again.weight]
        return all(mine[k].dtype == its[k].dtype and mine[k].equal(its[k]) for k in mine)

    assert ranks(run, 1) == [True]
