"""variant: tables of ranks by ranks, no loop over tokens"""

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
    """What one dispatch sends; the way back is as long.

    Args:
        chosen_NTK: int64 [N, T, k]: for each of N ranks, and each of its T tokens, its experts.
        experts: E, a multiple of N.
        per_node: P; N is a multiple of it.
        token_bytes: of one copy of a token.

    Returns:
        The plain way, and by node.
    """
    ranks = len(chosen_NTK)
    own, nodes = experts // ranks, ranks // per_node
    rank_NTK = chosen_NTK.div(own, rounding_mode="floor")  # `ranks` where a choice was dropped
    source_N = torch.arange(ranks)
    copies = torch.stack([(rank_NTK == rank).sum(-1) for rank in range(ranks)], -1)
    near = source_N[:, None] // per_node == source_N // per_node
    other = source_N[:, None] != source_N
    sums = copies.sum(1)
    plain = [int(sums[near & other].sum()), int(sums[~near].sum())]
    used = copies > 0
    place = source_N[:, None] % per_node != source_N % per_node
    visits = used.unflatten(-1, (nodes, per_node)).any(-1).sum(1)
    home = source_N[:, None] // per_node == torch.arange(nodes)
    by_node = [int(used.sum(1)[place].sum()), int(visits[~home].sum())]
    return (
        Traffic(plain[0] * token_bytes, plain[1] * token_bytes),
        Traffic(by_node[0] * token_bytes, by_node[1] * token_bytes),
    )


def nodes_reached(nodes: int, experts: int, top_k: int, most: int) -> Fraction:
    """The mean number of other nodes that a token is sent to.

    Args:
        nodes: n.
        experts: on each node.
        top_k: k, at most M times `experts`.
        most: M, from 1 to n.
    """
    pool = most * experts
    without = Fraction(comb(pool - experts, top_k), comb(pool, top_k))
    return most * (1 - without) * Fraction(nodes - 1, nodes)
