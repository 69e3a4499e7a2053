"""Wrong and right answers to `balanced_documents`: see `course dev show balanced_documents`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("time_alone", ["the number of tokens is too large"], '''
-        free = [rank for rank in range(ranks) if tokens[rank] + share.tokens <= most]
+        free = list(range(ranks))
@@
-                if 0 < time < times[slow] - times[other] and -own <= tokens <= room:
+                if 0 < time < times[slow] - times[other]:
'''),
    Wrong("ends_included", ["is in no piece"], '''
-        spans = [(bounds[at], bounds[at + 1]) for at in (place, 2 * parts - 1 - place)]
+        spans = [(bounds[at], bounds[at + 1] - 1) for at in (place, 2 * parts - 1 - place)]
'''),
    Wrong("one_token_over", ["is in two pieces"], '''
-        spans = [(bounds[at], bounds[at + 1]) for at in (place, 2 * parts - 1 - place)]
+        spans = [(max(bounds[at] - 1, 0), bounds[at + 1])
+                 for at in (place, 2 * parts - 1 - place)]
'''),
    Wrong("start_and_count", ["has no tokens from"], '''
-    return [[piece for share in held for piece in share.pieces] for held in best]
+    return [[(d, start, end - start) for share in held for d, start, end in share.pieces]
+            for held in best]
'''),
    Wrong("a_list_for_each_document", ["not a list of (document, start, end) for each rank"], '''
-    return [[piece for share in held for piece in share.pieces] for held in best]
+    whole = [piece for held in best for share in held for piece in share.pieces]
+    return [[piece for piece in whole if piece[0] == d] for d in range(len(lengths))]
'''),
]

RIGHT = [
    Right("trivial", "the row in equal parts, one after the other", '''
def balanced_documents(lengths, ranks, most, key):
    held, total = [], sum(lengths)
    for rank in range(ranks):
        first, last, begin, mine = total * rank // ranks, total * (rank + 1) // ranks, 0, []
        for document, length in enumerate(lengths):
            start, end = max(first - begin, 0), min(last - begin, length)
            if start < end:
                mine.append((document, start, end))
            begin += length
        held.append(mine)
    return held
'''),
    Right("each_in_zigzag", "every document over all ranks; lists, not tuples", '''
def balanced_documents(lengths, ranks, most, key):
    held = [[] for _ in range(ranks)]
    for document, length in enumerate(lengths):
        bounds = [length * place // (2 * ranks) for place in range(2 * ranks + 1)]
        for place in range(2 * ranks):
            if bounds[place] < bounds[place + 1]:
                rank = min(place, 2 * ranks - 1 - place)
                held[rank].append([document, bounds[place], bounds[place + 1]])
    return held
'''),
]
