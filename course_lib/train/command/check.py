"""Says before any process starts whether a run can work, why not, and the nearest that can.

Notebook: 13 3D parallelism.
Source: each rule is that of the part of the course that would refuse later, on every rank at once.
Costs milliseconds, and no process.
The production version (Megatron-LM) asserts such rules one after the other: it names the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import log2
from typing import Any

from course_lib.layout import misfits, uneven_batch
from course_lib.schedule import ScheduleError
from course_lib.trace import Refusal
from course_lib.train.command.config import PRECISIONS, RECOMPUTE, WORDS, RunConfig
from course_lib.train.mesh_model import zero_refusal

MOST_RANKS = 4096  # and micro-batches; beyond this the nearest run that can work is not searched
SHOWN = 3  # problems that are written out: the simplest come first


class ConfigError(Refusal):
    """A run that cannot work. Its fields are those of the first problem, its text has several.

    Attributes:
        problems: all reasons why it cannot, the simplest first.
        nearest: a run that can, with as few changes as possible; None if none was found.
    """

    def __init__(self, problems: list[Refusal], nearest: RunConfig | None) -> None:
        super().__init__(problems[0].asked, problems[0].found, problems[0].why)
        self.args = (problems, nearest)  # from which pickle makes it again
        self.problems, self.nearest = problems, nearest

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more of this kind")
        if self.nearest is not None:
            lines.append(f"the nearest that can: {self.nearest.command()}")
        return "\n".join(lines)


def check(config: RunConfig, world: int | None = None) -> None:
    """Refuses a run that cannot work; starts nothing.

    Args:
        config: the run.
        world: how many ranks there are; None for as many as it needs.

    Raises:
        ConfigError: it cannot.
    """
    problems = list(find_problems(config, world))
    if problems:
        raise ConfigError(problems, nearest(config, world))


def find_problems(config: RunConfig, world: int | None = None) -> Iterator[Refusal]:
    """All reasons why a run cannot work, the simplest first."""
    bad = [problem for rule in (_numbers, _words) for problem in rule(config)]
    if bad:
        yield from bad  # nothing can be computed with these
        return
    try:
        model = config.model
    except Refusal as problem:
        yield problem
        return
    if world is not None and world != config.world:
        shape = " × ".join(f"{axis} {size}" for axis, size in config.degrees.items() if size > 1)
        yield Refusal(
            f"a mesh of {shape or 'one rank'} = {config.world} ranks",
            f"a world of {world} ranks",
            "every rank has exactly one place on the mesh",
        )
    layout = config.layout
    yield from misfits(model, layout)
    if refusal := uneven_batch(config.batch, layout, config.micro_batches):
        yield refusal
    try:
        schedule = config.make_schedule()
    except ScheduleError as problem:
        yield problem
        return
    reason = zero_refusal(config.zero, schedule, model)
    if reason is not None:
        yield Refusal(f"--zero {config.zero}", *reason)


# --- the rules -----------------------------------------------------------------------------------
def _numbers(c: RunConfig) -> Iterator[Refusal]:
    positive = {
        **c.degrees,
        "micro-batches": c.micro_batches,
        "chunks": c.chunks,
        "layers": c.layers,
        "hidden": c.hidden,
        "heads": c.heads,
        "kv-heads": c.kv_heads,
        "ffn": c.ffn,
        "sequence": c.sequence,
        "steps": c.steps,
        "batch": c.batch,
        "keep": c.keep,
        "corpus-mib": c.corpus_mib,
    }
    for name, value in positive.items():
        if value < 1:
            yield Refusal(f"--{name} {value}", "a number below 1", "there is at least one of these")
    others = {
        "experts": c.experts,
        "warmup": c.warmup,
        "save-every": c.save_every,
        "trace-steps": c.trace_steps,
    }
    for name, value in others.items():
        if value < 0:
            yield Refusal(f"--{name} {value}", "a number below 0", "it counts something")
    if not (c.rate > 0 and c.max_norm > 0):
        yield Refusal(
            f"--rate {c.rate:g} --max-norm {c.max_norm:g}", "not both above 0", "nothing would move"
        )


def _words(c: RunConfig) -> Iterator[Refusal]:
    known: dict[str, tuple[Any, ...]] = {
        "schedule": tuple(WORDS),
        "recompute": RECOMPUTE,
        "precision": PRECISIONS,
        "weights": ("fp32", "fp64"),
        "zero": (0, 1, 2, 3),
    }
    for name, words in known.items():
        if getattr(c, name) not in words:
            yield Refusal(f"--{name} {getattr(c, name)}", ", ".join(map(str, words)), "pick one")
    if not c.folder and (c.save_every or c.resume or c.trace_steps):
        yield Refusal(
            "checkpoints or traces", "no --folder", "they are files, and must go somewhere"
        )


# --- the nearest that can ------------------------------------------------------------------------
def nearest(config: RunConfig, world: int | None = None) -> RunConfig | None:
    """The run that can work, with the fewest changes; model, data and optimizer stay.

    Args:
        config: a run that cannot.
        world: how many ranks there are; None for as many as it asks for.
    """
    if any(True for rule in (_numbers, _words) for _ in rule(config)):
        return None
    ranks = config.world if world is None else world
    found: tuple[float, RunConfig] | None = None
    for far, other in _neighbours(config, ranks):
        if (found is None or far < found[0]) and not any(find_problems(other, world)):
            found = far, other
    return None if found is None else found[1]


def _neighbours(config: RunConfig, ranks: int) -> Iterator[tuple[float, RunConfig]]:
    """Other ways to run the same on so many ranks, and how far away each is.

    A word that changes counts 1, an axis that doubles or halves too, another number of
    micro-batches half of it; of axes that may grow, dp is the first.
    """
    options: dict[str, tuple[Any, ...]] = {
        "zero": (config.zero, 0, 1, 2, 3),
        "schedule": (config.schedule, "1f1b"),
        "micro_batches": _near(config.micro_batches, config.batch),
        "sequence_parallel": (config.sequence_parallel, False),
    }
    if ranks > MOST_RANKS or config.micro_batches > MOST_RANKS:
        return  # there are millions of ways, and whoever asks for so many has mistyped
    for sizes in _factors(ranks, len(config.degrees)):
        changes: dict[str, Any] = dict(zip(config.degrees, sizes, strict=True))
        moved = sum(abs(log2(changes[axis] / size)) for axis, size in config.degrees.items())
        for values in product(*(dict.fromkeys(value) for value in options.values())):
            changes.update(zip(options, values, strict=True))
            other = replace(config, **changes)
            words = sum(getattr(other, name) != getattr(config, name) for name in options)
            far = words + moved + 0.1 * abs(other.zero - config.zero) - 0.01 * log2(other.dp)
            if other.micro_batches != config.micro_batches:
                far += 0.01 * abs(log2(other.micro_batches / config.micro_batches)) - 0.5
            yield far, other


def _near(count: int, batch: int) -> tuple[int, ...]:
    """Numbers of micro-batches that a batch can be cut into, not too far from `count`."""
    return (count, *(m for m in range(1, min(batch, 4 * count + 8) + 1) if batch % m == 0))


def _factors(count: int, axes: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of `axes` numbers."""
    if axes == 1:
        yield (count,)
        return
    for first in (n for n in range(1, count + 1) if count % n == 0):
        for rest in _factors(count // first, axes - 1):
            yield (first, *rest)
