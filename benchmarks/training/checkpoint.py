"""Checkpoints against torch's own: sharded saves and loads, and recomputation of activations.

Save and load: 96 MiB of float32 in tensors cut by rows over the ranks, onto the same disk, ours
with checksums, `torch.distributed.checkpoint` with `sync_files=True`, so that both have the data on
the disk when they return. The two take turns, with a folder of its own each time; a turn takes as
long as its slowest rank, and medians are compared. Recomputation: forward and backward of a GPT of
3.2 M parameters in one process, every block checkpointed, in turns with `torch.utils.checkpoint`
and with nothing forgotten; the peak is beyond the parameters, by `trace.memory.LiveMemory`.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from benchmarks.row import Row
from benchmarks.training.turns import SIDES, slowest_ms
from course_lib.checkpoint import Box, Piece, load_resharded, save_sharded
from course_lib.comm import Group, barrier
from course_lib.model import ModelConfig, Transformer, cross_entropy
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.recompute import checkpoint
from course_lib.trace.memory import LiveMemory

TENSORS, SHAPE = 24, (1024, 1024)  # 96 MiB
ROUNDS = 7
CONFIG = ModelConfig(layers=4, hidden=256, heads=4, kv_heads=4, ffn=688, sequence=64)
Timed = dict[str, list[float]]


# --- save and load -------------------------------------------------------------------------------
class Ours:
    """Pieces of the course's checkpoints.

    Args:
        parts: this rank's rows of each tensor.
        group: all ranks.
    """

    def __init__(self, parts: dict[str, torch.Tensor], group: Group) -> None:
        rows = SHAPE[0] // group.size
        box = Box((group.index * rows, 0), (rows, SHAPE[1]))
        self.pieces = [Piece(name, SHAPE, box, part) for name, part in parts.items()]
        self.group = group

    def save(self, folder: Path) -> None:
        """Until all of it is on the disk."""
        save_sharded(self.pieces, folder, self.group, step=0)

    def load(self, folder: Path) -> None:
        """Into the same tensors."""
        load_resharded(self.pieces, folder, self.group)


class Theirs:
    """The same rows as DTensors, in torch.distributed.checkpoint."""

    def __init__(self, parts: dict[str, torch.Tensor], group: Group) -> None:
        mesh = init_device_mesh("cpu", (group.size,))
        self.state = {n: DTensor.from_local(p, mesh, [Shard(0)]) for n, p in parts.items()}

    def save(self, folder: Path) -> None:
        """Until all of it is on the disk."""
        dcp.save(self.state, storage_writer=dcp.FileSystemWriter(folder, sync_files=True))

    def load(self, folder: Path) -> None:
        """Into the same tensors."""
        dcp.load(self.state, storage_reader=dcp.FileSystemReader(folder))


def measure_disk(group: Group, root: str) -> dict[str, Timed]:
    """Seconds of every save and load on this rank, and bytes on the disk."""
    generator = torch.Generator().manual_seed(group.index)
    rows = SHAPE[0] // group.size
    parts = {f"w{i}": torch.randn(rows, SHAPE[1], generator=generator) for i in range(TENSORS)}
    sides = {"ours": Ours(parts, group), "peer": Theirs(parts, group)}
    found: dict[str, Timed] = {side: {"save": [], "load": [], "bytes": []} for side in SIDES}
    for number in range(ROUNDS + 1):
        for side in SIDES if number % 2 else reversed(SIDES):
            folder = Path(root, f"{side}{number}")
            for what in ("save", "load"):
                barrier(group)
                begin = time.perf_counter()
                getattr(sides[side], what)(folder)
                found[side][what].append(time.perf_counter() - begin)
            barrier(group)
            files = [path for path in folder.rglob("*") if path.is_file()]
            found[side]["bytes"].append(sum(path.stat().st_size for path in files) / 1e6)
            barrier(group)
            if group.index == 0:
                shutil.rmtree(folder)
    return found


def disk_rows(world: int, server: ForkServer) -> Iterator[Row]:
    """Save, load and bytes on so many ranks; the first round warms up and does not count."""
    with tempfile.TemporaryDirectory() as root:
        per_rank = run_on_ranks(measure_disk, world, root, server=server, timeout=300)
    size = TENSORS * SHAPE[0] * SHAPE[1] * 4
    peer = "torch.distributed.checkpoint"
    for what in ("save", "load"):
        ours, theirs = (slowest_ms([rank[side][what][1:] for rank in per_rank]) for side in SIDES)
        yield Row("checkpoint", what, world, size, ours, theirs, peer, "ms")
    ours, theirs = (round(per_rank[0][side]["bytes"][-1], 3) for side in SIDES)
    yield Row("checkpoint", "on the disk", world, size, ours, theirs, peer, "MB")


# --- recomputation -------------------------------------------------------------------------------
def recomputed(how: Callable[..., Any] | None) -> Transformer:
    """A model whose blocks are called through `how`."""
    model = Transformer(CONFIG)
    if how is not None:
        for block in model.blocks:
            block.forward = partial(how, block.forward)
    return model


def measure_activations(group: Group) -> dict[str, tuple[list[float], int]]:
    """Seconds of every forward and backward, and the peak, by side and without recomputation."""
    ways: dict[str, Callable[..., Any] | None] = {
        "ours": checkpoint,
        "peer": partial(torch_checkpoint, use_reentrant=False),
        "none": None,
    }
    models = {name: recomputed(how) for name, how in ways.items()}
    tokens = torch.randint(0, 256, (8, 65), generator=torch.Generator().manual_seed(0))
    times: dict[str, list[float]] = {name: [] for name in ways}
    peaks = {}
    for name, model in models.items():
        with LiveMemory() as memory:
            cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        peaks[name] = memory.peak
    for number in range(12):
        for name in models if number % 2 else reversed(models):
            models[name].zero_grad()
            begin = time.perf_counter()
            cross_entropy(models[name](tokens[:, :-1]), tokens[:, 1:]).backward()
            times[name].append(time.perf_counter() - begin)
    return {name: (times[name], peaks[name]) for name in ways}


def activation_rows(server: ForkServer) -> Iterator[Row]:
    """Ours against torch's, and against keeping everything."""
    (found,) = run_on_ranks(measure_activations, 1, server=server, timeout=300)
    size = sum(p.nbytes for p in Transformer(CONFIG).parameters())
    for other, peer in (("peer", "torch.utils.checkpoint"), ("none", "nothing recomputed")):
        ours, theirs = (round(statistics.median(found[n][0]) * 1e3, 2) for n in ("ours", other))
        yield Row("checkpoint", "recompute step", 1, size, ours, theirs, peer, "ms")
        ours, theirs = (round(found[name][1] / 1e6, 3) for name in ("ours", other))
        yield Row("checkpoint", "recompute peak", 1, size, ours, theirs, peer, "MB")


def rows() -> Iterator[Row]:
    """Both parts; about a minute on two cores."""
    with ForkServer() as server:
        for world in (4, 1):
            yield from disk_rows(world, server)
        yield from activation_rows(server)
