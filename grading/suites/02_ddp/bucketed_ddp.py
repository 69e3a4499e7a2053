"""BucketedDDP: right in every step, one all-reduce a bucket, begun when it is full.

The net (`references/data_parallel/data_dependent_net.py`) has layers a, b, c and d, and a route
says through which of them a rank goes, in which order.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch

from course_lib.comm import Work
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import wire_bytes
from grading.references.data_parallel import data_dependent_net
from grading.references.data_parallel.data_dependent_net import BUCKETS, OPTIMIZERS, Batch, Net
from grading.references.data_parallel.training import explained

EXERCISE = Exercise(
    title="DDP with buckets",
    core=True,
    minutes=35,
    order=5,
    defines=("BucketedDDP",),
    hints=(
        "Cut each flat tensor once: `flat.split([p.numel() for p in bucket])`, each piece with "
        "`.view(p.shape)`. Keep the view of each parameter, and a set of the parameters whose "
        "gradients have arrived in this backward. The number of all-reduces under way says which "
        "bucket is next.",
        "The hook does two things. It puts the gradient into the bucket: if it is None, zero the "
        "view; if it is another tensor, copy it; in both cases set `p.grad = view`. Then, *while* "
        "the next bucket in the list has all its gradients, it starts that bucket's all-reduce.",
        "`synchronize` can call the same function for every parameter that has not arrived: that "
        "fills the remaining buckets, and starts them in order. Then wait for all, and clear both "
        "the set and the list.",
    ),
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    seed: int,
    width: int,
    gain: torch.dtype,
    batches: list[Batch],
    routes: list[str],
    parts: list[list[int]],
    names: list[str],
) -> dict[str, Any]:
    """Trains with each optimizer; one step for each batch."""
    group = group.split(parts, "dp") if parts else group
    nets = {name: Net(seed, width, gain) for name in names}
    return {name: _train(learner, group, nets[name], name, batches, routes) for name in names}


def _train(
    learner: Any, group: Any, net: Net, name: str, batches: list[Batch], routes: list[str]
) -> dict[str, Any]:
    buckets = [[getattr(net, member) for member in bucket] for bucket in BUCKETS]
    ready: list[Any] = []
    _watch(net, group.ledger, ready)
    wrapped = learner.BucketedDDP(net, group, buckets)
    chosen, steps = data_dependent_net.optimizer(name, net), []
    for number, (batch, route) in enumerate(zip(batches, routes, strict=True)):
        begin = len(group.ledger.events)
        ready.clear()
        data_dependent_net.loss(wrapped, batch, route).backward()
        in_backward = len(group.ledger.events)
        wrapped.synchronize()
        events = group.ledger.events[begin:]
        grads = {key: p.grad for key, p in net.named_parameters()}
        steps.append(
            {
                "gradients": {key: None if g is None else g.clone() for key, g in grads.items()},
                "storages": {
                    key: g.untyped_storage().data_ptr() for key, g in grads.items() if g is not None
                },
                "ready": [[key, started - begin, still] for key, started, still in ready],
                "calls": [[event.op, event.payload] for event in events],
                "in backward": in_backward - begin,
                "open": sum(event.end is None for event in events),
            }
        )
        chosen.step()
        data_dependent_net.clear(chosen, number)
    gc.collect()
    works = sum(type(each) is Work for each in gc.get_objects())
    weights = {key: p.detach() for key, p in net.named_parameters()}
    return {"steps": steps, "weights": weights, "works": works}


def _watch(net: Net, ledger: Any, ready: list[Any]) -> None:
    """Notes for each gradient, when it comes, how many calls have begun and how many still run.

    These hooks are older than the learner's, so they run before them.
    """
    for key, parameter in data_dependent_net.trained(net).items():

        def note(_: torch.Tensor, key: str = key) -> None:
            ready.append((key, len(ledger.events), len(ledger.open_events())))

        parameter.register_post_accumulate_grad_hook(note)


# --- what they must bring back -------------------------------------------------------------------
class Training:
    """A run, its inputs, and what one process makes of them.

    Args:
        run: of the check.
        routes: for each rank, its route in each step.
        members: global ranks that train together; each other rank trains alone.
        names: optimizers.
        gain: dtype of the net's gain.
    """

    def __init__(
        self,
        run: Run,
        routes: Sequence[Sequence[str]],
        members: Sequence[int] = (),
        names: Sequence[str] = OPTIMIZERS,
        gain: torch.dtype = torch.float32,
    ) -> None:
        world, self.names, self.gain = len(routes), list(names), gain
        self.run, self.routes, self.members = run, routes, list(members) or list(range(world))
        others = [[rank] for rank in range(world) if rank not in self.members]
        self.seed, self.width = run.number(0, 1000), run.number(3, 6)
        self.batches = [
            [(run.random((5, self.width + 2)), run.random((5, self.width + 5))) for _ in routes[0]]
            for _ in range(world)
        ]
        same = {"seed": self.seed, "width": self.width, "gain": gain, "names": self.names,
                "parts": [self.members, *others] if others else []}  # fmt: skip
        inputs = [
            {**same, "batches": mine, "routes": list(route)}
            for mine, route in zip(self.batches, routes, strict=True)
        ]
        self.result = explained(run, drive, inputs, world, "All ranks must send all buckets.")

    def steps(self) -> Any:
        """(optimizer, rank, number of the step, what the rank noted in it)."""
        for name in self.names:
            for rank in self.members:
                for number, step in enumerate(self.result.outputs[rank][name]["steps"]):
                    yield name, rank, number, step

    def reference(self, name: str) -> Any:
        """What one process makes of the members' batches."""
        return data_dependent_net.one_process(
            Net(self.seed, self.width, self.gain),
            name,
            [self.batches[rank] for rank in self.members],
            [self.routes[rank] for rank in self.members],
        )

    def sizes(self) -> list[int]:
        """Bytes of each bucket."""
        net = Net(self.seed, self.width, self.gain)
        return [sum(net.get_parameter(name).nbytes for name in bucket) for bucket in BUCKETS]

    def check_gradients(self) -> None:
        """Each step's gradients, and that they were waited for."""
        known = {name: self.reference(name)[0] for name in self.names}
        for name, rank, number, step in self.steps():
            when = f"in step {number} of {name}"
            self.run.true(
                step["open"] == 0,
                f"{when}: all-reduces were started and not waited for",
                rank=rank,
                measured=f"{step['open']} still under way after synchronize()",
                cause="a result is not there before you wait for it: wait for every Work",
            )
            self._check_step(f"the gradient {when}", step["gradients"], known[name][number], rank)

    def _check_step(self, what: str, found: Any, known: Any, rank: int) -> None:
        likely = {
            "this is the sum over the ranks: `avg` divides by the group's size": known["sum"],
            "this rank's own gradient: it was not reduced, or is not the one that was":
                known["own"][self.members.index(rank)],
            "an unused parameter sent what was left in its bucket from the step before: "
            "zero the view when `grad` is None": known["stale"],
        }  # fmt: skip
        self.run.true(found["frozen"] is None, "a frozen parameter has a gradient", rank=rank)
        for key, wanted in known["right"].items():
            self.run.true(
                found[key] is not None,
                f"{what} of {key} is None",
                rank=rank,
                cause="another rank used this parameter: its bucket must be sent, and the view "
                "must become the gradient on this rank as well",
            )
            others = {why: values[key] for why, values in likely.items()}
            name = f"{what} of {key}"
            self.run.close(found[key], wanted, name, rank=rank, likely=others, terms=99)
        for key in set(found) - set(known["right"]):
            self.run.true(
                found[key] is None or not found[key].any(),
                f"{what} of {key}, which no rank used, is not zero",
                rank=rank,
            )


