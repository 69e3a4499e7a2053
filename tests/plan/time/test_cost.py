"""Formulas of collectives: against Thakur's on one link, and against published nccl-tests."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import median

import pytest

import course_lib.plan
from course_lib.plan.inputs.hardware import Cluster, Link, cluster
from course_lib.plan.time.cost import ALGORITHMS, Span, fastest, ring_bandwidth, seconds, span
from course_lib.trace.alpha_beta import bus_bandwidth

S = 1e9
ALPHA, B = 1e-5, 1e11
FLAT = Cluster(cluster("H100", 8).gpu, 64, 64, Link(ALPHA, B), Link(ALPHA, B))
DATA = Path(course_lib.plan.__file__).with_name("data") / "collectives.csv"


@pytest.mark.parametrize("n", [2, 8, 64])
def test_on_one_link_they_are_the_textbooks(n: int) -> None:
    group, share, rounds = Span(n, n), (n - 1) / n, math.log2(n)
    ring = 2 * (n - 1) * ALPHA + 2 * share * S / B
    assert seconds("all_reduce", S, group, FLAT, "ring") == pytest.approx(ring)
    assert seconds("all_gather", S, group, FLAT, "ring") == pytest.approx(ring / 2)
    halving = 2 * rounds * ALPHA + 2 * share * S / B
    assert seconds("all_reduce", S, group, FLAT, "halving-doubling") == pytest.approx(halving)
    to_all = (n - 1) * (ALPHA + S / n / B)
    assert seconds("all_to_all", S, group, FLAT) == pytest.approx(to_all)
    assert seconds("send", S, group, FLAT) == pytest.approx(ALPHA + S / B)


def test_one_rank_sends_nothing() -> None:
    assert all(seconds(op, S, Span(1, 1), FLAT, way[0]) == 0 for op, way in ALGORITHMS.items())


def test_a_ring_leaves_a_node_through_as_many_adapters_as_it_has_ranks_there() -> None:
    made = cluster("A100-80", 64)
    one, eight = ring_bandwidth(Span(8, 1), made), ring_bandwidth(Span(64, 8), made)
    assert one == made.between.bandwidth
    assert eight == pytest.approx(8 * one)
    assert ring_bandwidth(Span(8, 8), made) == made.inside.bandwidth


def test_hierarchical_sends_g_times_less_between_nodes_and_wins_small_messages() -> None:
    made = cluster("H100", 512)
    group = Span(512, 8)
    assert seconds("all_reduce", 1e4, group, made, "hierarchical") < 0.4 * seconds(
        "all_reduce", 1e4, group, made, "ring"
    )
    ways = ALGORITHMS["all_reduce"]
    assert fastest("all_reduce", 1e3, group, made, ways)[0] in ("tree", "halving-doubling")
    assert fastest("all_reduce", 1e3, group, made)[0] == "tree"
    assert fastest("all_reduce", 1e11, group, made)[0] in ("ring", "switch")


def test_a_switch_that_adds_beats_the_ring_where_there_is_one() -> None:
    group = Span(8, 8)
    hopper, ampere = cluster("H200", 8), cluster("A100-80", 8)
    ratio = seconds("all_reduce", S, group, hopper, "ring") / seconds(
        "all_reduce", S, group, hopper, "switch"
    )
    assert ratio == pytest.approx(453 / 366, rel=0.01)
    assert seconds("all_reduce", S, group, ampere, "switch") == math.inf


def test_a_group_lies_in_nodes_by_its_stride() -> None:
    made = cluster("H100", 64)
    assert span(8, 1, made) == Span(8, 8)
    assert span(16, 4, made) == Span(16, 2)
    assert span(4, 8, made) == Span(4, 1)
    assert Span(16, 2).nodes == 8


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="ring, halving-doubling"):
        seconds("all_gather", S, Span(8, 8), FLAT, "tree")
    with pytest.raises(ValueError, match="found: all_reduce"):
        seconds("gossip", S, Span(8, 8), FLAT)


def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(DATA.open()))


@pytest.mark.parametrize("name, gpu", [("A100", "A100-80"), ("H200", "H200")])
def test_published_all_reduces_are_met_from_a_mebibyte_on(name: str, gpu: str) -> None:
    """α and β of the inside links are the best fit of these."""
    errors = []
    for r in rows():
        if r["system"].startswith(name) and r["time_us"] and int(r["bytes"]) >= 2**20:
            found = fastest("all_reduce", int(r["bytes"]), Span(8, 8), cluster(gpu, 8))[1]
            errors.append(found * 1e6 / float(r["time_us"]) - 1)
    assert len(errors) == 15
    assert median(map(abs, errors)) < 0.1
    assert max(map(abs, errors)) < 0.25


def test_published_bus_bandwidths_of_rings_are_met() -> None:
    """Not fitted: 4 to 8 ranks, other operations."""
    errors = {}
    for r in rows():
        op, _, how = r["op"].partition(" ")
        if r["time_us"] or op not in ALGORITHMS or how == "NVLS" or r["algo"] == "default":
            continue
        n, payload = int(r["ranks"]), int(r["bytes"])
        took = seconds(op, payload, Span(n, n), cluster("H200", 8), "ring")
        errors[r["id"]] = bus_bandwidth(op, payload, n, took) / 1e9 / float(r["busbw_GBs"]) - 1
    assert len(errors) == 8
    assert max(map(abs, errors.values())) < 0.02, errors
