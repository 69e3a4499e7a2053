"""The nearest run that can work: the one that keeps the most of what was asked for.

Notebook: 13 3D parallelism.
Costs milliseconds: some thousand neighbours are made and checked, none is started.
The production version leaves this to a person.

How far a run is from the one that was asked for:

    an axis that doubles or halves      1, a third more or less accordingly
    another number of ranks             1, and as for an axis
    a word, or a switch                 1
    another batch                       1/2, and as for an axis
    another number of micro-batches     1/2, and a little for how many more or fewer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import log2, prod
from typing import Any

from course_lib.layout import Layout, misfits
from course_lib.trace import Refusal
from course_lib.train.command.config import RunConfig
from course_lib.train.command.numbers import wrong_numbers
from course_lib.train.command.problems import find_problems, wrong_words

MOST_RANKS = 4096  # and micro-batches; beyond this nothing is searched
SMALLER = 64  # sizes of an axis that are tried below the one that was asked for


def nearest(config: RunConfig, world: int | None = None) -> RunConfig | None:
    """The run that can work, with the fewest changes; model, data and optimizer stay.

    Args:
        config: a run that cannot.
        world: how many ranks there are. If these are others than it asks for, all of them are
            used; else, or with None, there may be fewer.
    """
    if any(True for rule in (wrong_numbers, wrong_words) for _ in rule(config)):
        return None
    ranks = config.world if world is None else world
    if ranks > MOST_RANKS or config.micro_batches > MOST_RANKS:
        return None  # there are millions of ways, and whoever asks for so many has mistyped
    try:
        neighbours = sorted(_neighbours(config, ranks), key=lambda neighbour: neighbour[0])
    except Refusal:
        return None  # the model itself cannot be
    for _, changes in neighbours:
        other = replace(config, **changes)
        if not any(find_problems(other)):
            return other
    return None


def _neighbours(config: RunConfig, ranks: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """Other ways to run the same, as options that change, and how far away each is."""
    options: dict[str, tuple[Any, ...]] = {
        "zero": (config.zero, 0, 1, 2, 3),
        "schedule": (config.schedule, "1f1b"),
        "micro_batches": _near(config.micro_batches, config.batch),
        "sequence_parallel": (config.sequence_parallel, False),
    }
    ways = list(product(*(dict.fromkeys(value) for value in options.values())))
    model = config.model
    for sizes in _meshes(config, ranks):
        degrees: dict[str, Any] = dict(zip(config.degrees, sizes, strict=True))
        if any(misfits(model, Layout(**degrees))):
            continue  # whatever else changes
        moved = sum(_times(degrees[axis], size) for axis, size in config.degrees.items())
        moved -= 0.01 * log2(degrees["dp"])
        if (world := prod(sizes)) != ranks:
            moved += 1 + _times(world, ranks)
        for values in ways:
            changes = degrees | dict(zip(options, values, strict=True))
            far = moved + sum(changes[name] != getattr(config, name) for name in options)
            far += 0.1 * abs(changes["zero"] - config.zero)
            if changes["micro_batches"] != config.micro_batches:
                far += 0.01 * _times(changes["micro_batches"], config.micro_batches) - 0.5
            yield from _batches(config.batch, changes, far)


def _batches(
    batch: int, changes: dict[str, Any], far: float
) -> Iterator[tuple[float, dict[str, Any]]]:
    """The run with its batch, or with the next that its ranks can share."""
    part = changes["dp"] * changes["ep"] * changes["micro_batches"]
    if batch % part == 0:
        yield far, changes
        return
    for other in (batch // part * part, -(-batch // part) * part):
        if other:
            yield far + 0.5 + _times(other, batch), changes | {"batch": other}


def _times(a: int, b: int) -> float:
    """How far apart two sizes are: 1 if one is twice the other."""
    return abs(log2(a / b))


def _meshes(config: RunConfig, ranks: int) -> Iterator[tuple[int, ...]]:
    """Sizes of the axes: all for so many ranks, and those asked for with one axis smaller."""
    asked = tuple(config.degrees.values())
    yield from _factors(ranks, len(asked))
    if ranks != config.world:
        return
    for place, size in enumerate(asked):
        for smaller in range(size - 1, max(0, size - 1 - SMALLER), -1):
            yield (*asked[:place], smaller, *asked[place + 1 :])


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
