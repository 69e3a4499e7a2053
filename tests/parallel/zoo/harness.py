"""One case of the zoo: a specimen under a wrapper on a group, beside one process."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from course_lib.checkpoint import resume_training, save_training
from course_lib.comm import Group
from course_lib.ranks import Pool, RanksError
from tests.parallel.zoo.alone import Alone, difference
from tests.parallel.zoo.specimen import Specimen
from tests.parallel.zoo.wrappers import OURS, Rig

SAVED, STEPS = 3, 5  # saved after three steps; the wrapper made again makes the last two
# How many ranks, and the group's ranks in their order; those left over are a group of their own.
GROUPS: dict[str, tuple[int, list[int]]] = {
    "2 ranks": (2, [0, 1]),
    "3 ranks": (3, [0, 1, 2]),
    "ranks 2, 0 of 3": (3, [2, 0]),
}


class Different(AssertionError):
    """A rank that computed something else than one process."""


class Unfit(ValueError):
    """A model that does not compute in this precision in one process either."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended: `equal`, `refused`, `unfit`, `different`, `crashed`; and its words."""

    kind: str
    words: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


def judge(pool: Pool, specimen: Specimen, wrapper: str, members: list[int]) -> Verdict:
    """Runs a case on the ranks of a pool, which is started again if they cannot go on."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            pool.run(train, specimen.name, wrapper, members, folder, timeout=60)
        except RanksError as error:
            return verdict_of(error)
    return Verdict("equal")


def verdict_of(error: RanksError) -> Verdict:
    """What became of a case, from what its ranks said."""
    reports = error.outcome.reports.values()
    failed = [r for r in reports if r["state"] == "raised"]
    if not failed:
        return Verdict("crashed", str(error))
    for report in failed:
        for kind in ("Different", "Unfit"):
            if report["error"].startswith(kind):
                return Verdict(kind.lower(), report["text"])
    for report in failed:
        if "asked: " not in report["text"]:
            return Verdict("crashed", report["error"])
    return Verdict("refused", failed[0]["text"])


def train(group: Group, name: str, wrapper: str, members: list[int], folder: str) -> None:
    """On a rank: five steps under a wrapper, saved and resumed in the middle, beside one process.

    Raises:
        Different: another loss, weight or buffer than one process has.
    """
    from tests.parallel.zoo.others.real import REAL
    from tests.parallel.zoo.table import SPECIMENS

    torch.manual_seed(0)
    rest = [rank for rank in range(group.size) if rank not in members]
    if members != list(range(group.size)):
        group = group.split([members, rest] if rest else [members], "zoo")
    run_case((SPECIMENS | REAL)[name], wrapper, group, Path(folder) / str(group.ranks))


def run_case(specimen: Specimen, wrapper: str, group: Group, folder: Path) -> None:
    """The case itself, on this rank's group."""
    narrow = torch.bfloat16 if wrapper == "FSDP bf16" else None
    tolerance = specimen.tolerance if narrow else specimen.close
    if narrow:
        try_alone(specimen, narrow)
    alone = Alone(specimen, group.size, narrow)
    rig = set_up(specimen, wrapper, group)
    for step in range(SAVED):
        compare_step(specimen, rig, alone, group, step, tolerance)
    compare_state(rig, alone, group, f"after step {SAVED}", tolerance)
    assert rig.training
    save_training(rig.training, folder, group, step=SAVED)
    rig = set_up(specimen, wrapper, group)
    assert rig.training
    resume_training(rig.training, folder, group)
    compare_state(rig, alone, group, "after it was resumed", tolerance)
    for step in range(SAVED, STEPS):
        compare_step(specimen, rig, alone, group, step, tolerance)
    compare_state(rig, alone, group, f"after step {STEPS}", tolerance)


def try_alone(specimen: Specimen, dtype: torch.dtype) -> None:
    """Tells what no wrapper could make right from what a wrapper does wrong."""
    try:
        Alone(specimen, 1, dtype).step(0)
    except (RuntimeError, ValueError) as error:
        raise Unfit(f"{error}") from error


def set_up(specimen: Specimen, wrapper: str, group: Group) -> Rig:
    """The wrapped specimen."""
    model = specimen.build()
    spoil(model, group)
    return OURS[wrapper](specimen, model, group)


def spoil(model: nn.Module, group: Group) -> None:
    """Gives other weights to all ranks but index 0, whose values all are to begin with."""
    if group.index:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad and not parameter.is_sparse:
                    parameter.data.mul_(1.5)


def compare_step(
    specimen: Specimen, rig: Rig, alone: Alone, group: Group, step: int, tolerance: float
) -> None:
    """Makes a step on the ranks and in one process, and compares the losses."""
    rig.optimizer.zero_grad()
    for micro in range(specimen.micro - 1):
        with rig.no_sync():
            backward(specimen, rig, step, micro, group.index)
    loss = backward(specimen, rig, step, specimen.micro - 1, group.index)
    rig.optimizer.step()
    expected = alone.step(step)[group.index]
    if not abs(loss - expected) <= max(tolerance, 1e-6) * max(1.0, abs(expected)):
        raise Different(f"the loss of step {step + 1} is {loss:.6g}, not {expected:.6g}")


def backward(specimen: Specimen, rig: Rig, step: int, micro: int, part: int) -> float:
    loss = specimen.loss(rig.model, specimen.data(step * specimen.micro + micro, part))
    (loss / specimen.micro).backward()
    return float(loss.detach())


def compare_state(rig: Rig, alone: Alone, group: Group, when: str, tolerance: float) -> None:
    """Weights on every rank, and buffers on index 0, whose values a checkpoint has."""
    left_out = {n for n, _ in alone.model.named_buffers()} if group.index else set()
    found, expected = (
        {n: t for n, t in state.items() if n not in left_out}
        for state in (rig.state(), alone.state())
    )
    wrong = difference(found, expected, tolerance)
    if wrong:
        raise Different(f"{when}, {wrong}")
