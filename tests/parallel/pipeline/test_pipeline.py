"""Any schedule on real messages: equal to one process, in the order that its list says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import nn

from course_lib.comm import Group
from course_lib.parallel.pipeline.runtime import Pipeline
from course_lib.parallel.pipeline.split_backward import WeightQueue
from course_lib.precision import Policy, cast_module
from course_lib.schedule import (
    Schedule,
    ScheduleError,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    simulate,
    split_stages,
    zb_h1,
    zb_v,
)
from course_lib.trace.memory import LiveMemory
from tests.tiers import sampled

WIDTH = 6
MAKE = {
    "GPipe": lambda p: gpipe(p, 4),
    "GPipe, few": lambda p: gpipe(p, 2),
    "1F1B": lambda p: one_f_one_b(p, 5),
    "1F1B, few": lambda p: one_f_one_b(p, 1),
    "interleaved": lambda p: interleaved_1f1b(p, 2 * p, 2),
    "interleaved, 3": lambda p: interleaved_1f1b(p, p, 3),
    "ZB-H1": lambda p: zb_h1(p, 5),
    "ZB-V": lambda p: zb_v(p, 2 * p + 1),
    "ZB-V, few": lambda p: zb_v(p, 2),
    "DualPipeV": lambda p: dualpipe_v(p, 2 * p + 1),
}
EVERY = pytest.mark.parametrize("name", list(MAKE))


class Stage(nn.Module):
    """Two matrices, a norm, and a weight that is used twice and not by a linear layer."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        torch.manual_seed(stage)
        self.up = nn.Linear(WIDTH, 9)
        self.norm = nn.LayerNorm(9)
        self.down = nn.Linear(9, WIDTH, bias=False)
        self.scale = nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.down(self.norm(self.up(x)).tanh()) * self.scale


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


def batch_of(step: int, m: int, rows: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Micro-batches of different sizes: the k-th has a row more than the one before, in threes."""
    generator = torch.Generator().manual_seed(step)
    sizes = [rows + k % 3 for k in range(m)]
    draw = [torch.randn(2, n, WIDTH, generator=generator, dtype=torch.float64) for n in sizes]
    return [(x, y) for x, y in draw]


def shares(batch: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    rows = [len(x) for x, _ in batch]
    return [n / sum(rows) for n in rows]


Result = dict[int, tuple[list[torch.Tensor], list[torch.Tensor]]]


def train(stages: dict[int, nn.Module], backward: Any, optimizer: str) -> Result:
    """Of each stage: gradients of the first step, weights after the third."""
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    options = {"lr": 0.1, "momentum": 0.9} if optimizer == "SGD" else {"lr": 0.01}
    stepper = getattr(torch.optim, optimizer)(parameters, **options)
    first: dict[int, list[torch.Tensor]] = {}
    for step in range(3):
        stepper.zero_grad()
        backward(step)
        if not step:
            for number, stage in stages.items():
                first[number] = [p.grad.clone() for p in stage.parameters() if p.grad is not None]
        stepper.step()
    return {n: (first[n], [p.detach().clone() for p in s.parameters()]) for n, s in stages.items()}


def alone(schedule: Schedule, optimizer: str) -> Result:
    stages: dict[int, nn.Module] = {s: Stage(s).double() for s in range(schedule.stages)}

    def backward(step: int) -> None:
        batch = batch_of(step, schedule.micro_batches)
        x, y = (torch.cat(parts) for parts in zip(*batch, strict=True))
        for stage in stages.values():
            x = stage(x)
        loss_of(x, y).backward()

    return train(stages, backward, optimizer)


def pipeline_of(group: Group, schedule: Schedule) -> Pipeline:
    stages = {s: Stage(s).double() for s in schedule.stages_of(group.index)}
    return Pipeline(stages, schedule, group, loss=loss_of, border=torch.empty_like)


def piped(group: Group, schedule: Schedule, optimizer: str) -> Result:
    pipe = pipeline_of(group, schedule)

    def backward(step: int) -> None:
        batch = batch_of(step, schedule.micro_batches)
        pipe.step(batch, shares(batch))

    return train(pipe.stages, backward, optimizer)


@EVERY
@pytest.mark.parametrize("world", sampled([3, 1, 4, 2], 2))
def test_equal_to_one_process(ranks: Any, world: int, name: str) -> None:
    schedule = MAKE[name](world)
    for optimizer in ("SGD", "AdamW"):
        expected = alone(schedule, optimizer)
        found: Result = {}
        for part in ranks(piped, world, schedule, optimizer):
            found |= part
        assert found.keys() == expected.keys()
        for stage, (grads, weights) in expected.items():
            torch.testing.assert_close(found[stage][0], grads, rtol=1e-9, atol=1e-13)
            torch.testing.assert_close(found[stage][1], weights, rtol=1e-9, atol=1e-13)


def record(group: Group, schedule: Schedule) -> dict[str, Any]:
    pipe = pipeline_of(group, schedule)
    losses = pipe.step(batch_of(0, schedule.micro_batches))
    ops = [(e.op, e.sent) for e in group.ledger.events]
    return {"spans": [s.name for s in group.ledger.spans], "ops": ops, "losses": losses}


@EVERY
def test_the_executed_order_is_the_schedule(ranks: Any, name: str) -> None:
    schedule = MAKE[name](3)
    for line, found in zip(schedule.actions, ranks(record, 3, schedule), strict=True):
        assert found["spans"] == [str(action) for action in line]


@EVERY
@pytest.mark.parametrize("world", [2, 4])
def test_bytes_to_the_byte(ranks: Any, world: int, name: str) -> None:
    """A message forward and one back for each micro-batch and border between two ranks."""
    schedule = MAKE[name](world)
    borders = sum(a != b for a, b in pairwise(schedule.placement))
    micro = [x.nbytes for x, _ in batch_of(0, schedule.micro_batches)]
    found = ranks(record, world, schedule)
    assert {op for f in found for op, _ in f["ops"]} <= {"send", "recv"}
    assert sum(n for f in found for _, n in f["ops"]) == 2 * borders * sum(micro)
    sends = sum(op == "send" for f in found for op, _ in f["ops"])
    assert sends == 2 * borders * schedule.micro_batches


def test_losses_are_on_the_last_stages_rank(ranks: Any) -> None:
    schedule = zb_v(2, 4)
    stages = [Stage(s).double() for s in range(4)]
    right = []
    for x, y in batch_of(0, 4):
        for stage in stages:
            x = stage(x)
        right.append(loss_of(x, y).detach())
    first, last = ranks(record, 2, schedule)
    assert last["losses"] == []  # the V ends where it began
    torch.testing.assert_close(first["losses"], right)


class Wide(nn.Module):
    """A stage whose activations outweigh all else: it keeps four results and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x * self.scale).tanh()
        return x


