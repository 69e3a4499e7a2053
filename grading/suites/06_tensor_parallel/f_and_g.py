"""f and g: each pass of each function, and a block cut over the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.data_parallel.training import explained
from grading.references.tensor_parallel import cut_layers
from grading.references.tensor_parallel.cut_layers import part

EXERCISE = Exercise(
    title="f and g, the conjugate pair",
    core=True,
    minutes=15,
    order=1,
    defines=("f", "g"),
    own=("comm.copy_to_group", "comm.reduce_from_group"),
    hints=(
        "Two of the four passes only pass their tensor on. Say in words what each rank holds "
        "before and after each pass: the whole, or one summand of it. An all-reduce belongs where "
        "summands become the whole.",
        "An autograd function's backward has no `group` argument: put it on `ctx` in forward. "
        "Backward returns as many values as forward has arguments after `ctx`; a group has no "
        "gradient, so None.",
        "The two passes that sum are the same three lines: `total = tensor.clone()`, "
        "`all_reduce(total, group)`, `return total`. The other two return what they get.",
    ),
)

WORLDS: dict[str, dict[int, cut_layers.Parts]] = {
    "f": {2: (), 4: cut_layers.ALONE},
    "g": {1: (), 3: ()},
}
SKIPPED = "An all-reduce needs every rank of the group."
KEYS = ("tensors", "upstreams", "besides")


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    name: str,
    tensors: list[torch.Tensor],
    upstreams: list[torch.Tensor],
    besides: list[torch.Tensor],
    parts: cut_layers.Parts,
) -> dict[str, Any]:
    """Both passes for each tensor, with a gradient that is this rank's own.

    Two dims are transposed, so that tensor and gradient are not contiguous. Each tensor is used
    beside the function as well, as in a residual connection; that gradient belongs to the rank.
    """
    mine, events, found = cut_layers.group_of(group, parts), group.ledger.events, []
    # f's backward needs its group; g's runs may be on a part of the world, which cannot be cut.
    other = group.split([[i] for i in range(group.size)], "alone") if name == "f" else mine
    function = getattr(learner, name)
    for given, upstream, beside in zip(tensors, upstreams, besides, strict=True):
        leaf, coming, begin = given.clone().requires_grad_(), upstream.clone(), len(events)
        x = _turned(leaf.view_as(leaf))  # no leaf, and no copy
        y = function(x, mine)
        said = {"marks": [begin, len(events)], "y": _turned(cut_layers.copied(y))}
        said["library"] = cut_layers.library(y)
        cut_layers.backward(y, _turned(coming))
        said["marks"].append(len(events))
        said |= {"x": _turned(cut_layers.copied(x)), "coming": coming.clone()}
        said["grad"] = _taken(leaf)  # it may be `coming` itself, which the next backward adds to
        y = function(x, mine)
        function(given.clone(), other)  # another group, before y's backward
        cut_layers.backward(y, _turned(coming))
        torch.autograd.backward(x, _turned(beside))
        said["both"] = _taken(leaf)
        with torch.no_grad():
            found.append({**said, "still": cut_layers.copied(function(given.clone(), mine))})
    return {"cases": found}


def _turned(value: Any) -> Any:
    return value.t() if isinstance(value, torch.Tensor) and value.dim() == 2 else value


def _taken(leaf: torch.Tensor) -> Any:
    grad, leaf.grad = cut_layers.copied(leaf.grad), None
    return grad


def drive_block(
    learner: Any,
    group: Any,
    x: torch.Tensor,
    inner: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    slope: torch.Tensor,
    parts: cut_layers.Parts,
) -> dict[str, Any]:
    """A replicated matrix, then a block of two matrices of which this rank has slices."""
    mine = cut_layers.group_of(group, parts)
    inner, first, second = (w.clone().requires_grad_() for w in (inner, first, second))
    h = torch.tanh(x @ inner)
    y = h + learner.g(torch.tanh(learner.f(h, mine) @ first) @ second, mine)
    cut_layers.backward(y, slope)
    grads = {"inner": inner.grad, "first": first.grad, "second": second.grad}
    return {
        "y": cut_layers.copied(y),
        **{name: cut_layers.copied(grad) for name, grad in grads.items()},
    }


# --- what they must bring back -------------------------------------------------------------------
class Case(NamedTuple):
    """One tensor on one rank: what was given, what came back, and the sums over the group.

    Attributes:
        result: of the run.
        given: this rank's `tensors`, `upstreams` and `besides`: one tensor of each.
        total: the same, summed over the rank's group.
        world: the same, summed over all ranks.
        found: what the driver noted.
        words: the case in words.
        size: of the group.
        place: the rank's index in it.
        rank: whose it is.
    """

    result: Any
    given: dict[str, torch.Tensor]
    total: dict[str, torch.Tensor]
    world: dict[str, torch.Tensor]
    found: dict[str, Any]
    words: str
    size: int
    place: int
    rank: int


def _inputs(run: Run) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """All ranks' inputs by function and world; they are drawn in one order, so checks share runs.

    The tensors differ from rank to rank, so that every sum shows.
    """
    count, drawn = run.number(5, 9), {}
    shapes = [(count,), (3, 2, 2), (4, count), (), (0, 3)]
    narrow = (torch.float32, torch.bfloat16)
    for name, worlds in WORLDS.items():
        for world, parts in worlds.items():
            drawn[name, world] = [
                {"name": name, "parts": parts}
                | {
                    key: [*map(run.random, shapes), *(run.random(7, dtype) for dtype in narrow)]
                    for key in KEYS
                }
                for _ in range(world)
            ]
    return drawn


def _cases(run: Run, names: str = "fg") -> Iterator[tuple[str, Case]]:
    """The cases of all runs of these functions."""
    for (name, world), inputs in _inputs(run).items():
        if name in names:
            result = explained(run, drive, inputs, world, SKIPPED)
            for members in WORLDS[name][world] or (range(world),):
                yield from ((name, case) for case in _of_group(result, inputs, members))


def _of_group(result: Any, inputs: list[dict[str, Any]], members: Sequence[int]) -> Iterator[Case]:
    """The cases of one group."""
    for index, rank in enumerate(members):
        for number, found in enumerate(result.outputs[rank]["cases"]):
            given = {key: inputs[rank][key][number] for key in KEYS}
            every = {key: torch.stack([each[key][number] for each in inputs]) for key in KEYS}
            total = {key: rows[list(members)].sum(0) for key, rows in every.items()}
            world = {key: rows.sum(0) for key, rows in every.items()}
            shape = "×".join(map(str, given["tensors"].shape)) or "scalar"
            words = f"({shape}, {len(members)} ranks)"
            yield Case(result, given, total, world, found, words, len(members), index, rank)


def _compare(run: Run, case: Case, actual: Any, key: str, what: str, sums: bool) -> None:
    """One pass: the tensor handed on, or summed over the ranks; each is the other's mistake."""
    value, other = case.total[key], case.given[key]
    known = {"this is the rank's own value: the sum over the ranks is missing": other,
             "this is the mean: it must be the sum": value / case.size,
             "this is summed over all ranks of the world, not over the group's": case.world[key],
             "this is summed over the ranks twice": value * case.size}  # fmt: skip
    if not sums:
        value, other = other, value
        known = {
            "this is the sum over the ranks: this pass only passes on what it gets": other,
            "this is the mean over the ranks: this pass only passes on what it gets": other
            / case.size,
        }
    run.close(actual, value, f"{what} {case.words}", rank=case.rank, terms=case.size, likely=known)


