"""Ranks talking: groups, messages, collectives, and the collectives built from messages."""

from course_lib.comm.algorithms.choose import ALGORITHMS, all_reduce_from_messages
from course_lib.comm.algorithms.halving_doubling import (
    doubling_all_reduce,
    halving_doubling_all_reduce,
)
from course_lib.comm.algorithms.hierarchical import hierarchical_all_reduce
from course_lib.comm.algorithms.pairwise import pairwise_all_to_all, pairwise_reduce_scatter
from course_lib.comm.algorithms.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from course_lib.comm.algorithms.tree import tree_broadcast, tree_reduce
from course_lib.comm.autograd import (
    all_gather_to_group,
    copy_to_group,
    exchange_in_group,
    gather_from_group,
    reduce_from_group,
    reduce_scatter_in_group,
    split_to_group,
    summed,
)
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
from course_lib.comm.mesh import AXES, Mesh, axis_lines, coordinates
from course_lib.comm.messages import Stream, exchange, irecv, isend, recv, send
from course_lib.comm.torch_transport import TorchTransport
from course_lib.comm.transport import Transport
from course_lib.comm.work import Work

__all__ = [
    "ALGORITHMS",
    "AXES",
    "CommError",
    "Group",
    "Mesh",
    "Stream",
    "TorchTransport",
    "Transport",
    "Work",
    "all_gather",
    "all_gather_to_group",
    "all_reduce",
    "all_reduce_from_messages",
    "all_to_all",
    "axis_lines",
    "barrier",
    "broadcast",
    "coordinates",
    "copy_to_group",
    "doubling_all_reduce",
    "exchange",
    "exchange_in_group",
    "gather_from_group",
    "halving_doubling_all_reduce",
    "hierarchical_all_reduce",
    "irecv",
    "isend",
    "pairwise_all_to_all",
    "pairwise_reduce_scatter",
    "recv",
    "reduce",
    "reduce_from_group",
    "reduce_scatter",
    "reduce_scatter_in_group",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "send",
    "split_to_group",
    "summed",
    "tree_broadcast",
    "tree_reduce",
]
