"""Searches all layouts of a model on a cluster: the fastest that fits, and why not the others.

Notebook: 15 Choosing a strategy (plan).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3, whose takeaways the rules are; Zheng et
al., "Alpa" (2022), for the search.
Costs a prediction for each way to factor the cluster that fits, and a dozen for each of the best.
The production version measures the few best layouts before it takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from course_lib.model.config import ModelConfig
from course_lib.plan.hardware import Cluster
from course_lib.plan.layout import RECOMPUTE, Layout
from course_lib.plan.memory import Memory, memory
from course_lib.plan.recipe import Recipe
from course_lib.plan.share import does_not_divide
from course_lib.plan.stages import Stages, enough_micro_batches, even_stages, schedule_of

Seconds = Callable[[ModelConfig, Layout], float]
ROWS = (1, 2, 4, 8)
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
    """

    degrees: Layout
    why: str


@dataclass(frozen=True)
class Plan:
    """What a search has found.

    Attributes:
        choices: the fastest layout for each set of degrees, the fastest first; perhaps none.
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
        seconds: predicts a step.
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

    def choice(self, layout: Layout) -> Choice:
        """With its predictions."""
        return Choice(layout, self.memory(layout), self.seconds(self.config, layout))


def plan(problem: Problem, keep: int = 8) -> Plan:
    """Searches.

    Every way to factor the cluster is refused with a reason, or predicted with micro-batches of one
    sequence and the least recomputation that fits. For the `keep` best of them everything else is
    tried too: longer micro-batches, other schedules, ZeRO-3, more recomputation.

    Args:
        problem: the question.
        keep: how many degrees to look at in full.
    """
    refused, first = [], []
    for degrees in all_degrees(problem):
        why = breaks_a_rule(problem, degrees)
        layout = None if why else _first_that_fits(problem, degrees)
        if layout is not None:
            first.append(problem.choice(layout))
        else:
            refused.append(Refused(degrees, why or _too_much(problem, degrees)))
    first.sort(key=lambda choice: choice.seconds)
    full = [_best_of(problem, choice) for choice in first[:keep]]
    choices = sorted([*full, *first[keep:]], key=lambda choice: choice.seconds)
    return Plan(tuple(choices), tuple(refused))


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


def _with_batch(problem: Problem, degrees: Layout, rows: int = 1) -> Layout:
    """The same with its part of the batch, ZeRO-1, and sequence parallelism where it can be.

    Both cost nothing: they send as many bytes.
    """
    config = problem.config
    even = config.moe is None and config.sequence % (2 * degrees.cp * degrees.tp) == 0
    return replace(
        degrees,
        rows=rows,
        micro_batches=max(1, problem.batch // (degrees.dp * degrees.ep * rows)),
        sequence=degrees.tp > 1 and even,
        zero=1 if degrees.replicas > 1 else 0,
        precision=problem.precision,
    )


# --- what cannot be ------------------------------------------------------------------------------
def breaks_a_rule(problem: Problem, layout: Layout) -> str:
    """Why degrees are out of the question before anything is predicted; empty if they are not."""
    config, node = problem.config, problem.cluster.node
    pieces = layout.dp * layout.ep
    if layout.tp > node:
        return f"tp {layout.tp} is beyond a node of {node}: it sends twice in every block"
    if node % layout.tp:
        return f"tp {layout.tp} does not divide a node of {node}: a group would lie on two"
    if layout.pp > config.layers:
        return f"{config.layers} blocks are fewer than {layout.pp} stages"
    if why := does_not_divide(config, layout):
        return why
    if problem.batch % (pieces * layout.rows):
        return f"{problem.batch} sequences do not divide over {pieces} ranks of dp and ep"
    if layout.micro_batches < layout.pp:
        return f"{layout.micro_batches} micro-batches leave some of {layout.pp} stages idle"
    return ""


def _first_that_fits(problem: Problem, degrees: Layout) -> Layout | None:
    """With the least recomputation, then the lowest stage of ZeRO."""
    return next((one for one in _savings(degrees) if _fits(problem, one)), None)


def _fits(problem: Problem, layout: Layout) -> bool:
    return problem.memory(layout).total <= problem.room


def _savings(layout: Layout) -> Iterator[Layout]:
    """The same with less and less memory."""
    for recompute in RECOMPUTE:
        yield replace(layout, recompute=recompute)
        if layout.pp == 1 and layout.replicas > 1:  # else it gathers for every micro-batch
            yield replace(layout, recompute=recompute, zero=3)


def _too_much(problem: Problem, degrees: Layout) -> str:
    least = min((problem.memory(one) for one in _savings(degrees)), key=lambda one: one.total)
    return (
        f"does not fit: {least.total / 1e9:.1f} GB of {problem.room / 1e9:.1f}, of which "
        f"{least.states / 1e9:.1f} are parameters, gradients and optimizer, with all that saves"
    )


# --- what is better ------------------------------------------------------------------------------
def _best_of(problem: Problem, first: Choice) -> Choice:
    """The fastest layout with the same degrees."""
    tried = [first]
    for layout in _variants(problem, first.layout):
        if layout != first.layout and not breaks_a_rule(problem, layout):
            tried.append(problem.choice(layout))
    return min(tried, key=lambda choice: choice.seconds)


def _variants(problem: Problem, layout: Layout) -> Iterator[Layout]:
    """Lengths of micro-batches, schedules and stages of ZeRO, each with the least recomputation."""
    for rows in ROWS:
        base = _with_batch(problem, layout, rows)
        if problem.batch % (base.batch) or base.batch > problem.batch:
            continue
        for one in _schedules(problem, base):
            stages = (1, 3) if layout.pp == 1 and layout.replicas > 1 else (one.zero,)
            for zero in stages:
                saving = (replace(one, recompute=how, zero=zero) for how in RECOMPUTE)
                fitting = next((each for each in saving if _fits(problem, each)), None)
                if fitting is not None:
                    yield fitting


def _schedules(problem: Problem, layout: Layout) -> Iterator[Layout]:
    yield replace(layout, schedule="1F1B", chunks=1)
    if layout.pp == 1:
        return
    yield replace(layout, schedule="ZB-H1", chunks=1)
    for chunks in CHUNKS:
        even = problem.config.layers % (layout.pp * chunks) == 0
        if even and layout.micro_batches % layout.pp == 0:
            yield replace(layout, schedule="interleaved 1F1B", chunks=chunks)
