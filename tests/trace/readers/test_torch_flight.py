"""Dumps of PyTorch's own flight recorder: real ones, written by gloo."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from course_lib.comm import Group
from course_lib.trace import Refusal, find_desync, open_torch_flight, read_torch_flight


def dump(group: Group) -> str:
    """Two calls that all make, and one that rank 0 alone has begun."""
    del group
    os.environ["TORCH_FR_BUFFER_SIZE"] = "50"
    handle = dist.new_group([0, 1])
    tensor = torch.ones(3, 5)
    dist.all_reduce(tensor, group=handle)
    dist.broadcast(tensor.double(), 0, group=handle)
    if dist.get_rank() == 0:
        dist.all_reduce(tensor, group=handle, async_op=True)
    text: bytes = torch._C._distributed_c10d._dump_fr_trace_json(True, False)
    return json.dumps([handle.group_name, text.decode()])


def test_real_dumps(ranks: Callable[..., list[Any]]) -> None:
    logs = []
    for rank, answer in enumerate(ranks(dump, 2)):
        name, text = json.loads(answer)
        found = json.loads(text)
        found["entries"] = [e for e in found["entries"] if e["process_group"][0] == name]
        logs.append(read_torch_flight(found, rank, {name: [0, 1]}))
    assert [[(r.op, r.seq) for r in log.records] for log in logs] == [
        [("all_reduce", 0), ("broadcast", 1), ("all_reduce", 2)],
        [("all_reduce", 0), ("broadcast", 1)],
    ]
    assert [log.records[0].state for log in logs] == ["finished", "finished"]
    assert logs[0].records[2].state == "waiting"
    first = logs[0].records[1]
    assert (first.shape, first.dtype, first.payload) == ((3, 5), "float64", 120)
    finding = find_desync(logs)
    assert finding is not None
    assert (finding.kind, finding.seq, finding.ranks) == ("lagging", 2, (1,))


# Written by hand after PyTorch's description of the dump: NCCL names the members of a group.
def entry(seq: int, name: str, state: str) -> dict[str, Any]:
    return {
        "collective_seq_id": seq, "is_p2p": False, "process_group": ["3", "tp"],
        "profiling_name": name, "input_dtypes": ["BFloat16"], "input_sizes": [[4, 2]],
        "state": state, "retired": state == "completed", "time_created_ns": 10**9 * seq,
        "time_discovered_completed_ns": 10**9 * seq + 500 if state == "completed" else None,
    }  # fmt: skip


def test_groups_that_the_dump_names() -> None:
    config = {"3": {"name": "3", "desc": "tp", "ranks": "[4, 6]"}}
    status = {"3": {"last_enqueued_collective": "1001"}}
    mine = [
        entry(1000, "nccl:_all_gather_base", "completed"),
        entry(1001, "nccl:all_reduce", "started"),
    ]
    theirs = [mine[0], entry(1001, "nccl:_reduce_scatter_base", "started")]
    logs = [
        read_torch_flight({"entries": made, "pg_config": config, "pg_status": status}, rank)
        for rank, made in ((4, mine), (6, theirs))
    ]
    assert [record.op for record in logs[0].records] == ["all_gather", "all_reduce"]
    assert logs[0].records[0].payload == 16
    finding = find_desync(logs)
    assert finding is not None
    assert (finding.kind, finding.axis, finding.seq) == ("operation", "tp", 1000)


def test_a_group_that_nobody_names() -> None:
    with pytest.raises(ValueError, match="pass groups"):
        read_torch_flight({"entries": [entry(1, "gloo:all_reduce", "scheduled")]}, 0)


@pytest.mark.parametrize(
    ("dump", "words"),
    [({}, "under 'entries'"), ([], "found: list"), ({"entries": [{}]}, "no 'is_p2p'")],
)
def test_what_is_no_dump_is_refused(dump: Any, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        read_torch_flight(dump, 0)


def paths(tree: Any) -> Iterator[tuple[Any, ...]]:
    """The ways to all that is in nested lists and dicts."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (key,)
        if isinstance(value, dict | list):
            yield from ((key, *rest) for rest in paths(value))


@pytest.mark.parametrize("other", [None, 3, "x", [], {}, 1e400], ids=repr)
def test_a_dump_with_something_else_in_it_is_refused(other: Any) -> None:
    """Wherever it is: it is refused, or read if it is as good."""
    whole = {
        "entries": [entry(1, "nccl:all_reduce", "started")],
        "pg_config": {"3": {"ranks": "[4, 6]"}},
        "pg_status": {"3": {"last_enqueued_collective": "1"}},
    }
    refused = 0
    for *way, last in paths(whole):
        dump = node = copy.deepcopy(whole)
        for key in way:
            node = node[key]
        node[last] = other
        try:
            read_torch_flight(dump, 4)
        except Refusal:
            refused += 1
    assert refused > 5


class Harmful:
    """What a pickle may do when it is opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("it ran",)


def test_files_that_are_no_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = pickle.dumps({"entries": [entry(1, "nccl:all_reduce", "started")]})
    files = {
        "flight_0": whole[:50], "flight_1": b"", "flight_2": pickle.dumps(Harmful()),
        "flight_3": b'{"entries": ' + b"[" * 100_000, "flight_4": b"\x80\x04]\x8c\x01a\x8c\x01ba.",
    }  # fmt: skip
    for name, data in files.items():
        Path(name).write_bytes(data)
        with pytest.raises(Refusal, match=f"{name}\nfound: {len(data):,} bytes"):
            open_torch_flight(name)
    with pytest.raises(Refusal, match="the number at the end of its name"):
        open_torch_flight("flight")
    assert not Path("it ran").exists()
    with pytest.raises(Refusal, match="found: no file"):
        open_torch_flight()
    for name in ("a_0", "b_0"):
        Path(name).write_text(json.dumps({"entries": []}))
    with pytest.raises(Refusal, match=r"found: ranks \[0, 0\]"):
        open_torch_flight("a_0", "b_0")


def test_the_page_on_debugging_reads_what_ranks_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 2 has died before it could write, and rank 1 has not come to the second call."""
    monkeypatch.chdir(tmp_path)
    config = {"3": {"name": "3", "desc": "dp", "ranks": "[0, 1, 2]"}}
    made = [entry(1, "nccl:all_reduce", "completed"), entry(2, "nccl:all_reduce", "started")]
    for rank, entries in enumerate((made, made[:1])):
        for call in entries:
            call["process_group"] = ["3", "dp"]
        dump = {"version": "2.10", "entries": entries, "pg_config": config}
        Path(f"flight_{rank}").write_bytes(pickle.dumps(dump))
        row = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": rank, "dur": 5, "tid": 1}
        Path(f"trace_{rank}.json").write_text(
            json.dumps({"schemaVersion": 1, "traceEvents": [row]})
        )
    page = (Path(__file__).resolve().parents[3] / "docs" / "debugging.md").read_text()
    reading = [
        code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "course_lib" in code
    ]
    for code in reading:
        exec(code, {})
    said = capsys.readouterr().out
    assert "Rank 1 is 1 behind at all_reduce, call 1 on dp [0, 1, 2]" in said
    assert "ranks without a log: (2,)" in said
    assert "rank 1: compute 0.005 ms" in said
