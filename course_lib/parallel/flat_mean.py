"""The mean of many tensors over a group, in one message for each dtype, under way until waited for.

Notebook: 18 Less communication (local_sgd, powersgd).
Source: the buckets of Li et al., "PyTorch Distributed" (2020), section 3.2.3.
Costs 2(N-1)/N·S bytes a rank, S those of the tensors, and a copy of them.
The production version keeps gradients in such a flat tensor, so that nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


class FlatMean:
    """Begins the mean of `tensors` over `group`; collective.

    Args:
        tensors: any shapes, the same on every rank in the same order; they are not changed.
        group: the ranks.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], group: Group) -> None:
        self._tensors = list(tensors)
        kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
        for number, tensor in enumerate(self._tensors):
            kinds.setdefault((tensor.dtype, tensor.device), []).append(number)
        self._under_way = []
        for numbers in kinds.values():
            flat = torch.cat([self._tensors[n].detach().reshape(-1) for n in numbers])
            self._under_way.append((all_reduce(flat, group, "avg", async_op=True), flat, numbers))

    def wait(self) -> list[torch.Tensor]:
        """The means, in the order and the shapes of the tensors, equal to the bit on every rank."""
        means = list(self._tensors)
        for work, flat, numbers in self._under_way:
            work.wait()
            parts = flat.split([self._tensors[n].numel() for n in numbers])
            for number, part in zip(numbers, parts, strict=True):
                means[number] = part.view(self._tensors[number].shape)
        return means
