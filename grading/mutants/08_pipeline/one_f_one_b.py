"""Wrong and right answers to `one_f_one_b`: see `course dev show one_f_one_b`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("backward_before_forward", ["before", "a backward needs what its forward has kept"], '''
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
+        plan += [f"{rank}B{k}", f"{rank}F{warm + k}"]
'''),
    Wrong("alone_with_one", ["p = 1, m = 1"], '''
+    if p == m == 1:
+        return ["0F0"]
     warm = min(m, p - 1 - rank)
'''),
    Wrong("backward_first_in_a_pair", ["takes too long", "lets the ranks behind it wait"], '''
-    warm = min(m, p - 1 - rank)
+    warm = min(m, p - rank)  # enough, but the last two ranks share it
+    warm = max(1, warm - 1)
@@
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
+        plan += [f"{rank}B{k}", f"{rank}F{warm + k}"]
'''),
    Wrong("counts_from_one", ["there is no micro-batch 3", "0 to 2"], '''
-    plan = [f"{rank}F{k}" for k in range(warm)]
-    for k in range(m - warm):
+    plan = [f"{rank}F{k}" for k in range(1, warm + 1)]
+    for k in range(1, m - warm + 1):
@@
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+    return plan + [f"{rank}B{k}" for k in range(m - warm + 1, m + 1)]
'''),
    Wrong("few_micro_batches_forgotten", ["p = 2", "but there is no micro-batch 1", "the same with fewer micro-batches"], '''
-    warm = min(m, p - 1 - rank)
+    warm = p - rank  # with the first pair's forward
@@
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
+        plan += [f"{rank}B{k}", f"{rank}F{warm + k}"]
'''),
    Wrong("gpipe_under_a_new_name", ["holds the activations of", "this is GPipe"], '''
-    warm = min(m, p - 1 - rank)
-    plan = [f"{rank}F{k}" for k in range(warm)]
-    for k in range(m - warm):
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+    return [f"{rank}{kind}{k}" for kind in "FB" for k in range(m)]
'''),
    Wrong("last_in_first_out", ["takes too long", "its backwards in a different order from its forwards"], '''
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+    return plan + [f"{rank}B{k}" for k in reversed(range(m - warm, m))]
'''),
    Wrong("last_micro_batch_missing", ["stage 0 runs only F for micro-batch", "each micro-batch goes through each stage"], '''
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+    return plan + [f"{rank}B{k}" for k in range(m - warm, m - 1)]
'''),
    Wrong("no_backwards_at_the_end", ["stage 0 runs only F for micro-batch 2", "each micro-batch goes through each stage"], '''
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+    return plan
'''),
    Wrong("no_stage_in_the_text", ["which is no action", "the letter is F"], '''
-    plan = [f"{rank}F{k}" for k in range(warm)]
+    plan = [f"F{k}" for k in range(warm)]
@@
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+        plan += [f"F{warm + k}", f"B{k}"]
+    return plan + [f"B{k}" for k in range(m - warm, m)]
'''),
    Wrong("no_warm_up", ["takes too long", "rank 0 runs 1 forwards before its first backward"], '''
-    warm = min(m, p - 1 - rank)
-    plan = [f"{rank}F{k}" for k in range(warm)]
-    for k in range(m - warm):
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+    return [f"{rank}{kind}{k}" for k in range(m) for kind in "FB"]
'''),
    Wrong("one_text", ["returns no list of texts"], '''
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+    return " ".join(plan + [f"{rank}B{k}" for k in range(m - warm, m)])
'''),
    Wrong("other_stage", ["rank 0 runs 1F0", "but it holds another stage"], '''
-    plan = [f"{rank}F{k}" for k in range(warm)]
+    plan = [f"{p - 1 - rank}F{k}" for k in range(warm)]
@@
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
-    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
+        plan += [f"{p - 1 - rank}F{warm + k}", f"{p - 1 - rank}B{k}"]
+    return plan + [f"{p - 1 - rank}B{k}" for k in range(m - warm, m)]
'''),
    Wrong("two_and_two", ["takes too long", "after it", "alternate a forward and a backward"], '''
-    warm = min(m, p - 1 - rank)
+    warm = min(m, p - rank)
+    step = 1 if rank == p - 1 else 2  # backwards, and then as many forwards
@@
-    for k in range(m - warm):
-        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
+    for first in range(0, m - warm, step):
+        some = range(first, min(first + step, m - warm))
+        plan += [f"{rank}B{k}" for k in some] + [f"{rank}F{warm + k}" for k in some]
'''),
    Wrong("warm_up_one_less", ["takes too long", "lets the ranks behind it wait"], '''
-    warm = min(m, p - 1 - rank)
+    warm = min(m, max(0, p - 2 - rank))
'''),
    Wrong("warm_up_one_more", ["rank 0 holds the activations of 3 micro-batches", "holds more than it must"], '''
-    warm = min(m, p - 1 - rank)
+    warm = min(m, p - rank)
'''),
    Wrong("warm_up_upside_down", ["a deadlock: rank 0's 0B0 waits for 1B0 of rank 1; rank 1's 1F1 waits for 0F1 of rank 0"], '''
-    warm = min(m, p - 1 - rank)
+    warm = min(m, rank)  # the last rank the most
'''),
]

RIGHT = [
    Right("variant_counters", "two counters: a forward as long as the limit allows it, else a backward", '''
def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    plan: list[str] = []
    begun = ended = 0
    while ended < m:
        if begun < m and begun - ended < p - rank:
            plan.append(f"{rank}F{begun}")
            begun += 1
        else:
            plan.append(f"{rank}B{ended}")
            ended += 1
    return plan
'''),
    Right("variant_other_numbers", "the micro-batches go through in reverse order", '''
def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    forwards = [f"{rank}F{k}" for k in reversed(range(m))]
    backwards = [f"{rank}B{k}" for k in reversed(range(m))]
    warm = min(m, p - 1 - rank)
    pairs = [word for pair in zip(forwards[warm:], backwards, strict=False) for word in pair]
    return forwards[:warm] + pairs + backwards[m - warm :]
'''),
    Right("variant_pairs_begin_with_the_backward", "the first pair's forward counts to the warm-up; then a backward, a forward", '''
def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}B{k}", f"{rank}F{warm + k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
'''),
]
