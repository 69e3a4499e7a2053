"""Two strategies in the same processes, step by step in turns: seconds, bytes on the wire, memory.

Used by the benchmarks of data and of model parallelism and of precision; `time_calls` by others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import GroupName, _resolve_process_group
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.row import Row
from course_lib.comm import Group, barrier
from course_lib.model import ModelConfig, Transformer
from course_lib.trace import wire_bytes
from course_lib.trace.memory import LiveMemory

SIDES = ("ours", "peer")
WARM = 4  # steps before those that are timed
# The operations that torch's strategies make: whose name in `trace.wire`, which arguments of the
# call are the tensor and the group, and whether the tensor is a shard of the full one.
OPERATIONS = {
    "c10d.allreduce_": ("all_reduce", 0, 1, False),
    "c10d.broadcast_": ("broadcast", 0, 1, False),
    "c10d._allgather_base_": ("all_gather", 0, 2, False),
    "c10d._reduce_scatter_base_": ("reduce_scatter", 1, 2, False),
    "c10d.send": ("send", 0, 1, False),
    "_c10d_functional.all_reduce": ("all_reduce", 0, 2, False),
    "_c10d_functional.all_gather_into_tensor": ("all_gather", 0, 2, True),
    "_c10d_functional.reduce_scatter_tensor": ("reduce_scatter", 0, 3, False),
}  # fmt: skip
SILENT = (
    "c10d.recv_",
    "_c10d_functional.wait_tensor",
    "_c10d_functional._wrap_tensor_autograd",
)


class WireBytes(TorchDispatchMode):
    """Adds up what torch's communication puts on the wire of this rank, by the formulas.

    Attributes:
        sent: bytes, so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation, and books it if it communicates.

        Raises:
            ValueError: a collective whose bytes are not known here.
        """
        name = str(func.overloadpacket)
        if "c10d" in name.split(".")[0] and name not in SILENT:
            if name not in OPERATIONS:
                raise ValueError(f"{name} has no formula here")
            self._book(name, args)
        return func(*args, **(kwargs or {}))

    def _book(self, name: str, args: Any) -> None:
        op, place, group_at, is_shard = OPERATIONS[name]
        group = _group_of(args[group_at])
        size, index = group.size(), group.rank()
        if op == "broadcast":
            index = (index - int(args[2])) % size
        for tensor in (t for t in tree_leaves(args[place]) if torch.is_tensor(t)):
            full = tensor.nbytes * (size if is_shard else 1)
            sent = (
                full
                if op == "send"
                else wire_bytes(op, full, size, index, tensor.element_size())[0]
            )
            self.sent += sent


def _group_of(argument: Any) -> Any:
    """The process group that an operation was given, by its name or in a box."""
    if isinstance(argument, str):
        return _resolve_process_group(GroupName(argument))
    return ProcessGroup.unbox(argument)


class Trainer(Protocol):
    """What takes part: one training step, and what is held between two."""

    def step(self, batch: torch.Tensor) -> float | None:
        """Trains on a batch; the loss, where this rank knows it."""

    def held(self) -> dict[str, int]:
        """Bytes between steps, by name."""


def take_turns(
    trainers: Mapping[str, Callable[[], Trainer]], batches: torch.Tensor, group: Group
) -> dict[str, dict[str, Any]]:
    """Steps of each in turn (A B C ..., then backwards): losses, seconds, bytes and memory.

    Args:
        trainers: `NAME ours` and `NAME peer`, in pairs; made here, one after the other.
        batches: the first WARM warm up and measure bytes and memory, the others are timed.
        group: all ranks.
    """
    found: dict[str, dict[str, Any]] = {}
    made = {}
    for name, make in trainers.items():
        made[name], found[name] = _first_steps(make, batches, group, name.endswith("peer"))
    for number, batch in enumerate(batches[WARM:]):
        for name in made if number % 2 else reversed(made):
            barrier(group)
            begin = time.perf_counter()
            found[name]["losses"].append(made[name].step(batch))
            found[name]["seconds"].append(time.perf_counter() - begin)
    return found


def pairs_in_turns(
    pairs: Mapping[str, tuple[Any, Any, str]],
    config: ModelConfig,
    batch: int,
    rounds: int,
    group: Group,
) -> dict[str, dict[str, Any]]:
    """`take_turns` of pairs of strategies, each on a transformer of its own and random tokens.

    Args:
        pairs: name to what makes our trainer and the peer's, from a model and the group.
        config: of the model.
        batch: sequences of each rank.
        rounds: steps that are timed.
        group: all ranks.
    """
    makers = {
        f"{name} {side}": partial(_made, make, config, group)
        for name, pair in pairs.items()
        for side, make in zip(SIDES, pair[:2], strict=True)
    }
    return take_turns(makers, random_batches(config, batch, rounds, group.rank), group)


def random_batches(config: ModelConfig, batch: int, rounds: int, seed: int) -> torch.Tensor:
    """Tokens for `take_turns`: [WARM + rounds, batch, T+1], the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rounds + WARM, batch, config.sequence + 1)
    return torch.randint(0, 256, shape, generator=generator)


