"""Wrong and right answers to `tp_rng`: see `course dev show tp_rng`."""

from course_lib.grade.author.answers import Right, Wrong

SAME = ["world_size_for_size"]  # a stride between seeds; any that is as large as the group will do

WRONG = [
    Wrong("neighbouring_seeds", ["two seeds, of which one is larger by 1", "further apart"], '''
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
-        seeds["sharded"] = seeds["replicated"] + 1 + group.index
+        seeds = {"replicated": seed, "sharded": seed + 1 + group.index}
'''),
    Wrong("beyond_32_bits", ["of which one is larger by 2^19", "modulo 2^32"], '''
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
+        seeds = {"replicated": seed << 16}
'''),
    Wrong("sharded_far_away", ["two seeds, of which one is larger by 1", "further apart"], '''
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
-        seeds["sharded"] = seeds["replicated"] + 1 + group.index
+        seeds = {"replicated": seed, "sharded": seed + 2718 + group.index}
''', "Megatron-LM's way: seed and index are added up, so seed 1 on index 0 is seed 0 on index 1"),
    Wrong("streams_of_the_class", ["also by another RegionRng"], '''
-        self.states = {
+        type(self).states = {
'''),
    Wrong("some_numbers_ahead", ["sharded and replicated draw the same"], '''
         }
+        ahead = torch.Generator().manual_seed(seeds["replicated"])
+        torch.rand(1000 * (group.index + 1), generator=ahead)
+        self.states["sharded"] = ahead.get_state()
'''),
    Wrong("by_the_size", ["at the same index of another group (2 ranks)"], '''
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
+        seeds = {"replicated": seed * (group.size + 1)}
'''),
    Wrong("broadcasts_the_seed", ["the list of calls"], '''
 from course_lib.comm import Group
+from course_lib.comm import broadcast
@@
     def __init__(self, seed: int, group: Group) -> None:
+        shared = torch.tensor([seed])
+        broadcast(shared, 0, group)
'''),
    Wrong("different_everywhere", ["what two replicated regions draw"], '''
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
+        seeds = {"replicated": seed * (group.size + 1) + 7 * group.index}
'''),
    Wrong("from_the_outside_state", ["what two replicated regions draw"], '''
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
+        seeds = {"replicated": torch.initial_seed()}
'''),
    Wrong("global_rank", ["at the same index of another group"], '''
-        seeds["sharded"] = seeds["replicated"] + 1 + group.index
+        seeds["sharded"] = seeds["replicated"] + 1 + group.rank
'''),
    Wrong("index_0_shares_with_replicated", ["sharded and replicated draw the same", "on index 0 too"], '''
-        seeds["sharded"] = seeds["replicated"] + 1 + group.index
+        seeds["sharded"] = seeds["replicated"] + group.index
'''),
    Wrong("manual_seed", ["`torch.manual_seed` seeds the default generator"], '''
-            kind: torch.Generator().manual_seed(own).get_state() for kind, own in seeds.items()
+            kind: torch.manual_seed(own).get_state() for kind, own in seeds.items()
'''),
    Wrong("neighbours_streams", ["draws the numbers that rank 0 draws"], '''
         seeds["sharded"] = seeds["replicated"] + 1 + group.index
+        seeds["sharded"] = seeds["replicated"] + 1
@@
         }
+        for _ in range(group.index):
+            with self.region("sharded"):
+                torch.rand(4, 6, dtype=torch.float64)
'''),
    Wrong("no_finally", ["an exception skips what follows the `yield`"], '''
-        try:
-            yield
-        finally:
-            self.states[kind] = torch.get_rng_state()
-            torch.set_rng_state(outside)
+        yield
+        self.states[kind] = torch.get_rng_state()
+        torch.set_rng_state(outside)
'''),
    Wrong("one_stream", ["replicated"], '''
-        torch.set_rng_state(self.states[kind])
+        torch.set_rng_state(self.states["sharded"])
@@
-            self.states[kind] = torch.get_rng_state()
+            self.states["sharded"] = torch.get_rng_state()
'''),
    Wrong("outside_from_the_beginning", ["not the one from just before the region"], '''
     def __init__(self, seed: int, group: Group) -> None:
+        self.outside = torch.get_rng_state()
@@
-        outside = torch.get_rng_state()
+        outside = self.outside
'''),
    Wrong("outside_not_put_back", ["is not put back after the region"], '''
-            torch.set_rng_state(outside)
'''),
    Wrong("restarts", ["the stream starts over in each region"], '''
-            self.states[kind] = torch.get_rng_state()
'''),
    Wrong("same_everywhere", ["a sharded region draws the numbers that rank 0 draws"], '''
-        seeds["sharded"] = seeds["replicated"] + 1 + group.index
+        seeds["sharded"] = seeds["replicated"] + 1
'''),
    Wrong("seed_ignored", ["another seed gives the same"], '''
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
+        seeds = {"replicated": 1234}
'''),
    Wrong("stream_kept_without_exception_only", ["the stream started over after an exception"], '''
             yield
+            self.states[kind] = torch.get_rng_state()
@@
-            self.states[kind] = torch.get_rng_state()
'''),
    Wrong("swallows_the_exception", ["the number of exceptions"], '''
-        finally:
-            self.states[kind] = torch.get_rng_state()
-            torch.set_rng_state(outside)
+        except FloatingPointError:
+            pass
+        self.states[kind] = torch.get_rng_state()
+        torch.set_rng_state(outside)
'''),
    Wrong("time_as_seed", ["what two replicated regions draw"], '''
 from course_lib.comm import Group
+import time
@@
-        seeds = {"replicated": seed * 4096}  # more than a group has ranks
+        seeds = {"replicated": time.time_ns() % 2**40}
'''),
]

RIGHT = [
    Right("variant_fork_rng", "torch.random.fork_rng, and generators kept as objects", '''
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm import Group


class RegionRng:
    def __init__(self, seed: int, group: Group) -> None:
        self.streams = {"replicated": torch.Generator(), "sharded": torch.Generator()}
        self.streams["replicated"].manual_seed(seed)
        self.streams["sharded"].manual_seed((1 + group.index << 20) + seed)

    @contextmanager
    def region(self, kind: str) -> Iterator[None]:
        stream = self.streams[kind]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(stream.get_state())
            try:
                yield
            finally:
                stream.set_state(torch.get_rng_state())
'''),
    Right("variant_seeded_on_entry", "a class with __enter__; the default generator is seeded and put back", '''
from contextlib import AbstractContextManager
from typing import Any

import torch

from course_lib.comm import Group


class Region(AbstractContextManager):
    def __init__(self, rng: "RegionRng", kind: str) -> None:
        self.rng, self.kind = rng, kind

    def __enter__(self) -> None:
        self.outside = torch.get_rng_state()
        if self.kind in self.rng.states:
            torch.set_rng_state(self.rng.states[self.kind])
        else:
            torch.manual_seed(self.rng.seeds[self.kind])

    def __exit__(self, *error: Any) -> None:
        self.rng.states[self.kind] = torch.get_rng_state()
        torch.set_rng_state(self.outside)


class RegionRng:
    def __init__(self, seed: int, group: Group) -> None:
        self.seeds = {"replicated": 2 * seed + 1, "sharded": (2 * seed + 1) << (1 + group.index)}
        self.states: dict[str, torch.Tensor] = {}

    def region(self, kind: str) -> Region:
        return Region(self, kind)
'''),
]
