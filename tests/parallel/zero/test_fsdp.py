"""FSDP: equal to one process for every strategy, bytes to the byte, 1/N of everything."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import CommError, Mesh
from course_lib.parallel import FSDP, Precision
from course_lib.trace.memory import LiveMemory, held_bytes
from tests.tiers import sampled

OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


class Block(nn.Module):
    """A residual block with a bias, sizes that do not divide, and perhaps a part left unused."""

    def __init__(self, width: int, seed: int, extra: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) / 3)

        self.inner, self.bias, self.outer = weight(width, 11), weight(11), weight(11, width)
        self.extra = weight(5) if extra else None

    def forward(self, x: torch.Tensor, use_extra: bool = False) -> torch.Tensor:
        hidden = torch.tanh(x @ self.inner + self.bias)
        if use_extra and self.extra is not None:
            hidden = hidden * self.extra.sum()
        return x + hidden @ self.outer


class Model(nn.Module):
    """Tied ends, a frozen block, a block used twice, and a buffer."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        self.kind = kind
        self.ends = nn.Parameter(torch.linspace(-1, 1, 7 * 6, dtype=torch.float64).view(7, 6))
        self.blocks = nn.ModuleList(Block(6, n, extra=kind == "unused") for n in range(4))
        self.register_buffer("shift", torch.full((6,), 0.3, dtype=torch.float64))
        if kind == "frozen":
            self.blocks[1].requires_grad_(False)
            self.blocks[2].bias.requires_grad_(False)
        if kind == "tied":
            self.blocks[3].inner = self.blocks[0].inner

    def forward(self, x: torch.Tensor, some: bool = False) -> torch.Tensor:
        x = x @ self.ends + self.shift
        for number, block in enumerate(self.blocks):
            x = block(x, use_extra=some and number == 2)
            if self.kind == "repeated" and number == 1:
                x = self.blocks[0](x)
        return x @ self.ends.t()


KINDS = ("plain", "frozen", "tied", "repeated", "unused")


