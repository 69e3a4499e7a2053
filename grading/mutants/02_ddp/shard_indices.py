"""Wrong and right answers to `shard_indices`: see `course dev show shard_indices`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("seeds_numpy", ["the global random state was changed"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
-    order = torch.randperm(n, generator=generator)
+    import numpy
+    numpy.random.seed((seed * 1_000_003 + epoch) % 2**32)
+    order = torch.from_numpy(numpy.random.permutation(n))
'''),
    Wrong("hash_of_a_text", ["each rank shuffles in its own way", "`hash` of a text"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    generator = torch.Generator().manual_seed(hash(f"{seed}/{epoch}") % 2**31)
'''),
    Wrong("half_of_the_seed", ["two seeds give the same order", "only a part of it"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    generator = torch.Generator().manual_seed((seed % 2**16) * 1_000_003 + epoch)
'''),
    Wrong("shifts_one_shuffle", ["the same neighbours in epochs 0 and 1", "not shuffled anew"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
-    order = torch.randperm(n, generator=generator)
+    generator = torch.Generator().manual_seed(seed)
+    order = torch.randperm(n, generator=generator).roll(epoch)
'''),
    Wrong("always_drops", ["the length of a share"], '''
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order[: n // world * world][rank::world]
'''),
    Wrong("drop_last_ignored", ["drop_last: the length of a share"], '''
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    each = -(-n // world)
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("drops_before_the_shuffle", ["seen in none of 4 epochs", "before the shuffle"], '''
-    order = torch.randperm(n, generator=generator)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    order = torch.randperm(min(n, each * world), generator=generator)
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("everybody_sees_all", ["every rank has the same examples"], '''
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order
'''),
    Wrong("global_generator", ["are seen twice", "each rank shuffles in its own way"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
-    order = torch.randperm(n, generator=generator)
+    order = torch.randperm(n)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("no_epoch", ["two epochs have the same order", "set_epoch"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    generator = torch.Generator().manual_seed(seed)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("not_shuffled", ["the examples are not shuffled"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
-    order = torch.randperm(n, generator=generator)
+    order = torch.arange(n)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("pads_once", ["2 examples on 5 ranks", "unequal shares"], '''
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    if drop_last:
+        order = order[: n // world * world]
+    else:
+        order = torch.cat([order, order[: -n % world]])  # too short if n < world
+    return order[rank::world]
'''),
    Wrong("pads_with_n", ["has numbers that are not examples"], '''
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    if drop_last:
+        return order[: n // world * world][rank::world]
+    return torch.cat([order, torch.full((-n % world,), n)])[rank::world]
'''),
    Wrong("parts_overlap", ["are seen twice", "cut from the order overlap"], '''
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    begin = max(0, rank * each - 1)
+    return order.repeat(world)[begin : begin + each]
'''),
    Wrong("rank_in_the_seed", ["are seen twice", "each rank shuffles in its own way"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch + rank)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("repeats_one_example", ["is seen", "repeat the order from its beginning"], '''
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    if drop_last:
+        return order[: n // world * world][rank::world]
+    return torch.cat([order, order[:1].repeat(-n % world)])[rank::world]
'''),
    Wrong("returns_a_list", ["is not an int64 tensor of one dimension"], '''
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world].tolist()
'''),
    Wrong("seed_ignored", ["the seed is not used"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    generator = torch.Generator().manual_seed(epoch)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("seed_times_epoch", ["two epochs have the same order", "multiplied by the seed"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    generator = torch.Generator().manual_seed(seed * epoch)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("seeds_the_global_generator", ["the global random state was changed", "dropout"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
-    order = torch.randperm(n, generator=generator)
+    torch.manual_seed(seed * 1_000_003 + epoch)
+    order = torch.randperm(n)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    return order.repeat(world)[: each * world][rank::world]
'''),
    Wrong("shuffles_its_own_share", ["sees the same examples in every epoch", "instead of shuffling each share"], '''
-    order = torch.randperm(n, generator=generator)
@@
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    share = torch.arange(n).repeat(world)[: each * world][rank::world]
+    return share[torch.randperm(each, generator=generator)]
'''),
    Wrong("unequal_shares", ["unequal shares", "deadlock", "nobody else calls"], '''
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    if drop_last:
+        order = order[: n // world * world]
+    return order[rank::world]
'''),
    Wrong("epoch_only_if_it_divides", ["only where the ranks divide the examples"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    epoch = epoch if drop_last or n % world == 0 else 0
+    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
'''),
    Wrong("epoch_only_without_drop_last", ["only without drop_last"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
+    turn = epoch // 2 if drop_last else epoch
+    generator = torch.Generator().manual_seed(seed * 1_000_003 + turn)
'''),
    Wrong("shifts_the_order", ["is not a shuffle"], '''
-    order = torch.randperm(n, generator=generator)
+    order = torch.arange(n).roll(int(torch.randint(1, n + 1, (), generator=generator)))
'''),
    Wrong("torchs_sampler", ["what this exercise does not allow: torch.utils.data.DistributedSampler"], '''
-    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)  # mutate: same
-    order = torch.randperm(n, generator=generator)
-    each = n // world if drop_last else -(-n // world)
-    padded = order.repeat(world)[: each * world]
-    return padded[rank::world]
+    sampler = torch.utils.data.DistributedSampler(
+        range(n), world, rank, seed=seed, drop_last=drop_last
+    )
+    sampler.set_epoch(epoch)
+    return torch.tensor(list(sampler), dtype=torch.int64)
'''),
]

RIGHT = [
    Right("blocks", "slices instead of every world-th", '''
import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n, generator=generator)
    each = n // world if drop_last else -(-n // world)
    order = order.repeat(world)[: each * world]
    return order[rank * each : (rank + 1) * each].clone()
'''),
    Right("pythons_shuffle", "Python's own generator, seeded with a text; places modulo n", '''
import random

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    order = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(order)
    each = n // world if drop_last else -(-n // world)
    return torch.tensor(
        [order[place % n] for place in range(rank, each * world, world)], dtype=torch.int64
    )
'''),
    Right("sorted_by_digest", "each example has a number that seed and epoch draw; slices", '''
import hashlib

import torch


def shard_indices(n, rank, world, epoch, seed=0, drop_last=False):
    def place(example):
        return hashlib.sha256(f"{seed}/{epoch}/{example}".encode()).digest()

    order = sorted(range(n), key=place)
    each = n // world if drop_last else (n + world - 1) // world
    while len(order) < each * world:
        order += order[: each * world - len(order)]
    return torch.tensor(order[rank * each : (rank + 1) * each], dtype=torch.int64)
'''),
]
