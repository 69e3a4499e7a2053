"""Wrong and right answers to `recompute_under_parallelism`: see `course dev show recompute_under_parallelism`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("asks_for_everything", ["what agreed_count sends"], '''
-    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) <= budget)
+    held = torch.tensor([k * kept + sum(whole[k:]) - budget for k in range(n + 1)])
+    all_reduce(held, group, "max")
+    enough = (k for k in range(n + 1) if held[k] <= 0)
@@
-    all_reduce(count, group, "max")
'''),
    Wrong("budget_not_reached", ["a budget that is just enough is enough"], '''
-    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) <= budget)
+    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) < budget)
'''),
    Wrong("decides_alone", ["the rank's own need", "deadlock", "Ranks that recompute different blocks"], '''
-    all_reduce(count, group, "max")
'''),
    Wrong("gradient_summed", ["the backward of a sum sends its gradient"], '''
         """
+        ctx.group = group
@@
-        return grads[0], None, None, None
+        total = grads[0].clone()
+        all_reduce(total, ctx.group)
+        return total, None, None, None
'''),
    Wrong("kept_without_graph", ["A different number of tensors was saved", "recomputation: 3"], '''
-        return block(x, lambda part: Sum.apply(part, sums, first, group))
+        if first:
+            return block(x, lambda part: Sum.apply(part, sums, first, group))
+        return block(x, lambda part: sums.popleft())
'''),
    Wrong("last_blocks", ["the first blocks are recomputed"], '''
-    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) <= budget)
+    enough = (k for k in range(n + 1) if k * kept + sum(whole[: n - k]) <= budget)
'''),
    Wrong("least_need", ["this is the least need of the ranks"], '''
-    all_reduce(count, group, "max")
+    all_reduce(count, group, "min")
'''),
    Wrong("need_of_rank_0", ["this is the need of rank 0"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import broadcast
@@
-    all_reduce(count, group, "max")
+    broadcast(count, 0, group)
'''),
    Wrong("never_refuses", ["recomputing all of them is not enough for rank 1"], '''
-    count = torch.tensor(next(enough, n + 1), device=group.device)
+    count = torch.tensor(next(enough, n), device=group.device)
'''),
    Wrong("never_released", ["what was kept is never released"], '''
+ALL: list[deque[torch.Tensor]] = []
 Add = Callable[[torch.Tensor], torch.Tensor]
@@
     sums: deque[torch.Tensor] = deque()
+    ALL.append(sums)
'''),
    Wrong("nothing_recomputed", ["nothing is recomputed", "more than each block"], '''
-    return checkpoint(run, x, use_reentrant=False)
+    return run(x)
'''),
    Wrong("raises_alone", ["deadlock", "one that already knows that nothing is enough"], '''
     count = torch.tensor(next(enough, n + 1), device=group.device)
+    if count > n:
+        raise MemoryError(f"too little memory to recompute {n} blocks")
'''),
    Wrong("raises_alone_after", ["the rank goes on", "but rank 1 cannot"], '''
-    count = torch.tensor(next(enough, n + 1), device=group.device)
+    need = next(enough, n + 1)
+    count = torch.tensor(need, device=group.device)
@@
-    if count > n:
+    if need > n:
'''),
    Wrong("recomputed_is_free", ["a recomputed block holds something"], '''
-    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) <= budget)
+    enough = (k for k in range(n + 1) if sum(whole[k:]) <= budget)
'''),
    Wrong("part_changed", ["add must not change the part"], '''
-        total = part.clone()
+        total = part.detach()
@@
-        return total
+        return total.clone()
'''),
    Wrong("reverse_order", ["reverse order"], '''
-            return sums.popleft()
+            return sums.pop()
'''),
    Wrong("shared_by_all_calls", ["results of another call"], '''
+SUMS: deque[torch.Tensor] = deque()
 Add = Callable[[torch.Tensor], torch.Tensor]
@@
-    sums: deque[torch.Tensor] = deque()
+    sums = SUMS
'''),
    Wrong("sum_of_needs", ["this is the sum of the needs"], '''
-    all_reduce(count, group, "max")
-    if count > n:
+    all_reduce(count, group)
+    if int(count) > n * group.size:
'''),
    Wrong("sums_again", ["the second runs send the sums of forward again", "deadlock", "it must take kept sums"], '''
-        if not first:
-            return sums.popleft()
'''),
    Wrong("sums_in_a_circle", ["a forward whose output is dropped", "leads over its graph"], '''
-        sums.append(total.detach())
+        sums.append(total)
'''),
    Wrong("sum_in_float64", ["bytes of an element on the wire, where all tensors are bf16"], '''
-        total = part.clone()
-        all_reduce(total, group)
+        total = part.to(torch.float64, copy=True)
+        all_reduce(total, group)
+        total = total.to(part.dtype)
'''),
]

