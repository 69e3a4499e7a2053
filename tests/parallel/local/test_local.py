"""Local steps: equal to workers that one process plays, bytes to the byte, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel import DiLoCo, Int8, LocalSGD, StreamingDiLoCo, nesterov
from course_lib.trace import wire_bytes

Ranks = Callable[..., list[Any]]
Weights = list[torch.Tensor]

SIZE, STEPS, EVERY = 3, 9, 4
plain = partial(torch.optim.SGD, lr=1.0)


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def inner(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.05)


def loss(net: nn.Module, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + step)
    x = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    return net(x).square().mean()


def alone(
    outer: Any, fragments: list[list[int]], delay: int = 0, keep: float = 0.0
) -> list[Weights]:
    """All workers in one process, written out; the weights of each after every step."""
    nets = [model() for _ in range(SIZE)]
    optimizers = [inner(net) for net in nets]
    anchors = [nn.Parameter(p.detach().clone()) for p in nets[0].parameters()]
    outer = outer(anchors)
    due: dict[int, list[tuple[list[int], Weights]]] = {}
    after = []
    for step in range(1, STEPS + 1):
        for rank, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
            optimizer.zero_grad()
            loss(net, rank, step).backward()
            optimizer.step()
        held = [list(net.parameters()) for net in nets]
        with torch.no_grad():
            for number, fragment in enumerate(fragments):
                if (step - number * EVERY // len(fragments)) % EVERY == 0:
                    mean = [sum(anchors[n] - h[n] for h in held) / SIZE for n in fragment]
                    due.setdefault(step + delay, []).append((fragment, mean))
            for fragment, mean in due.pop(step, []):
                for n, gradient in zip(fragment, mean, strict=True):
                    anchors[n].grad = gradient
                outer.step()
                outer.zero_grad()
                for n in fragment:
                    for h in held:
                        h[n].copy_(keep * h[n] + (1 - keep) * anchors[n])
        after.append([p.detach().clone() for h in held for p in h])
    return after


def train(wrap: Any, group: Group) -> tuple[float, list[int], Any]:
    """The largest gap to `alone` over all steps, and the bytes sent in each."""
    net = model(seed=group.index)  # the ranks begin apart
    made, expected = wrap(net, group)
    gap, sent = 0.0, []
    for step in range(1, STEPS + 1):
        made.zero_grad()
        loss(net, group.index, step).backward()
        with group.ledger.record() as calls:
            made.step()
        sent.append(calls.sent)
        count = len(expected[step - 1]) // SIZE
        mine = expected[step - 1][group.index * count :][:count]
        for found, right in zip(net.parameters(), mine, strict=True):
            gap = max(gap, float((found - right).abs().max()))
    return gap, sent, made


def all_reduce_bytes(group: Group, numel: int) -> int:
    return wire_bytes("all_reduce", 8 * numel, group.size, group.index, 8)[0]


def test_local_sgd_and_diloco_are_what_one_process_plays(ranks: Ranks) -> None:
    def on_rank(group: Group) -> list[tuple[float, bool]]:
        whole = [[0, 1, 2, 3]]
        ways = {
            "local": (lambda net: LocalSGD(inner(net), group, EVERY), alone(plain, whole)),
            "diloco": (lambda net: DiLoCo(inner(net), group, EVERY), alone(nesterov, whole)),
            "as local": (
                lambda net: DiLoCo(inner(net), group, EVERY, plain),
                alone(plain, whole),
            ),
        }
        found = []
        for make, expected in ways.values():
            gap, sent, _ = train(lambda net, _, m=make, e=expected: (m(net), e), group)
            meets = all_reduce_bytes(group, sum(p.numel() for p in model().parameters()))
            right = [meets if step % EVERY == 0 else 0 for step in range(1, STEPS + 1)]
            found.append((gap, sent == right))
        return found

    for result in ranks(on_rank, SIZE):
        for gap, bytes_are_right in result:
            assert gap < 1e-12
            assert bytes_are_right


@pytest.mark.parametrize("delay, keep", [(0, 0.0), (2, 0.5), (3, 0.25)])
def test_streaming_is_what_one_process_plays(ranks: Ranks, delay: int, keep: float) -> None:
    def on_rank(group: Group) -> tuple[float, bool]:
        def wrap(net: nn.Sequential, group: Group) -> Any:
            fragments = [list(net[0].parameters()), list(net[2].parameters())]
            made = StreamingDiLoCo(inner(net), group, EVERY, fragments, delay=delay, keep=keep)
            return made, alone(nesterov, [[0, 1], [2, 3]], delay, keep)

        gap, sent, made = train(wrap, group)
        first, second = (all_reduce_bytes(group, n) for n in (5 * 7 + 7, 7 * 3 + 3))
        right = [0, second, 0, first, 0, second, 0, first, 0]
        made.synchronize()
        same = all(torch.equal(p, a) for p, a in zip(made.parameters, made.anchors, strict=True))
        made.state_dict()  # nothing is under way
        return gap, sent == right and same

    for gap, right in ranks(on_rank, SIZE):
        assert gap < 1e-12
        assert right


def test_int8_differences_send_a_byte_for_each_weight_and_leave_all_ranks_equal(
    ranks: Ranks,
) -> None:
    def on_rank(group: Group) -> tuple[float, int, list[float]]:
        net = model()
        made = StreamingDiLoCo(
            inner(net), group, 1, [list(net.parameters())], plain, compressor=Int8(block=16)
        )
        loss(net, group.index, 1).backward()
        with group.ledger.record() as calls:
            made.step()
        exact = alone_step()
        off = max(float((p - e).abs().max()) for p, e in zip(net.parameters(), exact, strict=True))
        return off, calls.sent, [float(p.sum()) for p in net.parameters()]

    def alone_step() -> Weights:
        nets = [model() for _ in range(SIZE)]
        for rank, net in enumerate(nets):
            optimizer = inner(net)
            loss(net, rank, 1).backward()
            optimizer.step()
        each = zip(*(net.parameters() for net in nets), strict=True)
        return [torch.stack([p.detach() for p in ps]).mean(0) for ps in each]

    found = ranks(on_rank, SIZE)
    assert all(0 < off <= 0.05 / 127 for off, _, _ in found)  # half a step of the largest move
    blocks = sum(-(-n // 16) for n in (35, 7, 21, 3))
    assert all(sent == (SIZE - 1) * (66 + 8 * blocks) for _, sent, _ in found)
    assert found[0][2] == found[1][2] == found[2][2]


def test_a_run_that_was_saved_goes_on_as_if_it_had_not_been(ranks: Ranks) -> None:
    def on_rank(group: Group) -> bool:
        def trained(net: nn.Module, made: DiLoCo, steps: range) -> None:
            for step in steps:
                made.zero_grad()
                loss(net, group.index, step).backward()
                made.step()

        net, other = model(), model()
        made, again = (DiLoCo(inner(n), group, EVERY) for n in (net, other))
        trained(net, made, range(1, 7))
        again.load_state_dict(copy.deepcopy(made.state_dict()))  # as from a file
        other.load_state_dict(net.state_dict())
        trained(net, made, range(7, 10))
        trained(other, again, range(7, 10))
        pairs = zip(net.parameters(), other.parameters(), strict=True)
        return all(torch.equal(one, two) for one, two in pairs)

    assert all(ranks(on_rank, 2))


def test_what_cannot_meet_is_refused(ranks: Ranks) -> None:
    def on_rank(group: Group) -> list[str]:
        net = model()
        parameters = list(net.parameters())
        streaming = partial(StreamingDiLoCo, inner(net), group, EVERY)
        said = []
        for make in (
            lambda: LocalSGD(inner(net), group, 0),
            lambda: DiLoCo(inner(net), group, 2, lambda a: torch.optim.SGD(a[:1], lr=1.0)),
            lambda: streaming([parameters[:3]]),
            lambda: streaming([parameters], delay=EVERY),
            lambda: under_way(streaming([parameters], delay=1), net),
            lambda: unfrozen(model(), group),
        ):
            with pytest.raises(CommError) as error:
                make()
            said.append(error.value.found)
        return said

    def under_way(made: StreamingDiLoCo, net: nn.Module) -> None:
        for step in range(EVERY):
            made.zero_grad()
            loss(net, 0, step).backward()
            made.step()
        try:
            made.state_dict()
        finally:
            made.synchronize()

    def unfrozen(net: nn.Sequential, group: Group) -> None:
        net[0].requires_grad_(False)
        made = LocalSGD(inner(net), group, EVERY)
        loss(net, 0, 0).backward()
        made.step()
        net[0].requires_grad_(True)
        made.step()

    assert ranks(on_rank, 2)[0] == [
        "4 parameters that are trained",
        "1 tensors in it, where 4 anchors were given to it",
        "3 parameters in them, of 4 that are trained",
        "4 steps between two meetings of each of 1 fragments",
        "1 meetings under way",
        "2 parameters that were frozen, or not there, when it was made",
    ]


def test_a_state_is_loaded_while_a_meeting_is_under_way(ranks: Ranks) -> None:
    def run(group: Group) -> Any:
        nets = [model(), model()]
        made = [
            StreamingDiLoCo(inner(net), group, EVERY, [list(net.parameters())], delay=2)
            for net in nets
        ]
        begin, weights = copy.deepcopy(made[0].state_dict()), copy.deepcopy(nets[0].state_dict())

        def train(net: nn.Module, optimizer: StreamingDiLoCo, steps: int) -> None:
            for step in range(steps):
                optimizer.zero_grad()
                loss(net, group.rank, step).backward()
                optimizer.step()

        train(nets[0], made[0], EVERY + 1)
        nets[0].load_state_dict(weights)
        made[0].load_state_dict(begin)
        for net, optimizer in zip(nets, made, strict=True):
            train(net, optimizer, EVERY + 3)
        return [[p.detach() for p in net.parameters()] for net in nets]

    for again, fresh in ranks(run, SIZE):
        torch.testing.assert_close(again, fresh, rtol=0, atol=0)


def test_a_fragment_without_parameters_meets_and_moves_nothing(ranks: Ranks) -> None:
    def run(group: Group) -> int:
        net = model()
        fragments = [list(net.parameters()), []]
        optimizer = StreamingDiLoCo(inner(net), group, EVERY, fragments, compressor=Int8())
        for step in range(EVERY):
            loss(net, group.rank, step).backward()
            optimizer.step()
        return optimizer.steps

    assert ranks(run, 2) == [EVERY] * 2
