"""The table of GPUs and links, and the names of clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib.plan.inputs.hardware import GPUS, NODES, cluster, parse_cluster


def test_a_cluster_is_named_by_count_and_gpu() -> None:
    made = parse_cluster("512xH100")
    assert (made.count, made.gpu.name, made.node) == (512, "H100", 8)
    assert parse_cluster("8xa100").gpu.name == "A100-80"
    assert parse_cluster("100000 x B200").count == 100_000
    assert parse_cluster("8xmi300x").gpu.name == "MI300X"


def test_a_cluster_is_also_named_by_nodes_and_their_size() -> None:
    assert parse_cluster("64x8xH100") == parse_cluster("512xH100")
    half = parse_cluster("4 x 4 x H100")
    assert (half.count, half.node, half.adapters, half.nodes) == (16, 4, 4, 4)
    assert parse_cluster("2x72xGB200").node == parse_cluster("144xGB200").node == 72


def test_a_node_sends_through_all_its_adapters() -> None:
    """8 · 46 GB/s leave a node of eight H100; one GPU leaves it through one of them."""
    made = parse_cluster("512xH100")
    assert made.leaving(8) == 8 * made.leaving(1) == 8 * made.between.bandwidth
    few = replace(made, adapters=4)
    assert few.leaving(8) == 4 * few.between.bandwidth
    assert few.leaving(1, adapters=1) == few.between.bandwidth
    assert [few.adapter(rank) for rank in (0, 1, 2, 7, 8)] == [0, 0, 1, 3, 4]


@pytest.mark.parametrize(
    "text", ["H100", "x", "8", "0xH100", "8xTPU", "-8xH100", "2x2x2xH100", "8x0xH100"]
)
def test_what_is_no_cluster_is_said_in_three_lines(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_cluster(text)
    assert len(str(caught.value).splitlines()) == 3


def test_no_measurement_is_above_the_sheet() -> None:
    for gpu in GPUS.values():
        assert all(gpu.reached[p] <= gpu.peak[p] for p in gpu.peak)
        assert all(0 < part < 1 for part in gpu.attention)
    assert set(NODES) == set(GPUS)
    assert GPUS["H100"].peak["fp8"] > GPUS["H100"].peak["bf16"]
    assert GPUS["A100-80"].peak["fp8"] == GPUS["A100-80"].peak["bf16"]


def test_a_node_is_faster_inside_than_out() -> None:
    for name in GPUS:
        made = cluster(name, 16)
        assert made.inside.bandwidth > 3 * made.between.bandwidth
        assert made.inside.alpha < made.between.alpha
