"""selective: kept operations run once, all others twice, and every gradient is right."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.recompute import block_runs

EXERCISE = Exercise(
    title="Keep the products, compute the rest again",
    core=True,
    minutes=40,
    order=3,
    defines=("Selective", "keep_products"),
    library=("recompute.Recompute",),
    own=("torch.utils.checkpoint.create_selective_checkpoint_contexts",),
    hints=(
        "Both contexts belong to one call of one block and share a queue. What does the first "
        "put into it, and from which end does the second take? Which of the two always calls "
        "`func`, and which only if the policy says no?",
        "Keep: run it, add `flops(...)` to `way.first`, put a clone into the queue if the policy "
        "says so, return the result. Replay: if the policy says so, return the next entry of the "
        "queue; else run it and add `flops(...)` to `way.again`.",
        "`kept = deque()` inside `__call__`, a new one for each call; then `checkpoint(fn, *args, "
        "use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))`. "
        "`kept.append(result.clone())` and `kept.popleft()`. The policy: `func in "
        "(aten.mm.default, aten.addmm.default)`.",
    ),
)

aten = torch.ops.aten
POLICIES = {"products": ("mm",), "tanh": ("tanh",), "both": ("mm", "tanh"), "nothing": ()}
PAPER = {"mm": True, "addmm": True, "bmm": False, "baddbmm": False, "_softmax": False,
         "native_layer_norm": False, "tanh": False, "gelu": False, "mul": False, "view": False,
         "_scaled_dot_product_flash_attention_for_cpu": False}  # fmt: skip
TWICE = ("bmm", "_softmax", "relu_", "native_layer_norm")  # of a transformer block
ROWS, WIDTH = 128, 64  # of the stack that is measured


# --- what runs on the rank -----------------------------------------------------------------------
def drive_chains(learner: Any, group: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The chains under each policy."""
    found = {}
    for name, ops in POLICIES.items():
        kept = {getattr(aten, op).default for op in ops}
        way = learner.Selective(kept.__contains__)
        found[name] = block_runs.walk_chains(way, given) | {"overhead": way.overhead}
    return found


