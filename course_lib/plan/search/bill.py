"""What training costs: tokens a second, days, GPU-hours, energy, money.

Notebook: 15 Choosing a strategy; `course plan --tokens 15e12 --price 2`.
Source: the sheets' watts (plan.inputs.hardware), which a training GPU nearly draws.
Costs nothing: arithmetic on a predicted step.
The production version also counts restarts, evaluation and the nights on which nothing runs.
"""

from __future__ import annotations

from dataclasses import dataclass

HOURS = 3600.0


@dataclass(frozen=True)
class Bill:
    """A training run at a predicted speed, without a failure.

    Attributes:
        rate: tokens a second, all GPUs together.
        gpus: how many.
        watts: of a GPU at most, without the rest of its machine and cooling; 0 if not known.
        tokens: to train on.
        price: of a GPU for an hour; 0 if not asked.
    """

    rate: float
    gpus: int
    watts: float
    tokens: float
    price: float = 0.0

    @property
    def days(self) -> float:
        """Of the whole run."""
        return self.tokens / self.rate / HOURS / 24

    @property
    def gpu_hours(self) -> float:
        """Of all GPUs."""
        return self.days * 24 * self.gpus

    @property
    def megawatt_hours(self) -> float:
        """Drawn by the GPUs, at most."""
        return self.gpu_hours * self.watts / 1e6

    @property
    def money(self) -> float:
        """In the price's unit."""
        return self.gpu_hours * self.price

    def text(self) -> str:
        """One line."""
        said = f"{self.rate:,.0f} tokens per second: {self.tokens:.3g} tokens take "
        said += f"{self.days:.3g} days, {self.gpu_hours:,.0f} GPU-hours"
        if self.watts:
            said += f", {self.megawatt_hours:,.0f} MWh in the GPUs"
        return said + (f", and cost {self.money:,.0f} at {self.price:g}" if self.price else "")
