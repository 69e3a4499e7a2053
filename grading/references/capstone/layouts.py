"""A layout of the capstone, its hidden batches, the same in one process, and the known mistakes.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Rajbhandari et al., "ZeRO" (2020).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from course_lib.grade.suite import Run
from grading.references.capstone.training import (
    AXES,
    IGNORED,
    Alone,
    Batch,
    Grid,
    Step,
    Values,
    build,
    is_expert,
)

STEPS, MICRO, ROWS, LENGTH, HIDDEN, TOP_K, LR = 3, 3, 16, 4, 16, 2, 0.01


class Case:
    """A layout, its hidden inputs, and the same training in one process.

    Args:
        run: of the check.
        sizes: of the axes.
        tied: whether the embedding is.
    """

    def __init__(self, run: Run, sizes: tuple[int, ...], tied: bool) -> None:
        self.run = run
        moe = {"experts": 5, "top_k": TOP_K, "balance": 0.3, "z": 0.05, "bias_rate": 0.02}
        self.shape: dict[str, Any] = {
            "layers": 2, "hidden": HIDDEN, "heads": 4, "kv_heads": 1, "sequence": LENGTH,
            "ffn": 2 * run.number(2, 4) + 1, "vocabulary": 2 * run.number(7, 10) + 1,
            "tied": tied, "moe": moe,
        }  # fmt: skip
        self.sizes = dict(zip(AXES, sizes, strict=True))
        self.grid = Grid(self.sizes, self.shape)
        self.batches = [self._batch() for _ in range(STEPS)]
        probe = Alone(self.shape, MICRO, LR, float("inf"))
        self.limit = 0.5 * probe.step(*self.batches[0]).norm
        self.inputs = {"shape": self.shape, "sizes": self.sizes, "max_norm": self.limit,
                       "batches": [list(batch) for batch in self.batches]}  # fmt: skip

    def _batch(self) -> Batch:
        """Fewer tokens count in the first rows."""
        inputs = self.run.integers(0, self.shape["vocabulary"], (ROWS, LENGTH))
        targets = self.run.integers(0, self.shape["vocabulary"], (ROWS, LENGTH))
        left = self.run.random((ROWS, LENGTH)) + torch.linspace(-1, 2, ROWS)[:, None] > 0
        left[:3, 1:] = False
        left[:, 0] = True
        return inputs, targets.masked_fill(~left, IGNORED)

    @cached_property
    def steps(self) -> list[Step]:
        """One process."""
        return self._train(self.limit)

    def own(self, rank: int) -> torch.Tensor:
        """A rank's rows."""
        return self.grid.own_rows(rank, ROWS, MICRO)

    # --- known mistakes --------------------------------------------------------------------------
    def wrong_losses(self, rank: int) -> dict[str, float]:
        """Of the first step."""
        (inputs, targets), right, g = self.batches[0], self.steps[0], self.grid
        losses_B = self._gradient().backward(inputs, targets, self._weights(1 / right.tokens))
        own, counts_B = self.own(rank), (targets != IGNORED).sum(1)
        mine = float(losses_B[own].sum())
        return {
            "only the last stage hears of losses: sum over pp, too": 0.0,
            "of this rank's rows only: sum over dp and ep": mine / right.tokens,
            "of this rank's rows, by its own tokens": mine / int(counts_B[own].sum()),
            "ranks of tp have the same losses: not to be summed over tp":
                right.loss * self.sizes["tp"],
            "divided by the ranks of dp × ep, too: the sum over all is divided by all tokens":
                right.loss / g.rows,
            "each loss counts as often as there are ranks of ep: they have other rows, part "
            "dp.index · ep + ep.index of dp · ep": right.loss * self.sizes["ep"],
            "the sum over all tokens: divide by their number": right.loss * right.tokens,
        }  # fmt: skip

    def wrong_norms(self) -> dict[str, float]:
        """Of the first step's gradient."""
        inputs, targets = self.batches[0]
        counts_B, tokens = (targets != IGNORED).sum(1), self.steps[0].tokens
        n, m = self.grid.rows, MICRO
        equal = self._weights(1 / tokens)
        by_rank, by_micro = equal.clone(), equal.clone()
        for rank in range(self.grid.world):
            own = self.own(rank)
            by_rank[own] = 1 / n / int(counts_B[own].sum())
            for rows in torch.arange(ROWS).tensor_split(m):
                both = own[torch.isin(own, rows)]
                by_micro[both] = 1 / n / m / max(1, int(counts_B[both].sum()))
        ways: dict[str, tuple[Any, ...]] = {
            "auxiliary losses are left out": (equal, 0.0),
            "auxiliary losses count once for each micro-batch: their weight is 1/m": (equal, 1.0),
            "auxiliary losses are divided by the ranks of dp × ep, too": (equal, 1 / m / n),
            "auxiliary losses are multiplied by the ranks of dp × ep": (equal, n / m),
            "divided by the ranks of dp × ep once too often: they average gradients, so weights "
            "are dp · ep / tokens": (equal / n,),
            "multiplied by the ranks of dp × ep": (equal * n,),
            "each rank divides by its own tokens: a mean of means": (by_rank,),
            "a mean of the micro-batches' means": (by_micro,),
            "not divided by the tokens": (equal * tokens,),
            "the batch is cut over the ranks first: micro-batch k has other rows than in one "
            "process, and so other auxiliary losses": (equal, None, self._ranks_first()),
        }  # fmt: skip
        return self._wrong_copies() | {why: self._norm(*way) for why, way in ways.items()}

    def _wrong_copies(self) -> dict[str, float]:
        """Norms in which something counts several times."""
        alone, tp = self._gradient(), self.sizes["tp"]
        alone.backward(*self.batches[0], self._weights(1 / self.steps[0].tokens))
        squares, whole = alone.squares(), build(self.shape).state_dict()
        same = sum(float(v) for n, v in squares.items() if self.grid.cut_dim(n, whole[n]) is None)
        ends = float(squares["embedding.weight"]) * (len(self.grid.stages("embedding")) - 1)
        total = sum(map(float, squares.values()))
        stages = [
            sum(float(v) for n, v in squares.items() if stage in self.grid.stages(n))
            for stage in range(self.sizes["pp"])
        ]
        experts = sum(float(v) for n, v in squares.items() if is_expert(n))
        ep, dp = self.sizes["ep"], self.sizes["dp"]
        wrong = {
            "what all ranks of tp have counts tp times": total + (tp - 1) * same,
            "the tied embedding counts twice": total + ends,
            "what all ranks of tp have, and the tied embedding, count several times":
                total + (tp - 1) * same + ends,
            "a piece is on one rank of dp × ep: ZeRO-1 has cut what the ranks had":
                (total - experts) / dp / ep + experts / dp,
            "each piece counts as if all ranks of tp had it: matrices are cut":
                (total - same) / tp + same,
            "without the other stages: the norm is over the world": stages[0],
            "without the other stages: the norm is over all of the world": stages[-1],
        }  # fmt: skip
        return {why: value**0.5 for why, value in wrong.items()}

    def wrong_later(self, number: int) -> dict[str, float]:
        """Norms of a later step."""
        return {
            "the biases of the routers did not move after the update":
                self._train(self.limit, "biases")[number].norm,
            "experts have not been updated: they have an optimizer of their own":
                self._train(self.limit, "experts")[number].norm,
            "experts alone have been updated": self._train(self.limit, "others")[number].norm,
            "the update before was not clipped": self._train(float("inf"))[number].norm,
        }  # fmt: skip

    def wrong_resumed(self, number: int) -> dict[str, float]:
        """Norms of a step that is made after the state of step 0 was loaded."""

        def after(steps: int, loses: str = "") -> float:
            alone = self._gradient()
            for batch in self.batches[:steps]:
                alone.step(*batch)
            alone.lose(loses)
            return [alone.step(*batch).norm for batch in self.batches[1 : number + 1]][-1]

        return {
            "the routers' biases are not in the state": after(1, "biases"),
            "AdamW's moments are not in the state": after(1, "moments"),
            "the weights are those of the beginning: nothing was loaded": after(0),
            "the state has gone on with the older Trainer: it must be a copy": after(STEPS),
        }

    def wrong_weights(self, rank: int) -> dict[str, Values]:
        """After the last step."""
        begin = {name: p.detach() for name, p in build(self.shape).named_parameters()}
        return {
            "not clipped": self.grid.held(self._train(float("inf"))[-1].weights, rank),
            "the weights are those of the beginning": self.grid.held(begin, rank),
        }

    def _train(self, limit: float, skips: str = "") -> list[Step]:
        alone = Alone(self.shape, MICRO, LR, limit, skips=skips)
        return [alone.step(*batch) for batch in self.batches]

    def _ranks_first(self) -> list[torch.Tensor]:
        parts = [
            part.tensor_split(MICRO) for part in torch.arange(ROWS).tensor_split(self.grid.rows)
        ]
        return [torch.cat([part[k] for part in parts]) for k in range(MICRO)]

    def _norm(self, weights_B: torch.Tensor, auxiliary: Any = None, groups: Any = None) -> float:
        alone = self._gradient()
        alone.backward(*self.batches[0], weights_B, auxiliary, groups)
        return sum(map(float, alone.squares().values())) ** 0.5

    def _gradient(self) -> Alone:
        return Alone(self.shape, MICRO, LR, self.limit)

    def _weights(self, value: float) -> torch.Tensor:
        return torch.full((ROWS,), value, dtype=torch.float64)


