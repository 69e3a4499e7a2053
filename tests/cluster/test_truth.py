"""A simulated rank makes the same calls, with the same bytes and memory, as a real one."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest
import torch

from course_lib.cluster import simulate
from course_lib.comm import Group, Mesh
from course_lib.model import AdamW, ModelConfig, Transformer
from course_lib.ranks.pool.run import run_on_ranks
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.schedule import one_f_one_b
from course_lib.trace.memory import LiveMemory
from course_lib.train.layout import lay_out, make_optimizers
from course_lib.train.step import own_micro_batches, train_step

AXES = ("pp", "dp", "ep", "cp", "tp")
FIELDS = (
    "op", "axis", "group", "seq", "payload", "sent", "received", "shape", "dtype", "item", "peer",
    "step", "chunk", "parent", "by_host", "reduction",
)  # fmt: skip
# Degrees, and options of the layout; of `train`'s tests and the lessons' strategies.
LAYOUTS: list[tuple[dict[str, int], dict[str, Any]]] = [
    ({"dp": 2}, {}),
    ({"dp": 4}, {"zero": 1}),
    ({"dp": 4}, {"zero": 2}),
    ({"dp": 4}, {"zero": 3}),
    ({"tp": 2}, {}),
    ({"tp": 4}, {"sequence": True}),
    ({"pp": 2}, {}),
    ({"pp": 4}, {"zero": 1, "precision": "bf16"}),
    ({"cp": 2}, {}),
    ({"pp": 2, "dp": 2, "tp": 2}, {"zero": 1, "sequence": True, "recompute": "full"}),
    ({"dp": 2, "tp": 2}, {"zero": 3, "precision": "bf16", "recompute": "selective"}),
    ({"pp": 2, "cp": 2, "tp": 2}, {}),
]


def two_steps(group: Group, degrees: dict[str, int], options: dict[str, Any]) -> dict[str, Any]:
    """Trains a small model, and says what this rank did."""
    config = ModelConfig(
        vocabulary=256, hidden=64, layers=4, heads=8, kv_heads=4, ffn=128, sequence=64
    )
    sizes = {axis: degrees.get(axis, 1) for axis in AXES}
    with LiveMemory() as memory:
        model = lay_out(
            Transformer(config).to(group.device),
            Mesh(group, sizes),
            one_f_one_b(sizes["pp"], sizes["pp"]),
            **options,
        )
        optimizers = make_optimizers(model, AdamW)
        gc.collect()  # what was cut is in circles, and would be freed at another time on each side
        memory.peak = memory.now  # a peak while the model is built is none of a step
        tokens = torch.randint(0, 256, (8, 65))
        batch = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        for _ in range(2):
            train_step(model, own_micro_batches(*batch, model), optimizers, 1.0)
    ledger = group.ledger
    return {
        # FSDP sums pair by pair where gloo has nothing better; simulated ranks are GPUs.
        "calls": [[getattr(e, f) for f in FIELDS] for e in ledger.events],
        "spans": [span.name for span in ledger.spans],
        "booked": ledger.peak,
        "peak": memory.peak,
    }


def _slow_if_large(degrees: dict[str, int], options: dict[str, Any]) -> Any:
    """A case; with more than four ranks, or with much besides its degrees, for the slow tier."""
    large = math.prod(degrees.values()) > 4 or len(options) > 1
    marks = [pytest.mark.slow] * large
    return pytest.param(degrees, options, id=f"{degrees}-{options}", marks=marks)


@pytest.mark.parametrize(("degrees", "options"), [_slow_if_large(*case) for case in LAYOUTS])
def test_calls_and_memory_are_those_of_real_ranks(
    degrees: dict[str, int], options: dict[str, Any], server: ForkServer
) -> None:
    world = math.prod(degrees.values())
    simulated = simulate(two_steps, world, degrees, options, cluster="1x8xH100")
    # Where all is computed again, real ranks themselves differ by 3 % from run to run.
    close = 0.05 if options.get("recompute") == "full" else 0.01
    real = run_on_ranks(two_steps, world, degrees, options, server=server)
    least = [result["peak"] for result in real]
    for rank in range(world):
        mine = simulated.value(rank)
        for what in ("calls", "spans", "booked"):
            assert mine[what] == real[rank][what], (rank, what)
    # gloo's thread holds a buffer for a moment after the wait for it has returned, now and then
    # over the peak (seen in 1 of 8 ranks). So a real peak can be too high, and is never too low.
    for _ in range(9):
        if all(peak <= simulated.memories[i].peak * (1 + close) for i, peak in enumerate(least)):
            break
        again = run_on_ranks(two_steps, world, degrees, options, server=server)
        least = [min(peak, result["peak"]) for peak, result in zip(least, again, strict=True)]
    for rank in range(world):
        memory = simulated.memories[rank]
        assert memory.peak == pytest.approx(least[rank], rel=close)
        assert sum(memory.at_peak.values()) == pytest.approx(memory.peak, rel=0.02)
