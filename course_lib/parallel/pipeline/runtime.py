"""Runs any valid schedule: each rank its list of actions, with messages between the stages.

Notebook: 08 Pipeline parallel (gpipe_step, execute).
Paper: Huang et al., "GPipe" (2019); Narayanan et al., "Megatron-LM" (2021), section 2.2.
Costs: for each micro-batch and each border between stages on two ranks, one activation forward
and one gradient back: 2·m·(stages-1) messages of S/m, S the bytes of a batch's activations.
The production version batches a send with a receive, and infers the shapes of the messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from course_lib.comm import Group, Work, irecv, isend
from course_lib.parallel.pipeline.split_backward import WeightQueue
from course_lib.schedule import Action, Schedule, ScheduleError, simulate


@runtime_checkable
class CutsGradients(Protocol):
    """A stage whose parameters come and go, and whose gradients a backward cuts, as FSDP's does."""

    reshard: bool

    def no_sync(self, *, reshard: bool = True) -> AbstractContextManager[None]:
        """Gradients add up, whole, inside; parameters stay unless `reshard`."""


class Pipeline:
    """A rank's stages, and the schedule by which they run.

    Args:
        stages: this rank's parts of the model, by stage number. The first takes a micro-batch's
            inputs, the others what the stage before returned.
        schedule: of all ranks; rank here is the index in the group.
        group: the ranks of the pipeline.
        loss: `loss(output, targets)`, of the last stage's output: a mean over the micro-batch.
        border: `border(inputs)`, a tensor of the shape, dtype and device of what stages hand on for
            a micro-batch with these inputs; its values do not matter.

    Raises:
        ScheduleError: the schedule has another number of ranks, other stages here, or a deadlock.
    """

    def __init__(
        self,
        stages: Mapping[int, nn.Module],
        schedule: Schedule,
        group: Group,
        *,
        loss: Callable[[torch.Tensor, Any], torch.Tensor],
        border: Callable[[Any], torch.Tensor],
    ) -> None:
        _check_fits(stages, schedule, group)
        simulate(schedule)
        self.stages, self.schedule, self.group = dict(stages), schedule, group
        self.loss, self.border = loss, border
        self.queue = WeightQueue()
        peers = [peer for peer in range(group.size) if peer != group.index]
        self.expected = {peer: schedule.sends(peer, group.index) for peer in peers}

    def step(
        self,
        micro_batches: Sequence[tuple[Any, Any]],
        weights: Sequence[float] | None = None,
    ) -> list[torch.Tensor]:
        """One pass over a batch; gradients are added to `grad`, as by a backward.

        Args:
            micro_batches: (inputs, targets) of each, on every rank: the first stage reads the
                inputs, the last the targets, the others the shape of their messages.
            weights: of each micro-batch's mean loss in the whole; 1/m each by default.

        Returns:
            The micro-batches' losses, without their weights, on the rank of the last stage;
            elsewhere an empty list.

        Raises:
            ScheduleError: not as many micro-batches or weights as the schedule has.
        """
        m = self.schedule.micro_batches
        weights = [1 / m] * m if weights is None else list(weights)
        if not len(micro_batches) == len(weights) == m:
            raise ScheduleError(
                f"a step of the schedule {self.schedule.name} with {m} micro-batches",
                f"{len(micro_batches)} micro-batches and {len(weights)} weights",
                "a schedule is made for a number of micro-batches",
            )
        run = _Run(self, micro_batches, weights)
        for action in self.schedule.actions[self.group.index]:
            run.do(action)
        run.mail.finish()
        return [run.losses[k] for k in sorted(run.losses)]


@dataclass
class _Kept:
    """What a forward leaves for its backward: its input, and the graph of its output.

    The output itself is not kept: autograd's edge to it is enough, and its memory can be freed once
    it has been sent.
    """

    source: torch.Tensor
    edge: GradientEdge


