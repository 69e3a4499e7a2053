"""Master weights: updates below one ulp survive, equal to float32, 16 bytes a parameter."""

from __future__ import annotations

import copy
import io
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel import BucketedDDP, Zero1
from course_lib.precision.master_weights import MasterWeights
from course_lib.trace import Refusal
from course_lib.trace.memory import LiveMemory, held_bytes

LOW = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
OPTIMIZERS: dict[str, Any] = {
    "SGD": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}


def gradient_of(step: int, parameter: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


@LOW
def test_updates_below_one_ulp_survive(dtype: torch.dtype) -> None:
    """The update is an eighth of the distance to the next number below 1."""
    ulp = torch.finfo(dtype).eps / 2
    plain, weight = (nn.Parameter(torch.ones(3, dtype=dtype)) for _ in range(2))
    stalls = torch.optim.SGD([plain], lr=ulp / 8)
    moves = MasterWeights([weight], torch.optim.SGD, lr=ulp / 8)
    seen = []
    for _ in range(16):
        for parameter, optimizer in ((plain, stalls), (weight, moves)):
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        seen.append(weight[0].item())
    assert torch.equal(plain, torch.ones_like(plain)), "16 updates, all rounded away"
    assert seen[-1] == 1 - 2 * ulp
    assert moves.state[weight]["master"][0].item() == 1 - 2 * ulp
    assert len(set(seen)) == 3, "1, then the two numbers below it"


def fit(make: Any, dtype: torch.dtype) -> float:
    """Least squares by small steps: how far from the solution it ends."""
    generator = torch.Generator().manual_seed(0)
    x, target = torch.randn(64, 8, generator=generator), torch.randn(8, 1, generator=generator)
    weight = nn.Parameter((target + 0.25).to(dtype))
    optimizer = make([weight])
    for _ in range(600):
        loss = (x @ weight.float() - x @ target).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return (weight.detach().float() - target).abs().max().item()


def test_a_run_that_stalls_without_masters() -> None:
    low, lr = torch.bfloat16, 0.005
    exact = fit(lambda p: torch.optim.SGD(p, lr=lr), torch.float32)
    masters = fit(lambda p: MasterWeights(p, torch.optim.SGD, lr=lr), low)
    stalled = fit(lambda p: torch.optim.SGD(p, lr=lr), low)
    assert exact < 0.02
    assert masters < 0.02
    assert stalled > 0.1


@LOW
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_equal_to_a_float32_optimizer_with_the_same_gradients(
    name: str, dtype: torch.dtype
) -> None:
    """Two groups, a schedule, a wide and a frozen parameter, one that has no gradient at first."""
    make, options = OPTIMIZERS[name]
    start = [torch.randn(4, 3, generator=torch.Generator().manual_seed(n)) for n in range(4)]
    dtypes = [dtype, dtype, torch.float32, dtype]
    low = [nn.Parameter(t.to(kind)) for t, kind in zip(start, dtypes, strict=True)]
    wide = [nn.Parameter(p.detach().float()) for p in low]
    low[3].requires_grad_(False)
    wide[3].requires_grad_(False)
    ours = MasterWeights([{"params": low[:1]}, {"params": low[1:], "lr": 0.02}], make, **options)
    theirs = make([{"params": wide[:1]}, {"params": wide[1:], "lr": 0.02}], **options)
    schedules = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (ours, theirs)]
    for step in range(6):
        for number, (mine, right) in enumerate(zip(low[:3], wide, strict=False)):
            if number == 1 and step < 2:
                continue
            mine.grad = gradient_of(10 * step + number, mine)
            right.grad = mine.grad.float()
        for optimizer, schedule in zip((ours, theirs), schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    for mine, right in zip(low[:2], wide, strict=False):
        assert torch.equal(ours.state[mine]["master"], right)
        assert torch.equal(mine, right.to(dtype))
    assert torch.equal(low[2], wide[2]), "its own master"
    assert "master" not in ours.state[low[2]]
    assert torch.equal(low[3], wide[3].to(dtype))
    assert low[3] not in ours.state


def test_sixteen_bytes_a_parameter() -> None:
    model = nn.Linear(256, 256, bias=False)
    count = 256 * 256
    for kind, expected in ((torch.bfloat16, (2, 2, 12)), (torch.float32, (4, 4, 8))):
        low = copy.deepcopy(model).to(kind)
        optimizer = MasterWeights(low.parameters(), torch.optim.AdamW, lr=0.01, foreach=False)
        for _ in range(2):
            optimizer.zero_grad()
            low(torch.ones(1, 256, dtype=kind)).sum().backward()
            gradients = held_bytes([low.weight.grad])
            optimizer.step()
        state = [t for s in optimizer.state.values() for t in s.values() if t.dim()]
        found = held_bytes([low.weight.detach()]), gradients, held_bytes(state)
        assert found == tuple(count * each for each in expected)
        everything = [low.weight.detach(), *optimizer_tensors(optimizer), *state]
        assert held_bytes(everything) - found[0] - found[2] < 100, "nothing beside that table"


def optimizer_tensors(optimizer: MasterWeights) -> list[torch.Tensor]:
    """Masters and their state, as the inner optimizer holds them."""
    masters = [p.detach() for g in optimizer.inner.param_groups for p in g["params"]]
    return masters + [t for s in optimizer.inner.state.values() for t in s.values()]


def test_gradients_go_up_one_by_one() -> None:
    """Four bytes are taken for two that are given back, a parameter at a time."""
    weights = [nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16)) for _ in range(10)]
    optimizer = MasterWeights(weights, torch.optim.SGD, lr=0.1)
    with LiveMemory() as memory:
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        assert memory.now == 20_000
        optimizer.gradients_up()
        assert memory.now == 40_000
        assert memory.peak == 40_000 + 2_000
        optimizer.zero_grad()
        assert memory.now == 0