class Kept:
    """What autograd keeps of one forward, as long as its graph is there."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Counted(nn.Module):
    """Counts the forwards whose graph is still there, at the end of each."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Wide()
        self.alive: WeakSet[Kept] = WeakSet()
        self.most = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first: list[Kept] = []

        def pack(tensor: torch.Tensor) -> Kept:
            kept = Kept(tensor)
            if not first:  # one for each forward
                self.alive.add(kept)
                first.append(kept)
            return kept

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
            y = self.inner(x)
        first[:] = [None]  # type: ignore[list-item]  # the graph alone holds it now
        self.most = max(self.most, len(self.alive))
        return y


def in_flight(group: Group, schedule: Schedule) -> int:
    counted = Counted()
    stages = dict.fromkeys(schedule.stages_of(group.index), counted)
    pipe = Pipeline(stages, schedule, group, loss=loss_of, border=torch.empty_like)
    pipe.step([(torch.ones(8), torch.ones(8))] * schedule.micro_batches)
    return counted.most


@pytest.mark.parametrize("name", ["GPipe", "GPipe, few", "1F1B", "1F1B, few", "interleaved"])
def test_as_many_forwards_are_held_as_on_paper(ranks: Any, name: str) -> None:
    schedule = MAKE[name](4)
    paper = simulate(schedule)
    assert ranks(in_flight, 4, schedule) == [paper.in_flight(r) for r in range(4)]


def peak(group: Group, schedule: Schedule, count: int) -> int:
    pipe = Pipeline({group.index: Wide()}, schedule, group, loss=loss_of, border=torch.empty_like)
    x = torch.ones(count)
    with LiveMemory() as live:
        pipe.step([(x, x)] * schedule.micro_batches)
        return live.peak


def test_1f1b_needs_less_memory(ranks: Any) -> None:
    """Five tensors for each of 12 forwards in flight, against three on rank 0 and one on rank 2."""
    size = 1 << 16
    eager = ranks(peak, 3, gpipe(3, 12), size)
    lean = ranks(peak, 3, one_f_one_b(3, 12), size)
    for rank in range(3):
        kept = (4 if rank == 0 else 5) * 4 * size  # rank 0 reads its input from the batch
        assert eager[rank] >= 12 * kept - 4 * size
        # Beside them: messages under way, gradients in the making, what a backend's thread holds.
        assert lean[rank] <= (3 - rank) * kept + 16 * 4 * size < 0.75 * eager[rank]


def crossing(group: Group) -> int:
    """Large messages in both directions at once, as 1F1B sends them."""
    schedule = one_f_one_b(group.size, 6)
    pipe = Pipeline({group.index: Wide()}, schedule, group, loss=loss_of, border=torch.empty_like)
    x = torch.ones(1 << 20)
    return len(pipe.step([(x, x)] * 6))


def test_large_messages_do_not_block(ranks: Any) -> None:
    assert ranks(crossing, 3) == [0, 0, 6]