def _made(make: Any, config: ModelConfig, group: Group) -> Trainer:
    return make(Transformer(config), group)


def _first_steps(
    make: Callable[[], Trainer], batches: torch.Tensor, group: Group, peer: bool
) -> tuple[Trainer, dict[str, Any]]:
    """Makes one and measures bytes and memory, in steps whose time does not count.

    Memory is watched from before it is made, so that all that it holds is in the peak: also
    buckets that nothing in Python points to.
    """
    wire, peaks = WireBytes(), []
    with LiveMemory() as memory:
        trainer = make()
        losses = [trainer.step(batches[0])]
        before = group.ledger.sent()
        for batch in batches[1:WARM]:
            memory.peak = memory.now
            with wire if peer else nullcontext():
                losses.append(trainer.step(batch))
            peaks.append(memory.peak)
    sent = (wire.sent if peer else group.ledger.sent() - before) / len(peaks)
    # A backend's thread may hold a buffer longer than its call: the least peak is the step's own.
    peak = min(peaks)
    held = {f"{k} MB": v / 1e6 for k, v in trainer.held().items()}
    return trainer, {
        "losses": losses, "seconds": [], "peak MB": peak / 1e6, "sent MB": sent / 1e6, **held
    }  # fmt: skip


def time_calls(
    takers: Mapping[str, Callable[[], object]], group: Group, rounds: int, calls: int = 1
) -> dict[str, list[float]]:
    """Seconds of a call on this rank, of each in turn; the first round warms up and is left out.

    Args:
        takers: by name.
        group: all ranks, which begin each turn together.
        rounds: how often each has its turn.
        calls: in a turn.
    """
    times: dict[str, list[float]] = {name: [] for name in takers}
    for number in range(rounds + 1):
        for name in takers if number % 2 else reversed(list(takers)):
            barrier(group)
            begin = time.perf_counter()
            for _ in range(calls):
                takers[name]()
            times[name].append((time.perf_counter() - begin) / calls)
    return {name: values[1:] for name, values in times.items()}


def rows_of(
    bench: str, per_rank: list[dict[str, dict[str, Any]]], names: Mapping[str, str], size: int
) -> Iterator[Row]:
    """The rows of every pair: step time, bytes sent, peak, and what is held between steps.

    Args:
        bench: the benchmark's name.
        per_rank: what `take_turns` found on each.
        names: of each pair, who the peer is.
        size: bytes of the model.
    """
    world = len(per_rank)
    for name, peer_name in names.items():
        ours, peer = ([rank[f"{name} {side}"] for rank in per_rank] for side in SIDES)
        own, other = (slowest_ms([rank["seconds"] for rank in side]) for side in (ours, peer))
        gap = max(abs(a - b) for a, b in zip(mean_losses(ours), mean_losses(peer), strict=True))
        yield Row(
            bench, f"{name} step", world, size, own, other, peer_name, "ms",
            f"losses differ by {gap:.0e} at most",
        )  # fmt: skip
        for what in (key for key in ours[0] if key.endswith(" MB")):
            mine, theirs = (max(rank[what] for rank in side) for side in (ours, peer))
            label = what.removesuffix(" MB")
            yield Row(
                bench, f"{name} {label}", world, size, round(mine, 3), round(theirs, 3),
                peer_name, "MB",
            )  # fmt: skip


def slowest_ms(per_rank: Sequence[Sequence[float]]) -> float:
    """The median of turns, each as long as its slowest rank, in ms; of each rank its seconds."""
    return round(statistics.median(map(max, zip(*per_rank, strict=True))) * 1e3, 2)


def mean_losses(per_rank: list[dict[str, Any]]) -> list[float]:
    """Of each step the mean over the ranks that know it."""
    steps = zip(*(rank["losses"] for rank in per_rank), strict=True)
    return [statistics.mean(loss for loss in step if loss is not None) for step in steps]
