"""Fixtures of the pictures' tests: ledgers written by hand, of correct and of wrong algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from course_lib import plot
from course_lib.precision import BF16, E4M3FN, E5M2, FP16, values
from course_lib.schedule import gpipe, simulate, zb_v
from course_lib.trace import Ledger, Span, Timeline, chunk_sizes

MIB = 1 << 20
Note = tuple[int, int, int, int]  # source, destination, step, chunk


def ring_messages(size: int) -> list[Note]:
    """The messages of a ring all-reduce: N-1 steps that add, N-1 that copy."""
    scatter = [(r, (r + 1) % size, s, (r - s - 1) % size)
               for s in range(size - 1) for r in range(size)]  # fmt: skip
    gather = [(r, (r + 1) % size, size - 1 + s, (r - s) % size)
              for s in range(size - 1) for r in range(size)]  # fmt: skip
    return scatter + gather


def tree_messages(size: int) -> list[Note]:
    """The messages of a binomial broadcast from rank 0; the whole tensor each time."""
    messages, reach, step = [], 1, 0
    while reach < size:
        messages += [(r, r + reach, step, -1) for r in range(min(reach, size - reach))]
        reach, step = 2 * reach, step + 1
    return messages


def write(
    size: int,
    messages: Iterable[Note],
    *,
    op: str = "all_reduce",
    algorithm: str = "ring",
    payload: int = 4 * MIB,
    root: int = -1,
    lost: Iterable[int] = (),
) -> Timeline:
    """Ledgers of `size` ranks that carried out `messages`; those numbered in `lost` never arrived.

    Times are made even (a tenth of a millisecond a message), so that pictures are equal.
    """
    ledgers = [Ledger(rank) for rank in range(size)]
    group, lost, messages = tuple(range(size)), set(lost), list(messages)
    sizes = [count * 4 for count in chunk_sizes(payload // 4, size)]
    for ledger in ledgers:
        event = ledger.begin(op, axis="world", group=group, payload=payload, item=4,
                             algorithm=algorithm, peer=root)  # fmt: skip
        with ledger.within(event):
            for number, (source, to, step, chunk) in enumerate(messages):
                count = payload if chunk < 0 else sizes[chunk]
                common = {"axis": "world", "group": group, "payload": count, "step": step,
                          "chunk": chunk, "item": 4}  # fmt: skip
                if ledger.rank == source:
                    ledger.finish(ledger.begin("send", peer=to, sent=count, **common))
                if ledger.rank == to and number not in lost:
                    ledger.finish(ledger.begin("recv", peer=source, received=count, **common))
    return Timeline(map(evenly_timed, ledgers))


def marked(story: Iterable[str], rank: int = 0, calls: str = "") -> Ledger:
    """A ledger with one millisecond a line of `story`.

    A line is a mark, `begin NAME` or `end NAME` of a span, `begin CALL BYTES` or `end CALL` of a
    collective of 2 ranks if its name is in `calls`, or `hold CLASS BYTES`, the bytes held from now.
    """
    ledger, began = Ledger(rank), {}
    for number, line in enumerate(story):
        at, (word, _, rest) = number * 1e-3, line.partition(" ")
        name, _, count = rest.rpartition(" ")
        if word == "hold":
            ledger.add_memory(name, int(count) - ledger.held.get(name, 0))
            ledger.samples[-1] = (at, name, int(count))
        elif word == "begin" and name in calls.split():
            began[name] = ledger.begin(name, axis="dp", group=(0, 1), payload=int(count))
            began[name].begin = at
        elif word == "end" and rest in calls.split():
            ledger.finish(began[rest])
            began[rest].end = at
        elif word == "begin":
            began[rest] = at
        elif word == "end":
            ledger.spans.append(Span(rank, rest, began.pop(rest), at))
        else:
            ledger.spans.append(Span(rank, line, at, at))
    return ledger


BACKWARD = (
    "ready head.weight", "ready blocks.0.ffn.weight", "launch 0: blocks.0.ffn.weight, head.weight",
    "begin all_reduce 48", "ready norm.weight", "launch 1: norm.weight, unused", "end all_reduce",
    "arrived 0", "arrived 1",
)  # fmt: skip
UNITS = (
    "gather a", "gathered a", "gather b", "begin forward a", "end forward a", "free a",
    "gathered b", "begin forward b", "end forward b", "begin backward b", "gather a",
    "end backward b", "free b", "reduce b", "begin reduce_scatter 8", "gathered a",
    "begin backward a", "end backward a", "end reduce_scatter", "free a", "reduce a",
)  # fmt: skip
HOLDS = (
    "hold parameters 2048", "begin forward", "hold activations 512", "hold activations 3072",
    "end forward", "hold gradients 1024", "hold activations 0", "begin step", "end step",
)  # fmt: skip


@pytest.fixture
def backward() -> Timeline:
    """A recorded backward of three gradients in two buckets, one of which has an unused one."""
    return Timeline([marked(BACKWARD, calls="all_reduce")])


@pytest.fixture
def units() -> Timeline:
    """Two units, gathered ahead; the reduction of `b` goes on during the backward of `a`."""
    return Timeline([marked(UNITS, calls="reduce_scatter")])


@pytest.fixture
def holds() -> Timeline:
    """A rank that held 5 KiB at most, in three classes."""
    return Timeline([marked(HOLDS)])


@pytest.fixture
def ledger_of() -> Callable[..., Ledger]:
    """`ledger_of(story, rank=0, calls="")`: see `marked`."""
    return marked


def evenly_timed(ledger: Ledger) -> Ledger:
    """The same ledger with made-up times: message k takes the k-th tenth of a millisecond."""
    for event in ledger.events:
        event.begin = 1e-4 * max(0, event.number - 1)
        event.end = event.begin + (8e-5 if event.parent >= 0 else 1e-4 * (len(ledger.events) - 1))
    return ledger


@pytest.fixture
def ring() -> Callable[[int], list[Note]]:
    """`ring(size)`: the messages of a correct ring all-reduce."""
    return ring_messages


@pytest.fixture
def tree() -> Callable[[int], list[Note]]:
    """`tree(size)`: the messages of a binomial broadcast from rank 0."""
    return tree_messages


@pytest.fixture
def record() -> Callable[..., Timeline]:
    """`record(size, messages, ...)`: the ledgers of ranks that carried the messages out."""
    return write


@pytest.fixture
def ring_record() -> Timeline:
    """The records of a correct ring all-reduce of 4 MiB on 4 ranks."""
    return write(4, ring_messages(4))


def tile_marks(rank: int, size: int) -> Ledger:
    """Ring attention of one rank with four tokens: which blocks it computes with, hop by hop."""
    ledger = Ledger(rank)
    for hop in range(size):
        key = (rank - hop) % size
        word = "skip" if key > rank else "attend"
        ends = f"q{4 * rank}:{4 * rank + 4} k{4 * key}:{4 * key + 4}"
        ledger.mark(f"{word} hop {hop} {ends}")
    return ledger


def small_checkpoint() -> dict[str, Any]:
    """A matrix that both ranks hold, and one cut by columns; loaded by two ranks, cut otherwise."""
    both = [plot.TensorPart(rank, "both", (0, 0), (4, 8)) for rank in (0, 1)]
    cut = [plot.TensorPart(rank, "cut", (0, 4 * rank), (4, 4)) for rank in (0, 1)]
    places = [(cut[0], "a.bin", 0), (both[0], "a.bin", 64), (cut[1], "b.bin", 0)]
    wanted = [plot.TensorPart(rank, "cut", (2 * rank, 0), (2, 8)) for rank in (0, 1)]
    return {
        "tensors": dict.fromkeys(("both", "cut"), plot.WholeTensor((4, 8), 4)),
        "held": both + cut,
        "stored": [plot.StoredPart(*place) for place in places],
        "wanted": [*wanted, plot.TensorPart(0, "both", (0, 2), (4, 2))],
        "manifest": 300,
    }


def uneven_choices() -> dict[str, Any]:
    """Two of five experts for each token: expert 3 has none, expert 0 most, a rank no tokens."""
    return {
        "choices": [[[0, 4], [0, 1], [2, 0], [0, 2]], [[0, 1], [4, 0], [1, 2]], []],
        "experts": 5,
        "dropped": [[(3, 0), (3, 1)], [(1, 1)], []],
    }


@pytest.fixture
def uneven() -> dict[str, Any]:
    """What `dispatch_steps` is called with, for three ranks; three choices are dropped."""
    return uneven_choices()


@pytest.fixture
def two_ranks() -> dict[str, Any]:
    """What `checkpoint_map` is called with, for two ranks that save and two that load."""
    return small_checkpoint()


@pytest.fixture(scope="session")
def pictures() -> dict[str, Any]:
    """One of every picture, by name, with its description (`alt`)."""
    ring_record = write(4, ring_messages(4))
    for ledger in ring_record.ledgers:
        ledger.add_memory("parameters", 3 * MIB)
        ledger.add_memory("gradients", MIB // 2 * (1 + ledger.rank))
        ledger.spans.append(Span(ledger.rank, "backward", 0.0, 4e-4))
    sizes = [1024, 65536, 4 * MIB]
    times, fit = {"send": [2e-5, 4e-5, 2e-3]}, {"send": (2e-5, 5e-10)}
    return {
        "steps": plot.collective_steps(ring_record),
        "pieces": plot.before_and_after({"all_reduce": ([[1, 2], [10, 20]], [[11, 22]] * 2)}),
        "bytes": plot.byte_bars(ring_record),
        "memory": plot.memory_bars(ring_record),
        "lanes": plot.timeline_lanes(ring_record),
        "fit": plot.alpha_beta_chart(sizes, times, fit),
        "groups": plot.topology([[0, 2], [1, 3]], 2),
        "mesh": plot.mesh_axes({"dp": 2, "tp": 2}, 2),
        "buckets": plot.bucket_steps(Timeline([marked(BACKWARD, calls="all_reduce")])),
        "residency": plot.residency_steps(Timeline([marked(UNITS, calls="reduce_scatter")])),
        "held": plot.memory_over_time(Timeline([marked(HOLDS)])),
        "stages": plot.memory_player(
            {f"N = {n}": {"DDP": {"parameters": 4096 // n}} for n in (1, 2)}, 2048
        ),
        "scaling": plot.scaling_chart(
            {"slow": {2: 1.5}}, {"slow": {1: 1.0, 2: 1.6}}, "Strong scaling"
        ),
        "paths": plot.worker_paths(
            [[[(0.0, 0.0), (1.0, 0.0)], [(0.0, 0.0), (0.0, 1.0)]]],
            [(0.0, 0.0), (0.5, 0.5)],
            {"minimum": (1.0, 1.0)},
            "Two",
        ),
        "sums": plot.arrived_sums([1.0, 2.0], {"kept": [0.0, 3.0]}, "one weight"),
        "thin": plot.low_rank({"M": [[1.0, -1.0], [0.5, 0.0]], "P": [[1.0], [0.0]]}, "In rank 1"),
        "by step": plot.bytes_by_step({"DDP": [8, 8], "local": [0, 8]}),
        "tradeoff": plot.bytes_and_losses(
            {"DDP": (8e6, [2.0, 2.1]), "local": (1e6, [2.1, 2.2])}, "DDP"
        ),
        "loads": plot.load_curves({"nothing": [[2.0, 3.0], [2.5, 3.5]]}),
        "losses": plot.loss_curves({"one process": [2.0, 1.0], "DDP": [2.0, 1.25]}),
        "restart": plot.restart_curves([3.0, 2.0], {"a": {1: 3.0}, "b": {1: 3.0, 2: 2.0}}, ()),
        "split": plot.tensor_split_steps(6, 8, 16, 3),
        "heads": plot.head_cut_steps({"one head": [([0, 1], [0]), ([2, 3], [0])]}),
        "cuts": plot.cut_chain_steps(
            [plot.CutLink("", "x", "rows"), plot.CutLink("all-gather", "all", "whole", sends=True)],
            rows="tokens",
            columns="channels",
        ),
        "softmax": plot.running_softmax_steps([[1.0, 2.0], [3.0]], [[0.0, 1.0], [2.0]]),
        "schedule": plot.schedule_grid(simulate(zb_v(2, 3))),
        "schedules": plot.schedule_picture(simulate(gpipe(2, 3)), simulate(zb_v(2, 3))),
        "numbers": plot.number_lines({f.name: values(f) for f in (BF16, E5M2, E4M3FN)}),
        "gradients": plot.gradient_histogram(
            {2.0**-30: 5, 2.0**-20: 60, 2.0**-9: 30, 2.0**-4: 4, 0.0: 7},
            {f.name: values(f) for f in (FP16, E4M3FN)},
        ),
        "ring": plot.ring_attention_steps(Timeline([tile_marks(r, 3) for r in range(3)])),
        "recompute": plot.recompute_steps(
            {"keep": [(range(4), False)], "√n": [(range(2), True), (range(2, 4), True)]},
            [8 * MIB] * 4,
            [MIB] * 4,
        ),
        "compared": plot.memory_compared({"one": Timeline([marked(HOLDS)])}),
        "checkpoint": plot.checkpoint_map(**small_checkpoint()),
        "dispatch": plot.dispatch_steps(**uneven_choices()),
        "explorer": plot.mesh_explorer(
            dict.fromkeys(("pp", "dp", "ep", "cp", "tp"), 2), 4, {"tp": MIB, "dp_cp": 64, "pp": 5}
        ),
        "squares": plot.mesh_explorer({"pp": 8, "dp": 8, "tp": 8}, 8, {"dp": MIB}, rank=100),
        "axes": plot.axis_bytes({"tp": (MIB, 0), "dp": (64, 2048)}),
    }
