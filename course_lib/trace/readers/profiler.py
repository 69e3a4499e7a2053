"""Reads what torch.profiler exports: operators and gloo on CPU, kernels and NCCL on GPUs.

Notebook: 14 Profiling and debugging (explain_trace).
Source: torch.profiler's `export_chrome_trace`; the arguments of communication kernels are those of
ParamCommsUtils in PyTorch ("Collective name", "Process Group Ranks", "Seq").
Costs one pass over the events.
The production version (Kineto's own viewers) also joins each kernel to the operator behind it.

A trace with kernels tells what the device did, and what the processor did meanwhile is left out.
Without kernels the operators are the work; there the profiler names no process group, so calls of
different ranks are joined only if the program had one group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from course_lib.trace.analysis.stretches import Stretch, Trace
from course_lib.trace.refusal import Refusal

Row = dict[str, Any]

DEVICE = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy"}
STEP = "ProfilerStep#"
BACKENDS = ("gloo:", "nccl:")
# Operators that only hand a call to a backend; what runs inside them is part of it.
CALLS = ("c10d::", "_c10d_functional::")
# Frames around other operators: in a hook below them the program may wait, which is no work.
FRAMES = ("autograd::", "torch::")
KERNEL = re.compile(r"nccl\w*?Kernel_([A-Za-z]+)")
# What NCCL and its collectives' names in PyTorch ("_allgather_base", ...) come to.
WORDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
}


def read_profiler(documents: Sequence[Mapping[str, Any]]) -> Trace:
    """One trace of all ranks.

    Args:
        documents: parsed JSON, one a rank. Clocks are compared as they are: the ranks of one
            machine share one, those of several need theirs synchronised.

    Raises:
        Refusal: several documents are of the same rank, or one is given twice.
    """
    ranks = [int(d.get("distributedInfo", {}).get("rank", n)) for n, d in enumerate(documents)]
    if len(set(ranks)) < len(ranks):
        raise Refusal(
            f"join {len(ranks)} traces",
            f"ranks {ranks}",
            "one trace a rank: two of the same rank would be counted as one",
        )
    if any(one == other for one, other in combinations(documents, 2)):
        raise Refusal(
            f"join {len(ranks)} traces",
            "two that are the same, bit for bit",
            "one trace a rank: each rank writes a file of its own",
        )
    first = min((_base(document) for document in documents), default=0)
    stretches: list[Stretch] = []
    for rank, document in zip(ranks, documents, strict=True):
        stretches += _Reader(rank, document, (_base(document) - first) / 1e9).stretches()
    return Trace(stretches, ranks)


def _base(document: Mapping[str, Any]) -> int:
    """Nanoseconds at which the times of a document begin."""
    return int(document.get("baseTimeNanoseconds", 0))


class _Reader:
    """The stretches of one document.

    Args:
        rank: whose it is.
        document: parsed JSON.
        shift: seconds from the common beginning of time to this document's.
    """

    def __init__(self, rank: int, document: Mapping[str, Any], shift: float) -> None:
        self.rank = rank
        self.shift = shift
        self.rows: list[Row] = [e for e in document["traceEvents"] if e.get("ph") == "X"]
        self.rows.sort(key=lambda row: (row["ts"], -row["dur"]))
        info = document.get("distributedInfo", {}).get("pg_config", [])
        self.groups = {g["pg_name"]: tuple(g["ranks"]) for g in info if "ranks" in g}
        self.counts: dict[tuple[Any, ...], int] = {}

    def stretches(self) -> list[Stretch]:
        """What the device did, if there was one, else what the operators did; and the steps."""
        on_device = any(row.get("cat") in DEVICE for row in self.rows)
        done = self._kernels() if on_device else self._operators()
        marks = [row for row in self.rows if row["name"].startswith(STEP)]
        theirs = [row for row in marks if row.get("cat") == "gpu_user_annotation"]
        return [*done, *(self._stretch("step", row) for row in theirs or marks)]

    def _stretch(self, kind: str, row: Row) -> Stretch:
        begin = self.shift + row["ts"] / 1e6
        return Stretch(self.rank, kind, row["name"], begin, begin + row["dur"] / 1e6)

    # --- on a device -----------------------------------------------------------------------------
    def _kernels(self) -> Iterable[Stretch]:
        for row in (row for row in self.rows if row.get("cat") in DEVICE):
            if row["name"].startswith("nccl"):
                yield self._collective(row)
            else:
                yield self._stretch(DEVICE[row["cat"]], row)

    def _collective(self, row: Row) -> Stretch:
        args = row.get("args", {})
        kernel = KERNEL.match(row["name"])
        name = args.get("Collective name") or (kernel.group(1) if kernel else row["name"])
        group = _ranks(args.get("Process Group Ranks", ""))
        group = group or self.groups.get(args.get("Process Group Name", ""), ())
        return self._call(row, plain_name(name), group, args.get("Seq"))

    # --- on a processor --------------------------------------------------------------------------
    def _operators(self) -> Iterable[Stretch]:
        covered: dict[Any, float] = {}  # thread -> until when its outermost operator runs
        only = next(iter(self.groups.values())) if len(self.groups) == 1 else ()
        for row in self.rows:
            name, end = row["name"], row["ts"] + row["dur"]
            if name.startswith(BACKENDS):
                yield self._call(row, plain_name(name.partition(":")[2]), only)
            elif row.get("cat") != "cpu_op" or end <= covered.get(row["tid"], -1.0):
                continue
            elif "::" in name and not name.startswith((*CALLS, *FRAMES)):
                yield self._stretch("compute", row)
            if name.startswith(BACKENDS) or ("::" in name and not name.startswith(FRAMES)):
                covered[row["tid"]] = end

    # --- both ------------------------------------------------------------------------------------
    def _call(self, row: Row, name: str, group: tuple[int, ...], seq: int | None = None) -> Stretch:
        """Communication. Without a number of its own it counts the calls of its name and group."""
        count = self.counts.get((name, group), 0)
        self.counts[name, group] = count + 1
        begin = self.shift + row["ts"] / 1e6
        end = begin + row["dur"] / 1e6
        number = (count if seq is None else int(seq)) if group else -1
        return Stretch(self.rank, "communication", name, begin, end, group, number)


def plain_name(name: str) -> str:
    """`_allgather_base`, `AllGather` and `all_gather` are the same collective."""
    bare = name.lower().replace("_", "").removesuffix("base").removesuffix("coalesced")
    return WORDS.get(bare, bare)


def _ranks(text: str) -> tuple[int, ...]:
    """`[0, 1]` as numbers; () if the profiler left some out, as it does in long lists."""
    try:
        return tuple(json.loads(text))
    except ValueError:
        return ()
