"""Traces of torch.profiler: real ones of two ranks on CPU, and the form that GPUs give them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from course_lib.comm import Group
from course_lib.trace import explain, read_traces
from course_lib.trace.analysis.meetings import meetings
from course_lib.trace.readers.profiler import plain_name


def train(group: Group) -> str:
    """Two profiled steps of plain PyTorch."""
    weight = torch.ones(64, 64, requires_grad=True)
    gathered = torch.empty(64 * group.size, 64)
    steps = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps) as profiler:
        for _ in range(3):
            (weight @ weight).sum().backward()
            assert weight.grad is not None
            dist.all_reduce(weight.grad)
            dist.all_gather_single(gathered, weight.grad)
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return path.read_text()


def test_real_traces_of_two_ranks(ranks: Callable[..., list[Any]]) -> None:
    trace = read_traces(*(json.loads(text) for text in ranks(train, 2)))
    assert trace.ranks == [0, 1]
    assert list(trace.steps()) == ["ProfilerStep#1", "ProfilerStep#2"]
    names = [call.name for call in trace.calls() if call.rank == 0]
    assert names == ["all_reduce", "all_gather"] * 2
    assert all(call.group == (0, 1) for call in trace.calls())
    assert [sorted(meeting.calls) for meeting in meetings(trace)] == [[0, 1]] * 4
    found = explain(trace)
    assert found.steps == 2
    for share in found.shares:
        assert share.compute > 0 and share.exposed > 0
        whole = share.compute + share.exposed + share.copy + share.idle
        assert whole == pytest.approx(found.seconds)
    assert sum(segment.seconds for segment in found.path) == pytest.approx(found.seconds)


# --- on GPUs -------------------------------------------------------------------------------------
# Written by hand, not recorded: two ranks, one step, in the form in which torch.profiler writes
# CUDA traces. Kernels have the category "kernel" and lie on streams; NCCL's are called
# ncclDevKernel_..., and carry what PyTorch's ParamCommsUtils notes. Times are microseconds.
def row(cat: str, name: str, ts: float, dur: float, tid: Any, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def gpu(rank: int, late: float) -> dict[str, Any]:
    """Backward from 100 to 300; the all-reduce beside it ends at 400; a copy; an all-gather."""
    meta = {"Group size": 2, "dtype": "Float", "In msg nelems": 4096, "stream": 20}
    reduce = {**meta, "Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "Seq": 7}
    gather = {**meta, "Collective name": "_allgather_base", "Process Group Name": "0",
              "Process Group Ranks": "[0, ...]"}  # fmt: skip
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 1_790_000_000_000_000_000 + 50_000 * rank,
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": 2,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}],
        },
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
            *[{**event, "ts": event["ts"] - 50 * rank} for event in (
                row("user_annotation", "ProfilerStep#5", 0, 90, 1),
                row("gpu_user_annotation", "ProfilerStep#5", 100, 500, 7),
                row("cpu_op", "aten::mm", 10, 20, 1),
                row("cuda_runtime", "cudaLaunchKernel", 12, 5, 1),
                row("kernel", "sm80_xmma_gemm_f32f32", 100, 200, 7, stream=7),
                row("kernel", "vectorized_elementwise_kernel", 150, 100, 9, stream=9),
                row("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",
                    200 + late, 200 - late, 20, **reduce),
                row("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 390, 30, 7, stream=7),
                row("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", 500, 50, 20,
                    **gather),
            )],
        ],
    }  # fmt: skip


def test_the_form_of_gpu_traces() -> None:
    trace = read_traces(gpu(0, 0.0), gpu(1, 150.0))
    assert [(c.name, c.group, c.seq) for c in trace.calls() if c.rank == 1] == [
        ("all_reduce", (0, 1), 7), ("all_gather", (0, 1), 0),
    ]  # fmt: skip
    found = explain(trace)
    micro = [
        [round(1e6 * t, 3) for t in (s.compute, s.exposed, s.hidden, s.copy, s.idle)]
        for s in found.shares
    ]
    assert micro[0] == [200, 150, 100, 20, 130], "processor and device are not mixed"
    assert micro[1] == [200, 100, 0, 20, 180]
    assert found.straggler is not None and found.straggler.rank == 1
    assert found.straggler.seconds == pytest.approx(50e-6), "of the 150 µs it was late"
    assert [(s.rank, s.what) for s in found.path][:3] == [
        (1, "compute"), (1, "idle"), (1, "all_reduce"),
    ]  # fmt: skip


def test_a_kernel_without_notes_is_named_after_itself() -> None:
    document = gpu(0, 0.0)
    for event in document["traceEvents"]:
        event["args"] = {}
    assert [call.name for call in read_traces(document).calls()] == ["all_reduce", "all_gather"]
    assert all(call.seq == -1 for call in read_traces(document).calls())


@pytest.mark.parametrize(
    ("name", "plain"),
    [("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("Broadcast", "broadcast"),
     ("_reduce_scatter_base", "reduce_scatter"), ("all_to_allv", "all_to_all"), ("send", "send"),
     ("allreduce_coalesced", "all_reduce"), ("ReduceScatter", "reduce_scatter")],
)  # fmt: skip
def test_collectives_have_one_name(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_operators_inside_frames_and_calls() -> None:
    """A frame of autograd is no work: a hook in it may wait. What gloo runs is no work either."""
    rows = [
        row("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 0, 100, 1),
        row("cpu_op", "MmBackward0", 1, 60, 1),
        row("cpu_op", "aten::mm", 10, 40, 1),
        row("cpu_op", "aten::empty", 12, 2, 1),
        row("cpu_op", "c10d::_allgather_base_", 70, 20, 1),
        row("cpu_op", "aten::chunk", 72, 5, 1),
        row("user_annotation", "gloo:all_gather", 80, 60, 2),
        row("cpu_op", "aten::view", 82, 5, 2),
    ]
    trace = read_traces({"schemaVersion": 1, "traceEvents": rows})
    assert [(s.name, s.kind) for s in trace.stretches] == [
        ("aten::mm", "compute"), ("all_gather", "communication"),
    ]  # fmt: skip


def test_one_trace_a_rank() -> None:
    with pytest.raises(ValueError, match="found: ranks"):
        read_traces(gpu(0, 0.0), gpu(0, 0.0))
    nobodys = {"schemaVersion": 1, "traceEvents": [row("cpu_op", "aten::mm", 0, 1, 1)]}
    with pytest.raises(ValueError, match="the same, bit for bit"):
        read_traces(nobodys, nobodys)


def test_the_bare_list_of_events() -> None:
    (work,) = read_traces([row("cpu_op", "aten::mm", 0, 1, 1)]).stretches
    assert (work.name, work.rank) == ("aten::mm", 0)


@pytest.mark.parametrize("documents", [[], [[]], [{"traceEvents": []}]])
def test_what_says_nothing_is_refused(documents: list[Any]) -> None:
    with pytest.raises(ValueError, match="no step, no call and no work"):
        read_traces(*documents)