RIGHT = [
    Right("variant_contexts", "the contexts of Recompute say which run it is", '''
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from course_lib.recompute import Recompute
from course_lib.comm import Group, all_reduce

Add = Callable[[torch.Tensor], torch.Tensor]


def agreed_count(kept: int, whole: Sequence[int], budget: int, group: Group) -> int:
    n = len(whole)
    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) <= budget)
    count = torch.tensor(next(enough, n + 1), device=group.device)
    all_reduce(count, group, "max")
    if count > n:
        raise MemoryError(f"a rank has too little memory to recompute all of {n} blocks")
    return int(count)


class Sum(torch.autograd.Function):

    @staticmethod
    def forward(
        ctx: Any, part: torch.Tensor, sums: deque[torch.Tensor], first: bool, group: Group
    ) -> torch.Tensor:
        if not first:
            return sums.popleft()
        total = part.clone()
        all_reduce(total, group)
        sums.append(total.detach())
        return total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None, None, None


def recomputed(
    block: Callable[[torch.Tensor, Add], torch.Tensor], x: torch.Tensor, group: Group
) -> torch.Tensor:
    sums: deque[torch.Tensor] = deque()

    first = [True]

    @contextmanager
    def again():
        first[0] = False
        yield

    def run(x):
        return block(x, lambda part: Sum.apply(part, sums, first[0], group))

    return Recompute(contexts=lambda: (nullcontext(), again()))(run, x)
'''),
    Right("variant_graph_of_the_library", "g of the library in the first run, numbers in a list", '''
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from course_lib.comm import Group, all_reduce
from course_lib.comm import reduce_from_group

Add = Callable[[torch.Tensor], torch.Tensor]


def agreed_count(kept: int, whole: Sequence[int], budget: int, group: Group) -> int:
    n = len(whole)
    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) <= budget)
    count = torch.tensor(next(enough, n + 1), device=group.device)
    all_reduce(count, group, "max")
    if count > n:
        raise MemoryError(f"a rank has too little memory to recompute all of {n} blocks")
    return int(count)


class Sum(torch.autograd.Function):

    @staticmethod
    def forward(
        ctx: Any, part: torch.Tensor, sums: deque[torch.Tensor], first: bool, group: Group
    ) -> torch.Tensor:
        if not first:
            return sums.popleft()
        total = part.clone()
        all_reduce(total, group)
        sums.append(total.detach())
        return total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None, None, None


def recomputed(
    block: Callable[[torch.Tensor, Add], torch.Tensor], x: torch.Tensor, group: Group
) -> torch.Tensor:
    sums: deque[torch.Tensor] = deque()
    runs = iter((True, False))

    def run(x: torch.Tensor) -> torch.Tensor:
        if next(runs):

            def add(part):
                total = reduce_from_group(part, group)
                sums.append(total.detach())
                return total

            return block(x, add)
        left = iter(sums)
        return block(x, lambda part: Sum.apply(part, deque([next(left).detach()]), False, group))

    return checkpoint(run, x, use_reentrant=False)
'''),
]
