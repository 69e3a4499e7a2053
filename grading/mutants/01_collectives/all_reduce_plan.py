"""Wrong and right answers to `all_reduce_plan`: see `course dev show all_reduce_plan`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("sums_sent_too_early", ["is replaced, and receives another message"], '''
-            if room and done.issuperset(needs[message]):
+            if room:
'''),
    Wrong("added_on_the_way_down", ["how often rank"], '''
-        downs = {b: (a, b, chunk, 0) for b, a in tree.items()}
+        downs = {b: (a, b, chunk, 1) for b, a in tree.items()}
'''),
    Wrong("links_that_are_not_there", ["there is no link from"], '''
-                if speeds[a][b] and b not in away
+                if b not in away
@@
-        return 10 * (load[a, b] + 1) * (whole // speeds[a][b])
+        return 10 * (load[a, b] + 1) * (whole // (speeds[a][b] or 1000))
@@
-            total += latency + max(count * size / speeds[a][b] for (a, b), count in sent.items())
+            total += latency + max(count * size for count in sent.values())
@@
-        slowest = min(speeds[a][b] for tree in trees for a, b in tree.items())
+        slowest = 1
@@
-            room = sent[a, b] + 1 <= time * speeds[a][b] * (1 + 1e-9)
+            room = sent[a, b] + 1 <= time * 1000
'''),
    Wrong("only_reduced", ["how often rank"], '''
-    return min(found, key=time)
+    return [[m for m in messages if m[3]] for messages in min(found, key=time)]
'''),
    Wrong("replaced_on_the_way_up", ["is replaced, and receives another message"], '''
-    return min(found, key=time)
+    return [[(a, b, c, 0) for a, b, c, _ in messages] for messages in min(found, key=time)]
'''),
    Wrong("chunks_from_one", ["there is no chunk"], '''
-    return min(found, key=time)
+    return [[(a, b, c + 1, add) for a, b, c, add in messages] for messages in min(found, key=time)]
'''),
]

RIGHT = [
    Right("trivial", "all chunks up one tree to rank 0, step by step, and down again", '''
def all_reduce_plan(speeds, chunks, size, latency):
    parent, steps = {}, [[0]]
    while steps[-1]:
        steps.append([])
        for a in steps[-2]:
            for b, speed in enumerate(speeds[a]):
                if speed and b and b not in parent:
                    parent[b] = a
                    steps[-1].append(b)
    steps = steps[1:-1]
    up = [[(b, parent[b], c, 1) for b in step for c in range(chunks)] for step in reversed(steps)]
    return up + [[(parent[b], b, c, 0) for b in step for c in range(chunks)] for step in steps]
'''),
    Right("chunk_after_chunk", "the same tree, one chunk in a round more", '''
def all_reduce_plan(speeds, chunks, size, latency):
    parent, order = {}, [0]
    for a in order:
        for b, speed in enumerate(speeds[a]):
            if speed and b and b not in parent:
                parent[b] = a
                order.append(b)
    rounds = []
    for chunk in range(chunks):
        for b in reversed(order[1:]):
            rounds.append([[b, parent[b], chunk, 1]])
        for b in order[1:]:
            rounds.append([[parent[b], b, chunk, 0]])
    return rounds
'''),
]
