"""What each parallelism holds of each parameter, as boxes; with it the optimizer's state, by name.

Notebook: 11 Distributed checkpoint (load_resharded: moments by index, padding loaded as data).
Source: get_optimizer_state_dict of torch.distributed.checkpoint, which names states as well.
Costs nothing; no communication.
The production version asks each DTensor for its placement.

Parameters are named as in the whole model, states as their parameter and what they are, so that a
checkpoint does not show how it was trained. A tied weight is under each of its names, since a
pipeline has two copies of it. Padding is in no box, and so in no file.

One cut may follow another: FSDP and ZeRO flatten what tensor parallelism has left a rank, a box of
the whole, and cut that. A stretch of it is boxes of the part, moved to where the part lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from course_lib.checkpoint.boxes import Box, boxes_of_range
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.manifest import DTYPES, Manifest
from course_lib.checkpoint.plan import Piece
from course_lib.comm import Group
from course_lib.parallel import FSDP
from course_lib.parallel.tensor.tensor_parallel import own_range
from course_lib.parallel.zero.zero1 import ShardedOptimizer


@dataclass(frozen=True)
class Held:
    """What this rank has of one tensor of the whole model.

    Attributes:
        name: in the whole model.
        shape: in the whole model.
        boxes: the parts that it has, in the order in which they lie in `tensor`.
        tensor: the parameter, piece of one, or buffer; an optimizer's states are cut like it.
        copy: it is loaded here, and saved by other ranks, who may have cut the same elements by
            other borders. Ranks whose boxes are the same need not say so: one of them writes.
    """

    name: str
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]
    tensor: torch.Tensor
    copy: bool = False

    def cut(self, begin: int, count: int, tensor: torch.Tensor) -> Held:
        """A stretch of the one box that this is, flattened; `tensor` has its elements."""
        (part,) = self.boxes
        if not part.count:
            return replace(self, tensor=tensor)  # nothing can be cut: every rank has all of it
        inner = boxes_of_range(part.sizes, begin, begin + count)
        return replace(self, boxes=tuple(b.moved(part.offsets) for b in inner), tensor=tensor)

    def pieces(self, name: str, values: torch.Tensor) -> list[Piece]:
        """Pieces that share memory with `values`, which are cut as this is."""
        if len(self.boxes) == 1:
            return [Piece(name, self.shape, self.boxes[0], values.view(self.boxes[0].sizes))]
        counts = [box.count for box in self.boxes]
        parts = zip(self.boxes, values.split(counts), strict=True)
        return [Piece(name, self.shape, box, part.view(box.sizes)) for box, part in parts]


def _state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name.

    Raises:
        CheckpointError: the module also keeps what is no tensor.
    """
    state = module.state_dict(keep_vars=True)
    for name, value in state.items():
        if not torch.is_tensor(value):
            raise CheckpointError(
                f"to hold the state of a {type(module).__name__}",
                f"{name}, a {type(value).__name__} of its get_extra_state",
                "a checkpoint has tensors by name: keep it in a buffer, or as a part of the job",
            )
    return state


def hold_whole(module: nn.Module) -> list[Held]:
    """All parameters and buffers of a module that is not cut: DDP's, ZeRO's, a pipeline stage's.

    Raises:
        CheckpointError: FSDP has cut it.
    """
    if any(isinstance(part, FSDP) for part in module.modules()):
        raise CheckpointError(
            f"the whole parameters of a {type(module).__name__}",
            "FSDP in it, under which each rank has pieces",
            "hold_fsdp says where they belong",
        )
    return [_whole(n, t, t.shape) for n, t in _state_of(module).items()]


def _whole(name: str, tensor: torch.Tensor, shape: Sequence[int]) -> Held:
    return Held(name, tuple(shape), (Box.whole(shape),), tensor)


def hold_tensor_parallel(
    module: nn.Module, shapes: Mapping[str, Sequence[int]], group: Group
) -> list[Held]:
    """Parameters that `parallel.tensor` has cut, so that each rank has some rows or columns.

    A dim that is shorter than in the whole model is cut: as `own_range` does, or, if the ranks'
    parts are more than the whole, into parts that neighbours share (key-value heads).

    Args:
        module: cut.
        shapes: of the same tensors in the whole model.
        group: the ranks that share it.

    Raises:
        CheckpointError: a name is not in the whole model, or a part is none of the above.
    """
    return [
        _part(name, tensor, tensor.shape, shapes, group)
        for name, tensor in _state_of(module).items()
    ]


