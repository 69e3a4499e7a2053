"""Runs any valid schedule: each rank its list of actions, with messages between the stages.

Notebook: 08 Pipeline parallel (gpipe_step, execute).
Paper: Huang et al., "GPipe" (2019); Narayanan et al., "Megatron-LM" (2021), section 2.2.
Costs: for each micro-batch and each border between stages on two ranks, one activation forward
and one gradient back: 2·m·(stages-1) messages of S/m, S the bytes of a batch's activations.
The production version batches a send with a receive, and infers the shapes of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from course_lib.comm import Group
from course_lib.parallel.pipeline.border import Border, differentiable
from course_lib.parallel.pipeline.mail import Mail, Tensors
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
            inputs, the others what the stage before returned: a tensor, or a tuple, list or dict of
            tensors, as one argument.
        schedule: of all ranks; rank here is the index in the group.
        group: the ranks of the pipeline.
        loss: `loss(output, targets)`, of the last stage's output: a mean over the micro-batch.
        border: `border(inputs)`, a tensor of the shape, dtype and device of what stages hand on for
            a micro-batch with these inputs, or a tree of them; the tensors' values do not matter.
        beside: `beside(inputs, targets)`, what every stage gets as further arguments with that
            micro-batch, such as a mask; nothing if None.

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
        border: Callable[[Any], Any],
        beside: Callable[[Any, Any], tuple[Any, ...]] | None = None,
    ) -> None:
        _check_fits(stages, schedule, group)
        simulate(schedule)
        self.stages, self.schedule, self.group = dict(stages), schedule, group
        self.loss, self.border, self.beside = loss, border, beside
        self.queue = WeightQueue()
        peers = [peer for peer in range(group.size) if peer != group.index]
        self.expected = {peer: schedule.sends(peer, group.index) for peer in peers}
        self._under_way = False

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
            ScheduleError: not as many micro-batches or weights as the schedule has; gradients are
                switched off; a stage hands on something else than `border` says; the step before
                has not ended.
        """
        m = self.schedule.micro_batches
        weights = [1 / m] * m if weights is None else list(weights)
        if not len(micro_batches) == len(weights) == m:
            raise ScheduleError(
                f"a step of the schedule {self.schedule.name} with {m} micro-batches",
                f"{len(micro_batches)} micro-batches and {len(weights)} weights",
                "a schedule is made for a number of micro-batches",
            )
        self._begin_step()
        run = _Run(self, micro_batches, weights)
        for action in self.schedule.actions[self.group.index]:
            run.do(action)
        run.mail.finish()
        self._under_way = False
        return [run.losses[k] for k in sorted(run.losses)]

    def _begin_step(self) -> None:
        """A step that did not end has messages under way, which this one would take for its own."""
        if not torch.is_grad_enabled():
            raise ScheduleError(
                f"a step of the schedule {self.schedule.name} on rank {self.group.rank}",
                "gradients that are switched off, as by torch.no_grad",
                "a step is forward and backward, and would end without any gradient",
            )
        if self._under_way:
            raise ScheduleError(
                f"a step of the schedule {self.schedule.name} on rank {self.group.rank}",
                "the step before it has not ended, and its messages may still be under way",
                "they would be taken for this step's: make the pipeline again, on a new group",
            )
        self._under_way = True


