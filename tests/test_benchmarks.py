"""The frame of the benchmarks: discovery, rows and the results file; nothing is measured here."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from math import prod
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from benchmarks import goals, results
from benchmarks.__main__ import found
from benchmarks.collectives import medians
from benchmarks.row import Row, table
from benchmarks.training import train
from benchmarks.training.turns import WireBytes, random_batches, time_calls
from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig
from course_lib.ranks import ForkServer, Pool

ROW = Row("collectives", "all_reduce", 4, 1 << 20, 2.0, 2.5, "gloo", "ms", "a note")


def test_a_benchmark_is_found_by_its_name() -> None:
    assert {"collectives", "precision", "train"} <= set(found())
    assert not {"row", "results", "scaled_mm", "__main__"} & set(found())
    assert all(module.__doc__ for module in found().values())


def test_json_has_the_agreed_fields() -> None:
    assert json.loads(ROW.to_json()) == {
        "bench": "collectives", "what": "all_reduce", "world": 4, "size": 1 << 20, "ours": 2.0,
        "peer": 2.5, "peer_name": "gloo", "unit": "ms", "ratio": 0.8,
    }  # fmt: skip


def test_table_shows_sizes_and_ratio() -> None:
    head, rule, line = table([ROW]).splitlines()
    assert len(head) == len(rule) == len(line)
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "all_reduce", "4", "1 MiB", "2", "2.5", "ms", "gloo", "0.8", "a note",
    ]  # fmt: skip


def test_writing_one_section_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    results.write("launch", "About launch.", "| a |", path)
    results.write("collectives", "About.", "| old |", path)
    results.write("collectives", "About.", "| new |", path)
    text = path.read_text()
    assert text.startswith("# Results")
    assert text.index("## collectives") < text.index("## launch")
    assert "| new |" in text
    assert "| old |" not in text
    assert "| a |" in text
    assert "`python -m benchmarks collectives --write` on " in text
    assert list(results.read(path)) == ["collectives", "launch"]


def test_a_turn_takes_as_long_as_its_slowest_rank() -> None:
    per_rank = [{"x": [1.0, 5.0, 2.0]}, {"x": [3.0, 1.0, 2.5]}]
    assert medians(per_rank) == {"x": 3.0}


def test_turns_go_to_and_fro_and_the_first_round_is_left_out(ranks: Any) -> None:
    def run(group: Any) -> Any:
        seen: list[str] = []
        takers = {name: partial(seen.append, name) for name in "ab"}
        return time_calls(takers, group, rounds=2, calls=2), "".join(seen)

    for times, seen in ranks(run, 2):
        assert seen == "bbaaaabbbbaa"
        assert {name: len(seconds) for name, seconds in times.items()} == {"a": 2, "b": 2}


def test_layouts_are_all_of_pp_dp_tp_and_some_alone() -> None:
    for world, count in ((4, 6), (8, 10)):
        cases = train.layouts(world)
        beside = [case for case in cases if not case.alone]
        assert len(beside) == len({str(case) for case in beside}) == count
        assert len({str(case) for case in cases}) == len(cases)
        assert all(prod(case.sizes.values()) == world for case in cases)
        assert all(set(case.sizes) <= {"pp", "dp", "tp"} for case in beside)
        for case in cases:
            replicas = case.sizes.get("dp", 1) * case.sizes.get("ep", 1)
            assert train.BATCH // replicas >= case.schedule.micro_batches >= case.schedule.ranks


SMALL = ModelConfig(layers=2, hidden=16, heads=2, kv_heads=2, ffn=24, sequence=8)


def on_mesh(group: Group, case: train.Case) -> dict[str, tuple[list[float | None], int]]:
    """Of each side its losses, and the bytes that it sent."""
    found: dict[str, tuple[list[float | None], int]] = {}
    mesh, batch = Mesh(group, case.sizes), random_batches(SMALL, 8, 0, seed=0)[0]
    for side, make in (("ours", train.OursOnMesh), ("peer", train.torch_on_mesh)):
        trainer = make(case, mesh)
        losses = [trainer.step(batch)]  # the peer's stages ask each other for shapes in the first
        before, wire = group.ledger.sent(), WireBytes()
        with wire if side == "peer" else nullcontext():
            losses += [trainer.step(batch) for _ in range(3)]
        found[side] = losses, wire.sent if side == "peer" else group.ledger.sent() - before
    return found


@pytest.mark.slow
def test_torch_on_a_mesh_trains_as_ours(server: ForkServer) -> None:
    """Losses of AdamW with clipping; bytes, but for small sums of loss, tokens and norm."""
    cases = [train.Case({axis: 2, "tp": 2}, zero, SMALL) for axis, zero in (("pp", 0), ("dp", 3))]
    with Pool(4, server, stall=train.PATIENCE) as pool:
        for found in [pool.run(on_mesh, case, timeout=120) for case in cases]:
            ours, peer = ([rank[side][0] for rank in found] for side in ("ours", "peer"))
            steps = zip(*peer, strict=True)
            whole = [mean(loss for loss in step if loss is not None) for step in steps]
            assert ours[0] == pytest.approx(whole, rel=1e-5)
            assert ours[0][-1] < ours[0][0] - 1e-3, "it learns, so a wrong update shows"
            for rank in found:
                mine, theirs = rank["ours"][1], rank["peer"][1]
                assert theirs <= mine <= theirs * 1.1, "each call by the size of its own group"


def test_layouts_that_do_not_train_alike_have_no_rows() -> None:
    side = {"seconds": [1.0], "sent MB": 1.0, "peak MB": 1.0}
    case = train.Case({"tp": 2}, config=SMALL)

    def found(loss: float) -> list[Any]:
        peers = {"ours": side | {"losses": [2.0] * 5}, "peer": side | {"losses": [loss] * 5}}
        return [peers, peers]

    step, sent, peak = train.case_rows(case, found(2.0))
    assert (step.what, step.ours, step.peer, step.unit) == ("train step tp2", 1000.0, 1000.0, "ms")
    assert (sent.what, peak.what) == ("train sent tp2", "train peak tp2")
    with pytest.raises(AssertionError, match="tp2: losses of ours and of DTensor differ"):
        list(train.case_rows(case, found(2.001)))
    alone = train.Case({"cp": 2}, config=SMALL, alone=train.NO_CP)
    only = [{"ours": side | {"losses": [2.0] * 5}}]
    assert all(row.peer is None and row.ratio is None for row in train.case_rows(alone, only))


# --- goals ---------------------------------------------------------------------------------------
def test_a_goal_reads_the_worst_row_that_counts() -> None:
    rows = [
        Row("c", "all_reduce", 2, 4096, 9.0, 1.0, "gloo", "ms"),  # too small to count
        Row("c", "all_reduce", 2, 1 << 20, 2.0, 2.5, "gloo", "ms"),
        Row("c", "all_reduce", 4, 1 << 22, 3.0, 2.5, "gloo", "ms"),
        Row("c", "all_gather", 4, 1 << 22, 9.0, 2.5, "gloo", "ms"),
    ]
    goal = goals.Goal("a ring", "c", "all_reduce", 1.0, where=goals.at_least(1))
    found = goals.worst(goal, {"c": f"About.\n\n{table(rows)}\n"})
    assert found is not None
    assert (found["world"], found["size"], found["ratio"]) == ("4", "4 MiB", "1.2")
    assert goals.worst(goal, {}) is None


def test_every_goal_has_its_rows_and_every_miss_its_reason() -> None:
    sections = results.read()
    assert [g.text for g in goals.GOALS if goals.worst(g, sections) is None] == []
    missed = [row for row in goals.rows() if row.note]
    assert [row.what for row in missed if row.note.endswith(": ")] == []
