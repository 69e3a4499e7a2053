"""Causal attention in one process: what attention over parts of a sequence is held against.

Paper: Vaswani et al., "Attention Is All You Need" (2017), section 3.2; Dao et al.,
"FlashAttention" (2022), appendix B.2, for the backward from the log-sum-exp.

Shapes: B batch, H heads, S sequence, C head width; t = S/N positions on each of N ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from course_lib.grade.suite import CheckFailed, Run

Tensors = tuple[torch.Tensor, ...]
Blocks = list[torch.Tensor]
Case = dict[str, torch.Tensor]  # q, k, v, ...; of the whole sequence, or of one rank
USUAL, EXTREME = (0, 1, 2), (3, 4)  # places in `draw_cases`
FORGOTTEN_SCALE = "the scores are not divided by √C"


# --- attention -----------------------------------------------------------------------------------
def visible(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Which keys each query may see, bool [queries, keys], from their positions."""
    return keys[None, :] <= queries[:, None]


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of all queries to all keys that `mask` shows them.

    Args:
        q: [B, H, queries, C].
        k: [B, H, keys, C].
        v: like k.
        mask: bool [queries, keys].
        scale: of the scores; 1/√C if 0.

    Returns:
        The output, like q, and the log-sum-exp of the scores [B, H, queries].
    """
    scores = masked_scores(q, k, mask, scale)
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp() @ v, lse


def masked_scores(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor, scale: float = 0.0
) -> torch.Tensor:
    """The scores [B, H, queries, keys], minus infinity where nothing may be seen."""
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    return scores.masked_fill(~mask, -math.inf)


def gradients(
    grad_out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> Tensors:
    """Autograd's gradients of q, k and v, for `grad_out` of the output."""
    q, k, v = (tensor.clone().requires_grad_() for tensor in (q, k, v))
    out, _ = attend(q, k, v, mask)
    return torch.autograd.grad(out, (q, k, v), grad_out)


