"""A random program on ranks, beside one process; what may come of it, and a smaller one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.ranks import Pool, RanksError
from tests.parallel.zoo.alone import Alone
from tests.parallel.zoo.harness import (
    Verdict,
    backward,
    compare_state,
    compare_step,
    set_up,
    verdict_of,
)
from tests.parallel.zoo.random_program import Failure, Program, smaller, specimen
from tests.parallel.zoo.specimen import Specimen, bare
from tests.parallel.zoo.wrappers import Rig

STEPS = 3


class Planned(Exception):
    """The failure that a program has in it."""


def judge_program(pool: Pool, program: Program) -> Verdict:
    """Runs a program. A rank that fails alone may leave the others waiting, which is found out.

    So may ranks that all fail, where they take different branches: one fails before a bucket is
    full, in which another waits for it.
    """
    try:
        pool.run(train, program, timeout=60)
    except RanksError as error:
        failure = program.failure
        apart = failure and (program.unused or len(failure.ranks) < len(program.members))
        if apart and left(error):
            return Verdict("stopped", "the others were left by the rank that failed")
        return verdict_of(error)
    return Verdict("equal")


def left(error: RanksError) -> bool:
    """Whether all that went wrong is that ranks wait for one that failed, or is gone with it."""
    raised = [r for r in error.outcome.reports.values() if r["state"] == "raised"]
    alone = ("asked: ", "Connection closed by peer", "Read error", "Connection reset")
    return error.outcome.verdict in ("deadlock", "raised") and all(
        any(words in report["text"] for words in alone) for report in raised
    )


def is_right(verdict: Verdict) -> bool:
    """Whether a program may end like this: never with other numbers, never by a crash."""
    return verdict.kind in ("equal", "refused", "stopped")


def train(group: Group, program: Program) -> None:
    """On a rank: three steps, one of which may fail and is made again."""
    members = list(program.members)
    rest = [rank for rank in range(group.size) if rank not in members]
    if members != list(range(group.size)):
        group = group.split([members, rest] if rest else [members], "random")
    row = specimen(program)
    narrow = torch.bfloat16 if program.wrapper == "FSDP bf16" else None
    tolerance = row.tolerance if narrow else row.close
    alone = Alone(row, group.size, narrow)
    rig = set_up(row, program.wrapper, group)
    failure = program.failure if group.rank in members else None
    for step in range(STEPS):
        if failure and failure.step == step:
            fail(row, rig, step, failure, group)
        compare_step(row, rig, alone, group, step, tolerance)
    compare_state(rig, alone, group, f"after step {STEPS}", tolerance)


def fail(row: Specimen, rig: Rig, step: int, failure: Failure, group: Group) -> None:
    """Begins a step that fails on some ranks; all then begin it again, as who catches the error."""
    rig.optimizer.zero_grad()
    with suppress(Planned), raising(rig.model, failure.place, group.rank in failure.ranks):
        backward(row, rig, step, 0, group.index)


@contextmanager
def raising(model: Any, place: str, here: bool) -> Iterator[None]:
    """Has the last block of the model's body raise in its forward, or behind it in its backward.

    A failure before the optimizer needs nothing: the step is given up when its gradients are there.
    """

    def error(*_: object) -> None:
        raise Planned(place)

    def error_later(_: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        if args[0].requires_grad:
            args[0].register_hook(error)

    hooks = {"forward": error, "backward": error_later}
    if not here or place not in hooks:
        yield
        return
    handle = bare(model).body.blocks[-1].register_forward_pre_hook(hooks[place])
    try:
        yield
    finally:
        handle.remove()


def shrink(pool: Pool, program: Program, kind: str, tries: int = 40) -> Program:
    """The smallest program, by leaving out one thing after another, that ends in the same way."""
    found = True
    while found and tries > 0:
        found = False
        for less in smaller(program):
            tries -= 1
            if tries and judge_program(pool, less).kind == kind:
                program, found = less, True
                break
    return program