def _plain(run: Run, world: int) -> Training:
    """All layers on all ranks in the same order; four steps."""
    return Training(run, [["abcd"] * 4] * world)


@check("gradients in every step on 1, 2 and 4 ranks, cleared in three ways", points=3, code="E")
@diagnosis("the flat tensor must hold this step's gradients when it is sent")
def check_gradients(run: Run) -> None:
    """E: before the step; after set_to_none, after zeros, and on top of what was kept."""
    for world in (1, 2, 4):
        _plain(run, world).check_gradients()


@check("weights after 4 steps of SGD and of AdamW on 1, 2 and 4 ranks", points=2, code="E")
def check_weights(run: Run) -> None:
    """E: the optimizer must see the averaged gradients, on every rank."""
    for world in (1, 2, 4):
        training = _plain(run, world)
        for name in OPTIMIZERS:
            weights = training.reference(name)[1]
            for rank in training.members:
                run.close(
                    training.result.outputs[rank][name]["weights"],
                    weights,
                    f"after 4 steps of {name}, the weight",
                    rank=rank,
                    terms=999,
                )


@check(
    "one all-reduce for each bucket, in the order of the list, and nothing else", points=2, code="B"
)
@diagnosis("start the all-reduces in the order of the list, each with one flat tensor")
def check_calls(run: Run) -> None:
    """B: calls of each step with their bytes; the bytes on the wire; once with a gain in bf16."""
    _check_calls(run, _plain(run, 2))
    _check_calls(run, Training(run, [["abcd"]] * 2, names=["SGD"], gain=torch.bfloat16))


