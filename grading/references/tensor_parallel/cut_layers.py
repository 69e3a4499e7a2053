"""Layers cut over a group's ranks: what a driver notes of one, and what one process makes of it.

Paper: Shoeybi et al., "Megatron-LM" (2019), section 3: the MLP block, cut by columns, then by rows.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import copy_to_group
from course_lib.grade.suite import Run
from course_lib.trace import wire_bytes
from course_lib.trace.memory import LiveMemory, held_bytes

Parts = Sequence[Sequence[int]]  # groups of ranks; () for one of all
ALONE: Parts = ((0,), (1, 2, 3))  # four ranks, whose index in the group is not the rank
PATIENCE = 1.0  # seconds
Layer = tuple[torch.Tensor, torch.Tensor | None]  # weight [out, in] and bias [out] of a full layer


# --- on a rank -----------------------------------------------------------------------------------
def group_of(group: Any, parts: Parts) -> Any:
    """This rank's group: the one given, or its part."""
    return group.split([list(part) for part in parts], "part") if parts else group


def full_layer(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """A whole layer with copies of these numbers."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def look(layer: nn.Module, full: nn.Linear) -> dict[str, Any]:
    """What a layer has become: its numbers, and how its parameters are registered.

    Then its numbers are changed, as an optimizer would: the full layer must not notice.
    """
    own = {name: getattr(layer, name, None) for name in ("weight", "bias")}
    known = {id(parameter) for parameter in layer.parameters()}
    loose = [name for name, value in own.items() if value is not None and id(value) not in known]
    values = {name: copied(value) for name, value in own.items()}
    with torch.no_grad():
        for tensor in (value for value in own.values() if isinstance(value, torch.Tensor)):
            tensor.add_(1)
    return {
        "values": values,
        "loose": loose,
        "others": len(known - {id(value) for value in own.values()}),
        "full": [parameter.detach().clone() for parameter in full.parameters()],
    }


def copied(value: Any) -> Any:
    """A copy of a tensor as it is now; anything else as it is."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def backward(y: Any, upstream: torch.Tensor) -> None:
    """A backward with this gradient of y; zeros where it does not fit, which a check then says.

    No rank leaves it out because of what it sees: others may wait for it.
    """
    if isinstance(y, torch.Tensor) and y.requires_grad:
        fits = y.shape == upstream.shape
        torch.autograd.backward(y, upstream.to(y.dtype) if fits else torch.zeros_like(y))


def library(y: Any) -> list[str]:
    """Functions of course_lib in the autograd graph of a tensor."""
    found, nodes = [], [getattr(y, "grad_fn", None)]
    while nodes:
        if (node := nodes.pop()) is None:
            continue
        function = getattr(type(node), "_forward_cls", None)
        if function is not None and function.__module__.startswith("course_lib."):
            found.append(f"{function.__module__}.{function.__name__}")
        nodes += [following for following, _ in node.next_functions]
    return found


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """The first dim moved to the last but one: not contiguous, if there are three."""
    return tensor.movedim(0, -2) if tensor.dim() > 1 else tensor


def step(
    layer: Callable[..., Any],
    own: nn.Module,
    x: torch.Tensor,
    upstream: torch.Tensor,
    events: list[Any],
) -> dict[str, Any]:
    """One forward and backward of a layer whose parameters have no gradient yet.

    Args:
        layer: is called.
        own: has the `weight` and `bias` whose gradients are noted.
        x: the input, which the layer gets `turned`.
        upstream: the gradient of the output, likewise.
        events: of the ledger; `marks` says how many there were before, between and after.
    """
    leaf = x.clone().requires_grad_()
    marks = [len(events)]
    y = layer(turned(leaf))
    marks.append(len(events))
    backward(y, turned(upstream))
    marks.append(len(events))
    grads = {
        name: copied(getattr(getattr(own, name, None), "grad", None)) for name in ("weight", "bias")
    }
    return {"y": copied(y), "marks": marks, "grads": {"x": copied(leaf.grad), **grads}}


def built(build: Callable[[nn.Linear], nn.Module], full: Layer) -> dict[str, Any]:
    """What a layer has become, and the bytes that are alive when the full one is gone.

    They get some patience: the thread that tells the judge where this rank is looks at its frames,
    and lets go of what was in them a little later than the rank itself.
    """
    with LiveMemory() as memory:
        whole = full_layer(*full)
        layer = build(whole)
        said = look(layer, whole)
        del whole
        gc.collect()
        numbers = [value for value in said["values"].values() if value is not None]
        copies = held_bytes([*numbers, *said["full"]])
        return {**said, "held": memory.settle(copies + held_bytes(numbers), PATIENCE) - copies}


class Column(nn.Module):
    """The suite's own column-parallel layer, to come before what is graded.

    Args:
        full: the whole layer, equal on all ranks.
        group: the ranks that share it.
    """

    def __init__(self, full: nn.Linear, group: Any) -> None:
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(part(full.weight.detach(), 0, group.size, group.index).clone())
        self.bias = nn.Parameter(part(full.bias.detach(), 0, group.size, group.index).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's slice of the output."""
        return linear(copy_to_group(x, self.group), self.weight, self.bias)


# --- in the process that judges ------------------------------------------------------------------
def part(tensor: torch.Tensor, dim: int, size: int, index: int) -> torch.Tensor:
    """One of `size` parts; the first are one longer if the dim does not divide."""
    return tensor.tensor_split(size, dim)[index]


def one_process(
    full: Layer, x: torch.Tensor, upstream: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Output of a layer for `turned(x)`, and the gradients of x, weight and bias, as in `step`."""
    named = {"x": x, "weight": full[0]} | ({} if full[1] is None else {"bias": full[1]})
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in named.items()}
    y = linear(turned(leaves["x"]), leaves["weight"], leaves.get("bias"))
    grads = torch.autograd.grad(y, list(leaves.values()), turned(upstream))
    return y.detach(), dict(zip(leaves, grads, strict=True))


def places(world: int, parts: Parts) -> list[tuple[int, int]]:
    """For each rank the size of its group, and its index there."""
    groups = {rank: list(each) for each in parts or (range(world),) for rank in each}
    return [(len(groups[rank]), groups[rank].index(rank)) for rank in range(world)]


@dataclass(frozen=True)
class Case:
    """One layer on one rank: what it was given, and what came back.

    Attributes:
        full: the whole layer.
        x: the whole input, before it is turned.
        slope: the gradient of the whole output, likewise.
        rank: whose answer it is.
        size: of the rank's group.
        index: the rank's in it.
        found: what the driver noted: `built`, or `step`, whose `marks` begin before the building.
    """

    full: Layer
    x: torch.Tensor
    slope: torch.Tensor
    rank: int
    size: int
    index: int
    found: dict[str, Any]

    def cut(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """This rank's part."""
        return part(tensor, dim, self.size, self.index)

    @property
    def what(self) -> str:
        """The case in words."""
        return f"(layer {'×'.join(map(str, self.full[0].shape))}, {self.size} ranks)"


def cases(
    result: Any,
    layers: list[Layer],
    xs: list[torch.Tensor],
    slopes: list[torch.Tensor],
    places: list[tuple[int, int]],
) -> list[Case]:
    """Each layer on each rank."""
    given = list(zip(layers, xs, slopes, strict=True))
    return [
        Case(*given[number], rank, *places[rank], found)
        for rank, output in enumerate(result.outputs)
        for number, found in enumerate(output["cases"])
    ]


def check_parameters(
    run: Run, case: Case, wanted: dict[str, Any], likely: dict[str, dict[str, torch.Tensor]]
) -> None:
    """Weight and bias of a layer, as its only parameters; the full layer as it was.

    Args:
        run: of the check.
        case: the layer.
        wanted: weight and bias; None for a layer without.
        likely: known wrong ones, by name, each pair under its sentence.
    """
    found, rank = case.found, case.rank
    for name, value in wanted.items():
        actual, what = found["values"][name], f"{name} {case.what}"
        if value is None:
            run.equal(actual, None, what, rank=rank, likely={"the full layer has none": actual})
            continue
        why = f"every rank needs its {name}, and takes steps with its gradient"
        run.true(actual is not None, f"there is no {what}", rank=rank, cause=why)
        others = {why: each[name] for why, each in likely.items() if name in each}
        run.close(actual, value, what, rank=rank, likely=others)
    why = "no optimizer finds it: make it an nn.Parameter"
    run.equal(
        found["loose"],
        [],
        "the list of what is no parameter of the layer",
        rank=rank,
        likely={why: found["loose"]},
    )
    run.equal(found["others"], 0, "the number of parameters beside weight and bias", rank=rank)
    was = [tensor for tensor in case.full if tensor is not None]
    run.equal(
        found["full"],
        was,
        "the full layer after a step of this one",
        rank=rank,
        likely={"others may use it as well: copy what you take": found["full"]},
    )


def check_memory(run: Run, case: Case, wanted: dict[str, Any]) -> None:
    """Nothing is alive after the building but weight and bias, as they should be."""
    full, own, kept = (
        sum(tensor.nbytes for tensor in tensors if tensor is not None)
        for tensors in (case.full, wanted.values(), case.found["values"].values())
    )
    cause = ""
    if case.found["held"] > kept:
        cause = "a view keeps all of its storage: copy the slice of the bias too"
    if case.found["held"] >= case.full[0].nbytes:
        cause = (
            "the whole weight is alive: a view keeps all of its storage, and a reference to "
            "`full` keeps it as well"
        )
    if case.full[1] is None and case.found["values"]["bias"] is not None:
        cause = "the full layer has no bias: this one's must be None"
    what = f"bytes held {case.what}, {full:,} in all,"
    run.at_most(case.found["held"], own, what, rank=case.rank, cause=cause)


def stretches(result: Any, rank: int, marks: list[int]) -> list[list[str]]:
    """What a rank sent between each mark and the next."""
    return [sends(result, rank, *ends) for ends in zip(marks, marks[1:], strict=False)]


def sends(result: Any, rank: int, begin: int, end: int) -> list[str]:
    """The collectives of one stretch of a rank's ledger, with the bytes that it sent."""
    events = result.ledgers[rank].events[begin:end]
    return [f"{e.op}, {e.sent:,} bytes sent" for e in events if e.parent < 0]


def one_all_reduce(count: int, size: int, index: int, item: int = 8) -> list[str]:
    """What `sends` says of one all-reduce of `count` elements."""
    sent, _ = wire_bytes("all_reduce", count * item, size, index, item)
    return [f"all_reduce, {sent:,} bytes sent"]