# --- bytes ---------------------------------------------------------------------------------------
def formulas(case: Case, rank: int) -> dict[str, tuple[tuple[str, ...], int]]:
    """For each purpose its axes (none for all that are left) and the most bytes."""
    place, pp, tp = case.grid.place(rank), case.sizes["pp"], case.sizes["tp"]
    tokens, blocks = len(case.own(rank)) * LENGTH, 2 // pp
    first, last = place["pp"] == 0, place["pp"] == pp - 1
    one = tokens * HIDDEN * 8  # bytes of this rank's activations between two blocks
    key_value = 2 * (HIDDEN // 4) * HIDDEN * 8  # one head, on all ranks of tp
    share = 2 * (tp - 1) / tp
    sums = (4 * blocks + first + last) * one + blocks * tokens * TOP_K * 8
    sums += 3 * last * tokens * 8 + blocks * MICRO * key_value
    others, experts = own_bytes(case, rank)
    n, dp = case.grid.rows, case.sizes["dp"]
    wire = 2 * (n - 1) / n * others + 2 * (dp - 1) / dp * experts
    tied = case.grid.held(case.steps[0].weights, rank).get("embedding.weight") if pp > 1 else None
    ends = tied.nbytes if tied is not None and case.shape["tied"] else 0
    few = 64  # bytes: the loss, the tokens and the norm may be summed one axis after the other
    numbers = blocks * MICRO * 2 * 5 * 8 + 6 * 16 + 2 * 8 * n
    return {
        "along pp": (("pp",), one * (2 - first - last) + few),
        "along tp": (("tp",), round(share * sums) + few),
        "along ep": (("ep",), (4 * tokens * TOP_K * HIDDEN + MICRO * 5) * 8 * blocks),
        "for gradients and numbers": ((), round(wire + ends + numbers)),
    }


def own_bytes(case: Case, rank: int) -> tuple[int, int]:
    """Of a rank's parameters: those of all but experts, and experts."""
    held = case.grid.held(case.steps[0].weights, rank)
    experts = sum(value.nbytes for name, value in held.items() if is_expert(name))
    return sum(value.nbytes for value in held.values()) - experts, experts
