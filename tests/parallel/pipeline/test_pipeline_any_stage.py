"""Stages of other shapes: frozen, with several tensors between them, with torch's checkpoint.

Each runs under a schedule of every kind, on a group that is not the world and not ascending, and is
equal to one process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as torchs

from course_lib.comm import Group
from course_lib.parallel.pipeline.runtime import Pipeline
from course_lib.recompute import checkpoint
from course_lib.schedule import (
    Schedule,
    ScheduleError,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    zb_h1,
    zb_v,
)

WIDTH, MICRO = 4, 4
SCHEDULES: list[Callable[[], Schedule]] = [
    lambda: gpipe(2, MICRO),
    lambda: one_f_one_b(2, MICRO),
    lambda: interleaved_1f1b(2, MICRO, 2),
    lambda: zb_h1(2, MICRO),
    lambda: zb_v(2, MICRO),
    lambda: dualpipe_v(2, MICRO),
]


class Plain(nn.Module):
    """Two linear layers: the gradients of their weights can be put off."""

    def __init__(self, number: int) -> None:
        super().__init__()
        torch.manual_seed(number)
        self.number = number
        self.up, self.down = nn.Linear(WIDTH, 5).double(), nn.Linear(5, WIDTH).double()

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).tanh())

    def forward(self, x: Any) -> Any:
        return self.body(x)


class FrozenFirst(Plain):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.requires_grad_(number > 0)


class FrozenUpToTheLast(Plain):
    def __init__(self, number: int, stages: int = 0) -> None:
        super().__init__(number)
        self.down.requires_grad_(number > 0)
        self.up.requires_grad_(False)


class FrozenMiddle(Plain):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.requires_grad_(number != 1)


class Tuples(Plain):
    """Two hidden states, one of them handed on as it is, one twice, and a mask of integers."""

    def forward(self, given: Any) -> Any:
        x, y, _, mask = (given, given * 2, None, given > 0) if not self.number else given
        return self.body(x) * mask, y, y, mask.long()


class Dicts(Plain):
    """A hidden state, one that the next stage does not use, and nothing."""

    def forward(self, given: Any) -> Any:
        x = given["x"] if self.number else given
        return {"x": self.body(x), "unused": x * 2, "none": None}


class InAutocast(Plain):
    """Products in bfloat16, whose backward runs outside of the context that cast for them."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.float()

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x + self.down(self.up(x.float()).tanh()).double()


class OneRow(Plain):
    """A product with a weight of one dim, which is a linear layer's as well."""

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return super().body(x) * nn.functional.linear(x, self.down.bias)[..., None]


def checkpointed(how: Callable[..., Any]) -> type[Plain]:
    class Checkpointed(Plain):
        def forward(self, x: Any) -> Any:
            return how(self.body, x if self.number else x.requires_grad_())

    return Checkpointed


def same(x: torch.Tensor) -> Any:
    return x


STAGES: dict[str, tuple[type[Plain], Callable[[torch.Tensor], Any]]] = {
    "frozen first": (FrozenFirst, same),
    "frozen middle": (FrozenMiddle, same),
    "partly frozen": (FrozenUpToTheLast, same),
    "tuples": (Tuples, lambda x: (x, x, x, x.long())),
    "dicts": (Dicts, lambda x: {"x": x, "unused": x, "none": None}),
    "in autocast": (InAutocast, same),
    "a weight of one dim": (OneRow, same),
    "torch's checkpoint": (checkpointed(partial(torchs, use_reentrant=False)), same),
    "torch's old checkpoint": (checkpointed(partial(torchs, use_reentrant=True)), same),
    "our checkpoint": (checkpointed(checkpoint), same),
}


def loss_of(output: Any, target: torch.Tensor) -> torch.Tensor:
    found = output if torch.is_tensor(output) else output["x"] if isinstance(output, dict) else None
    found = output[0] + output[1] * output[2] if found is None else found
    return (found - target).square().mean()


def batch() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    draw = torch.randn(MICRO, 2, 3, WIDTH, generator=generator, dtype=torch.float64)
    return [(x.clone(), y.clone()) for x, y in draw]


def gradients(stage: nn.Module) -> list[torch.Tensor | None]:
    return [p.grad for p in stage.parameters()]


def alone(kind: type[Plain], stages: int) -> dict[int, list[torch.Tensor | None]]:
    chain = [kind(number) for number in range(stages)]
    for x, y in batch():
        value: Any = x
        for stage in chain:
            value = stage(value)
        (loss_of(value, y) / MICRO).backward()
    return {number: gradients(stage) for number, stage in enumerate(chain)}


