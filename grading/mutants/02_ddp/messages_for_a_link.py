"""Wrong and right answers to `messages_for_a_link`: see `course dev show messages_for_a_link`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("a_piece_lost", ["number of bytes sent for layer"], '''
-                left[layer] -= size
+                left[layer] = 0
'''),
    Wrong("copied_for_moved", ["number of bytes sent for layer"], '''
-    return best
+    return [*best, best[0]]
'''),
    Wrong("empty_messages", ["is empty"], '''
-    return best
+    return [*best, []]
'''),
    Wrong("pieces_of_no_bytes", ["a piece of 0 bytes"], '''
-    return best
+    return [[*message, (0, 0)] for message in best]
'''),
    Wrong("bytes_in_fractions", ["whole numbers"], '''
-    return best
+    return [[(layer, size / 2) for layer, size in message for _ in range(2)] for message in best]
'''),
    Wrong("bytes_first", ["there is no layer", "as (layer, bytes)"], '''
-    return best
+    return [[(size, layer) for layer, size in message] for message in best]
'''),
    Wrong("generator", ["not a list of messages"], '''
-    return best
+    return (message for message in best)
'''),
    Wrong("no_seed", ["two ranks that get the same case have different plans"], '''
-    return best
+    import random
+    return random.sample(best, len(best))
'''),
    Wrong("layers_from_one", ["there is no layer"], '''
-    return best
+    return [[(layer + 1, size) for layer, size in message] for message in best]
'''),
]

RIGHT = [
    Right("trivial", "a message for each layer, as it becomes ready", '''
def messages_for_a_link(ready, forward, sizes, latency, rate):
    return [[(layer, sizes[layer])] for layer in reversed(range(len(sizes)))]
'''),
    Right("one_message", "when backward has ended", '''
def messages_for_a_link(ready, forward, sizes, latency, rate):
    return [list(enumerate(sizes))]
'''),
]
