"""A small model whose experts are on the ranks of a mesh, and the same model in one process."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, exchange_in_group

OWN = 2  # experts a rank
FROZEN = ("shift", "gain")
Values = dict[str, torch.Tensor]


class Part(NamedTuple):
    """Ranks that train one model: a mesh of R × M, whose slow axis is the first or the second."""

    start: int  # the first rank
    replicas: int  # R
    spread: int  # M, ranks that share the experts
    swapped: bool = False  # whether replicas are neighbours

    @property
    def size(self) -> int:
        """N."""
        return self.replicas * self.spread

    def place(self, index: int) -> tuple[int, int]:
        """Which replica a member is, and its place among those that share the experts."""
        if self.swapped:
            return index % self.replicas, index // self.replicas
        return index // self.spread, index % self.spread

    def lines(self, axis: int) -> list[list[int]]:
        """The indices along an axis: 0 are the replicas, 1 are those that share the experts."""
        found: dict[int, list[int]] = {}
        for index in range(self.size):
            found.setdefault(self.place(index)[1 - axis], []).append(index)
        return list(found.values())


def apply(values: Values, number: int, rows: torch.Tensor) -> torch.Tensor:
    """An expert; its last bias is frozen."""
    hidden = torch.tanh(rows @ values[f"{number}.up"])
    return hidden @ values[f"{number}.down"] + values[f"{number}.shift"]


def trained(values: Values) -> dict[str, torch.nn.Parameter]:
    """Parameters of the same values, whose memory is not in order; some of them are frozen."""
    return {
        name: torch.nn.Parameter(
            value.clone().t().contiguous().t(), name.split(".")[-1] not in FROZEN
        )
        for name, value in values.items()
    }


def loss_of(values: Any, batch: dict[str, Any], experts: Any) -> torch.Tensor:
    """One rank's mean loss; `experts(rows, chosen)` gives the outputs. Some ranks use `extra`."""
    hidden = torch.tanh(batch["x"] @ values["inner"] * values["gain"])
    gate = (hidden @ values["router"]).softmax(-1).gather(1, batch["chosen"][:, None])
    y = hidden + gate * experts(hidden, batch["chosen"])
    if batch["extra"]:
        y = y + values["extra"].mean(0)
    return (y - batch["target"]).square().mean()


def spread_experts(values: Any, spread: Group, everyone: list[torch.Tensor]) -> Any:
    """A function like the one in `loss_of`, whose experts are on the ranks of a group."""
    mine = range(spread.index * OWN, spread.index * OWN + OWN)
    came = torch.cat([chosen[chosen // OWN == spread.index].sort().values for chosen in everyone])
    coming = [int((chosen // OWN == spread.index).sum()) for chosen in everyone]

    def experts(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        order = chosen.argsort(stable=True)
        going = torch.bincount(chosen // OWN, minlength=spread.size).tolist()
        there = exchange_in_group(rows[order], coming, going, spread)
        done = torch.zeros_like(there)
        for number in mine:
            places = (came == number).nonzero()[:, 0]
            done = done.index_copy(0, places, apply(values, number, there[places]))
        return exchange_in_group(done, going, coming, spread)[order.argsort()]

    return experts
