"""OverlapDDP: launched in the hooks, waited for at the end, and right."""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Work
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import Ledger, wire_bytes
from grading.references.data_parallel import replicas
from grading.references.data_parallel.replicas import Batch, Net, Values
from grading.references.data_parallel.training import Training, only_bf16, scaled

EXERCISE = Exercise(
    title="Overlapping DDP",
    core=True,
    minutes=25,
    order=3,
    defines=("OverlapDDP",),
    hints=(
        "There are three moments: the gradient of one parameter is complete; the backward is "
        "over; the optimizer steps. At which of them is an all-reduce launched, at which is it "
        "waited for, and what must be kept from the first to the second?",
        "A hook gets the parameter itself, and its `grad` is complete. `all_reduce(..., "
        "async_op=True)` returns a Work at once; put it in a list. A `wait()` on it inside the "
        "hook would stop the backward, and nothing would overlap.",
        "`parameter.register_post_accumulate_grad_hook(self._launch)` for each of "
        "`module.parameters()` that requires a gradient. `_launch` appends the Work of "
        '`all_reduce(parameter.grad, self.group, "avg", async_op=True)`; `wait` waits for each '
        "Work in the list and clears it.",
    ),
)

ALONE = ((0,), (1, 2, 3))  # four ranks in two groups, so that index 0 is not always rank 0
MISSED = "Every rank must launch the same all-reduces in the same order."
READY, HOOKED, OVER, STEP = "ready ", "hooked ", "backward over", "wait over"


# --- what runs on the ranks ----------------------------------------------------------------------
def _watch(net: nn.Module, ledger: Ledger, word: str) -> None:
    """Marks each gradient that is complete; hooks are called in the order of registration."""
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(
                lambda _, name=name: ledger.mark(word + name)
            )


def drive(
    learner: Any,
    group: Any,
    seed: int,
    width: int,
    dtype: torch.dtype,
    batches: list[Batch],
    parts: Any = (),
) -> dict[str, Any]:
    """Two backwards that add up, with marks in the ledger; then training."""
    part = group.split([list(members) for members in parts], "part") if parts else group
    net = Net(seed, width, dtype)
    _watch(net, group.ledger, READY)
    wrapped = learner.OverlapDDP(net, part)
    _watch(net, group.ledger, HOOKED)
    said: dict[str, Any] = {"start": replicas.state(net), "before": len(group.ledger.events)}
    for place, batch in enumerate(batches[:2]):
        replicas.loss(wrapped, batch).backward()
        group.ledger.mark(OVER)
        wrapped.wait()
        group.ledger.mark(STEP)
        if place == 0:
            said["after"] = len(group.ledger.events)
    said["added"] = replicas.gradients(net)
    for name in replicas.OPTIMIZERS:
        said[name] = replicas.train(
            Net(seed, width, dtype),
            lambda module: learner.OverlapDDP(module, part),
            lambda module: module.wait(),
            batches,
            name,
        )
    return said


def drive_steps(
    learner: Any, group: Any, seed: int, width: int, dtype: torch.dtype, batches: list[Batch]
) -> dict[str, Any]:
    """Ten steps; after each, how many Works there are."""
    net, works = Net(seed, width, dtype), []
    wrapped = learner.OverlapDDP(net, group)
    for place in range(10):
        net.zero_grad(set_to_none=True)
        replicas.loss(wrapped, batches[place % len(batches)]).backward()
        wrapped.wait()
        gc.collect()
        works.append(sum(type(each) is Work for each in gc.get_objects()))
    return {"works": works}


