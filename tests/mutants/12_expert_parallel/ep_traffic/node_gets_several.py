"""mutant: a node gets one copy, however many"""

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
    own = experts // len(chosen_NTK)
    plain, by_node = [0, 0], [0, 0]  # copies inside a node, between nodes
    for source, tokens in enumerate(chosen_NTK.tolist()):
        home, place = divmod(source, per_node)
        for chosen in tokens:
            ranks = [expert // own for expert in chosen if expert < experts]
            away = sum(rank // per_node != home for rank in ranks)
            plain[0] += len(ranks) - away - ranks.count(source)
            plain[1] += away
            by_node[0] += sum(rank % per_node != place for rank in set(ranks))
            by_node[1] += sum(rank // per_node != home for rank in set(ranks))
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
