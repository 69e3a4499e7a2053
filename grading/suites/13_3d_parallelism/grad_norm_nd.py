"""grad_norm_nd: one process's norm on eight meshes, one factor for all, three numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Mesh
from course_lib.grade.suite import Exercise, Run, because, check, diagnosis
from grading.references.mesh.gradient_norm import Layout, Whole, factor, scaled, wrong_factors

EXERCISE = Exercise(
    title="The norm of gradients on a mesh",
    core=True,
    minutes=25,
    order=30,
    defines=("Part", "grad_norm_nd", "clip_grad_norm_nd"),
    hints=(
        "Take a norm's weight on dp 2 × tp 2: four ranks have the same gradient. If each adds its "
        "square, and the squares are summed over all ranks, how often is it in the sum? What could "
        "each of the four add instead?",
        "The number of copies is the product of `mesh[axis].size` over `same_on`, times 2 for "
        "tied ends if pp is longer than 1. Each rank sums its squares, each divided by its "
        "number of copies. One all-reduce over `mesh.world` sums over the ranks, and the root "
        "comes last.",
        "Begin with `squares = torch.zeros((), dtype=torch.float64)`, so that a rank without "
        "gradients has something to give. Clipping calls `grad_norm_nd` for the norm and then "
        "`part.parameter.grad.mul_(min(1.0, max_norm / (float(norm) + 1e-6)))` for every part.",
    ),
)

LIMITS = (0.7, 3.0, 1e5)  # the last is longer than any norm here
SKIPPED = (
    "A rank without gradients, or without parts, makes the same calls, with zero: the others "
    "wait for it, and it needs the norm too."
)
HALF = "squares must be computed and summed in float64: 300 squared is beyond float16"


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, layouts: list[Any]) -> dict[str, Any]:
    """The norm for each layout, and what was sent for it; then gradients clipped to each limit."""
    found, meshes = [], dict[str, Mesh]()
    for sizes, pieces, limits in layouts:
        mesh = meshes.get(str(sizes)) or Mesh(group, sizes)
        meshes[str(sizes)] = mesh
        parts, stores = _parts(learner, pieces)
        place = group.ledger.place()
        said: dict[str, Any] = {"norm": _copied(learner.grad_norm_nd(parts, mesh))}
        events = group.ledger.events[place.events :]
        said["sent"] = [[event.op, event.payload] for event in events if event.parent < 0]
        said["touched"] = [_copied(store) for store in stores]
        said["clipped"] = [_clip(learner, pieces, mesh, limit) for limit in limits]
        found.append(said)
    return {"found": found}


def _clip(learner: Any, pieces: list[Any], mesh: Mesh, limit: float) -> dict[str, Any]:
    """What clipping returns, and the memory in which the gradients were."""
    parts, stores = _parts(learner, pieces)
    norm = learner.clip_grad_norm_nd(parts, mesh, limit)
    kept = [part.parameter.grad is store for part, store in zip(parts, stores, strict=True)]
    return {"norm": _copied(norm), "grads": stores, "kept": all(kept)}


def _parts(learner: Any, pieces: list[Any]) -> tuple[list[Any], list[Any]]:
    """The learner's parts of these pieces; and their gradients, some of them not contiguous."""
    parts, stores = [], []
    for grad, same_on, ends in pieces:
        parameter = nn.Parameter(torch.zeros(2) if grad is None else torch.zeros_like(grad))
        if grad is not None:
            bucket = torch.zeros(2 * grad.numel() + 1, dtype=grad.dtype)
            apart = grad.new_empty(grad.shape[::-1]).t()
            view = bucket[1::2].view(grad.shape) if grad.dim() == 1 else apart
            view.copy_(grad)
            parameter.grad = view
        parts.append(learner.Part(parameter, tuple(same_on), ends))
        stores.append(parameter.grad)
    return parts, stores


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


# --- what they must bring back -------------------------------------------------------------------
def _model(run: Run, stages: Sequence[int], zero: bool = False, tied: bool = False) -> list[Whole]:
    """A matrix cut by its columns, one cut by its rows and a whole norm on each of these stages."""
    width, hidden = run.number(4, 7), run.number(5, 9)
    found = []
    for stage in stages:
        found += [
            Whole(run.random((width, hidden)), stage, 1, zero),
            Whole(run.random((hidden, width)), stage, 0, zero),
            Whole(run.random(width) * 3, stage, None, zero),
        ]
    if tied:
        found.append(Whole(run.random((hidden, width)) * 2, -1, 0, zero))
    return found


