"""partition: equal shards of one flat row, padded with zeros, and the way back.

A case is a list of tensors, the order in which they are given (a place that comes twice is a tied
weight) and the number of shards.
"""

from __future__ import annotations

from typing import Any

import torch

from course_lib.comm import all_gather, all_reduce
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace.memory import held_bytes

EXERCISE = Exercise(
    title="Flat, padded, balanced",
    core=True,
    minutes=20,
    order=1,
    defines=("partition", "restore"),
    library=(),
    hints=(
        "Make the row first: `torch.cat` of all tensors, each reshaped to one dimension. "
        "`dict.fromkeys(tensors)` keeps each object once, in order, so a tied weight comes once.",
        "The size of a shard is the row's length divided by W, rounded up: `-(-n // W)`. Make W "
        "times that many zeros, copy the row to the beginning, and cut. The parts of a tensor "
        "that is cut are views: clone what must live alone.",
        "For the way back: `torch.cat(list(shards))`, drop the padding, `split` it by the unique "
        "tensors' `numel()`, and `view` each part in its shape. Keep the results in a dict from "
        "the old tensor to the new one, so that tied places find the same tensor.",
    ),
)

Case = dict[str, Any]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Case]) -> dict[str, Any]:
    """The shards of each case."""
    return {"cases": [_cut(learner, case) for case in cases]}


def _cut(learner: Any, case: Case) -> dict[str, Any]:
    made = [torch.nn.Parameter(_strided(tensor, case)) for tensor in case["tensors"]]
    if case["overlap"]:  # the second is the beginning of the first, and yet another object
        made[1] = torch.nn.Parameter(made[0].detach()[: len(made[1])])
    shards = learner.partition([made[place] for place in case["order"]], case["parts"])
    if not isinstance(shards, (list, tuple)):
        return {"shards": type(shards).__name__}
    return {
        "shards": list(shards),
        "needs gradient": any(shard.requires_grad for shard in shards),
        "alone": [held_bytes([shard]) for shard in shards],
        "together": held_bytes(shards),
        "beside": held_bytes([*made, *shards]) - held_bytes(made),
        "given": [tensor.detach() for tensor in made],
    }


def drive_restore(
    learner: Any, group: Any, cases: list[Case], rows: list[torch.Tensor]
) -> dict[str, Any]:
    """The tensors of each case, from given shards; `like` holds other values."""
    found = []
    for case, row in zip(cases, rows, strict=True):
        memory = row.new_zeros(max(tensor.numel() for tensor in case["tensors"]))
        like = [
            torch.nn.Parameter(memory[: tensor.numel()].view(tensor.shape))
            for tensor in case["tensors"]
        ]
        shards = [shard.clone() for shard in row.view(case["parts"], -1)]
        result = list(learner.restore(shards, [like[place] for place in case["order"]]))
        same = [
            result[case["order"].index(place)] is tensor
            for place, tensor in zip(case["order"], result, strict=False)
        ]
        found.append({"tensors": result, "same": same})
    return {"cases": found}


def _strided(tensor: torch.Tensor, case: Case) -> torch.Tensor:
    """The same values, in memory of another order if the case asks for that."""
    return tensor.t().contiguous().t() if case["transposed"] and tensor.dim() == 2 else tensor