def test_an_order_of_ones_own(ranks: Any) -> None:
    schedule = Schedule.parse("0F1 0F0 0F2 0B1 0B0 0B2\n1F1 1B1 1F2 1F0 1B0 1B2")
    expected = alone(schedule, "SGD")
    found: Result = {}
    for part in ranks(piped, 2, schedule, "SGD"):
        found |= part
    for stage, (grads, _) in expected.items():
        torch.testing.assert_close(found[stage][0], grads, rtol=1e-9, atol=1e-13)


def refusals(group: Group) -> Iterator[str]:
    def attempt(call: Any) -> str:
        try:
            call()
        except ScheduleError as error:
            return str(error)
        return ""

    def make(schedule: Schedule, stages: dict[int, nn.Module]) -> Pipeline:
        return Pipeline(stages, schedule, group, loss=loss_of, border=torch.empty_like)

    mine = {group.index: Stage(0).double()}
    circle = Schedule.parse("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
    return [
        attempt(lambda: make(gpipe(3, 2), mine)),
        attempt(lambda: make(gpipe(2, 2), {5: Stage(0)})),
        attempt(lambda: make(circle, mine)),
        attempt(lambda: make(gpipe(2, 2), mine).step(batch_of(0, 3))),
        attempt(lambda: make(gpipe(2, 2), mine).step(batch_of(0, 2), [1.0])),
    ]


def test_what_is_refused(ranks: Any) -> None:
    for rank, texts in enumerate(ranks(refusals, 2)):
        size, stage, circle, many, weights = texts
        assert "a schedule for 3 ranks" in size
        assert f"the stages [5] instead of [{rank}]" in stage
        assert "deadlock" in circle
        assert "3 micro-batches and 3 weights" in many or "3 micro-batches and 2 weights" in many
        assert "2 micro-batches and 1 weights" in weights


def test_the_weight_half_waits_and_hooks_still_run() -> None:
    queue, layer = WeightQueue(), nn.Linear(4, 3).double()
    seen: list[int] = []
    layer.weight.register_post_accumulate_grad_hook(lambda _: seen.append(1))
    x = torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True)
    with queue.watched():
        y = layer(x).square().sum()
    with queue.put_off("k"):
        y.backward()
    assert x.grad is not None and layer.weight.grad is None and layer.bias.grad is None
    assert seen == []
    queue.run("k")
    again = nn.Linear(4, 3).double()
    again.load_state_dict(layer.state_dict())
    again(x.detach()).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, again.weight.grad)
    torch.testing.assert_close(layer.bias.grad, again.bias.grad)
    assert seen == [1]


def test_casts_of_parameters_are_cut_too() -> None:
    """Mixed precision computes with copies in another dtype; half a backward is theirs as well."""
    layer, again = nn.Linear(4, 3), nn.Linear(4, 3)
    again.load_state_dict(layer.state_dict())
    x = torch.randn(5, 4, requires_grad=True)
    for module in (layer, again):
        cast_module(module, Policy(param_dtype=torch.bfloat16))
    queue = WeightQueue()
    with queue.watched():
        y = layer(x).square().sum()
    with queue.put_off("k"):
        y.backward()
    assert x.grad is not None and layer.weight.grad is None and layer.bias.grad is None
    queue.run("k")
    again(x.detach()).square().sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32
    assert torch.equal(layer.weight.grad, again.weight.grad)
    torch.testing.assert_close(layer.bias.grad, again.bias.grad, rtol=1e-2, atol=1e-2)


def test_nothing_is_put_off_outside() -> None:
    queue, layer = WeightQueue(), nn.Linear(4, 3).double()
    x = torch.ones(2, 4, dtype=torch.float64)
    for inputs in (x, x.clone().requires_grad_()):
        layer.zero_grad()
        with queue.watched():
            y = layer(inputs).sum()
        y.backward()
        torch.testing.assert_close(layer.weight.grad, 2 * torch.ones(3, 4, dtype=torch.float64))
        torch.testing.assert_close(layer.bias.grad, 2 * torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("costs", "p", "expected"),
    [
        ([1, 1, 1, 1], 2, [(0, 2), (2, 4)]),
        ([1, 1, 1, 9], 2, [(0, 3), (3, 4)]),
        ([0, 5, 5, 5, 5, 9], 3, None),
        ([3], 1, [(0, 1)]),
    ],
)
def test_split_stages(costs: list[float], p: int, expected: Any) -> None:
    parts = split_stages(costs, p)
    assert [i for part in parts for i in part] == list(range(len(costs)))
    if expected:
        assert [(part.start, part.stop) for part in parts] == expected
    else:
        assert max(sum(costs[i] for i in part) for part in parts) == 10


@pytest.mark.parametrize("p", [0, 4])
def test_stages_that_cannot_be(p: int) -> None:
    with pytest.raises(ScheduleError, match=f"{p} stages of 3 layers"):
        split_stages([1, 1, 1], p)
