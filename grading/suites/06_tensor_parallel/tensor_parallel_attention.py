"""tensor_parallel_attention: one process's numbers, shared heads, two all-reduces."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import wire_bytes
from course_lib.trace.memory import held_bytes
from grading.references.attention.per_head import PARTS, Whole

EXERCISE = Exercise(
    title="Attention cut by heads, with shared key-value heads",
    core=True,
    minutes=40,
    order=4,
    defines=("TensorParallelAttention",),
    hints=(
        "Undo the fusion first: `qkv.weight.split([H*C, K*C, K*C])` gives the rows of Q, K and V. "
        "Cut Q into N pieces, and K and V into min(K, N). Rank r has piece r of Q; which piece of "
        "K and V does it have? `output` is cut along dim 1.",
        "`copy_to_group(x, group)` once, before all three projections; `reduce_from_group` once, "
        "after `output`. In between, everything is ordinary attention with fewer heads: "
        "`scaled_dot_product_attention(..., is_causal=True, enable_gqa=True)`.",
        "A shared weight is a tensor that several ranks use in different ways, and "
        "`copy_to_group` is made for that: `key = copy_to_group(self.key, self.sharers)` leaves "
        "the weight as it is, and sums its gradient over the sharers in the backward, before it "
        "is added to `self.key.grad`.",
    ),
)

# By world: size of the tensor-parallel groups, query heads, key-value heads.
CUTS = {2: [(2, 8, 4)], 4: [(4, 8, 2), (2, 8, 4)]}  # whose parts are looked at
SHAPES = {1: [(1, 4, 2)], 3: [(3, 6, 3), (3, 3, 1)], 4: [(4, 8, 2), (4, 4, 4), (2, 8, 4)]}


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Two backwards with each shape of heads."""
    found = []
    for case in cases:
        whole = [_layer(case["qkv"]), _layer(case["output"])]
        found.append(_attend(*_made(learner, group, case, whole), case))
    return {"cases": found}


