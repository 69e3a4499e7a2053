"""Who is told of each call as it begins and ends, with the tensors, which the ledger never keeps.

Notebook: 14 Profiling and debugging (record and replay).
Source: the hooks of PMPI and of NCCL's profiler plugins, which see a call before and after it.
Costs nothing where nobody listens.
The production version hands over addresses in the GPU's memory.
"""

from __future__ import annotations

from typing import Any, Protocol

from course_lib.trace.event import Event


class Listener(Protocol):
    """Looks at calls; messages inside a collective are not told of."""

    def began(self, event: Event, line: str, given: Any, taken: Any) -> None:
        """A call is about to begin: no byte has moved.

        Args:
            event: its entry in the ledger.
            line: of the program that made it, as `train.py, line 12`.
            given: the tensor, or tensors, that the call reads; None for a barrier.
            taken: where its result will be; the same tensor for a call in place.
        """

    def ended(self, event: Event) -> None:
        """The program has waited for the call, and its result is there."""
