"""SyncBatchNorm1d: one process's numbers and gradients, one all-reduce each way."""

# mypy: enable-error-code="arg-type, misc, operator, union-attr"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from course_lib.comm import all_reduce
from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.data_parallel.batch_norm import OneProcess, loss, sandwich
from grading.references.data_parallel.training import explained
from grading.references.data_parallel.wrapper import alike

EXERCISE = Exercise(
    title="Batch norm over all ranks",
    core=True,
    minutes=30,
    order=7,
    defines=("SyncBatchNorm1d",),
    own=("torch.nn.SyncBatchNorm",),
    hints=(
        "Put the three sums into one tensor with `torch.cat`: C numbers of Σx, C of Σx², and the "
        "number of rows. After the all-reduce every rank has the same sums, and computes the same "
        "mean and variance from them, however many rows it has itself.",
        "An all-reduce in place is invisible to autograd, so write it as a function with its own "
        "backward. Every rank's loss depends on your summand: its gradient is the sum of the "
        "gradients of the total on all ranks. That is an all-reduce again.",
        "Use the total in the graph: `mean = sums[:C] / n`, `var = sums[C:2*C] / n - mean²`, and "
        "autograd does the rest. Only the running statistics are under `torch.no_grad()`, and "
        "only they take `var * n / (n - 1)`.",
    ),
)

ROWS = ([7], [5, 2], [1, 6, 3])  # of each rank, for 1, 2 and 3 ranks
TWO = [1, 1]  # the fewest rows that have an unbiased variance
WITH_AN_EMPTY_RANK = [4, 1, 0, 6]
EPS, MOMENTUM = 0.01, 0.3
STEPS = 3
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.02),
}
Tensors = dict[str, torch.Tensor]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, batches: list[list[torch.Tensor]], weights: list[torch.Tensor]
) -> dict[str, Any]:
    """Three forwards and backwards, an evaluation, and a training with each optimizer.

    The first forward is also made by a new norm without gradients, still in training mode.
    """
    norm = _norm(learner, group, weights)
    steps = []
    for x, g in batches:
        norm.zero_grad()
        x = x.clone().requires_grad_()
        begin = len(group.ledger.events)
        y = norm(x)
        between = len(group.ledger.events)
        loss(y, g).backward()
        steps.append(
            {
                "y": y.detach(),
                "x": x.grad,
                "weight": norm.weight.grad,
                "bias": norm.bias.grad,
                "running": [norm.running_mean.detach().clone(), norm.running_var.detach().clone()],
                "graph": norm.running_mean.requires_grad or norm.running_var.requires_grad,
                "forward": _calls(group, begin)[: between - begin],
                "backward": _calls(group, between),
            }
        )
    norm.eval()
    begin = len(group.ledger.events)
    with torch.no_grad():
        evaluated = norm(batches[0][0])
    found = {"steps": steps, "evaluated": evaluated, "sent in evaluation": _calls(group, begin)}
    found["after"] = [norm.running_mean.clone(), norm.running_var.clone()]
    norm = _norm(learner, group, weights)
    with torch.no_grad():
        y = norm(batches[0][0])
    found["no_grad"] = {"y": y, "running": [norm.running_mean.clone(), norm.running_var.clone()]}
    for name in OPTIMIZERS:
        found[name] = _train(_norm(learner, group, weights), group, batches, name)
    return found


def _norm(learner: Any, group: Any, weights: list[torch.Tensor]) -> Any:
    norm = learner.SyncBatchNorm1d(weights[0].numel(), group, eps=EPS, momentum=MOMENTUM)
    with torch.no_grad():
        norm.weight.copy_(weights[0])
        norm.bias.copy_(weights[1])
    return norm


def _calls(group: Any, begin: int) -> list[list[Any]]:
    return [[event.op, event.payload] for event in group.ledger.events[begin:]]


def _train(norm: Any, group: Any, batches: list[list[torch.Tensor]], name: str) -> Tensors:
    """Weights after some steps between two linear maps; the data parallelism is this driver's."""
    net = sandwich(norm, norm.weight.numel())
    chosen = OPTIMIZERS[name](net.parameters())
    for x, g in batches:
        chosen.zero_grad()
        (net(x) * g).sum().backward()
        for parameter in net.parameters():
            all_reduce(cast(torch.Tensor, parameter.grad), group)
        chosen.step()
    return _state(net)


