"""NaiveDDP: equal replicas, mean gradients, and the same training as one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import broadcast
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import wire_bytes
from grading.references.data_parallel import replicas
from grading.references.data_parallel.replicas import Batch, Net, Values
from grading.references.data_parallel.training import Training, explained, only_bf16, scaled

EXERCISE = Exercise(
    title="Naive DDP",
    core=True,
    minutes=25,
    order=2,
    defines=("NaiveDDP",),
    hints=(
        "Two replicas that take the same steps from the same numbers stay equal. So: what must be "
        "copied at the start, besides the parameters? And what must be the same before each step: "
        "the parameters, or the gradients?",
        "`module.parameters()` and `module.buffers()` give every tensor once, tied weights and "
        "buffers outside the state dict included. For a parameter with `grad is None` another rank "
        "may be waiting in its all-reduce: give it zeros and take part. `requires_grad` is the "
        "same on all ranks, `grad is None` is not.",
        "At the start `broadcast(tensor, 0, group)` for both, under `torch.no_grad()`. In "
        "`synchronize`, for each parameter that requires a gradient: zeros if it has none, then "
        '`all_reduce(parameter.grad, self.group, "avg")`.',
    ),
)

ALONE = ((0,), (1, 2, 3))  # four ranks in two groups, so that index 0 is not always rank 0
SKIPPED = (
    "A parameter without a gradient on one rank must take part with zeros: the other ranks may be "
    "waiting for it."
)
USED = ((0, 1), (0, 2), (0,))  # layers that each rank uses; nobody uses the last


# --- what runs on the ranks ----------------------------------------------------------------------
def _finish(wrapped: Any) -> None:
    wrapped.synchronize()


def _share_buffers(module: nn.Module, part: Any) -> None:
    """Makes the buffers equal, so that only `check_buffers` asks whether the answer did."""
    for buffer in module.buffers():
        broadcast(buffer, 0, part)


def _part(group: Any, parts: Sequence[Sequence[int]]) -> Any:
    return group.split([list(part) for part in parts], "part") if parts else group


def drive(
    learner: Any,
    group: Any,
    seed: int,
    width: int,
    dtype: torch.dtype,
    batches: list[Batch],
    parts: Any = (),
) -> dict[str, Any]:
    """Wraps a replica, makes two backwards before one synchronisation, then trains two more."""
    part = _part(group, parts)
    net = Net(seed, width, dtype)
    tensors = [*net.parameters(), *net.buffers()]
    events = group.ledger.events
    wrapped = learner.NaiveDDP(net, part)
    stayed = [*map(id, tensors)] == [*map(id, [*net.parameters(), *net.buffers()])]
    said: dict[str, Any] = {"start": replicas.state(net), "stayed": stayed}
    _share_buffers(net, part)
    said["before"] = len(events)
    for batch in batches[:2]:
        replicas.loss(wrapped, batch).backward()
    said["backward"] = len(events)
    wrapped.synchronize()
    said["after"] = len(events)
    said["twice"] = replicas.gradients(net)

    def wrap(module: nn.Module) -> Any:
        made = learner.NaiveDDP(module, part)
        _share_buffers(module, part)
        return made

    for name in replicas.OPTIMIZERS:
        said[name] = replicas.train(Net(seed, width, dtype), wrap, _finish, batches, name)
    return said


class Branches(nn.Module):
    """Four layers of one shape, of which a rank uses some.

    Args:
        weights: [4, W, W].
    """

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        self.layers = nn.ParameterList([nn.Parameter(weight.clone()) for weight in weights])

    def forward(self, x_BW: torch.Tensor, used: Sequence[int]) -> torch.Tensor:
        """The mean over the outputs of the layers that are used, one after the other."""
        for number in used:
            x_BW = torch.tanh(x_BW @ self.layers[number])
        return x_BW.square().mean()


def drive_unused(
    learner: Any, group: Any, weights: torch.Tensor, x: torch.Tensor, used: list[list[int]]
) -> dict[str, Any]:
    """Two backwards; in each this rank uses only some layers, and not the same."""
    net = Branches(weights)
    wrapped = learner.NaiveDDP(net, group)
    steps = []
    for layers in used:
        net.zero_grad()
        wrapped(x, layers).backward()
        wrapped.synchronize()
        found = replicas.gradients(net)
        steps.append([found[f"layers.{i}"] for i in range(len(weights))])
    return {"steps": steps}


# --- what they must bring back -------------------------------------------------------------------
def trainings(run: Run) -> list[Training]:
    """Three ranks in one group, and four in a group of one and a group of three."""
    return [Training(run, drive, 3, (), SKIPPED), Training(run, drive, 4, ALONE, SKIPPED)]


@check("all parameters start equal to those of index 0", points=2, code="E")
@diagnosis("broadcast every parameter from index 0 of the group, frozen ones as well")
def check_parameters(run: Run) -> None:
    """E: replicas that differ before; the tensors stay the same objects."""
    _check_start(run, buffers=False)


@check("all buffers start equal to those of index 0", points=2, code="E")
@diagnosis("module.buffers() gives them all; the state dict lacks some")
def check_buffers(run: Run) -> None:
    """E: float64, int64 and bool, one of them not persistent."""
    _check_start(run, buffers=True)


def _check_start(run: Run, buffers: bool) -> None:
    for job in trainings(run):
        for members in job.groups:
            first = job.net(members[0])
            named = first.named_buffers() if buffers else first.named_parameters()
            names = [name for name, _ in named]
            for rank in members:
                _compare_start(run, job, rank, members, names)
                run.true(
                    job.outputs[rank]["stayed"],
                    "the tensors were replaced by others",
                    rank=rank,
                    cause="an optimizer that already exists would train the old ones: write into "
                    "them",
                )


def _compare_start(
    run: Run, job: Training, rank: int, members: Sequence[int], names: list[str]
) -> None:
    """Some of the tensors of one replica, right after it was wrapped."""
    first = job.net(members[0])
    everyone = [replicas.state(job.net(other)) for other in members]
    own, start = replicas.state(job.net(rank)), job.outputs[rank]["start"]
    for name in names:
        hidden = name not in first.state_dict()
        which = " (no state dict has it, module.buffers() does)" if hidden else ""
        mean = torch.stack([each[name].double() for each in everyone]).mean(0)
        likely = {
            f"it was not broadcast{which}: this is what the rank began with": own[name],
            "this is the mean of all replicas; take those of index 0": mean,
        }
        what = f"{name} after construction"
        run.close(start.get(name), replicas.state(first)[name], what, rank=rank, likely=likely)


@check("gradients are means over the group, before the step", points=3, code="E")
@diagnosis("each gradient must be the sum over the group, divided by group.size")
def check_gradients(run: Run) -> None:
    """E: float64, three ranks; then a group of three in a world of four."""
    for job in trainings(run):

        def known(members: Sequence[int], rank: int, job: Training = job) -> dict[str, Values]:
            own = replicas.mean_gradients(job.net(members[0]), [job.batches[rank][0]])
            return {_own(job, rank): own}

        job.check_gradients(known)


def _own(job: Training, rank: int) -> str:
    """The sentence for gradients that are this rank's own."""
    if any(event.op == "all_reduce" for event in job.result.ledgers[rank].events):
        return (
            "this is the rank's own gradient, though something was reduced: average the gradients "
            "before the step, not the parameters after it"
        )
    return "this is the rank's own gradient: nothing was averaged"