def _driven(
    run: Run, layouts: Sequence[Layout], world: int, limits: Sequence[float] = ()
) -> Iterator[tuple[Layout, int, dict[str, Any]]]:
    """Runs them; yields each layout, rank, and what came back."""
    inputs = [
        {
            "layouts": [
                [layout.sizes, [list(piece) for piece in layout.pieces[rank]], list(limits)]
                for layout in layouts
            ]
        }
        for rank in range(world)
    ]
    with because(deadlock=SKIPPED):
        result = run(drive, inputs, world=world)
    for number, layout in enumerate(layouts):
        for rank in range(world):
            yield layout, rank, result.outputs[rank]["found"][number]


def _check_norm(run: Run, layout: Layout, rank: int, norm: Any, half: bool = False) -> None:
    """One rank's norm against one process's; with `half` every small error comes from the dtype."""
    what, right = f"the norm on {layout.grid}", torch.tensor(layout.norm, dtype=torch.float64)
    if isinstance(norm, torch.Tensor) and norm.shape == right.shape and norm.dtype == right.dtype:
        error = float((norm - right).abs() / right)
        if error <= 1e-9:
            return
        if error < 1e-6 or (half and not 1e-2 <= error < math.inf):  # infinity and NaN as well
            run.fail(
                f"{what} has the wrong value",
                rank=rank,
                expected=f"{float(right):.12g}",
                measured=f"{float(norm):.12g}",
                cause=HALF,
            )
    known = {
        why: torch.tensor(value, dtype=torch.float64)
        for why, value in layout.wrong_norms(rank).items()
    }
    run.close(norm, right, what, rank=rank, likely=known)


def _layouts(run: Run) -> dict[str, list[Layout]]:
    """What four ranks are asked for, by check: all in one run."""

    def on(stages: Sequence[int], zero: bool = False, tied: bool = False, **sizes: int) -> Layout:
        return Layout(sizes, _model(run, stages, zero, tied))

    return {
        "copies": [on([0], dp=1, tp=4), on([0], dp=4), on([0], dp=2, tp=2)],
        "stages": [on(range(4), pp=4), on([0, 1], pp=2, tp=2), on([0, 1], pp=2, dp=2)],
        "shards": [on([0], True, dp=4), on([0], True, dp=2, tp=2), on([0, 1], True, pp=2, dp=2)],
        "ends": [on([0, 1], tied=True, pp=2, tp=2), on(range(4), tied=True, pp=4),
                 on([0], tied=True, pp=1, dp=2, tp=2), on([0, 1], True, True, pp=2, dp=2)],
    }  # fmt: skip


def _check_layouts(run: Run, name: str) -> None:
    """The norms of one check's layouts."""
    every = _layouts(run)
    for layout, rank, found in _driven(run, [one for some in every.values() for one in some], 4):
        if any(layout is one for one in every[name]):
            _check_norm(run, layout, rank, found["norm"])


@check("copies on tp and on dp count once", points=3, code="E")
@diagnosis("with c copies each adds 1/c of its square, or one adds it all")
def check_copies(run: Run) -> None:
    """E: cut matrices and whole norms on tp 4, dp 4 and 2 × 2."""
    _check_layouts(run, "copies")


@check("all stages count", points=3, code="E")
@diagnosis("sum over pp as well: other stages have other parameters")
def check_stages(run: Run) -> None:
    """E: pp 4, and pp 2 with tp or dp."""
    _check_layouts(run, "stages")


@check("ZeRO's shards are not copies", points=2, code="E")
@diagnosis("`same_on` says along which axes there are copies; sum over dp as well")
def check_shards(run: Run) -> None:
    """E: cut over dp; a norm's shard is still on all ranks of tp."""
    _check_layouts(run, "shards")


@check("tied ends count once", points=2, code="E")
@diagnosis("both ends of pp have them: two ranks, or one if pp is 1")
def check_ends(run: Run) -> None:
    """E: on pp 2, 4 and 1, and with ZeRO."""
    _check_layouts(run, "ends")


@check("gradients in half precision, squares in float64", points=2, code="E")
@diagnosis("cast before you square")
def check_half(run: Run) -> None:
    """E: float16 of 300 and more, bfloat16, float32 on one model."""
    width = run.number(4, 7)
    model = [
        Whole((run.random((width, 6)) * 50 + 400).half(), 0, 1),
        Whole(run.random((width, 6)).bfloat16(), 1, 0),
        Whole(run.random(width, torch.float32), 0),
        Whole(run.random(width, torch.float32), 1),
    ]
    for layout, rank, found in _driven(run, [Layout({"pp": 2, "tp": 2}, model)], 4, LIMITS[:1]):
        _check_norm(run, layout, rank, found["norm"], half=True)
        _check_clipped(run, layout, rank, found["clipped"][0], LIMITS[0])