def _part(
    name: str,
    tensor: torch.Tensor,
    mine: Sequence[int],
    shapes: Mapping[str, Sequence[int]],
    group: Group,
) -> Held:
    """Where a part of shape `mine` is in the whole."""
    whole, mine = tuple(shapes.get(name, ())), tuple(mine)
    dims = [d for d in range(len(whole)) if whole[d] != mine[d]] if _alike(whole, mine) else []
    ranges = {dim: _cut_range(whole[dim], mine[dim], group) for dim in dims}
    offsets = tuple(ranges[d].start if d in ranges else 0 for d in range(len(mine)))
    if not _alike(whole, mine) or any(len(own) != mine[dim] for dim, own in ranges.items()):
        raise CheckpointError(
            f"what rank {group.rank} has of {name}, shape {whole or 'unknown'}",
            f"shape {mine}, {group}",
            "each dim is whole, cut evenly, or cut into parts that neighbours share",
        )
    return Held(name, whole, (Box(offsets, mine),), tensor)


def _alike(whole: Sequence[int], mine: Sequence[int]) -> bool:
    return len(whole) == len(mine) and all(m <= w for m, w in zip(mine, whole, strict=True))


def _cut_range(count: int, mine: int, group: Group) -> range:
    """Which of `count` rows this rank has, if it has `mine`."""
    even = own_range(count, group)
    if len(even) == mine or not mine or count % mine or group.size % (count // mine):
        return even
    start = group.index * (count // mine) // group.size * mine  # fewer parts than ranks
    return range(start, start + mine)


def hold_fsdp(
    model: FSDP, shapes: Mapping[str, Sequence[int]] | None = None, group: Group | None = None
) -> list[Held]:
    """This rank's pieces of the parameters of an FSDP model, and what is whole, such as buffers.

    Args:
        model: outside of forward and backward; what a forward has left whole is freed.
        shapes: as for `hold_tensor_parallel`, if that had cut the model before.
        group: the same.
    """
    model.free()
    names: dict[torch.Tensor, list[str]] = {}
    for name, tensor in _state_of(model.module).items():
        names.setdefault(tensor, []).append(name)
    held = []
    for shard in (shard for unit in model.units for shard in unit.shards):
        for number, parameter in enumerate(shard.parameters):
            shape, place = tuple(shard.layout.shapes[number]), shard.pieces.get(number)
            begin, count = (place.begin, place.count) if place else (0, 0)
            for name in names.pop(parameter, []):
                part = _whole(name, parameter, shape)
                if shapes is not None and group is not None:
                    part = _part(name, parameter, shape, shapes, group)
                held.append(part.cut(begin, count, parameter))
    return held + [_whole(n, b, b.shape) for b, its_names in names.items() for n in its_names]


def hold_stage(
    stage: nn.Module, shapes: Mapping[str, Sequence[int]], group: Group
) -> tuple[nn.Module, list[Held]]:
    """A stage without its wrapper, and what this rank holds of it.

    Args:
        stage: cut by tensor parallelism, and then perhaps by FSDP.
        shapes: as for `hold_tensor_parallel`.
        group: the same.
    """
    if isinstance(stage, FSDP):
        return stage.module, hold_fsdp(stage, shapes, group)
    return stage, hold_tensor_parallel(stage, shapes, group)


def hold_zero(module: nn.Module, optimizer: ShardedOptimizer) -> list[Held]:
    """The pieces of parameters whose state this rank keeps for ZeRO-1 or ZeRO-2.

    Use it with `optimizer.inner`; the parameters themselves are whole (`hold_whole`).
    """
    return cut_by_zero(hold_whole(module), optimizer)


def cut_by_zero(held: Iterable[Held], optimizer: ShardedOptimizer) -> list[Held]:
    """The same for parameters that are cut already.

    Args:
        held: among others what the optimizer works on, one box each.
        optimizer: whose pieces.
    """
    by_parameter: dict[torch.Tensor, list[Held]] = {}
    for h in held:
        by_parameter.setdefault(h.tensor, []).append(h)
    return [
        h.cut(place.begin, place.count, piece)
        for bucket in optimizer.buckets
        for place, piece in zip(bucket.places, bucket.pieces, strict=True)
        for h in by_parameter[bucket.parameters[place.parameter]]
    ]


# --- pieces of what is held ----------------------------------------------------------------------
def model_pieces(held: Iterable[Held]) -> list[Piece]:
    """Parameters and buffers, to be saved or filled: `model.NAME`."""
    return [p for h in held for p in h.pieces(f"model.{h.name}", h.tensor.detach())]


def optimizer_pieces(held: Iterable[Held], optimizer: torch.optim.Optimizer) -> list[Piece]:
    """The optimizer's state, to be saved or filled: `optimizer.NAME.exp_avg`, for instance.

    A state is cut as its parameter, or has no dim, as a count of steps, and is the same wherever it
    is.

    Raises:
        CheckpointError: a state is of another shape, or is no tensor.
    """
    pieces = []
    for h in held:
        for key, value in optimizer.state.get(h.tensor, {}).items():
            name = f"optimizer.{h.name}.{key}"
            if torch.is_tensor(value) and value.dim() == 0 != h.tensor.dim():
                pieces.append(Piece(name, (), Box((), ()), value))
            elif torch.is_tensor(value) and value.shape == h.tensor.shape:
                pieces += h.pieces(name, value)
            elif value is not None:
                raise CheckpointError(
                    f"the part of {name} that this rank has",
                    f"{tuple(value.shape) if torch.is_tensor(value) else value!r} for a parameter "
                    f"of shape {tuple(h.tensor.shape)}",
                    "only states that are like their parameter, or have no dim, can be cut like it",
                )
    return pieces


def make_states(held: Sequence[Held], optimizer: torch.optim.Optimizer, manifest: Manifest) -> None:
    """Gives an optimizer that has made no step the states that a checkpoint has, to be filled.

    A parameter that never had a gradient has no state in the checkpoint, and gets none. What the
    optimizer had is forgotten.

    Args:
        held: what the optimizer works on, as for `optimizer_pieces`.
        optimizer: whose states.
        manifest: of the checkpoint.

    Raises:
        CheckpointError: the checkpoint has states, and none under the name of a parameter.
    """
    mine = {id(p) for options in optimizer.param_groups for p in options["params"]}
    by_parameter: dict[str, dict[str, str]] = {}
    for name in manifest.tensors:
        owner, _, key = name.rpartition(".")
        by_parameter.setdefault(owner, {})[key] = name
    own = [h for h in held if id(h.tensor) in mine]
    if not any(f"optimizer.{h.name}" in by_parameter for h in own):
        _refuse_unnamed(len(own), manifest)
    for h in held:
        if id(h.tensor) in mine:
            keys = by_parameter.get(f"optimizer.{h.name}", {})
            state = {key: _empty(h, manifest, name) for key, name in keys.items()}
            optimizer.state.pop(h.tensor, None)
            if state:
                optimizer.state[h.tensor] = state


def _refuse_unnamed(parameters: int, manifest: Manifest) -> None:
    """Stops an optimizer that would begin again beside states that it cannot tell apart."""
    states = [n for n in manifest.tensors if n.startswith("optimizer.") or ".state." in n]
    named = {n.removeprefix("model.") for n in manifest.tensors}
    stray = [n for n in states if n.removeprefix("optimizer.").rpartition(".")[0] not in named]
    if parameters and stray:
        raise CheckpointError(
            f"the optimizer's states of {parameters} parameters",
            f"{len(stray)} states under other names, such as {stray[0]}",
            "the optimizer would begin again: save what get_optimizer_state_dict gives, which "
            "names states by parameters",
        )


def _empty(held: Held, manifest: Manifest, name: str) -> torch.Tensor:
    entry = manifest.tensors[name]
    dtype = DTYPES[entry.dtype]
    if not entry.shape and (held.shape or name.endswith(".step")):
        return torch.zeros((), dtype=dtype)  # torch's optimizers count steps on the CPU
    return torch.zeros_like(held.tensor, dtype=dtype, requires_grad=False)