def _check_passes(run: Run, name: str) -> None:
    for _, case in _cases(run, name):
        _compare(run, case, case.found["y"], "tensors", f"{name}'s output", name == "g")
        what = f"the gradient of {name}'s input"
        run.true(
            case.found["grad"] is not None,
            f"{what} {case.words} is None",
            rank=case.rank,
            cause="the output does not depend on the input in the autograd graph",
        )
        _compare(run, case, case.found["grad"], "upstreams", what, name == "f")


@check("f: the tensor itself in forward, the sum of the gradients in backward", points=3, code="E")
@diagnosis(
    "in forward every rank takes the whole tensor; in backward each has one summand of its gradient"
)
def check_f(run: Run) -> None:
    """E: tensors and gradients of many shapes, not contiguous ones too, in groups of 1–3 ranks."""
    _check_passes(run, "f")


@check("g: the sum in forward, the gradient itself in backward", points=3, code="E")
@diagnosis(
    "in forward the summands become the whole; the gradient of a sum is that of each summand"
)
@in_part
def check_g(run: Run) -> None:
    """E: as for f."""
    _check_passes(run, "g")


@check("the caller's tensors are not changed; both work without gradients", points=2, code="E")
@diagnosis(
    "`all_reduce` works in place: give it a copy. f's sum must hold only the gradient that came "
    "through f"
)
def check_untouched(run: Run) -> None:
    """E: the input, the gradient that comes in, other uses of the input; under no_grad."""
    for name, case in _cases(run):
        given, total = case.given, case.total
        wanted = {
            f"{name}'s input after it": ("x", given["tensors"]),
            f"the incoming gradient of {name}": ("coming", given["upstreams"]),
            f"the gradient of a tensor that is used by {name} and elsewhere":
                ("both", (total if name == "f" else given)["upstreams"] + given["besides"]),
            f"{name}'s output under no_grad":
                ("still", (total if name == "g" else given)["tensors"]),
        }  # fmt: skip
        known = {
            "x": {"it was summed in place: copy it first": total["tensors"]},
            "both": {
                "the sum over the ranks is missing; if only here, another group was used in "
                "between: keep the group on `ctx`": given["upstreams"] + given["besides"]
            },
            "coming": {
                "it was summed in place, and others may use it: copy it first": total["upstreams"]
            },
        }
        for what, (key, value) in wanted.items():
            run.close(
                case.found[key],
                value,
                f"{what} {case.words}",
                rank=case.rank,
                terms=case.size,
                likely=known.get(key),
            )


