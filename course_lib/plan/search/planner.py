"""Searches all layouts of a model on a cluster: the fastest that fits, and why not the others.

Notebook: 15 Choosing a strategy (plan).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3, whose takeaways the rules are; Zheng et
al., "Alpa" (2022), for the search.
Costs a rough prediction of one stage for each layout that fits, and full ones for the best.
The production version measures the few best layouts before it takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from course_lib.layout import RECOMPUTE, Layout, misfits, uneven_batch
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.inputs.recipe import Recipe
from course_lib.plan.memory.memory import Memory, memory
from course_lib.plan.time.stages import Stages, enough_micro_batches, even_stages, schedule_of
from course_lib.schedule import KINDS, kind_of

Seconds = Callable[[ModelConfig, Layout], float]
SIZES = (1, 2, 4, 8)  # of a micro-batch
CHUNKS = (2, 4)
SHORTEST = 2048  # tokens of a sequence that are worth a rank of cp


@dataclass(frozen=True)
class Choice:
    """A layout that can be used.

    Attributes:
        layout: how the model is spread.
        memory: of the fullest rank.
        seconds: of a step, as predicted.
    """

    layout: Layout
    memory: Memory
    seconds: float


@dataclass(frozen=True)
class Refused:
    """Degrees that cannot be used, or are not worth it.

    Attributes:
        degrees: a layout that has them.
        why: in one sentence.
        times: how many times as long as the best it takes, roughly; 0 if it cannot be used.
    """

    degrees: Layout
    why: str
    times: float = 0.0


@dataclass(frozen=True)
class Plan:
    """What a search has found.

    Attributes:
        choices: the fastest layout for each of the best degrees, the fastest first; perhaps none.
        refused: the other degrees.
    """

    choices: tuple[Choice, ...]
    refused: tuple[Refused, ...]

    @property
    def best(self) -> Choice | None:
        """The fastest; None if nothing fits."""
        return self.choices[0] if self.choices else None


@dataclass
class Problem:
    """What a plan is asked for.

    Attributes:
        config: the model; its sequences are all as long as it says.
        cluster: GPUs, and how many are in a node.
        batch: sequences of a step.
        seconds: predicts a step; it is also asked about a part of the model on a part of the
            cluster, from the first GPU on.
        precision: of the products.
        recipe: bytes of everything; a production program's for the layout if None.
        usable: part of a GPU's memory that tensors can have; the rest is the driver's, NCCL's, and
            what the allocator wastes.
    """

    config: ModelConfig
    cluster: Cluster
    batch: int
    seconds: Seconds
    precision: str = "bf16"
    recipe: Recipe | None = None
    usable: float = 0.9
    _pipelines: dict[tuple[str, int, int, int], Stages] = field(default_factory=dict, repr=False)
    _rough: dict[Layout, float] = field(default_factory=dict, repr=False)

    @property
    def room(self) -> float:
        """Bytes that a rank may use."""
        return self.cluster.gpu.memory * self.usable

    def memory(self, layout: Layout) -> Memory:
        """Of the fullest rank."""
        m = enough_micro_batches(layout)
        key = (layout.schedule, layout.pp, layout.chunks, m)
        if key not in self._pipelines:
            schedule = schedule_of(layout, m)
            self._pipelines[key] = Stages(schedule, even_stages(self.config, schedule.stages))
        return memory(self.config, layout, recipe=self.recipe, stages=self._pipelines[key])

    def fits(self, layout: Layout) -> bool:
        """Whether the fullest rank has room."""
        return self.memory(layout).total <= self.room

    def rough(self, layout: Layout) -> float:
        """Seconds of a step: those of one stage alone, and the share that a pipeline waits.

        Without a pipeline they are exact.
        """
        alone = replace(layout, pp=1, schedule="1F1B", chunks=1)
        key = replace(alone, pp=layout.pp)
        if key not in self._rough:
            part = replace(self.config, layers=-(-self.config.layers // layout.pp))
            self._rough[key] = self.seconds(part, alone)
        wait = kind_of(layout.schedule).wait / layout.chunks
        return self._rough[key] * (1 + wait * (layout.pp - 1) / layout.micro_batches)


def plan(problem: Problem, keep: int = 8) -> Plan:
    """Searches.

    Every way to factor the cluster is refused with a reason, or predicted roughly in all ways that
    fit: lengths of micro-batches, schedules, ZeRO-1 and 3, recomputation. Of the `keep` best
    degrees the two best ways are then predicted in full.

    Args:
        problem: the question.
        keep: how many degrees to predict in full.
    """
    refused: list[Refused] = []
    found: list[list[Layout]] = []
    for degrees in all_degrees(problem):
        why = breaks_a_rule(problem, degrees) or _too_much(problem, degrees)
        if why:
            refused.append(Refused(degrees, why))
        else:
            found.append(sorted(ways_of(problem, degrees), key=problem.rough))
    found.sort(key=lambda ways: problem.rough(ways[0]))
    found = _folded(found)
    choices = [best_of(problem, ways[:2]) for ways in found[:keep]]
    choices.sort(key=lambda choice: choice.seconds)
    for ways in found[keep:]:
        slow = problem.rough(ways[0]) / choices[0].seconds
        why = f"takes about {slow:.2f} times as long as the best"
        refused.append(Refused(ways[0], why, slow))
    return Plan(tuple(choices), tuple(refused))


def _folded(found: Iterable[list[Layout]]) -> list[list[Layout]]:
    """Of degrees whose best ways compute the same on every rank only the first.

    Sequences cut over twice as many ranks, in micro-batches of twice as many of them, are such.
    """
    kept: dict[tuple[object, ...], list[Layout]] = {}
    for ways in found:
        one = ways[0]
        shape = (one.pp, one.ep, one.tp, one.schedule, one.chunks, one.zero, one.recompute)
        kept.setdefault((*shape, one.micro_batch_size / one.cp), ways)
    return list(kept.values())


def best_of(problem: Problem, ways: Iterable[Layout]) -> Choice:
    """The fastest of some layouts."""
    tried = [Choice(one, problem.memory(one), problem.seconds(problem.config, one)) for one in ways]
    return min(tried, key=lambda choice: choice.seconds)


# --- what there is -------------------------------------------------------------------------------
def all_degrees(problem: Problem) -> Iterator[Layout]:
    """Every way to factor the cluster, with tp to twice a node and pp to twice the blocks.

    What is beyond is of no use either, for the same reasons.
    """
    config, cluster = problem.config, problem.cluster
    experts = config.moe.experts if config.moe else 1
    for tp in _divisors(cluster.count, 2 * cluster.node):
        for cp in _divisors(cluster.count // tp, max(1, config.sequence // SHORTEST)):
            for ep in _divisors(cluster.count // tp // cp, experts):
                rest = cluster.count // tp // cp // ep
                for pp in _divisors(rest, 2 * config.layers):
                    yield _with_batch(problem, Layout(pp, rest // pp, ep, cp, tp))


def _divisors(count: int, most: int) -> list[int]:
    return [n for n in range(1, min(count, most) + 1) if count % n == 0]


def _with_batch(problem: Problem, degrees: Layout, size: int = 1) -> Layout:
    """The same with its part of the batch, ZeRO-1, and sequence parallelism where it can be.

    Both cost nothing: they send as many bytes.
    """
    config = problem.config
    even = config.moe is None and config.sequence % (2 * degrees.cp * degrees.tp) == 0
    return replace(
        degrees,
        micro_batch_size=size,
        micro_batches=max(1, problem.batch // (degrees.dp * degrees.ep * size)),
        sequence=degrees.tp > 1 and even,
        zero=1 if degrees.replicas > 1 else 0,
        precision=problem.precision,
    )


# --- what cannot be ------------------------------------------------------------------------------
def breaks_a_rule(problem: Problem, layout: Layout) -> str:
    """Why a layout is ruled out before anything is predicted; empty if it is not."""
    config, node = problem.config, min(problem.cluster.node, problem.cluster.count)
    if layout.tp > node:
        return f"tp {layout.tp} exceeds a node of {node} GPUs: it communicates twice in every block"
    if node % layout.tp:
        return f"tp {layout.tp} does not divide a node of {node}: a group would lie on two"
    for refusal in misfits(config, layout):
        return refusal.why
    if uneven := uneven_batch(problem.batch, layout, size=layout.micro_batch_size):
        return uneven.why
    if layout.micro_batches < layout.pp:
        return f"{layout.micro_batches} micro-batches leave some of {layout.pp} stages idle"
    if layout.schedule == "interleaved 1F1B" and layout.micro_batches % layout.pp:
        return f"{layout.micro_batches} micro-batches are not a multiple of pp {layout.pp}"
    return ""


def _too_much(problem: Problem, degrees: Layout) -> str:
    """By how much degrees do not fit, with all that saves memory; empty if they do."""
    least = replace(degrees, recompute="full", zero=_zero_stages(degrees)[-1])
    most = problem.memory(least)
    if most.total <= problem.room:
        return ""
    return (
        f"does not fit: needs {most.total / 1e9:.1f} of {problem.room / 1e9:.1f} GB even with "
        f"everything that saves memory; {most.states / 1e9:.1f} GB of it are parameters, gradients "
        "and optimizer"
    )


def _zero_stages(layout: Layout) -> tuple[int, ...]:
    """The stages worth a try. In a pipeline, ZeRO-3 would gather again for every micro-batch."""
    if layout.replicas == 1:
        return (0,)
    return (1, 3) if layout.pp == 1 else (1,)


# --- what is better ------------------------------------------------------------------------------
def ways_of(problem: Problem, degrees: Layout) -> Iterator[Layout]:
    """Every layout with these degrees that fits."""
    for (schedule, chunks), zero, recompute in product(
        _schedules(problem, degrees), _zero_stages(degrees), RECOMPUTE
    ):
        for size in SIZES:
            base = _with_batch(problem, degrees, size)
            way = replace(base, schedule=schedule, chunks=chunks, zero=zero, recompute=recompute)
            if breaks_a_rule(problem, way) or not problem.fits(way):
                break  # longer micro-batches are fewer, and hold more
            yield way


def _schedules(problem: Problem, degrees: Layout) -> Iterator[tuple[str, int]]:
    """Names and chunks."""
    yield "1F1B", 1
    if degrees.pp == 1:
        return
    for name, kind in KINDS.items():
        if kind.wait and name != "1F1B":
            for chunks in (kind.chunks,) if kind.chunks else CHUNKS:
                if chunks == 1 or problem.config.layers % (degrees.pp * chunks) == 0:
                    yield name, chunks
