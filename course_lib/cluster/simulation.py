"""A program on a simulated cluster: what its ranks returned, sent, held and when.

Notebook: 13 The mesh (a cluster in the cell).
Source: SimGrid's SMPI for the idea, torchtitan's memory estimation for tensors without data.
Costs one program for each distinct rank, in one process.
The production version is the cluster.
"""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from course_lib.cluster.above import above_operations
from course_lib.cluster.dataless import Dataless, without_data
from course_lib.cluster.engine import Deadlocked, Engine, Failed, Rank
from course_lib.cluster.fold import Fold
from course_lib.cluster.memory import Memory, OutOfMemory, in_words, watched
from course_lib.cluster.operations import META
from course_lib.cluster.prices import Prices, is_product
from course_lib.cluster.wires import Wires
from course_lib.comm import Group
from course_lib.comm.simulated_transport import SimulatedTransport
from course_lib.plan.inputs.hardware import Cluster, parse_cluster
from course_lib.trace import Ledger, Refusal, Timeline

ONE = threading.Lock()  # a simulation puts functions in torch's place, and takes them out again


@dataclass(frozen=True)
class Simulation:
    """What is known of a program after it has run.

    Attributes:
        fold: who stands for whom.
        values: of each rank that was run, what its program returned.
        ledgers: their books, on one virtual clock.
        memories: what they held.
        seconds: when the last of them ended.
    """

    fold: Fold
    values: dict[int, Any]
    ledgers: dict[int, Ledger]
    memories: dict[int, Memory]
    seconds: float

    def value(self, rank: int) -> Any:
        """What the rank's program returned, or that of the rank which stands for it."""
        return self.values[self.fold.of(rank)]

    def timeline(self) -> Timeline:
        """The ledgers of the ranks that were run."""
        return Timeline(self.ledgers.values())

    def summary(self) -> str:
        """How many ranks were run, how long they took, and what the fullest of them held."""
        rank, fullest = max(self.memories.items(), key=lambda item: item[1].peak)
        ran, world = len(self.ledgers), self.fold.world
        were = "was" if ran == 1 else "were"
        who = f"{world} simulated ranks" + (f", of which {ran} {were} run" if ran < world else "")
        lines = [f"{who}: {self.seconds:.4g} s of virtual time"]
        if fullest.peak:
            lines.append(f"at most {fullest.peak / 1e9:.3g} of {fullest.limit / 1e9:.3g} GB, "
                         f"on rank {rank}: {in_words(fullest.at_peak)}")  # fmt: skip
        return "\n".join(lines)


def simulate(
    program: Callable[..., Any],
    world_size: int,
    *args: Any,
    cluster: str | Cluster,
    equal: str = "",
    load: Sequence[float] = (),
) -> Simulation:
    """Runs `program(group, *args)` on every distinct rank of a described cluster, in this process.

    Args:
        program: what each rank does; its floats have no values.
        world_size: how many ranks.
        args: further arguments; each rank gets its own copies.
        cluster: as `64x8xH100`, 64 nodes of 8 GPUs each, or `512xH100`.
        equal: which ranks do the same, as `pp8 dp8* tp8*`; see `Fold`.
        load: how often a router chooses each expert, in proportion; equally often without it.

    Raises:
        Refusal: an unknown GPU, fewer GPUs than ranks, equal ranks of another mesh.
        OutOfMemory: a rank holds more than a GPU has.
        Deadlocked: ranks wait for calls that can never end.
        Failed: the program raised, as where it needs values.
    """
    hardware = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    _check_room(world_size, hardware)
    if load and (min(load) < 0 or not sum(load) > 0):
        raise Refusal(f"a load of {tuple(load)}", "numbers of choices", "some, and none negative")
    fold = Fold(world_size, equal)
    engine = Engine(fold, Wires(hardware, fold))
    prices = Prices(hardware)
    ledgers = {n: Ledger(n, rank.clock) for n, rank in engine.ranks.items()}
    memories = {
        n: Memory(book, hardware.gpu.memory, f"rank {n} on node {n // hardware.node}")
        for n, book in ledgers.items()
    }

    def body(rank: Rank) -> Any:
        memory = memories[rank.number]
        transport = SimulatedTransport(engine, rank.number, range(world_size))
        group = Group(
            range(world_size), rank.number, "world", ledgers[rank.number], transport, META
        )
        with Dataless(prices.seconds, _booked(rank, memory), load):
            return program(group, *without_data(copy.deepcopy(args)))

    def current() -> Memory | None:
        return None if engine.current is None else memories[engine.current.number]

    try:
        with _alone(), watched(current), above_operations(), _older_objects_apart():
            engine.run(body)
    except Deadlocked as error:
        error.ledgers = ledgers
        raise
    except Failed as error:
        if isinstance(error.cause, OutOfMemory):
            raise error.cause from None
        raise
    seconds = max(rank.now for rank in engine.ranks.values())
    values = {n: rank.value for n, rank in engine.ranks.items()}
    return Simulation(fold, values, ledgers, memories, seconds)


@contextmanager
def _alone() -> Iterator[None]:
    """Within, no other thread simulates; a simulated rank that does is inside of its own."""
    inside = any(isinstance(mode, Dataless) for mode in _get_current_dispatch_mode_stack())
    with nullcontext() if inside else ONE:
        yield


@contextmanager
def _older_objects_apart() -> Iterator[None]:
    """Within, the garbage collector looks at new objects alone: each rank lets it look once."""
    apart = not gc.get_freeze_count()
    if apart:
        gc.freeze()
    try:
        yield
    finally:
        if apart:
            gc.unfreeze()


def _booked(rank: Rank, memory: Memory) -> Callable[[Any, float, Any], None]:
    """What is done with each operation: it takes time, and what it makes takes memory."""

    def watch(func: Any, seconds: float, result: Any) -> None:
        rank.now += seconds
        if is_product(func):
            memory.begin()
        for tensor in result if isinstance(result, list | tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                memory.made(tensor)

    return watch


def _check_room(world_size: int, cluster: Cluster) -> None:
    if not 1 <= world_size <= cluster.count:
        raise Refusal(
            f"{world_size} ranks, each with a GPU of its own",
            f"a cluster of {cluster.count} GPUs",
            f"take at most {cluster.count} ranks, or more nodes: "
            f"{-(-world_size // cluster.node)}x{cluster.node}x{cluster.gpu.name}",
        )
