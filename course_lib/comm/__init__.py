"""Ranks talking: groups, messages, collectives, and the collectives built from messages."""

from course_lib.comm.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    reduce,
    reduce_scatter,
)
from course_lib.comm.errors import CommError
from course_lib.comm.group import Group
from course_lib.comm.mesh import Mesh
from course_lib.comm.messages import Work, exchange, irecv, isend, recv, send

__all__ = [
    "CommError",
    "Group",
    "Mesh",
    "Work",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "exchange",
    "irecv",
    "isend",
    "recv",
    "reduce",
    "reduce_scatter",
    "send",
]