def drive_parts(learner: Any, group: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The parameters after construction, for each shape of heads."""
    found = []
    for case in cases:
        whole = [_layer(case["qkv"]), _layer(case["output"])]
        module, _ = _made(learner, group, case, whole)
        trains = [layer.weight.requires_grad for layer in whole]
        storages = [StorageWeakRef(layer.weight.untyped_storage()) for layer in whole]
        del whole
        gc.collect()
        parts = _own(module)
        found.append(
            {
                "names": sorted(name for name, _ in module.named_parameters()),
                "parts": {name: part.detach().clone() for name, part in parts.items()},
                "held": {name: held_bytes([part]) for name, part in parts.items()},
                "trains": trains,
                "gone": [storage.expired() for storage in storages],
            }
        )
    return {"cases": found}


def _made(
    learner: Any, group: Any, case: dict[str, Any], whole: list[nn.Linear]
) -> tuple[Any, Any]:
    """The module and its group; sharers are neighbours in it, and it has every second rank."""
    ranks, copies = list(range(group.size)), group.size // case["size"]
    tp = group.split([ranks[first::copies] for first in range(copies)], "tp")
    shared = case["size"] // case["kv_heads"]
    firsts = range(0, group.size, max(1, shared))
    kv = group.split([ranks[at : at + shared] for at in firsts], "kv") if shared > 1 else None
    make = learner.TensorParallelAttention
    return make(*whole, case["heads"], case["kv_heads"], tp, kv), tp


def _own(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: part for name, part in module.named_parameters() if name in PARTS}


def _attend(module: nn.Module, tp: Any, case: dict[str, Any]) -> list[dict[str, Any]]:
    """After each of two backwards: the output, the gradients, and the bytes sent so far."""
    found = []
    for x, slopes in zip(case["xs"], case["slopes"], strict=True):
        x = x.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()  # not contiguous
        sent = [_sent(tp)]
        y = module(x)
        sent.append(_sent(tp))
        (y * slopes).sum().backward()
        sent.append(_sent(tp))
        found.append(
            {
                "y": y.detach(),
                "x": x.grad,
                "sent": sent,
                "parts": {
                    name: None if part.grad is None else part.grad.clone()
                    for name, part in _own(module).items()
                },
            }
        )
    with torch.no_grad():
        found[0]["later"] = module.eval()(case["xs"][0])
        found[0]["one token"] = module(case["xs"][0][:, :1])
    return found


def _layer(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    layer.weight.data.copy_(weight)
    return layer


def _sent(group: Any) -> list[int]:
    return [group.ledger.sent(axis=axis) for axis in ("tp", "kv")]


# --- what they must bring back -------------------------------------------------------------------
def _case(run: Run, size: int, heads: int, kv_heads: int) -> dict[str, Any]:
    """Hidden weights and inputs; 6 divides D, so bytes come out even among sharers."""
    width, hidden = 2 * run.number(1, 4) + 1, 6 * run.number(1, 3)
    batch, length = run.number(2, 4), run.number(4, 7)
    shapes = [(batch, length + later, hidden) for later in (0, 2)]
    return {
        "size": size, "heads": heads, "kv_heads": kv_heads,
        "qkv": run.random(((heads + 2 * kv_heads) * width, hidden)) * 0.7,
        "output": run.random((hidden, heads * width)),
        "xs": [run.random(x) for x in shapes], "slopes": [run.random(x) for x in shapes],
    }  # fmt: skip


def _found(run: Run, drive: Any, shapes: dict[int, Any]) -> Iterator[tuple[Whole, int, int, Any]]:
    """(one process, rank, its index in the group, what it brought back), for all runs."""
    for world, every in shapes.items():
        cases = [_case(run, *shape) for shape in every]
        result = run(drive, {"cases": cases}, world=world)
        for number, case in enumerate(cases):
            whole = Whole(case)
            for rank, found in enumerate(run.each(result.column("cases"))):
                yield whole, rank, rank * whole.size // world, found[number]


@check(
    "each rank's heads: query, key, value and output, each in its own memory", points=3, code="E"
)
@diagnosis("split the fused weight into Q, K and V first; then cut each of the three by heads")
def check_parts(run: Run) -> None:
    """E: slices of the whole weights, before anything is computed."""
    for whole, _, index, found in _found(run, drive_parts, CUTS):
        run.equal(found["names"], sorted(PARTS), "the list of the module's parameters")
        for name in PARTS:
            part, what = whole.cut(name, whole.weights[name], index), f"`{name}` {whole.name}"
            part = part.detach()
            rows, columns = whole.weights[name].shape
            run.equal(
                list(found["parts"][name].shape),
                list(part.shape),
                f"the shape of {what}",
                likely={
                    "all of it: each rank keeps its own heads": [rows, columns],
                    "`output` is cut along dim 1: heads are its columns, not its rows": [
                        rows // whole.size,
                        columns,
                    ]
                    if name == "output"
                    else None,
                },
            )
            likely = _wrong_rows(whole, name, index)
            run.close(found["parts"][name], part, what, likely=likely)
            run.at_most(
                found["held"][name],
                part.nbytes,
                f"the memory under {what}, in bytes,",
                cause="a view keeps the whole weight alive: clone",
            )
        for name, trains, gone in zip(
            ("qkv", "output"), found["trains"], found["gone"], strict=True
        ):
            what = f"the whole `{name}.weight` {whole.name}"
            run.true(trains, f"{what} needs no gradient any more", cause="detach the cuts alone")
            run.true(gone, f"{what} is still alive", cause="the module keeps it, or views of it")


def _wrong_rows(whole: Whole, name: str, index: int) -> dict[str, torch.Tensor]:
    """Known wrong cuts of the fused weight."""
    likely, count = {}, len(whole.cut(name, whole.weights[name], index))
    if name != "output" and whole.kv_heads >= whole.size:
        heads = (0, whole.heads // whole.size, (whole.heads + whole.kv_heads) // whole.size)
        start = dict(zip(PARTS[:3], heads, strict=True))[name] * whole.width
        likely[
            "the fused weight was cut contiguously: the first ranks have no values, the last no "
            "queries"
        ] = whole.case["qkv"].chunk(whole.size)[index][start:][:count]
    if name in ("key", "value"):
        weight = whole.weights[name].detach()
        likely["the first KV head on all ranks"] = weight[:count]
        likely["the wrong KV head: neighbouring ranks share one, r*K//N, not r % K"] = weight.chunk(
            whole.kv_heads
        )[index % whole.kv_heads]
    return likely


@check("the output on 1, 3 and 4 ranks, also in groups of 2", points=3, code="E")
@diagnosis(
    "this rank's heads attend, their results are multiplied by its columns of `output`, and one g "
    "sums them up"
)
def check_outputs(run: Run) -> None:
    """E: whole on every rank."""
    for whole, _, index, found in _found(run, drive, SHAPES):
        x, y = whole.case["xs"][0], whole.output(0)
        likely = {
            "this rank's heads alone: add up the parts of all ranks": whole.part(
                x, x, index
            ).detach(),
            "this is the mean of the parts: it must be their sum": y / whole.size,
            "the causal mask is missing: a token sees later ones": whole.output(0, causal=False),
            "scaled by the full width H·C: use a head's width C": whole.output(
                0, scale=(whole.heads * whole.width) ** -0.5
            ),
            "scaled by the hidden width D: use a head's width C": whole.output(
                0, scale=x.shape[2] ** -0.5
            ),
            "the scores are not scaled": whole.output(0, scale=1.0),
            "the query heads take the KV heads in turns: head h belongs to KV head h // "
            "(H/K), so neighbours share one (repeat_interleave, not repeat)": whole.output(
                0, turned=True
            ),
        }
        run.close(found[0]["y"], y, f"the output {whole.name}", likely=likely)
        what = f"the output in evaluation, without gradients, {whole.name}"
        run.close(found[0]["later"], y, what, likely=likely)
        what = f"the output for one token alone {whole.name}"
        run.close(found[0]["one token"], y[:, :1], what)


@check("gradients of x, and of the heads that are on one rank only", points=4, code="E")
@diagnosis("every rank uses x in a different way, so its gradient is a sum over them: that is f")
def check_gradients(run: Run) -> None:
    """E: x whole, query and output sliced; key and value where no rank shares them."""
    for whole, _, index, found in _found(run, drive, SHAPES):
        summands, grads = whole.summands(0), found[0]
        ways = [sum(own[name] for own in summands) for name in ("x", "x_kv")]
        own = summands[index]["x"] + summands[index]["x_kv"]
        run.close(grads["x"], ways[0] + ways[1], f"x.grad {whole.name}", likely={
            "this rank's summand: the backward of f sums over the ranks": own,
            "N times too large: summed twice": (ways[0] + ways[1]) * whole.size,
            "the mean of the ranks' summands": (ways[0] + ways[1]) / whole.size,
            "the way through shared keys and values counts once for each sharer: sum the gradients "
            "of the weights, not those of their heads": ways[0] + whole.shared * ways[1],
        })  # fmt: skip
        for name in PARTS if whole.shared == 1 else ("query", "output"):
            total = cast(torch.Tensor, sum(own[name] for own in summands))
            likely = {
                "N times too large: g's backward is the identity": whole.cut(name, total, index)
                * whole.size
            }
            what = f"{name}.grad {whole.name}"
            run.close(grads["parts"][name], whole.cut(name, total, index), what, likely=likely)


def _shared(whole: Whole, name: str, number: int) -> list[torch.Tensor]:
    """Each rank's summand of the gradient of its own key-value head."""
    summands = whole.summands(number)
    return [whole.cut(name, own[name], index) for index, own in enumerate(summands)]


@check("gradients of shared heads: the sum over the ranks that share them", points=4, code="E")
@diagnosis(
    "each sharer has seen different query heads: sum the gradients of key and value over them"
)
def check_shared(run: Run) -> None:
    """E: key and value where K is smaller than N; the same, whole, on all sharers."""
    for whole, _, index, found in _found(run, drive, SHAPES):
        for name in ("key", "value") if whole.shared > 1 else ():
            own, first = _shared(whole, name, 0), index - index % whole.shared
            total = torch.stack(own[first : first + whole.shared]).sum(0)
            likely = {
                "this rank's own summand: sum it over the ranks that share the head": own[index],
                "this is the mean over the sharers: it must be their sum": total / whole.shared,
                "summed over all ranks, not only over those that share the head": torch.stack(
                    own
                ).sum(0),
                "summed twice over the sharers": total * whole.shared,
            }
            what = f"{name}.grad {whole.name}"
            run.close(found[0]["parts"][name], total, what, likely=likely)


@check("a second backward adds to the gradients", points=2, code="E")
def check_twice(run: Run) -> None:
    """E: nothing that was summed before is summed again."""
    for whole, _, index, found in _found(run, drive, SHAPES):
        for name in PARTS:
            first, second = (
                sum(whole.cut(name, own[name], index) for own in whole.summands(n)) for n in (0, 1)
            )
            again = (
                "the first backward's gradients were summed over the sharers again: sum only "
                "what is new"
            )
            likely = {
                "only the second backward's: gradients must add up": second,
                again: first * whole.shared + second,
            }
            what = f"{name}.grad after two backwards {whole.name}"
            run.close(found[1]["parts"][name], first + second, what, likely=likely)


@check("2(N-1)/N·S bytes forward, the same backward, 2(s-1)/s of a shared head", points=3, code="B")
@diagnosis(
    "one all-reduce forward and one backward; that of the sharers is as large as `key` and `value`"
)
def check_bytes(run: Run) -> None:
    """B: exact, by direction and by group."""
    for whole, rank, index, found in _found(run, drive, SHAPES):
        once = wire_bytes("all_reduce", whole.case["xs"][0].nbytes, whole.size, index, 8)[0]
        small = sum(_small(whole, name, rank) for name in ("key", "value"))
        start, between, end = found[0]["sent"]
        ahead, back = between[0] - start[0], end[0] - between[0]
        likely = {"two all-reduces: one after `output` is enough": 2 * once}
        what = f"the number of bytes sent in forward {whole.name}"
        run.equal(ahead, once, what, likely=likely)
        likely = {
            "three all-reduces: apply f to x once, before q, k and v are computed": 3 * once,
            "no all-reduce: the summands of x.grad are not summed": 0,
        }
        what = f"the number of bytes sent in backward {whole.name}"
        run.equal(back, once, what, likely=likely)
        kv = end[1] - start[1]
        run.equal(kv, small, f"the number of bytes sent to the sharers {whole.name}")


def _small(whole: Whole, name: str, rank: int) -> int:
    """Bytes of the all-reduce of a shared weight's gradient; none if it is not shared."""
    size = whole.cut(name, whole.weights[name], 0).nbytes
    return wire_bytes("all_reduce", size, whole.shared, rank % whole.shared, 8)[0]
