"""Where a step's time went: shares of each rank, MFU and HFU, the straggler, the critical path.

Notebook: 14 Profiling and debugging (explain_trace).
Paper: Chowdhery and others, "PaLM" (2022), appendix B, for MFU and HFU.
Costs arithmetic on the intervals of a trace.
The production version (Holistic Trace Analysis) does it for thousands of ranks and many steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.trace.analysis.critical import Segment, critical_path
from course_lib.trace.analysis.meetings import Lateness, lateness
from course_lib.trace.analysis.stretches import Trace
from course_lib.trace.intervals import overlap


class Flops(NamedTuple):
    """What is needed to turn seconds into a share of the peak.

    Attributes:
        model: operations that the model needs for one step, forward and backward, over all ranks;
            what is computed twice to save memory counts once.
        hardware: operations really carried out: with recomputation, more than `model`.
        peak: operations a second that one rank's device can do at most.
    """

    model: float
    hardware: float
    peak: float


@dataclass(frozen=True)
class Shares:
    """How one rank spent the time, in seconds; compute, exposed, copy and idle add up to it all.

    Attributes:
        rank: whose.
        compute: it computed, whatever else went on beside it.
        exposed: it communicated and computed nothing.
        hidden: it communicated and computed at the same time: communication that cost nothing.
        copy: it copied between host and device, and neither computed nor communicated.
        idle: none of these.
    """

    rank: int
    compute: float
    exposed: float
    hidden: float
    copy: float
    idle: float

    @property
    def communication(self) -> float:
        """Seconds in which at least one call was under way."""
        return self.exposed + self.hidden


@dataclass(frozen=True)
class Explanation:
    """What `explain` found.

    Attributes:
        seconds: length of the window that was looked at.
        steps: training steps in it.
        shares: one a rank, in rank order.
        late: all ranks, the one that was waited for longest first.
        path: the critical path of the window.
        mfu: model FLOPs utilisation, 0 to 1; None if no operations were given.
        hfu: hardware FLOPs utilisation, likewise.
    """

    seconds: float
    steps: int
    shares: list[Shares]
    late: list[Lateness]
    path: list[Segment]
    mfu: float | None
    hfu: float | None

    @property
    def step_seconds(self) -> float:
        """Seconds of one step."""
        return self.seconds / self.steps

    @property
    def exposed_share(self) -> float:
        """Part of the time in which a rank communicated and did not compute; mean over ranks."""
        return _mean(s.exposed for s in self.shares) / self.seconds if self.seconds else 0.0

    @property
    def straggler(self) -> Lateness | None:
        """The rank that cost the others the most time; None if nobody waited for anybody."""
        return self.late[0] if self.late and self.late[0].seconds > 0 else None

    def text(self) -> str:
        """All of it in a few lines."""
        ms = 1e3 / self.steps
        lines = [f"step {self.step_seconds * 1e3:.3f} ms, {self.exposed_share:.1%} of it exposed"]
        if self.mfu is not None:
            lines[0] += f"; MFU {self.mfu:.1%}, HFU {self.hfu:.1%}"
        for s in self.shares:
            lines.append(
                f"rank {s.rank}: compute {s.compute * ms:.3f} ms, communication exposed "
                f"{s.exposed * ms:.3f} and hidden {s.hidden * ms:.3f}, copy {s.copy * ms:.3f}, "
                f"idle {s.idle * ms:.3f}"
            )
        if self.straggler is not None:
            late = self.straggler
            lines.append(
                f"straggler: rank {late.rank}; per step, the others waited for it for "
                f"{late.seconds * ms:.3f} ms in total, over {late.meetings} calls"
            )
        return "\n".join(lines)


def explain(trace: Trace, flops: Flops | None = None) -> Explanation:
    """Explains a trace; if steps are marked in it, from the first one's beginning to the last end.

    Args:
        trace: of all ranks; one step of it is `trace.cut(*trace.steps()["step 3"])`.
        flops: operations of one step and the peak, for MFU and HFU.
    """
    marks = trace.steps()
    if marks:
        begin = max(trace.begin, min(begin for begin, _ in marks.values()))
        trace = trace.cut(begin, min(trace.end, max(end for _, end in marks.values())))
    steps = sum(_inside(mark, trace) for mark in marks.values()) or 1
    able = trace.seconds * len(trace.ranks) * flops.peak if flops else 0.0
    return Explanation(
        seconds=trace.seconds,
        steps=steps,
        shares=[_shares(trace, rank) for rank in trace.ranks],
        late=lateness(trace),
        path=critical_path(trace),
        mfu=flops.model * steps / able if flops and able else None,
        hfu=flops.hardware * steps / able if flops and able else None,
    )


def _inside(mark: tuple[float, float], trace: Trace) -> bool:
    """Whether more than half of a marked step lies in the window."""
    return 2 * overlap([mark], [(trace.begin, trace.end)]) > mark[1] - mark[0]


def _shares(trace: Trace, rank: int) -> Shares:
    seconds = dict.fromkeys(("compute", "communication", "copy", "idle"), 0.0)
    for kind, (begin, end) in trace.doing(rank):
        seconds[kind] += end - begin
    calls, work = trace.of(rank, "communication"), trace.of(rank, "compute")
    return Shares(
        rank,
        compute=seconds["compute"],
        exposed=seconds["communication"],
        hidden=overlap(calls, work),
        copy=seconds["copy"],
        idle=seconds["idle"],
    )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
