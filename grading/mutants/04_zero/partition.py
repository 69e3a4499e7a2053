"""Wrong and right answers to `partition`: see `course dev show partition`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("one_tensor_is_the_shard", ["a shard is a view of an input tensor"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
+    if parts == len(tensors) == 1:
+        return [tensors[0].detach().reshape(-1)]
+    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
'''),
    Wrong("scalars_are_never_tied", ["a tied weight is in the row once"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
+    whole = [tensor if tensor.dim() else tensor.view(1) for tensor in tensors]
+    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(whole)])
'''),
    Wrong("tied_by_memory", ["the sizes of the shards"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
+    places = {tensor.data_ptr(): tensor for tensor in reversed(tensors)}
+    unique = [t for t in dict.fromkeys(tensors) if places[t.data_ptr()] is t]
+    flat = torch.cat([tensor.detach().reshape(-1) for tensor in unique])
'''),
    Wrong("tied_by_values", ["the sizes of the shards"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
+    unique: list[torch.Tensor] = []
+    for tensor in tensors:
+        if not any(tensor.shape == old.shape and tensor.equal(old) for old in unique):
+            unique.append(tensor)
+    flat = torch.cat([tensor.detach().reshape(-1) for tensor in unique])
'''),
    Wrong("dealt_out_elements", ["elements are dealt out one by one"], '''
-    return [shard.clone() for shard in shards]
+    return [shards.view(-1)[i::parts].clone() for i in range(parts)]
'''),
    Wrong("float32", ["has the wrong dtype"], '''
-    shards = flat.new_zeros(parts, size)
+    shards = torch.zeros(parts, size)
'''),
    Wrong("garbage_padding", ["the padding repeats a value", "the padding is in the norm"], '''
-    shards = flat.new_zeros(parts, size)
+    shards = flat[-1:].expand(parts * size).clone().view(parts, size)
'''),
    Wrong("keeps_the_graph", ["a shard needs a gradient"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
+    flat = torch.cat([tensor.reshape(-1) for tensor in dict.fromkeys(tensors)])
@@
-    shards.view(-1)[: flat.numel()] = flat
+    shards = torch.cat([flat, flat.new_zeros(parts * size - flat.numel())]).view(parts, size)
'''),
    Wrong("memory_order", ["in the order of memory"], '''
+def row_of(tensor: torch.Tensor) -> torch.Tensor:
+    tensor = tensor.detach()
+    return torch.as_strided(tensor, (tensor.numel(),), (1,))
 def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
@@
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
+    flat = torch.cat([row_of(tensor) for tensor in dict.fromkeys(tensors)])
@@
-    shards = flat.new_zeros(parts, size)
-    shards.view(-1)[: flat.numel()] = flat
-    return [shard.clone() for shard in shards]
+    padded = torch.cat([flat, flat.new_zeros(parts * size - flat.numel())])
+    return [shard.clone() for shard in padded.view(parts, size)]
@@
-    pairs = zip(unique, parts, strict=True)  # mutate: same
-    found = {old: part.view(old.shape) for old, part in pairs}
+    found = {old: part.view(old.shape) for old, part in zip(unique, parts, strict=True)}
'''),
    Wrong("padded_one_by_one", ["each tensor is padded on its own"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
-    size = -(-flat.numel() // parts)
-    shards = flat.new_zeros(parts, size)
-    shards.view(-1)[: flat.numel()] = flat
-    return [shard.clone() for shard in shards]
+    rows: list[list[torch.Tensor]] = [[] for _ in range(parts)]
+    for tensor in dict.fromkeys(tensors):
+        size = -(-tensor.numel() // parts)
+        padded = tensor.new_zeros(parts * size)
+        padded[: tensor.numel()] = tensor.detach().reshape(-1)
+        for row, piece in zip(rows, padded.view(parts, size), strict=True):
+            row.append(piece)
+    return [torch.cat(row).detach() for row in rows]
@@
-    unique = list(dict.fromkeys(like))
-    counts = [tensor.numel() for tensor in unique]
-    parts = torch.cat(list(shards))[: sum(counts)].split(counts)
-    pairs = zip(unique, parts, strict=True)  # mutate: same
-    found = {old: part.view(old.shape) for old, part in pairs}
+    found = {}
+    at = 0
+    for tensor in dict.fromkeys(like):
+        size = -(-tensor.numel() // len(shards))
+        whole = torch.cat([shard[at : at + size] for shard in shards])
+        found[tensor] = whole[: tensor.numel()].view(tensor.shape)
+        at += size
'''),
    Wrong("padding_first", ["the zeros are at the beginning"], '''
-    shards.view(-1)[: flat.numel()] = flat
+    shards.view(-1)[parts * size - flat.numel() :] = flat
'''),
    Wrong("restores_flat", ["what is restored[0] has the wrong shape"], '''
-    found = {old: part.view(old.shape) for old, part in pairs}
+    found = {old: part for old, part in pairs}
'''),
    Wrong("restores_the_templates", ["all zeros: the values must come from the shards"], '''
-    return [found[tensor] for tensor in like]
+    return [tensor.detach() for tensor in like]
'''),
    Wrong("restores_two_of_a_tie", ["a tied weight is restored as two tensors"], '''
-    return [found[tensor] for tensor in like]
+    return [found[tensor].clone() for tensor in like]
'''),
    Wrong("restores_without_ties", ["a tied weight"], '''
-    unique = list(dict.fromkeys(like))
+    unique = list(like)
'''),
    Wrong("round_robin", ["whole tensors were dealt out"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
-    size = -(-flat.numel() // parts)
-    shards = flat.new_zeros(parts, size)
-    shards.view(-1)[: flat.numel()] = flat
-    return [shard.clone() for shard in shards]
+    hands: list[list[torch.Tensor]] = [[] for _ in range(parts)]
+    for number, tensor in enumerate(dict.fromkeys(tensors)):
+        hands[number % parts].append(tensor.detach().reshape(-1))
+    empty = tensors[0].detach().new_zeros(0)
+    return [torch.cat([empty, *hand]) for hand in hands]
@@
-    unique = list(dict.fromkeys(like))
-    counts = [tensor.numel() for tensor in unique]
-    parts = torch.cat(list(shards))[: sum(counts)].split(counts)
-    pairs = zip(unique, parts, strict=True)  # mutate: same
-    found = {old: part.view(old.shape) for old, part in pairs}
+    found = {}
+    at = [0] * len(shards)
+    for number, tensor in enumerate(dict.fromkeys(like)):
+        hand = number % len(shards)
+        part = shards[hand][at[hand] : at[hand] + tensor.numel()]
+        found[tensor] = part.view(tensor.shape)
+        at[hand] += tensor.numel()
'''),
    Wrong("rounded_down", ["elements were lost"], '''
-    size = -(-flat.numel() // parts)
+    size = flat.numel() // parts
@@
-    shards.view(-1)[: flat.numel()] = flat
+    shards.view(-1)[:] = flat[: parts * size]
'''),
    Wrong("tensor_split", ["the last shard is shorter: pad"], '''
-    size = -(-flat.numel() // parts)
-    shards = flat.new_zeros(parts, size)
-    shards.view(-1)[: flat.numel()] = flat
-    return [shard.clone() for shard in shards]
+    return [shard.clone() for shard in flat.tensor_split(parts)]
'''),
    Wrong("tied_twice", ["a tied weight is in the row twice"], '''
-    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
+    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
'''),
    Wrong("views", ["a view keeps the whole row alive"], '''
-    return [shard.clone() for shard in shards]
+    return list(shards)
'''),
]

RIGHT = [
    Right("variant_pad", "torch.nn.functional.pad and tuples, running offsets", '''
from collections.abc import Sequence

import torch
import torch.nn.functional as F


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    with torch.no_grad():
        seen: list[torch.Tensor] = []
        for tensor in tensors:
            if not any(tensor is other for other in seen):
                seen.append(tensor)
        row = torch.cat([tensor.contiguous().view(-1) for tensor in seen])
        row = F.pad(row, (0, -row.numel() % parts))
        return [shard.clone() for shard in row.split(row.numel() // parts)]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    row = torch.cat(tuple(shards))
    begins: dict[int, int] = {}
    at = 0
    result: list[torch.Tensor] = []
    for tensor in like:
        if id(tensor) in begins:
            result.append(result[begins[id(tensor)]])
            continue
        begins[id(tensor)] = len(result)
        result.append(row[at : at + tensor.numel()].reshape(tensor.shape).clone())
        at += tensor.numel()
    return result
'''),
    Right("variant_pieces", "no row at all; each shard is filled piece by piece", '''
from collections.abc import Iterator, Sequence

import torch


def pieces(tensors: Sequence[torch.Tensor], size: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Tensor, its first element, shard, the place in that, count."""
    at, seen = 0, set()
    for number, tensor in enumerate(tensors):
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        done = 0
        while done < tensor.numel():
            shard, place = divmod(at, size)
            count = min(tensor.numel() - done, size - place)
            yield number, done, shard, place, count
            at, done = at + count, done + count


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    total = sum({id(t): t.numel() for t in tensors}.values())
    size = (total + parts - 1) // parts
    shards = [torch.zeros(size, dtype=tensors[0].dtype) for _ in range(parts)]
    for number, first, shard, place, count in pieces(tensors, size):
        row = tensors[number].detach().flatten()
        shards[shard][place : place + count] = row[first : first + count]
    return shards


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    made = {id(t): torch.zeros(t.shape, dtype=shards[0].dtype) for t in like}
    for number, first, shard, place, count in pieces(like, shards[0].numel()):
        row = made[id(like[number])].view(-1)
        row[first : first + count] = shards[shard][place : place + count]
    return [made[id(t)] for t in like]
'''),
    Right("variant_vector", "torch.nn.utils.parameters_to_vector and narrow", '''
from collections.abc import Sequence

import torch
from torch.nn.utils import parameters_to_vector


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    unique = list({id(tensor): tensor for tensor in tensors}.values())
    row = parameters_to_vector([tensor.detach().contiguous() for tensor in unique])
    missing = (parts - row.numel() % parts) % parts
    row = torch.cat([row, torch.zeros(missing, dtype=row.dtype)])
    size = row.numel() // parts
    return [row.narrow(0, rank * size, size).clone() for rank in range(parts)]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    row = torch.cat(list(shards))
    new: dict[torch.Tensor, torch.Tensor] = {}
    for tensor in like:
        if tensor not in new:
            count = tensor.numel()
            new[tensor], row = row[:count].reshape(tensor.shape), row[count:]
    return [new[tensor] for tensor in like]
'''),
]
