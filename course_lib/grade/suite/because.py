"""Why a run broke off: what a suite knows of it, and the judge does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from course_lib.grade.faults import RunFault


@contextmanager
def because(**causes: str) -> Iterator[None]:
    """Gives the fault that ends a run in the block its likely cause.

    Args:
        causes: kinds of faults, as `deadlock`, and the cause of each; {} in it stands for what the
            judge has found.
    """
    try:
        yield
    except RunFault as error:
        fault = error.fault
        if fault.kind not in causes:
            raise
        cause = causes[fault.kind].replace("{}", fault.cause).strip()
        raise RunFault(replace(fault, cause=cause), error.output) from None
