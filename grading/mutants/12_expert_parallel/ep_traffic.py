"""Wrong and right answers to `ep_traffic`: see `course dev show ep_traffic`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("arrives_at_the_first_rank", ["not at the node's first rank"], '''
-            by_node[0] += sum(rank % per_node != place for rank in set(ranks))
+            by_node[0] += sum(rank != (source if rank // per_node == home else rank // per_node * per_node) for rank in set(ranks))
'''),
    Wrong("copies_not_bytes", ["in copies", "not in bytes"], '''
-        Traffic(plain[0] * token_bytes, plain[1] * token_bytes),
+        Traffic(plain[0], plain[1]),
'''),
    Wrong("copy_for_each_choice_inside", ["a rank gets one copy inside its node"], '''
-            by_node[0] += sum(rank % per_node != place for rank in set(ranks))
+            by_node[0] += sum(rank % per_node != place for rank in ranks)
'''),
    Wrong("copy_for_each_rank", ["one copy for each rank", "send it to the node once"], '''
-            by_node[0] += sum(rank % per_node != place for rank in set(ranks))
-            by_node[1] += len({rank // per_node for rank in ranks} - {home})
+            by_node[0] += sum(rank // per_node == home and rank != source for rank in set(ranks))
+            by_node[1] += sum(rank // per_node != home for rank in set(ranks))
'''),
    Wrong("copy_for_itself", ["where a token arrives needs no copy from itself"], '''
-            by_node[0] += sum(rank % per_node != place for rank in set(ranks))
+            by_node[0] += sum(rank != source for rank in set(ranks))
'''),
    Wrong("cyclic_nodes", ["rank r is on node r // P"], '''
         home, place = divmod(source, per_node)
+        nodes = len(chosen_NTK) // per_node
+        home = source % nodes
@@
-            away = sum(rank // per_node != home for rank in ranks)
+            away = sum(rank % nodes != home for rank in ranks)
'''),
    Wrong("dropped_are_sent", ["dropped is sent nowhere"], '''
-            ranks = [expert // own for expert in chosen if expert < experts]
+            ranks = [min(expert, experts - 1) // own for expert in chosen]
'''),
    Wrong("exchanged", ["inside comes first"], '''
-        Traffic(plain[0] * token_bytes, plain[1] * token_bytes),
+        Traffic(plain[1] * token_bytes, plain[0] * token_bytes),
'''),
    Wrong("mean_all_reached", ["some of the M nodes may have none"], '''
-    return most * (1 - without) * Fraction(nodes - 1, nodes)
+    return min(most, top_k) * Fraction(nodes - 1, nodes)
'''),
    Wrong("mean_from_all_nodes", ["only from the M nodes"], '''
-    pool = most * experts
+    pool = nodes * experts
@@
-    return most * (1 - without) * Fraction(nodes - 1, nodes)
+    return (nodes - 1) * (1 - without)
'''),
    Wrong("mean_in_floats", ["is not exact", "a float"], '''
-    without = Fraction(comb(pool - experts, top_k), comb(pool, top_k))
+    without = comb(pool - experts, top_k) / comb(pool, top_k)
'''),
    Wrong("mean_with_own_node", ["one of the n nodes is the token's own"], '''
-    return most * (1 - without) * Fraction(nodes - 1, nodes)
+    return most * (1 - without)
'''),
    Wrong("mean_with_putting_back", ["without replacement"], '''
-    without = Fraction(comb(pool - experts, top_k), comb(pool, top_k))
+    without = Fraction(most - 1, most) ** top_k
'''),
    Wrong("node_gets_several", ["a node gets one copy", "however many"], '''
-            by_node[1] += len({rank // per_node for rank in ranks} - {home})
+            by_node[1] += sum(rank // per_node != home for rank in set(ranks))
'''),
    Wrong("own_node_too", ["the token's own node is not one of the other nodes"], '''
-            by_node[1] += len({rank // per_node for rank in ranks} - {home})
+            by_node[1] += len({rank // per_node for rank in ranks})
'''),
    Wrong("plain_once_a_rank", ["two experts on one rank are two copies"], '''
-            ranks = [expert // own for expert in chosen if expert < experts]
+            ranks = sorted({expert // own for expert in chosen if expert < experts})
'''),
    Wrong("spread_forgotten", ["inside the other nodes count"], '''
-            by_node[0] += sum(rank % per_node != place for rank in set(ranks))
+            by_node[0] += sum(rank // per_node == home and rank != source for rank in set(ranks))
'''),
    Wrong("stays_on_its_rank", ["a copy that stays on its rank is not sent"], '''
-            plain[0] += len(ranks) - away - ranks.count(source)
+            plain[0] += len(ranks) - away
'''),
]

RIGHT = [
    Right("variant_vectorised", "tables of ranks by ranks, no loop over tokens", '''
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
'''),
]
