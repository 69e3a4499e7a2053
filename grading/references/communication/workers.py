"""Workers that train alone and meet now and then, all played by one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn

from course_lib.grade.suite import Run
from course_lib.trace import Ledger, wire_bytes

Tensors = list[torch.Tensor]
Targets = list[torch.Tensor | None]  # None: no gradient in this step
INNER: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=0.2, momentum=0.5),
    "AdamW": partial(torch.optim.AdamW, lr=0.05, weight_decay=0.1),
}
OUTER: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "mean": partial(torch.optim.SGD, lr=1.0),
    "Nesterov": partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True),
    "Adam": partial(torch.optim.Adam, lr=0.1),
}
SHAPES = ((3, 4), (5,), (2, 3), (4,))


class Job(NamedTuple):
    """What the ranks of a run are given.

    Attributes:
        starts: of each rank, weights in SHAPES.
        targets: of each rank and step, what its weights are pulled towards.
        every: steps between two meetings.
    """

    starts: list[Tensors]
    targets: list[list[Targets]]
    every: int


def replica(start: Tensors) -> list[nn.Parameter]:
    """A rank's parameters; the first, a matrix, has columns that follow each other in memory."""
    first = start[0].t().contiguous().t()
    return [nn.Parameter(weight) for weight in (first, *(w.clone() for w in start[1:]))]


def pull(parameters: Sequence[nn.Parameter], targets: Sequence[torch.Tensor | None]) -> Targets:
    """Gradients of half the squared distance to the targets; copies of them."""
    for parameter, target in zip(parameters, targets, strict=True):
        parameter.grad = None if target is None else parameter.detach() - target
    return [None if p.grad is None else p.grad.clone() for p in parameters]


def unchanged(parameters: Sequence[nn.Parameter], gradients: Targets) -> bool:
    """Whether the gradients are those that `pull` has given."""
    return all(
        p.grad is g if p.grad is None or g is None else torch.equal(p.grad, g)
        for p, g in zip(parameters, gradients, strict=True)
    )


def job(run: Run, world: int, steps: int, every: int, dtype: torch.dtype = torch.float64) -> Job:
    """Random starts and targets; those of the ranks differ.

    In dtypes other than float64, where only bytes are compared, the last weight of the last rank
    has no gradient in step `every`, in which the ranks meet.
    """
    starts = [[run.random(shape, dtype) for shape in SHAPES] for _ in range(world)]
    targets: list[list[Targets]] = [
        [[2 * run.random(shape, dtype) for shape in SHAPES] for _ in range(steps)]
        for _ in range(world)
    ]
    if dtype != torch.float64:
        targets[-1][every - 1][-1] = None
    return Job(starts, targets, every)


class Played(NamedTuple):
    """What became of the workers.

    Attributes:
        weights: by step, worker and parameter.
        moments: by worker and parameter, the first moment at the end.
    """

    weights: list[list[Tensors]]
    moments: list[Tensors]


