"""vocab_parallel_cross_entropy: one process's loss and gradient, three small reductions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from course_lib.trace.memory import LiveMemory
from grading.references.data_parallel.training import explained

EXERCISE = Exercise(
    title="Cross-entropy without the full logits",
    core=True,
    minutes=30,
    order=6,
    hints=(
        "Three numbers for each token, each a tensor [B, T] and one all-reduce: the largest logit "
        "(op `max`), the target's logit (zeros from every rank but the owner), and the sum of the "
        "exponentials. In which order must they come, if the other two are taken relative to the "
        "largest?",
        "A target's place in your slice is `targets - first`; it is yours if the place is from 0 "
        "to V_r - 1. `gather` refuses other places, so put 0 there (`local.where(mine, 0)`), look "
        "up, and replace what was not yours by 0 with `.where(mine, 0)` once more.",
        "Save softmax = exponentials / total [B, T, V_r], the places and the mask. In backward, "
        "`softmax.scatter_add(-1, place, -mine)` (with the mask as floats [B, T, 1]) subtracts one "
        "at the target, if it is yours; then multiply by `grad.unsqueeze(-1)`.",
    ),
)

WORLDS = (1, 2, 3, 4)
LARGE = 1e4
ROWS, TIMES, PART, ITEM = 2, 6, 512, 4  # sizes of the run whose bytes are measured, on 4 ranks
REASON = "A rank that owns none of the targets still takes part in every all-reduce."


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    logits: torch.Tensor,
    targets: torch.Tensor,
    slopes: torch.Tensor,
    vocabulary: int,
) -> dict[str, Any]:
    """One forward and backward; the logits [B, V_r, T] are given as a transposed view."""
    logits.requires_grad_()
    part, ids = logits.transpose(1, 2), targets.clone()
    given = part.detach().clone()
    loss = learner.vocab_parallel_cross_entropy(part, ids, vocabulary, group)
    found = {"loss": loss.detach().clone()}
    if loss.requires_grad:
        (loss * slopes).sum().backward()
    grad = torch.zeros_like(logits) if logits.grad is None else logits.grad
    found["grad"] = grad.transpose(1, 2).contiguous()
    found["same"] = torch.equal(part.detach(), given) and torch.equal(ids, targets)
    return found


def drive_bytes(
    learner: Any, group: Any, logits: torch.Tensor, targets: torch.Tensor, vocabulary: int
) -> dict[str, Any]:
    """What is sent in each direction, and what is held besides the logits: at most, and between."""
    logits.requires_grad_()
    begin = len(group.ledger.events)
    with LiveMemory() as memory:
        loss = learner.vocab_parallel_cross_entropy(logits, targets, vocabulary, group)
        between, kept = len(group.ledger.events), memory.now
        loss.sum().backward()
    calls = [[event.op, event.payload] for event in group.ledger.events]
    return {
        "dtype": loss.dtype,
        "peak": memory.peak,
        "kept": kept,
        "forward": calls[begin:between],
        "backward": calls[between:],
    }


# --- what they must bring back -------------------------------------------------------------------
class Case:
    """A run on a world, and what one process makes of the same logits.

    Args:
        run: of the check.
        world: ranks.
        large: in each token, one slice's logits are raised by LARGE and the others' lowered; all
            targets lie in the first slice, so that the other ranks own none.
    """

    def __init__(self, run: Run, world: int, large: bool = False) -> None:
        self.world, self.large = world, large
        self.count = 12 * run.number(1, 3) + 1  # one left over for 2 and 4 ranks
        if world == 3:
            self.count = 4  # slices of 2, 1 and 1
        self.numbers = torch.arange(self.count).tensor_split(world)
        self.targets = self._targets(run)
        self.logits = 3 * run.random((*self.targets.shape, self.count))
        self.slopes = run.random(self.targets.shape)
        if large:
            high = torch.arange(self.targets.numel()).view_as(self.targets) % world
            owner = torch.cat([torch.full_like(n, r) for r, n in enumerate(self.numbers)])
            self.targets %= len(self.numbers[0])
            self.logits += LARGE * (2.0 * (owner == high.unsqueeze(-1)) - 1)
            self.logits[:, 0] -= 2 * LARGE  # all far below zero, where a peak must not begin
        inputs = [
            {
                "logits": self.part(self.logits, rank).transpose(1, 2).contiguous(),
                "targets": self.targets,
                "slopes": self.slopes,
                "vocabulary": self.count,
            }
            for rank in range(world)
        ]
        self.result = explained(run, drive, inputs, world, REASON)
        self.name = f"({world} ranks, {self.count} logits)"

    def _targets(self, run: Run) -> torch.Tensor:
        """Two lines: the ends of every slice, and any."""
        ends = torch.cat([part[[0, -1]] for part in self.numbers])
        return torch.stack([run.integers(0, self.count, len(ends)), ends])

    def part(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """A rank's slice of a tensor like the logits."""
        return tensor.tensor_split(self.world, -1)[rank]

    def ranks(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each rank, and what it brought back."""
        yield from enumerate(self.result.outputs)

    # --- right -----------------------------------------------------------------------------------
    def loss(self, logits: torch.Tensor | None = None) -> torch.Tensor:
        """One process's loss of each token."""
        logits = self.logits if logits is None else logits
        flat = functional.cross_entropy(
            logits.flatten(0, 1), self.targets.flatten(), reduction="none"
        )
        return flat.view_as(self.targets)

    def gradient(self) -> torch.Tensor:
        """One process's gradient of all logits."""
        logits = self.logits.clone().requires_grad_()
        (self.loss(logits) * self.slopes).sum().backward()
        assert logits.grad is not None
        return logits.grad

    # --- wrong -----------------------------------------------------------------------------------
    def places(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the targets lie in a rank's slice, as far as they do, and whether they do."""
        local, size = self.targets - self.numbers[rank][0], len(self.numbers[rank])
        return local, (local >= 0) & (local < size)

    def picked(self, logits: torch.Tensor, clamp: bool) -> torch.Tensor:
        """The targets' logits if others' targets give some logit of each rank, not zero."""
        total = torch.zeros_like(self.slopes)
        for rank in range(self.world):
            local, mine = self.places(rank)
            inside = local.clamp(0, len(self.numbers[rank]) - 1) if clamp else local.where(mine, 0)
            part = self.part(logits, rank)
            total += part.gather(-1, inside.unsqueeze(-1)).squeeze(-1)
        return total

    def likely_losses(self, rank: int) -> dict[str, torch.Tensor]:
        """Known wrong losses of one rank."""
        peak = self.logits.amax(-1, keepdim=True)
        shifted, right = self.logits - peak, self.loss()
        logs = shifted.logsumexp(-1)
        own = torch.cat(
            [
                part - part.amax(-1, keepdim=True)
                for part in self.logits.tensor_split(self.world, -1)
            ],
            -1,
        )
        target = shifted.gather(-1, self.targets.unsqueeze(-1)).squeeze(-1)
        mine = self.places(rank)[1]
        return {
            "each rank subtracts its own largest logit: sums relative to different numbers do not "
            "add up": own.logsumexp(-1) - own.gather(-1, self.targets.unsqueeze(-1)).squeeze(-1),
            "other ranks' targets add this rank's logit 0: they must add zero":
                logs - self.picked(shifted, clamp=False),
            "other ranks' targets add this rank's nearest logit: they must add zero":
                logs - self.picked(shifted, clamp=True),
            "the sum of the exponentials is averaged over the ranks":
                right - math.log(self.world),
            "the target's logit is averaged over the ranks: it has one owner":
                logs - target / self.world,
            "the target's logit is this rank's own, without the all-reduce":
                logs - target.where(mine, 0),
            "the sum of the exponentials is this rank's own, without the all-reduce":
                self.part(shifted, rank).logsumexp(-1) - target,
            "the largest logit is subtracted from one of the two terms only": right - peak[..., 0],
            "the sign is wrong": -right,
        } | {
            f"{small:g} was added to the sum of the exponentials, which is at least 1":
                (logs.exp() + small).log() - target
            for small in (1e-5, 1e-6, 1e-7)
        }  # fmt: skip

    def likely_gradients(self, rank: int) -> dict[str, torch.Tensor]:
        """Known wrong gradients of one rank's slice."""
        own, slopes = self.part(self.logits, rank), self.slopes.unsqueeze(-1)
        softmax = self.part(self.logits.softmax(-1), rank)
        right = self.part(self.gradient(), rank)
        local, mine = self.places(rank)
        everywhere = functional.one_hot(local.where(mine, 0), own.shape[-1])
        one = everywhere * mine.unsqueeze(-1)
        return {
            "the minus one at the target is missing": softmax * slopes,
            "one is subtracted on every rank: only the target's owner must do it":
                (softmax - everywhere) * slopes,
            "the incoming gradient is ignored: multiply by it": softmax - one,
            "N times too large: the loss is replicated, so backward sends nothing":
                right * self.world,
            "divided by N: nothing is averaged here": right / self.world,
            "the softmax of this rank's slice alone": (own.softmax(-1) - one) * slopes,
            "no gradient arrives at the logits": right * 0,
            "the sign is wrong": -right,
        }  # fmt: skip


@check("the loss of each token on 1–4 ranks, uneven slices", points=3, code="E")
@diagnosis("compare the three reduced numbers of one token with those of one process")
def check_loss(run: Run) -> None:
    """E: targets at the ends of all slices, logits that are no contiguous tensor."""
    for world in WORLDS:
        case = Case(run, world)
        for rank, found in case.ranks():
            likely = case.likely_losses(rank)
            what = f"the loss {case.name}"
            run.close(found["loss"], case.loss(), what, rank=rank, likely=likely, terms=case.count)


@check("the gradient of each slice", points=4, code="E")
@diagnosis(
    "softmax over all ranks, minus one at the target if it is yours, times the incoming gradient"
)
def check_gradient(run: Run) -> None:
    """E: another gradient from above for each token; inputs stay as they are."""
    for world in WORLDS:
        case = Case(run, world)
        for rank, found in case.ranks():
            right = case.part(case.gradient(), rank).contiguous()
            likely = case.likely_gradients(rank)
            what = f"the gradient of the slice {case.name}"
            run.close(found["grad"], right, what, rank=rank, likely=likely, terms=case.count)
            run.true(
                found["same"],
                "the logits or the targets were changed in place",
                rank=rank,
                cause="other code may still need them: work on a new tensor",
            )


@check("logits of ±10 000", points=3, code="E")
@diagnosis("the largest logit of all ranks is subtracted before the exponential")
@in_part
def check_large(run: Run) -> None:
    """E: in each token another slice is far above the rest; only rank 0 owns targets."""
    overflow = (
        "an exponential overflows, or a sum of them is zero: subtract the token's own largest "
        "logit of all ranks, which need not be this rank's or rank 0's"
    )
    for world in (2, 3):
        case = Case(run, world, large=True)
        for rank, found in case.ranks():
            for name in ("loss", "grad"):
                run.true(
                    bool(found[name].isfinite().all()),
                    f"the {name} is not finite",
                    rank=rank,
                    cause=overflow,
                )
            likely = case.likely_losses(rank)
            what = f"the loss {case.name}"
            run.close(found["loss"], case.loss(), what, rank=rank, likely=likely, terms=case.count)
            right = case.part(case.gradient(), rank).contiguous()
            run.close(found["grad"], right, f"the gradient of the slice {case.name}", rank=rank)


def _measured(run: Run) -> Any:
    targets = run.integers(0, 4 * PART, (ROWS, TIMES))
    inputs = [
        {
            "logits": run.random((ROWS, TIMES, PART), torch.float32),
            "targets": targets,
            "vocabulary": 4 * PART,
        }
        for _ in range(4)
    ]
    return explained(run, drive_bytes, inputs, 4, REASON)


@check("three reductions of B·T numbers forward, nothing backward", points=2, code="B")
@diagnosis("the largest logit, the target's logit, the sum of exponentials: B·T numbers each")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger, in float32; two of the three may travel together."""
    result, size = _measured(run), ROWS * TIMES * ITEM
    for found in run.each(result.outputs):
        ops = {op for op, _ in found["forward"]}
        whole = 4 * PART * size
        run.true(
            ["all_gather", whole] not in found["forward"]
            and ["all_reduce", whole] not in found["forward"],
            "the full logits were gathered",
            expected=f"three reductions of {size} bytes",
            measured=str(found["forward"]),
            cause="the loss needs three numbers for each token, not all its logits",
        )
        run.equal(sorted(ops), ["all_reduce"], "the list of operations in forward")
        run.true(
            not found["backward"],
            "something is sent in backward",
            measured=str(found["backward"]),
            expected="no call",
            cause="each rank has all that the gradient of its slice needs",
        )
        wide = {"loss, messages and gradient have the dtype of the logits": torch.float64}
        run.equal(found["dtype"], torch.float32, "the dtype of the loss", likely=wide)
    once = [wire_bytes("all_reduce", size, 4, rank, ITEM)[0] for rank in range(4)]
    likely = {
        "float64 was sent: messages have the dtype of the logits": [6 * sent for sent in once],
        "one reduction too many": [4 * sent for sent in once],
        "one reduction is missing": [2 * sent for sent in once],
        "two reductions are missing": once,
    }
    run.bytes(result, [3 * sent for sent in once], likely=likely)


@check("no full logits", points=1, code="M")
@diagnosis("each rank works on its slice; a few tensors of that size are enough")
def check_memory(run: Run) -> None:
    """M: besides the logits themselves, at the peak, and between forward and backward."""
    part, numbers = ROWS * TIMES * PART * ITEM, ROWS * TIMES * 8  # a place has 8 bytes
    for found in run.each(_measured(run).outputs):
        run.at_most(
            found["peak"],
            6 * part,
            f"bytes at the peak (a slice has {part:,})",
            cause="the logits of all ranks are on this rank: from the others, the loss needs only "
            "three numbers for each token",
        )
        run.at_most(
            found["kept"],
            part + part // ITEM + 6 * numbers,  # with a mask of the slice
            f"bytes kept for the backward (a slice has {part:,})",
            cause="one tensor of the slice's size is enough: exp(logit - peak) / sum",
        )