@dataclass
class _Kept:
    """What a forward leaves for its backward: its inputs, and the graph of its outputs.

    The outputs themselves are not kept: autograd's edge to each is enough, and their memory can be
    freed once they have been sent. One that nothing trained has led to has no edge.
    """

    sources: Tensors
    edges: list[GradientEdge | None]


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
        self.borders: dict[int, Border] = {}
        self.mail = Mail(pipe.schedule, pipe.group, pipe.expected, self._blank)

    def _border(self, k: int) -> Border:
        """The form of what stages hand on for micro-batch k."""
        if k not in self.borders:
            self.borders[k] = Border(self.pipe.border(self.micro_batches[k][0]))
        return self.borders[k]

    def _blank(self, action: Action) -> Tensors:
        """Room for what an action of another rank sends."""
        return self._border(action.micro).blank(gradients=action.kind != "F")

    def do(self, action: Action) -> None:
        """Gets what an action needs, runs it in a span of its name, sends what it gives."""
        given = self.mail.take(self.pipe.schedule.comes_from(action))
        with self.pipe.group.ledger.span(str(action)):
            result = self._run(action, given)
        if result is not None:
            self.mail.give(action, result)

    def _run(self, action: Action, given: Tensors | None) -> Tensors | None:
        if action.kind == "F":
            return self._forward(action.stage, action.micro, given)
        if action.kind == "W":
            self.pipe.queue.run((action.stage, action.micro))
            return None
        if action.kind == "B":
            return self._backward(action.stage, action.micro, given)
        with self.pipe.queue.put_off((action.stage, action.micro)):
            return self._backward(action.stage, action.micro, given)

    def _forward(self, stage: int, k: int, given: Tensors | None) -> Tensors | None:
        """What the stage hands on; for the last stage, its loss is kept instead."""
        inputs, targets = self.micro_batches[k]
        sources = [x.requires_grad_() for x in given or () if differentiable(x.dtype)]
        output = self._module(stage, k, inputs if given is None else self._border(k).tree(given))
        if stage == self.last:
            loss = self.pipe.loss(output, targets)
            self.losses[k] = loss.detach()
            results = [loss * self.weights[k]]
        else:
            name = f"stage {stage}, a {type(self.pipe.stages[stage]).__name__},"
            results = self._border(k).tensors(output, name)
        trained = [x for x in results if differentiable(x.dtype)]
        edges = [get_gradient_edge(x) if x.requires_grad else None for x in trained]
        self.kept[stage, k] = _Kept(sources, edges)
        return None if stage == self.last else [x.detach() for x in results]

    def _module(self, stage: int, k: int, source: Any) -> Any:
        """The stage's output, ready for a backward in halves if the schedule has one."""
        with self._watched(stage, k):
            more = self.pipe.beside(*self.micro_batches[k]) if self.pipe.beside else ()
            return self.pipe.stages[stage](source, *more)

    def _watched(self, stage: int, k: int) -> AbstractContextManager[None]:
        """Backwards are watched as well: a checkpoint runs its forward again in there."""
        halves = Action(stage, "I", k) in self.pipe.schedule.place
        return self.pipe.queue.watched() if halves else nullcontext()

    def _backward(self, stage: int, k: int, grads: Tensors | None) -> Tensors | None:
        """The gradients of the stage's inputs; the weights' gradients are added, or put off."""
        kept = self.kept.pop((stage, k))
        self.left[stage] -= 1
        given: Sequence[torch.Tensor | None] = grads or [None] * len(kept.edges)
        ends = [(edge, g) for edge, g in zip(kept.edges, given, strict=True) if edge is not None]
        if ends:  # without any, all that led here is frozen
            with self._accumulating(stage), self._watched(stage, k):
                torch.autograd.backward([edge for edge, _ in ends], [g for _, g in ends])
        if not stage:
            return None
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in kept.sources]

    def _accumulating(self, stage: int) -> AbstractContextManager[None]:
        """A stage under FSDP gathers and reduces less: gradients are cut in its last backward.

        Without a pipeline they are cut each time, since FSDP is there to save memory.
        """
        module = self.pipe.stages[stage]
        if self.left[stage] and self.pipe.group.size > 1 and isinstance(module, CutsGradients):
            return module.no_sync(reshard=False)
        return nullcontext()


def refuse_other_size(schedule: Schedule, group: Group) -> None:
    """Refuses a schedule of another number of ranks than a group has.

    Raises:
        ScheduleError: it is one.
    """
    if schedule.ranks != group.size:
        raise ScheduleError(
            f"the schedule {schedule.name} on {group.size} ranks",
            f"a schedule for {schedule.ranks} ranks",
            "every rank has its own list of actions",
        )


def _check_fits(stages: Mapping[int, nn.Module], schedule: Schedule, group: Group) -> None:
    """Checks that the schedule is for this group, and for these stages on this rank."""
    refuse_other_size(schedule, group)
    if sorted(stages) != schedule.stages_of(group.index):
        raise ScheduleError(
            f"the schedule {schedule.name} on rank {group.rank}",
            f"the stages {sorted(stages)} instead of {schedule.stages_of(group.index)}",
            "a rank holds exactly the stages whose actions are in its list",
        )
