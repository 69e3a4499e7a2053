"""checkpoint: the gradients without it, the same random numbers, L inputs and one block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis
from course_lib.trace.memory import LiveMemory

EXERCISE = Exercise(
    title="A block that computes its activations twice",
    core=True,
    minutes=35,
    order=1,
    defines=("checkpoint",),
    library=(),
    own=("torch.utils.checkpoint.checkpoint",),
    hints=(
        "List what `fn`'s result depends on: its arguments, the random state, autocast. "
        "`forward` keeps all of that; `backward` restores it, runs `fn` again, and goes backward "
        "through that run alone. What does autograd turn off in `backward` that you must turn on?",
        "`backward`: detach the tensors among the arguments, and let each require a gradient if "
        "`ctx.needs_input_grad` says so (`token` and `fn` come first there). Then `fn` under "
        "`torch.enable_grad()`, `torch.autograd.backward(output, gradient)`, and the gradients "
        "are the `.grad` of the detached tensors.",
        "`outside = torch.get_rng_state()`; `torch.set_rng_state(ctx.state)`; run `fn` in "
        "`torch.autocast(...)` with the settings noted in forward; "
        "`torch.set_rng_state(outside)`. Keep only tensors in `save_for_backward`, with their "
        "places, and the other arguments in a list on `ctx`; put the detached ones into a copy "
        "of that list.",
    ),
)

BLOCKS, DEPTH, COUNT = 6, 6, 8192  # of the stack that is measured: COUNT numbers are one input
STATE = 6000  # bytes, more than a random state takes
AGAIN = "note the random state before the first run, and set it before the second"
UNTOUCHED = "set the generator back, after the second run, to where it was before it"
Call = Callable[..., torch.Tensor]


# --- what runs on the rank -----------------------------------------------------------------------
class Block:
    """Dropout, a number, and tensors of several kinds; it notes what each run draws."""

    def __init__(self, matrix: torch.Tensor, gain: torch.Tensor) -> None:
        self.matrix, self.gain = matrix.clone().requires_grad_(), gain.clone().requires_grad_()
        self.drawn: list[torch.Tensor] = []

    def __call__(
        self, x: torch.Tensor, power: int, other: torch.Tensor, order: torch.Tensor | None
    ) -> torch.Tensor:
        """Rows of `x` and of `other`, those of `other` in another order if there is one."""
        kept = torch.rand_like(x)
        self.drawn.append(kept)
        h = torch.tanh(x @ self.matrix) * (kept < 0.7)
        return h ** (power + 1) + (other if order is None else other[order]) * self.gain

    def grads(self) -> list[torch.Tensor | None]:
        """The gradients of both parameters."""
        return [self.matrix.grad, self.gain.grad]


def walk(checkpoint: Call, given: dict[str, Any]) -> dict[str, Any]:
    """A chain of three calls, the first without an input that needs a gradient; two backwards."""
    torch.manual_seed(given["seed"])
    first, second = (Block(*weights) for weights in given["weights"])
    data, order = given["data"].t(), given["order"]
    inner = given["inner"].clone().requires_grad_()
    h = checkpoint(first, data, 0, data * 0.5, None)
    needs = h.requires_grad
    if needs:
        h.retain_grad()
    middle = checkpoint(second, h, 1, inner, order)
    between = torch.rand(3)
    y = checkpoint(first, middle, 2, middle, order)
    found: dict[str, Any] = {
        "output": y.detach().clone(),
        "forward": torch.stack([between, torch.rand(3)]),
    }
    loss = (y * given["slopes"]).sum()
    loss.backward(retain_graph=True)
    found["backward"] = torch.rand(3)
    found["runs"] = [list(first.drawn), list(second.drawn)]
    found["input"] = None if inner.grad is None else inner.grad.clone()
    found["needs"] = needs
    found["x"] = None if h.grad is None else h.grad.clone()
    found["first"], found["second"] = (
        [None if g is None else g.clone() for g in b.grads()] for b in (first, second)
    )
    loss.backward()
    found["again"] = [inner.grad, *first.grads(), *second.grads()]
    for flags in (True, False), (False, True):
        pair = [data.clone().requires_grad_(flag) for flag in flags]
        checkpoint(first, pair[0], 1, pair[1], order).sum().backward()
        found["one"] = [*found.get("one", []), *(tensor.grad for tensor in pair)]
    return found


def drive(learner: Any, group: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The chain with the learner's checkpoint; then without autograd; then one changed input."""

    def call(fn: Call, *args: Any) -> torch.Tensor:
        y = learner.checkpoint(fn, *args)
        if not isinstance(y, torch.Tensor):
            raise TypeError(f"checkpoint must return fn's tensor, not {type(y).__name__}")
        return y

    found = walk(call, given)
    with torch.no_grad():
        block = Block(*given["weights"][0])
        y = learner.checkpoint(block, given["data"].t(), 0, given["data"].t(), None)
    inner = given["inner"].clone().requires_grad_()
    changed, noticed = call(block, inner, 0, inner, None).sum(), False
    inner.detach().add_(1)
    try:
        changed.backward()
    except RuntimeError:
        noticed = True
    return found | {"watched": y.requires_grad, "noticed": noticed}