def test_gradients_of_several_backwards_add_up_in_float32() -> None:
    """256 + 1 is 256 in bf16, each time; in float32 it is counted."""
    weight = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = MasterWeights([weight], torch.optim.SGD, lr=1.0)
    for value in (256.0, *[1.0] * 64):
        weight.grad = torch.full_like(weight, value)
        optimizer.gradients_up()
    optimizer.step()
    assert torch.equal(optimizer.state[weight]["master"], torch.full((2,), -320.0))


def test_a_master_follows_who_else_writes_to_the_weight(ranks: Any) -> None:
    """A checkpoint that is loaded, and DDP, which is wrapped around after the optimizer is made."""
    layer = nn.Linear(3, 1, bias=False).bfloat16()
    optimizer = MasterWeights(layer.parameters(), torch.optim.SGD, lr=1e-4)
    layer.load_state_dict({"weight": torch.tensor([[1.0, 2.0, 3.0]])})
    for _ in range(2):
        layer.weight.grad = torch.ones_like(layer.weight)
        optimizer.step()
    with torch.no_grad():
        layer.weight[0, 1] = -1
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    master = optimizer.state[layer.weight]["master"]
    expected = torch.tensor([[1 - 3e-4, -1 - 1e-4, 3 - 3e-4]])
    torch.testing.assert_close(master, expected, rtol=1e-7, atol=0)

    def run(group: Any) -> Any:
        model = nn.Linear(3, 2).bfloat16()
        nn.init.constant_(model.weight, group.rank + 1.0)
        optimizer = MasterWeights(model.parameters(), torch.optim.AdamW, lr=1e-3)
        wrapped = BucketedDDP(model, group)
        for _ in range(3):
            wrapped(torch.ones(2, 3, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [optimizer.state[p]["master"] for p in model.parameters()]

    first, *others = ranks(run, 3)
    assert abs(first[0][0, 0].item() - 0.997) < 1e-3
    for masters in others:
        assert all(torch.equal(a, b) for a, b in zip(first, masters, strict=True))


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_saved_run_goes_on_bit_for_bit(name: str) -> None:
    make, options = OPTIMIZERS[name]

    def start() -> tuple[nn.Module, MasterWeights]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).bfloat16()
        model[1].float()
        return model, MasterWeights(model.parameters(), make, **options)

    def go_on(model: nn.Module, optimizer: MasterWeights, steps: range) -> None:
        for step in steps:
            for number, parameter in enumerate(model.parameters()):
                parameter.grad = gradient_of(100 * step + number, parameter)
            optimizer.step()

    whole, optimizer = start()
    go_on(whole, optimizer, range(6))
    half, first = start()
    go_on(half, first, range(3))
    first.param_groups[0]["lr"] *= 0.5
    file = io.BytesIO()
    torch.save({"model": half.state_dict(), "optimizer": first.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)

    resumed, second = start()
    resumed.load_state_dict(saved["model"])
    second.load_state_dict(saved["optimizer"])
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]
    second.param_groups[0]["lr"] *= 2
    for parameter in resumed.parameters():
        if parameter.dtype == torch.bfloat16:
            assert second.state[parameter]["master"].dtype == torch.float32
    go_on(resumed, second, range(3, 6))
    for mine, right in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, right)
        assert all(torch.equal(second.state[mine][k], v) for k, v in optimizer.state[right].items())


def test_the_state_of_a_plain_optimizer_begins_at_the_weights() -> None:
    weight = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    plain = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.grad = torch.ones_like(weight)
    plain.step()
    optimizer = MasterWeights([weight], torch.optim.SGD, lr=0.1, momentum=0.9)
    optimizer.load_state_dict(plain.state_dict())
    kept = optimizer.state[weight]
    assert torch.equal(kept["master"], weight.float())
    assert kept["momentum_buffer"].dtype == torch.float32


def test_groups_added_later_and_a_closure() -> None:
    first, later = (nn.Parameter(torch.ones(2, dtype=torch.bfloat16)) for _ in range(2))
    optimizer = MasterWeights([first], torch.optim.SGD, lr=0.5)
    optimizer.add_param_group({"params": [later], "lr": 0.25})

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (first + later).float().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert first[0].item() == 0.5 and later[0].item() == 0.75
    assert first.grad is None


def hidden(group: Group) -> str:
    """ZeRO over an optimizer that needs whole tensors, inside of one that does not say so."""
    weight = nn.Parameter(torch.ones(4, 4, dtype=torch.bfloat16))
    try:
        Zero1([weight], partial(MasterWeights, optimizer=torch.optim.Adafactor), group, lr=0.1)
    except CommError as error:
        return str(error)
    return ""


def test_an_optimizer_that_needs_whole_tensors_is_found_inside(ranks: Any) -> None:
    assert all("Adafactor, whose update" in said for said in ranks(hidden, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_was_frozen_has_no_master(dtype: torch.dtype) -> None:
    layer = nn.Linear(2, 2).to(dtype)
    layer.weight.requires_grad_(False)
    optimizer = MasterWeights(layer.parameters(), torch.optim.SGD, lr=1e-3)
    layer.weight.requires_grad_(True)
    layer(torch.ones(1, 2, dtype=dtype)).sum().backward()
    before = layer.bias.detach().clone()
    if dtype == torch.float32:  # its own master
        optimizer.step()
        return
    with pytest.raises(Refusal, match="frozen when the optimizer was made"):
        optimizer.step()
    assert torch.equal(layer.bias, before)
    layer.zero_grad()
    layer.weight.requires_grad_(False)
    layer(torch.ones(1, 2, dtype=dtype)).sum().backward()
    optimizer.step()