@check("two backwards before one synchronize()", points=1, code="E")
@diagnosis("average what is in `grad` when synchronize() is called")
def check_two_backwards(run: Run) -> None:
    """E: the gradients are the sums over both."""
    job = Training(run, drive, 3, (), SKIPPED)
    job.check_start()
    first, second = (job.mean_gradients((0, 1, 2), step) for step in (0, 1))
    both = {name: first[name] + second[name] for name in first}
    known = {
        "this is the gradient of the second backward alone": second,
        "this is the gradient of the first backward alone": first,
        "this is the mean over the two backwards; scaling the loss is up to the training loop":
            scaled(both, 0.5),
    }  # fmt: skip
    for rank in range(3):
        job.compare_gradients(rank, job.outputs[rank]["twice"], both, known, "two backwards")


@check("weights after three steps, with SGD and with AdamW", points=3, code="E")
@diagnosis("the gradients must be averaged in every step, before the optimizer uses them")
def check_weights(run: Run) -> None:
    """E: equal to one process that has all batches."""
    for job in trainings(run):
        job.check_weights()


@check("parameters that only some ranks use", points=3, code="H")
@diagnosis(
    "a parameter without a gradient takes part with zeros, and the sum is divided by the size of "
    "the whole group"
)
def check_unused(run: Run) -> None:
    """H: each of three ranks uses other layers, and others again in the second step."""
    weights, world = run.random((4, 3, 3)), len(USED)
    steps = [USED, (*USED[1:], USED[0])]
    inputs: list[dict[str, Any]] = [
        {"weights": weights, "x": run.random((5, 3)), "used": [list(used[rank]) for used in steps]}
        for rank in range(world)
    ]
    result = explained(run, drive_unused, inputs, world, SKIPPED)
    for step, used in enumerate(steps):
        own = [_own_gradients(weights, each["x"], used[rank]) for rank, each in enumerate(inputs)]
        for rank, found in enumerate(run.each(result.column("steps"))):
            for number, gradient in enumerate(found[step]):
                users = sum(number in layers for layers in used)
                what = f"step {step + 1}: the gradient of a layer that {users} of {world} ranks use"
                cause = "zeros take part in the mean, which then becomes the gradient"
                run.true(gradient is not None, f"{what} is None", cause=cause)
                total = torch.stack([gradients[number] for gradients in own]).sum(0)
                likely = {
                    "divided by the number of ranks that use it, not by the group's size": total
                    / max(users, 1),
                    "this is the sum: divide by the group's size": total,
                    "this is the rank's own gradient: the layer was left out": own[rank][number],
                }
                run.close(gradient, total / world, what, likely=likely)


