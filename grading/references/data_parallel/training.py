"""Replicas trained on ranks, held against one process that has all the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib.grade.suite import Run, because
from course_lib.trace import Event, Ledger
from grading.references.data_parallel import replicas
from grading.references.data_parallel.replicas import Batch, Net, Values

SEEDS = (11, 5, 23, 42)  # of the ranks' replicas: all different before they are wrapped
STEPS = 3
ROWS = 6  # of a batch, on each rank


class Training:
    """One run of a driver that trains replicas, and the inputs that it had.

    The driver is given `seed`, `width`, `dtype`, `batches` and `parts`, and returns for each
    optimizer the `gradients` and `weights` that `replicas.train` returns, and `start`, the state of
    the wrapped replica.

    Args:
        run: of the check.
        drive: the driver.
        world: ranks.
        parts: groups of ranks that train together; () for one of all.
        reason: why it is likely to end in a deadlock, if it does.
        dtype: of the replicas and the data.
    """

    def __init__(
        self,
        run: Run,
        drive: Callable[..., Any],
        world: int,
        parts: Sequence[Sequence[int]] = (),
        reason: str = "",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.run, self.world, self.dtype = run, world, dtype
        self.groups = parts or (tuple(range(world)),)
        self.width = run.number(3, 6)
        self.batches = [
            [(run.random((ROWS, self.width), dtype), run.random(ROWS, dtype)) for _ in range(STEPS)]
            for _ in range(world)
        ]
        inputs = [
            {
                "seed": SEEDS[rank],
                "width": self.width,
                "dtype": dtype,
                "batches": self.batches[rank],
                "parts": parts,
            }
            for rank in range(world)
        ]
        self.result = explained(run, drive, inputs, world, reason)
        self.outputs = self.result.outputs

    def net(self, rank: int) -> Net:
        """The replica that the rank began with."""
        return Net(SEEDS[rank], self.width, self.dtype)

    def steps(self, members: Sequence[int]) -> list[list[Batch]]:
        """For each step, the batches of these ranks."""
        return [[self.batches[rank][step] for rank in members] for step in range(STEPS)]

    def mean_gradients(self, members: Sequence[int], step: int = 0) -> Values:
        """What each of these ranks must have after a backward at the start."""
        return replicas.mean_gradients(self.net(members[0]), self.steps(members)[step])

    # --- checks ------------------------------------------------------------------------------
    def check_start(self) -> None:
        """Fails if the parameters did not start equal: then nothing after that can be right."""
        for members in self.groups:
            wanted = dict(self.net(members[0]).named_parameters())
            for rank in members:
                start = self.outputs[rank]["start"]
                wrong = [
                    name
                    for name, tensor in wanted.items()
                    if not torch.equal(start.get(name, torch.empty(0)), tensor)
                ]
                self.run.true(
                    not wrong,
                    "the replicas did not start equal, so nothing after that can be",
                    rank=rank,
                    measured=f"not equal: {', '.join(wrong)}",
                    cause="the parameters of index 0 are not everywhere",
                )

    def check_gradients(self, known: Callable[[Sequence[int], int], dict[str, Values]]) -> None:
        """The gradients of the first step, on all ranks.

        Args:
            known: further known wrong gradients for the members of a group and a rank.
        """
        self.check_start()
        for members in self.groups:
            mean = self.mean_gradients(members)
            for rank in members:
                likely = {
                    "this is the sum: divide by the group's size": scaled(mean, len(members)),
                    "this is the sum, divided by the world's size and not by the group's":
                        scaled(mean, len(members) / self.world),
                    "this is the sum, divided by 2, whatever the group's size":
                        scaled(mean, len(members) / 2),
                    "divided twice by the group's size: `avg` divides already":
                        scaled(mean, 1 / len(members)),
                    **known(members, rank),
                }  # fmt: skip
                actual = self.outputs[rank]["SGD"]["gradients"]
                self.compare_gradients(rank, actual, mean, likely, "one backward")

    def compare_gradients(
        self, rank: int, actual: dict[str, Any], wanted: Values, known: dict[str, Values], when: str
    ) -> None:
        """None for frozen parameters, and the right values for the others."""
        for name, gradient in actual.items():
            if name not in wanted:
                self.run.true(
                    gradient is None,
                    f"{name} is frozen, but has a gradient",
                    rank=rank,
                    cause="skip what does not require a gradient",
                )
            elif gradient is None:
                self.run.fail(f"{name} has no gradient after {when}", rank=rank)
        trained = {name: gradient for name, gradient in actual.items() if name in wanted}
        what = f"the gradient after {when}"
        self.run.close(trained, wanted, what, rank=rank, likely=known, terms=8)

    def check_weights(self) -> None:
        """The weights after all steps, with both optimizers, on all ranks."""
        self.check_start()
        for members in self.groups:
            for name in replicas.OPTIMIZERS:
                steps, first = self.steps(members), members[0]
                wanted = replicas.one_process(self.net(first), steps, name)
                total = replicas.one_process(self.net(first), steps, name, len(members))
                for rank in members:
                    alone = replicas.one_process(self.net(first), self.steps([rank]), name)
                    what = f"after {STEPS} steps of {name}, the weight"
                    self.run.close(self.outputs[rank][name]["weights"], wanted, what, rank=rank,
                                   terms=99, likely={
                        "trained with the sum of the gradients: divide by the group's size": total,
                        "trained with this rank's own gradients": alone,
                    })  # fmt: skip


def only_bf16(run: Run, calls: Sequence[Event], rank: int | None = None) -> None:
    """Fails if a rank has converted bf16 before it was sent; `calls` are its calls."""
    widest = max((event.item for event in calls), default=0)
    what = "bytes of an element on the wire, where all tensors are bf16"
    cause = "it was converted to a wider dtype before it was sent: send it as it is"
    run.at_most(widest, torch.bfloat16.itemsize, what, rank=rank, cause=cause)


def all_only_bf16(run: Run, ledgers: Sequence[Ledger]) -> None:
    """The same of every rank's calls."""
    for ledger in run.each(ledgers):
        only_bf16(run, ledger.calls())


def scaled(tensors: Values, factor: float) -> Values:
    """All of them, multiplied."""
    return {name: tensor * factor for name, tensor in tensors.items()}


def explained(run: Run, drive: Callable[..., Any], inputs: Any, world: int, reason: str) -> Any:
    """The result of a run; if it ends in a deadlock, the likely reason is added to it."""
    with because(deadlock=f"{{}} {reason}"):
        return run(drive, inputs, world=world)