class _Run:
    """One step on one rank."""

    def __init__(
        self, pipe: Pipeline, micro_batches: Sequence[tuple[Any, Any]], weights: Sequence[float]
    ) -> None:
        self.pipe, self.micro_batches, self.weights = pipe, micro_batches, weights
        self.last = pipe.schedule.stages - 1
        self.kept: dict[tuple[int, int], _Kept] = {}
        self.losses: dict[int, torch.Tensor] = {}
        self.left = dict.fromkeys(pipe.stages, pipe.schedule.micro_batches)  # backwards to come
        self.mail = Mail(
            pipe.schedule, pipe.group, pipe.expected, lambda k: pipe.border(micro_batches[k][0])
        )

    def do(self, action: Action) -> None:
        """Gets what an action needs, runs it in a span of its name, sends what it gives."""
        given = self.mail.take(self.pipe.schedule.comes_from(action))
        with self.pipe.group.ledger.span(str(action)):
            result = self._run(action, given)
        if result is not None:
            self.mail.give(action, result)

    def _run(self, action: Action, given: torch.Tensor | None) -> torch.Tensor | None:
        if action.kind == "F":
            return self._forward(action.stage, action.micro, given)
        if action.kind == "W":
            self.pipe.queue.run((action.stage, action.micro))
            return None
        if action.kind == "B":
            return self._backward(action.stage, action.micro, given)
        with self.pipe.queue.put_off((action.stage, action.micro)):
            return self._backward(action.stage, action.micro, given)

    def _forward(self, stage: int, k: int, given: torch.Tensor | None) -> torch.Tensor | None:
        """The stage's output; for the last stage, its loss is kept instead."""
        inputs, targets = self.micro_batches[k]
        source = inputs if given is None else given.requires_grad_()
        output = self._module(stage, k, source)
        if stage == self.last:
            loss = self.pipe.loss(output, targets)
            self.losses[k] = loss.detach()
            output = loss * self.weights[k]
        self.kept[stage, k] = _Kept(source, get_gradient_edge(output))
        return None if stage == self.last else output.detach()

    def _module(self, stage: int, k: int, source: torch.Tensor) -> torch.Tensor:
        """The stage's output, ready for a backward in halves if the schedule has one."""
        if Action(stage, "I", k) not in self.pipe.schedule.place:
            return self.pipe.stages[stage](source)
        with self.pipe.queue.watched():
            return self.pipe.stages[stage](source)

    def _backward(self, stage: int, k: int, grad: torch.Tensor | None) -> torch.Tensor | None:
        """The gradient of the stage's input; the weights' gradients are added, or put off."""
        kept = self.kept.pop((stage, k))
        self.left[stage] -= 1
        with self._accumulating(stage):
            torch.autograd.backward([kept.edge], None if grad is None else [grad])
        return kept.source.grad if stage else None

    def _accumulating(self, stage: int) -> AbstractContextManager[None]:
        """A stage under FSDP gathers and reduces less: gradients are cut in its last backward.

        Without a pipeline they are cut each time, since FSDP is there to save memory.
        """
        module = self.pipe.stages[stage]
        if self.left[stage] and self.pipe.group.size > 1 and isinstance(module, CutsGradients):
            return module.no_sync(reshard=False)
        return nullcontext()


class Mail:
    """Messages between the stages, so that no order of actions can deadlock.

    Sends are started, and waited for only once it is known that they have arrived. Both ends know
    the schedule, so a rank expects the messages of another in the order in which it sends them,
    whatever is needed first here. One receive is posted ahead, so a message travels while the rank
    computes.

    Args:
        schedule: of all ranks.
        group: the ranks.
        expected: for each other rank, the actions whose results it sends here, in its order.
        border: a tensor like the message of micro-batch k.
    """

    def __init__(
        self,
        schedule: Schedule,
        group: Group,
        expected: Mapping[int, Sequence[Action]],
        border: Callable[[int], torch.Tensor],
    ) -> None:
        self.schedule, self.group, self.border = schedule, group, border
        self.home = schedule.placement
        self._expected = {peer: deque(actions) for peer, actions in expected.items()}
        self._coming: dict[Action, tuple[torch.Tensor, Work]] = {}
        self._here: dict[Action, torch.Tensor] = {}
        self._going: dict[int, list[tuple[int, Work]]] = {peer: [] for peer in expected}
        for peer in self._expected:
            self._post(peer)

    def take(self, action: Action | None) -> torch.Tensor | None:
        """The result of another stage's action, once it is here; None for None."""
        if action is None:
            return None
        peer = self.home[action.stage]
        if peer == self.group.index:
            return self._here.pop(action)
        while action not in self._coming:
            self._post(peer)
        if all(self.home[a.stage] != peer or a == action for a in self._coming):
            self._post(peer)
        buffer, work = self._coming.pop(action)
        work.wait()
        self._release(peer, self.schedule.place[action])
        return buffer

    def give(self, action: Action, result: torch.Tensor) -> None:
        """Sends a result to the stage that needs it, if one does."""
        user = self.schedule.used_by.get(action)
        if user is None:
            return
        peer = self.home[user.stage]
        if peer == self.group.index:
            self._here[action] = result
        else:
            work = isend(result, peer, self.group, chunk=action.micro)
            self._going[peer].append((self.schedule.place[user], work))

    def finish(self) -> None:
        """Waits until everything sent has left."""
        for peer, line in enumerate(self.schedule.actions):
            if peer in self._going:
                self._release(peer, len(line))

    def _release(self, peer: int, place: int) -> None:
        """Forgets messages that a rank has used, now that it is at `place` of its list."""
        for needed, work in self._going[peer]:
            if needed < place:
                work.wait()
        self._going[peer] = [(n, work) for n, work in self._going[peer] if n >= place]

    def _post(self, peer: int) -> None:
        """Starts to receive the next message of a rank, if there is one."""
        if self._expected[peer]:
            action = self._expected[peer].popleft()
            buffer = torch.empty_like(self.border(action.micro))
            work = irecv(buffer, peer, self.group, chunk=action.micro)
            self._coming[action] = (buffer, work)


def _check_fits(stages: Mapping[int, nn.Module], schedule: Schedule, group: Group) -> None:
    """Checks that the schedule is for this group, and for these stages on this rank."""
    if schedule.ranks != group.size:
        raise ScheduleError(
            f"the schedule {schedule.name} on {group.size} ranks",
            f"a schedule for {schedule.ranks} ranks",
            "every rank has its own list of actions",
        )
    if sorted(stages) != schedule.stages_of(group.index):
        raise ScheduleError(
            f"the schedule {schedule.name} on rank {group.rank}",
            f"the stages {sorted(stages)} instead of {schedule.stages_of(group.index)}",
            "a rank holds exactly the stages whose actions are in its list",
        )
