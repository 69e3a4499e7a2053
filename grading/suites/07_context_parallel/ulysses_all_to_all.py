"""ulysses_all_to_all: one process's attention and gradients, eight all-to-alls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from grading.references.attention.per_head import Tensors, attend

EXERCISE = Exercise(
    title="Attention by swapping the cut of the sequence for one of the heads",
    core=False,
    minutes=30,
    order=5,
    defines=("ulysses_attention",),
    hints=(
        "Write one function that changes the cut, and use it four times. On the way out it cuts "
        "the heads (dim 2) into N parts and joins the received parts along the sequence (dim 1); "
        "on the way back it does the reverse.",
        "`exchange_in_group` works on dim 0, so put the parts there: `torch.cat(x.chunk(N, cut))` "
        "is [N·B, ...] with part j for rank j, B rows each. The result has part i from rank i: "
        "`torch.cat(rows.chunk(N), join)`.",
        "Between the swaps the tensors are [B, T, H/N, C], and attention wants [B, H/N, T, C]: "
        "transpose dims 1 and 2 before and after `scaled_dot_product_attention`, with "
        "`is_causal=True`.",
    ),
)

WORLDS = (1, 3, 4)
INPUTS = ("q", "k", "v")


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slopes: torch.Tensor,
) -> dict[str, Any]:
    """The output, the gradients, and the bytes sent in each direction."""
    # Not contiguous: as the rows of a fused projection are.
    given = [t.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in (q, k, v)]
    sent = [group.ledger.sent()]
    y = learner.ulysses_attention(*given, group)
    sent.append(group.ledger.sent())
    if y.requires_grad and y.shape == slopes.shape:
        (y * slopes).sum().backward()
    sent.append(group.ledger.sent())
    grads = dict(zip(INPUTS, [t.grad for t in given], strict=True))
    return {"y": y.detach(), "grads": grads, "sent": [sent[1] - sent[0], sent[2] - sent[1]]}


# --- what they must bring back -------------------------------------------------------------------
def _inputs(run: Run, world: int) -> list[dict[str, Any]]:
    """Hidden sizes, per rank: two or more heads and tokens each, so that their order shows."""
    heads = world * run.number(2, 4)
    shape = (run.number(2, 4), run.number(2, 6), heads, 2 * run.number(1, 4) + 1)
    return [{name: run.random(shape) for name in (*INPUTS, "slopes")} for _ in range(world)]


def _whole(inputs: list[dict[str, Any]]) -> Tensors:
    """q, k, v and the slopes of all ranks, along the sequence."""
    return {name: torch.cat([given[name] for given in inputs], 1) for name in inputs[0]}


def one_process(tensors: Tensors, *, causal: bool = True, scale: float = 0.0) -> Tensors:
    """Output and gradients of attention over [B, T, H, C]."""
    given = [tensors[name].clone().requires_grad_() for name in INPUTS]
    q, k, v = (t.transpose(1, 2) for t in given)
    y = attend(q, k, v, causal=causal, scale=scale).transpose(1, 2)
    grads = torch.autograd.grad((y * tensors["slopes"]).sum(), given)
    return {"y": y.detach(), **dict(zip(INPUTS, grads, strict=True))}


def _found(run: Run) -> Iterator[tuple[list[dict[str, Any]], int, dict[str, Any]]]:
    """(inputs of all ranks, rank, what it brought back), for all worlds."""
    for world in WORLDS:
        inputs = _inputs(run, world)
        result = run(drive, inputs, world=world)
        for rank, found in enumerate(run.each(result.outputs)):
            yield inputs, rank, found


@check("the output on 1, 3 and 4 ranks: this rank's tokens, all heads in order", points=3, code="E")
@diagnosis("rank i sends its part of the sequence; on the way back, its part of the heads")
@in_part
def check_outputs(run: Run) -> None:
    """E: causal over the whole sequence."""
    for inputs, rank, found in _found(run):
        world, whole = len(inputs), _whole(inputs)
        y = one_process(whole)["y"].chunk(world, 1)[rank]
        batch, length, heads, width = y.shape
        turned = y.reshape(batch, length, world, heads // world, width).transpose(2, 3)
        what = f"the output ({world} ranks)"
        likely = {
            "this is the whole sequence of some heads: a last all-to-all must return it": [
                batch,
                length * world,
                heads // world,
                width,
            ]
        }
        name = f"the shape of {what}"
        run.equal(list(found["y"].shape), list(y.shape), name, likely=likely)
        run.close(found["y"], y, what, likely={
            "heads in the wrong order: those of rank 0 come first, then those of rank 1":
                turned.reshape(y.shape),
            "each rank's tokens attend only to themselves: q, k and v must be exchanged":
                one_process(inputs[rank])["y"],
            "the causal mask is missing: a token sees later ones":
                one_process(whole, causal=False)["y"].chunk(world, 1)[rank],
            "tokens in the wrong order: the ranks' parts follow one another in the sequence":
                _shuffled(inputs, rank),
        })  # fmt: skip


def _shuffled(inputs: list[dict[str, Any]], rank: int) -> torch.Tensor:
    """What comes out if the ranks' tokens take turns in the sequence, there and back."""
    turns = {
        name: torch.stack([given[name] for given in inputs], 2).flatten(1, 2) for name in inputs[0]
    }
    return one_process(turns)["y"][:, rank :: len(inputs)]


@check("gradients of q, k and v", points=3, code="E")
@diagnosis("`exchange_in_group` sends the gradients back; a plain all_to_all stops them")
def check_gradients(run: Run) -> None:
    """E: of the sum of all ranks' losses."""
    for inputs, rank, found in _found(run):
        world = len(inputs)
        wanted = one_process(_whole(inputs))
        alone = one_process(inputs[rank])
        for name in INPUTS:
            grad = wanted[name].chunk(world, 1)[rank]
            what = f"{name}.grad ({world} ranks)"
            likely = {
                "N times too large": grad * world,
                "of this rank's tokens alone: those of other ranks attend to them, too": alone[
                    name
                ],
            }
            run.close(found["grads"][name], grad, what, likely=likely)


@check(
    "only all-to-alls, (N-1)/N of a tensor each: four forward, four backward", points=3, code="B"
)
@diagnosis("exchange q, k and v, then the result; backward does the same with their gradients")
def check_bytes(run: Run) -> None:
    """B and X: exact bytes by direction, and no other operation in the ledger."""
    for world in WORLDS:
        inputs = _inputs(run, world)
        result = run(drive, inputs, world=world)
        size = inputs[0]["q"].nbytes
        for rank, ledger in enumerate(run.each(result.ledgers)):
            others = sorted({event.op for event in ledger.calls()} - {"all_to_all"})
            likely: dict[str, Any] = {
                "every rank gets all of k and v: an all-to-all brings only the heads that it "
                "needs": ["all_gather"],
                "every rank gets all of k and v, and their gradients are summed": [
                    "all_gather",
                    "reduce_scatter",
                ],
            }
            run.equal(others, [], "the list of operations besides all_to_all", likely=likely)
            one = wire_bytes("all_to_all", size, world, rank, 8)[0]
            for way, sent in zip(
                ("forward", "backward"), result.outputs[rank]["sent"], strict=True
            ):
                likely = {
                    "one all-to-all is missing": 3 * one,
                    "the whole tensor is sent to every rank: send each its part only": 4
                    * one
                    * world,
                    "nothing is sent: gradients do not flow": 0,
                }
                what = f"the number of bytes sent in {way} ({world} ranks)"
                run.equal(sent, 4 * one, what, likely=likely)