def _state(net: torch.nn.Module) -> Tensors:
    named = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    return {name: t.detach().clone() for name, t in named.items() if "batches" not in name}


# --- what they must bring back -------------------------------------------------------------------
class Case:
    """A run on ranks with these rows, and what one process makes of all of them.

    Args:
        run: of the check.
        rows: of each rank.
    """

    def __init__(self, run: Run, rows: Sequence[int]) -> None:
        count, total = run.number(3, 6), sum(rows)
        weights = [run.random(count), run.random(count)]
        spread = 1 + torch.arange(total).double().view(-1, 1)  # parts differ in mean and spread
        batches = [
            [run.random((total, count)) * spread + spread / 2, run.random((total, count))]
            for _ in range(STEPS)
        ]
        self.alone = OneProcess(rows, weights, batches, EPS, MOMENTUM)
        inputs = [
            {
                "batches": [[self.alone.part(t, rank) for t in batch] for batch in batches],
                "weights": weights,
            }
            for rank in range(len(rows))
        ]
        reason = "Every rank takes part in every all-reduce, however many rows it has."
        self.result = explained(run, drive, inputs, len(rows), reason)
        self.name = f"with {' + '.join(map(str, rows))} rows"

    def steps(self) -> Any:
        """(rank, number of the step, what the rank brought back of it)."""
        for rank, steps in enumerate(self.result.column("steps")):
            for number, found in enumerate(steps):
                yield rank, number, found


@check("outputs on 1-3 ranks with unequal batches", points=3, code="E")
@diagnosis("compute mean and variance over all rows of all ranks, from the three sums")
def check_outputs(run: Run) -> None:
    """E: three batches; a rank may have a single row."""
    for rows in ROWS:
        _outputs(run, Case(run, rows))


def _outputs(run: Run, case: Case) -> None:
    alone = case.alone
    for rank, step, found in case.steps():
        likely = {
            "normalised by this rank's own rows: nothing is shared": alone.local(step),
            "the ranks' means and variances were averaged: add up sums instead":
                alone.normalised(step, "means"),
            "the ranks' variances were averaged: the spread between the ranks is missing":
                alone.normalised(step, "variances"),
            "normalised by the unbiased variance: that is only for running_var":
                alone.normalised(step, "unbiased"),
        }  # fmt: skip
        likely = {why: alone.part(y, rank) for why, y in likely.items()}
        y = alone.part(alone.backward(step).y, rank)
        run.close(found["y"], y, f"the output {case.name}", rank=rank, terms=99, likely=likely)


@check("gradients through the statistics, across the ranks", points=4, code="E")
@diagnosis("a row changes mean and variance on every rank, so its gradient has a part from each")
def check_gradients(run: Run) -> None:
    """E: of the input exactly one process's; of weight and bias this rank's summand."""
    for rows in ROWS:
        _gradients(run, Case(run, rows))


def _gradients(run: Run, case: Case) -> None:
    alone, twice = case.alone, "summed over the ranks: data parallelism does that, so it would "
    "happen twice"
    for rank, step, found in case.steps():
        wanted = alone.backward(step)
        likely = {
            "no gradient flows through mean and variance: they are constants here": alone.without(
                "detached", step, rank
            ),
            "only this rank's loss reaches the statistics: backward, too, needs the sum over the "
            "ranks": alone.without("local", step, rank),
        }
        run.close(
            found["x"],
            alone.part(wanted.x, rank),
            f"the input's gradient {case.name}",
            rank=rank,
            terms=999,
            likely=likely,
        )
        for name, rows in (("weight", wanted.weight), ("bias", wanted.bias)):
            own, what = alone.part(rows, rank).sum(0), f"the {name}'s gradient {case.name}"
            run.close(found[name], own, what, rank=rank, likely={twice: rows.sum(0)}, terms=999)


