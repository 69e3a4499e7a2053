"""A training on a mesh is saved, killed, and goes on on other meshes: as one process would."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib.checkpoint import (
    Box,
    Checkpoint,
    CheckpointError,
    Piece,
    complete_steps,
    find_checkpoint,
    resume_training,
    save_training,
)
from course_lib.checkpoint.boxes import overlap
from course_lib.checkpoint.files.manifest import DTYPES
from course_lib.comm import Group, Mesh
from course_lib.data import WindowSampler
from course_lib.model import (
    AdamW,
    ModelConfig,
    MoEConfig,
    Transformer,
    auxiliary_loss,
    generate,
    update_router_bias,
)
from course_lib.ranks.pool.outcome import RanksError
from course_lib.schedule import (
    Schedule,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    zb_h1,
    zb_v,
)
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step
from course_lib.train.mesh_checkpoint import mesh_training, whole_model
from tests.tiers import sampled

# Nothing divides: 23 tokens, 22 inner channels on four ranks, five experts. Parts of unequal size
# are what moves the borders of FSDP and ZeRO on one rank of tp and not on the next.
DENSE = ModelConfig(
    layers=4, hidden=16, heads=4, kv_heads=2, ffn=22, vocabulary=23, sequence=8
)  # fmt: skip
TIED = ModelConfig(
    layers=4, hidden=16, heads=4, kv_heads=1, ffn=22, vocabulary=23, sequence=8, tied=True
)  # fmt: skip
EXPERTS = ModelConfig(
    layers=4, hidden=16, heads=4, kv_heads=1, ffn=6, vocabulary=23, sequence=8,
    moe=MoEConfig(experts=5, balance=0.1, z=0.01, bias_rate=0.01),
)  # fmt: skip
# A text that repeats itself, and so can be learned: then rounding errors do not grow.
TOKENS = torch.randint(23, (37,), generator=torch.Generator().manual_seed(3)).repeat(16).byte()
ROWS, RATE, MAX_NORM = 9, 0.01, 0.7


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For the one process: on so small a model threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Hop:
    """A layout that a training is in for some steps.

    Attributes:
        sizes: of the mesh.
        schedule: of the pipeline.
        how: options of `lay_out`.
        steps: it makes.
    """

    sizes: dict[str, int]
    schedule: Schedule
    how: dict[str, Any] = field(default_factory=dict)
    steps: int = 2

    @property
    def world(self) -> int:
        return prod(self.sizes.values())

    def __str__(self) -> str:
        axes = " ".join(f"{axis}{size}" for axis, size in self.sizes.items()) or "one rank"
        return f"{axes} {self.schedule.name} {self.how}"


# --- one process, never interrupted --------------------------------------------------------------
def sampler() -> WindowSampler:
    return WindowSampler(TOKENS, 8, ROWS, seed=4)


@dataclass(frozen=True)
class Alone:
    """What one process has seen: the loss and the norm of each step, and what it had after it."""

    reports: list[tuple[float, float]]
    states: list[dict[str, torch.Tensor]]


def alone(config: ModelConfig, micro_batches: Sequence[int]) -> Alone:
    """A step for each number of micro-batches, which only experts' auxiliary losses depend on."""
    model = Transformer(config, seed=1).double()
    optimizer = AdamW(model.parameters(), lr=RATE)
    seen, batches = Alone([], []), sampler()
    for m in micro_batches:
        optimizer.zero_grad()
        inputs, targets = next(batches)
        total = 0.0
        for rows in torch.arange(ROWS).tensor_split(m):
            logits, right = model(inputs[rows]).flatten(0, 1), targets[rows].flatten()
            part = F.cross_entropy(logits, right, reduction="sum") / targets.numel()
            (part + auxiliary_loss(model) / m).backward()
            total += part.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        update_router_bias(model)
        seen.reports.append((total, norm.item()))
        seen.states.append(state_of(model, optimizer))
    return seen


