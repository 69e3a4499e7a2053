"""Wrong and right answers to `ring_attention_backward`: see `course dev show ring_attention_backward`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("results_in_float32", ["dq (1×2×", "has the wrong dtype"], '''
-    return dq, grads[0], grads[1]
+    wide = torch.promote_types(q.dtype, torch.float32)
+    return dq.to(wide), grads[0].to(wide), grads[1].to(wide)
'''),
    Wrong("added_up_locally", ["the parts for all blocks are added up on this rank"], '''
-        if group.size > 1:
-            grads = passed_on(grads)
'''),
    Wrong("blocking_send", ["deadlock", "Everybody sends and nobody receives"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-        exchange(tensor, group.next, incoming, group.previous, group)
+        send(tensor, group.next, group)
+        recv(incoming, group.previous, group)
'''),
    Wrong("brings_the_blocks_home", ["k and v return to their rank as well"], '''
-        if hop < group.size - 1:
+        if group.size > 1:
'''),
    Wrong("delta_forgotten", ["δ is missing"], '''
-            ds = p * (grad_out @ block[1].mT - delta) * scale
+            ds = p * (grad_out @ block[1].mT) * scale
'''),
    Wrong("delta_within_the_block", ["dq", "has the wrong value"], '''
-            ds = p * (grad_out @ block[1].mT - delta) * scale
+            dp = grad_out @ block[1].mT
+            ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
'''),
    Wrong("dv_from_ds", ["dv", "P and dZ were swapped"], '''
-            grads[1] += p.mT @ grad_out
+            grads[1] += ds.mT @ grad_out
'''),
    Wrong("dv_stays", ["dv", "the parts for all blocks are added up on this rank"], '''
-    grads = torch.zeros_like(block)
+    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
@@
-            grads[0] += ds.mT @ q
-            grads[1] += p.mT @ grad_out
+            dk += ds.mT @ q
+            dv += p.mT @ grad_out
@@
-            grads = passed_on(grads)
-    return dq, grads[0], grads[1]
+            dk = passed_on(dk)
+    return dq, dk, dv
'''),
    Wrong("exp_before_the_difference", ["scores of several thousand", "NaN"], '''
-            p = (q @ block[0].mT * scale - lse[..., None]).exp()
+            p = (q @ block[0].mT * scale).exp() / lse[..., None].exp()
'''),
    Wrong("mask_after_the_exponential", ["scores of several thousand", "infinity times 0"], '''
-                p.masked_fill_(future, 0)
+                p *= ~future
'''),
    Wrong("gathers_everything", ["an import that this exercise does not allow: course_lib.comm.all_gather"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import all_gather, all_reduce
@@
-    def passed_on(tensor: torch.Tensor) -> torch.Tensor:
-        incoming = torch.empty_like(tensor)
-        exchange(tensor, group.next, incoming, group.previous, group)
-        return incoming
-
-    scale, rows = q.shape[-1] ** -0.5, torch.arange(q.shape[2])
-    future = rows[None, :] > rows[:, None]
-    delta = (grad_out * out).sum(-1, keepdim=True)
-    dq, block = torch.zeros_like(q), torch.stack([k, v])
-    grads = torch.zeros_like(block)
-    for hop in range(group.size):
-        source = (group.index - hop) % group.size
-        if source <= group.index:
-            p = (q @ block[0].mT * scale - lse[..., None]).exp()
-            if source == group.index:
-                p.masked_fill_(future, 0)
-            ds = p * (grad_out @ block[1].mT - delta) * scale
-            dq += ds @ block[0]
-            grads[0] += ds.mT @ q
-            grads[1] += p.mT @ grad_out
-        if hop < group.size - 1:
-            block = passed_on(block)
-        if group.size > 1:
-            grads = passed_on(grads)
-    return dq, grads[0], grads[1]
+    def whole(tensor: torch.Tensor) -> torch.Tensor:
+        box = tensor.new_empty(group.size * tensor.shape[0], *tensor.shape[1:])
+        all_gather(box, tensor.contiguous(), group)
+        return torch.cat(box.chunk(group.size), 2)
+
+    keys, values = whole(k).requires_grad_(), whole(v).requires_grad_()
+    queries = q.detach().clone().requires_grad_()
+    places = torch.arange(keys.shape[2])
+    rows = places.chunk(group.size)[group.index]
+    scores = queries @ keys.mT / q.shape[-1] ** 0.5
+    scores = scores.masked_fill(places[None, :] > rows[:, None], -torch.inf)
+    dq, dk, dv = torch.autograd.grad(scores.softmax(-1) @ values, [queries, keys, values], grad_out)
+    for grad in (dk, dv):
+        all_reduce(grad, group)
+    return dq, dk.chunk(group.size, 2)[group.index], dv.chunk(group.size, 2)[group.index]
'''),
    Wrong("grads_with_dtype_float32", ["dk", "has the wrong"], '''
-    grads = torch.zeros_like(block)
+    grads = torch.zeros(block.shape)
'''),
    Wrong("hops_only_where_it_computes", ["deadlock"], '''
-        if hop < group.size - 1:
+        if source <= group.index and hop < group.size - 1:
@@
-        if group.size > 1:
+        if source <= group.index and group.size > 1:
'''),
    Wrong("keeps_every_block", ["the peak on 4 ranks", "a block more for each rank"], '''
-    grads = torch.zeros_like(block)
+    grads, blocks = torch.zeros_like(block), []
@@
             block = passed_on(block)
+            blocks.append(block)
'''),
    Wrong("mask_by_local_index", ["the mask was made from places in the block"], '''
-        if source <= group.index:
+        if True:
@@
-            if source == group.index:
+            if True:
'''),
    Wrong("no_mask", ["the diagonal block needs a mask"], '''
-        if source <= group.index:
+        if True:
@@
-            if source == group.index:
-                p.masked_fill_(future, 0)
'''),
    Wrong("not_sent_home", ["one more hop brings them"], '''
-        if group.size > 1:
'''),
    Wrong("one_hop_short", ["the block of the last hop was left out: one hop short"], '''
     for hop in range(group.size):
+        if hop and hop == group.size - 1:
+            grads = passed_on(passed_on(grads)) if False else passed_on(grads)
+            continue
'''),
    Wrong("only_own_queries", ["this rank's queries alone: the other ranks' parts never returned"], '''
-            grads[0] += ds.mT @ q
-            grads[1] += p.mT @ grad_out
+            if hop == 0:
+                grads[1] += p.mT @ grad_out
+                grads[0] += ds.mT @ q
@@
-        if group.size > 1:
-            grads = passed_on(grads)
'''),
    Wrong("own_block_unmasked", ["the diagonal block needs a mask"], '''
-            if source == group.index:
-                p.masked_fill_(future, 0)
'''),
    Wrong("passed_on_before_it_is_added", ["dk", "has the wrong value"], '''
         if source <= group.index:
+            old = grads
@@
             dq += ds @ block[0]
+            sent = passed_on(grads) if group.size > 1 else grads
@@
             grads[1] += p.mT @ grad_out
+        else:
+            sent = passed_on(grads)
+        grads = sent
@@
-        if group.size > 1:
-            grads = passed_on(grads)
'''),
    Wrong("rank_for_index", ["the same in a group of ranks 0 and 2"], '''
-        source = (group.index - hop) % group.size
-        if source <= group.index:
+        source = (group.rank - hop) % group.size
+        if source <= group.rank:
@@
-            if source == group.index:
+            if source == group.rank:
'''),
    Wrong("receives_into_what_is_sent", ["two messages under way share memory", "use two buffers in turn"], '''
-        incoming = torch.empty_like(tensor)
+        incoming = tensor
'''),
    Wrong("returns_two", ["has the wrong form", "a tuple (dq", "dk", "dv)"], '''
-    return dq, grads[0], grads[1]
+    return dq, grads
'''),
    Wrong("ring_the_other_way", ["the ring runs the other way round"], '''
-        source = (group.index - hop) % group.size
+        source = (group.index + hop) % group.size
'''),
    Wrong("scale_forgotten", ["dq", "1/√C is missing in this gradient"], '''
-            ds = p * (grad_out @ block[1].mT - delta) * scale
+            ds = p * (grad_out @ block[1].mT - delta)
'''),
    Wrong("scale_forgotten_in_dk", ["dk", "1/√C is missing in this gradient"], '''
-            ds = p * (grad_out @ block[1].mT - delta) * scale
-            dq += ds @ block[0]
+            ds = p * (grad_out @ block[1].mT - delta)
+            dq += ds @ block[0] * scale
'''),
    Wrong("scales_q_in_place", ["the list of inputs that were changed", "'q'"], '''
     scale, rows = q.shape[-1] ** -0.5, torch.arange(q.shape[2])
+    q *= scale
@@
-            p = (q @ block[0].mT * scale - lse[..., None]).exp()
+            p = (q @ block[0].mT - lse[..., None]).exp()
@@
-            ds = p * (grad_out @ block[1].mT - delta) * scale
-            dq += ds @ block[0]
+            ds = p * (grad_out @ block[1].mT - delta)
+            dq += ds @ block[0] * scale
'''),
    Wrong("softmax_of_each_block", ["the probabilities add up to 1 in each block"], '''
-            p = (q @ block[0].mT * scale - lse[..., None]).exp()
+            scores = q @ block[0].mT * scale
@@
-                p.masked_fill_(future, 0)
+                scores.masked_fill_(future, -torch.inf)
+            p = scores.softmax(-1)
'''),
    Wrong("walks_the_queries", ["bytes sent"], '''
-    dq, block = torch.zeros_like(q), torch.stack([k, v])
-    grads = torch.zeros_like(block)
+    travel = torch.cat([q, grad_out, lse[..., None], delta, torch.zeros_like(q)], -1)
+    width = q.shape[-1]
+    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
@@
-        if source <= group.index:
-            p = (q @ block[0].mT * scale - lse[..., None]).exp()
+        if source >= group.index:
+            theirs, grad, total, d, _ = travel.split([width, width, 1, 1, width], -1)
+            p = (theirs @ k.mT * scale - total).exp()
@@
-            ds = p * (grad_out @ block[1].mT - delta) * scale
-            dq += ds @ block[0]
-            grads[0] += ds.mT @ q
-            grads[1] += p.mT @ grad_out
-        if hop < group.size - 1:
-            block = passed_on(block)
+            ds = p * (grad @ v.mT - d) * scale
+            travel[..., -width:] += ds @ k
+            dk += ds.mT @ theirs
+            dv += p.mT @ grad
@@
-            grads = passed_on(grads)
-    return dq, grads[0], grads[1]
+            travel = passed_on(travel)
+    return travel[..., -width:].contiguous(), dk, dv
'''),
]

RIGHT = [
    Right("variant_hop_while_computing", "k and v are under way while the block is used; dk and dv in messages of their own", '''
import torch

from course_lib.comm import Group, exchange, irecv, isend


def ring_attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    group: Group,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scale, length = q.shape[-1] ** -0.5, q.shape[2]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    delta = (grad_out * out).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    keys, values = k.contiguous(), v.contiguous()
    for hop in range(group.size):
        works, last = [], hop == group.size - 1
        if not last:
            boxes = torch.empty_like(keys), torch.empty_like(values)
            works = [irecv(box, group.previous, group) for box in boxes]
            works += [isend(thing, group.next, group) for thing in (keys, values)]
        if hop <= group.index:
            p = torch.exp(q @ keys.mT * scale - lse[..., None])
            if hop == 0:
                p = torch.where(seen, p, 0)
            ds = p * (grad_out @ values.mT - delta)
            dq = dq + scale * (ds @ keys)
            dk = dk + scale * (ds.mT @ q)
            dv = dv + p.mT @ grad_out
        for work in works:
            work.wait()
        if works:
            keys, values = boxes
        if group.size > 1:
            boxes = torch.empty_like(dk), torch.empty_like(dv)
            for thing, box in zip((dk, dv), boxes):
                exchange(thing, group.next, box, group.previous, group)
            dk, dv = boxes
    return dq, dk, dv
'''),
    Right("variant_one_message", "all four in one message; autograd for each block; the other direction", '''
import torch

from course_lib.comm import Group, exchange


def ring_attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    group: Group,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    def walked(tensor: torch.Tensor) -> torch.Tensor:
        incoming = torch.empty_like(tensor)
        exchange(tensor, group.previous, incoming, group.next, group)
        return incoming

    places = torch.arange(q.shape[2])
    rows = places + group.index * len(places)
    delta = torch.einsum("bhtc,bhtc->bht", grad_out, out)
    dq = torch.zeros_like(q)
    travel = torch.stack([k, v, torch.zeros_like(k), torch.zeros_like(v)])
    for hop in range(group.size):
        source = (group.index + hop) % group.size
        seen = (places + source * len(places))[None, :] <= rows[:, None]
        if seen.any():
            keys, values, dk, dv = travel
            scores = torch.einsum("bhqc,bhkc->bhqk", q, keys) / q.shape[-1] ** 0.5
            p = (scores.masked_fill(~seen, -torch.inf) - lse.unsqueeze(-1)).exp()
            dp = torch.einsum("bhqc,bhkc->bhqk", grad_out, values)
            ds = p * (dp - delta.unsqueeze(-1)) / q.shape[-1] ** 0.5
            dq = dq + torch.einsum("bhqk,bhkc->bhqc", ds, keys)
            dk += torch.einsum("bhqk,bhqc->bhkc", ds, q)
            dv += torch.einsum("bhqk,bhqc->bhkc", p, grad_out)
        if hop < group.size - 1:
            travel = walked(travel)
    _, _, dk, dv = travel
    if group.size > 1:
        dk, dv = walked(dk), walked(dv)
    return dq, dk, dv
'''),
    Right("variant_own_part_stays_home", "gradients of the own block wait at home, so dk and dv make N-1 hops", '''
import torch

from course_lib.comm import Group, exchange


def ring_attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    group: Group,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    def passed_on(tensor: torch.Tensor) -> torch.Tensor:
        incoming = torch.empty_like(tensor)
        exchange(tensor, group.next, incoming, group.previous, group)
        return incoming

    scale = q.shape[-1] ** -0.5
    delta = (grad_out * out).sum(-1, keepdim=True)

    def part(block: torch.Tensor, own: bool) -> tuple[torch.Tensor, torch.Tensor]:
        p = (q @ block[0].mT * scale - lse[..., None]).exp()
        p = p.tril() if own else p
        ds = p * (grad_out @ block[1].mT - delta) * scale
        return ds @ block[0], torch.stack([ds.mT @ q, p.mT @ grad_out])

    block = torch.stack([k, v])
    dq, home = part(block, True)
    grads = torch.zeros_like(home)
    for hop in range(1, group.size):
        block = passed_on(block)
        if hop > 1:
            grads = passed_on(grads)
        if hop <= group.index:
            more, theirs = part(block, False)
            dq, grads = dq + more, grads + theirs
    if group.size > 1:
        home += passed_on(grads)
    return dq, *home
'''),
]
