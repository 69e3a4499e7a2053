"""ZeRO-1: every rank keeps the optimizer's state of one shard of the parameters only.

Notebook: 04 ZeRO (partition, Zero1); ZeRO-2 is in zero2.py.
Paper: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(2020), section 5.1.
Costs a step: a reduce-scatter of the gradients and an all-gather of the parameters, together
2(N-1)/N·S bytes a rank, as much as DDP's all-reduce. Optimizer state S·k/N instead of S·k.
The production version overlaps both with backward and forward.

The optimizer must work element by element, as SGD and Adam do: it sees pieces of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.parallel.clip_guard import ANY, BY_NORM, refuse_clipping
from course_lib.parallel.data.unused import agree_used
from course_lib.parallel.inner import OuterOptimizer
from course_lib.parallel.optimizer_probe import refuse_pieces, refuse_whole_tensor
from course_lib.parallel.scaler_guard import refuse_scaler
from course_lib.parallel.zero.clip import clip_shards
from course_lib.parallel.zero.guard import (
    missing_gradients,
    refuse_lazy,
    refuse_nothing_trained,
    refuse_other_shard,
    refuse_scaled_rows,
    refuse_thawed,
    refuse_ties,
    refuse_zeros,
    unfinished_step,
)
from course_lib.parallel.zero.module_zero_grad import follow_zero_grad
from course_lib.parallel.zero.zero_bucket import ShardedBucket, cut

CAP = 25 << 20  # bytes of a bucket, as DDP has it


class ShardedOptimizer(OuterOptimizer):
    """What ZeRO-1 and ZeRO-2 share: an optimizer class on this rank's shard of the parameters.

    Trained parameters begin with index 0's values; frozen ones and buffers are the caller's.

    Args:
        params: parameters or parameter groups, as for any optimizer; the same on every rank.
        optimizer: its class, one that works element by element.
        group: the data-parallel ranks.
        cap: bytes of a bucket; each is reduced, and gathered, by itself.
        find_unused_parameters: allow parameters without a gradient. One that another rank has a
            gradient for takes part with zeros; one that no rank has a gradient for is skipped, as
            in one process. The ranks agree on which in an all-reduce of a byte for each parameter.
        options: for the optimizer.

    Raises:
        CommError: nothing to optimize; parameters that share memory with others; an optimizer that
            needs whole tensors, which a trial finds out; in a step or a backward, a parameter got
            no gradient, or the one before it has raised.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer: Callable[..., Any],
        group: Group,
        *,
        cap: int = CAP,
        find_unused_parameters: bool = False,
        **options: Any,
    ) -> None:
        self.group = group
        self.cap = cap
        self.find_unused_parameters = find_unused_parameters
        self.buckets: list[ShardedBucket] = []
        self._used: set[nn.Parameter] = set()  # had a gradient on this rank since the last step
        self._reduced = False  # and whether gradients have been averaged since then
        self._updating = False
        self._frozen: list[nn.Parameter] = []
        self._versions: dict[nn.Parameter, int] = {}  # of those that were given since the last step
        given = [_listed(entry) for entry in params]
        refuse_lazy(f"{type(self).__name__} over {group}", _tensors(given))
        refuse_ties(f"{type(self).__name__} over {group}", _tensors(given))
        super().__init__(given, optimizer, options)
        refuse_nothing_trained(f"{type(self).__name__} over {group}", self._trained())

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as for any optimizer; makes their shard."""
        param_group = _listed(param_group)
        refuse_ties(f"{type(self).__name__} over {self.group}", _tensors([param_group]))
        super().add_param_group(param_group)
        added = self.param_groups[-1]
        self._frozen += [p for p in added["params"] if not p.requires_grad]
        kinds: dict[Any, list[nn.Parameter]] = {}
        for parameter in dict.fromkeys(p for p in added["params"] if p.requires_grad):
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        buckets = [ShardedBucket(b, self.group) for k in kinds.values() for b in cut(k, self.cap)]
        self.buckets += buckets
        self._versions |= {p: p._version for bucket in buckets for p in bucket.parameters}
        self._refuse_clipping(buckets)
        follow_zero_grad([p for bucket in buckets for p in bucket.parameters], self._drop)
        self._give_pieces([piece for bucket in buckets for piece in bucket.pieces])

    def _give_pieces(self, pieces: list[nn.Parameter]) -> None:
        asked = f"{type(self).__name__} over {self.group}"
        try:
            self._add_inner_group(pieces)
        except Exception as error:
            refuse_pieces(asked, self._make, self._options, error)
            raise
        refuse_whole_tensor(asked, self, len(self.param_groups) - 1)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this rank's shard and all-gathers the parameters. Uses the gradients up."""
        if self._updating:
            raise unfinished_step(type(self).__name__, self.group.rank)
        loss = self._begin_step(closure)
        self._look()
        for bucket in self.buckets:
            bucket.take_back()
        self._finish_gradients()
        if self.find_unused_parameters:
            self._skip_unused()
        self._updating = True
        self.inner.step()
        self._take_inner_options()
        self._drop_gradients()
        for bucket in self.buckets:
            bucket.gather_parameters()
        self._updating = False
        return loss

    def _look(self) -> None:
        """What a step finds that was not so, or could not be seen, when parameters were given."""
        asked = f"{type(self).__name__}'s step on rank {self.group.rank}"
        refuse_thawed(asked, self._frozen)
        refuse_scaled_rows(asked, [p for p, v in self._versions.items() if p._version != v])
        self._versions = {}  # once: what is written between two steps is the user's

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of the parameters and of this rank's shard.

        Raises:
            CommError: zeros are wanted for parameters that may have no gradient.
        """
        refuse_zeros(type(self).__name__, set_to_none or not self.find_unused_parameters)
        super().zero_grad(set_to_none)
        self._drop_gradients()
        self.inner.zero_grad(set_to_none)  # those of masters, if it has any

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of the state, and which part that is."""
        self._give_inner_options()
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
        refuse_other_shard(state_dict, self.group)
        self.inner.load_state_dict(state_dict["inner"])
        self._take_inner_options()

    def shard(self) -> list[nn.Parameter]:
        """This rank's pieces of the parameters, with the gradients that have been averaged so far.

        A piece is a view of its parameter, and every element is on one rank: squares of norms add
        up over the ranks.
        """
        return [piece for bucket in self.buckets for piece in bucket.pieces]

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        """Averages gradients, if that is still to be done, and scales them down together.

        Call it between the last backward and the step, on every rank: an all-reduce of 8 bytes.

        Args:
            max_norm: the largest norm of all gradients together that stays as it is.

        Returns:
            The norm before clipping, float64, the same on every rank.

        Raises:
            CommError: a parameter got no gradient.
        """
        self._finish_gradients()
        self._reduced = True
        averages = (piece.grad for piece in self.shard() if piece.grad is not None)
        return clip_shards(averages, max_norm, self.group)

    def state_bytes(self) -> int:
        """Bytes of optimizer state on this rank, scalars left out."""
        return sum(tensor.nbytes for tensor in self._inner_state())

    # --- gradients -------------------------------------------------------------------------------
    def _finish_gradients(self) -> None:
        """A step is about to be made: every piece of this rank must have its gradient."""
        raise NotImplementedError

    def _refuse_clipping(self, buckets: Sequence[ShardedBucket]) -> None:
        """Torch sees a norm of this rank alone, in parameters and in pieces."""
        name = type(self).__name__
        why = f"each rank would clip by another norm: call clip_grad_norm of the {name}"
        own = f"gradients of this rank alone, or none: {name} averages them over {self.group}"
        parameters = [p for bucket in buckets for p in bucket.parameters]
        refuse_clipping(self, parameters, ANY, own, why)
        refuse_scaler(self, parameters, own)
        pieces = [piece for bucket in buckets for piece in bucket.pieces]
        refuse_clipping(self, pieces, BY_NORM, f"pieces, whose other parts {self.group} has", why)

    def _trained(self) -> list[nn.Parameter]:
        return [p for bucket in self.buckets for p in bucket.parameters]

    def _skip_unused(self) -> None:
        trained = self._trained()
        used = agree_used([p in self._used for p in trained], self.group)
        unused = {p for p, anywhere in zip(trained, used, strict=True) if not anywhere}
        for bucket in self.buckets:
            bucket.forget(unused)

    def _refuse_missing(self, missing: Sequence[nn.Parameter]) -> None:
        """Ends a backward or a step that had no gradient for some parameters, unless allowed."""
        if missing and not self.find_unused_parameters:
            raise missing_gradients(type(self).__name__, missing, self._trained(), self.group.rank)

    def _drop(self, parameter: nn.Parameter) -> None:
        """The user has forgotten this gradient."""
        self._used.discard(parameter)
        for bucket in self.buckets:
            bucket.drop(parameter)

    def _drop_gradients(self) -> None:
        self._used.clear()
        self._reduced = False
        for bucket in self.buckets:
            bucket.drop_collected()
            bucket.drop_gradient()


