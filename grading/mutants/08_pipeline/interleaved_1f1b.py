"""Wrong and right answers to `interleaved_1f1b`: see `course dev show interleaved_1f1b`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_through_a_chunk_first", ["3B0 before 3F0 on rank 1", "a backward needs what its forward has kept"], '''
-        turn, place = divmod(k, p * v)
-        return place // p, turn * p + place % p
+        turn, place = divmod(k, m * v)
+        return place // m, place % m
'''),
    Wrong("backwards_from_the_first_chunk", ["a deadlock", "waits for"], '''
-    backwards = [f"{(v - 1 - c) * p + rank}B{k}" for c, k in where]
+    backwards = [f"{c * p + rank}B{k}" for c, k in where]
'''),
    Wrong("gpipe_in_rounds", ["holds the activations of", "in Megatron's order it is"], '''
-    warm = min(warm, m * v)
+    warm = m * v
'''),
    Wrong("last_backwards_missing", ["stage", "each micro-batch passes each stage"], '''
-    return forwards[:warm] + pairs + backwards[m * v - warm :]
+    return forwards[:warm] + pairs + backwards[m * v - warm : -1]
'''),
    Wrong("neighbours_on_a_rank", ["rank 0 runs 1F0", "but it holds another stage", "actions of stage 0 and 2"], '''
-    forwards = [f"{c * p + rank}F{k}" for c, k in where]
-    backwards = [f"{(v - 1 - c) * p + rank}B{k}" for c, k in where]
+    forwards = [f"{rank * v + c}F{k}" for c, k in where]
+    backwards = [f"{rank * v + v - 1 - c}B{k}" for c, k in where]
'''),
    Wrong("one_forward_less", ["3B0 before 3F0 on rank 1", "a backward needs what its forward has kept"], '''
-    warm = min(warm, m * v)
+    warm = max(0, min(warm, m * v) - 1)
'''),
    Wrong("one_forward_more", ["holds the activations of", "forwards (of all chunks) at once", "in Megatron's order it is"], '''
-    warm = min(warm, m * v)
+    warm = min(warm + 1, m * v)
'''),
    Wrong("same_warm_up_on_every_rank", ["takes too long", "in Megatron's order it is"], '''
-    def chunk_and_micro(k: int) -> tuple[int, int]:
-        """What the k-th forward of a rank is of."""
-        turn, place = divmod(k, p * v)
-        return place // p, turn * p + place % p
-
-    where = [chunk_and_micro(k) for k in range(m * v)]
-    forwards = [f"{c * p + rank}F{k}" for c, k in where]
-    backwards = [f"{(v - 1 - c) * p + rank}B{k}" for c, k in where]
-    warm = p - 1 - rank if v == 1 else 2 * (p - 1 - rank) + (v - 1) * p
-    warm = min(warm, m * v)
+    order = [
+        (chunk, first + k) for first in range(0, m, p) for chunk in range(v) for k in range(p)
+    ]
+    forwards = [f"{chunk * p + rank}F{micro}" for chunk, micro in order]
+    backwards = [f"{(v - 1 - chunk) * p + rank}B{micro}" for chunk, micro in order]
+    warm = min(m * v, (v - 1) * p + (0 if v > 1 else p - 1 - rank))  # the same on every rank
'''),
    Wrong("warm_up_of_1f1b", ["2B0 before 2F0 on rank 0", "a backward needs what its forward has kept"], '''
-    warm = p - 1 - rank if v == 1 else 2 * (p - 1 - rank) + (v - 1) * p
+    warm = p - 1 - rank
'''),
    Wrong("warm_up_longer_than_the_rounds", ["each micro-batch passes each stage"], '''
-    warm = min(warm, m * v)
'''),
]

RIGHT = [
    Right("variant_limit", "a forward as long as the rank may hold one more, else a backward", '''
def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    order = [
        (chunk, first + k) for first in range(0, m, p) for chunk in range(v) for k in range(p)
    ]
    limit = p - rank if v == 1 else (v - 1) * p + 2 * (p - rank) - 1
    plan: list[str] = []
    begun = ended = 0
    while ended < len(order):
        if begun < len(order) and begun - ended < limit:
            chunk, micro = order[begun]
            plan.append(f"{chunk * p + rank}F{micro}")
            begun += 1
        else:
            chunk, micro = order[ended]
            plan.append(f"{(v - 1 - chunk) * p + rank}B{micro}")
            ended += 1
    return plan
'''),
    Right("variant_shorter_warm_up", "half of Megatron's additional warm-up, enough if messages take no time", '''
def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    def chunk_and_micro(k: int) -> tuple[int, int]:
        turn, place = divmod(k, p * v)
        return place // p, turn * p + place % p

    where = [chunk_and_micro(k) for k in range(m * v)]
    forwards = [f"{c * p + rank}F{k}" for c, k in where]
    backwards = [f"{(v - 1 - c) * p + rank}B{k}" for c, k in where]
    warm = p - 1 - rank if v == 1 else (p - 1 - rank) + (v - 1) * p
    warm = min(warm, m * v)
    pairs = [word for pair in zip(forwards[warm:], backwards, strict=False) for word in pair]
    return forwards[:warm] + pairs + backwards[m * v - warm :]
'''),
]
