"""Plain records of what happened on the ranks: events, ledgers, timelines, wire formulas."""

from course_lib.trace.event import Event, Span
from course_lib.trace.ledger import Ledger
from course_lib.trace.timeline import Timeline
from course_lib.trace.wire import chunk_sizes, formula_text, wire_bytes

__all__ = [
    "Event",
    "Ledger",
    "Span",
    "Timeline",
    "chunk_sizes",
    "formula_text",
    "wire_bytes",
]
