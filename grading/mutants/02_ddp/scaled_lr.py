"""Wrong and right answers to `scaled_lr`: see `course dev show scaled_lr`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("any_rule_for_the_same_batch", ["what a rule 'cubic' leads to (k = 1,"], '''
-    if rule not in ("linear", "sqrt"):
+    if local_batch * world == base_batch:
+        return base_lr
+    if rule not in ("linear", "sqrt"):
'''),
    Wrong("any_rule_is_sqrt", ["what a rule 'cubic' leads to"], '''
-    if rule not in ("linear", "sqrt"):
-        raise ValueError(f"no rule {rule!r}: known are 'linear' and 'sqrt'")
'''),
    Wrong("counts_batches", ["counted in local batches", "not in examples"], '''
-    return float(noise / signal) if signal > 0 else math.inf
+    return float(noise / signal) / local_batch if signal > 0 else math.inf
'''),
    Wrong("divides_by_no_warmup", ["ZeroDivisionError"], '''
-    if step >= warmup:
-        return target
-    return base_lr + (target - base_lr) * step / warmup
+    return base_lr + (target - base_lr) * min(1.0, step / warmup)
'''),
    Wrong("local_batch_only", ["only a rank's own examples are counted"], '''
-    factor = local_batch * world / base_batch
+    factor = local_batch / base_batch
'''),
    Wrong("negative_batch", ["where the gradient is only noise", "B is infinite"], '''
-    return float(noise / signal) if signal > 0 else math.inf
+    return float(noise / signal)
'''),
    Wrong("no_warmup", ["there is no warm-up"], '''
-    if step >= warmup:
-        return target
-    return base_lr + (target - base_lr) * step / warmup
+    return target
'''),
    Wrong("noise_in_the_signal", ["this is noise / S"], '''
-    signal = (batch * large - local_batch * small) / (batch - local_batch)
+    signal = large
'''),
    Wrong("one_step_early", ["one step too early: step 0 has base_lr"], '''
-    return base_lr + (target - base_lr) * step / warmup
+    return base_lr + (target - base_lr) * (step + 1) / warmup
'''),
    Wrong("own_length", ["this rank's own |g|² was taken", "nothing was sent"], '''
-    all_reduce(small, group, "avg")
'''),
    Wrong("reduces_the_gradient", ["the gradient itself was reduced as well"], '''
-    large, batch = mean.square().sum(), local_batch * group.size
+    all_reduce(own, group, "avg")
+    large, batch = own.square().sum(), local_batch * group.size
'''),
    Wrong("rules_swapped", ["this is the rule 'sqrt'"], '''
-    target = base_lr * (factor if rule == "linear" else math.sqrt(factor))
+    target = base_lr * (factor if rule == "sqrt" else math.sqrt(factor))
'''),
    Wrong("squares_in_place", ["a gradient was changed"], '''
-    small = own.square().sum()
+    small = own.square_().sum()
'''),
    Wrong("sum_of_lengths", ["the sum of the ranks' |g|² was taken"], '''
-    all_reduce(small, group, "avg")
+    all_reduce(small, group)
'''),
    Wrong("times_the_ranks", ["scaled by the number of ranks: what counts is the global batch", "the same global batch on more ranks"], '''
-    factor = local_batch * world / base_batch
+    factor = world
'''),
    Wrong("warms_up_from_zero", ["warmed up from 0: it must begin with base_lr"], '''
-    return base_lr + (target - base_lr) * step / warmup
+    return target * step / warmup
'''),
]

RIGHT = [
    Right("lengths_gathered", "the lengths are gathered as norms and squared; a table of rules", '''
import math

import torch

from course_lib.comm import Group, all_gather


def scaled_lr(
    rule: str, base_lr: float, base_batch: int, local_batch: int, world: int, step: int, warmup: int
) -> float:
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"no rule {rule!r}: known are 'linear' and 'sqrt'")
    factor = local_batch * world / base_batch
    target = base_lr * factor ** {"linear": 1.0, "sqrt": 0.5}[rule]
    if step >= warmup:
        return target
    return base_lr + (target - base_lr) * step / warmup


def critical_batch(own: torch.Tensor, mean: torch.Tensor, local_batch: int, group: Group) -> float:
    norms = own.new_empty(group.size)
    all_gather(norms, own.norm().view(1), group)
    small = norms.square().mean()
    large, batch = mean.square().sum(), local_batch * group.size
    signal = (batch * large - local_batch * small) / (batch - local_batch)
    noise = (small - large) / (1 / local_batch - 1 / batch)
    return float(noise / signal) if signal > 0 else math.inf
'''),
    Right("solved_for_b", "the closed form; the warm-up as a weighted mean of two rates", '''
import math

import torch

from course_lib.comm import Group, all_reduce


def scaled_lr(
    rule: str, base_lr: float, base_batch: int, local_batch: int, world: int, step: int, warmup: int
) -> float:
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"no rule {rule!r}: known are 'linear' and 'sqrt'")
    factor = local_batch * world / base_batch
    target = base_lr * (factor if rule == "linear" else math.sqrt(factor))
    way = min(1.0, step / warmup) if warmup else 1.0
    return (1 - way) * base_lr + way * target


def critical_batch(own: torch.Tensor, mean: torch.Tensor, local_batch: int, group: Group) -> float:
    small = own.square().sum()
    all_reduce(small, group, "avg")
    large, batch = mean.square().sum(), local_batch * group.size
    signal = group.size * large - small
    return float(batch * (small - large) / signal) if signal > 0 else math.inf
'''),
]
