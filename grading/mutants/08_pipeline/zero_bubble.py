"""Wrong and right answers to `zero_bubble`: see `course dev show zero_bubble`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_w_at_the_end", ["holds the activations of", "rank 0 runs its first W after", "later"], '''
     """
+    lag = m
@@
-        if k >= rank:
-            plan.append(f"{rank}W{k - rank}")
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+        if k >= lag:
+            plan.append(f"{rank}W{k - lag}")
+    return plan + [f"{rank}W{k}" for k in range(max(m - lag, 0), m)]
'''),
    Wrong("alone_with_one", ["p = 1, m = 1"], '''
     warm = min(m, p - 1 - rank)
+    if p == m == 1:
+        return ["0F0", "0I0"]
'''),
    Wrong("few_micro_batches", ["micro-batch", "p = 4"], '''
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+    return plan + [f"{rank}W{k}" for k in range(m - rank, m)]
'''),
    Wrong("lag_upside_down", ["takes too long", "rank 0 runs its first W after"], '''
     """
+    lag = p - 1 - rank
@@
-        if k >= rank:
-            plan.append(f"{rank}W{k - rank}")
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+        if k >= lag:
+            plan.append(f"{rank}W{k - lag}")
+    return plan + [f"{rank}W{k}" for k in range(max(m - lag, 0), m)]
'''),
    Wrong("last_w_missing", ["stage 1 runs FI for micro-batch"], '''
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+    return plan
'''),
    Wrong("one_forward_more", ["holds the activations of 3 micro-batches at once", "1F1B runs 2"], '''
-    warm = min(m, p - 1 - rank)
+    warm = min(m, p - rank)
'''),
    Wrong("w_before_i", ["before", "a W what its I has"], '''
-        plan.append(f"{rank}I{k}")
@@
             plan.append(f"{rank}W{k - rank}")
+        plan.append(f"{rank}I{k}")
'''),
    Wrong("w_one_earlier", ["takes too long", "earlier than necessary"], '''
     """
+    lag = max(0, rank - 1)
@@
-        if k >= rank:
-            plan.append(f"{rank}W{k - rank}")
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+        if k >= lag:
+            plan.append(f"{rank}W{k - lag}")
+    return plan + [f"{rank}W{k}" for k in range(max(m - lag, 0), m)]
'''),
    Wrong("w_one_later", ["holds the activations of", "later than necessary"], '''
     """
+    lag = rank + 1
@@
-        if k >= rank:
-            plan.append(f"{rank}W{k - rank}")
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+        if k >= lag:
+            plan.append(f"{rank}W{k - lag}")
+    return plan + [f"{rank}W{k}" for k in range(max(m - lag, 0), m)]
'''),
    Wrong("w_right_after_i", ["takes too long", "rank 1 runs its first W after 1 of its Is", "earlier"], '''
     """
+    lag = 0
@@
-        if k >= rank:
-            plan.append(f"{rank}W{k - rank}")
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+        if k >= lag:
+            plan.append(f"{rank}W{k - lag}")
+    return plan + [f"{rank}W{k}" for k in range(max(m - lag, 0), m)]
'''),
    Wrong("whole_backward", ["there is no B here", "F"], '''
-        plan.append(f"{rank}I{k}")
-        if k >= rank:
-            plan.append(f"{rank}W{k - rank}")
-    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
+        plan.append(f"{rank}B{k}")
+    return plan
'''),
]

RIGHT = [
    Right("variant_limit", "whatever is possible on a rank: a forward within the limit, then I, then W if p are held", '''
def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    plan: list[str] = []
    forwards = inputs = weights = 0
    while weights < m:
        if forwards < m and forwards - inputs < p - rank:
            plan.append(f"{rank}F{forwards}")
            forwards += 1
        elif inputs < m:
            plan.append(f"{rank}I{inputs}")
            inputs += 1
            if inputs - weights > rank:
                plan.append(f"{rank}W{weights}")
                weights += 1
        else:
            plan.append(f"{rank}W{weights}")
            weights += 1
    return plan
'''),
]
