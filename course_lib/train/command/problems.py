"""All reasons why a run cannot work, each in the words of the part of the course that would refuse.

Notebook: 13 3D parallelism.
Source: the rules are those of `layout` and `schedule`, and of what this room puts together.
Costs milliseconds, and no process.
The production version (Megatron-LM) asserts such rules one after the other: it names the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from course_lib.layout import misfits, uneven_batch
from course_lib.schedule import ScheduleError
from course_lib.trace import Refusal
from course_lib.train.command.config import PRECISIONS, RECOMPUTE, WORDS, RunConfig
from course_lib.train.command.numbers import wrong_numbers
from course_lib.train.command.other_tools.hugging_face import INDEX, WEIGHTS
from course_lib.train.mesh_model import NO_RING_MASK, zero_refusal


def find_problems(config: RunConfig, world: int | None = None) -> Iterator[Refusal]:
    """All reasons why a run cannot work, the simplest first."""
    bad = [problem for rule in (wrong_numbers, wrong_words) for problem in rule(config)]
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
    if config.mask_documents and config.cp > 1:
        yield Refusal("--mask-documents", f"--cp {config.cp}", NO_RING_MASK)
    reason = zero_refusal(config.zero, schedule, model)
    if reason is not None:
        yield Refusal(f"--zero {config.zero}", *reason)


SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "tied", "experts")  # of a model


def wrong_words(c: RunConfig) -> Iterator[Refusal]:
    """Options whose words are not known, or that need another or exclude it."""
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
    if not c.folder and (c.save_every or c.resume or c.trace_steps or c.record):
        yield Refusal(
            "checkpoints, traces or a recording",
            "no --folder",
            "they are files, and must go somewhere",
        )
    if c.folder and not c.folder.strip():
        yield Refusal(f"--folder {c.folder!r}", "a name of blanks", "nobody would find it again")
    files = [os.path.join(c.weights_from, name) for name in (WEIGHTS, INDEX)]
    if c.weights_from and not any(map(os.path.isfile, files)):
        why = "it is a folder with the one file, or with an index of several"
        yield Refusal(f"--weights-from {c.weights_from}", f"neither {WEIGHTS} nor {INDEX}", why)
    shaped = [name for name in SHAPE if getattr(c, name) != getattr(RunConfig, name)]
    if c.model_file and shaped:
        found = ", ".join(f"--{name.replace('_', '-')}" for name in shaped)
        yield Refusal(f"--model {c.model_file}", found, "the file says the model's shape")