# --- parts of the sequence -----------------------------------------------------------------------
class Whole:
    """One case in one process, to be cut for some ranks.

    Args:
        case: q, k and v of the whole sequence, [B, H, S, C] each.
        world: how many ranks there are.

    Attributes:
        mask: who sees whom, bool [S, S].
        out: the right output, float64, of the whole sequence.
        lse: the right log-sum-exp, likewise.
        title: the sizes, in words.
    """

    def __init__(self, case: Case, world: int) -> None:
        self.world, self.length = world, case["q"].shape[2]
        self.dtype = case["q"].dtype
        self.q, self.k, self.v = (case[name].double() for name in ("q", "k", "v"))
        place = torch.arange(self.length)
        self.mask = visible(place, place)
        self.out, self.lse = attend(self.q, self.k, self.v, self.mask)
        self.title = f"{'×'.join(map(str, self.q.shape))} over {world} ranks"

    def part(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """One rank's part of a tensor of the whole sequence, in the dtype of the case."""
        return tensor.chunk(self.world, 2)[rank].to(self.dtype)


def part_of(case: Case, world: int, rank: int) -> Case:
    """One rank's part of each tensor."""
    return {name: tensor.chunk(world, 2)[rank].clone() for name, tensor in case.items()}


def draw(run: Run, shape: Sequence[int], dtype: torch.dtype = torch.float64) -> Case:
    """Hidden q, k and v."""
    return {name: run.random(shape, dtype) for name in ("q", "k", "v")}


def draw_cases(run: Run, world: int) -> list[Case]:
    """Whole sequences: those of USUAL, then those of EXTREME.

    A usual one, one position a rank, and float32; scores of some thousands, and of minus as many.
    """
    t, width = run.number(3, 7), run.number(3, 7)
    usual = draw(run, (2, 2, t * world, width))
    cases = [usual, draw(run, (1, 3, world, 4)), draw(run, (1, 2, 3 * world, 8), torch.float32)]
    for shape, offset in (((1, 2, 4 * world, 5), 60), ((2, 1, 3 * world, 4), -60)):
        case = draw(run, shape)
        case["q"][..., 0], case["k"][..., 0] = 60, offset  # the scores are moved by ±60·60/√C
        cases.append(case)
    cases[-1]["k"][..., -1, 0] = 60  # all queries but the last must not see how large this score is
    return cases


def wrong_masks(world: int, t: int) -> dict[str, torch.Tensor]:
    """What the queries of all ranks see by known slips, bool [S, S], under what explains it."""
    place = torch.arange(world * t)
    rank, row = place // t, place % t
    queries, keys = rank[:, None], rank[None, :]
    right, local = visible(place, place), visible(row, row)
    came_last = (queries + 1) % world  # the block that arrives in hop N-1
    assumed = (2 * queries - keys) % world  # the block that comes if the ring runs the other way
    return {
        "the block of the last hop was left out: one hop short": right & (keys != came_last),
        "the mask was made from places in the block: blocks of earlier ranks are wholly visible, "
        "those of later ranks not at all": local,
        "the mask takes each block for another rank's: the ring runs the other way round":
            (assumed < queries) | ((assumed == queries) & local),
        "this rank's own block alone: what came by was not used": right & (queries == keys),
        "its own block is left out: `<` between blocks": keys < queries,
        "its own block is seen whole: the diagonal block needs a mask": keys <= queries,
        "no mask at all: later positions are seen": torch.ones_like(right),
    }  # fmt: skip


# --- block by block ------------------------------------------------------------------------------
def by_blocks(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    world: int,
    combine: Callable[[Blocks, Blocks], torch.Tensor],
) -> torch.Tensor:
    """What comes out if each rank combines the blocks that it sees, its own one first.

    Args:
        q: [B, H, S, C]; k and v likewise.
        k: keys.
        v: values.
        world: N.
        combine: gets the masked scores with each block, and each block's values.
    """
    place = torch.arange(q.shape[2])
    keys, values = k.chunk(world, 2), v.chunk(world, 2)
    outs = []
    for rank, (own, rows) in enumerate(zip(q.chunk(world, 2), place.chunk(world), strict=True)):
        order = range(rank, -1, -1)
        masks = [visible(rows, place.chunk(world)[source]) for source in order]
        scores = [masked_scores(own, keys[s], mask) for s, mask in zip(order, masks, strict=True)]
        outs.append(combine(scores, [values[source] for source in order]))
    return torch.cat(outs, 2)


def added(scores: Blocks, values: Blocks) -> torch.Tensor:
    """The sum of the blocks' own outputs."""
    return torch.stack([s.softmax(-1) @ v for s, v in zip(scores, values, strict=True)]).sum(0)


def averaged(scores: Blocks, values: Blocks) -> torch.Tensor:
    """The mean of the blocks' own outputs."""
    return added(scores, values) / len(scores)


def online(scores: Blocks, values: Blocks, *, above: bool, below: bool) -> torch.Tensor:
    """Online softmax that rescales its numerator (`above`), its denominator (`below`), or not."""
    most = torch.full_like(scores[0][..., :1], -math.inf)
    out, total = torch.zeros_like(values[0]), torch.zeros_like(most)
    for block, value in zip(scores, values, strict=True):
        now = torch.maximum(most, block.amax(-1, keepdim=True))
        shrink, weights = (most - now).exp(), (block - now).exp()
        out = out * (shrink if above else 1) + weights @ value
        total = total * (shrink if below else 1) + weights.sum(-1, keepdim=True)
        most = now
    return out / total


# --- for drivers and checks ----------------------------------------------------------------------
def as_in_a_model(x: torch.Tensor) -> torch.Tensor:
    """A copy in the memory order that a linear layer leaves: [B, t, H, C], seen as [B, H, t, C]."""
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def named(answer: Any, names: Sequence[str]) -> Any:
    """A tuple of results by name; the type's name if it is none, or has not so many."""
    if isinstance(answer, (tuple, list)) and len(answer) == len(names):
        return dict(zip(names, answer, strict=True))
    return (
        f"{type(answer).__name__} of {len(answer)}"
        if hasattr(answer, "__len__")
        else (type(answer).__name__)
    )


def results(run: Run, found: Any, names: Sequence[str], rank: int) -> dict[str, Any]:
    """What `named` made; fails unless it is a dict."""
    run.true(
        isinstance(found, dict),
        "the result has the wrong form",
        rank=rank,
        expected=f"a tuple ({', '.join(names)})",
        measured=str(found),
    )
    return found


def close(
    run: Run,
    value: Any,
    right: torch.Tensor,
    what: str,
    *,
    rank: int,
    terms: int,
    likely: Callable[[], Mapping[str, torch.Tensor]],
) -> None:
    """`run.close`, with known wrong answers that are only worked out if they are needed."""
    try:
        run.close(value, right, what, rank=rank, terms=terms)
    except CheckFailed:
        known = {why: wrong for why, wrong in likely().items() if not wrong.isnan().any()}
        run.close(value, right, what, rank=rank, terms=terms, likely=known)
