"""Wrong and right answers to `selective`: see `course dev show selective`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("a_circle", ["changed it in place since", "whose output is dropped", "leads over its graph"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept.append(result)
'''),
    Wrong("a_queue_for_each_block", ["results of another call", "each call has its own"], '''
         self.policy, self.first, self.again = policy, 0, 0
+        self.queues: Any = {}
@@
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        kept = self.queues.setdefault(id(fn), deque())
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
'''),
    Wrong("addmm_forgotten", ["keep_products(aten.addmm.default)", "a linear layer computes it"], '''
-    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
+    return func == torch.ops.aten.mm.default
@@
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
'''),
    Wrong("again_not_counted", ["products that were computed again are not counted"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-        self.way.again += flops(func, args, kwargs, result)
'''),
    Wrong("attention_kept", ["keep_products(aten.bmm.default)", "attention"], '''
-    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
+    aten = torch.ops.aten
+    return func in (aten.mm.default, aten.addmm.default, aten.bmm.default)
@@
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
'''),
    Wrong("backward_counted", ["products of backward itself are counted too"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
         self.way.first += flops(func, args, kwargs, result)  # mutate: same
+        backward = sum(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args[-2:])
+        self.way.again += backward * flops(func, args, kwargs, result)
'''),
    Wrong("by_operation", ["always the last one kept comes back"], '''
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        kept: dict[Any, torch.Tensor] = {}
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept[func] = result.clone()
@@
-            return self.kept.popleft()
+            return self.kept[func]
'''),
    Wrong("by_operation_and_shapes", ["always the last one kept comes back"], '''
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        kept: dict[Any, torch.Tensor] = {}
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept[func, args[0].shape] = result.clone()
@@
-            return self.kept.popleft()
+            return self.kept[func, args[0].shape]
'''),
    Wrong("by_operation_first", ["always the first one kept comes back"], '''
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        kept: dict[Any, torch.Tensor] = {}
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept.setdefault(func, result.clone())
@@
-            return self.kept.popleft()
+            return self.kept[func]
'''),
    Wrong("cloned_in_replay", ["the block has changed it in place since"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept.append(result.detach())
@@
-            return self.kept.popleft()
+            return self.kept.popleft().clone()
'''),
    Wrong("everything_kept", ["it must not be kept", "keep only what is asked"], '''
+ALL = {"aten::" + name for name in ("mm", "addmm", "bmm", "tanh", "sin", "exp", "_softmax")}
 def flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
@@
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
         self.way.first += flops(func, args, kwargs, result)  # mutate: same
-        if self.way.policy(func):
+        if self.way.policy(func) or func._schema.name in ALL:
@@
         # BEGIN SOLUTION: the second run
-        if self.way.policy(func):
+        if self.way.policy(func) or func._schema.name in ALL:
'''),
    Wrong("first_counts_computed_only", ["the overhead"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-        self.way.first += flops(func, args, kwargs, result)  # mutate: same
@@
             self.kept.append(result.clone())
+        else:
+            self.way.first += flops(func, args, kwargs, result)
'''),
    Wrong("held_until_the_next_step", ["bytes held after backward", "it outlives its call"], '''
     return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
+
+
+class Mode(TorchDispatchMode):
+    def __init__(self, way, kept, second):
+        super().__init__()
+        self.way, self.kept, self.second = way, kept, second
+
+    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
+        keep = self.way.policy(func)
+        if keep and self.second:
+            self.way.used.append(self.kept.popleft())
+            return self.way.used[-1].clone()
+        result = func(*args, **(kwargs or {}))
+        if keep:
+            self.kept.append(result.clone())
+        if func._overloadpacket in flop_registry:
+            self.way.count[self.second] += flop_registry[func._overloadpacket](
+                *args, **(kwargs or {}), out_val=result
+            )
+        return result
@@
-        self.policy, self.first, self.again = policy, 0, 0
+        self.policy, self.count, self.used = policy, [0, 0], []
@@
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        kept = deque()
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Mode(self, kept, False), Mode(self, kept, True)))
@@
-        return self.again / self.first
+        return self.count[1] / self.count[0]
'''),
    Wrong("kept_and_run_again", ["for a second time", "the second run takes the kept result"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
         if self.way.policy(func):
+            func(*args, **(kwargs or {}))
             return self.kept.popleft()
'''),
    Wrong("kept_in_half", ["the wrong value"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept.append(result.float().double())
'''),
    Wrong("kept_products_counted", ["kept products are counted as if they were computed again"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            return self.kept.popleft()
-        result = func(*args, **(kwargs or {}))
+            result = self.kept.popleft()
+        else:
+            result = func(*args, **(kwargs or {}))
'''),
    Wrong("last_call_only", ["the overhead"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        self.first = self.again = 0
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
'''),
    Wrong("never_released", ["is never released", "bytes held after"], '''
         self.policy, self.first, self.again = policy, 0, 0
+        self.all: Any = []
@@
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        kept: list[torch.Tensor] = []
+        self.all.append(kept)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, iter(kept))))
@@
-            return self.kept.popleft()
+            return next(self.kept)
'''),
    Wrong("no_recomputation", ["is anything recomputed", "nothing is recomputed"], '''
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        with Keep(self, deque()):
+            return fn(*args)
'''),
    Wrong("nothing_kept", ["for a second time", "the second run takes the kept result"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-        if self.way.policy(func):
-            return self.kept.popleft()
'''),
    Wrong("one_queue_for_all", ["results of another call", "each call has its own"], '''
         self.policy, self.first, self.again = policy, 0, 0
+        self.kept: Any = deque()
@@
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, self.kept), Replay(self, self.kept)))
'''),
    Wrong("only_detached", ["the block has changed it in place since"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept.append(result.detach())
'''),
    Wrong("operations_counted", ["the overhead"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-        self.way.first += flops(func, args, kwargs, result)  # mutate: same
+        self.way.first += 1
@@
-        self.way.again += flops(func, args, kwargs, result)
+        self.way.again += 1
'''),
    Wrong("other_dropout", ["draws different random numbers from the first"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, preserve_rng_state=False,
+                          context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
'''),
    Wrong("policy_built_in", ["the second run takes the kept result"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
         self.way.first += flops(func, args, kwargs, result)  # mutate: same
-        if self.way.policy(func):
+        if keep_products(func):
@@
         # BEGIN SOLUTION: the second run
-        if self.way.policy(func):
+        if keep_products(func):
'''),
    Wrong("policy_by_packet", ["keep_products(aten.mm.default)"], '''
-    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
+    return func in (torch.ops.aten.mm, torch.ops.aten.addmm)
@@
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
'''),
    Wrong("reverse_order", ["reverse order", "first in"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            return self.kept.popleft()
+            return self.kept.pop()
'''),
    Wrong("run_twice_in_forward", ["in forward", "an operation is run once there"], '''
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
@@
-            self.kept.append(result.clone())
+            self.kept.append(func(*args, **(kwargs or {})))
'''),
    Wrong("softmax_kept", ["keep_products(aten._softmax.default)", "it is large"], '''
-    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
+    aten = torch.ops.aten
+    return func in (aten.mm.default, aten.addmm.default, aten._softmax.default)
@@
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))
'''),
    Wrong("torchs_contexts", ["what this exercise does not allow: torch.utils.checkpoint.create_selective_checkpoint_contexts"], '''
-        kept: deque[torch.Tensor] = deque()
-        modes = Keep(self, kept), Replay(self, kept)
-        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
+        from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
+
+        def policy(ctx, func, *args, **kwargs):
+            keep = self.policy(func)
+            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
+
+        return checkpoint(fn, *args, use_reentrant=False,
+                          context_fn=lambda: create_selective_checkpoint_contexts(policy))
'''),
]

RIGHT = [
    Right("variant_by_operation", "a queue for each operation", '''
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry


def flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **(kwargs or {}), out_val=result)) if formula else 0


def keep_products(func: Any) -> bool:
    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


class Selective:

    def __init__(self, policy: Callable[[Any], bool] = keep_products) -> None:
        self.policy, self.first, self.again = policy, 0, 0

    def __call__(self, fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        kept: dict[Any, deque[torch.Tensor]] = {}
        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))

    @property
    def overhead(self) -> float:
        return self.again / self.first


class Keep(TorchDispatchMode):

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()
        self.way, self.kept = way, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.way.first += flops(func, args, kwargs, result)
        if self.way.policy(func):
            self.kept.setdefault(func, deque()).append(result.clone())
        return result


class Replay(TorchDispatchMode):

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()
        self.way, self.kept = way, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.way.policy(func):
            return self.kept[func].popleft()
        result = func(*args, **(kwargs or {}))
        self.way.again += flops(func, args, kwargs, result)
        return result
'''),
    Right("variant_list", "a list that is turned round before the second run", '''
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry


def flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **(kwargs or {}), out_val=result)) if formula else 0


def keep_products(func: Any) -> bool:
    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


class Selective:

    def __init__(self, policy: Callable[[Any], bool] = keep_products) -> None:
        self.policy, self.first, self.again = policy, 0, 0

    def __call__(self, fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Keep(self, kept), Replay(self, kept)))

    @property
    def overhead(self) -> float:
        return self.again / self.first


class Keep(TorchDispatchMode):

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()
        self.way, self.kept = way, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.way.first += flops(func, args, kwargs, result)
        if self.way.policy(func):
            self.kept.append(torch.empty_like(result).copy_(result))
        return result


class Replay(TorchDispatchMode):

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()
        self.way, self.kept = way, kept

    def __enter__(self) -> Any:
        self.kept.reverse()
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.way.policy(func):
            return self.kept.pop()
        result = func(*args, **(kwargs or {}))
        self.way.again += flops(func, args, kwargs, result)
        return result
'''),
    Right("variant_numbered", "one mode for both runs, which counts the kept operations", '''
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from course_lib.recompute import Recompute

CHEAP = {"aten::bmm", "aten::baddbmm"}


def keep_products(func):
    return func._schema.name in {"aten::mm", "aten::addmm"} - CHEAP


class Mode(TorchDispatchMode):
    def __init__(self, way, kept, second):
        super().__init__()
        self.way, self.kept, self.second, self.number = way, kept, second, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        keep = self.way.policy(func)
        if keep and self.second:
            self.number += 1
            return self.kept[self.number - 1].clone()
        result = func(*args, **(kwargs or {}))
        if keep:
            self.kept.append(result.detach().clone())
        if func._overloadpacket in flop_registry:
            self.way.count[self.second] += flop_registry[func._overloadpacket](
                *args, **(kwargs or {}), out_val=result
            )
        return result


class Selective:
    def __init__(self, policy=keep_products):
        self.policy, self.count = policy, [0, 0]

    def __call__(self, fn, *args):
        kept = []
        modes = Mode(self, kept, False), Mode(self, kept, True)
        return Recompute((), lambda: modes)(fn, *args)

    @property
    def overhead(self):
        return self.count[1] / self.count[0]
'''),
]
