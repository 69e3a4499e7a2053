"""What DDP refuses: steps and backwards after which replicas would no longer be equal.

Notebook: 02 Data parallel (what the wrappers refuse).
Source: the error of torch's DistributedDataParallel about find_unused_parameters.
Costs an entry in a dict for each gradient, and a look at it for each step; no communication.
The production version (DDP) says in the next forward that gradients were missing, and does not
look at optimizer steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.comm import CommError
from course_lib.parallel.guard import guard_steps, refuse_missing
from course_lib.parallel.one_wrapper import refuse_cut, refuse_strangers
from course_lib.parallel.uncopied import refuse_max_norm, refuse_unsent

WHY_OVERLAP = "the other ranks may wait for it: use BucketedDDP, or freeze what is not used"
WHY_BUCKETED = (
    "the others may have one: freeze what is never used, or pass find_unused_parameters=True"
)


WHY_FROZEN = (
    "it was frozen since the wrapper was made: make it again, or pass find_unused_parameters=True"
)


def refuse_unlike(asked: str, module: nn.Module, names: Mapping[nn.Parameter, str]) -> None:
    """Stops the making of replicas that would not be alike, or do not stay so.

    Args:
        asked: the first line of the error.
        module: to be copied.
        names: those of its parameters that are to be equal.

    Raises:
        CommError: FSDP has cut a parameter; a tensor has no shape yet; a buffer is sparse; an
            embedding scales the rows down that this rank's tokens are in.
    """
    refuse_cut(asked, list(names))
    refuse_unsent(asked, {**{n: p for p, n in names.items()}, **dict(module.named_buffers())})
    refuse_max_norm(asked, module)


def refused_pickle(name: str) -> CommError:
    """The error for `torch.save` of a wrapper."""
    return CommError(
        f"a pickle of a {name}",
        "a group of ranks that live now, and hooks on parameters",
        "save its state_dict(), which has the module's own names, or its `module`",
    )


def refuse_cast(
    parameter: nn.Parameter, flat: torch.Tensor, names: Mapping[nn.Parameter, str]
) -> None:
    """Stops gradients of another dtype or device than their bucket has."""
    if (parameter.dtype, parameter.device) != (flat.dtype, flat.device):
        now, then = (f"{t.dtype} on {t.device}" for t in (parameter, flat))
        raise CommError(
            f"the average of the gradient of {names[parameter]} in a bucket of {then}",
            f"a gradient of {now}",
            "cast or move the module first, and make the wrapper of it then",
        )


def refuse_taken(parameter: nn.Parameter, name: str, rank: int) -> None:
    """Stops a backward in which a hook on the parameter has used its gradient up.

    Raises:
        CommError: there is none left to average.
    """
    if parameter.grad is None:
        raise CommError(
            f"the average of the gradient of {name}",
            f"none on rank {rank}: a hook on the parameter, which comes first, has taken it away",
            "what it did was done with this rank's alone, and replicas would part: update, and "
            "forget gradients, after the backward",
        )


def refuse_layout(
    parameter: nn.Parameter, names: Mapping[nn.Parameter, str], *, sparse: bool = False
) -> None:
    """Stops the averaging of a gradient that is sparse, or is not though it was announced so.

    Raises:
        CommError: it is.
    """
    if parameter.grad is not None and (parameter.grad.layout is torch.strided) is sparse:
        how = "by its rows" if sparse else "in one all-reduce"
        raise CommError(
            f"the average of the gradient of {names[parameter]} {how}",
            f"a gradient of layout {parameter.grad.layout}",
            "BucketedDDP averages sparse gradients of an nn.Embedding or nn.EmbeddingBag made with "
            "sparse=True, and no other class does; such a table is in no other layer",
        )


class ReplicaGuard:
    """Knows which gradients no other rank has seen, so that no optimizer uses them.

    Args:
        owner: the wrapper; the guard goes with it, and does not keep it alive.
        names: its parameters, and their names.
        rank: for errors.

    Raises (in an optimizer's step):
        CommError: gradients of this rank alone would be used, those of parameters that were added
            or unfrozen later included.
    """

    def __init__(self, owner: nn.Module, names: Mapping[nn.Parameter, str], rank: int) -> None:
        self._names, self._rank = names, rank
        left_alone = set(owner.parameters()) - set(names)
        self._known = left_alone | {p for p in names if p.requires_grad}
        # Gradients of this rank alone; of those that are watched, the version that backward left.
        self._local: dict[nn.Parameter, int | None] = {}
        self._averaged: set[nn.Parameter] = set()  # in a backward of the wrapper, not by hand
        guard_steps(owner, self._check_step)

    def add(self, parameter: nn.Parameter) -> None:
        """A gradient has been accumulated, which no other rank has seen."""
        self._local[parameter] = None

    def begin(self) -> None:
        """A backward begins. A gradient that was forgotten is no average any more."""
        self._averaged = {p for p in self._averaged if p.grad is not None}

    def watch(self, parameter: nn.Parameter) -> None:
        """The same; `refuse_changed` will know if it is not sent as it is now."""
        assert parameter.grad is not None
        self._local[parameter] = parameter.grad._version

    def clear(self) -> None:
        """All gradients are averaged."""
        self._local.clear()
        self._averaged = {p for p in self._names if p.grad is not None}

    def refuse_changed(self, parameter: nn.Parameter) -> None:
        """Stops the averaging of a gradient that was changed since the backward, as by clipping."""
        version = self._local.get(parameter)
        if parameter.grad is not None and version not in (None, parameter.grad._version):
            raise CommError(
                f"synchronize() on rank {self._rank}",
                f"the gradient of {self._names[parameter]}, changed since the backward",
                "what depends on all gradients, such as clipping, comes after synchronize()",
            )

    def refuse_missing(self, missing: Iterable[nn.Parameter], why: str) -> None:
        """Stops a backward that gave some parameters no gradient."""
        missing = list(missing)
        if not all(p.requires_grad for p in missing):
            why = WHY_FROZEN
        refuse_missing([self._names[p] for p in missing], self._rank, why)

    def _check_step(self, optimizer: Optimizer, touched: list[nn.Parameter]) -> None:
        later = [p for p in touched if p not in self._known and p.grad is not None]
        if later:
            raise CommError(
                "an optimizer's step",
                f"on rank {self._rank} a gradient of {self._names.get(later[0], 'a parameter')}, "
                "which was frozen or not there when the wrapper was made",
                "it was not averaged: make the wrapper again after a change of what is trained",
            )
        refuse_strangers(optimizer, touched, self._rank)
        self._refuse_local([p for p in touched if p in self._names and p.grad is not None])

    def _refuse_local(self, touched: list[nn.Parameter]) -> None:
        local = [p for p in touched if p in self._local]
        if local:
            raise CommError(
                "an optimizer's step",
                f"on rank {self._rank} the gradient of {self._names[local[0]]} and of "
                f"{len(local) - 1} others, which no other rank has seen",
                "replicas would part: the last backward of a window is outside no_sync(), and "
                "NaiveDDP's is followed by synchronize()",
            )
        by_hand = [p for p in touched if p not in self._averaged]
        if by_hand:
            raise CommError(
                "an optimizer's step",
                f"on rank {self._rank} a gradient of {self._names[by_hand[0]]} that no backward of "
                "this wrapper has averaged",
                "it was assigned, was there before the wrapper, or its hook comes before the "
                "wrapper's: call backward(), and step after it",
            )
