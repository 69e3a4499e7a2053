"""ring_attention_forward: full causal attention, from blocks that walk round the ring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.attention import causal
from grading.references.attention.causal import EXTREME, USUAL, Case, attend, part_of
from grading.references.attention.message_buffers import BufferWatch, only_neighbours, peak_stays

EXERCISE = Exercise(
    title="Ring attention, forward",
    core=True,
    minutes=35,
    order=2,
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
        "In hop h (from 0), rank i holds the block of rank i-h, modulo N, if blocks go to the next "
        "rank. Its own block comes first, and it is the only one that needs a mask inside: write "
        "that hop, without messages, and grade it on one rank.",
        "Begin with out = 0 and lse = -infinity. For each visible block: `total = "
        "torch.logaddexp(lse, scores.logsumexp(-1))`, then `out = out * exp(lse - total) + "
        "exp(scores - total) @ v_block`, then `lse = total`. The first block must be one in which "
        "every query sees something, or -infinity minus -infinity is NaN.",
        "`block = torch.stack([k, v])` travels as one message. Each hop but the last: `incoming = "
        "torch.empty_like(block)`, `irecv` into it, `isend` the block, compute with the block, "
        "wait for both, `block = incoming`.",
    ),
)

NAMES = ("out", "lse")
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
    given = {name: causal.as_in_a_model(tensor) for name, tensor in case.items()}
    answer = learner.ring_attention_forward(given["q"], given["k"], given["v"], group)
    changed = [name for name in case if not torch.equal(given[name], case[name])]
    return {"result": causal.named(answer, NAMES), "changed": changed}


def drive_large(learner: Any, group: Any, case: Case, limit: int) -> dict[str, Any]:
    """The answer with large blocks, and the most memory there ever was."""
    with BufferWatch(group.ledger, limit) as watch:
        answer = learner.ring_attention_forward(case["q"], case["k"], case["v"], group)
        return {"result": causal.named(answer, NAMES), "peak": watch.peak}


# --- what they must bring back -------------------------------------------------------------------
class Reference(causal.Whole):
    """One case in one process, and what known slips make of it."""

    def right(self, name: str, rank: int) -> torch.Tensor:
        """`out` or `lse` of one rank."""
        return self.part(self.out if name == "out" else self.lse, rank)

    def likely(self, name: str, rank: int) -> dict[str, torch.Tensor]:
        """Known wrong answers."""
        place = NAMES.index(name)
        masks = causal.wrong_masks(self.world, self.length // self.world)
        known = {why: attend(self.q, self.k, self.v, mask)[place] for why, mask in masks.items()}
        known[causal.FORGOTTEN_SCALE] = attend(self.q, self.k, self.v, self.mask, 1.0)[place]
        known |= self.likely_out() if name == "out" else self.likely_lse()
        return {why: self.part(value, rank) for why, value in known.items()}

    def likely_lse(self) -> dict[str, torch.Tensor]:
        """Wrong log-sum-exps, of the whole sequence."""
        scores = causal.masked_scores(self.q, self.k, self.mask)
        lse, most = self.lse, scores.amax(-1)
        return {
            "the maximum that was subtracted is not added again": lse - most,
            "the sum of exponentials, without its logarithm": lse.exp(),
            "the sum relative to the maximum, without logarithm and maximum": (lse - most).exp(),
            "the maximum alone, without the logarithm of the sum": most,
        }

    def likely_out(self) -> dict[str, torch.Tensor]:
        """Wrong outputs, of the whole sequence."""
        most = causal.masked_scores(self.q, self.k, self.mask).amax(-1)
        stale = partial(causal.online, above=False, below=False)
        combined: dict[str, Callable[[causal.Blocks, causal.Blocks], torch.Tensor]] = {
            "the outputs of the blocks are averaged: each must be weighted with its sum of "
            "exponentials": causal.averaged,
            "the outputs of the blocks are added up: the old output must shrink when a block is "
            "added": causal.added,
            "the denominator is not rescaled when the maximum moves":
                partial(causal.online, above=True, below=False),
            "the numerator is not rescaled when the maximum moves":
                partial(causal.online, above=False, below=True),
            "numerator and denominator are not rescaled when the maximum moves": stale,
        }  # fmt: skip
        known = {
            why: causal.by_blocks(self.q, self.k, self.v, self.world, combine)
            for why, combine in combined.items()
        }
        scale = (self.lse - most).exp()[..., None]
        return known | {"not divided by the sum of exponentials": self.out * scale}


# --- cases --------------------------------------------------------------------------------------
def _runs(run: Run, worlds: Sequence[int] = WORLDS) -> Iterator[tuple[int, Any, list[Case]]]:
    """All cases on so many ranks; on 4, one more for the pairs of ranks 0 and 2, 1 and 3."""
    drawn = {  # the same in each check
        world: [
            *causal.draw_cases(run, world),
            causal.draw(run, (1, 2, 2 * world, 4), torch.bfloat16),
        ]
        for world in WORLDS
    }
    pair = causal.draw(run, (1, 2, 2 * run.number(2, 5), 3))
    for world in worlds:
        inputs = [
            {
                "cases": [part_of(case, world, rank) for case in drawn[world]],
                "paired": part_of(pair, 2, rank // 2) if world == 4 else {},
            }
            for rank in range(world)
        ]
        yield world, run(drive, inputs, world=world), [*drawn[world], pair]


def _compare(run: Run, names: Sequence[str], places: Sequence[int]) -> None:
    """Some results of some cases, on 1–4 ranks."""
    for world, result, cases in _runs(run):
        for name, place in product(names, places):
            _close(
                run,
                name,
                Reference(cases[place], world),
                [
                    (rank, rank, output["answers"][place])
                    for rank, output in enumerate(result.outputs)
                ],
            )


def _close(run: Run, name: str, ref: Reference, found: list[tuple[int, int, Any]]) -> None:
    """One result of each rank, which comes with its index in the group, against one process's."""
    for rank, index, answer in found:
        value = causal.results(run, answer["result"], NAMES, rank)[name]
        causal.close(
            run,
            value,
            ref.right(name, index),
            f"{name} ({ref.title})",
            rank=rank,
            terms=16 * ref.length,
            likely=partial(ref.likely, name, index),
        )