def _own_gradients(
    weights: torch.Tensor, x: torch.Tensor, used: Sequence[int]
) -> list[torch.Tensor]:
    """What one rank adds to the sums: zeros for layers that it does not use."""
    net = Branches(weights)
    net(x, used).backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in net.layers]


@check(
    "one all-reduce for each parameter, 2(N-1)/N·S bytes; nothing in forward and backward",
    points=3,
    code="B",
)
@diagnosis("iterate over the parameters once, and skip those that require no gradient")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger of two ranks, in bf16."""
    world = 2
    job = Training(run, drive, world, (), SKIPPED, torch.bfloat16)
    net = job.net(0)
    tied, frozen = net.first.weight.numel(), net.frozen.numel()
    counts = sorted(p.numel() for p in net.parameters() if p.requires_grad)
    for rank, (said, ledger) in enumerate(
        run.each(zip(job.outputs, job.result.ledgers, strict=True))
    ):
        during = ledger.events[said["before"] : said["backward"]]
        run.true(
            not during,
            "something was sent in forward or backward",
            measured=", ".join(event.op for event in during[:4]),
            cause="all communication of a step belongs in synchronize()",
        )
        calls = [e for e in ledger.events[said["backward"] : said["after"]] if e.parent < 0]
        only_bf16(run, calls)
        others = [event.label for event in calls if event.op != "all_reduce"]
        run.equal(others, [], "what synchronize() calls besides all_reduce")
        run.equal(
            sorted(event.payload // event.item for event in calls),
            counts,
            "the list of all-reduces, by number of elements",
            likely={
                "the tied weight is reduced twice: it has two names, but is one parameter": sorted(
                    [*counts, tied]
                ),
                "the frozen parameter takes part as well": sorted([*counts, frozen]),
                "the frozen parameter takes part, and the tied weight twice": sorted(
                    [*counts, tied, frozen]
                ),
                "all gradients in one all-reduce: that is a bucket, which comes later": [
                    sum(counts)
                ],
                "nothing is reduced in synchronize()": [],
            },
        )
        size = sum(wire_bytes("all_reduce", n * 2, world, rank, 2)[0] for n in counts)
        run.equal(sum(event.sent for event in calls), size, "bytes sent in synchronize()")