def batch_of(step: int) -> torch.Tensor:
    return torch.randn(12, 7, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def alone(kind: str, optimizer: str, some: Any = False, steps: int = 4) -> Any:
    """One process: gradients before the first step, weights after the last."""
    model = Model(kind)
    made = OPTIMIZERS[optimizer](model.parameters())
    first: dict[str, torch.Tensor] = {}
    for step in range(steps):
        made.zero_grad()
        model(batch_of(step), some).pow(2).mean().backward()
        if not step:
            first = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        made.step()
    return first, {n: t.detach().clone() for n, t in model.state_dict().items()}


def sharded(group: Any, kind: str, optimizer: str, steps: int = 4, **options: Any) -> Any:
    """The same on the ranks of `group`."""
    model = Model(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(group.rank)  # replicas that begin apart must be made equal
    mesh = Mesh(group, {"replica": 2, "shard": group.size // 2}) if options.pop("hsdp", 0) else None
    some = options.pop("some", lambda rank: False)
    shards, replicas = (mesh["shard"], mesh["replica"]) if mesh else (group, None)
    whole = options.pop("whole", False)
    units = () if whole else model.blocks
    wrapped = FSDP(model, shards, units, replicas=replicas, **options)
    made = OPTIMIZERS[optimizer](wrapped.parameters())
    first: dict[str, torch.Tensor] = {}
    for step in range(steps):
        made.zero_grad(set_to_none=step % 2 == 0)
        part = batch_of(step).chunk(group.size)[group.index]
        wrapped(part, some(group.rank)).pow(2).mean().backward()
        if not step:
            first = wrapped.full_gradients()
        made.step()
    return first, wrapped.full_state_dict()


def close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("world", sampled([3, 1, 4, 2], 2))
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_equal_to_one_process(ranks: Any, world: int, optimizer: str) -> None:
    def run(group: Any) -> Any:
        return {kind: sharded(group, kind, optimizer, find_unused_parameters=kind == "unused")
                for kind in KINDS}  # fmt: skip

    results = ranks(run, world)
    for kind in KINDS:
        expected = alone(kind, optimizer)
        for result in results:
            close(result[kind], expected)


@pytest.mark.parametrize(
    "options", [{"reshard": False}, {"prefetch": False}, {"whole": True}, {"hsdp": True}], ids=str
)
def test_every_strategy_is_equal_to_one_process(ranks: Any, options: dict[str, Any]) -> None:
    def run(group: Any) -> Any:
        return [sharded(group, kind, "AdamW", **dict(options)) for kind in ("tied", "repeated")]

    expected = [alone(kind, "AdamW") for kind in ("tied", "repeated")]
    for result in ranks(run, 4):
        close(result, expected)


def test_a_part_that_one_rank_uses_takes_part_with_zeros(ranks: Any) -> None:
    def run(group: Any) -> Any:
        return sharded(group, "unused", "SGD", steps=1, find_unused_parameters=True,
                       some=lambda rank: rank == 1)  # fmt: skip

    model = Model("unused")
    parts = batch_of(0).chunk(3)
    loss = sum(model(part, rank == 1).pow(2).mean() for rank, part in enumerate(parts)) / 3
    loss.backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert "blocks.2.extra" in expected and "blocks.1.extra" not in expected
    for gradients, _ in ranks(run, 3):
        close(gradients, expected)


@pytest.mark.parametrize("options", [{}, {"prefetch": False}, {"reshard": False}], ids=str)
def test_ranks_whose_units_complete_at_different_times(ranks: Any, options: Any) -> None:
    """One rank has all gradients of a unit in backward, the others know at its end what is not."""

    def model_of() -> Model:
        model = Model()
        model.blocks[2].extra = nn.Parameter(torch.ones(5, dtype=torch.float64))
        return model

    def run(group: Any) -> Any:
        model = model_of()
        wrapped = FSDP(model, group, model.blocks, find_unused_parameters=True, **options)
        for step in range(2):
            part = batch_of(step).chunk(group.size)[group.index]
            wrapped(part, group.rank == 1).pow(2).mean().backward()
        return wrapped.full_gradients()

    for world in (2, 3):
        model = model_of()
        for step in range(2):
            for rank, part in enumerate(batch_of(step).chunk(world)):
                (model(part, rank == 1).pow(2).mean() / world).backward()
        expected = {n: p.grad for n, p in model.named_parameters()}
        for found in ranks(run, world):
            close(found, expected)


def test_a_missing_gradient_is_named(ranks: Any) -> None:
    def run(group: Any) -> str:
        try:
            sharded(group, "unused", "SGD", steps=1)
        except CommError as error:
            return str(error)
        return ""

    for rank, text in enumerate(ranks(run, 2)):
        assert (
            f"none for blocks.3.extra, blocks.2.extra, blocks.1.extra and 1 more on rank {rank}"
            in text
        )
        assert "find_unused_parameters" in text


def unit_bytes(model: nn.Module, size: int) -> tuple[int, int]:
    """Bytes of the padded blocks together, and of the padded root."""

    def padded(parameters: Any) -> int:
        return -(-sum(p.numel() for p in parameters) // size) * size * 8

    blocks = sum(padded(block.parameters()) for block in model.blocks)
    return blocks, padded([model.ends])


@pytest.mark.parametrize("reshard", [True, False])
def test_bytes_are_the_formulas(ranks: Any, reshard: bool) -> None:
    def run(group: Any) -> Any:
        inner = Model()
        model = FSDP(inner, group, inner.blocks, reshard=reshard)
        since = len(group.ledger.events)
        for step in range(2):
            model(batch_of(step)).pow(2).mean().backward()
        events = group.ledger.events[since:]
        return {
            op: sum(e.sent for e in events if e.op == op) for op in ("all_gather", "reduce_scatter")
        }

    world = 3
    blocks, root = unit_bytes(Model(), world)
    gathers = 2 if reshard else 1
    for sent in ranks(run, world):
        assert sent["all_gather"] == 2 * (gathers * blocks + root) * (world - 1) // world
        assert sent["reduce_scatter"] == 2 * (blocks + root) * (world - 1) // world


class Wide(nn.Module):
    """Six equal layers, 256 KiB each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_memory_is_one_nth_and_two_units_more(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Wide()
        with LiveMemory() as memory:
            wrapped = FSDP(model, group, model.layers)
            shard = memory.settle(6 * 256 * 256 * 4 // 4)
            optimizer = torch.optim.Adam(wrapped.parameters())
            for _ in range(2):
                before = memory.now
                memory.peak = before
                wrapped(torch.randn(4, 256)).pow(2).mean().backward()
                peak = memory.peak - before
                optimizer.step()
            persistent = memory.settle(4 * shard + 10_000 - 1)
        state = held_bytes(t for s in optimizer.state.values() for t in s.values() if t.dim())
        return shard, held_bytes(p.detach() for p in wrapped.parameters()), state, peak, persistent

    unit = 256 * 256 * 4
    for shard, parameters, state, peak, persistent in ranks(run, 4):
        assert shard == parameters == 6 * unit // 4
        assert state == 2 * parameters
        assert persistent < 4 * parameters + 10_000, "parameters, gradients and two moments"
        # Two units of parameters; a unit's gradient, its flat copy and what is received for it;
        # the rest are activations of four rows.
        assert peak < 5 * unit + 6 * unit // 4 + 80_000


def test_the_next_unit_is_on_its_way_before_this_one_computes(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Model()
        wrapped = FSDP(model, group, model.blocks)
        for _ in range(2):
            group.ledger.spans.clear()
            wrapped(batch_of(0)).pow(2).mean().backward()
        return [(s.begin, s.end, s.name) for s in group.ledger.spans]

    for spans in ranks(run, 2):
        begins: dict[str, list[float]] = {}
        ends: dict[str, float] = {}
        for begin, end, name in spans:
            begins.setdefault(name, []).append(begin)
            ends[name] = end
        for n in range(3):
            assert begins[f"gather blocks.{n + 1}"][0] < ends[f"forward blocks.{n}"]
            assert begins[f"gather blocks.{n}"][-1] < ends[f"backward blocks.{n + 1}"]
            assert begins[f"reduce blocks.{n + 1}"][0] < ends[f"backward blocks.{n}"]
        assert most_resident([name for _, _, name in sorted(spans)]) == 2


def most_resident(names: list[str]) -> int:
    """How many units were whole, or on their way, at the same time; the root left out."""
    whole: set[str] = set()
    most = 0
    for what, _, unit in (name.partition(" ") for name in names if "root" not in name):
        whole |= {unit} if what == "gather" else set()
        whole -= {unit} if what == "free" else set()
        most = max(most, len(whole))
    return most


@pytest.mark.parametrize("local", [False, True])
def test_accumulation(ranks: Any, local: bool) -> None:
    def run(group: Any) -> Any:
        model = Model()
        wrapped = FSDP(model, group, model.blocks)
        optimizer = OPTIMIZERS["AdamW"](wrapped.parameters())
        since = len(group.ledger.events)
        for step in range(3):
            optimizer.zero_grad()
            parts = batch_of(step).chunk(group.size)[group.index].chunk(2)
            if local:
                with wrapped.no_sync():
                    (wrapped(parts[0]).pow(2).mean() / 2).backward()
            else:
                (wrapped(parts[0]).pow(2).mean() / 2).backward()
            (wrapped(parts[1]).pow(2).mean() / 2).backward()
            optimizer.step()
        reduced = [e for e in group.ledger.events[since:] if e.op == "reduce_scatter"]
        return wrapped.full_state_dict(), len(reduced)

    expected = alone("plain", "AdamW", steps=3)[1]
    for state, reductions in ranks(run, 2):
        close(state, expected)
        assert reductions == 3 * 5 * (1 if local else 2)


def test_clipping_sees_every_element_once(ranks: Any) -> None:
    def run(group: Any, hsdp: bool) -> Any:
        model = Model("tied")
        mesh = Mesh(group, {"replica": 2, "shard": 2}) if hsdp else None
        wrapped = FSDP(model, mesh["shard"] if mesh else group, model.blocks,
                       replicas=mesh["replica"] if mesh else None)  # fmt: skip
        wrapped(batch_of(0).chunk(group.size)[group.index]).pow(2).mean().backward()
        norm = wrapped.clip_grad_norm(0.5).item()
        return norm, wrapped.full_gradients()

    model = Model("tied")
    model(batch_of(0)).pow(2).mean().backward()
    expected = nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
    gradients = {n: p.grad for n, p in model.named_parameters()}
    for world, hsdp in ((3, False), (4, True)):
        for norm, got in ranks(run, world, hsdp):
            assert math.isclose(norm, expected, rel_tol=1e-12)
            close(got, gradients)


def test_low_precision_computes_in_bf16_and_keeps_float32(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Wide()
        seen = []
        model.layers[0].register_forward_hook(
            lambda m, a, out: seen.append((m.weight.dtype, out.dtype))
        )
        wrapped = FSDP(
            model, group, model.layers, precision=Precision(torch.bfloat16, torch.float32)
        )
        since = len(group.ledger.events)
        wrapped(torch.ones(4, 256)).float().pow(2).mean().backward()
        dtypes = {e.op: e.dtype for e in group.ledger.events[since:]}
        return seen[0], dtypes, {(p.dtype, p.grad.dtype) for p in wrapped.parameters()}

    for seen, dtypes, kept in ranks(run, 2):
        assert seen == (torch.bfloat16, torch.bfloat16)
        assert dtypes == {"all_gather": "bfloat16", "reduce_scatter": "float32"}
        assert kept == {(torch.float32, torch.float32)}


@pytest.mark.parametrize("options", [{}, {"reshard": False}, {"prefetch": False}], ids=str)
def test_low_precision_and_weights_that_are_used_twice(ranks: Any, options: dict[str, Any]) -> None:
    """A unit that is cut between two uses has two sums of gradients, which come one by one."""

    def run(group: Any) -> Any:
        return {
            kind: sharded(group, kind, "SGD", 2, precision=Precision(torch.float32, torch.float64),
                          find_unused_parameters=kind == "unused", **dict(options))
            for kind in KINDS
        }  # fmt: skip

    results = ranks(run, 2)
    for kind in KINDS:
        expected = alone(kind, "SGD", steps=2)
        for result in results:
            torch.testing.assert_close(result[kind], expected, rtol=2e-5, atol=2e-6)


def test_two_forwards_and_one_backward(ranks: Any) -> None:
    """Right where autograd has one sum of gradients, and where the second comes by itself."""

    def run(group: Any, precision: Any, reshard: bool) -> Any:
        model = Model()
        wrapped = FSDP(model, group, model.blocks, precision=precision, reshard=reshard)
        parts = [batch_of(step).chunk(group.size)[group.index] for step in range(2)]
        sum(wrapped(part).double().pow(2).mean() for part in parts).backward()
        return wrapped.full_gradients()

    model = Model()
    sum(model(batch_of(step)).pow(2).mean() for step in range(2)).backward()
    expected = {n: p.grad.float() for n, p in model.named_parameters()}
    low = Precision(torch.float32)
    for precision, reshard in ((None, True), (None, False), (low, False), (low, True)):
        for found in ranks(run, 2, precision, reshard):
            got = {n: g.float() for n, g in found.items()}
            torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6)


class Reentrant(torch.autograd.Function):
    """Recomputes a function in backward, by a backward inside it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, function: Any) -> torch.Tensor:
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.backward(ctx.function(x), grads)
        return x.grad, None


class Twice(nn.Module):
    """A weight that gets a part of its gradient from each of two inner backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = Reentrant.apply(x, lambda x: x * self.scale)
        return x


def test_backwards_inside_a_backward(ranks: Any) -> None:
    """Each unit takes gradients until what began after it is behind."""

    def run(group: Any, in_unit: bool) -> Any:
        model = nn.Sequential(Twice(), nn.ReLU())
        wrapped = FSDP(model, group, [model[0]] if in_unit else ())
        wrapped(torch.ones(2, 3, requires_grad=True)).sum().backward()
        return wrapped.full_gradients()["0.scale"]

    for world in (1, 2, 3):
        for in_unit in (False, True):
            for gradient in ranks(run, world, in_unit):
                assert gradient.tolist() == [2 * 2 * scale for scale in (2.0, 3.0, 4.0)]


def test_a_unit_used_twice_is_reduced_once_in_its_place(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Model("repeated")
        wrapped = FSDP(model, group, model.blocks, precision=Precision(torch.float32))
        wrapped(batch_of(0)).pow(2).mean().backward()
        spans = sorted((s.begin, s.name) for s in group.ledger.spans)
        return [name.removeprefix("reduce ") for _, name in spans if name.startswith("reduce")]

    for reduced in ranks(run, 2):
        assert reduced == ["blocks.3", "blocks.2", "blocks.1", "blocks.0", "root"]


def test_several_dtypes_eval_and_state(ranks: Any) -> None:
    def run(group: Any) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3).double())
        model[0].register_forward_hook(lambda m, a, out: out.double())
        before = {n: t.clone() for n, t in model.state_dict().items()}
        wrapped = FSDP(model, group, [model[1]])
        names = [n for n, _ in wrapped.module.named_parameters()]
        with torch.no_grad():
            first = wrapped.eval()(torch.ones(2, 5))
        close(wrapped.full_state_dict(), before)
        changed = {n: t + 1 for n, t in before.items()}
        wrapped.load_full_state_dict(changed)
        close(wrapped.full_state_dict(), changed)
        wrapped.train()(torch.ones(2, 5)).sum().backward()
        held = sum(p.numel() for p in wrapped.parameters())
        return names, first.shape, held, {p.grad.dtype for p in wrapped.parameters()}

    results = ranks(run, 2)
    assert sum(held for _, _, held, _ in results) == 5 * 3 + 3 + 3 * 3 + 3
    for names, shape, _, dtypes in results:
        assert names == ["0.weight", "0.bias", "1.weight", "1.bias"]
        assert shape == (2, 3)
        assert dtypes == {torch.float32, torch.float64}


def refusals(group: Any) -> dict[str, str]:
    """What wrong use is answered with."""

    def trial(action: Any) -> str:
        try:
            action()
        except CommError as error:
            return str(error)
        return "no error"

    def stepped_before() -> None:
        model = Model()
        optimizer = OPTIMIZERS["AdamW"](model.parameters())
        model(batch_of(0)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        FSDP(model, group, model.blocks)(batch_of(0)).sum().backward()
        optimizer.step()

    def only_local() -> None:
        model = Model()
        wrapped = FSDP(model, group, model.blocks)
        optimizer = OPTIMIZERS["SGD"](wrapped.parameters())
        with wrapped.no_sync():
            wrapped(batch_of(0)).sum().backward()
        optimizer.step()

    def twice() -> None:
        model = Model()
        FSDP(nn.Sequential(FSDP(model, group)), group)

    return {
        "stepped before": trial(stepped_before),
        "only local": trial(only_local),
        "twice": trial(twice),
        "no submodule": trial(lambda: FSDP(Model(), group, [nn.Linear(1, 1)])),
        "no parameters": trial(lambda: FSDP(nn.ReLU(), group)),
        "no axis": trial(lambda: FSDP(Model(), Mesh(group, {"dp": group.size})["shard"])),
        "no mesh": trial(lambda: Mesh(group, {"replica": 2, "shard": 3})),
        "other state": trial(lambda: FSDP(Model(), group).load_full_state_dict({})),
    }


def test_wrong_use_is_one_clear_error(ranks: Any) -> None:
    words = {
        "stepped before": "built and used before FSDP",
        "only local": "no other rank has seen",
        "twice": "sharded already",
        "no submodule": "0 of them among its submodules",
        "no parameters": "something to shard",
        "no axis": "'shard'",
        "no mesh": "6 ranks",
        "other state": "missing or of another shape",
    }
    for found in ranks(refusals, 2):
        for case, text in found.items():
            assert words[case] in text, (case, text)
            assert len(text.splitlines()) == 3


def test_replicas_that_have_other_shards_are_refused(ranks: Any) -> None:
    def run(world: Any) -> list[str]:
        shards = world.split([[0, 1], [2, 3]], "shard")
        said = []
        for replicas in (shards, world):
            with pytest.raises(CommError, match="replicas have the same shard") as error:
                FSDP(nn.Linear(2, 2), shards, replicas=replicas)
            said.append(str(error.value))
        FSDP(nn.Linear(2, 2), shards, replicas=world.split([[0, 2], [1, 3]], "replica"))
        return said

    for rank, said in enumerate(ranks(run, 4)):
        assert all(f"[{rank ^ 1}" in found or f"{rank ^ 1}]" in found for found in said)
