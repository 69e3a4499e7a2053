"""ZeRO-1: every rank keeps the optimizer's state of one shard of the parameters only.

Notebook: 04 ZeRO (Zero1).
Paper: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(2020), section 5.1.
Costs a step: a reduce-scatter of the gradients and an all-gather of the parameters, together
2(N-1)/N·S bytes a rank, as much as DDP's all-reduce. Optimizer state S·k/N instead of S·k.
The production version overlaps both with backward and forward, and gathers in buckets.

The optimizer must work element by element, as SGD and Adam do: it sees pieces of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group, broadcast, ring_all_gather, ring_reduce_scatter
from course_lib.parallel.shard import FlatLayout, flatten

Parameters = Sequence[nn.Parameter]


class _FlatGroup:
    """Parameters of one dtype that share their options: flat, and this rank's shard of them."""

    def __init__(self, parameters: Parameters, group: Group) -> None:
        self.parameters = list(parameters)
        self.group = group
        self.layout: FlatLayout
        self.layout, self.flat = flatten(self.parameters, group.size)
        broadcast(self.flat, 0, group)
        size = self.layout.shard_size
        self.shard = self.flat[group.index * size : (group.index + 1) * size]
        self.places = self.layout.pieces(group.index)
        self.pieces = [nn.Parameter(self.shard[p.at : p.at + p.count]) for p in self.places]

    def reduce_gradients(self) -> None:
        """Averages the gradients; afterwards each piece has its own, and no parameter has one."""
        full = torch.zeros_like(self.flat)
        for parameter, view in zip(self.parameters, self.layout.views(full), strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
            parameter.grad = None
        with self.group.ledger.hold("gradients", full.nbytes):
            mine = ring_reduce_scatter(full, self.group, "avg").clone()
        for piece, place in zip(self.pieces, self.places, strict=True):
            piece.grad = mine[place.at : place.at + place.count]

    def gather_parameters(self) -> None:
        """Every rank gets the shards that the others have updated."""
        ring_all_gather(self.flat, self.group)


class Zero1(torch.optim.Optimizer):
    """Wraps an optimizer class: the same updates, with 1/N of the state on each rank.

    Gradients must be this rank's own, not yet synchronised: do not wrap the model in DDP as well.

    Args:
        params: parameters or parameter groups, as for any optimizer; the same on every rank.
        optimizer: its class, one that works element by element.
        group: the data-parallel ranks.
        options: for the optimizer.

    Raises:
        CommError: nothing to optimize.
    """

    def __init__(
        self, params: Iterable[Any], optimizer: Callable[..., Any], group: Group, **options: Any
    ) -> None:
        self.group = group
        self._make = optimizer
        self._options = options
        self._flat: list[list[_FlatGroup]] = []
        self.inner: Any = None
        super().__init__(params, options)
        if not any(self._flat):
            raise CommError(
                f"{type(self).__name__} over {group}",
                "no parameter that needs a gradient",
                "there is nothing to keep a state for",
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as for any optimizer; makes their shard."""
        super().add_param_group(param_group)
        added = self.param_groups[-1]
        kinds: dict[Any, list[nn.Parameter]] = {}
        for parameter in dict.fromkeys(p for p in added["params"] if p.requires_grad):
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        flat_groups = [_FlatGroup(members, self.group) for members in kinds.values()]
        self._flat.append(flat_groups)
        own = {key: value for key, value in added.items() if key != "params"}
        pieces = {"params": [p for flat in flat_groups for p in flat.pieces], **own}
        if self.inner is None:
            self.inner = self._make([pieces], **self._options)
        else:
            self.inner.add_param_group(pieces)
        for key, value in self.inner.param_groups[-1].items():
            added.setdefault(key, value)  # defaults of its class, which a schedule reads here

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduce-scatters the gradients, updates this rank's shard, all-gathers the parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for outer, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            # A learning-rate schedule writes into our groups; the shard's optimizer must see it.
            inner.update({key: value for key, value in outer.items() if key != "params"})
        for flat in self._all():
            flat.reduce_gradients()
        self.inner.step()
        for flat in self._all():
            flat.gather_parameters()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of the parameters and of the pieces."""
        super().zero_grad(set_to_none)
        self.inner.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of the state, and which part that is."""
        return {
            "inner": self.inner.state_dict(),
            "index": self.group.index,
            "size": self.group.size,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what the same rank of the same number of ranks has saved.

        Raises:
            CommError: it is another rank's part, or of another number of ranks.
        """
        found = (state_dict["index"], state_dict["size"])
        if found != (self.group.index, self.group.size):
            raise CommError(
                f"optimizer state for index {self.group.index} of {self.group.size}",
                f"the state of index {found[0]} of {found[1]}",
                "each rank has its own shard; a checkpoint that is resharded goes over the disk",
            )
        self.inner.load_state_dict(state_dict["inner"])

    def state_bytes(self) -> int:
        """Bytes of optimizer state on this rank, scalars left out."""
        tensors = [t for state in self.inner.state.values() for t in state.values()]
        with suppress(AttributeError):
            return sum(t.nbytes for t in tensors if t.dim())
        return 0

    def _all(self) -> list[_FlatGroup]:
        return [flat for flats in self._flat for flat in flats]
