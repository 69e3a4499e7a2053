"""FSDP of modules that are not a row of blocks: equal to one process, or refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from course_lib.checkpoint import Training, hold_fsdp, resume_training, save_training
from course_lib.comm import CommError, Mesh
from course_lib.parallel import FSDP, Precision, call_as_forward
from course_lib.trace.ledger import Counted
from tests.tiers import sampled

WIDTH = 6


class Parts(nn.Module):
    """Units one after the other, behind a layer of the root's."""

    def __init__(self, *units: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.parts = nn.ModuleList(units)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for part in self.parts:
            x = part(x)
        return x


class Lora(nn.Module):
    """A frozen matrix and two small ones that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.frozen(x) + self.up(self.down(x)))


class Frozen(nn.Module):
    """Weights that backward needs as they are, and that never get a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.PReLU(WIDTH).requires_grad_(False)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.slope(x) * self.scale


class Late(nn.Module):
    """A constant use of a weight, which backward comes to after the weight's own gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, WIDTH * WIDTH).view(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x @ self.weight.detach()) @ self.weight


class HandsOn(nn.Module):
    """Returns an input beside its result, as T5 hands on what it adds to all scores."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(self.layer(x)) + bias, bias


class T5(nn.Module):
    """Blocks that hand on what the first of them has made."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Linear(WIDTH, WIDTH)
        self.parts = nn.ModuleList(HandsOn() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.bias(x)
        for part in self.parts:
            x, bias = part(x, bias)
        return x * bias


@dataclass
class Result:
    """What some modules return."""

    hidden: torch.Tensor
    name: str = "result"


class InDataclass(nn.Module):
    """Takes and returns a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, given: Any) -> Any:
        hidden = given.hidden if isinstance(given, Result) else given
        return Result(torch.tanh(self.layer(hidden)))


class OutOfDataclass(InDataclass):
    """Takes a dataclass and returns a tensor."""

    def forward(self, given: Any) -> Any:
        return torch.tanh(self.layer(given.hidden))


class Recurrent(nn.Module):
    """An LSTM, which keeps a list of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x[:, None])[0][:, 0]


class ComplexLayer(nn.Module):
    """Complex weights between real ones."""

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.linspace(-1, 1, 2 * WIDTH * WIDTH, dtype=torch.float64)
        self.weight = nn.Parameter(torch.view_as_complex(numbers.view(WIDTH, WIDTH, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = x.to(self.weight.dtype) @ self.weight
        return (product * product.conj()).real.to(x.dtype).tanh()


class Mixed(nn.Module):
    """Two dtypes, and buffers of integers and bools."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(WIDTH, WIDTH).float()
        self.wide = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.arange(WIDTH) % 2 == 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.where(self.mask, self.wide(x), self.narrow(x.float()).to(x.dtype))


class Sparse(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, WIDTH, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table((x.detach().abs() * 10).long()[:, 0] % 9)


class Convolution(nn.Module):
    """A convolution and batch norm with channels last; its statistics are the rank's own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(3).eval()
        self.norm.running_mean.fill_(0.3)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = x.view(-1, 3, 2, 1).to(memory_format=torch.channels_last)
        return torch.relu(self.norm(self.conv(image))).reshape(x.shape)


class InPlace(nn.Module):
    """Changes its input in place, and a result of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.layer(x.mul_(2))) + x


class Nested(nn.Module):
    """A unit around units, which computes after them and before them."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner = nn.ModuleList([Lora(), Frozen(), Late()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for part in self.inner:
            x = part(x) + x
        return self.after(x)


class Checkpointed(nn.Module):
    """Units that are computed again in backward."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.parts = nn.ModuleList([Lora(), Frozen(), Late(), nn.Linear(WIDTH, WIDTH)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        both = nn.Sequential(*self.parts[:2])
        x = checkpoint(both, x, use_reentrant=self.reentrant)
        for part in self.parts[2:]:
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return x


class Twice(nn.Module):
    """A unit used twice, with another between."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Lora(), Frozen()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts[0](self.parts[1](self.parts[0](x)))


class Scale(nn.Module):
    """Two methods, of which forward calls the other, and the other itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, 0.7]))

    def scale(self, x: torch.Tensor, again: bool = True) -> torch.Tensor:
        x = torch.sin(x.view(-1, 3, 2) * self.weight).view(x.shape)
        return self(x) * self.weight.sum() if again else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(x, again=False)