# --- what they must bring back -------------------------------------------------------------------
class Order:
    """When things happened on one rank in its first backward, in seconds on the machine's clock.

    Attributes:
        calls: what was called between construction and the end of `wait()`.
        ready: names of the parameters, in the order in which their gradients were complete.
        times: when that was.
        hooked: when the last hook of the learner's had returned.
        over: when the backward had ended.
        step: when `wait()` had returned.
    """

    def __init__(self, training: Training, rank: int) -> None:
        said, ledger = training.outputs[rank], training.result.ledgers[rank]
        events = ledger.events[said["before"] : said["after"]]
        self.calls = [event for event in events if event.parent < 0]
        self.over = next(span.begin for span in ledger.spans if span.name == OVER)
        self.step = next(span.begin for span in ledger.spans if span.name == STEP)
        spans = [s for s in ledger.spans if s.name.startswith(READY) and s.begin <= self.over]
        self.ready = [span.name.removeprefix(READY) for span in spans]
        self.times = [span.begin for span in spans]
        late = [span.begin for span in ledger.spans if span.name.startswith(HOOKED)]
        self.hooked = max(begin for begin in late if begin <= self.over)


def two_ranks(run: Run) -> Training:
    """The run whose order of events and bytes are looked at, in bf16."""
    return Training(run, drive, 2, (), MISSED, torch.bfloat16)


def trainings(run: Run) -> list[Training]:
    """Three ranks in one group, and four in a group of one and a group of three."""
    return [Training(run, drive, 3, (), MISSED), Training(run, drive, 4, ALONE, MISSED)]


@check("each all-reduce is launched as soon as its gradient is complete", points=3, code="O")
@diagnosis("launch in the hook of each parameter")
def check_launch(run: Run) -> None:
    """O: after its gradient is ready, before the next one is; on two ranks."""
    training = two_ranks(run)
    for rank in range(2):
        order = Order(training, rank)
        begins = sorted(call.begin for call in order.calls)
        cause = "register the hook on the parameters"
        run.true(bool(begins), "no all-reduce was launched", rank=rank, cause=cause)
        hidden = sum(begin <= order.times[-1] for begin in begins)
        run.true(
            hidden > 0,
            "no all-reduce begins before the last gradient is complete",
            rank=rank,
            expected=f"{len(order.ready) - 1} of {len(order.ready)} launched by then",
            measured="0: all are launched after the backward" if begins[0] >= order.over else "0",
            cause="the backward is over by then, and there is nothing left to overlap with: "
            "launch in the hooks",
        )
        for place, name in enumerate(order.ready):
            early = sum(begin < order.times[place] for begin in begins)
            run.true(
                early <= place,
                f"an all-reduce begins before the gradient of {name} is complete",
                rank=rank,
                measured=f"{early} launched when {place} gradients were complete",
                cause="register_hook is called before the gradient is added to `grad`: use "
                "register_post_accumulate_grad_hook",
            )
            if place:
                run.true(
                    early >= place,
                    f"the all-reduce of {order.ready[place - 1]} has not begun when the next "
                    f"gradient, of {name}, is complete",
                    rank=rank,
                    expected=f"{place} launched by then",
                    measured=f"{early} launched",
                    cause="it was launched late: launch each in its own hook, whatever order they "
                    "come in",
                )


@check(
    "no all-reduce is waited for inside the backward, and all before the step", points=3, code="O"
)
@diagnosis("wait() waits for every Work that the hooks have launched")
def check_wait(run: Run) -> None:
    """O: ends of the calls, which are when they were waited for."""
    training = two_ranks(run)
    for rank in range(2):
        order = Order(training, rank)
        run.true(bool(order.calls), "no all-reduce was launched", rank=rank)
        count = len(order.calls)
        never = sum(call.end is None for call in order.calls)
        run.true(
            not never,
            f"{never} of {count} all-reduces were never waited for",
            rank=rank,
            cause="the step may use gradients that are not yet reduced; they are divided "
            "when their Work is waited for",
        )
        ends = [call.end or 0.0 for call in order.calls]
        inside = sum(end < order.hooked for end in ends)
        run.true(
            not inside,
            f"{inside} of {count} all-reduces were waited for inside the backward",
            rank=rank,
            expected="none before the last hook has returned",
            cause="a wait in the hook stops the backward until the message has arrived: use "
            "async_op=True, and keep the Work",
        )
        late = sum(end > order.step for end in ends)
        run.true(
            not late,
            f"{late} of {count} all-reduces were waited for only after the step",
            rank=rank,
            cause="wait() must wait for this backward's all-reduces",
        )
    same = {"seed": 5, "width": training.width, "dtype": training.dtype}
    given = [{**same, "batches": own} for own in training.batches]
    for found in run.each(run(drive_steps, given, world=2).outputs):
        works = found["works"]
        run.true(
            works[-1] <= works[1],
            "the Works of old steps are still there after ten steps",
            expected=f"{works[1]}, as after two steps",
            measured=str(works[-1]),
            cause="each wait() waits for all old ones again: forget those that were waited for",
        )