def drive_shared(learner: Any, group: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    """Each rank keeps its shard; a norm over the shards, and the tensors from all of them."""
    shards = learner.partition([tensor.clone() for tensor in tensors], group.size)
    mine = shards[group.index].clone()
    square = mine.pow(2).sum()
    all_reduce(square, group)
    flat = mine.new_empty(group.size * mine.numel())
    all_gather(flat, mine, group)
    gathered = list(flat.view(group.size, -1))
    return {"norm": square.sqrt(), "tensors": list(learner.restore(gathered, tensors))}


# --- what they must bring back -------------------------------------------------------------------
def flat_row(case: Case, slip: str = "") -> torch.Tensor:
    """All shards one after the other; `slip` names a known mistake to make."""
    order = case["order"] if slip == "tied twice" else list(dict.fromkeys(case["order"]))
    tensors = [case["tensors"][place] for place in order]
    if slip == "memory order":
        tensors = [t.t() if t.dim() == 2 and case["transposed"] else t for t in tensors]
    if slip == "last first":
        tensors = tensors[::-1]
    row = torch.cat([tensor.reshape(-1) for tensor in tensors])
    count = -(-row.numel() // case["parts"]) * case["parts"] - row.numel()
    padding = row[-1:].expand(count) if slip == "repeated" and row.numel() else row.new_zeros(count)
    row = torch.cat([padding, row] if slip == "padding first" else [row, padding])
    if slip == "dealt out":
        row = torch.cat([row[first :: case["parts"]] for first in range(case["parts"])])
    return row


LIKELY = {
    "tied twice": "a tied weight is in the row twice: each object counts once",
    "memory order": "the elements are in the order of memory, not row by row: reshape copies them "
    "in logical order",
    "last first": "the tensors are in reverse order",
    "repeated": "the padding repeats a value: it must be zeros, or norms count it",
    "padding first": "the zeros are at the beginning of the row, not at its end",
    "dealt out": "elements are dealt out one by one (row[i::W]): a shard is one stretch of the row",
}


def _cases(run: Run) -> list[Case]:
    """Sizes that divide and that do not; scalars, empty ones, and fewer elements than shards."""
    wide = run.number(5, 9)
    tensors = [run.random(s) for s in [(wide, 3), (wide,), (), (0, 4), (2, 3, 5), (wide, wide)]]
    few = [run.random(1), run.random(1)]
    even = [run.random((6, 4)), run.random(12), run.random(12)]
    return [_case(even, parts) for parts in (1, 2, 4)] + [
        *(_case(tensors, parts) for parts in (2, 3, 4, 7)),
        _case(few, 4),
    ]


def _case(tensors: list[torch.Tensor], parts: int, **more: Any) -> Case:
    order = list(range(len(tensors)))
    plain = {"transposed": False, "overlap": False}
    return {"tensors": tensors, "order": order, "parts": parts, **plain, **more}


def _name(case: Case) -> str:
    tied = ", one of them tied" if len(set(case["order"])) < len(case["order"]) else ""
    total = sum(case["tensors"][place].numel() for place in set(case["order"]))
    return f"{len(case['order'])} tensors of {total} elements{tied}, cut in {case['parts']}"


def _found(run: Run, case: Case, found: dict[str, Any]) -> list[torch.Tensor]:
    """The shards, which must be W tensors of one dimension and one size."""
    shards, what, parts = found["shards"], _name(case), case["parts"]
    run.true(
        isinstance(shards, list),
        f"{what}: the result has the wrong form",
        expected="a list of tensors",
        measured=str(shards),
    )
    run.equal(len(shards), parts, f"{what}: the number of shards")
    size = flat_row(case).numel() // parts
    sizes = [shard.numel() for shard in shards]
    likely = {_cause(case, sizes): sizes}
    run.equal(sizes, [size] * parts, f"{what}: the sizes of the shards", likely=likely)
    for shard in shards:
        run.equal(list(shard.shape), [size], f"{what}: the shape of a shard")
    return shards


def _cause(case: Case, sizes: list[int]) -> str:
    """Why shards may have these sizes instead of equal ones."""
    parts = case["parts"]
    counts = [case["tensors"][place].numel() for place in dict.fromkeys(case["order"])]
    if set(sizes) == {flat_row(case, "tied twice").numel() // parts}:
        return LIKELY["tied twice"]
    if set(sizes) == {sum(-(-count // parts) for count in counts)}:
        return "each tensor is padded on its own: pad once, at the end of the row"
    if sum(sizes) < sum(counts):
        return "elements were lost: the size of a shard is rounded up, not down"
    if sum(sizes) == sum(counts) and sizes != sorted(sizes, reverse=True):
        return "whole tensors were dealt out: cut the flat row, even in the middle of a tensor"
    return "the last shard is shorter: pad the row with zeros until its length divides by W"


def _results(run: Run, cases: list[Case]) -> list[tuple[Case, dict[str, Any]]]:
    found = run(drive, {"cases": cases}).outputs[0]["cases"]
    return list(zip(cases, found, strict=True))


def _compare(run: Run, case: Case, found: dict[str, Any]) -> None:
    """The shards against the row."""
    shards = _found(run, case, found)
    likely = {why: flat_row(case, slip) for slip, why in LIKELY.items()}
    row = torch.cat(shards)
    run.close(row, flat_row(case), f"{_name(case)}: the shards, put together", likely=likely)


def _compare_restored(run: Run, cases: list[Case]) -> None:
    """What is restored from the right shards, each case; ties as well."""
    rows = [flat_row(case) for case in cases]
    result = run(drive_restore, {"cases": cases, "rows": rows})
    for case, found in zip(cases, result.outputs[0]["cases"], strict=True):
        expected = [case["tensors"][place] for place in case["order"]]
        zeros = [tensor * 0 for tensor in expected]
        likely = {"all zeros: the values must come from the shards, not from `like`": zeros}
        run.close(found["tensors"], expected, f"{_name(case)}: what is restored", likely=likely)
        run.true(
            all(found["same"]),
            f"{_name(case)}: a tied weight is restored as two tensors",
            expected="the same tensor at both places",
            cause="a change at one place must be visible at the other",
        )


@check(
    "W shards of equal size; put together, they are the tensors one after another",
    points=3,
    code="E",
)
@diagnosis("flatten, append zeros, cut")
def check_row(run: Run) -> None:
    """E: sizes that divide and that do not, 1–7 shards."""
    for case, found in _results(run, _cases(run)):
        _compare(run, case, found)


@check("restore returns the tensors, from the shards alone", points=2, code="E")
@diagnosis("the row, without its padding, split by the number of elements, each in its shape")
def check_restored(run: Run) -> None:
    """E: from the right shards, whatever `partition` does."""
    _compare_restored(run, _cases(run))


@check("a tied weight is in the row once, and is tied again afterwards", points=2, code="E")
def check_tied(run: Run) -> None:
    """E: the same object at two and at three places; equal values or memory tie nothing."""
    tensors = [run.random((3, 4)), run.random(5), run.random(()), run.random(7)]
    cases = [_case(tensors, parts, order=[0, 1, 0, 2, 3, 0, 2]) for parts in (2, 3)]
    zeros = torch.zeros(3, dtype=torch.float64)
    rows = run.random(6)
    cases.append(_case([rows, rows[:4], zeros, zeros], 2, overlap=True))  # none of them tied
    for case, found in _results(run, cases):
        _compare(run, case, found)
    _compare_restored(run, cases)


@check("each shard has its own memory, and the tensors are not changed", points=2, code="M")
def check_memory(run: Run) -> None:
    """M: bytes that one shard keeps alive; the sum over all; what was given is unchanged.

    One tensor as one shard is what needs no copy, and must be one all the same.
    """
    for case, found in _results(run, [_cases(run)[5], _case([run.random(12)], 1)]):
        size = _found(run, case, found)[0].nbytes
        cause = "a shard that is a view keeps the whole row alive: clone it"
        what = f"{_name(case)}: bytes that one shard keeps alive"
        run.at_most(max(found["alone"]), size, what, cause=cause)
        run.equal(found["together"], size * case["parts"], f"{_name(case)}: bytes of all shards")
        cause = "a shard is a view of an input tensor: clone it"
        what = f"{_name(case)}: bytes of the shards beside the tensors"
        run.equal(found["beside"], size * case["parts"], what, likely={cause: 0})
        cause = "shards are plain memory: detach the tensors before they are put together"
        run.true(not found["needs gradient"], "a shard needs a gradient", cause=cause)
        for given, tensor in zip(found["given"], case["tensors"], strict=True):
            run.close(given, tensor, f"{_name(case)}: an input tensor")


@check("transposed tensors; float32 and bfloat16 are kept", points=1, code="E")
def check_dtypes(run: Run) -> None:
    """E: memory in another order than the elements, and other dtypes."""
    wide = [run.random((4, 7)), run.random(3), run.random((5, 2))]
    cases = [_case(wide, 3, transposed=True)]
    for dtype in (torch.float32, torch.bfloat16):
        cases.append(_case([tensor.to(dtype) for tensor in wide], 2))
    for case, found in _results(run, cases):
        _compare(run, case, found)
    _compare_restored(run, cases)


@check("three ranks: the norm over shards, and the tensors from a gather", points=2, code="E")
def check_ranks(run: Run) -> None:
    """E: each rank keeps one shard; the padding is in no norm."""
    tensors = [
        run.random((3, 4)) + 3,
        run.random(5) + 3,
        run.random(()) + 3,
        run.random((1, 2)) + 3,
    ]
    result = run(drive_shared, {"tensors": tensors}, world=3)
    row = torch.cat([tensor.reshape(-1) for tensor in tensors])  # 20 elements: one of padding
    for output in run.each(result.outputs):
        counted = {
            "the padding is in the norm: it must be zeros": torch.cat([row, row[-1:]]).norm()
        }
        run.close(output["norm"], row.norm(), "the norm over all shards", likely=counted, terms=20)
        run.close(output["tensors"], tensors, "the tensors restored from all ranks' shards")
