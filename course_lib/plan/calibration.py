"""What is fitted: two numbers for each GPU, on published runs alone; and what was chosen for all.

Notebook: 15 Choosing a strategy (the planner against published runs, with its error band).
Source: data/*.csv beside this file, each row with where it was published.
Costs nothing; `python -m benchmarks plan` prints what is left of the error, and fits again.
The production version fits a dozen, for its own cluster, every week.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# The same for every GPU; round numbers, chosen once, not fitted to any GPU.
STREAMING = 0.7  # part of the sheet's memory bandwidth that element-wise kernels reach
HIDDEN = 0.5  # part of tp's communication that products hide when a program cuts both in pieces
HOST = 0.4e-3  # seconds from a stage's message until its kernels run: 40 operators of 10 µs


@dataclass(frozen=True)
class Fitted:
    """The two constants of a GPU.

    Attributes:
        sustained: rate of products in a long run by the fastest that was measured alone; heat, and
            kernels that are not the best for their shape.
        spread: standard deviation of a node's step time, in parts of it. All wait for the slowest
            of n nodes, which of n normal numbers lies about √(2 ln n) deviations above the mean.
    """

    sustained: float = 0.88
    spread: float = 0.0

    def slowest(self, nodes: int) -> float:
        """By how much of itself a step of so many nodes is longer than a node's own."""
        return self.spread * math.sqrt(2 * math.log(max(nodes, 1)))


FITTED: Mapping[str, Fitted] = MappingProxyType(
    {"A100-80": Fitted(0.90, 0.0025), "H100": Fitted(0.88, 0.0125)}
)