@check("a block with two matrices cut over the ranks equals one process", points=3, code="E")
@diagnosis("check f and g first; the block is h + g(tanh(f(h) A) B), with h = tanh(x W)")
def check_block(run: Run) -> None:
    """E: output and gradients, with a hidden size that does not divide."""
    width, wide = run.number(3, 6), (5, 7, 11)[run.number(0, 3)]
    x, slope = run.random((4, width)), run.random((4, width))
    weights = {"inner": run.random((width, width)), "first": run.random((width, wide)),
               "second": run.random((wide, width))}  # fmt: skip
    places = cut_layers.places(4, cut_layers.ALONE)
    inputs = [
        {"x": x, "slope": slope, "parts": cut_layers.ALONE, **_cut(weights, place)}
        for place in places
    ]
    result = explained(run, drive_block, inputs, 4, SKIPPED)
    whole = _block(x, slope, weights)
    for rank, (size, index) in enumerate(places):
        alone = _block(x, slope, _cut(weights, (size, index)))
        scaled = _block(x, slope, weights, size)
        run.close(
            result.outputs[rank],
            _cut(whole, (size, index)),
            f"of the block ({size} ranks), entry",
            rank=rank,
            terms=wide,
            likely={
                "this is the gradient through this rank's part alone: f's backward must sum": {
                    "inner": alone["inner"]
                },
                "the part through the block is N times too large: g's backward only passes on "
                "what it gets": _cut({name: scaled[name] for name in weights}, (size, index)),
            },
        )


def _cut(tensors: dict[str, torch.Tensor], place: tuple[int, int]) -> dict[str, torch.Tensor]:
    """What one rank has of the block's tensors, or of tensors like them."""
    dims = {"first": 1, "second": 0}
    return {
        name: part(tensor, dims[name], *place) if name in dims else tensor
        for name, tensor in tensors.items()
    }


def _block(
    x: torch.Tensor, slope: torch.Tensor, weights: dict[str, torch.Tensor], times: float = 1.0
) -> dict[str, torch.Tensor]:
    """Output and gradients of the block in one process; gradients through it `times` as large."""
    at = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    h = torch.tanh(x @ at["inner"])
    y = h + times * (torch.tanh(h @ at["first"]) @ at["second"])
    grads = torch.autograd.grad(y, list(at.values()), slope)
    return {"y": y.detach(), **dict(zip(at, grads, strict=True))}


@check("one all-reduce: f's in backward, g's in forward", points=2, code="B")
@diagnosis("each function sends 2(N-1)/N·S bytes in one pass, nothing in the other")
def check_bytes(run: Run) -> None:
    """B: from the ledger, for each pass."""
    for name, case in _cases(run):
        if case.size == 1:
            continue
        passes = cut_layers.stretches(case.result, case.rank, case.found["marks"])
        tensor = case.given["tensors"]
        once = cut_layers.one_all_reduce(
            tensor.numel(), case.size, case.place, tensor.element_size()
        )
        for way, sent in zip(("forward", "backward"), passes, strict=True):
            right = once if (name, way) in (("f", "backward"), ("g", "forward")) else []
            likely = {
                "the sum over the ranks is missing": [] if right else None,
                "the all-reduce belongs in the other pass": None if right else once,
                "one all-reduce is enough": once * 2,
            }
            what = f"what {name} sends in {way} {case.words}"
            run.equal(sent, right, what, rank=case.rank, likely=likely)


@check("your own autograd functions", points=1, code="X")
@diagnosis("this exercise is to write the pair yourself: use `all_reduce`")
def check_own(run: Run) -> None:
    """X: the autograd graph of the outputs holds no function of course_lib."""
    for name, case in _cases(run):
        what = f"the list of the library's functions in the graph of {name}'s output"
        run.equal(case.found["library"], [], what, rank=case.rank)
