"""Which window of the text does rank r see in step s? A function, so that a run can be resumed.

Notebook: 02 Data parallel (shard_indices), 11 Distributed checkpoints (resume_exact).
Source: torch.utils.data.DistributedSampler; Megatron's index of shuffled windows.
Costs no communication: every rank computes the same permutation from the same seed.
The production version shuffles billions of windows in blocks, and mixes several sources.
"""

from __future__ import annotations

from typing import Any

import torch

from course_lib.trace import Refusal

UNCOUNTED = -100  # a target that no loss counts, as in torch's cross_entropy


def shard_indices(
    count: int, index: int, size: int, epoch: int = 0, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    """The examples that one data-parallel index sees in an epoch.

    All indices make the same permutation and take every `size`-th of it, so each example is seen
    once. The epoch is part of the seed: without it every epoch has the same order.

    Args:
        count: examples in the data set.
        index: this rank's index on the dp axis.
        size: size of the dp axis.
        epoch: number of the pass over the data.
        seed: the same on every rank.
        drop_last: leave out the rest that does not divide; otherwise the first few are seen twice,
            since every rank must make the same number of steps.

    Returns:
        int64, the same length on every index.

    Raises:
        Refusal: `index` is not below `size`, or there are no examples.
    """
    if not 0 <= index < size or count < 1:
        raise Refusal(
            f"the share of index {index} of {size} in {count} examples",
            f"an index outside 0..{size - 1} or no examples",
            "each index on the axis has one share of a data set that is not empty",
        )
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(count, generator=generator)
    if drop_last:
        order = order[: count // size * size]
    else:
        order = torch.cat([order, order.repeat(size)[: -count % size]])
    return order[index::size]


class WindowSampler:
    """Batches of windows of a token sequence, for one index on the dp axis.

    The *global* batch of a step depends on the seed and the step alone; each index takes its part
    of it. So the same run can go on with another number of ranks, and no loss curve changes.

    Args:
        tokens: uint8 or int, one dimension.
        sequence: T, tokens of a window; the targets are the same window one token later.
        global_batch: windows in a step over all indices; divisible by `size`.
        index: this rank's index on the dp axis.
        size: size of the dp axis.
        seed: the same on every rank.
        starts: where documents begin in `tokens`, sorted; their first tokens are no targets.

    Raises:
        Refusal: the batch does not divide by `size`, the text is shorter than a global batch, or a
            number is below 1.
    """

    def __init__(
        self,
        tokens: torch.Tensor,
        sequence: int,
        global_batch: int,
        index: int = 0,
        size: int = 1,
        seed: int = 0,
        starts: torch.Tensor | None = None,
    ) -> None:
        windows = (tokens.numel() - 1) // max(1, sequence)
        nothing = min(sequence, global_batch, size) < 1
        if nothing or global_batch % size or not 0 <= index < size or windows < global_batch:
            raise Refusal(
                f"batches of {global_batch} windows of {sequence} tokens, part {index} of {size}",
                f"a text of {tokens.numel()} tokens, which is {windows} windows",
                "the parts of a batch are equal, and a batch does not repeat a window",
            )
        self.tokens, self.sequence, self.seed, self.starts = tokens, sequence, seed, starts
        self.global_batch, self.index, self.size = global_batch, index, size
        self.steps_per_epoch = windows // global_batch
        self.step = 0

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs and targets of a step: int64 [B, T] each, B = global_batch / size.

        A target is -100, and is not counted, where another document begins.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        windows = (self.tokens.numel() - 1) // self.sequence
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(windows, generator=generator)
        begin = place * self.global_batch
        mine = order[begin : begin + self.global_batch].chunk(self.size)[self.index]
        places = mine[:, None] * self.sequence + torch.arange(self.sequence + 1)
        both = self.tokens[places].long()
        inputs, targets = both[:, :-1].contiguous(), both[:, 1:].contiguous()
        if self.starts is not None:
            begins = places[:, 1:].contiguous()
            near = torch.searchsorted(self.starts, begins).clamp(max=len(self.starts) - 1)
            targets[self.starts[near] == begins] = UNCOUNTED
        return inputs, targets

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        inputs_and_targets = self.batch(self.step)
        self.step += 1
        return inputs_and_targets

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on: the number of the next step."""
        return {"step": self.step, "seed": self.seed, "global_batch": self.global_batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state` was taken, also on another number of ranks.

        Raises:
            Refusal: the state is of a run with another seed or global batch.
        """
        mine = self.state_dict()
        if any(state[key] != mine[key] for key in ("seed", "global_batch")):
            raise Refusal(
                f"go on from {state}",
                f"a sampler with {mine}",
                "with another seed or batch the windows would not be those of the same run",
            )
        self.step = state["step"]
