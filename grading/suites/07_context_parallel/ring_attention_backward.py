"""ring_attention_backward: autograd's gradients, though no rank sees the whole sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.attention import causal
from grading.references.attention.causal import EXTREME, USUAL, Case
from grading.references.attention.message_buffers import BufferWatch, only_neighbours, peak_stays

EXERCISE = Exercise(
    title="Ring attention, backward",
    core=True,
    minutes=35,
    order=3,
    library=(
        "comm.Group",
        "comm.Work",
        "comm.send",
        "comm.recv",
        "comm.isend",
        "comm.irecv",
        "comm.exchange",
    ),
    hints=(
        "On one rank there is one block and no hop: write the six lines of the task for it, with "
        "its mask, and grade. `delta = (grad_out * out).sum(-1, keepdim=True)` is the same for "
        "all blocks, so compute it before the loop.",
        "The loop over hops is that of the forward pass: in hop h, rank i holds the block of rank "
        "i-h. Two things travel now: `block`, the k and v, and `grads`, the dk and dv of the same "
        "block. Add to `grads` first, then pass it on.",
        "After the last of the N computations, k and v are no longer needed, and `grads` makes "
        "one more hop: rank i has those of rank i+1, which is the next one. A function that sends "
        "a tensor to `group.next`, receives one like it from `group.previous` and returns that "
        "serves both.",
    ),
)

NAMES = ("dq", "dk", "dv")
GIVEN = ("grad_out", "q", "k", "v", "out", "lse")
WORLDS = (1, 3, 4, 2)  # on two, different slips look the same
BF16 = 5  # place of the case in bfloat16, whose dtypes are looked at
LARGE = {"t": 128, "width": 256}  # k is 256 KiB: a send cannot hide in a buffer


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Case], paired: Case) -> dict[str, Any]:
    """The answer to each case; and to `paired`, if given, in groups of every second rank."""
    torch.use_deterministic_algorithms(True)  # what is never written is NaN
    with BufferWatch(group.ledger) as watch:
        answers = [_answer(learner, group, case) for case in cases]
        if paired:
            every_second = [range(first, group.size, 2) for first in range(2)]
            answers.append(_answer(learner, group.split(every_second, "cp"), paired))
    return {"answers": answers, "clashes": watch.clashes}


def _answer(learner: Any, group: Any, case: Case) -> dict[str, Any]:
    given = {name: causal.as_in_a_model(case[name]) for name in GIVEN}
    answer = learner.ring_attention_backward(*given.values(), group)
    changed = [name for name in case if not torch.equal(given[name], case[name])]
    return {"result": causal.named(answer, NAMES), "changed": changed}


def drive_large(learner: Any, group: Any, case: Case, limit: int) -> dict[str, Any]:
    """The answer with large blocks, and the most memory there ever was."""
    with BufferWatch(group.ledger, limit) as watch:
        answer = learner.ring_attention_backward(*(case[name] for name in GIVEN), group)
        return {"result": causal.named(answer, NAMES), "peak": watch.peak}


# --- what they must bring back -------------------------------------------------------------------
class Reference(causal.Whole):
    """One case in one process, and what known slips make of it.

    Args:
        case: q, k, v and grad_out of the whole sequence.
        world: how many ranks there are.
    """

    def __init__(self, case: Case, world: int) -> None:
        super().__init__(case, world)
        self.grad_out = case["grad_out"].double()
        self.right = dict(
            zip(
                NAMES,
                causal.gradients(self.grad_out, self.q, self.k, self.v, self.mask),
                strict=True,
            )
        )

    def given(self, rank: int) -> Case:
        """What one rank gets."""
        names = {name: getattr(self, name) for name in GIVEN}
        return {name: self.part(tensor, rank).clone() for name, tensor in names.items()}

    def likely(self, name: str, rank: int) -> dict[str, torch.Tensor]:
        """Known wrong answers."""
        known = {} if name == "dq" else self.likely_travel(name)
        masks = causal.wrong_masks(self.world, self.length // self.world)
        known |= {why: self.slip(mask)[name] for why, mask in masks.items()}
        known |= {
            "δ is missing: dZ = P·(dP - δ), δ = Σ grad_out·out": self.slip(self.mask, delta=0.0)[
                name
            ],
            "1/√C is missing in this gradient": self.right[name] * self.q.shape[-1] ** 0.5,
            "1/√C twice": self.right[name] * self.q.shape[-1] ** -0.5,
            "the probabilities add up to 1 in each block: take exp(scores - lse), with the lse of "
            "the whole row": self.slip(self.mask, renormalised=True)[name],
            "P and dZ were swapped: dv needs P": self.slip(self.mask, swapped=True)[name],
        }
        return {why: self.part(value, rank) for why, value in known.items()}

    def likely_travel(self, name: str) -> dict[str, torch.Tensor]:
        """A dk or dv that is somewhere else, or whose parts are."""
        t = self.length // self.world
        rows = [
            self.mask & (torch.arange(self.length)[:, None] // t == rank)
            for rank in range(self.world)
        ]
        own = [self.slip(row)[name].chunk(self.world, 2) for row in rows]
        return {
            "these belong to the block of the next rank: one more hop brings them to their own "
            "rank":
                self.right[name].roll(-t, 2),
            "these belong to the block of the previous rank": self.right[name].roll(t, 2),
            "these come from this rank's queries alone: the other ranks' parts never returned":
                torch.cat([parts[rank] for rank, parts in enumerate(own)], 2),
            "the parts for all blocks are added up on this rank: they belong to the blocks, and "
            "must travel":
                torch.cat([torch.stack(parts).sum(0) for parts in own], 2),
        }  # fmt: skip

    def slip(
        self,
        mask: torch.Tensor,
        *,
        delta: float = 1.0,
        renormalised: bool = False,
        swapped: bool = False,
    ) -> dict[str, torch.Tensor]:
        """The formulas, with something wrong in them."""
        scale = self.q.shape[-1] ** -0.5
        p = (self.q @ self.k.mT * scale - self.lse[..., None]).exp().masked_fill(~mask, 0)
        if renormalised:
            blocks = p.unflatten(-1, (self.world, -1))
            p = (blocks / blocks.sum(-1, keepdim=True).clamp(min=1e-300)).flatten(-2)
        dp = self.grad_out @ self.v.mT
        ds = p * (dp - delta * (self.grad_out * self.out).sum(-1, keepdim=True)) * scale
        return {"dq": ds @ self.k, "dk": ds.mT @ self.q,
                "dv": (ds if swapped else p).mT @ self.grad_out}  # fmt: skip


# --- cases ---------------------------------------------------------------------------------------
def _with_gradient(run: Run, case: Case) -> Case:
    return {**case, "grad_out": run.random(case["q"].shape, case["q"].dtype)}


def _runs(run: Run, worlds: Sequence[int] = WORLDS) -> Iterator[tuple[int, Any, list[Reference]]]:
    """All cases on so many ranks; on 4, one more for the pairs of ranks 0 and 2, 1 and 3."""
    drawn = {
        world: [
            _with_gradient(run, case)
            for case in (
                *causal.draw_cases(run, world),
                causal.draw(run, (1, 2, 2 * world, 4), torch.bfloat16),
            )
        ]
        for world in WORLDS
    }
    shape = (1, 2, 2 * run.number(2, 5), 3)
    pair = Reference(_with_gradient(run, causal.draw(run, shape)), 2)
    for world in worlds:
        cases = [Reference(case, world) for case in drawn[world]]
        inputs = [
            {
                "cases": [case.given(rank) for case in cases],
                "paired": pair.given(rank // 2) if world == 4 else {},
            }
            for rank in range(world)
        ]
        yield world, run(drive, inputs, world=world), [*cases, pair]


def _compare(run: Run, names: Sequence[str], places: Sequence[int]) -> None:
    """Some results of some cases, on 1–4 ranks."""
    for _, result, cases in _runs(run):
        for place in places:
            _close(
                run,
                names,
                cases[place],
                [
                    (rank, rank, output["answers"][place])
                    for rank, output in enumerate(result.outputs)
                ],
            )


def _close(
    run: Run, names: Sequence[str], ref: Reference, found: list[tuple[int, int, Any]]
) -> None:
    """Each rank's results, which come with its index in the group, against one process's."""
    for rank, index, answer in reversed(found):  # later ranks tell more slips apart
        values = causal.results(run, answer["result"], NAMES, rank)
        for name in names:
            causal.close(
                run,
                values[name],
                ref.part(ref.right[name], index),
                f"{name} ({ref.title})",
                rank=rank,
                terms=16 * ref.length,
                likely=partial(ref.likely, name, index),
            )


def _large(run: Run, world: int, limit: int = 0) -> tuple[Any, Reference]:
    case = causal.draw(run, (1, 1, LARGE["t"] * world, LARGE["width"]))
    ref = Reference(_with_gradient(run, case), world)
    inputs = [{"case": ref.given(rank), "limit": limit} for rank in range(world)]
    return run(drive_large, inputs, world=world), ref


# --- checks --------------------------------------------------------------------------------------
@check("dq is that of full causal attention, on 1–4 ranks", points=3, code="E")
@diagnosis("dq = Σ over visible blocks of dZ·k/√C, with dZ = P·(dP - δ)")
def check_queries(run: Run) -> None:
    """E: hidden sizes, one position a rank, float32 and bfloat16, memory in another order."""
    _compare(run, ["dq"], [*USUAL, BF16])


@check("dk and dv too: with every rank's part, on their own rank", points=4, code="E")
@diagnosis("follow the dk of one block: who adds to it, and where is it after the last hop?")
def check_keys_and_values(run: Run) -> None:
    """E: the same runs."""
    _compare(run, ["dk", "dv"], [*USUAL, BF16])


@check("scores of several thousand, and of minus several thousand", points=1, code="E")
@diagnosis("P = exp(scores - lse): subtract before you take the exponential")
def check_extremes(run: Run) -> None:
    """E: exp(1000) is infinite, and exp(-1000) is 0."""
    _compare(run, NAMES, EXTREME)


@check("the same in a group of ranks 0 and 2, or 1 and 3", points=1, code="E")
@diagnosis("peers and blocks are counted by index in the group, not by rank")
def check_pairs(run: Run) -> None:
    """E: a rank is not its index."""
    ((_, result, cases),) = _runs(run, [4])
    _close(
        run,
        NAMES,
        cases[-1],
        [(rank, rank // 2, output["answers"][-1]) for rank, output in enumerate(result.outputs)],
    )


@check("(N-1)·(K+V) + N·(dK+dV) bytes sent by each rank", points=2, code="B")
@diagnosis("N-1 hops with all four tensors, and one in which dk and dv return")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger; N-1 hops of dk and dv are possible, and as good."""
    for world, result, cases in _runs(run):
        once = sum(2 * case.k.numel() * case.dtype.itemsize for case in cases[:-1]) // world
        least, usual = (world - 1) * 2 * once, (2 * world - 1) * once if world > 1 else 0
        if result.timeline.sent(None, "world") == [least] * world:
            continue
        likely = {
            "k and v return to their rank as well, where nobody needs them": 2 * world * once,
            "dk and dv do not travel": (world - 1) * once,
            "all probabilities travel, or k and v twice": (3 * world - 2) * once,
            "one rank sends messages to itself": once,
            "nothing is sent: keys and values have queries on later ranks, too": 0,
        }
        run.bytes(result, usual, axis="world", likely=likely)


