"""ep_traffic: what a dispatch sends inside a node and between nodes, in two ways.

Notebook 12. Links between nodes are several times slower than those inside, so it matters where a
token's experts are. The plain dispatch sends a copy of the token for each choice. DeepSeek-V3 sends
the token to a *node* once, however many of its experts are there, and distributes it inside the
node:

    plain     rank 0 -> rank 4, rank 0 -> rank 6         two copies between the nodes
    by node   rank 0 -> rank 4, then rank 4 -> rank 6    one between, one inside

    node 0: ranks 0 1 2 3        node 1: ranks 4 5 6 7

In addition, a token may choose experts on at most M nodes, so that few copies leave a node.

Rules
- Rank r is on node r // P, with P ranks on each node. Rank r holds E/N experts, from r·E/N on.
- *Plain*: for each choice, one copy goes from the token's rank straight to the expert's rank. A
  copy that stays on its rank is not sent.
- *By node*: one copy goes to each other node on which the token has at least one expert. It goes to
  the rank with the same place in that node as the token's rank has in its own. From there (on the
  token's own node: from the token's rank), one copy goes to each other rank of the node that holds
  at least one of the token's experts.
- The experts of a token are different. A choice equal to E was dropped, and is sent nowhere.
- Counts are exact: integers, and for the mean a `Fraction`.

For the mean, assume a router that has learned nothing. For each token, M of the n nodes are drawn,
with all sets of M equally likely, and then k different experts of those nodes, again with all sets
equally likely. How many *other* nodes than its own does a token reach on average? Begin with one of
the M nodes: how likely is it that none of the k experts is there?

Nothing is sent: the two functions only count. You may use all of Python and torch.

Your answer may use nothing of `course_lib`.
"""

from fractions import Fraction
from math import comb
from typing import NamedTuple

import torch


class Traffic(NamedTuple):
    """Bytes that all ranks together send."""

    inside: int
    between: int


def ep_traffic(
    chosen_NTK: torch.Tensor, experts: int, per_node: int, token_bytes: int
) -> tuple[Traffic, Traffic]:
    """Counts what one dispatch sends; the way back sends as much.

    Args:
        chosen_NTK: int64 [N, T, k]: for each of N ranks, and each of its T tokens, its experts.
        experts: E, a multiple of N.
        per_node: P; N is a multiple of it.
        token_bytes: bytes of one copy of a token.

    Returns:
        The traffic of the plain way, and that by node.
    """
    raise NotImplementedError("ep_traffic: the copies")


def nodes_reached(nodes: int, experts: int, top_k: int, most: int) -> Fraction:
    """Returns the mean number of other nodes that a token is sent to, exactly.

    Args:
        nodes: n.
        experts: number of experts on each node.
        top_k: k, at most M times `experts`.
        most: M, from 1 to n.
    """
    raise NotImplementedError("ep_traffic: the mean")
