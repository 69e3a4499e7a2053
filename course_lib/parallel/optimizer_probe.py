"""Is the update of a piece the piece of the update? An optimizer is asked by trying it.

Notebook: 04 ZeRO (Zero1, FSDPUnit), 05 Offload (nvme_store).
Source: none; torch's ZeRO and FSDP leave the question to their user.
Costs some milliseconds when an optimizer is made: a few steps on small tensors, on this rank alone.
The production version (DeepSpeed) has a list of optimizers that it knows.

SGD and Adam work element by element. LAMB and LARS look at the norm of a tensor, Adafactor at its
rows and columns, Muon and Shampoo at its matrix, LBFGS at all tensors. So the same steps are made
twice, on whole tensors and as a wrapper would make them, and the results are compared.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from course_lib.comm import CommError

Make = Callable[[list[nn.Parameter]], Optimizer]
Values = list[torch.Tensor]
Way = Callable[[Make, Values], Values]

# Some optimizers take matrices alone; some factor those alone that have 128 rows or more.
SHAPES = (((130, 132), (7,), (3, 2, 2, 2)), ((130, 132), (6, 4)))
STEPS = 3
RATE = 0.01  # a schedule may begin at 0, where every update is its own piece


def refuse_whole_tensor(asked: str, optimizer: Optimizer, first: int = 0) -> None:
    """Stops an optimizer that needs whole tensors, where it gets pieces of them.

    Neither the optimizer nor torch's random numbers are changed.

    Args:
        asked: the first line of the error.
        optimizer: the one that makes the updates, or a wrapper of it.
        first: the first of its parameter groups that has not been looked at.

    Raises:
        CommError: its updates of pieces are not the pieces of its updates, or it cannot be tried.
    """
    why = "each rank has pieces of parameters: use one like SGD or Adam, or DDP"
    found = "whose updates of pieces are not the pieces of its update"
    _refuse(asked, optimizer, first, _in_pieces, found, why)


def refuse_joint_update(asked: str, optimizer: Optimizer, first: int = 0) -> None:
    """Stops an optimizer whose update of one parameter is not made by a step without the others.

    Args:
        asked: as for `refuse_whole_tensor`.
        optimizer: the same.
        first: the same.

    Raises:
        CommError: a step for each tensor is not a step for all, or it cannot be tried.
    """
    why = "each parameter is updated by a step of its own: use one like SGD or Adam"
    found = "whose step for one parameter depends on others"
    _refuse(asked, optimizer, first, _one_by_one, found, why)


def refuse_pieces(asked: str, make: Callable[..., Any], options: Any, error: Exception) -> None:
    """Stops an optimizer that cannot be made for pieces of parameters, but for whole ones.

    Args:
        asked: the first line of the error.
        make: its class.
        options: for it.
        error: what it said to pieces.

    Raises:
        CommError: it takes matrices.
    """
    try:
        make(_leaves(_begin(SHAPES[1], torch.float32, torch.device("cpu"))), **options)
    except Exception:  # it is something else that is wrong: the caller's error says it
        return
    name = getattr(make, "__name__", "an optimizer")
    why = "each rank has pieces of parameters: use one like SGD or Adam, or DDP"
    said = f"{error.found}; {error.why}" if isinstance(error, CommError) else error
    raise CommError(asked, f"{name}, which takes no pieces: {said}", why) from error


def _refuse(asked: str, given: Optimizer, first: int, way: Way, found: str, why: str) -> None:
    optimizer, make, options = _innermost(given)
    name, known = type(optimizer).__name__, set()
    for group in optimizer.param_groups[first:]:
        own = {k: v for k, v in group.items() if k not in ("params", "param_names")}
        alike = repr(sorted((k, v) for k, v in own.items() if k != "lr"))
        if alike in known:
            continue
        known.add(alike)
        place = next(((p.dtype, p.device) for p in group["params"]), (torch.float64, "cpu"))
        try:
            # A trial needs values, also where whoever runs this has tensors without any.
            if torch.device(place[1]).type == "meta":
                place = (place[0], "cpu")
            with _disable_current_modes(), _random_numbers_as_before(torch.device(place[1])):
                differs = _difference(partial(_made, make, own, options), way, *place)
        except _Untried as error:
            raise CommError(
                asked, f"{name}, of which no trial can be made: {error}", why
            ) from error
        if differs:
            raise CommError(asked, f"{name}, {found}: {differs}", why)


# --- which optimizer, and another one of its kind ------------------------------------------------
class _Untried(Exception):
    """Why an optimizer cannot be tried."""


def _innermost(optimizer: Optimizer) -> tuple[Optimizer, Callable[..., Any], dict[str, Any]]:
    """The optimizer inside of the course's wrappers, what makes another, and options for that."""
    make: Callable[..., Any] | None = None
    options: dict[str, Any] = {}
    while {"_make", "_options", "inner"} <= (kept := vars(optimizer)).keys():
        make, options, optimizer = kept["_make"], kept["_options"], kept["inner"]
    if make is None:
        make = type(optimizer)
        given = {**vars(optimizer), **optimizer.defaults}
        options = {key: given[key] for key in inspect.signature(make).parameters if key in given}
    return optimizer, make, options


