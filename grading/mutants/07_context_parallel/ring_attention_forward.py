"""Wrong and right answers to `ring_attention_forward`: see `course dev show ring_attention_forward`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("results_in_float32", ["out (1×2×", "has the wrong dtype"], '''
-    return out, lse
+    wide = torch.promote_types(q.dtype, torch.float32)
+    return out.to(wide), lse.to(wide)
'''),
    Wrong("many_messages", ["the number of messages", "a hop takes one message or two"], '''
-            works.append(irecv(incoming, group.previous, group))
-            works.append(isend(block, group.next, group))
+            works += [irecv(part, group.previous, group) for part in incoming.view(-1).chunk(8)]
+            works += [isend(part, group.next, group) for part in block.view(-1).chunk(8)]
'''),
    Wrong("adds_up_the_blocks", ["the outputs of the blocks are added up"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
+            out += scores.softmax(-1) @ block[1]
'''),
    Wrong("all_gather", ["an import that this exercise does not allow: course_lib.comm.all_gather"], '''
 from course_lib.comm import Group, irecv, isend
+from course_lib.comm import all_gather
@@
-    rows = torch.arange(q.shape[2])
-    future = rows[None, :] > rows[:, None]
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
-    block = torch.stack([k, v])
-    for hop in range(group.size):
-        source = (group.index - hop) % group.size
-        works = []
-        if hop < group.size - 1:
-            incoming = torch.empty_like(block)
-            works.append(irecv(incoming, group.previous, group))
-            works.append(isend(block, group.next, group))
-        if source <= group.index:
-            scores = q @ block[0].mT / q.shape[-1] ** 0.5
-            if source == group.index:
-                scores.masked_fill_(future, -torch.inf)
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
-        for work in works:
-            work.wait()
-        if works:  # mutate: same
-            block = incoming  # mutate: same
-    return out, lse
+    both = torch.stack([k, v]).contiguous()
+    whole = both.new_empty(group.size * 2, *k.shape)
+    all_gather(whole, both, group)
+    keys, values = (torch.cat(list(whole[place::2]), 2) for place in range(2))
+    places = torch.arange(keys.shape[2])
+    rows = places.chunk(group.size)[group.index]
+    scores = q @ keys.mT / q.shape[-1] ** 0.5
+    scores = scores.masked_fill(places[None, :] > rows[:, None], -torch.inf)
+    lse = scores.logsumexp(-1)
+    return (scores - lse[..., None]).exp() @ values, lse
'''),
    Wrong("averages_the_blocks", ["the outputs of the blocks are averaged"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
+            out += scores.softmax(-1) @ block[1] / (group.index + 1)
+            lse = torch.logaddexp(lse, scores.logsumexp(-1))
'''),
    Wrong("blocking_send", ["deadlock", "Everybody sends and nobody receives"], '''
 from course_lib.comm import Group, irecv, isend
+from course_lib.comm import recv, send
@@
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            works.append(irecv(incoming, group.previous, group))
-            works.append(isend(block, group.next, group))
+            send(block, group.next, group)
+            recv(incoming, group.previous, group)
+            works = [None]
@@
-        for work in works:
-            work.wait()
'''),
    Wrong("brings_the_blocks_home", ["N hops: in the last one each block returns"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-        if hop < group.size - 1:
+        if group.size > 1:
'''),
    Wrong("denominator_not_rescaled", ["the denominator is not rescaled when the maximum moves"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, total = torch.zeros_like(q), torch.zeros_like(q[..., :1])
+    most = torch.full_like(total, -torch.inf)
@@
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
+            now = torch.maximum(most, scores.amax(-1, keepdim=True))
+            weights = (scores - now).exp()
+            out = out * (most - now).exp() + weights @ block[1]
+            total = total + weights.sum(-1, keepdim=True)
+            most = now
@@
-    return out, lse
+    return out / total, (most + total.log())[..., 0]
'''),
    Wrong("float32_on_the_wire", ["it was sent as float32"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
-    block = torch.stack([k, v])
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
+    block = torch.stack([k, v]).float()
@@
-            scores = q @ block[0].mT / q.shape[-1] ** 0.5
+            scores = q @ block[0].to(q.dtype).mT / q.shape[-1] ** 0.5
@@
-            out += (scores - total[..., None]).exp() @ block[1]
+            out += (scores - total[..., None]).exp() @ block[1].to(q.dtype)
'''),
    Wrong("gathers_all_blocks", ["the peak on 4 ranks", "a block more for each rank"], '''
 from course_lib.comm import Group, irecv, isend
+from course_lib.comm import exchange
@@
-    rows = torch.arange(q.shape[2])
-    future = rows[None, :] > rows[:, None]
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
-    block = torch.stack([k, v])
-    for hop in range(group.size):
-        source = (group.index - hop) % group.size
-        works = []
-        if hop < group.size - 1:
-            incoming = torch.empty_like(block)
-            works.append(irecv(incoming, group.previous, group))
-            works.append(isend(block, group.next, group))
-        if source <= group.index:
-            scores = q @ block[0].mT / q.shape[-1] ** 0.5
-            if source == group.index:
-                scores.masked_fill_(future, -torch.inf)
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
-        for work in works:
-            work.wait()
-        if works:  # mutate: same
-            block = incoming  # mutate: same
-    return out, lse
+    blocks = [torch.stack([k, v])]
+    for _ in range(group.size - 1):
+        blocks.append(torch.empty_like(blocks[0]))
+        exchange(blocks[-2], group.next, blocks[-1], group.previous, group)
+    order = [blocks[(group.index - source) % group.size] for source in range(group.size)]
+    keys = torch.cat([block[0] for block in order], 2)
+    values = torch.cat([block[1] for block in order], 2)
+    places = torch.arange(keys.shape[2])
+    rows = places.chunk(group.size)[group.index]
+    scores = q @ keys.mT / q.shape[-1] ** 0.5
+    scores = scores.masked_fill(places[None, :] > rows[:, None], -torch.inf)
+    lse = scores.logsumexp(-1)
+    return (scores - lse[..., None]).exp() @ values, lse
'''),
    Wrong("keeps_every_block", ["the peak on 4 ranks", "a block more for each rank"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
     block = torch.stack([k, v])
+    blocks = []
@@
             incoming = torch.empty_like(block)
+            blocks.append(incoming)
'''),
    Wrong("lse_without_the_maximum", ["the maximum that was subtracted is not added again"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, total = torch.zeros_like(q), torch.zeros_like(q[..., :1])
+    most = torch.full_like(total, -torch.inf)
@@
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
+            now = torch.maximum(most, scores.amax(-1, keepdim=True))
+            weights = (scores - now).exp()
+            out = out * (most - now).exp() + weights @ block[1]
+            total = total * (most - now).exp() + weights.sum(-1, keepdim=True)
+            most = now
@@
-    return out, lse
+    return out / total, total.log()[..., 0]
'''),
    Wrong("mask_by_local_index", ["the mask was made from places in the block"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-        if source <= group.index:
+        if True:
@@
-            if source == group.index:
+            if True:
'''),
    Wrong("maximum_begins_at_zero", ["scores of several thousand", "infinity minus infinity"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, total = torch.zeros_like(q), torch.zeros_like(q[..., :1])
+    most = torch.zeros_like(total)
@@
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
+            now = torch.maximum(most, scores.amax(-1, keepdim=True))
+            weights = (scores - now).exp()
+            out = out * (most - now).exp() + weights @ block[1]
+            total = total * (most - now).exp() + weights.sum(-1, keepdim=True)
+            most = now
@@
-    return out, lse
+    return out / total, (most + total.log())[..., 0]
'''),
    Wrong("never_waits_for_its_sends", ["messages are never waited for"], '''
+SENT = []
 def ring_attention_forward(
@@
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            works.append(isend(block, group.next, group))
+            SENT.append(isend(block, group.next, group))
'''),
    Wrong("no_mask", ["no mask at all: later positions are seen"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-        if source <= group.index:
+        if True:
@@
-            if source == group.index:
-                scores.masked_fill_(future, -torch.inf)
'''),
    Wrong("no_maximum", ["scores of several thousand", "infinity minus infinity"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, total = torch.zeros_like(q), torch.zeros_like(q[..., :1])
@@
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
+            weights = scores.exp()
+            out = out + weights @ block[1]
+            total = total + weights.sum(-1, keepdim=True)
@@
-    return out, lse
+    return out / total, total.log()[..., 0]
'''),
    Wrong("one_hop_short", ["one hop is missing"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-    for hop in range(group.size):
+    for hop in range(max(1, group.size - 1)):
@@
-        if hop < group.size - 1:
+        if hop < group.size - 2:
'''),
    Wrong("own_block_unmasked", ["the diagonal block needs a mask"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            if source == group.index:
-                scores.masked_fill_(future, -torch.inf)
'''),
    Wrong("posts_all_receives", ["a block more for each rank"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
     block = torch.stack([k, v])
+    boxes = [torch.empty_like(block) for _ in range(group.size - 1)]
@@
-            incoming = torch.empty_like(block)
+            incoming = boxes[hop]
'''),
    Wrong("rank_for_index", ["the same in a group of ranks 0 and 2"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-        source = (group.index - hop) % group.size
+        source = (group.rank - hop) % group.size
@@
-        if source <= group.index:
+        if source <= group.rank:
@@
-            if source == group.index:
+            if source == group.rank:
'''),
    Wrong("received_before_it_is_used", ["two messages under way share memory"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
     block = torch.stack([k, v])
+    incoming = torch.empty_like(block)
@@
-            incoming = torch.empty_like(block)
'''),
    Wrong("receives_into_what_is_sent", ["two messages under way share memory", "use two buffers in turn"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            incoming = torch.empty_like(block)
+            incoming = block
'''),
    Wrong("returns_lse_with_a_last_dim", ["lse", "has the wrong shape"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-    return out, lse
+    return out, lse[..., None]
'''),
    Wrong("returns_out_alone", ["has the wrong form", "a tuple (out", "lse)"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-    return out, lse
+    return out
'''),
    Wrong("ring_the_other_way", ["the ring runs the other way round"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-        source = (group.index - hop) % group.size
+        source = (group.index + hop) % group.size
'''),
    Wrong("scale_forgotten", ["the scores are not divided by √C"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            scores = q @ block[0].mT / q.shape[-1] ** 0.5
+            scores = q @ block[0].mT
'''),
    Wrong("scales_q_in_place", ["the list of inputs that were changed", "'q'"], '''
     """