def waves(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """Of DEPTH operations' pairs, each saves what comes in and what it makes of it."""
    for _ in range(DEPTH):
        x = torch.sin(x * gain)
    return x


def drive_memory(learner: Any, group: Any, x: torch.Tensor) -> dict[str, int]:
    """What a stack holds after forward, at the peak of backward, and at its end."""
    gains = [torch.full((), 1.1, dtype=x.dtype, requires_grad=True) for _ in range(BLOCKS)]
    with LiveMemory() as memory:
        y = x
        for gain in gains:
            y = learner.checkpoint(waves, y, gain)
        held, memory.peak = memory.now, memory.now
        slope = torch.ones_like(y)
        y.backward(slope, retain_graph=True)
        return {"held": held, "peak": memory.peak, "left": memory.now - held}


def drive_autocast(
    learner: Any, group: Any, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype
) -> dict[str, Any]:
    """The dtypes of a product: in a block under autocast, and in one under none."""
    seen: dict[str, list[str]] = {"on": [], "off": []}

    def product(x: torch.Tensor, y: torch.Tensor, name: str) -> torch.Tensor:
        z = x @ y
        seen[name].append(str(z.dtype))
        return z.float()

    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        inside = learner.checkpoint(product, a, b, "on")
    outside = learner.checkpoint(product, a, b, "off")
    inside.sum().backward()
    with torch.autocast("cpu", dtype=dtype):
        outside.sum().backward()
    return seen


# --- what it must bring back ---------------------------------------------------------------------
def _given(run: Run) -> dict[str, Any]:
    """Hidden sizes; blocks keep the width, and what comes in is not contiguous."""
    rows, width = run.number(3, 7), run.number(4, 9)
    weights = [(run.random((width, width)) / 2, run.random(width)) for _ in range(2)]
    return {"weights": weights, "data": run.random((width, rows)),
            "inner": run.random((rows, width)), "slopes": run.random((rows, width)),
            "order": run.integers(0, rows, rows), "seed": run.number(1, 10_000)}  # fmt: skip


def _expected(given: dict[str, Any]) -> dict[str, Any]:
    """The same chain, without checkpoints."""
    with torch.random.fork_rng(devices=[]):
        return walk(lambda fn, *args: fn(*args), given)


def _there(run: Run, grads: list[Any], what: str, cause: str) -> None:
    for grad in grads:
        run.true(
            grad is not None,
            f"{what}: there is none",
            expected="a tensor",
            measured="None",
            cause=cause,
        )


@check("output and gradients as without checkpointing", points=6, code="E")
@diagnosis(
    "the second run must repeat the first, and be differentiated with the output's gradient; each "
    "input's gradient belongs in its own place"
)
def check_gradients(run: Run) -> None:
    """E: dropout, a block used twice, data without a gradient, and two backwards."""
    given = _given(run)
    found, wanted = run(drive, {"given": given}).outputs[0], _expected(given)
    run.close(found["output"], wanted["output"], "the output")
    inner = "`backward` returns a gradient for each tensor that needs one, in the place of `args`"
    token = "a block whose inputs need no gradient has parameters that do: give it the token"
    run.true(
        found["needs"], "a block's output needs no gradient if none of its inputs does", cause=token
    )
    _there(run, [found["input"]], "the gradient of the second block's `other`", inner)
    _there(run, found["second"] + found["first"], "gradients of a block's parameters", token)
    _there(run, [found["x"]], "the gradient of the second block's `x`", inner)
    params = "gradients of the second block's parameters"
    run.close(found["second"], wanted["second"], params)
    crossed = "it is the gradient of another input: keep their order"
    what = "the gradient of the second block's `other`"
    run.close(found["input"], wanted["input"], what, likely={crossed: wanted["x"]})
    likely = {crossed: wanted["input"]}
    run.close(found["x"], wanted["x"], "the gradient of the second block's `x`", likely=likely)
    run.close(found["first"], wanted["first"], "gradients of the first block's parameters")
    run.close(found["again"], wanted["again"], "all gradients, after a second backward")
    what = "the gradients where only `x` or only `other` needs one"
    run.equal([g is None for g in found["one"]], [g is None for g in wanted["one"]], what)
    run.close(found["one"], wanted["one"], what)
    run.equal(found["watched"], False, "whether the output under `no_grad` requires a gradient")
    run.true(
        found["noticed"],
        "an input was changed in place before backward, and backward raised no error",
        expected="RuntimeError: the second run must not compute from other numbers",
        cause="autograd looks after tensors in `ctx.save_for_backward`, and after no others",
    )


@check("the second run draws the same numbers, and none are drawn outside", points=4, code="E")
@diagnosis("note the random state in forward; in backward set it, run, and set it back")
def check_random(run: Run) -> None:
    """E: what each run draws, and what is drawn between, after forward and after backward."""
    given = _given(run)
    found, wanted = run(drive, {"given": given}).outputs[0], _expected(given)
    firsts = [runs[: len(once)] for runs, once in zip(found["runs"], wanted["runs"], strict=True)]
    run.equal(firsts, wanted["runs"], "the numbers drawn in the first runs")
    run.equal(found["forward"], wanted["forward"], "the numbers drawn outside after a first run")
    for drawn, once in zip(found["runs"], wanted["runs"], strict=True):
        again = drawn[len(once) :]
        for numbers in again:
            run.true(
                any(torch.equal(numbers, each) for each in once),
                cause=AGAIN,
                message="a second run draws different random numbers from the first",
                expected=describe(once[-1]),
                measured=describe(numbers),
            )
    run.true(
        torch.equal(found["backward"], wanted["backward"]),
        "after backward, the random numbers drawn outside differ from those without checkpoints",
        expected=str(wanted["backward"].tolist()),
        measured=str(found["backward"].tolist()),
        cause=UNTOUCHED,
    )


@check("one run in forward, one in backward", points=2, code="B")
@diagnosis("`fn` is called once for all its gradients")
def check_calls(run: Run) -> None:
    """B: calls of each block's function until the end of the first backward."""
    given = _given(run)
    found = run(drive, {"given": given}).outputs[0]
    counts = [len(drawn) for drawn in found["runs"]]
    likely = {
        "each block is recomputed more than once": [6, 3],
        "nothing is recomputed: the first run's graph was kept": [2, 1],
    }
    what = "how often two blocks run, of which the first is used twice"
    run.equal(counts, [4, 2], what, likely=likely)


@check("a stack holds its inputs and one block's activations", points=4, code="M")
@diagnosis("keep only the inputs of the first run, and nothing of the second")
def check_memory(run: Run) -> None:
    """M: every byte that is alive, after forward, in backward and after it."""
    found = run(drive_memory, {"x": run.random(COUNT)}).outputs[0]
    size, states = COUNT * 8, BLOCKS * STATE
    run.at_most(
        found["held"],
        (BLOCKS + 1) * size + states,
        "bytes held after forward",
        cause="activations of the first run are kept: autograd must not record it, and nothing "
        "with a graph may be kept",
    )
    cause = "the second run's tensors stay in memory, on `ctx` or in a reference cycle"
    run.at_most(found["left"], 2 * size + STATE, "bytes that a backward leaves behind", cause=cause)
    peak = (BLOCKS + 1 + 2 * DEPTH + 6) * size + states + STATE
    cause = "the activations of more than one block are in memory at a time"
    run.at_most(found["peak"], peak, "bytes at the peak of backward", cause=cause)


@check("the second run computes in the precision of the first", points=2, code="E")
@diagnosis(
    "note autocast's settings in forward, and run again inside `torch.autocast(...)` with the "
    "same settings"
)
def check_autocast(run: Run) -> None:
    """E: a block under autocast with its backward outside, and the other way round; both dtypes."""
    shapes = (run.number(2, 6), run.number(2, 6))
    given = {"a": run.random(shapes, torch.float32), "b": run.random(shapes[::-1], torch.float32)}
    cause = "autocast as in forward is missing in the second run"
    for half in (torch.bfloat16, torch.float16):
        found = run(drive_autocast, {**given, "dtype": half}).outputs[0]
        for name, dtype in (("on", half), ("off", torch.float32)):
            run.true(
                set(found[name]) == {str(dtype)},
                f"a product with autocast {name} in forward",
                expected=f"{dtype} in both runs",
                measured=", ".join(found[name]),
                cause=cause,
            )