@check("ranks without gradients, or without parts", points=3, code="H")
@diagnosis("take part with zero: all ranks make the same calls, whatever they have")
def check_empty(run: Run) -> None:
    """H: pp 3 whose middle stage has nothing, or frozen parts only; and tp 3."""
    shape = (run.number(4, 7), 5)
    ends = [Whole(run.random(shape), 0, 1), Whole(run.random(5), 2)]
    frozen = [Whole(None, 1, 1), Whole(None, 2), Whole(run.random(shape), -1, 0)]
    layouts = [
        Layout({"pp": 3}, ends),
        Layout({"pp": 3}, ends + frozen),
        Layout({"tp": 3}, [Whole(run.random(shape), 0, 1), Whole(run.random(5))]),
    ]
    for layout, rank, found in _driven(run, layouts, 3, LIMITS[:1]):
        _check_norm(run, layout, rank, found["norm"])
        _check_clipped(run, layout, rank, found["clipped"][0], LIMITS[0])


# --- clipping ------------------------------------------------------------------------------------
def _all_three(run: Run) -> Iterator[tuple[Layout, int, dict[str, Any]]]:
    """A model with everything on 2 × 2 × 2."""
    model = _model(run, [0, 1], tied=True) + _model(run, [0, 1], zero=True)
    model += [Whole(None, 0, 1), Whole(run.random(()) * 3 + 5, 1)]
    yield from _driven(run, [Layout({"pp": 2, "dp": 2, "tp": 2}, model)], 8, LIMITS)


def _check_clipped(run: Run, layout: Layout, rank: int, said: dict[str, Any], limit: float) -> None:
    """Gradients after clipping to a limit."""
    what = f"on {layout.grid}, clipped to {limit:g}"
    run.true(
        said["kept"],
        f"a gradient {what} is another tensor",
        rank=rank,
        cause="gradients are "
        "views of a bucket: change them in place, with mul_; and None stays None",
    )
    known = wrong_factors(layout, rank, limit)
    for number, piece in enumerate(layout.pieces[rank]):
        if piece.grad is None:
            continue
        likely = {why: scaled(piece, by) for why, by in known.items()}
        run.close(
            said["grads"][number],
            scaled(piece, factor(layout.norm, limit)),
            f"gradient {number} {what}",
            rank=rank,
            likely=likely,
        )


@check("pp 2 × dp 2 × tp 2: one factor clips all gradients", points=3, code="E")
@diagnosis("min(1, max_norm / (norm + 1e-6)), with the norm of the whole model")
def check_clipped(run: Run) -> None:
    """E: the gradients that a step would use, and the norm that was there before."""
    for layout, rank, found in _all_three(run):
        _check_norm(run, layout, rank, found["norm"])
        for said, limit in zip(found["clipped"], LIMITS, strict=True):
            if limit < layout.norm:
                _check_clipped(run, layout, rank, said, limit)
            _check_norm(run, layout, rank, said["norm"])


@check("gradients below the limit do not change", points=1, code="E")
@diagnosis("the factor is at most 1; and grad_norm_nd changes no gradient")
def check_short(run: Run) -> None:
    """E: below the limit, and after the norm alone."""
    for layout, rank, found in _all_three(run):
        for piece, store in zip(layout.pieces[rank], found["touched"], strict=True):
            run.equal(store, piece.grad, "a gradient after grad_norm_nd", rank=rank)
        _check_clipped(run, layout, rank, found["clipped"][-1], LIMITS[-1])


@check("at most three numbers are sent", points=1, code="B")
@diagnosis("add up on the rank first: one number of 8 bytes")
def check_sent(run: Run) -> None:
    """B: calls and payloads of one norm, from the ledger."""
    for layout, rank, found in _all_three(run):
        sent = found["sent"]
        calls = ", ".join(f"{op} of {size} bytes" for op, size in sent[:4])
        run.true(
            max((size for _, size in sent), default=0) <= 8,
            "more than a number was sent",
            rank=rank,
            expected="all_reduce of 8 bytes",
            measured=calls,
            cause="gradients need not be sent: sum their squares",
        )
        cause = "one for each part: add up on the rank first"
        what = f"the number of calls for {len(layout.pieces[rank])} parts"
        run.at_most(len(sent), 3, what, rank=rank, cause=cause)
