"""Wrong and right answers to `tensor_parallel_attention`: see `course dev show tensor_parallel_attention`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("mask_of_the_first_call", ["attn_mask=self.mask"], '''
-        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
+        if not hasattr(self, "mask"):
+            self.mask = torch.ones(x_BTD.shape[1], x_BTD.shape[1], dtype=torch.bool).tril()
+        own_BHTC = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True)
'''),
    Wrong("mask_cut_out_of_the_first", ["attn_mask=mask"], '''
-        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
+        tokens = x_BTD.shape[1]
+        if not hasattr(self, "mask"):
+            self.mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
+        mask = self.mask[:tokens, :tokens]
+        own_BHTC = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
'''),
    Wrong("rank_modulo_size", ["`query`", "(H=8, K=4, N=2)"], '''
-        own, piece = group.index, group.index * pieces // group.size
+        own = group.rank % group.size
+        piece = own * pieces // group.size
'''),
    Wrong("freezes_the_whole", ["needs no gradient any more"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
+        query, key, value = qkv.weight.requires_grad_(False).split(rows)
'''),
    Wrong("keeps_the_whole", ["the whole `qkv.weight`", "is still alive"], '''
         query, key, value = qkv.weight.split(rows)  # mutate: same
+        self.whole = query, key, value
'''),
    Wrong("sums_with_gradients_alone", ["the output in evaluation"], '''
-        return reduce_from_group(part_BTD, self.group)
+        return reduce_from_group(part_BTD, self.group) if torch.is_grad_enabled() else part_BTD
'''),
    Wrong("causal_in_training", ["the causal mask is missing"], '''
-        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
+        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=self.training, enable_gqa=True)
'''),
    Wrong("f_for_each_projection", ["three all-reduces: apply f to x once"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        x_BTD = copy_to_group(x_BTD, self.group)  # mutate: same
@@
-            F.linear(x_BTD, weight).unflatten(2, (-1, self.width)).transpose(1, 2)
+            F.linear(copy_to_group(x_BTD, self.group), weight).unflatten(2, (-1, self.width)).transpose(1, 2)
'''),
    Wrong("first_kv_head_everywhere", ["the first KV head on all ranks"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index if kv_heads >= group.size else 0
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
'''),
    Wrong("fused_cut_contiguously", ["the fused weight was cut contiguously"], '''
-        rows = [count * self.width for count in (heads, kv_heads, kv_heads)]
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        own = qkv.weight.detach().chunk(group.size)[group.index]
+        counts = [heads // group.size] + [max(1, kv_heads // group.size)] * 2
+        query, key, value = own.split([count * self.width for count in counts])
+        self.query = nn.Parameter(query.clone())
+        self.key = nn.Parameter(key.clone())
+        self.value = nn.Parameter(value.clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
'''),
    Wrong("global_rank_for_index", ["exception", "IndexError"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.rank * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.rank].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.rank].clone())
'''),
    Wrong("heads_summed_not_weights", ["the way through shared keys and values counts once for each sharer"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        if self.sharers is not None:
-            key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
@@
         )
+        if self.sharers is not None:
+            k, v = copy_to_group(k, self.sharers), copy_to_group(v, self.sharers)
         own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
'''),
    Wrong("keeps_the_modules", ["the list of the module's parameters"], '''
-        self.group, self.sharers = group, sharers  # mutate: same
+        self.group, self.sharers, self.qkv = group, sharers, qkv
@@
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
'''),
    Wrong("kv_heads_in_turns", ["query heads take the KV heads in turns"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
+        turns = q.shape[1] // k.shape[1]
+        k, v = k.repeat(1, turns, 1, 1), v.repeat(1, turns, 1, 1)
+        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
'''),
    Wrong("mean_over_sharers", ["the mean over the sharers"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
             key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
+            for weight in (key, value):
+                if weight.requires_grad:
+                    weight.register_hook(lambda grad: grad / self.sharers.size)
'''),
    Wrong("no_causal_mask", ["the causal mask is missing: a token sees later ones"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
+        own_BHTC = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
'''),
    Wrong("no_f", ["this rank's summand: the backward of f sums over the ranks"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        x_BTD = copy_to_group(x_BTD, self.group)  # mutate: same
'''),
    Wrong("no_g", ["this rank's heads alone: add up the parts of all ranks"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        return reduce_from_group(part_BTD, self.group)
+        return part_BTD
'''),
    Wrong("one_sharer_sums", ["deadlock", "all_reduce"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        if self.sharers is not None:
+        if self.sharers is not None and self.sharers.index == 0:
'''),
    Wrong("output_cut_by_rows", ["`output` is cut along dim 1"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size)
+        self.output = nn.Parameter(columns[group.index].clone())
'''),
    Wrong("output_whole", ["all of it: each rank keeps its own heads"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        self.columns = slice(group.index * heads // group.size * self.width, (group.index + 1) * heads // group.size * self.width)
+        self.output = nn.Parameter(output.weight.detach().clone())
@@
-        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output)
+        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output[:, self.columns])
'''),
    Wrong("scaled_by_full_width", ["scaled by the full width H·C"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
+        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True, scale=(self.width * len(self.query) // self.width * self.group.size) ** -0.5)
'''),
    Wrong("shared_gradients_not_summed", ["this rank's own summand", "sum it over the ranks that share the head"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-        if self.sharers is not None:
-            key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
'''),
    Wrong("summed_over_all_ranks", ["summed over all ranks", "not only over those that share"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
@@
-            key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
+            key, value = copy_to_group(key, self.group), copy_to_group(value, self.group)
'''),
    Wrong("sums_the_grad_itself", ["the first backward's gradients were summed over the sharers again"], '''
 from course_lib.comm import Group, copy_to_group, reduce_from_group
+from course_lib.comm import all_reduce
@@
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
+        if sharers is not None:
+            for weight in (self.key, self.value):
+                weight.register_post_accumulate_grad_hook(self.reduce)
+
+    def reduce(self, weight: torch.Tensor) -> None:
+        all_reduce(weight.grad, self.sharers)
@@
-        if self.sharers is not None:
-            key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
'''),
    Wrong("views_keep_the_whole", ["a view keeps the whole weight alive"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index * pieces // group.size
+        self.query = nn.Parameter(query.chunk(group.size)[group.index])
+        self.key = nn.Parameter(key.chunk(pieces)[piece])
+        self.value = nn.Parameter(value.chunk(pieces)[piece])
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index])
'''),
    Wrong("wrong_kv_head", ["the wrong KV head", "not r % K"], '''
-        query, key, value = qkv.weight.split(rows)  # mutate: same
-        size, pieces = group.size, min(kv_heads, group.size)
-        own, piece = group.index, group.index * pieces // group.size
-        self.query, self.key, self.value, self.output = (
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (
-                query.chunk(size)[own],
-                key.chunk(pieces)[piece],
-                value.chunk(pieces)[piece],
-                output.weight.chunk(size, 1)[own],
-            )
-        )
+        query, key, value = qkv.weight.detach().split(rows)
+        pieces = min(kv_heads, group.size)
+        piece = group.index % pieces
+        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
+        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
+        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
+        columns = output.weight.detach().chunk(group.size, 1)
+        self.output = nn.Parameter(columns[group.index].clone())
'''),
]

RIGHT = [
    Right("variant_by_hand", "heads by index, scores and mask by hand, a function for f and g", '''
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group
from course_lib.comm import copy_to_group, reduce_from_group


class TensorParallelAttention(nn.Module):
    """This rank's heads of an attention.

    Args:
        qkv: the whole projection to queries, keys and values; the same on every rank.
        output: the whole projection of the heads; the same on every rank.
        heads: H.
        kv_heads: K.
        group: the N ranks.
        sharers: the N/K ranks that have this rank's key-value head; None if K ≥ N. Making a group
            needs all ranks of the job, so it is made outside and handed in.

    Attributes:
        query: [H/N·C, D].
        key: [max(1, K/N)·C, D].
        value: [max(1, K/N)·C, D].
        output: [D, H/N·C].
    """

    def __init__(
        self,
        qkv: nn.Linear,
        output: nn.Linear,
        heads: int,
        kv_heads: int,
        group: Group,
        sharers: Group | None = None,
    ) -> None:
        super().__init__()
        self.group, self.sharers = group, sharers
        self.width = qkv.out_features // (heads + 2 * kv_heads)
        cut = qkv.weight.detach().unflatten(0, (-1, self.width))
        query, key, value = cut[:heads], cut[heads : heads + kv_heads], cut[heads + kv_heads :]
        each, few = heads // group.size, max(1, kv_heads // group.size)
        first = group.index * kv_heads // group.size
        self.query = nn.Parameter(query[group.index * each :][:each].flatten(0, 1).clone())
        self.key = nn.Parameter(key[first : first + few].flatten(0, 1).clone())
        self.value = nn.Parameter(value[first : first + few].flatten(0, 1).clone())
        columns = output.weight.detach().chunk(group.size, 1)
        self.output = nn.Parameter(columns[group.index].clone())

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D], the same on every rank, to the same."""
        x_BTD = copy_to_group(x_BTD, self.group)
        key, value = self.key, self.value
        if self.sharers is not None:
            key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
        q, k, v = (
            F.linear(x_BTD, weight).unflatten(2, (-1, self.width)).transpose(1, 2)
            for weight in (self.query, key, value)
        )
        each = q.shape[1] // k.shape[1]
        scores = q @ k.repeat_interleave(each, 1).mT / self.width**0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        own_BHTC = weights @ v.repeat_interleave(each, 1)
        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output)
        return reduce_from_group(part_BTD, self.group)