+    q /= q.shape[-1] ** 0.5
@@
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            scores = q @ block[0].mT / q.shape[-1] ** 0.5
+            scores = q @ block[0].mT
'''),
    Wrong("scores_of_the_whole_sequence", ["the peak on 4 ranks", "t×S or S×S"], '''
 from course_lib.comm import Group, irecv, isend
+from course_lib.comm import exchange
@@
-    rows = torch.arange(q.shape[2])
-    future = rows[None, :] > rows[:, None]
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
-    block = torch.stack([k, v])
-    for hop in range(group.size):
-        source = (group.index - hop) % group.size
-        works = []
-        if hop < group.size - 1:
-            incoming = torch.empty_like(block)
-            works.append(irecv(incoming, group.previous, group))
-            works.append(isend(block, group.next, group))
-        if source <= group.index:
-            scores = q @ block[0].mT / q.shape[-1] ** 0.5
-            if source == group.index:
-                scores.masked_fill_(future, -torch.inf)
-            total = torch.logaddexp(lse, scores.logsumexp(-1))
-            out *= (lse - total).exp()[..., None]
-            out += (scores - total[..., None]).exp() @ block[1]
-            lse = total
-        for work in works:
-            work.wait()
-        if works:  # mutate: same
-            block = incoming  # mutate: same
+    def walk(part: torch.Tensor):
+        for hop in range(group.size):
+            yield (group.index - hop) % group.size, part
+            if hop < group.size - 1:
+                incoming = torch.empty_like(part)
+                exchange(part, group.next, incoming, group.previous, group)
+                part = incoming
+
+    length = q.shape[2]
+    rows = torch.arange(length) + group.index * length
+    scores = q.new_full((*q.shape[:3], group.size * length), -torch.inf)
+    for source, keys in walk(k):
+        places = torch.arange(length) + source * length
+        future = places[None, :] > rows[:, None]
+        columns = slice(source * length, (source + 1) * length)
+        scores[..., columns] = (q @ keys.mT / q.shape[-1] ** 0.5).masked_fill_(future, -torch.inf)
+    lse = scores.logsumexp(-1)
+    weights = scores.sub_(lse[..., None]).exp_().split(length, -1)
+    out = torch.zeros_like(q)
+    for source, values in walk(v):
+        out += weights[source] @ values
'''),
    Wrong("stops_when_it_needs_no_more", ["deadlock", "which has finished"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
         source = (group.index - hop) % group.size
+        if source > group.index:
+            break
'''),
    Wrong("straight_to_everybody", ["messages leave the ring"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
-    block = torch.stack([k, v])
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
+    own = torch.stack([k, v])
@@
-        works = []
-        if hop < group.size - 1:
-            incoming = torch.empty_like(block)
-            works.append(irecv(incoming, group.previous, group))
-            works.append(isend(block, group.next, group))
+        block = torch.empty_like(own) if hop else own
+        if hop:
+            receiving = irecv(block, source, group)
+            isend(own, (group.index + hop) % group.size, group).wait()
+            receiving.wait()
@@
-        for work in works:
-            work.wait()
-        if works:  # mutate: same
-            block = incoming  # mutate: same
'''),
    Wrong("values_of_another_hop", ["out", "has the wrong value"], '''
-    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
+    out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -torch.inf)
@@
-            scores = q @ block[0].mT / q.shape[-1] ** 0.5
+            keys = block[0]
+            for work in works:
+                work.wait()
+            block = incoming if works else block
+            works = []
+            scores = q @ keys.mT / q.shape[-1] ** 0.5
@@
-        for work in works:
-            work.wait()
@@
         if works:  # mutate: same
+            for work in works:
+                work.wait()
'''),
]

RIGHT = [
    Right("variant_maximum_and_sum", "the other direction; maximum and sum kept apart, divided at the end", '''
import torch

from course_lib.comm import Group, exchange


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(q.shape[2])
    rows = places + group.index * len(places)
    most = q.new_full((*q.shape[:3], 1), -torch.inf)
    total, out = torch.zeros_like(most), torch.zeros_like(q)
    keys, values = k, v
    for hop in range(group.size):
        source = (group.index + hop) % group.size
        columns = places + source * len(places)
        if columns[0] <= rows[-1]:
            scores = torch.einsum("bhqc,bhkc->bhqk", q, keys) * q.shape[-1] ** -0.5
            scores = scores.masked_fill(columns[None, :] > rows[:, None], -torch.inf)
            now = torch.maximum(most, scores.amax(-1, keepdim=True))
            weights = (scores - now).exp()
            out = out * (most - now).exp() + weights @ values
            total = total * (most - now).exp() + weights.sum(-1, keepdim=True)
            most = now
        if hop < group.size - 1:
            incoming = torch.empty_like(keys)
            exchange(keys, group.previous, incoming, group.next, group)
            keys, incoming = incoming, torch.empty_like(values)
            exchange(values, group.previous, incoming, group.next, group)
            values = incoming
    return out / total, (most + total.log()).squeeze(-1)
'''),
    Right("variant_merges_results", "results of blocks are merged; blocking messages, one rank receives first", '''
import torch

from course_lib.comm import Group, recv, send


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse, block = None, None, torch.stack([k, v])
    for hop in range(group.size):
        if hop:
            incoming = torch.empty_like(block)
            if group.index == 0:
                recv(incoming, group.previous, group)
                send(block, group.next, group)
            else:
                send(block, group.next, group)
                recv(incoming, group.previous, group)
            block = incoming
        if hop > group.index:
            continue
        scores = q @ block[0].transpose(-1, -2) / q.shape[-1] ** 0.5
        if hop == 0:
            scores = scores + torch.full_like(scores[0, 0], -torch.inf).triu(1)
        part, weight = scores.softmax(-1) @ block[1], scores.logsumexp(-1)
        if out is None:
            out, lse = part, weight
        else:
            out = out - torch.sigmoid(weight - lse)[..., None] * (out - part)
            lse = lse - torch.nn.functional.logsigmoid(lse - weight)
    return out, lse
'''),
    Right("variant_two_buffers", "two buffers for the whole walk; k and v in messages of their own; the hop last", '''
import torch

from course_lib.comm import Group, irecv, isend


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    def hop_on(full: list[torch.Tensor], empty: list[torch.Tensor]) -> None:
        works = [irecv(box, group.previous, group) for box in empty]
        works += [isend(thing, group.next, group) for thing in full]
        for work in works:
            work.wait()

    length, scale = q.shape[2], q.shape[-1] ** -0.5
    full, empty = [k.clone(), v.clone()], [torch.empty_like(k), torch.empty_like(v)]
    sums, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -torch.inf)
    for source in [(group.index - hop) % group.size for hop in range(group.size)]:
        seen = torch.ones(length, length, dtype=torch.bool)
        if source == group.index:
            seen = seen.tril()
        if source <= group.index:
            scores = torch.where(seen, (q * scale) @ full[0].mT, -torch.inf)
            now = torch.logaddexp(lse, torch.logsumexp(scores, -1))
            sums = sums * (lse - now).exp().unsqueeze(-1)
            sums = sums + (scores - now.unsqueeze(-1)).exp() @ full[1]
            lse = now
        if source != (group.index + 1) % group.size:
            hop_on(full, empty)
            full, empty = empty, full
    return sums, lse
'''),
]
