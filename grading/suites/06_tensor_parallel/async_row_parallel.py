"""async_row_parallel: the result and its gradients, the order of products and messages, bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import wire_bytes
from grading.references.data_parallel.training import all_only_bf16

EXERCISE = Exercise(
    title="A product in pieces that hides its messages",
    core=False,
    minutes=25,
    order=8,
    defines=("async_row_parallel",),
    hints=(
        "What does the second product need from the first all-reduce? And when is that "
        "all-reduce's result needed? The message may travel until then.",
        "`all_reduce(part, group, async_op=True)` returns a Work at once. Keep it, and the part, "
        "in lists; wait in a second loop, after the last product.",
        "Backward is that of g: the gradient of a sum is the gradient of each summand. So the "
        "gradient of x is `grad @ weight`, and that of the weight is `grad.mT @ x`; nothing is "
        "sent.",
    ),
)

# Ranks, pieces and the dtype of all tensors.
CASES = ((2, 1, torch.float64), (2, 4, torch.float64), (3, 1, torch.float64),
         (3, 4, torch.float64), (2, 4, torch.bfloat16), (1, 4, torch.float64))  # fmt: skip


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    slope: torch.Tensor,
    pieces: int,
) -> dict[str, Any]:
    """One forward and backward; at each product, its tokens and how the calls stand."""
    events, products = group.ledger.events, []
    begin = len(events)

    def multiply(piece: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        calls = [event for event in events[begin:] if event.parent < 0]
        waited = sum(event.end is not None for event in calls)
        products.append([piece.shape[0], len(calls), waited])
        return linear(piece, matrix)

    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight)]
    coming = slope.clone()
    out = learner.async_row_parallel(*leaves, pieces, multiply, group)
    calls = [event for event in events[begin:] if event.parent < 0]
    never = sum(event.end is None for event in calls)
    found = {"out": out.detach().clone(), "count": len(calls), "never": never}
    middle = len(events)
    out.backward(coming)
    return {
        **found,
        "products": products,
        "x": leaves[0].grad,
        "weight": leaves[1].grad,
        "given": [*(leaf.detach() for leaf in leaves), coming],
        "back": len(events) - middle,
    }


# --- what they must bring back -------------------------------------------------------------------
class Case(NamedTuple):
    """One run.

    Attributes:
        result: of the run.
        inputs: of every rank.
        total: the sum of all ranks' products.
        pieces: how many.
        words: the case in words.
    """

    result: Any
    inputs: list[dict[str, Any]]
    total: torch.Tensor
    pieces: int
    words: str


def _cases(run: Run) -> Iterator[Case]:
    """Tokens that the pieces do not divide; small whole numbers, whose sums bf16 has exactly."""
    for world, pieces, dtype in CASES:
        tokens, wide, out = 4 * run.number(2, 5) + 2, run.number(3, 6), run.number(2, 7)

        def drawn(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            narrow = dtype == torch.bfloat16
            return run.integers(-2, 3, shape).to(dtype) if narrow else run.random(shape)

        slope = drawn(tokens, out)
        inputs: list[dict[str, Any]] = [
            {"x": drawn(tokens, wide), "weight": drawn(out, wide), "slope": slope, "pieces": pieces}
            for _ in range(world)
        ]
        result = run(drive, inputs, world=world)
        total = torch.stack([each["x"] @ each["weight"].T for each in inputs]).sum(0)
        kind = str(dtype).removeprefix("torch.")
        words = f"({world} ranks, {tokens} tokens in {pieces} pieces, {kind})"
        yield Case(result, inputs, total, pieces, words)


@check("the result is the sum of all ranks' products", points=3, code="E")
@diagnosis("each rank has one summand; put the pieces together after they have been summed")
def check_result(run: Run) -> None:
    """E: on 1 to 3 ranks, in 1 and 4 pieces."""
    for case in _cases(run):
        for rank, found in enumerate(run.each(case.result.outputs)):
            own = case.inputs[rank]["x"] @ case.inputs[rank]["weight"].T
            size = len(case.inputs)
            likely = {
                "this is the rank's own summand: the sum over the ranks is missing": own,
                "this is the mean over the ranks: it is a sum": case.total / size,
            }
            what = f"the result {case.words}"
            run.close(found["out"], case.total, what, terms=6 * size, likely=likely)


@check("gradients of this rank's inputs and weight; nothing is sent for them", points=3, code="E")
@diagnosis("the gradient of a sum is the gradient of each summand, on every rank")
def check_gradients(run: Run) -> None:
    """E: beside one process; the tensors that were given stay as they are."""
    for case in _cases(run):
        for found, given in run.each(zip(case.result.outputs, case.inputs, strict=True)):
            slope, size = given["slope"], len(case.inputs)
            exact = {"x": slope @ given["weight"], "weight": slope.T @ given["x"]}
            for name, value in exact.items():
                likely = {
                    "N times too large: every rank has the whole gradient, with no sum": size
                    * value
                }
                what = f"the gradient of {name} {case.words}"
                run.close(found[name], value, what, terms=24, likely=likely)
            kept = [given["x"], given["weight"], slope]
            for name, after, before in zip(
                ("x", "weight", "the gradient"), found["given"], kept, strict=True
            ):
                run.equal(after, before, f"{name} after the call {case.words}")
            what = f"the number of calls in backward {case.words}"
            run.equal(found["back"], 0, what, likely={"g's backward passes the gradient on": 1})


@check(
    "each all-reduce begins before the next product, and is waited for after the last",
    points=4,
    code="O",
)
@diagnosis("compute a product, start its all-reduce, compute the next; wait in a second loop")
def check_order(run: Run) -> None:
    """O: how many calls had begun, and how many were waited for, when each product began."""
    for case in _cases(run):
        for rank, found in enumerate(case.result.outputs):
            _compare_order(run, case, rank, found)


def _compare_order(run: Run, case: Case, rank: int, found: dict[str, Any]) -> None:
    x, pieces = case.inputs[rank]["x"], case.pieces
    tokens, begun, waited = ([row[column] for row in found["products"]] for column in range(3))
    sizes = [len(part) for part in x.tensor_split(pieces)]
    known = {
        "the product is not cut": [len(x)],
        "torch.chunk cuts differently": [len(part) for part in x.chunk(pieces)],
    }
    run.equal(tokens, sizes, f"the tokens of the products {case.words}", rank=rank, likely=known)
    what = f"each product begins {case.words}"
    counted, none = list(range(pieces)), [0] * pieces
    late = "all begin after the last product, with nothing left to hide behind"
    blocked = "each is waited for before the next product: nothing overlaps"
    likely = {late: none}
    run.equal(begun, counted, f"the all-reduces begun when {what}", rank=rank, likely=likely)
    likely = {blocked: counted}
    run.equal(waited, none, f"the all-reduces waited for when {what}", rank=rank, likely=likely)
    run.equal(found["never"], 0, f"the all-reduces never waited for {case.words}", rank=rank)


@check("as many all-reduces as pieces, with the bytes of one", points=2, code="B")
@diagnosis("2(N-1)/N·S in all: each piece of the result is sent once")
def check_bytes(run: Run) -> None:
    """B: from the ledger."""
    for case in _cases(run):
        world, item = len(case.inputs), case.total.itemsize
        if item == torch.bfloat16.itemsize:
            all_only_bf16(run, case.result.ledgers)
        sizes = [part.nbytes for part in case.total.tensor_split(case.pieces)]
        right = [
            sum(wire_bytes("all_reduce", size, world, rank, item)[0] for size in sizes)
            for rank in range(world)
        ]
        likely = {
            "the whole result is sent for each piece": [
                case.pieces * wire_bytes("all_reduce", sum(sizes), world, r, item)[0]
                for r in range(world)
            ]
        }
        run.bytes(case.result, right, what=f"bytes sent {case.words}", likely=likely)
        for found in run.each(case.result.outputs):
            run.equal(found["count"], case.pieces, f"the number of calls {case.words}")