def _made(
    make: Callable[..., Any],
    group: dict[str, Any],
    options: dict[str, Any],
    parameters: list[nn.Parameter],
) -> Optimizer:
    made: Optimizer = make([{**_with_rate(group), "params": parameters}], **_with_rate(options))
    mine = {id(p) for p in parameters}
    if any(id(p) not in mine for options in made.param_groups for p in options["params"]):
        raise _Untried("it takes other parameters than those that it is given")
    return made


def _with_rate(options: dict[str, Any]) -> dict[str, Any]:
    """Options that can be changed, with a learning rate that is not zero, if there is one."""
    own = {k: v.clone() if torch.is_tensor(v) else v for k, v in options.items()}
    if torch.is_tensor(own.get("lr")):
        own["lr"].fill_(RATE)
    elif own.get("lr") is not None:
        own["lr"] = RATE
    return own


# --- the trial -----------------------------------------------------------------------------------
@contextmanager
def _random_numbers_as_before(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
        yield


def _difference(make: Make, way: Way, dtype: torch.dtype, device: torch.device | str) -> str:
    """How the updates differ; nothing if they do not."""
    error: Exception | None = None
    for precision in dict.fromkeys((torch.float64, dtype)):  # the second if it knows that alone
        for shapes in SHAPES:
            begin = _begin(shapes, precision, torch.device(device))
            try:
                right = _together(make, begin)
            except _Untried:
                raise
            except Exception as said:
                error = error or said
                continue
            return _compare(make, way, begin, right)
    raise _Untried(f"{type(error).__name__}: {error}")


def _compare(make: Make, way: Way, begin: Values, right: Values) -> str:
    try:
        found = way(make, begin)
    except Exception as error:  # an optimizer of which nothing is known
        return f"a trial ended with {type(error).__name__}: {error}"
    for before, one, other in zip(begin, found, right, strict=True):
        update = float((other - before).abs().max())
        slack = 1e-6 * update + 32 * torch.finfo(before.dtype).eps * float(other.abs().max())
        if torch.allclose(one, other, rtol=0, atol=slack, equal_nan=True):
            continue
        again = _together(make, begin)
        if not all(torch.equal(a, b) for a, b in zip(again, right, strict=True)):
            return ""  # it draws random numbers: no two runs are equal
        off = float((one - other).abs().max()) / update
        shape = tuple(before.shape)
        return f"in a trial on {shape} they differ by {100 * off:.3g}% of the update"
    return ""


def _begin(shapes: Sequence[Sequence[int]], dtype: torch.dtype, device: torch.device) -> Values:
    return [_wave(math.prod(s), i).view(s).to(device, dtype) for i, s in enumerate(shapes)]


def _wave(count: int, number: int) -> torch.Tensor:
    """Numbers that look random and need no generator, larger towards the end."""
    places = torch.arange(1, count + 1, dtype=torch.float64, device="cpu")
    return torch.sin(places**2 + number) * (0.5 + places / count)


def _leaves(values: Values) -> list[nn.Parameter]:
    return [nn.Parameter(value.clone()) for value in values]


def _together(make: Make, begin: Values) -> Values:
    """What one process does."""
    parameters = _leaves(begin)
    optimizer = make(parameters)
    for step in range(STEPS):
        _step(optimizer, parameters, _noise(begin, step))
    return [p.detach() for p in parameters]


def _in_pieces(make: Make, begin: Values) -> Values:
    """What two ranks do: each has an optimizer of its own, on its pieces."""
    halves = []
    for cut in (slice(0, 3, None), slice(3, 8, None)):
        mine = partial(_piece, eighths=cut)
        parameters = _leaves([mine(value) for value in begin])
        optimizer = make(parameters)
        for step in range(STEPS):
            _step(optimizer, parameters, [mine(noise) for noise in _noise(begin, step)])
        halves.append(parameters)
    pairs = zip(*halves, begin, strict=True)
    return [torch.cat([a.detach(), b.detach()]).view(whole.shape) for a, b, whole in pairs]


def _piece(value: torch.Tensor, eighths: slice) -> torch.Tensor:
    count = value.numel()
    return value.reshape(-1)[eighths.start * count // 8 : eighths.stop * count // 8]


def _one_by_one(make: Make, begin: Values) -> Values:
    """A step for each parameter; the others have no gradient then."""
    parameters = _leaves(begin)
    optimizer = make(parameters)
    for step in range(STEPS):
        for parameter, noise in zip(parameters, _noise(begin, step), strict=True):
            _step(optimizer, [parameter], [noise])
            parameter.grad = None
    return [p.detach() for p in parameters]


def _noise(like: Values, step: int) -> Values:
    return [
        _wave(value.numel(), 10 * step + i + 100).view(value.shape).to(value)
        for i, value in enumerate(like)
    ]


def _step(optimizer: Optimizer, parameters: Sequence[nn.Parameter], noise: Values) -> None:
    """A step whose gradients depend on the parameters, element by element."""

    def closure() -> float:
        losses = []  # those that have these gradients: a line search compares them
        for parameter, value in zip(parameters, noise, strict=True):
            at = parameter.detach()
            parameter.grad = value + 0.1 * at
            losses.append((value * at + 0.05 * at**2).sum())
        return float(torch.stack(losses).sum())

    closure()
    try:
        optimizer.step()
    except TypeError:
        optimizer.step(closure)
