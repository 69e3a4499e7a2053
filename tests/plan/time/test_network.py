"""One operation of a given group: its seconds, its ports, and what others do to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib.plan.inputs.hardware import Cluster, cluster, parse_cluster
from course_lib.plan.time.cost import Span, fastest, seconds
from course_lib.plan.time.network import Port, crowding, transfer

S = 1e9
H100 = cluster("H100", 64)
NDR = H100.between.bandwidth


def test_a_group_of_whole_nodes_leaves_each_through_all_adapters() -> None:
    whole = transfer("all_gather", range(64), S, H100)
    assert whole.seconds == pytest.approx(seconds("all_gather", S, Span(64, 8), H100))
    assert whole.flowing == pytest.approx(63 / 64 * S / (8 * NDR), rel=0.01)
    assert len([port for port in whole.ports if port.kind == "between"]) == 64


def test_a_ring_over_one_gpu_of_each_node_leaves_through_one() -> None:
    thin = transfer("all_gather", range(0, 64, 8), S, H100)
    assert thin.flowing == pytest.approx(7 / 8 * S / NDR)
    assert set(thin.ports) == {Port("between", 8 * node) for node in range(8)}


def test_tensor_parallel_over_two_nodes_is_slower_by_the_border_alone() -> None:
    """16 ranks on two nodes of 8 still leave through 8 adapters each."""
    one, two = (transfer("all_reduce", range(n), S, H100, "ring") for n in (8, 16))
    assert 1 < two.flowing / one.flowing < 1.2


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("ranks", [range(8), range(64), range(0, 64, 8), range(0, 64, 2)])
def test_alone_it_takes_as_long_as_its_formula(op: str, ranks: range) -> None:
    found = transfer(op, ranks, S, H100)
    group = Span(len(ranks), max(1, 8 // ranks.step), 8 / ranks.step)
    assert found.seconds == pytest.approx(fastest(op, S, group, H100)[1])
    assert crowding([found], H100) == [1.0]


def test_messages_take_the_link_that_joins_their_ranks() -> None:
    assert transfer("send", (0, 7), S, H100).seconds == H100.inside.seconds(S)
    far = transfer("send", (3, 8), S, H100)
    assert far.seconds == H100.between.seconds(S)
    assert set(far.ports) == {Port("between", 3)}


def test_flows_through_one_adapter_share_it_and_others_do_not() -> None:
    half = replace(H100, adapters=4)
    one, beside = (transfer("send", (src, src + 8), S, half) for src in (0, 1))
    assert crowding([one, beside], half) == pytest.approx([2.0, 2.0])
    assert crowding([one, beside], H100) == pytest.approx([2.0, 2.0])  # as they were placed
    apart = [transfer("send", (src, src + 8), S, H100) for src in (0, 1)]
    assert crowding(apart, H100) == [1.0, 1.0]


def test_groups_that_all_send_agree_with_the_formula_for_busy_neighbours() -> None:
    """Eight rings with 4 adapters a node: the formulas give each half of one."""
    half = replace(H100, adapters=4)
    rings = [transfer("all_gather", range(first, 64, 8), S, half) for first in range(8)]
    slow = rings[0].latency + rings[0].flowing * crowding(rings, half)[0]
    assert slow == pytest.approx(seconds("all_gather", S, Span(8, 1), half))


def test_a_rack_of_72_is_one_node() -> None:
    rack = parse_cluster("2x72xGB200")
    assert transfer("all_gather", range(72), S, rack).seconds < 1.7e-3
    assert all(p.kind == "inside" for p in transfer("all_gather", range(72), S, rack).ports)
    assert transfer("all_gather", range(8, 80), S, rack).seconds > 2e-3


def test_two_gpus_that_one_wire_joins_have_one_wire() -> None:
    made = cluster("MI300X", 8)
    pair, all_of_them = (transfer("all_gather", range(n), S, made) for n in (2, 8))
    assert pair.flowing == pytest.approx(S / 2 / 48e9)
    assert all_of_them.flowing == pytest.approx(7 / 8 * S / (7 * 48e9))


def test_switches_between_nodes_add_what_rings_would_carry_twice() -> None:
    adding = replace(H100, between=replace(H100.between, switched=NDR))
    ring, tree = (transfer("all_reduce", range(64), S, c, "switch") for c in (H100, adding))
    far = 2 * 7 / 8 * S / (8 * NDR)
    assert ring.flowing - tree.flowing == pytest.approx(far - S / (8 * NDR))


def test_one_rank_sends_nothing() -> None:
    assert transfer("all_reduce", [3], S, H100).seconds == 0


@pytest.mark.parametrize(
    "op, ranks, made",
    [("send", [0], H100), ("all_gather", [64], H100), ("all_gather", [], H100)],
)
def test_ranks_that_are_not_there_are_refused(op: str, ranks: list[int], made: Cluster) -> None:
    with pytest.raises(ValueError, match="64 GPUs"):
        transfer(op, ranks, S, made)


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="found: all_reduce"):
        transfer("gossip", [0, 1], S, H100)
