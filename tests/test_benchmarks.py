"""The frame of the benchmarks: discovery, rows and the results file; nothing is measured here."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.__main__ import found
from benchmarks.collectives import medians
from benchmarks.row import Row, table
from benchmarks.turns import time_calls

ROW = Row("collectives", "all_reduce", 4, 1 << 20, 2.0, 2.5, "gloo", "ms", "a note")


def test_a_benchmark_is_found_by_its_name() -> None:
    assert {"collectives", "precision"} <= set(found())
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
