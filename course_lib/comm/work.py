"""A call under way, and what it means to wait for it on a CPU and on a GPU.

Notebook: 00 Ranks and the ledger, 02 Data parallel training (overlap).
Source: MPI's requests; torch.distributed's Work.
Costs: on a GPU, the time in which the host could already queue the next work.
The production version lets only the GPU's stream wait, and the host runs ahead.

NCCL's own `wait` returns at once. Here the host waits as well. So the ledger has the time at which
the data arrived, an autopsy sees who waits in which call, and an interrupt gets through.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import torch

from course_lib.comm.group import Group
from course_lib.comm.transport import Handle
from course_lib.trace import Event

PATIENCE = 2e-3  # seconds in which the host asks again and again whether the GPU is done
PAUSE = 1e-3  # then it asks a thousand times a second


class Work:
    """A call under way. Its buffers may be touched again only after `wait`.

    Args:
        handle: the transport's, or None if the call is already done.
        group: whose ledger the call is booked in.
        event: its entry there.
        finish: what is left to do once the data are here (scale an average, copy back).
        timed: note when the data arrive, even if nobody waits yet; only on the CPU, where this
            process sees a call end.
        data: what the backend works on; if it is on a GPU, `wait` polls.
    """

    def __init__(
        self,
        handle: Handle | None,
        group: Group,
        event: Event,
        finish: Callable[[], None] | None = None,
        *,
        timed: bool = False,
        data: torch.Tensor | None = None,
    ) -> None:
        self._handle = handle
        self._group = group
        self._finish = finish
        self.event = event
        self._arrived = arrived = []  # type: list[float]
        self._on_gpu = data is not None and data.is_cuda
        self._turn = _turn_of(data) if data is not None and data.is_cuda else None
        if timed and handle is not None and not self._on_gpu:
            # The callback holds the list and not this object, which holds the handle.
            group.transport.when_done(handle, arrived.append)

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        return self._handle is None or bool(self._handle.is_completed())

    @property
    def asks(self) -> bool:
        """Whether `wait` polls a GPU, and so never looks like sleep."""
        return self._on_gpu

    @property
    def has_begun(self) -> bool:
        """Whether the GPU has come to this call; it may still compute what was queued before."""
        return self._turn is None or bool(self._turn.query())

    def wait(self, within: float | None = None) -> None:
        """Returns once the buffers hold the result. A second call does nothing.

        Args:
            within: seconds, for calls on the CPU; the transport's own limit if None.

        Raises:
            RuntimeError: it took longer. Then the group's connections are closed, on all ranks.
        """
        if self._handle is not None:
            self.event.waited = self._group.ledger.clock()
            if self._on_gpu:
                _ask_until_done(self._handle)
            self._handle.wait(*(() if within is None else (timedelta(seconds=within),)))
            self._handle = None
        if self._finish is not None:
            with torch.no_grad():  # as a backend writes: also into parameters, past autograd
                self._finish()
            self._finish = None
        self._group.ledger.finish(self.event, *self._arrived)


def _ask_until_done(handle: Handle) -> None:
    soon = time.monotonic() + PATIENCE
    while not handle.is_completed():
        time.sleep(0 if time.monotonic() < soon else PAUSE)


def _turn_of(data: torch.Tensor) -> torch.cuda.Event:
    """An event that happens once the GPU has done all that is queued now."""
    turn = torch.cuda.Event()
    turn.record(torch.cuda.current_stream(data.device))
    return turn
