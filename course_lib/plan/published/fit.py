"""Fits the two constants of a GPU to published runs, and says what is left without each of them.

Notebook: 15 Choosing a strategy (the planner against published runs).
Source: least squares of the logarithm of predicted/published; leave-one-out after Stone (1974).
Costs a few simulations of each run; the rest is arithmetic on them.
The production version fits again whenever the software changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.plan.inputs.calibration import Fitted
from course_lib.plan.published.row import Run
from course_lib.plan.time.simulate import simulate

POINTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SUSTAINED = tuple(0.5 + 0.0025 * i for i in range(201))
SPREADS = tuple(0.00125 * i for i in range(17))


@dataclass(frozen=True)
class Curve:
    """A run's TFLOP/s as a function of the constants.

    Attributes:
        published: what was measured.
        nodes: of the run.
        rates: predicted at each of `POINTS`, without waiting for the slowest node.
    """

    published: float
    nodes: int
    rates: tuple[float, ...]

    def rate(self, fitted: Fitted) -> float:
        """Predicted TFLOP/s, along a straight line between two points."""
        place = (fitted.sustained - POINTS[0]) / (POINTS[1] - POINTS[0])
        low = min(max(int(place), 0), len(POINTS) - 2)
        rate = self.rates[low] + (place - low) * (self.rates[low + 1] - self.rates[low])
        return rate / (1 + fitted.slowest(self.nodes))

    def error(self, fitted: Fitted) -> float:
        """Predicted over published speed, minus 1."""
        return self.rate(fitted) / self.published - 1


def curve(run: Run, published: float) -> Curve:
    """Simulates a run at each of `POINTS`."""
    rates = [
        run.tflops(
            simulate(run.config, run.layout, run.cluster, run.software, Fitted(at, 0)).seconds
        )
        for at in POINTS
    ]
    return Curve(published, -(-run.cluster.count // run.cluster.node), tuple(rates))


def fit(curves: Sequence[Curve], spreads: Sequence[float] = SPREADS) -> Fitted:
    """The constants with the least sum of squares, with one of some spreads."""
    tries = [Fitted(sustained, spread) for sustained in SUSTAINED for spread in spreads]
    return min(tries, key=lambda f: sum(math.log1p(c.error(f)) ** 2 for c in curves))


def leave_one_out(curves: Sequence[Curve]) -> list[float]:
    """The error of each run with constants that were fitted to all the others."""
    return [curves[i].error(fit([*curves[:i], *curves[i + 1 :]])) for i in range(len(curves))]
