"""Wrong and right answers to `sum_orders`: see `course dev show sum_orders`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("pairwise_keeps_a_dimension", ["of shape [1], not a scalar tensor"], '''
-        "pairwise": row[0],
+        "pairwise": row,
'''),
    Wrong("sorted_by_square", ["sort by |x|"], '''
-        "by_magnitude": forwards(x[x.abs().argsort()]),
+        "by_magnitude": forwards(x[x.square().argsort(stable=True)]),
'''),
    Wrong("adds_into_x", ["x was changed", "is a view of x"], '''
-            total = total + number
+            total += number
'''),
    Wrong("at_least_two", ["index 1 is out of bounds"], '''
-        total = numbers[0]
-        for number in numbers[1:]:
+        total = numbers[0] + numbers[1]
+        for number in numbers[2:]:
'''),
    Wrong("accumulates_in_float64", ["accumulated in a wider dtype"], '''
-        total = numbers[0]
+        total = numbers[0].double()
@@
-        return total
+        return total.to(numbers.dtype)
'''),
    Wrong("constant_eps", ["a constant", "rejects a right sum"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return 1.2e-7
'''),
    Wrong("constant_tolerance", ["a constant", "measured: 0.001"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return 1e-3
'''),
    Wrong("count_ignored", ["n is ignored"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return 8 * torch.finfo(dtype).eps
'''),
    Wrong("dtype_ignored", ["rejects a right sum of", "the dtype is ignored"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return min(1.0, n * 2.0**-52)
'''),
    Wrong("exactly_equal", ["a tolerance of 0 is `==`"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return 0.0
'''),
    Wrong("float32_for_all", ["accepts a sum in float64"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return min(1.0, n * 2.0**-8 if dtype.itemsize == 2 else n * 2.0**-23)
'''),
    Wrong("float64_too_late", ["made float64 afterwards"], '''
-        "float64": x.double().sum(),
+        "float64": x.sum().double(),
'''),
    Wrong("forwards_backwards", ["added from the end"], '''
-        "forwards": forwards(x),
+        "forwards": forwards(x.flip(0)),
'''),
    Wrong("grows_without_bound", ["it grows without bound"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return n * torch.finfo(dtype).eps
'''),
    Wrong("halves", ["left half plus right half"], '''
-    row = x
-    while len(row) > 1:
-        even = len(row) // 2 * 2
-        row = torch.cat([row[0:even:2] + row[1:even:2], row[even:]])
+    def halve(numbers):
+        middle = len(numbers) // 2
+        return halve(numbers[:middle]) + halve(numbers[middle:]) if middle else numbers[0]
@@
-        "pairwise": row[0],
+        "pairwise": halve(x),
'''),
    Wrong("integers_off_by_one", ["integers are added without error"], '''
-        return 0.0
+        return 1 / n
'''),
    Wrong("largest_first", ["largest first"], '''
-        "by_magnitude": forwards(x[x.abs().argsort()]),
+        "by_magnitude": forwards(x[x.abs().argsort(descending=True)]),
'''),
    Wrong("logarithm", ["rejects a right sum"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return min(1.0, n.bit_length() * torch.finfo(dtype).eps)
'''),
    Wrong("machine_tiny", ["rejects a right sum"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return min(1.0, n * torch.finfo(dtype).tiny)
'''),
    Wrong("odd_one_lost", ["'pairwise' of"], '''
-        row = torch.cat([row[0:even:2] + row[1:even:2], row[even:]])
+        row = torch.cat([row[0:even:2] + row[1:even:2]])
'''),
    Wrong("python_floats", ["not a scalar tensor"], '''
-        "forwards": forwards(x),
+        "forwards": sum(x.tolist()),
'''),
    Wrong("sorted_by_value", ["sorted by value"], '''
-        "by_magnitude": forwards(x[x.abs().argsort()]),
+        "by_magnitude": forwards(x[x.argsort()]),
'''),
    Wrong("square", ["accepts a sum in float64 in which 1 of"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return min(1.0, n * n * torch.finfo(dtype).eps)
'''),
    Wrong("square_root", ["errors grow like √n on average"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return min(1.0, n**0.5 * torch.finfo(dtype).eps)
'''),
    Wrong("torch_default_tolerance", ["rejects a right sum"], '''
-    return min(1.0, n * torch.finfo(dtype).eps)  # n-1 errors of eps/2, and as much again
+    return {torch.float64: 1e-7, torch.float32: 1.3e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}[dtype]
'''),
    Wrong("torch_sum", ["'forwards' of"], '''
-        "forwards": forwards(x),
+        "forwards": x.sum(),
'''),
]

RIGHT = [
    Right("variant_in_place", "adds in place, starting at zero; twice the tolerance", '''
import torch


def left_to_right(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=x.dtype)
    for i in range(x.numel()):
        total += x[i]
    return total


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    row = x.clone()
    while row.numel() > 1:
        rest = row[-1:] if row.numel() % 2 else row[:0]
        pairs = row[: row.numel() - rest.numel()].view(-1, 2)
        row = torch.cat((pairs[:, 0] + pairs[:, 1], rest))
    return {
        "forwards": left_to_right(x),
        "pairwise": row.squeeze(),
        "by_magnitude": left_to_right(x.gather(0, x.abs().sort().indices)),
        "float64": torch.sum(x, dtype=torch.float64),
    }


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    if not dtype.is_floating_point:
        return 0.0
    return min(2 * n * torch.finfo(dtype).eps, 1.0)
'''),
    Right("variant_reduce", "functools.reduce, a stack of partial sums, and the bound with its denominator", '''
from functools import reduce
from operator import add

import torch


def pairwise(terms: list[torch.Tensor]) -> torch.Tensor:
    if len(terms) == 1:
        return terms[0]
    sums = [a + b for a, b in zip(terms[0::2], terms[1::2])]
    return pairwise(sums + terms[len(terms) - len(terms) % 2 :])


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    terms = list(x)
    return {
        "forwards": reduce(add, terms),
        "pairwise": pairwise(terms),
        "by_magnitude": reduce(add, sorted(terms, key=abs)),
        "float64": reduce(add, x.to(torch.float64)),
    }


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    if dtype in (torch.int32, torch.int64):
        return 0.0
    worst = (n - 1) * torch.finfo(dtype).eps / 2
    return worst / (1 + worst)
'''),
]