class Zero1(ShardedOptimizer):
    """Wraps an optimizer class: the same updates, with 1/N of the state on each rank.

    Gradients must be this rank's own, not yet synchronised: do not wrap the model in DDP as well.
    They are whole until the step, which reduces them bucket by bucket and frees them.
    """

    def reduce_gradients(self) -> None:
        """Does now what the step would do first, so that `shard()` can be clipped before it.

        Averages all gradients: (N-1)/N·S bytes sent. The next call before a step adds to them.

        Raises:
            CommError: a parameter got no gradient since the last step or call.
        """
        self._finish_gradients()
        self._reduced = True

    def _finish_gradients(self) -> None:
        if self._reduced and all(p.grad is None for p in self._trained()):
            return
        self._refuse_missing([p for p in self._trained() if p.grad is None])
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                if parameter.grad is not None:
                    self._used.add(parameter)
                    bucket.collect(parameter)
            bucket.reduce()


def _listed(entry: Any) -> Any:
    """A parameter, or a group whose parameters can be looked at more than once."""
    if not isinstance(entry, dict) or isinstance(entry["params"], torch.Tensor):
        return entry
    return {**entry, "params": list(entry["params"])}


def _tensors(entries: list[Any]) -> Iterator[torch.Tensor]:
    """The parameters of entries; those with names are pairs."""
    for entry in entries:
        given = entry["params"] if isinstance(entry, dict) else entry
        for one in given if isinstance(given, list) else [given]:
            yield one[1] if isinstance(one, tuple) else one