def _check_calls(run: Run, training: Training) -> None:
    sizes = training.sizes()
    right = [["all_reduce", size] for size in sizes]
    wider = {
        f"the {training.gain} of `gain` was sent in a dtype of {times} times its width: a "
        "bucket has the dtype of its parameters": [
            ["all_reduce", size * (times if "gain" in bucket else 1)]
            for bucket, size in zip(BUCKETS, sizes, strict=True)
        ]
        for times in (2, 4)
    }
    for _, rank, number, step in training.steps():
        run.true(
            len(step["calls"]) <= len(sizes),
            f"in step {number} there are more calls than buckets",
            rank=rank,
            expected=str(len(sizes)),
            measured=str(len(step["calls"])),
            cause="there is one call for each parameter, or one too many: send only the flat "
            "tensors",
        )
        run.equal(step["calls"], right, f"the list of calls in step {number}", rank=rank, likely={
            **wider,
            "the buckets were sent from the last to the first": right[::-1],
            "nothing was sent: are the hooks registered, and does synchronize send the rest?": [],
        })  # fmt: skip
    steps = len(training.names) * len(training.routes[0])
    each = [
        sum(wire_bytes("all_reduce", size, 2, rank, 1)[0] for size in sizes) * steps
        for rank in (0, 1)
    ]
    run.bytes(training.result, each, op="all_reduce")


@check("a bucket is sent when it is full, and waited for only in synchronize", points=3, code="O")
@diagnosis("start all-reduces in the hook, with async_op=True, as soon as it is the bucket's turn")
def check_overlap(run: Run) -> None:
    """O: how many calls had begun, and how many still ran, when each gradient came."""
    for _, rank, number, step in _plain(run, 2).steps():
        when, keys = f"in step {number}", [key for key, _, _ in step["ready"]]
        for place, (key, begun, still) in enumerate(step["ready"]):
            full = _full(set(keys[:place]))
            run.true(
                begun >= full,
                f"{when}: a full bucket was not sent at once",
                rank=rank,
                expected=f"{full} all-reduces begun when the gradient of {key} comes",
                measured=str(begun),
                cause=""
                if begun
                else "nothing is sent during backward: the hook must start every full bucket, "
                "synchronize only the rest",
            )
            run.true(
                begun <= full,
                f"{when}: a bucket was sent before its turn, or before it was full",
                rank=rank,
                measured=str(begun),
                expected=f"{full} all-reduces begun when the gradient of {key} comes",
                cause="ask for all its gradients, and for those of the buckets before it",
            )
            run.true(
                still == begun,
                f"{when}: an all-reduce was waited for during backward",
                rank=rank,
                measured=f"{begun - still} of {begun} ended when {key} comes",
                cause="a blocking all-reduce stops backward: async_op=True, and wait in "
                "synchronize",
            )


def _full(here: set[str]) -> int:
    """How many buckets, from the first, have all their gradients."""
    return next((n for n, bucket in enumerate(BUCKETS) if not here.issuperset(bucket)), 7)


@check("gradients are views of the buckets, always the same", points=2, code="M")
@diagnosis("`p.grad = view` after the gradient has been copied in")
def check_views(run: Run) -> None:
    """M: one storage a bucket, the same in all steps."""
    before: dict[Any, Any] = {}
    for name, rank, number, step in _plain(run, 2).steps():
        for place, bucket in enumerate(BUCKETS):
            storages = {step["storages"].get(key) for key in bucket}
            where = f"in step {number} the gradients of bucket {place} ({', '.join(bucket)})"
            run.true(
                len(storages) == 1,
                f"{where} are not in one tensor",
                rank=rank,
                expected="1 storage",
                measured=f"{len(storages)} storages",
            )
            first = before.setdefault((name, rank, place), storages)
            run.true(
                storages == first,
                f"{where} are in a different tensor than before",
                rank=rank,
                cause="make flat tensors once, and copy each new gradient in",
            )
    for output in run.each(_plain(run, 2).result.outputs):
        for name, found in output.items():
            run.at_most(
                found["works"],
                len(BUCKETS) * len(OPTIMIZERS),  # those of the last step may be there
                f"after 4 steps of {name}, the number of Works that are still there",
                cause="forget the Works that were waited for, or they pile up step by step",
            )


@check(
    "gradients that come in a different order on another rank, in a group of two",
    points=2,
    code="H",
)
@diagnosis("ranks sent different buckets at the same time: keep to the order of the list")
def check_order(run: Run) -> None:
    """H: rank 2 and rank 0 train together, in this order; rank 1 trains alone."""
    routes = [["cabd", "bacd"], ["abcd", "abcd"], ["abcd", "cbad"]]
    Training(run, routes, members=[2, 0], names=["SGD"]).check_gradients()


@check("parameters that a rank does not use, on 2 and 3 ranks", points=3, code="H")
@diagnosis("a bucket with an unused parameter is sent by synchronize, with zeros for it")
def check_unused(run: Run) -> None:
    """H: rank 1 lacks two layers; then none uses `a`, and in each step a rank lacks another one."""
    Training(run, [["abcd"], ["ad"]], names=["SGD"]).check_gradients()
    Training(
        run, [["bcd", "cd", "db", "bc"], ["bcd", "db", "bc", "cd"], ["bcd", "cb", "dc", "bd"]]
    ).check_gradients()
