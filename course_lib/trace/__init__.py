"""Plain records of what happened on the ranks: events, ledgers, timelines, wire formulas."""

from course_lib.trace.alpha_beta import AlphaBeta, bus_bandwidth, fit
from course_lib.trace.event import Event, Span
from course_lib.trace.ledger import Ledger
from course_lib.trace.timeline import Timeline, spread
from course_lib.trace.wire import chunk_sizes, formula_text, wire_bytes

__all__ = [
    "AlphaBeta",
    "Event",
    "Ledger",
    "Span",
    "Timeline",
    "bus_bandwidth",
    "chunk_sizes",
    "fit",
    "formula_text",
    "spread",
    "wire_bytes",
]
