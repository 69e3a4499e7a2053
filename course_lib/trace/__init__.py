"""Plain records of what happened on the ranks, and what they tell: traces, flight logs, costs."""

from course_lib.trace.alpha_beta import AlphaBeta, bus_bandwidth, fit
from course_lib.trace.analysis.explanation import Explanation, Flops, explain
from course_lib.trace.analysis.stretches import Stretch, Trace
from course_lib.trace.calls import Calls
from course_lib.trace.event import Event, Span
from course_lib.trace.hangs.agreement import Witness, find_disagreement, may_differ
from course_lib.trace.hangs.desync import Finding, find_desync
from course_lib.trace.hangs.flight import FlightLog, Record, flight_log
from course_lib.trace.ledger import Ledger
from course_lib.trace.listener import Listener
from course_lib.trace.program_order import program_order
from course_lib.trace.readers.chrome import open_traces, read_traces
from course_lib.trace.readers.torch_flight import (
    open_torch_flight,
    read_torch_flight,
    without_log,
)
from course_lib.trace.refusal import Refusal
from course_lib.trace.rounds import rounds
from course_lib.trace.timeline import Timeline, spread
from course_lib.trace.wire import chunk_sizes, formula_text, wire_bytes

__all__ = [
    "AlphaBeta",
    "Calls",
    "Event",
    "Explanation",
    "Finding",
    "FlightLog",
    "Flops",
    "Ledger",
    "Listener",
    "Record",
    "Refusal",
    "Span",
    "Stretch",
    "Timeline",
    "Trace",
    "Witness",
    "bus_bandwidth",
    "chunk_sizes",
    "explain",
    "find_desync",
    "find_disagreement",
    "fit",
    "flight_log",
    "formula_text",
    "may_differ",
    "open_torch_flight",
    "open_traces",
    "program_order",
    "read_torch_flight",
    "read_traces",
    "rounds",
    "spread",
    "wire_bytes",
    "without_log",
]