class OtherMethod(nn.Module):
    """Units of which not forward is called."""

    def __init__(self, registered: bool = True) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Scale(), Scale()])
        for part in self.parts if registered else ():
            call_as_forward(part, "scale")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part.scale(x)
        return x


def weight_normed() -> nn.Module:
    return nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))


def orthogonal() -> nn.Module:
    return parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH))


class Symmetric(nn.Module):
    """A parametrization that is a view of the parameter, plus its transpose."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + weight.T


def symmetric() -> nn.Module:
    layer = nn.Linear(WIDTH, WIDTH)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lora": lambda: Parts(Lora(), Lora(), Lora()),
    "frozen": lambda: Parts(Frozen(), nn.Linear(WIDTH, WIDTH), Frozen(), Frozen()),
    "late": lambda: Parts(Late(), Late()),
    "handed on": T5,
    "weight_norm": lambda: Parts(weight_normed(), weight_normed()),
    "parametrized": lambda: Parts(symmetric(), orthogonal(), symmetric()),
    "dataclass": lambda: Parts(InDataclass(), InDataclass(), OutOfDataclass()),
    "recurrent": lambda: Parts(Recurrent(), Recurrent()),
    "complex": lambda: Parts(ComplexLayer(), ComplexLayer()),
    "mixed": lambda: Parts(Mixed(), Mixed()),
    "sparse": lambda: Parts(Sparse(), Lora()),
    "convolution": lambda: Parts(Convolution(), Convolution()),
    "in place": lambda: Parts(InPlace(), InPlace()),
    "nested": lambda: Parts(Nested(), Nested()),
    "checkpointed": lambda: Checkpointed(False),
    "checkpointed, reentrant": lambda: Checkpointed(True),
    "twice": Twice,
    "other method": OtherMethod,
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reshard": False},
    {"prefetch": False},
    {"find_unused_parameters": True},
]


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        return MODELS[name]()
    finally:
        torch.set_default_dtype(torch.float32)


def units_of(model: nn.Module) -> list[nn.Module]:
    units = list(model.get_submodule("parts").children())
    return units + [inner for part in units if isinstance(part, Nested) for inner in part.inner]


def batch_of(step: int) -> torch.Tensor:
    return torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(step)).double()


def trained_of(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def alone(name: str) -> dict[str, torch.Tensor]:
    model = made(name)
    optimizer = torch.optim.SGD(trained_of(model), lr=0.05, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        model(batch_of(step)).pow(2).mean().backward()
        optimizer.step()
    return {n: t for n, t in model.state_dict().items() if not n.endswith("calls")}


def sharded(group: Any, name: str, **options: Any) -> dict[str, torch.Tensor]:
    model = made(name)
    wrapped = FSDP(model, group, units_of(model), **options)
    optimizer = torch.optim.SGD(trained_of(wrapped), lr=0.05, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        part = batch_of(step).chunk(group.size)[group.index]
        wrapped(part).pow(2).mean().backward()
        optimizer.step()
    assert all(p.dim() == 1 for p in trained_of(wrapped)), "all is cut again"
    return {n: t for n, t in wrapped.full_state_dict().items() if not n.endswith("calls")}


@pytest.mark.parametrize("world", sampled([3, 2], 2))
@pytest.mark.parametrize("options", sampled(OPTIONS, 3), ids=str)
def test_awkward_modules_are_equal_to_one_process(ranks: Any, world: int, options: Any) -> None:
    def run(group: Any) -> Any:
        return {name: sharded(group, name, **dict(options)) for name in MODELS}

    results = ranks(run, world)
    for name in MODELS:
        expected = alone(name)
        single = 1e-5 if name == "mixed" else 1e-9
        for result in results:
            torch.testing.assert_close(result[name], expected, rtol=single, atol=single / 100)


OWN_DTYPES = ("mixed", "parametrized", "convolution")  # with buffers, which are not cast


def single(group: Any) -> dict[str, Any]:
    low = Precision(torch.float32, torch.float64)
    return {name: sharded(group, name, precision=low) for name in MODELS if name not in OWN_DTYPES}


def test_awkward_modules_in_another_precision(ranks: Any) -> None:
    for result in ranks(single, 2):
        for name, found in result.items():
            torch.testing.assert_close(found, alone(name), rtol=1e-4, atol=1e-5)


# --- groups --------------------------------------------------------------------------------------
def hybrid(group: Any) -> Any:
    mesh = Mesh(group, {"replica": 2, "shard": 2})
    model = made("lora")
    wrapped = FSDP(model, mesh["shard"], units_of(model), replicas=mesh["replica"])
    optimizer = torch.optim.SGD(trained_of(wrapped), lr=0.05, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        wrapped(batch_of(step).chunk(4)[group.index]).pow(2).mean().backward()
        optimizer.step()
    return wrapped.full_state_dict()


def test_replicas_of_frozen_and_trained_parts(ranks: Any) -> None:
    for result in ranks(hybrid, 4):
        torch.testing.assert_close(result, alone("lora"), rtol=1e-9, atol=1e-11)


def partly(group: Any) -> Any:
    mine = group.split([[0], [1, 2]], "shard")
    return sharded(mine, "lora") if group.rank else None


def test_a_group_that_is_not_the_world(ranks: Any) -> None:
    found = ranks(partly, 3)
    for result in found[1:]:
        torch.testing.assert_close(result, alone("lora"), rtol=1e-9, atol=1e-11)


# --- parameters that stay whole ------------------------------------------------------------------
def norms_whole(group: Any, find_unused: bool, accumulate: bool) -> Any:
    model = made("lora")
    with torch.no_grad():
        model.first.weight.add_(group.rank)
    whole = [model.first.weight, *(p.down.weight for p in model.parts)]
    wrapped = FSDP(model, group, units_of(model), keep_whole=whole,
                   find_unused_parameters=find_unused)  # fmt: skip
    assert [p.dim() for p in whole] == [2, 2, 2, 2]
    optimizer = torch.optim.SGD(trained_of(wrapped), lr=0.05, momentum=0.9)
    norms = []
    for step in range(3):
        optimizer.zero_grad()
        part = batch_of(step).chunk(group.size)[group.index]
        for half in part.chunk(2) if accumulate else [part]:
            (wrapped(half).pow(2).mean() / (2 if accumulate else 1)).backward()
        norms.append(wrapped.clip_grad_norm(0.05).item())
        optimizer.step()
    state = wrapped.full_state_dict()
    wrapped.load_full_state_dict({n: t + 1 for n, t in state.items()})
    assert all(torch.equal(t, state[n] + 1) for n, t in wrapped.full_state_dict().items())
    return norms, state


@pytest.mark.parametrize("find_unused", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_parameters_that_stay_whole(ranks: Any, find_unused: bool, accumulate: bool) -> None:
    model, norms = made("lora"), []
    optimizer = torch.optim.SGD(trained_of(model), lr=0.05, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        model(batch_of(step)).pow(2).mean().backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.05).item())
        optimizer.step()
    for world in (2, 3):
        for found in ranks(norms_whole, world, find_unused, accumulate):
            expected = (norms, dict(model.state_dict()))
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def complex_norm(group: Any) -> Any:
    model = made("complex")
    wrapped = FSDP(model, group, units_of(model))
    wrapped(batch_of(0).chunk(group.size)[group.index]).pow(2).mean().backward()
    return wrapped.clip_grad_norm(0.01).item(), wrapped.full_gradients()


def test_clipping_sees_imaginary_parts(ranks: Any) -> None:
    model = made("complex")
    model(batch_of(0)).pow(2).mean().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01).item()
    expected = norm, {n: p.grad for n, p in model.named_parameters()}
    for found in ranks(complex_norm, 2):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-11)


# --- what is refused -----------------------------------------------------------------------------
class Side(nn.Module):
    """Keeps a part of its result in an attribute, where FSDP does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.PReLU(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.first(x)
        self.side = self.second(x)
        return output


class Returns(nn.Module):
    """Returns its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.T


def trial(action: Callable[[], Any]) -> str:
    try:
        action()
    except (CommError, RuntimeError) as error:
        return str(error)
    return "no error"


def refused(group: Any) -> dict[str, str]:
    torch.manual_seed(0)

    def wrap(*units: nn.Module, options: Any = None) -> tuple[Parts, FSDP]:
        model = Parts(*units)
        return model, FSDP(model, group, list(model.parts), **(options or {}))

    def trained(wrapped: FSDP, change: Callable[[FSDP], Any]) -> None:
        optimizer = torch.optim.SGD(trained_of(wrapped), lr=0.1)
        wrapped(torch.ones(2, WIDTH)).sum().backward()
        change(wrapped)
        optimizer.step()
        wrapped(torch.ones(2, WIDTH)).sum().backward()

    def plain() -> FSDP:
        return wrap(nn.Linear(WIDTH, WIDTH))[1]

    def container() -> None:
        model = Parts(nn.Linear(WIDTH, WIDTH))
        FSDP(model, group, [model.parts])

    def side() -> None:
        _, wrapped = wrap(Side())
        (wrapped(torch.ones(2, WIDTH)).sum() + wrapped.module.parts[0].side.sum()).backward()

    def other_method() -> None:
        model = OtherMethod(registered=False)
        FSDP(model, group, list(model.parts))(torch.ones(2, WIDTH)).sum().backward()

    def tied(buffer: bool) -> None:
        model = Parts(nn.Linear(WIDTH, WIDTH))
        if buffer:
            model.register_buffer("turned", model.first.weight.detach().T)
        else:
            model.parts[0].weight = nn.Parameter(model.first.weight.detach())
        FSDP(model, group)

    def parameters(wrapped: FSDP) -> Any:
        return nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)

    return {
        "container": trial(container),
        "side": trial(side),
        "other method": trial(other_method),
        "returned": trial(lambda: wrap(Returns())[1](torch.ones(2, WIDTH))),
        "tied": trial(lambda: tied(False)),
        "tied buffer": trial(lambda: tied(True)),
        "lazy": trial(lambda: wrap(nn.LazyLinear(3))),
        "copied": trial(lambda: copy.deepcopy(plain())),
        "inner copied": trial(lambda: copy.deepcopy(plain().module)),
        "saved": trial(lambda: plain().state_dict()),
        "inner saved": trial(lambda: plain().module.state_dict()),
        "loaded": trial(lambda: plain().load_state_dict({}, strict=False)),
        "cast": trial(lambda: plain().double()),
        "inner cast": trial(lambda: trained(plain(), lambda w: w.module.double())),
        "unfrozen": trial(lambda: trained(plain(), lambda w: w.module.requires_grad_(False))),
        "clipped": trial(lambda: trained(plain(), parameters)),
    }


REFUSED = {
    "container": "with the unit parts\nfound: a ModuleList, which has no forward",
    "side": "modified by an inplace operation",  # autograd's own words: it has read nothing
    "other method": "parts.0, which is SHARDED: nobody has called it",
    "returned": "the output of parts.0 of FSDP",
    "tied": "first.weight and parts.0.weight, two tensors in the same memory",
    "tied buffer": "first.weight and turned",
    "lazy": "parts.0.weight has no shape yet",
    "copied": "full_state_dict",
    "inner copied": "full_state_dict",
    "saved": "call full_state_dict()",
    "inner saved": "call full_state_dict()",
    "loaded": "call load_full_state_dict",
    "cast": "another device or dtype for parts.0",
    "inner cast": "moved, cast",
    "unfrozen": "frozen or unfrozen",
    "clipped": "call clip_grad_norm of the FSDP",
}


def test_what_cannot_be_right_is_refused(ranks: Any) -> None:
    for found in ranks(refused, 2):
        assert found.keys() == REFUSED.keys()
        for case, text in found.items():
            assert REFUSED[case] in text, (case, text)
            own = case != "side"
            assert not own or len(text.splitlines()) == 3, (case, text)


# --- failures ------------------------------------------------------------------------------------
def after_failure(group: Any, where: str) -> Any:
    """A step that raises on all ranks, then three that do not."""
    model = made("lora")
    wrapped = FSDP(model, group, units_of(model))
    optimizer = torch.optim.SGD(trained_of(wrapped), lr=0.05, momentum=0.9)

    def fail(*_: Any) -> None:
        raise ValueError("on purpose")

    def forward(_: nn.Module, __: Any, output: torch.Tensor) -> None:
        fail() if where == "forward" else output.register_hook(fail)

    handle = model.parts[1].register_forward_hook(forward)
    part = batch_of(9).chunk(group.size)[group.index]
    with pytest.raises(ValueError, match="on purpose"):
        wrapped(part).pow(2).mean().backward()
    handle.remove()
    for step in range(3):
        optimizer.zero_grad()
        part = batch_of(step).chunk(group.size)[group.index]
        wrapped(part).pow(2).mean().backward()
        optimizer.step()
    return wrapped.full_state_dict()


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_step_after_one_that_raised_on_all_ranks(ranks: Any, where: str) -> None:
    for found in ranks(after_failure, 2, where):
        torch.testing.assert_close(found, alone("lora"), rtol=1e-9, atol=1e-11)


def uneven_failure(group: Any) -> str:
    """Both ranks fail in a forward; by its ledger, rank 1 has begun a collective more."""
    model = made("lora")
    wrapped = FSDP(model, group, units_of(model))
    text = trial(lambda: wrapped(batch_of(0)[:, 1:]))
    assert "shapes cannot be multiplied" in text, text
    group.ledger.counts[Counted(group.ranks, "collective", -1)] += group.rank
    return trial(lambda: wrapped(batch_of(0)))


def test_ranks_that_failed_at_different_places_cannot_go_on(ranks: Any) -> None:
    for found in ranks(uneven_failure, 2):
        assert "after different numbers of collectives" in found, found
        assert "make this wrapper again on each" in found and len(found.splitlines()) == 3


def read_before(group: Any) -> str:
    """A loss that has read a unit's piece, which is as long as a row of the whole."""
    model = nn.Sequential(nn.Linear(WIDTH, group.size, bias=False), nn.Linear(group.size, 3))
    wrapped = FSDP(model, group, [model[0]])
    penalty = model[0].weight.sum()
    return trial(lambda: (penalty + wrapped(torch.ones(2, WIDTH)).sum()).backward())


def test_a_weight_that_the_loss_has_read_is_named(ranks: Any) -> None:
    for found in ranks(read_before, 2):
        assert "to use 0.weight of FSDP" in found and "in its forward only" in found, found


def half_a_backward(group: Any) -> tuple[str, bool, str]:
    """A backward without some gradients is refused, no step uses it, and the next one is right."""
    model = made("lora")
    wrapped = FSDP(model, group, units_of(model))
    optimizer = torch.optim.SGD(trained_of(wrapped), lr=0.05)
    hidden = model.parts[1].up.forward
    model.parts[1].up.forward = lambda x: 0 * x.sum()
    part = batch_of(0).chunk(group.size)[group.index]
    missing = trial(lambda: wrapped(part).sum().backward())
    taken_back = all(p.grad is None or p.grad.shape == p.shape for p in wrapped.parameters())
    stepped = trial(optimizer.step)
    model.parts[1].up.forward = hidden
    wrapped(part).pow(2).mean().backward()
    optimizer.step()
    return missing, taken_back, stepped


def test_no_step_is_made_of_half_a_backward(ranks: Any) -> None:
    for missing, taken_back, stepped in ranks(half_a_backward, 2):
        assert "none for parts.1.up.weight on rank" in missing
        assert taken_back
        assert "a backward that has raised" in stepped


# --- saved and resumed ---------------------------------------------------------------------------
class WithNothing(nn.Module):
    """A parameter without elements, as an adapter of rank 0 has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.none = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.empty(0, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x)) + self.none.sum()


MODELS["nothing"] = lambda: Parts(WithNothing(), nn.Linear(WIDTH, WIDTH))
SAVED = ("lora", "handed on", "weight_norm", "recurrent", "mixed", "nested", "nothing")


def resumed(group: Any, folder: Any, name: str, steps: range) -> Any:
    """Some steps with Adam, from the newest checkpoint on, which is made after step 3."""
    model = made(name)
    wrapped = FSDP(model, group, units_of(model), keep_whole=[model.first.bias]
                   if hasattr(model, "first") else [])  # fmt: skip
    optimizer = torch.optim.Adam(trained_of(wrapped), lr=0.05)
    training = Training(hold_fsdp(wrapped), optimizer)
    found = resume_training(training, folder / name, group)
    for step in steps:
        optimizer.zero_grad()
        part = batch_of(step).chunk(group.size)[group.index]
        wrapped(part).pow(2).mean().backward()
        optimizer.step()
        if step == 2:
            save_training(training, folder / name, group, step=3)
    return found and found.exact, wrapped.full_state_dict()


def test_saved_after_three_steps_and_resumed(ranks: Any, tmp_path: Path) -> None:
    def run(group: Any, steps: range) -> Any:
        return {name: resumed(group, tmp_path, name, steps) for name in SAVED}

    expected = ranks(run, 2, range(5))[0]
    for world in (2, 3):
        for found in ranks(run, world, range(3, 5)):
            for name in SAVED:
                exact, state = found[name]
                assert exact is (world == 2)
                single = 1e-4 if name == "mixed" else 1e-9
                state.pop("parts.0.calls", None), expected[name][1].pop("parts.0.calls", None)
                torch.testing.assert_close(state, expected[name][1], rtol=single, atol=single)