@check("gradients are means over the group, before the step", points=3, code="E")
@diagnosis("reduce `parameter.grad`, not the parameter and not a copy, and wait for each Work")
def check_gradients(run: Run) -> None:
    """E: float64, three ranks; then a group of three in a world of four."""
    for training in trainings(run):

        def known(
            members: Sequence[int], rank: int, training: Training = training
        ) -> dict[str, Values]:
            own = [training.batches[rank][0]]
            return {
                "this is the rank's own gradient: was a copy reduced, the parameter, or nothing?":
                    replicas.mean_gradients(training.net(members[0]), own),
            }  # fmt: skip

        training.check_gradients(known)


@check("weights after three steps, with SGD and with AdamW", points=3, code="E")
@diagnosis("the gradients must be means in every step, before the optimizer uses them")
def check_weights(run: Run) -> None:
    """E: equal to one process that has all batches."""
    for training in trainings(run):
        training.check_weights()


@check("a second backward adds to the means of the first", points=1, code="E")
@diagnosis("reduce what is in `grad` when the hook is called")
def check_added(run: Run) -> None:
    """E: backward, wait, backward, wait; nothing is set back."""
    training = Training(run, drive, 3, (), MISSED)
    first, second = (training.mean_gradients((0, 1, 2), step) for step in (0, 1))
    both = {name: first[name] + second[name] for name in first}
    summed = {name: 3 * (3 * first[name] + second[name]) for name in first}
    known = {
        "this is the gradient of the second backward alone": second,
        "this is the gradient of the first backward alone": first,
        "these are sums: divide by the group's size": summed,
        "this is the mean over the two backwards; scaling the loss is up to the training loop":
            scaled(both, 0.5),
    }  # fmt: skip
    for rank in range(3):
        actual = training.outputs[rank]["added"]
        training.compare_gradients(rank, actual, both, known, "two backwards")


@check("one all-reduce for each parameter, 2(N-1)/N·S bytes", points=2, code="B")
@diagnosis("one hook on each parameter that requires a gradient")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger of two ranks."""
    world = 2
    training = two_ranks(run)
    net = training.net(0)
    counts = sorted(p.numel() for p in net.parameters() if p.requires_grad)
    for rank in range(world):
        calls = Order(training, rank).calls
        only_bf16(run, calls, rank)
        others = [call.label for call in calls if call.op != "all_reduce"]
        run.equal(others, [], "what is called besides all_reduce", rank=rank)
        run.equal(
            sorted(call.payload // call.item for call in calls),
            counts,
            "the list of all-reduces, by number of elements",
            rank=rank,
            likely={
                "the tied weight is reduced twice: it has two names, but is one parameter": sorted(
                    [*counts, net.first.weight.numel()]
                ),
                "every gradient is reduced twice: two hooks on each parameter?": sorted(
                    [*counts, *counts]
                ),
                "all gradients in one all-reduce: that is a bucket, which comes later": [
                    sum(counts)
                ],
                "nothing is reduced": [],
            },
        )
        size = sum(wire_bytes("all_reduce", n * 2, world, rank, 2)[0] for n in counts)
        sent = sum(call.sent for call in calls)
        run.equal(sent, size, "bytes sent in one step", rank=rank)