def state_of(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Parameters, buffers and moments by name; those of a tied weight by its first one."""
    state = {f"model.{n}": t.detach().clone() for n, t in model.named_buffers()}
    for name, parameter in model.named_parameters():
        state[f"model.{name}"] = parameter.detach().clone()
        for key, value in optimizer.state[parameter].items():
            state[f"optimizer.{name}.{key}"] = value.clone()
    return state


def read_all(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    blank = {name: torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
             for name, entry in checkpoint.manifest.tensors.items()}  # fmt: skip
    checkpoint.read([Piece(n, tuple(t.shape), Box.whole(t.shape), t) for n, t in blank.items()])
    return blank


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        right = expected[name]
        # Rounding errors are those of the terms, and where terms cancel the sum may be small.
        torch.testing.assert_close(
            tensor,
            right,
            rtol=1e-9,
            atol=1e-12 * right.abs().max().item(),
            msg=lambda text, n=name: f"{n}: {text}",
        )


# --- one hop -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Seen:
    """What a rank saw.

    Attributes:
        begin: the step after which it went on.
        exact: whether bit for bit, as resuming says; None if it did not resume.
        reports: losses and norms.
        drawn: random numbers when it began, and at the end.
    """

    begin: int
    exact: bool | None
    reports: list[tuple[float, float]]
    drawn: tuple[list[float], list[float]]


def hop(
    group: Group,
    config: ModelConfig,
    layout: Hop,
    folder: Path,
    every: int = 0,
    dies: Callable[[Group, int], None] | None = None,
) -> Seen:
    """Goes on from the newest checkpoint if there is one, makes steps, saves.

    Args:
        group: all ranks.
        config: of the model.
        layout: the mesh.
        folder: of the checkpoints; index 0 adds a line for each step to the file `losses` there.
        every: save after so many steps; 0 for once, at the end.
        dies: called with the group and the number of the step in the midst of each.
    """
    mesh = Mesh(group, layout.sizes)
    began = bool(complete_steps(folder))
    # Weights, options and random numbers that no other hop has: what is not loaded is noticed.
    whole = Transformer(config, seed=7 if began else 1).double()
    torch.manual_seed(100 * group.size + group.index)
    model = lay_out(whole, mesh, layout.schedule, **layout.how)
    optimizers = make_optimizers(model, AdamW, lr=0.5 if began else RATE)
    data = sampler()
    training = mesh_training(model, optimizers, {"sampler": data})
    resumed = resume_training(training, folder, group)
    begin = resumed.step if resumed else 0
    first, reports = torch.rand(2).tolist(), []
    for step in range(begin, begin + layout.steps):
        batches = own_micro_batches(*next(data), model)
        if dies is not None:
            dies(group, step)
        report = train_step(model, batches, optimizers, MAX_NORM)
        reports.append((report.loss, report.norm))
        if group.index == 0:
            with open(folder / "losses", "a") as file:
                file.write(f"{step} {report.loss!r} {report.norm!r}\n")
        if step + 1 == begin + layout.steps or (every and (step + 1) % every == 0):
            save_training(training, folder, group, step=step + 1)
    exact = resumed.exact if resumed else None
    return Seen(begin, exact, reports, (first, torch.rand(2).tolist()))


ZERO1, ZERO2, FSDP = {"zero": 1}, {"zero": 2}, {"zero": 3}
SEQUENCE, RECOMPUTE = {"sequence": True}, {"recompute": "full"}
DENSE_CHAIN = [
    Hop({"pp": 2, "dp": 2, "tp": 2}, one_f_one_b(2, 3)),
    Hop({}, one_f_one_b(1, 2)),
    Hop({"pp": 2, "tp": 2}, gpipe(2, 2), SEQUENCE),
    Hop({"dp": 4}, one_f_one_b(1, 1), FSDP),
    Hop({"dp": 2}, one_f_one_b(1, 2), ZERO1),
    Hop({"tp": 4}, one_f_one_b(1, 1)),
    Hop({"dp": 2, "tp": 2}, one_f_one_b(1, 2), FSDP | RECOMPUTE),
    Hop({"dp": 3}, one_f_one_b(1, 1), ZERO2),
    Hop({"pp": 3}, one_f_one_b(3, 3), RECOMPUTE),
    Hop({"dp": 2, "cp": 2}, one_f_one_b(1, 1), FSDP),
    Hop({"pp": 2, "cp": 2}, one_f_one_b(2, 2), ZERO1),
    Hop({"cp": 2, "tp": 2}, one_f_one_b(1, 2), SEQUENCE | ZERO1),
]
TIED_CHAIN = [
    Hop({"pp": 2, "dp": 2}, interleaved_1f1b(2, 2, 2), FSDP | RECOMPUTE),
    Hop({"tp": 4}, one_f_one_b(1, 1), SEQUENCE),
    Hop({"pp": 2, "dp": 2}, one_f_one_b(2, 3), ZERO1),
    Hop({"dp": 3}, one_f_one_b(1, 2), FSDP),
    Hop({"pp": 2, "tp": 2}, zb_v(2, 3), SEQUENCE),
    Hop({"pp": 2, "cp": 2}, zb_h1(2, 3), ZERO1),
    Hop({"dp": 2, "tp": 2}, one_f_one_b(1, 1), FSDP | SEQUENCE),
    Hop({"pp": 2, "dp": 2, "tp": 2}, one_f_one_b(2, 2), ZERO1),
    Hop({"dp": 2, "tp": 2}, one_f_one_b(1, 2), ZERO2),
    Hop({"pp": 2}, dualpipe_v(2, 4)),
    Hop({"pp": 2, "dp": 2, "tp": 2}, one_f_one_b(2, 2), FSDP),
]
EXPERTS_CHAIN = [
    Hop({"dp": 2, "ep": 2}, one_f_one_b(1, 2), ZERO1),
    Hop({"ep": 4}, one_f_one_b(1, 1)),
    Hop({"pp": 2, "tp": 2}, one_f_one_b(2, 3)),
    Hop({}, one_f_one_b(1, 1)),
    Hop({"ep": 2, "tp": 2}, one_f_one_b(1, 1), ZERO1),
    Hop({"pp": 2, "dp": 2}, interleaved_1f1b(2, 2, 2), ZERO1),
    Hop({"ep": 3}, one_f_one_b(1, 2), ZERO2),
    Hop({"pp": 2, "ep": 2}, zb_v(2, 2), RECOMPUTE),
    Hop({"ep": 2, "cp": 2}, one_f_one_b(1, 1), ZERO1),
]
CHAINS = {
    "dense": (DENSE, DENSE_CHAIN),
    "tied": (TIED, TIED_CHAIN),
    "experts": (EXPERTS, EXPERTS_CHAIN),
}


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_one_training_on_many_meshes(ranks: Any, tmp_path: Path, chain: str) -> None:
    """Each hop loads what another mesh has saved, and saves what one process would have."""
    config, hops = CHAINS[chain]
    counts = [h.schedule.micro_batches if config.moe else 1 for h in hops for _ in range(h.steps)]
    expected, step = alone(config, counts), 0
    end: list[list[float]] = []
    for layout in hops:
        seen = ranks(hop, layout.world, config, layout, tmp_path)
        for one in seen:
            assert one.begin == step
            assert one.reports == seen[0].reports, "every rank says the same, to the bit"
        for mine, right in zip(seen[0].reports, expected.reports[step:], strict=False):
            assert mine == pytest.approx(right, rel=1e-9), f"{layout}, loss and norm"
        step += layout.steps
        checkpoint = find_checkpoint(tmp_path, step)
        right = expected.states[step - 1]
        assert_same(read_all(checkpoint), right)
        size = sum(tensor.nbytes for tensor in right.values())
        assert sum(checkpoint.manifest.files.values()) == size, "each byte once"
        first, last = ([one.drawn[k] for one in seen] for k in (0, 1))
        for index in range(min(len(end), layout.world)):
            assert first[index] == end[index], "random numbers go on where the rank was before"
        assert len({tuple(drawn) for drawn in first}) == layout.world, "and no two draw the same"
        end = last
    assert expected.reports[-1][0] < 0.6 * expected.reports[0][0], "a wrong update would show"


@pytest.mark.parametrize("zero", sampled([3, 0, 1], 3))
def test_the_same_mesh_goes_on_bit_for_bit(ranks: Any, tmp_path: Path, zero: int) -> None:
    layout = Hop({"pp": 2, "dp": 2}, one_f_one_b(2, 2), {"zero": zero})
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    straight = ranks(hop, 4, TIED, replace(layout, steps=4), tmp_path / "whole")
    parts = [ranks(hop, 4, TIED, layout, tmp_path / "parts") for _ in range(2)]
    for whole, first, second in zip(straight, *parts, strict=True):
        assert (first.exact, second.exact) == (None, True)
        assert first.reports + second.reports == whole.reports


def test_the_same_parts_for_other_work_are_not_exact(ranks: Any, tmp_path: Path) -> None:
    """Two ranks of dp have the same parameters as two of cp, and add up in another order."""
    ranks(hop, 2, DENSE, Hop({"dp": 2}, one_f_one_b(1, 2), steps=1), tmp_path)
    seen = ranks(hop, 2, DENSE, Hop({"cp": 2}, one_f_one_b(1, 2), steps=1), tmp_path)
    assert [one.exact for one in seen] == [False, False]


# --- what is held --------------------------------------------------------------------------------
def boxes_of(
    group: Group, config: ModelConfig, layout: Hop, folder: Path
) -> list[tuple[str, Box, bool]]:
    """What this rank has of each tensor's moments, and whether other ranks save it; saves, too."""
    mesh = Mesh(group, layout.sizes)
    model = lay_out(Transformer(config, seed=1), mesh, layout.schedule, **layout.how)
    training = mesh_training(model, make_optimizers(model, AdamW, lr=RATE))
    save_training(training, folder, group, step=0)
    mine = {id(p) for inner in training.inner for g in inner.param_groups for p in g["params"]}
    held = [h for h in training.owners if id(h.tensor) in mine]
    return [(h.name, box, h.copy) for h in held for box in h.boxes]


@pytest.mark.parametrize(
    ("layout", "ffn"),
    [
        (Hop({"dp": 2, "tp": 2}, one_f_one_b(1, 1), {"zero": 3}), 3),
        (Hop({"dp": 2, "tp": 2}, one_f_one_b(1, 1), {"zero": 1}), 9),
        (Hop({"pp": 2, "dp": 2}, one_f_one_b(2, 2), {"zero": 1}), 9),
    ],
    ids=["fsdp", "zero1", "zero1 tied"],
)
def test_copies_may_be_cut_by_other_borders(
    ranks: Any, tmp_path: Path, layout: Hop, ffn: int
) -> None:
    """So they cannot be found by being the same, as replicas are: one of the holders saves.

    Inner channels and tokens do not divide by two, so that a border falls into a key-value head
    that both ranks of tp have, elsewhere on each; both ends of pp cut the embedding in two, with
    other parameters beside it.
    """
    config = replace(TIED, layers=2, ffn=ffn, vocabulary=101)
    seen = ranks(boxes_of, layout.world, config, layout, tmp_path)
    crossed = []
    for name, parameter in Transformer(config).named_parameters():
        boxes = [(box, copy) for rank in seen for n, box, copy in rank if n == name]
        crossed += [name] if overlap(list({box for box, _ in boxes})) is not None else []
        saved = {box for box, copy in boxes if not copy}
        assert overlap(list(saved)) is None
        assert sum(box.count for box in saved) == parameter.numel()
        loaded = sum(box.count for box, _ in boxes)
        assert loaded in (parameter.numel(), 2 * parameter.numel()), "each holder has its own"
    assert crossed, "the case is there"


def test_options_of_all_optimizers_are_the_same(ranks: Any, tmp_path: Path) -> None:
    def run(group: Group) -> tuple[list[float], str]:
        mesh = Mesh(group, {"dp": 2})

        def job(lr: float) -> Any:
            model = lay_out(Transformer(EXPERTS), mesh, one_f_one_b(1, 1), zero=1)
            return mesh_training(model, make_optimizers(model, AdamW, lr=lr))

        save_training(job(0.25), tmp_path, group, step=1)
        resume_training(again := job(0.5), tmp_path, group)
        everyone = [*again.outer, *again.inner]
        rates = [options["lr"] for o in everyone for options in o.param_groups]
        again.outer[1].param_groups[0]["lr"] = 0.75
        with pytest.raises(CheckpointError) as refused:
            save_training(again, tmp_path, group, step=2)
        return rates, str(refused.value)

    for rates, said in ranks(run, 2):
        assert rates == [0.25] * 4
        assert "optimizer 1" in said and "set the options of all" in said


# --- for one process -----------------------------------------------------------------------------
@pytest.mark.parametrize("config", [DENSE, TIED, EXPERTS], ids=["dense", "tied", "experts"])
def test_one_process_has_the_whole_model(ranks: Any, tmp_path: Path, config: ModelConfig) -> None:
    how = {"zero": 1} if config.moe else {"zero": 3}
    sizes = {"pp": 2, "ep" if config.moe else "dp": 2}
    layout = Hop(sizes, one_f_one_b(2, 1), how)
    ranks(hop, 4, config, layout, tmp_path)
    expected = alone(config, [1] * 2).states[-1]
    model = whole_model(tmp_path, config)
    assert all(p.dtype == torch.float64 for p in model.parameters())
    assert model.head.weight is model.embedding.weight or not config.tied
    found = {f"model.{n}": t for n, t in [*model.named_parameters(), *model.named_buffers()]}
    assert_same(found, {name: t for name, t in expected.items() if name in found})
    text = generate(model, bytes([1, 2]), 5, config.sequence)
    assert text == generate(whole_model(find_checkpoint(tmp_path, 2), config), text[:2], 5, 8)
    for other in (replace(config, layers=2), replace(config, tied=not config.tied)):
        with pytest.raises(CheckpointError, match="tensors on one side only, such as model"):
            whole_model(tmp_path, other)
    with pytest.raises(CheckpointError, match="shape"):
        whole_model(tmp_path, replace(config, hidden=8))


# --- killed --------------------------------------------------------------------------------------
def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_step(victim: int, when: int, group: Group, step: int) -> None:
    """While the others begin a step; what was done since the last save is lost."""
    if (group.index, step) == (victim, when):
        kill()


def while_it_writes(victim: int, when: int, group: Group, step: int) -> None:
    """In the save behind a step, when this rank's bytes are in its file and not on the disk."""
    if (group.index, step) == (victim, when):
        os.fsync = lambda handle: kill()


def before_the_name(victim: int, when: int, group: Group, step: int) -> None:
    """In the save behind a step, when all is on the disk, and only the name is missing."""
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if target.name.startswith("step-"):
            kill()
        return rename(path, target)

    if (group.index, step) == (victim, when):
        Path.rename = renamed  # type: ignore[method-assign]


def losses_in(folder: Path) -> list[tuple[int, float, float]]:
    lines = [line.split() for line in (folder / "losses").read_text().splitlines()]
    return [(int(step), float(loss), float(norm)) for step, loss, norm in lines]


def assert_follows(folder: Path, config: ModelConfig) -> list[int]:
    """Each step that was made, once or again, is the one process's; returns their numbers."""
    made = losses_in(folder)
    expected = alone(config, [1] * (max(step for step, _, _ in made) + 1))
    for step, loss, norm in made:
        assert (loss, norm) == pytest.approx(expected.reports[step], rel=1e-9), f"step {step}"
    newest = find_checkpoint(folder)
    assert_same(read_all(newest), expected.states[newest.manifest.step - 1])
    return [step for step, _, _ in made]


KILLED = [
    # who, in which step, and how; with a save behind every other one
    (Hop({"dp": 2, "tp": 2}, one_f_one_b(1, 1), FSDP, 9), partial(while_it_writes, 3, 3), [2]),
    (Hop({"pp": 2, "tp": 2}, one_f_one_b(2, 1), SEQUENCE, 9), partial(in_a_step, 1, 3), [2]),
    (Hop({"pp": 2, "dp": 2}, one_f_one_b(2, 1), ZERO1, 9), partial(before_the_name, 0, 5), [2, 4]),
    (Hop({"cp": 2}, one_f_one_b(1, 1), {}, 9), partial(in_a_step, 0, 4), [2, 4]),
]


@pytest.mark.slow
def test_a_killed_run_goes_on_on_other_meshes(ranks: Any, tmp_path: Path) -> None:
    for layout, dies, complete in KILLED:
        with pytest.raises(RanksError, match="was killed by SIGKILL"):
            ranks(hop, layout.world, TIED, layout, tmp_path, 2, dies)
        assert list(complete_steps(tmp_path)) == complete, "a torn save is no checkpoint"
    last = Hop({"dp": 3}, one_f_one_b(1, 1), ZERO2, 2)
    assert [one.begin for one in ranks(hop, 3, TIED, last, tmp_path, 2)] == [4] * 3
    steps = assert_follows(tmp_path, TIED)
    assert steps == [0, 1, 2, 3, 2, 2, 3, 4, 5, 4, 5], "what was not saved is made again"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"losses", "step-00000002", "step-00000004", "step-00000006"}


