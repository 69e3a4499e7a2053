"""Every parallelism on every device follows the loss of one process on the CPU, in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from course_lib.comm import Group
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.train import RunConfig, train

SMALL = {
    "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn": 48, "sequence": 16, "batch": 8,
    "steps": 3, "warmup": 1, "corpus_mib": 1, "weights": "fp64",
}  # fmt: skip
EXPERTS = {"experts": 4, "top_k": 2, "ffn": 24}
LAYOUTS: dict[int, list[dict[str, Any]]] = {
    1: [{}, {"zero": 2}, {"zero": 3, "recompute": "selective"}, {"pp": 1, "micro_batches": 2}],
    2: [{"dp": 2}, {"dp": 2, "zero": 3}, {"tp": 2, "sequence_parallel": True}, {"cp": 2},
        {"pp": 2, "micro_batches": 2}, {"ep": 2, **EXPERTS}],
    4: [{"dp": 4}, {"dp": 4, "zero": 1}, {"dp": 2, "tp": 2, "zero": 3, "sequence_parallel": True},
        {"cp": 2, "dp": 2, "zero": 2}, {"pp": 2, "tp": 2, "micro_batches": 2},
        {"pp": 2, "dp": 2, "micro_batches": 4, "layers": 4, "schedule": "interleaved"},
        {"pp": 2, "dp": 2, "micro_batches": 4, "layers": 4, "schedule": "zb-v"},
        {"tp": 2, "ep": 2, **EXPERTS}],
}  # fmt: skip
Rows = list[dict[str, float]]


def losses(group: Group, options: dict[str, Any]) -> list[tuple[float, float]]:
    rows = train(RunConfig(**{**SMALL, **options}), group, bar=False)
    return [(row["loss"], row["norm"]) for row in rows]


@pytest.fixture(scope="module")
def alone(server: ForkServer) -> Callable[..., list[tuple[float, float]]]:
    """What one process on the CPU finds with the same model."""

    @cache
    def run(**options: int) -> list[tuple[float, float]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COURSE_DEVICE", "cpu")
            return run_on_ranks(losses, 1, options, server=server, timeout=120)[0]

    return run


@pytest.mark.parametrize("number", range(max(map(len, LAYOUTS.values()))))
def test_the_same_losses(
    everywhere: Callable[..., Any], place: Any, alone: Callable[..., Any], number: int
) -> None:
    if number >= len(LAYOUTS[place.world]):
        pytest.skip(f"{len(LAYOUTS[place.world])} layouts of {place.world} ranks")
    options = LAYOUTS[place.world][number]
    expected = alone(**{k: v for k, v in options.items() if k in (*EXPERTS, "layers")})
    for found in everywhere(losses, options):
        assert found == [pytest.approx(row, rel=1e-9) for row in expected]