@check(
    "only messages, all to one neighbour; no memory is in two messages at once", points=2, code="X"
)
@diagnosis("each hop: `irecv` from one neighbour, `isend` to the other, and `wait` for both")
def check_messages(run: Run) -> None:
    """X: no collective; a ring; two buffers in turn; everything is waited for."""
    for _, result, _ in _runs(run, [3, 4]):
        only_neighbours(run, result)


@check("no argument is changed", points=1, code="E")
def check_inputs(run: Run) -> None:
    """E: grad_out, q, k, v, out and lse."""
    for _, result, _ in _runs(run):
        for output in run.each(result.outputs):
            changed = [name for answer in output["answers"] for name in answer["changed"]]
            run.equal(changed, [], "the list of inputs that were changed")


@check("large blocks end", points=2, code="H")
@in_part
def check_large(run: Run) -> None:
    """H: blocks of 512 KiB, so that a send cannot hide in a buffer."""
    result, ref = _large(run, 3)
    found = [(rank, rank, output) for rank, output in enumerate(result.outputs)]
    _close(run, NAMES, ref, found)


@check("memory does not grow with N: two blocks, and the scores of one", points=2, code="M")
@diagnosis("hold the block in use and the one that is arriving; release it when it is used")
def check_memory(run: Run) -> None:
    """M: with t positions a rank, the peak on 4 ranks is that on 3."""
    peak_stays(run, lambda *asked: _large(*asked)[0], 2 * 8 * LARGE["t"] * LARGE["width"])