def play(
    given: Job,
    inner: str,
    outer: str = "mean",
    *,
    fragments: Sequence[Sequence[int]] = ((0, 1, 2, 3),),
    delay: int = 0,
    keep: float = 0.0,
    slip: str = "",
) -> Played:
    """Trains all workers.

    Args:
        given: what they are given.
        inner: one of INNER.
        outer: one of OUTER, which follows the mean way of the workers since they last met.
        fragments: numbers of the parameters that meet together; fragment f of F at step
            f·every/F, and then every so many steps.
        delay: steps between a meeting's begin and its outer step.
        keep: share of a worker's own weights after a meeting.
        slip: a mistake, as an answer may make it.
    """
    team = _Team(given, inner, outer, slip)
    due: dict[int, list[tuple[Sequence[int], Tensors]]] = {}
    after = []
    for step in range(1, len(given.targets[0]) + 1):
        team.train(step - 1)
        for number, fragment in enumerate(fragments):
            offset = 0 if slip == "in phase" else number * given.every // len(fragments)
            if slip == "rounded first":
                offset = number * (given.every // len(fragments))
            offset = -offset if slip == "turned" else offset
            if (step - offset - (slip == "early")) % given.every == 0 and slip != "gradients":
                due.setdefault(step + delay + (slip == "late"), []).append(
                    (fragment, team.ways(fragment))
                )
        ending = due.pop(step, [])
        for fragment, ways in ending[:1] if slip == "one" else ending:
            if slip == "late look":
                ways = team.ways(fragment)
            team.meet(fragment, ways, keep)
        after.append([[p.detach().clone() for p in each] for each in team.weights])
    return Played(after, team.moments())


class _Team:
    """All workers, and the weights where they last met."""

    def __init__(self, given: Job, inner: str, outer: str, slip: str) -> None:
        self.given, self.slip = given, slip
        first = given.starts[0]
        starts = given.starts if slip == "own start" else [first] * len(given.starts)
        self.weights = [[nn.Parameter(w.clone()) for w in start] for start in starts]
        self.optimizers = [INNER[inner](each) for each in self.weights]
        self.anchors = [nn.Parameter(w.clone()) for w in first]
        self.make_outer = OUTER[outer]
        self.outer = self.make_outer(self.anchors)

    def train(self, step: int) -> None:
        for rank, each in enumerate(self.weights):
            pull(each, self.given.targets[rank][step])
        if self.slip == "gradients":
            for some in zip(*self.weights, strict=True):
                mean = torch.stack([p.grad for p in some if p.grad is not None]).mean(0)
                for p in some:
                    p.grad = mean.clone()
        for optimizer in self.optimizers:
            optimizer.step()

    @torch.no_grad()
    def ways(self, fragment: Sequence[int]) -> Tensors:
        """From the mean of the workers back to the anchors."""
        count = 1 if self.slip == "sum" else len(self.weights)
        means = [sum((each[n] for each in self.weights), 0 * self.anchors[n]) for n in fragment]
        if self.slip == "sum of ways":
            total = zip(fragment, means, strict=True)
            return [len(self.weights) * self.anchors[n].detach() - mean for n, mean in total]
        return [self.anchors[n] - m / count for n, m in zip(fragment, means, strict=True)]

    @torch.no_grad()
    def meet(self, fragment: Sequence[int], ways: Tensors, keep: float) -> None:
        if self.slip == "matrices":
            fragment = [n for n in fragment if self.anchors[n].dim() == 2]
            ways = [way for way in ways if way.dim() == 2]
        if self.slip == "forgets":
            self.outer = self.make_outer(self.anchors)
        for n, way in zip(fragment, ways, strict=True):
            before = self.anchors[n].grad
            self.anchors[n].grad = -way if self.slip == "sign" else way
            if self.slip == "adds up" and before is not None:
                self.anchors[n].grad = before + way
            if self.slip == "twice":
                self.anchors[n].sub_(way)  # the mean of the workers, and the outer step from there
        self.outer.step()
        if self.slip not in ("adds up", "stale"):
            self.outer.zero_grad(set_to_none=self.slip != "zeros")
        share = {"no share": 0.0, "share turned": 1 - keep}.get(self.slip, keep)
        for each in self.weights:
            for n in fragment:
                each[n].copy_(share * each[n] + (1 - share) * self.anchors[n])
        self._touch_moments()

    def _touch_moments(self) -> None:
        if self.slip == "reset":
            for optimizer in self.optimizers:
                optimizer.state.clear()
        if self.slip == "moments":
            for some in zip(*self.weights, strict=True):
                states = [o.state[p] for o, p in zip(self.optimizers, some, strict=True)]
                for name in set(FIRST + SECOND) & set(states[0]):
                    mean = torch.stack([state[name] for state in states]).mean(0)
                    for state in states:
                        state[name].copy_(mean)

    def moments(self) -> list[Tensors]:
        pairs = zip(self.optimizers, self.weights, strict=True)
        return [[first_moment(optimizer, p) for p in each] for optimizer, each in pairs]


FIRST, SECOND = ("momentum_buffer", "exp_avg"), ("exp_avg_sq",)


def first_moment(optimizer: Any, parameter: nn.Parameter) -> torch.Tensor:
    """What SGD or AdamW has of it; empty if there is none."""
    state = optimizer.state.get(parameter, {})
    found = next((state[name] for name in FIRST if name in state), torch.empty(0))
    return found.detach().clone()


def moments_of(inner: str, weights: Sequence[Tensors], targets: Sequence[Targets]) -> Tensors:
    """First moments that follow from a worker's weights before each step, right or wrong."""
    own = [nn.Parameter(weight.clone()) for weight in weights[0]]
    optimizer = INNER[inner](own)
    for before, wanted in zip(weights, targets, strict=True):
        for parameter, weight in zip(own, before, strict=True):
            parameter.data.copy_(weight)
        pull(own, wanted)
        optimizer.step()
    return [first_moment(optimizer, parameter) for parameter in own]


def of_rank(steps: Sequence[Any], rank: int) -> list[Any]:
    """What one worker has after each step."""
    return [step[rank] for step in steps]


def all_reduced(counts: Sequence[int], dtype: torch.dtype, world: int, rank: int) -> int:
    """Bytes that a rank sends for all-reduces of so many elements each."""
    size = dtype.itemsize
    return sum(wire_bytes("all_reduce", size * n, world, rank, size)[0] for n in counts)


def in_other_dtypes(sent: int, dtype: torch.dtype) -> dict[str, int]:
    """What is sent in place of `sent` bytes if tensors of a dtype are converted before."""
    return {
        f"they were sent in {other}: send them in their own dtype": size * sent // dtype.itemsize
        for other, size in (("float32", 4), ("float64", 8))
    }


def likely_bytes(fair: int, dtype: torch.dtype, meets: bool) -> dict[str, int]:
    """What a step sends instead of `fair` bytes if a meeting is due, and of none if it is not."""
    if not meets:
        return {"they meet in a step after which no meeting is due": fair}
    return {**in_other_dtypes(fair, dtype), "nothing is sent, although a meeting is due": 0}


def sent_by_step(ledger: Ledger, places: Sequence[int]) -> list[int]:
    """Bytes of each step's calls; `places` says where in the ledger steps begin and end."""
    return [sent_in(ledger.events[begin:end]) for begin, end in pairwise(places)]


def sent_in(events: Sequence[Any]) -> int:
    """Bytes of the calls in a part of a ledger; messages that make up a call are in its own."""
    return sum(event.sent for event in events if event.parent < 0)