'''),
    Right("variant_hooks", "the shared gradients are summed by hooks on the weights, before they are added", '''
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.comm import copy_to_group, reduce_from_group


class TensorParallelAttention(nn.Module):
    """This rank's heads of an attention.

    Args:
        qkv: the whole projection to queries, keys and values; the same on every rank.
        output: the whole projection of the heads; the same on every rank.
        heads: H.
        kv_heads: K.
        group: the N ranks.
        sharers: the N/K ranks that have this rank's key-value head; None if K ≥ N. Making a group
            needs all ranks of the job, so it is made outside and handed in.

    Attributes:
        query: [H/N·C, D].
        key: [max(1, K/N)·C, D].
        value: [max(1, K/N)·C, D].
        output: [D, H/N·C].
    """

    def __init__(
        self,
        qkv: nn.Linear,
        output: nn.Linear,
        heads: int,
        kv_heads: int,
        group: Group,
        sharers: Group | None = None,
    ) -> None:
        super().__init__()
        self.group, self.sharers = group, sharers
        self.width = qkv.out_features // (heads + 2 * kv_heads)
        rows = [count * self.width for count in (heads, kv_heads, kv_heads)]
        query, key, value = qkv.weight.detach().split(rows)
        pieces = min(kv_heads, group.size)
        piece = group.index * pieces // group.size
        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
        columns = output.weight.detach().chunk(group.size, 1)
        self.output = nn.Parameter(columns[group.index].clone())
        if sharers is not None:
            self.key.register_hook(self.summed)
            self.value.register_hook(self.summed)

    def summed(self, grad: torch.Tensor) -> torch.Tensor:
        """The sum over the sharers."""
        total = grad.clone()
        all_reduce(total, self.sharers)
        return total

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D], the same on every rank, to the same."""
        x_BTD = copy_to_group(x_BTD, self.group)
        key, value = self.key, self.value
        q, k, v = (
            F.linear(x_BTD, weight).unflatten(2, (-1, self.width)).transpose(1, 2)
            for weight in (self.query, key, value)
        )
        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output)
        return reduce_from_group(part_BTD, self.group)
'''),
    Right("variant_one_projection", "one product for q, k and v; one all-reduce for both shared weights", '''
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group
from course_lib.comm import copy_to_group, reduce_from_group


class TensorParallelAttention(nn.Module):
    """This rank's heads of an attention.

    Args:
        qkv: the whole projection to queries, keys and values; the same on every rank.
        output: the whole projection of the heads; the same on every rank.
        heads: H.
        kv_heads: K.
        group: the N ranks.
        sharers: the N/K ranks that have this rank's key-value head; None if K ≥ N. Making a group
            needs all ranks of the job, so it is made outside and handed in.

    Attributes:
        query: [H/N·C, D].
        key: [max(1, K/N)·C, D].
        value: [max(1, K/N)·C, D].
        output: [D, H/N·C].
    """

    def __init__(
        self,
        qkv: nn.Linear,
        output: nn.Linear,
        heads: int,
        kv_heads: int,
        group: Group,
        sharers: Group | None = None,
    ) -> None:
        super().__init__()
        self.group, self.sharers = group, sharers
        self.width = qkv.out_features // (heads + 2 * kv_heads)
        rows = [count * self.width for count in (heads, kv_heads, kv_heads)]
        query, key, value = qkv.weight.detach().split(rows)
        pieces = min(kv_heads, group.size)
        piece = group.index * pieces // group.size
        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
        columns = output.weight.detach().chunk(group.size, 1)
        self.output = nn.Parameter(columns[group.index].clone())

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D], the same on every rank, to the same."""
        x_BTD = copy_to_group(x_BTD, self.group)
        key, value = self.key, self.value
        if self.sharers is not None:
            key, value = copy_to_group(torch.cat([key, value]), self.sharers).chunk(2)
        q, k, v = (
            part.unflatten(2, (-1, self.width)).transpose(1, 2)
            for part in F.linear(x_BTD, torch.cat([self.query, key, value])).split(
                [len(self.query), len(key), len(value)], 2
            )
        )
        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output)
        return reduce_from_group(part_BTD, self.group)
'''),
]