def drive_layers(learner: Any, group: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The transformer blocks under the learner's policy."""
    policy = {op: learner.keep_products(getattr(aten, op).default) for op in PAPER}
    way = learner.Selective()
    return block_runs.walk_layers(way, given) | {"overhead": way.overhead, "policy": policy}


def drive_memory(learner: Any, group: Any, x: torch.Tensor, weight: torch.Tensor) -> dict[str, int]:
    """What a stack of blocks with two products holds."""
    weight = weight.clone().requires_grad_()
    weight.grad = torch.zeros_like(weight)
    kept = {aten.mm.default}
    way = learner.Selective(kept.__contains__)

    def block(x: torch.Tensor) -> torch.Tensor:
        return block_runs.waves(x, lambda y: y @ weight)

    return block_runs.live_bytes(lambda x: way(block, x), x)


# --- what it must bring back ---------------------------------------------------------------------
def _plain(fn: block_runs.Call, *args: Any) -> torch.Tensor:
    return fn(*args)


def _chains(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the learner's code found under each policy, and what there is without it."""
    rows, width, deep = run.number(4, 8), run.number(3, 7), run.number(3, 5)
    scale = width**-0.5
    given = {"chains": [[run.random((width, width)) * scale for _ in range(count)]
                        for count in (deep, deep + 1)],
             "data": run.random((width, rows)), "inner": run.random((rows, width)),
             "slopes": run.random((rows, width))}  # fmt: skip
    return run(drive_chains, {"given": given}).outputs[0], block_runs.walk_chains(_plain, given)


def _layers(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for the transformer blocks."""
    heads, tokens = run.number(2, 4), run.number(5, 9)
    width = heads * run.number(2, 4)
    wide = 2 * width + 1
    shapes = dict.fromkeys("qkvo", (width, width)) | {
        "up": (wide, width),
        "bias": (wide,),
        "down": (wide, width),
    }
    given = {"layers": [{name: run.random(shape) * width**-0.5 for name, shape in shapes.items()}
                        for _ in range(2)],
             "tokens": run.random((2, tokens, width)), "heads": heads,
             "upstream": run.random((2, tokens - 2, width)),
             "seed": run.number(1, 10_000)}  # fmt: skip
    found = run(drive_layers, {"given": given}).outputs[0]
    with torch.random.fork_rng(devices=[]):
        return found, block_runs.walk_layers(_plain, given)


def _again(found: dict[str, Any], plain: dict[str, Any], op: str) -> int:
    """How often an operation was run for a second time: what backward itself runs is left out."""
    count: int = found["backward"].get(op, 0) - plain["backward"].get(op, 0)
    return count


def _check_counts(
    run: Run,
    found: dict[str, Any],
    plain: dict[str, Any],
    kept: tuple[str, ...],
    others: tuple[str, ...],
    words: str,
) -> None:
    """Kept operations run in forward alone, the others once more; nothing twice in forward."""
    for op in kept + others:
        once, what = plain["forward"][op], f"how often {op} is run {words}"
        likely = {"an operation is run once there": 2 * once}
        run.equal(found["forward"].get(op, 0), once, f"{what}, in forward,", likely=likely)
        right, wrong = (0, once) if op in kept else (once, 0)
        likely = {
            "it is kept, so the second run takes the kept result": None if right else wrong,
            "it must not be kept, so it must run again: is anything recomputed?": wrong
            if right
            else None,
        }
        run.equal(_again(found, plain, op), right, f"{what}, for a second time,", likely=likely)


@check("kept operations run once, all others twice", points=3, code="B")
@diagnosis("ask `policy(func)` in both runs; only where it says no does the second run compute")
def check_counts(run: Run) -> None:
    """B: what is really run, under four policies, seen by a dispatch mode below the learner's."""
    every, plain = _chains(run)
    for name, kept in POLICIES.items():
        others = tuple(op for op in ("mm", "tanh") if op not in kept)
        _check_counts(
            run, every[name], plain, kept, others, f"(kept: {' and '.join(kept) or name})"
        )


@check("each kept result comes back in its own place", points=3, code="O")
@diagnosis("the n-th kept operation of a call's second run is the n-th of its first")
def check_order(run: Run) -> None:
    """O: the products that each run sees, equal in shape; two calls of one block."""
    every, _ = _chains(run)
    for name, found in every.items():
        block_runs.runs_agree(run, found["runs"], 3, 3, f" (kept: {name})")


@check("gradients as without checkpointing", points=3, code="E")
@diagnosis("a second run must compute what the first did: look at the checks above first")
def check_gradients(run: Run) -> None:
    """E: four policies on chains of products, and the learner's on transformer blocks."""
    every, plain = _chains(run)
    for name, found in every.items():
        run.close(found["grads"], plain["grads"], f"the gradient (kept: {name})")
    found, plain = _layers(run)
    run.close(found["grads"], plain["grads"], "the gradient of transformer block")


@check("dropout, and a kept result that the block changes in place", points=3, code="E")
@diagnosis("random numbers are restored by `checkpoint`; keep a copy of what `func` returned")
def check_same(run: Run) -> None:
    """E: what each run draws, and its wide activations before and after `relu_`."""
    found, plain = _layers(run)
    firsts, seconds = found["runs"][:2], found["runs"][2:][::-1]
    likely = {"nothing is recomputed": 0}
    run.equal(len(seconds), 2, "the number of second runs of two transformer blocks", likely=likely)
    run.close(firsts, plain["runs"], "the numbers that the blocks draw in the first run, entry")
    for (drawn, before, after), again in zip(firsts, seconds, strict=True):
        run.equal(again[0], drawn, "the numbers that the second run draws", likely={
            "the second run draws different random numbers from the first: let `checkpoint` "
            "restore their state": again[0]})  # fmt: skip
        what = "a kept result, before the block's `relu_` in the second run,"
        likely = {"the block has changed it in place since: keep a copy": after}
        run.close(again[1], before, what, likely=likely)


@check("products with weights are kept, attention is not", points=2, code="B")
@diagnosis(
    "linear layers are `aten.mm.default` and `aten.addmm.default`; attention's products are batched"
)
def check_policy(run: Run) -> None:
    """B: the learner's policy, asked directly, and by transformer blocks."""
    found, plain = _layers(run)
    for op, keep in PAPER.items():
        why = (
            "a linear layer computes it"
            if keep
            else ("it is cheap to compute or belongs to attention, and it is large")
        )
        answer = found["policy"][op]
        run.true(
            isinstance(answer, bool) and answer == keep,
            expected=str(keep),
            message=f"keep_products(aten.{op}.default) has the wrong answer",
            measured=str(answer),
            cause=why,
        )
    _check_counts(run, found, plain, ("mm", "addmm"), TWICE, "in transformer blocks")


@check("between forward and backward: inputs and kept results", points=3, code="M")
@diagnosis("keep what the policy asks for, in a queue that belongs to a single call")
def check_memory(run: Run) -> None:
    """M: every byte that is alive after forward; and after backward, beside the output."""
    x, weight = run.random((ROWS, WIDTH)), run.random((WIDTH, WIDTH))
    found = run(drive_memory, {"x": x, "weight": weight / WIDTH**0.5}).outputs[0]
    block_runs.live_bytes_are(run, found, x.nbytes)


@check("the overhead counts what second runs really compute", points=3, code="B")
@diagnosis("count in `again` only what the second run computes, not what it takes from the queue")
def check_overhead(run: Run) -> None:
    """B: operations of products, by the learner's count and by the suite's own."""
    every, plain = _chains(run)
    for name, found in every.items():
        _check_overhead(run, found, plain, f"(kept: {name})")
    _check_overhead(run, *_layers(run), "of transformer blocks")


def _check_overhead(run: Run, found: dict[str, Any], plain: dict[str, Any], words: str) -> None:
    forward, backward = plain["flops"]
    again = found["flops"][1] - backward
    likely = {
        "kept products are counted as if they were computed again": 1.0,
        "the products of backward itself are counted too": (again + backward) / forward,
        "this is relative to forward and backward: divide by the forward alone": again
        / (forward + backward),
        "this is relative to both runs: divide by the forward alone": again
        / (forward + backward + again),
        "products that were computed again are not counted": 0.0,
    }
    run.close(found["overhead"], again / forward, f"the overhead {words}", likely=likely)