@pytest.mark.parametrize("name", STAGES)
def test_equal_to_one_process(ranks: Any, name: str) -> None:
    kind, border = STAGES[name]

    def run(world: Group) -> Any:
        group = world.split([[2, 0], [1]], "pp")
        if group.size == 1:
            return []
        found = []
        for make in SCHEDULES:
            schedule = make()
            stages = {n: kind(n) for n in schedule.stages_of(group.index)}
            pipe = Pipeline(stages, schedule, group, loss=loss_of, border=border)
            pipe.step(batch())
            found.append({n: gradients(stage) for n, stage in stages.items()})
        return found

    first, _, third = ranks(run, 3)
    for make, one, other in zip(SCHEDULES, first, third, strict=True):
        expected = alone(kind, make().stages)
        both = one | other
        assert both.keys() == expected.keys()
        for stage, grads in expected.items():
            for found, right in zip(both[stage], grads, strict=True):
                assert (found is None) == (right is None)
                if right is not None:
                    torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-12)


def test_what_stages_hand_on_is_compared_with_the_border(ranks: Any) -> None:
    def run(group: Group) -> list[str]:
        said = []
        for border in (lambda x: x[:, :2], lambda x: x.float(), lambda x: (x, x)):
            part = group.split([list(range(group.size))], "pp")
            schedule = gpipe(2, 1)
            stages = {n: Plain(n) for n in schedule.stages_of(group.index)}
            pipe = Pipeline(stages, schedule, part, loss=loss_of, border=border)
            try:
                if not group.index:
                    pipe.step(batch()[:1])
            except ScheduleError as error:
                said.append(str(error))
        return said

    shape, dtype, tree = ranks(run, 2)[0]
    assert "says: ((3, 4) torch.float64, (3, 4) torch.float64)\nfound: (3, 4)" in tree
    assert "stage 0, a Plain, hands on, as `border` says: (3, 2) torch.float64" in shape
    assert "found: (3, 4) torch.float64" in shape
    assert "(3, 4) torch.float32" in dtype


class Handing(Plain):
    """Returns a dict with its keys in a certain order, and with something that is no tensor."""

    def __init__(self, number: int, rest: Any) -> None:
        super().__init__(number)
        self.rest = rest

    def forward(self, given: Any) -> Any:
        return {"scale": self.rest, "x": self.body(given)}


@pytest.mark.parametrize("rest", [2, True, "a", None])
def test_what_is_no_tensor_is_what_the_border_says(ranks: Any, rest: Any) -> None:
    """It is not sent: the next stage would compute with the border's."""

    def run(group: Group) -> str:
        schedule = gpipe(2, 1)
        stages = {n: Handing(n, rest) for n in schedule.stages_of(group.index)}

        def border(x: torch.Tensor) -> Any:
            return {"scale": 1, "x": x}

        pipe = Pipeline(stages, schedule, group, loss=loss_of, border=border)
        if group.index:
            return ""
        with pytest.raises(ScheduleError) as caught:
            pipe.step(batch()[:1])
        return str(caught.value)

    text = ranks(run, 2)[0]
    assert "{'scale': 1, 'x': (3, 4) torch.float64}" in text and f"'scale': {rest!r}" in text


def test_a_step_without_gradients_is_refused(ranks: Any) -> None:
    def run(group: Group) -> None:
        schedule = gpipe(2, 1)
        stages = {n: Plain(n) for n in schedule.stages_of(group.index)}
        pipe = Pipeline(stages, schedule, group, loss=loss_of, border=same)
        with torch.no_grad(), pytest.raises(ScheduleError, match="without any gradient"):
            pipe.step(batch()[:1])
        pipe.step(batch()[:1])  # the refusal came before anything was sent

    ranks(run, 2)


def test_after_a_failed_step_the_pipeline_must_be_made_again(ranks: Any) -> None:
    """Messages of the failed step would be taken for those of the next."""

    def run(world: Group) -> Any:
        schedule = one_f_one_b(2, MICRO)

        def made() -> Pipeline:
            group = world.split([[0, 1]], "pp")
            stages: dict[int, nn.Module] = {n: Plain(n) for n in schedule.stages_of(group.index)}
            return Pipeline(stages, schedule, group, loss=loss_of, border=same)

        pipe = made()
        runs = iter([0] if world.index else [1, 0])  # rank 0 has sent one result by then

        def hook(*_: Any) -> None:
            _ = 1 / next(runs)

        broken = pipe.stages[world.index].register_forward_hook(hook)
        with pytest.raises(ZeroDivisionError):
            pipe.step(batch())
        broken.remove()
        said = ""
        try:
            pipe.step(batch())
        except ScheduleError as error:
            said = str(error)
        again = made()
        again.step(batch())
        return said, gradients(again.stages[world.index])

    expected = alone(Plain, 2)
    for rank, (said, found) in enumerate(ranks(run, 2)):
        assert "has not ended" in said and "make the pipeline again, on a new group" in said
        torch.testing.assert_close(found, expected[rank], rtol=1e-9, atol=1e-12)