@dataclass
class Sometime:
    """Kills one rank, whatever it does then: a step, a save, a message.

    Attributes:
        victim: its index.
        share: when, from the second step on; 1 is as long as the first one and its save took.
        begun: when the first step began.
    """

    victim: int
    share: float
    begun: float | None = None

    def __call__(self, group: Group, step: int) -> None:
        if self.begun is None:
            self.begun = time.monotonic()
        elif group.index == self.victim:
            killer = threading.Timer(self.share * (time.monotonic() - self.begun), kill)
            killer.daemon = True
            killer.start()
            self.victim = -1


@pytest.mark.slow
def test_a_run_killed_again_and_again_gets_on(ranks: Any, tmp_path: Path) -> None:
    """At random moments, each time on another mesh, with experts."""
    dice = random.Random(6)
    begun = 0
    for layout in EXPERTS_CHAIN[:4]:
        layout = replace(layout, schedule=one_f_one_b(layout.sizes.get("pp", 1), 1), steps=1000)
        dies = Sometime(dice.randrange(layout.world), dice.uniform(0, 2))
        with pytest.raises(RanksError, match="was killed by SIGKILL"):
            ranks(hop, layout.world, EXPERTS, layout, tmp_path, 1, dies)
        newest = max(complete_steps(tmp_path), default=0)
        assert newest > begun, "a save that had returned is not lost"
        begun = newest
    last = Hop({"ep": 3}, one_f_one_b(1, 1), ZERO1, 2)
    assert [one.begin for one in ranks(hop, 3, EXPERTS, last, tmp_path)] == [begun] * 3
    assert set(assert_follows(tmp_path, EXPERTS)) == set(range(begun + 2))
