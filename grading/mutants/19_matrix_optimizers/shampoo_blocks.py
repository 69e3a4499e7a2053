"""Wrong and right answers to `shampoo_blocks`: see `course dev show shampoo_blocks`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("power_of_one_half", ["the power is -1/2"], '''
-    return (vectors * values**-0.25) @ vectors.T
+    return (vectors * values**-0.5) @ vectors.T
'''),
    Wrong("wrong_in_float32", ["the update in float32"], '''
+    if matrix.dtype == torch.float32:
+        matrix = matrix.round()
     values, vectors = torch.linalg.eigh(matrix)
'''),
    Wrong("elements_to_the_power", ["the power -1/4 of each element"], '''
-    return (vectors * values**-0.25) @ vectors.T
+    return matrix.abs() ** -0.25
'''),
    Wrong("last_step_alone", ["sum them over the steps"], '''
-            left += part @ part.T
-            right += part.T @ part
+            left = part @ part.T + 1e-3 * torch.eye(len(part)).double()
+            right = part.T @ part + 1e-3 * torch.eye(part.shape[1]).double()
'''),
    Wrong("used_before_added", ["were used before this step's gradient was added"], '''
-            left += part @ part.T
-            right += part.T @ part
             made = inverse_root(left) @ part @ inverse_root(right)
+            left += part @ part.T
+            right += part.T @ part
'''),
    Wrong("no_right_side", ["R is missing"], '''
-            made = inverse_root(left) @ part @ inverse_root(right)
+            made = inverse_root(left) @ part
'''),
    Wrong("not_cut", ["the matrix was not cut"], '''
         self.group = group
+        block = max(shape)
'''),
    Wrong("all_state_everywhere", ["more than L and R of its own blocks"], '''
-            for sides in self.blocks[group.index :: group.size]
-        ]
+            for sides in self.blocks[group.index :: group.size]
+        ]
+        self.others = [torch.eye(r.stop - r.start, dtype=dtype) for r, _ in self.blocks]
'''),
    Wrong("reduced_not_gathered", ["an all-reduce of whole matrices"], '''
-        rows = gradient.new_empty(size, self.room)
-        all_gather(rows, mine, self.group)
+        from course_lib.comm import all_reduce
+        rows = gradient.new_zeros(size, self.room)
+        rows[index] = mine
+        all_reduce(rows, self.group)
'''),
    Wrong("no_epsilon", ["L and R do not begin as ε·1"], '''
-            [epsilon * torch.eye(side.stop - side.start, dtype=dtype) for side in sides]
+            [1e-12 * torch.eye(side.stop - side.start, dtype=dtype) for side in sides]
'''),
    Wrong("state_in_float64", ["the number of bytes kept between steps"], '''
-            [epsilon * torch.eye(side.stop - side.start, dtype=dtype) for side in sides]
+            [epsilon * torch.eye(side.stop - side.start).double() for side in sides]
@@
-            made = inverse_root(left) @ part @ inverse_root(right)
+            made = (inverse_root(left) @ part.double() @ inverse_root(right)).to(part)
'''),
    Wrong("large_eigenvalues_only", ["the root of a small matrix"], '''
-    return (vectors * values**-0.25) @ vectors.T
+    return (vectors * values.clamp(min=1e-6) ** -0.25) @ vectors.T
'''),
]

RIGHT = [
    Right("variant_uneven", "an all-to-all of uneven parts in place of padding", '''
import torch

from course_lib.comm import all_to_all


def inverse_root(matrix):
    u, s, _ = torch.linalg.svd(matrix)
    return u @ torch.diag(s.sqrt().sqrt().reciprocal()) @ u.T


class ShampooBlocks:
    def __init__(self, shape, block, group, epsilon=1e-6, dtype=torch.float64):
        self.group, self.shape, self.block = group, shape, block
        places = [(a, b) for a in range(0, shape[0], block) for b in range(0, shape[1], block)]
        self.places = {i: places[i :: group.size] for i in range(group.size)}
        self.kept = {}
        for place in self.places[group.index]:
            rows, columns = self._cut(torch.empty(shape, device="meta"), place).shape
            sides = [torch.eye(rows, dtype=dtype), torch.eye(columns, dtype=dtype)]
            self.kept[place] = [epsilon * side for side in sides]

    def _cut(self, matrix, place):
        a, b = place
        return matrix[a : a + self.block, b : b + self.block]

    @torch.no_grad()
    def update(self, gradient):
        n, me = self.group.size, self.group.index
        done = [gradient.new_empty(0)]
        for place in self.places[me]:
            g = self._cut(gradient, place)
            left, right = self.kept[place]
            left.addmm_(g, g.T)
            right.addmm_(g.T, g)
            done.append((inverse_root(left) @ g @ inverse_root(right)).reshape(-1))
        mine = torch.cat(done)
        sizes = [
            sum(self._cut(gradient, place).numel() for place in self.places[i]) for i in range(n)
        ]
        every = gradient.new_empty(sum(sizes))
        all_to_all(every, mine.repeat(n), self.group, sizes, [len(mine)] * n)
        result = gradient.clone()
        at = 0
        for i in range(n):
            for place in self.places[i]:
                target = self._cut(result, place)
                target.copy_(every[at : at + target.numel()].view_as(target))
                at += target.numel()
        return result
'''),
]
