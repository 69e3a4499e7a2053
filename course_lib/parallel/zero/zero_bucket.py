"""One bucket of ZeRO: parameters as one flat tensor, and this rank's shard of them.

Notebook: 04 ZeRO (partition, Zero1, Zero2).
Paper: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(2020), section 5.
Costs for a bucket of S bytes: `reduce` and `gather_parameters` send (N-1)/N·S each; full gradients
are held from the first `collect` to `reduce`, a shard of S/N from there to the step.
The production version keeps the full gradients of all buckets in two buffers, used in turn.

Each bucket is padded and cut by itself, so that its reduce-scatter gives every rank its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.autograd.graph import increment_version

from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter
from course_lib.parallel.zero.guard import refuse_cast
from course_lib.parallel.zero.shard import FlatLayout, flatten


class ShardedBucket:
    """Parameters of one dtype that share their options: flat, and this rank's shard of them.

    Args:
        parameters: each once; they become views of one flat tensor, with index 0's values.
        group: the data-parallel ranks.

    Attributes:
        flat: the parameters, padded to N equal shards.
        pieces: what this rank's shard has of each parameter; the optimizer's parameters.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], group: Group) -> None:
        self.parameters = list(parameters)
        self.group = group
        self.layout: FlatLayout
        self.layout, self.flat = flatten(self.parameters, group.size)
        broadcast(self.flat, 0, group)
        self._addresses = [p.data_ptr() for p in self.parameters]
        size = self.layout.shard_size
        self.shard = self.flat[group.index * size : (group.index + 1) * size]
        self.places = self.layout.pieces(group.index)
        # `.data`: they count their own changes, and an inner optimizer may look at these.
        self.pieces = [nn.Parameter(self.shard[p.at : p.at + p.count].data) for p in self.places]
        self._versions = [p._version for p in self.parameters]
        self._full: torch.Tensor | None = None
        self._views: dict[nn.Parameter, torch.Tensor] = {}
        self._empty: dict[nn.Parameter, torch.Tensor] = {}  # views that have no gradient yet
        self._gradient: torch.Tensor | None = None

    def take_back(self) -> None:
        """Brings parameters whose data was replaced back into the flat tensor, with their values.

        `vector_to_parameters` does that, and so does `module.to`. An inner optimizer that keeps
        copies, as on the host, learns that somebody has written to the parameters.

        Raises:
            CommError: their dtype or device is another one now.
        """
        if [p._version for p in self.parameters] != self._versions:
            increment_version(self.pieces)
        views: list[torch.Tensor] = []
        for number, parameter in enumerate(self.parameters):
            if parameter.data_ptr() == self._addresses[number]:
                continue
            refuse_cast(parameter, self.flat)
            views = views or self.layout.views(self.flat)
            views[number].copy_(parameter.detach())
            parameter.data = views[number]
            increment_version(self.pieces)

    def drop(self, parameter: nn.Parameter) -> None:
        """Forgets what was averaged of one parameter's gradient."""
        for place in self.places:
            if self._gradient is not None and self.parameters[place.parameter] is parameter:
                self._gradient[place.at : place.at + place.count].zero_()

    def collect(self, parameter: nn.Parameter) -> None:
        """Moves a parameter's gradient, dense or sparse, to its place in the flat one."""
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        self._make_room()
        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        self._empty.pop(parameter, self._views[parameter]).copy_(dense)

    def reduce(self) -> None:
        """Averages what was collected, and zeros for the rest; adds to the pieces' gradients."""
        full = self._make_room()
        for view in self._empty.values():
            view.zero_()
        mine = ring_reduce_scatter(full, self.group, "avg")
        if self._gradient is None:
            self._hold(mine.clone())  # of its own: a view would keep the whole bucket alive
        else:
            self._gradient += mine
        self.drop_collected()

    def forget(self, unused: set[nn.Parameter]) -> None:
        """Leaves parameters that no rank has used without a gradient, so that they are skipped."""
        for piece, place in zip(self.pieces, self.places, strict=True):
            if self.parameters[place.parameter] in unused:
                piece.grad = None

    def gather_parameters(self) -> None:
        """Every rank gets the shards that the others have updated."""
        ring_all_gather(self.flat, self.group)
        increment_version(self.parameters)  # a backward of weights from before is refused
        self._versions = [p._version for p in self.parameters]

    def drop_collected(self) -> None:
        """Gives back the memory of the full gradients."""
        if self._full is not None:
            self.group.ledger.add_memory("gradients", -self._full.nbytes)
        self._full, self._views, self._empty = None, {}, {}

    def drop_gradient(self) -> None:
        """Gives back the memory of the shard's gradient."""
        if self._gradient is not None:
            self.group.ledger.add_memory("gradients", -self._gradient.nbytes)
        self._gradient = None
        for piece in self.pieces:
            piece.grad = None

    def _make_room(self) -> torch.Tensor:
        """Makes memory for the bucket's full gradients; only the padding is written."""
        if self._full is None:
            self._full = torch.empty_like(self.flat)
            self._full[self.layout.total :].zero_()
            views = self.layout.views(self._full)
            self._views = dict(zip(self.parameters, views, strict=True))
            self._empty = dict(self._views)
            self.group.ledger.add_memory("gradients", self._full.nbytes)
        return self._full

    def _hold(self, gradient: torch.Tensor) -> None:
        self._gradient = gradient
        self.group.ledger.add_memory("gradients", gradient.nbytes)
        for piece, place in zip(self.pieces, self.places, strict=True):
            piece.grad = gradient[place.at : place.at + place.count]


def cut(parameters: Sequence[nn.Parameter], cap: int) -> Iterator[list[nn.Parameter]]:
    """Parameters of at most `cap` bytes together, the last first, as backward reaches them.

    A parameter that is larger has a bucket of its own.
    """
    bucket: list[nn.Parameter] = []
    for parameter in reversed(parameters):
        if bucket and sum(p.nbytes for p in bucket) + parameter.nbytes > cap:
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
