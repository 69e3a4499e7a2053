"""Parameters in one flat buffer that comes and goes, and the 1/N of it that a rank keeps.

Notebook: 04 ZeRO (FSDPUnit).
Paper: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (2023),
sections 3.2 and 4.2.
Costs for S bytes: an all-gather for each `gather`, a reduce-scatter for each `reduce`, (N-1)/N·S
each; with replicas, an all-reduce of S/N among them. A packed gather costs what its messages cost.
The production version (FSDP2) copies between the flat buffer and parameters that keep their shape.

The trick is in the storage. Each parameter is a view of one flat buffer whenever it is computed
with, and what autograd keeps for the backward points into that buffer as well. `free` gives the
memory back without freeing the tensor (its storage shrinks to nothing), and `gather` fills it
again, so everything that points there finds the same values. Between the two, a parameter is the
piece of it that lies in this rank's shard: a row of numbers, which any element-wise optimizer
takes.

Whoever computes with a weight that is gone would read memory that is nobody's. Autograd compares
the version of what it has kept with the version now, so `free` gives each parameter another version
and `gather` gives the old one back: between the two, autograd raises an error and reads nothing. A
version that has changed meanwhile is an optimizer's step, and stays changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, Work, all_gather, all_reduce, broadcast, pairwise_reduce_scatter
from course_lib.parallel.guard import book_until_gone
from course_lib.parallel.zero.precision import Pack, Precision, Unpack
from course_lib.parallel.zero.shard import FlatLayout

Part = Callable[[nn.Parameter], torch.Tensor | None]


class FlatShard:
    """Parameters of one dtype and device in one flat tensor, of which this rank keeps 1/N.

    Args:
        parameters: each once; all are trained, or none is; all are packed, or none is.
        group: the ranks that share the shards.
        replicas: the ranks that have the same shard, for hybrid sharding.
        precision: dtypes of what is gathered and reduced, and how it is packed.

    Attributes:
        shard: this rank's part, one dimension; the parameters' pieces are views of it.
        unsynchronised: whether the gradients are full and of this rank alone.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        group: Group,
        replicas: Group | None,
        precision: Precision,
    ) -> None:
        self.parameters, self.group, self.replicas = parameters, group, replicas
        self.trained = parameters[0].requires_grad
        self.layout = FlatLayout([p.shape for p in parameters], group.size)
        self.pieces = {piece.parameter: piece for piece in self.layout.pieces(group.index)}
        first = parameters[0]
        self._reduce_dtype = precision.reduces(first.dtype)
        self._pack = precision.pack if precision.packs(first) else None
        self._arriving: tuple[torch.Tensor, Unpack] | None = None  # packed, and how to read it
        size = self.layout.shard_size
        self.shard = first.new_zeros(size, requires_grad=False)
        self._full = first.new_empty(
            self.layout.padded, dtype=precision.computes(first.dtype), requires_grad=False
        )
        self._bytes = self._full.nbytes
        self._views = self.layout.views(self._full)
        self.unsynchronised = False
        self._kept: dict[nn.Parameter, torch.Tensor] = {}
        self._reducing: tuple[torch.Tensor, int, Work] | None = None
        self._places: list[int] = []  # where the pieces lie in memory
        self._whole_versions: list[int] = []  # what autograd has kept of whole parameters
        self._cut_versions: list[int] = []
        self._shown: list[tuple[int, int]] = []  # place and version of the whole parameters
        self._take(size)

    def _take(self, size: int) -> None:
        """Takes this rank's part of the parameters, as index 0 has them."""
        whole = self.shard.new_zeros(self.layout.padded)
        for parameter, view in zip(self.parameters, self.layout.views(whole), strict=True):
            view.copy_(parameter.detach())
        for group in (self.group, self.replicas):
            if group is not None:
                broadcast(whole, 0, group)
        self.shard.copy_(whole[self.group.index * size :][:size])
        book_until_gone(self, self.group, "parameters", self.shard.nbytes)
        self._full.untyped_storage().resize_(0)
        self.show_pieces()

    # --- parameters ------------------------------------------------------------------------------
    def gather(self) -> Work:
        """Begins to collect all shards; `show_full` may be called when they are here."""
        if self._pack is not None:
            return self._gather_packed(self._pack)
        self._make_room()
        return all_gather(self._full, self.shard.to(self._full.dtype), self.group, async_op=True)

    def _gather_packed(self, pack: Pack) -> Work:
        mine = [self.piece(self.shard, number) for number in range(len(self.parameters))]
        parts, unpack = pack(mine, self.group)
        padding = self.layout.shard_size - sum(len(part) for part in parts)
        sent = torch.cat([*parts, parts[0].new_zeros(padding)])
        message = sent.new_empty(self.layout.padded)
        self._arriving = message, unpack
        self.group.ledger.add_memory("communication buffers", message.nbytes)
        return all_gather(message, sent, self.group, async_op=True)

    def _make_room(self) -> None:
        self._full.untyped_storage().resize_(self._bytes)
        self.group.ledger.add_memory("parameters", self._bytes)

    def show_full(self) -> None:
        """Makes each parameter a view of the gathered buffer, in its full shape."""
        if self._arriving is not None:
            self._read_message(*self._arriving)
            self._arriving = None
        for parameter, view in zip(self.parameters, self._views, strict=True):
            parameter.data = view
        seen = zip(self.parameters, self._whole_versions, self._cut_versions, strict=True)
        self._set_versions([w if p._version == cut else p._version for p, w, cut in seen])
        self._shown = [(p.data_ptr(), p._version) for p in self.parameters]

    def _set_versions(self, versions: Sequence[int]) -> None:
        counters = tuple(self.parameters), tuple(versions)
        torch._C._autograd._unsafe_set_version_counter(*counters)  # as FSDP2 does

    def _read_message(self, message: torch.Tensor, unpack: Unpack) -> None:
        self._make_room()
        packed = self.layout.views(message)
        for number, (view, data) in enumerate(zip(self._views, packed, strict=True)):
            view.copy_(unpack(number, data))
        self.group.ledger.add_memory("communication buffers", -message.nbytes)

    def show_pieces(self) -> None:
        """Makes each parameter its piece in this rank's shard, possibly an empty one."""
        for number, parameter in enumerate(self.parameters):
            parameter.data = self.piece(self.shard, number)
        self._places = [p.data_ptr() for p in self.parameters]
        self._whole_versions = [p._version for p in self.parameters]
        self._cut_versions = [version + 1 for version in self._whole_versions]
        self._set_versions(self._cut_versions)

    def changed_since_cut(self) -> nn.Parameter | None:
        """A parameter that is not what `show_pieces` has left: moved, cast, frozen or unfrozen."""
        for parameter, place in zip(self.parameters, self._places, strict=True):
            if parameter.data_ptr() != place or parameter.requires_grad is not self.trained:
                return parameter
        return None

    def written_since_shown(self) -> bool:
        """Whether somebody has written to a whole parameter, or replaced it."""
        return self._shown != [(p.data_ptr(), p._version) for p in self.parameters]

    def overlaps(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the gathered buffer, which comes and goes."""
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return False  # of vmap or grad: it has no memory of its own
        return tensor.untyped_storage()._cdata == self._full.untyped_storage()._cdata

    def free(self) -> None:
        """Gives the buffer's memory back."""
        self.show_pieces()
        self._full.untyped_storage().resize_(0)
        self.group.ledger.add_memory("parameters", -self._bytes)

    def piece(self, flat: torch.Tensor, number: int) -> torch.Tensor:
        """What this rank has of parameter `number`, in a flat tensor of a shard's size."""
        place = self.pieces.get(number)
        return flat[place.at : place.at + place.count] if place else flat[:0]

    # --- gradients -------------------------------------------------------------------------------
    def begin_backward(self) -> None:
        """Makes room for full gradients, and keeps aside what this rank's shard already has.

        Full gradients of backwards that did not synchronise stay, and more is added to them.
        """
        if self.unsynchronised and any(p.grad is not None for p in self.parameters):
            return
        self.unsynchronised, self._kept_aside = False, True
        self._kept = {p: p.grad for p in self.parameters if p.grad is not None}
        for parameter in self.parameters:
            parameter.grad = None

    def reduce(self) -> None:
        """Begins to average the full gradients, of which this rank gets its shard."""
        full = self._full.new_empty(self.layout.padded, dtype=self._reduce_dtype)
        full[self.layout.total :].zero_()
        for parameter, view in zip(self.parameters, self.layout.views(full), strict=True):
            grad = parameter.grad
            parameter.grad = None
            if grad is None:
                view.zero_()
            else:
                view.copy_(grad.to_dense() if grad.is_sparse else grad)
            del grad  # its memory is wanted for the messages
        self.unsynchronised = False
        self.group.ledger.add_memory("gradients", full.nbytes)
        mine = torch.empty_like(self.shard)
        work = pairwise_reduce_scatter(mine, full, self.group, "avg")
        self._reducing = mine, full.nbytes, work

    def finish_reduce(self) -> None:
        """Waits for the averages and adds them to the gradients of this rank's pieces."""
        if self._reducing is None:
            return
        mine, held, work = self._reducing
        self._reducing = None
        work.wait()
        self._kept_aside = False
        self.group.ledger.add_memory("gradients", -held)
        if self.replicas is not None:
            all_reduce(mine, self.replicas, "avg")
        for number, parameter in enumerate(self.parameters):
            piece, kept = self.piece(mine, number), self._kept.get(parameter)
            parameter.grad = piece if kept is None else kept.add_(piece)

    def reduced(self) -> bool:
        """Whether the averages are here, and no further collective is needed."""
        return (
            self.replicas is None
            and self._reducing is not None
            and self._reducing[2].is_completed()
        )

    def keep_local(self) -> None:
        """Leaves full gradients of this rank alone in place, for later backwards to add to."""
        self.unsynchronised, self._kept_aside = True, False

    def abandon(self) -> None:
        """Takes back what `begin_backward` has kept aside; averages on their way do not count."""
        if self._kept_aside:
            for parameter in self.parameters:
                parameter.grad = self._kept.get(parameter)
        self._kept_aside = False

    def drop_reduce(self) -> None:
        """Waits for averages that nobody wants any more."""
        if self._reducing is not None:
            _, held, work = self._reducing
            self._reducing = None
            work.wait()
            self.group.ledger.add_memory("gradients", -held)

    def forget(self, parameter: nn.Parameter) -> None:
        """Takes back the zeros that the last reduce gave a parameter which no rank has used."""
        parameter.grad = self._kept.get(parameter)

    # --- the whole -------------------------------------------------------------------------------
    def whole(self, part: Part) -> dict[nn.Parameter, torch.Tensor]:
        """One tensor per parameter for which any rank has a part; collective."""
        mine = torch.zeros_like(self.shard)
        present = []
        for number, parameter in enumerate(self.parameters):
            given = part(parameter)
            present.append(given is not None)
            if given is not None:
                self.piece(mine, number).copy_(given)
        flat = mine.new_empty(self.layout.padded)
        all_gather(flat, mine, self.group)
        views = zip(self.parameters, self.layout.views(flat.cpu()), present, strict=True)
        return {parameter: view.clone() for parameter, view, here in views if here}

    def load(self, full: Sequence[torch.Tensor]) -> None:
        """Copies this rank's pieces out of full tensors, one for each parameter."""
        for number, (parameter, tensor) in enumerate(zip(self.parameters, full, strict=True)):
            place = self.pieces.get(number)
            begin, count = (place.begin, place.count) if place else (0, 0)
            parameter.copy_(tensor.reshape(-1)[begin : begin + count])
