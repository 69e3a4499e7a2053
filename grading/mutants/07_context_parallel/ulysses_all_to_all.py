"""Wrong and right answers to `ulysses_all_to_all`: see `course dev show ulysses_all_to_all`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_gather", ["every rank gets all of k and v", "and their gradients are summed"], '''
 from course_lib.comm import Group, exchange_in_group
+from course_lib.comm import all_gather_to_group
@@
-    def swap(x: torch.Tensor, cut: int, join: int) -> torch.Tensor:
-        """Part j along dim `cut` goes to rank j; what comes is joined along dim `join`."""
-        rows = torch.cat(x.chunk(group.size, cut))
-        sizes = [x.shape[0]] * group.size
-        return torch.cat(exchange_in_group(rows, sizes, sizes, group).chunk(group.size), join)
-
-    q, k, v = (swap(x, 2, 1).transpose(1, 2) for x in (q_BtHC, k_BtHC, v_BtHC))
-    out_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
-    return swap(out_BHTC.transpose(1, 2), 1, 2)
+    k, v = (all_gather_to_group(x, 1, group).transpose(1, 2) for x in (k_BtHC, v_BtHC))
+    q = q_BtHC.transpose(1, 2)
+    place = group.index * q.shape[2] + torch.arange(q.shape[2])
+    mask = torch.arange(k.shape[2]) <= place[:, None]
+    out_BHTC = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
+    return out_BHTC.transpose(1, 2)
'''),
    Wrong("heads_in_the_wrong_order", ["heads in the wrong order: those of rank 0 come first"], '''
-    return swap(out_BHTC.transpose(1, 2), 1, 2)
+    home = swap(out_BHTC.transpose(1, 2), 1, 2)
+    return home.unflatten(2, (group.size, -1)).transpose(2, 3).flatten(2, 3)
'''),
    Wrong("no_causal_mask", ["the causal mask is missing: a token sees later ones"], '''
-    out_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
+    out_BHTC = F.scaled_dot_product_attention(q, k, v)
'''),
    Wrong("no_gradient", ["nothing is sent: gradients do not flow", "q.grad", "is no tensor"], '''
 from course_lib.comm import Group, exchange_in_group
+from course_lib.comm import all_to_all
@@
-        sizes = [x.shape[0]] * group.size
-        return torch.cat(exchange_in_group(rows, sizes, sizes, group).chunk(group.size), join)
+        output = torch.empty_like(rows)
+        all_to_all(output, rows.detach(), group)
+        return torch.cat(output.chunk(group.size), join)
'''),
    Wrong("only_rank_0_asks", ["deadlock", "all_to_all"], '''
-    return swap(out_BHTC.transpose(1, 2), 1, 2)
+    return out_BHTC.transpose(1, 2) if group.index == group.size - 1 else swap(out_BHTC.transpose(1, 2), 1, 2)
'''),
    Wrong("order_lost_on_the_way_home", ["the output", "has the wrong value"], '''
-    return swap(out_BHTC.transpose(1, 2), 1, 2)
+    out = out_BHTC.transpose(1, 2).unflatten(1, (-1, group.size)).transpose(1, 2).flatten(1, 2)
+    return swap(out, 1, 2)
'''),
    Wrong("own_tokens_alone", ["each rank's tokens attend only to themselves"], '''
-    q, k, v = (swap(x, 2, 1).transpose(1, 2) for x in (q_BtHC, k_BtHC, v_BtHC))
+    q, k, v = (x.transpose(1, 2) for x in (q_BtHC, k_BtHC, v_BtHC))
@@
-    return swap(out_BHTC.transpose(1, 2), 1, 2)
+    return out_BHTC.transpose(1, 2)
'''),
    Wrong("stays_away", ["the whole sequence of some heads: a last all-to-all must return it"], '''
-    return swap(out_BHTC.transpose(1, 2), 1, 2)
+    return out_BHTC.transpose(1, 2)
'''),
    Wrong("tokens_take_turns", ["tokens in the wrong order"], '''
-    q, k, v = (swap(x, 2, 1).transpose(1, 2) for x in (q_BtHC, k_BtHC, v_BtHC))
+    def mixed(x: torch.Tensor) -> torch.Tensor:
+        return x.unflatten(1, (group.size, -1)).transpose(1, 2).flatten(1, 2)
+
+    q, k, v = (mixed(swap(x, 2, 1)).transpose(1, 2) for x in (q_BtHC, k_BtHC, v_BtHC))
@@
-    return swap(out_BHTC.transpose(1, 2), 1, 2)
+    out = out_BHTC.transpose(1, 2).unflatten(1, (-1, group.size)).transpose(1, 2).flatten(1, 2)
+    return swap(out, 1, 2)
'''),
]

RIGHT = [
    Right("variant_one_exchange_for_all", "q, k and v in one all-to-all; parts by unflatten", '''
import torch
import torch.nn.functional as F

from course_lib.comm import Group
from course_lib.comm import exchange_in_group


def ulysses_attention(
    q_BtHC: torch.Tensor, k_BtHC: torch.Tensor, v_BtHC: torch.Tensor, group: Group
) -> torch.Tensor:
    """Causal attention over the sequence of all ranks.

    Args:
        q_BtHC: queries of this rank's T/N tokens, all heads.
        k_BtHC: keys, the same shape.
        v_BtHC: values, the same shape.
        group: the N ranks, in the order of the sequence.

    Returns:
        The attended values, the same shape.
    """

    def swap(x: torch.Tensor, cut: int, join: int) -> torch.Tensor:
        """Part j along dim `cut` goes to rank j; what comes is joined along dim `join`."""
        rows = torch.cat(x.chunk(group.size, cut))
        sizes = [x.shape[0]] * group.size
        return torch.cat(exchange_in_group(rows, sizes, sizes, group).chunk(group.size), join)

    heads = q_BtHC.shape[2] // group.size
    qkv = torch.stack([q_BtHC, k_BtHC, v_BtHC]).unflatten(3, (group.size, heads))
    rows, ones = qkv.movedim(3, 0).contiguous(), [1] * group.size
    there = exchange_in_group(rows, ones, ones, group)  # [N, 3, B, T/N, H/N, C]
    q, k, v = there.movedim(0, 2).flatten(2, 3).transpose(2, 3)
    out_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return swap(out_BHTC.transpose(1, 2), 1, 2)
'''),
]