def _large(run: Run, world: int, limit: int = 0) -> tuple[Any, Case]:
    case = causal.draw(run, (1, 1, LARGE["t"] * world, LARGE["width"]))
    inputs = [{"case": part_of(case, world, rank), "limit": limit} for rank in range(world)]
    return run(drive_large, inputs, world=world), case


# --- checks --------------------------------------------------------------------------------------
@check("out is that of full causal attention, on 1–4 ranks", points=4, code="E")
@diagnosis("follow one block: which rank's block is it in hop h, and which queries may see it?")
def check_out(run: Run) -> None:
    """E: hidden sizes, one token a rank, float32 and bfloat16, memory in another order."""
    _compare(run, ["out"], [*USUAL, BF16])


@check("lse is the logarithm of the whole sum of exponentials", points=2, code="E")
@diagnosis("lse = maximum + log(sum of exp(scores - maximum)), over all visible keys")
def check_lse(run: Run) -> None:
    """E: the backward pass needs it."""
    _compare(run, ["lse"], [*USUAL, BF16])


@check("scores of several thousand, and of minus several thousand", points=2, code="E")
@diagnosis(
    "take the exponential only of differences: exp(scores - lse); begin at -infinity, not at 0"
)
def check_extremes(run: Run) -> None:
    """E: exp(1000) is infinite, and exp(-1000) is 0."""
    _compare(run, NAMES, EXTREME)


@check("the same in a group of ranks 0 and 2, or 1 and 3", points=1, code="E")
@diagnosis("peers and blocks are counted by index in the group, not by rank")
def check_pairs(run: Run) -> None:
    """E: a rank is not its index."""
    ((_, result, cases),) = _runs(run, [4])
    ref = Reference(cases[-1], 2)
    for name in NAMES:
        _close(
            run,
            name,
            ref,
            [
                (rank, rank // 2, output["answers"][-1])
                for rank, output in enumerate(result.outputs)
            ],
        )


@check("(N-1)·(K+V) bytes sent by each rank", points=2, code="B")
@diagnosis("each of N-1 hops sends one block: the k and the v of one rank")
@in_part
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger."""
    for world, result, cases in _runs(run):
        once = sum(2 * case["k"].nbytes for case in cases[:-1]) // world
        narrow = sum(2 * case["k"].numel() * 4 for case in cases[:-1]) // world
        likely = {
            "N hops: in the last one each block returns, and nobody needs it there": world * once,
            "one hop is missing": (world - 2) * once,
            "q travels as well: queries stay where they are": (world - 1) * once * 3 // 2,
            "k alone, or v alone, travels": (world - 1) * once // 2,
            "it was sent as float32": (world - 1) * narrow,
            "nothing is sent: later queries need the keys of other ranks": 0,
        }
        run.bytes(result, (world - 1) * once, axis="world", likely=likely)


@check(
    "only messages, all to one neighbour; no memory is in two messages at once", points=2, code="X"
)
@diagnosis("each hop: `irecv` from one neighbour, `isend` to the other, and `wait` for both")
def check_messages(run: Run) -> None:
    """X: no collective; a ring; two buffers in turn; everything is waited for; one or two a hop."""
    for world, result, cases in _runs(run, [3, 4]):
        only_neighbours(run, result)
        hops = (world - 1) * (len(cases) - 1)
        cause = "a hop takes one message or two, of k and v: each more costs its latency"
        for ledger in run.each(result.ledgers):
            count = len(ledger.calls("send", "world"))
            run.at_most(count, 2 * hops, f"the number of messages in {hops} hops", cause=cause)


@check("q, k and v are not changed", points=1, code="E")
def check_inputs(run: Run) -> None:
    """E: the backward pass needs them."""
    for _, result, _ in _runs(run):
        for output in run.each(result.outputs):
            changed = [name for answer in output["answers"] for name in answer["changed"]]
            run.equal(changed, [], "the list of inputs that were changed")


@check("large blocks end", points=2, code="H")
@in_part
def check_large(run: Run) -> None:
    """H: blocks of 512 KiB, so that a send cannot hide in a buffer."""
    result, case = _large(run, 3)
    found = [(rank, rank, output) for rank, output in enumerate(result.outputs)]
    _close(run, "out", Reference(case, 3), found)


@check("memory does not grow with N: two blocks, and the scores of one", points=2, code="M")
@diagnosis("hold the block in use and the one that is arriving; release it when it is used")
def check_memory(run: Run) -> None:
    """M: with t positions a rank, the peak on 4 ranks is that on 3."""
    peak_stays(run, lambda *asked: _large(*asked)[0], 2 * 8 * LARGE["t"] * LARGE["width"])
