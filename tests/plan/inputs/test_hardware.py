"""The table of GPUs and links, and the names of clusters."""

from __future__ import annotations

import pytest

from course_lib.plan.inputs.hardware import GPUS, LINKS, cluster, parse_cluster


def test_a_cluster_is_named_by_count_and_gpu() -> None:
    made = parse_cluster("512xH100")
    assert (made.count, made.gpu.name, made.node) == (512, "H100", 8)
    assert parse_cluster("8xa100").gpu.name == "A100-80"
    assert parse_cluster("100000 x B200").count == 100_000


@pytest.mark.parametrize("text", ["H100", "x", "8", "0xH100", "8xTPU", "-8xH100"])
def test_what_is_no_cluster_is_said_in_three_lines(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_cluster(text)
    assert len(str(caught.value).splitlines()) == 3


def test_no_measurement_is_above_the_sheet() -> None:
    for gpu in GPUS.values():
        assert all(gpu.reached[p] <= gpu.peak[p] for p in gpu.peak)
        assert all(0 < part < 1 for part in gpu.attention)
    assert set(LINKS) == set(GPUS)
    assert GPUS["H100"].peak["fp8"] > GPUS["H100"].peak["bf16"]
    assert GPUS["A100-80"].peak["fp8"] == GPUS["A100-80"].peak["bf16"]


def test_a_node_is_faster_inside_than_out() -> None:
    for name in GPUS:
        made = cluster(name, 16)
        assert made.inside.bandwidth > 5 * made.between.bandwidth
        assert made.inside.alpha < made.between.alpha