@check("a rank without rows takes part, on 4 ranks", points=1, code="H")
def check_empty(run: Run) -> None:
    """H: its sums are zeros, and the others wait for them."""
    case = Case(run, WITH_AN_EMPTY_RANK)
    _outputs(run, case)
    _gradients(run, case)
    _running(run, case)


@check("running statistics, with the unbiased variance over all ranks", points=2, code="E")
@diagnosis("(1 - momentum)·running + momentum·new, with n/(n-1)·var for the variance")
@in_part
def check_running(run: Run) -> None:
    """E: after each batch, the same on all ranks; from two rows on; outside of the graph."""
    for rows in (*ROWS, TWO):
        case = Case(run, rows)
        _running(run, case)
        cause = "training mode counts, not whether gradients are wanted: look at self.training"
        for found in run.each(case.result.outputs):
            for key, value in found["no_grad"].items():
                what = f"{key} under no_grad in training mode is not that with gradients"
                run.true(alike(value, found["steps"][0][key]), what, cause=cause)


def _running(run: Run, case: Case) -> None:
    swapped = "momentum is the weight of the new batch, not that of the old statistics"
    for rank, step, found in case.steps():
        mean, var = case.alone.running(step)
        other_mean, other_var = case.alone.running(step, momentum=1 - MOMENTUM)
        _, biased = case.alone.running(step, slip="")
        likely = {
            "the biased variance: running_var keeps n/(n-1)·var": biased,
            swapped: other_var,
        }
        what = f"after {step + 1} batches {case.name}"
        known = {swapped: other_mean}
        name = f"running_mean {what}"
        run.close(found["running"][0], mean, name, rank=rank, terms=99, likely=known)
        name = f"running_var {what}"
        run.close(found["running"][1], var, name, rank=rank, terms=99, likely=likely)
        run.true(
            not found["graph"],
            "running statistics are part of the graph",
            rank=rank,
            cause="update them under torch.no_grad()",
        )


@check("evaluation uses the running statistics and sends nothing", points=2, code="E")
@diagnosis("look at self.training: in evaluation the batch has no statistics of its own")
def check_evaluation(run: Run) -> None:
    """E: also leaves the running statistics as they are."""
    case = Case(run, ROWS[2])
    y, batch = case.alone.evaluated(), case.alone.backward(0).y
    for rank, found in enumerate(run.each(case.result.outputs)):
        what = "the running statistics after an evaluation"
        run.close(found["after"], found["steps"][-1]["running"], what)
        likely = {"normalised by the batch, look at self.training": case.alone.part(batch, rank)}
        what = "the output in evaluation"
        run.close(found["evaluated"], case.alone.part(y, rank), what, likely=likely)
        run.equal(found["sent in evaluation"], [], "the list of calls in evaluation")


@check("weights after 3 steps of SGD and of AdamW", points=2, code="E")
def check_training(run: Run) -> None:
    """E: in the middle of a net, gradients added up over the ranks."""
    for case in (Case(run, ROWS[1]), Case(run, ROWS[2])):
        for name, make in OPTIMIZERS.items():
            net = sandwich(case.alone.norm(), case.alone.count)
            chosen = make(net.parameters())
            for x, g in case.alone.batches:
                chosen.zero_grad()
                (net(x) * g).sum().backward()
                chosen.step()
            for found in run.each(case.result.column(name)):
                what = f"{case.name}, after {STEPS} steps of {name}, "
                run.close(found, _state(net), what, terms=999)


@check("one all-reduce of 2C+1 numbers forward, one backward", points=2, code="B")
@diagnosis("put all three sums into one tensor")
def check_calls(run: Run) -> None:
    """B: what is sent in each direction."""
    case = Case(run, ROWS[1])
    size = 8 * (2 * case.alone.count + 1)
    for rank, _, found in case.steps():
        what = "the list of calls in forward"
        run.equal(found["forward"], [["all_reduce", size]], what, rank=rank)
        calls = [op for op, _ in found["backward"]]
        run.equal(calls, ["all_reduce"], "the list of calls in backward", rank=rank)
        run.at_most(found["backward"][0][1], size, "bytes of the all-reduce in backward", rank=rank)
