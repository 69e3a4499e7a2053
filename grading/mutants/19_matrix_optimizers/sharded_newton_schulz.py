"""Wrong and right answers to `sharded_newton_schulz`: `course dev show sharded_newton_schulz`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("first_gram_ahead", ["the collectives of 0 steps", "that no step needs"], '''
-    for _ in range(steps):
-        gram = x @ x.T
-        all_reduce(gram, group)
+    gram = x @ x.T
+    all_reduce(gram, group)
+    for step in range(steps):
+        if step:
+            gram = x @ x.T
+            all_reduce(gram, group)
'''),
    Wrong("wider_gram_matrices", ["for a part in torch.float32"], '''
-        gram = x @ x.T
+        gram = (x @ x.T).double()
         all_reduce(gram, group)
+        gram = gram.to(x.dtype)
'''),
    Wrong("wider_norm", ["for a part in torch.float32"], '''
-    square = x.square().sum()
+    square = x.double().square().sum()
     all_reduce(square, group)
+    square = square.to(x.dtype)
'''),
    Wrong("no_steps_are_five", ["the part of a matrix"], '''
-    a, b, c = COEFFICIENTS
+    a, b, c = COEFFICIENTS
+    steps = steps or 5
'''),
    Wrong("each_part_alone", ["Newton-Schulz ran on this part alone"], '''
-    all_reduce(square, group)
@@
-        all_reduce(gram, group)
'''),
    Wrong("gram_not_reduced", ["the Gram matrices were not summed"], '''
-        all_reduce(gram, group)
'''),
    Wrong("mean_of_grams", ["this is the mean of the Gram matrices"], '''
-        all_reduce(gram, group)
+        all_reduce(gram, group, "avg")
'''),
    Wrong("own_norm", ["the norm is that of this part alone"], '''
-    all_reduce(square, group)
'''),
    Wrong("not_divided", ["the matrix was not divided by its norm"], '''
-    x = x / square.sqrt().clamp(min=1e-7)
'''),
    Wrong("rows_as_columns", ["the part of a matrix"], '''
-    x = part.T if dim == 0 else part
+    x = part
@@
-    return x.T if dim == 0 else x
+    return x
'''),
    Wrong("gathered", ["the collectives of"], '''
-    x = part.T if dim == 0 else part
+    from course_lib.comm import all_gather
+    from course_lib.parallel import newton_schulz
+    count = torch.tensor([part.shape[dim]])
+    counts = torch.empty(group.size, dtype=count.dtype)
+    all_gather(counts, count, group)
+    own = part.movedim(dim, 0)
+    room = own.new_zeros(int(counts.max()), own.shape[1])
+    room[: len(own)] = own
+    rooms = room.new_empty(group.size, *room.shape)
+    all_gather(rooms, room, group)
+    parts = [r[:n] for r, n in zip(rooms, counts.tolist())]
+    made = newton_schulz(torch.cat(parts).movedim(0, dim), steps)
+    if group.size:
+        return made.split(counts.tolist(), dim)[group.index]
+    x = part.T if dim == 0 else part
'''),
    Wrong("least_square", ["not the least square of it"], '''
-    x = x / square.sqrt().clamp(min=1e-7)
+    x = x / square.clamp(min=1e-7).sqrt()
'''),
    Wrong("added_floor", ["it is the least that the norm can be"], '''
-    x = x / square.sqrt().clamp(min=1e-7)
+    x = x / (square.sqrt() + 1e-7)
'''),
    Wrong("sum_of_norms", ["sum their squares"], '''
-    square = x.square().sum()
+    square = x.norm()
@@
-    x = x / square.sqrt().clamp(min=1e-7)
+    x = x / square.clamp(min=1e-7)
'''),
    Wrong("divides_in_place", ["the part that was given has changed"], '''
-    x = x / square.sqrt().clamp(min=1e-7)
+    x /= square.sqrt().clamp(min=1e-7)
'''),
    Wrong("no_floor", ["NaN"], '''
-    x = x / square.sqrt().clamp(min=1e-7)
+    x = x / square.sqrt()
'''),
]

RIGHT = [
    Right("variant_from_the_right", "rows are multiplied from the right, without a transpose", '''
import torch

from course_lib.comm import all_reduce


def sharded_newton_schulz(part, dim, group, steps=5):
    squares = (part * part).sum().reshape(1)
    all_reduce(squares, group)
    x = part / max(squares.item() ** 0.5, 1e-7)
    for _ in range(steps):
        gram = x.mT @ x if dim == 0 else x @ x.mT
        all_reduce(gram, group)
        inner = -4.7750 * gram + 2.0315 * (gram @ gram)
        x = 3.4445 * x + (x @ inner if dim == 0 else inner @ x)
    return x
'''),
]
