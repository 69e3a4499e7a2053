"""Wrong and right answers to `dynamic_loss_scaler`: see `course dev show dynamic_loss_scaler`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("bypasses_comm", ["past course_lib.comm"], '''
-        all_reduce(flag, self.group, "max")
+        torch.distributed.all_reduce(flag)
'''),
    Wrong("clips_first", ["clipped before they were unscaled"], '''
     scaler.scale_loss(loss).backward()
+    clip()
@@
-    clip()
'''),
    Wrong("counts_on", ["continues after an overflow"], '''
-        self.good = 0 if self.overflow else self.good + 1
+        self.good += not self.overflow
'''),
    Wrong("empty_stays_away", ["deadlock"], '''
         """Divides the gradients by the scale, in place; learns whether any rank overflowed."""
+        parameters = list(parameters)
+        if all(p.grad is None for p in parameters):
+            return
'''),
    Wrong("first_rank_only", ["led no rank to skip"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import broadcast
@@
-        all_reduce(flag, self.group, "max")
+        broadcast(flag, 0, self.group)
'''),
    Wrong("gradients_left", ["zero them first"], '''
-    optimizer.zero_grad()
'''),
    Wrong("grows_late", ["one good update too late"], '''
-        elif self.good == self.interval:
+        elif self.good > self.interval:
'''),
    Wrong("infinity_unseen", ["inf in a gradient led no rank to skip"], '''
-                if not parameter.grad.isfinite().all():
+                if parameter.grad.isnan().any():
'''),
    Wrong("local_scale", ["each rank has a scale of its own"], '''
                 parameter.grad.div_(self.scale)
+        self.mine = bool(flag)
@@
-        self.good = 0 if self.overflow else self.good + 1
-        if self.overflow:
+        self.good = 0 if self.mine else self.good + 1
+        if self.mine:
'''),
    Wrong("local_verdict", ["this rank decided alone"], '''
-        all_reduce(flag, self.group, "max")
'''),
    Wrong("many_flags", ["a flag is enough"], '''
-        flag = torch.zeros(())
+        flag = torch.zeros(16)
@@
-        self.overflow = bool(flag)
+        self.overflow = bool(flag[0])
'''),
    Wrong("mean_of_flags", ["led no rank to skip"], '''
-        all_reduce(flag, self.group, "max")
-        self.overflow = bool(flag)
+        all_reduce(flag, self.group, "avg")
+        self.overflow = bool(flag > 0.5)
'''),
    Wrong("min_of_flags", ["led no rank to skip"], '''
-        all_reduce(flag, self.group, "max")
+        all_reduce(flag, self.group, "min")
'''),
    Wrong("nan_unseen", ["nan in a gradient led no rank to skip"], '''
-                if not parameter.grad.isfinite().all():
+                if parameter.grad.isinf().any():
'''),
    Wrong("negative_infinity_unseen", ["-inf in a gradient led no rank to skip"], '''
-                if not parameter.grad.isfinite().all():
+                if parameter.grad.isnan().any() or (parameter.grad == torch.inf).any():
'''),
    Wrong("never_anew", ["the count is not reset after the scale has grown"], '''
-        elif self.good == self.interval:
+        elif self.good >= self.interval:
@@
-            self.good = 0
'''),
    Wrong("never_unscaled", ["still scaled"], '''
-                parameter.grad.div_(self.scale)
'''),
    Wrong("no_backoff", ["the scale does not fall"], '''
-            self.scale *= self.backoff
+            pass
'''),
    Wrong("not_clipped", ["not clipped"], '''
-    clip()
'''),
    Wrong("one_flag_each", ["the number of collectives"], '''
-                if not parameter.grad.isfinite().all():
-                    flag.fill_(1.0)
+                mine = (~parameter.grad.isfinite().all()).float()
+                all_reduce(mine, self.group, "max")
+                flag += mine
@@
-        all_reduce(flag, self.group, "max")
'''),
    Wrong("overflow_returns_early", ["deadlock"], '''
-                    flag.fill_(1.0)
+                    self.overflow = True
+                    return
'''),
    Wrong("reduces_gradients", ["summed over the ranks"], '''
             if parameter.grad is not None:
+                all_reduce(parameter.grad, self.group)
@@
-        all_reduce(flag, self.group, "max")
'''),
    Wrong("replaces_the_memory", ["memory was replaced"], '''
-                parameter.grad.div_(self.scale)
+                parameter.grad = parameter.grad / self.scale
'''),
    Wrong("returns_nothing", ["what step() returns"], '''
-        return not self.overflow
+        return None
'''),
    Wrong("sends_copies", ["collective"], '''
-                if not parameter.grad.isfinite().all():
+                total = parameter.grad.clone()
+                all_reduce(total, self.group)
+                if not total.isfinite().all():
@@
-        all_reduce(flag, self.group, "max")
'''),
    Wrong("steps_with_zeros", ["taken with zero gradients: AdamW changes the weights anyway"], '''
-        if not self.overflow:
-            optimizer.step()
+        if self.overflow:
+            for group in optimizer.param_groups:
+                for p in group["params"]:
+                    if p.grad is not None:
+                        p.grad.zero_()
+        optimizer.step()
'''),
    Wrong("unscaled_by_all_ranks", ["the wrong value"], '''
-                parameter.grad.div_(self.scale)
+                parameter.grad.div_(self.scale * self.group.size)
'''),
    Wrong("unscaled_twice", ["divided by the scale twice"], '''
-                parameter.grad.div_(self.scale)
+                parameter.grad.div_(self.scale).div_(self.scale)
'''),
    Wrong("update_forgotten", ["update() is missing"], '''
-    scaler.update()
'''),
    Wrong("verdict_stays", ["although no rank had an overflow"], '''
-        self.overflow = bool(flag)
+        self.overflow = self.overflow or bool(flag)
'''),
    Wrong("large_is_infinite", ["that is large but finite"], '''
-                if not parameter.grad.isfinite().all():
+                if not (parameter.grad.abs() < 1e20).all():
'''),
    Wrong("norm_is_infinite", ["that is large but finite"], '''
-                if not parameter.grad.isfinite().all():
+                if not parameter.grad.square().sum().isfinite():
'''),
    Wrong("torchs_own", ["what this exercise does not allow: torch.amp.GradScaler"], '''
-        return loss * self.scale
+        self.inner = torch.amp.GradScaler("cpu", init_scale=self.scale)
+        return self.inner.scale(loss)
'''),
    Wrong("stops_at_an_overflow", ["the gradients after unscale() in an update that overflows"], '''
                     flag.fill_(1.0)
+                    break
'''),
    Wrong("sum_is_infinite", ["that is large but finite"], '''
-                if not parameter.grad.isfinite().all():
+                if not parameter.grad.sum().isfinite():
'''),
    Wrong("zeroed_last", ["zero them first"], '''
-    optimizer.zero_grad()
@@
     scaler.update()
+    optimizer.zero_grad()
'''),
]

RIGHT = [
    Right("variant_min_of_fine", "the minimum of 'all is well'; checks after the division; counts down", '''
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class DynamicLossScaler:
    """A loss scale that all ranks raise, lower and skip steps by together.

    Args:
        group: the ranks that make updates together.
        scale: the first scale.
        growth: what the scale is multiplied by after `interval` good updates in a row.
        backoff: what it is multiplied by after an overflow.
        interval: how many good updates it takes.
    """

    def __init__(
        self, group: Group, scale: float, growth: float, backoff: float, interval: int
    ) -> None:
        self.group, self.scale = group, scale
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good = interval  # still to come
        self.overflow = False  # of this update, on any rank

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` of."""
        return loss * self.scale

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divides the gradients by the scale, in place; learns whether any rank overflowed."""
        flag = torch.ones(())
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad /= self.scale
                flag *= parameter.grad.isfinite().all()
        all_reduce(flag, self.group, "min")
        self.overflow = not bool(flag)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Makes the step unless a rank overflowed; returns whether it was made."""
        if not self.overflow:
            optimizer.step()
        return not self.overflow

    def update(self) -> None:
        """Lowers the scale, or counts a good update, which may raise it."""
        self.good = self.interval if self.overflow else self.good - 1
        if self.overflow:
            self.scale *= self.backoff
        elif not self.good:
            self.scale *= self.growth
            self.good = self.interval


def train_update(
    scaler: DynamicLossScaler,
    loss: torch.Tensor,
    parameters: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    clip: Callable[[], None],
) -> bool:
    """One update: backward of the scaled loss, clip, step.

    Args:
        scaler: of the ranks that make the update together.
        loss: this rank's, not scaled yet.
        parameters: this rank's.
        optimizer: of these parameters.
        clip: clips their gradients in place.

    Returns:
        Whether the step was made.
    """
    optimizer.zero_grad()
    scaler.scale_loss(loss).backward()
    scaler.unscale(parameters)
    clip()
    made = scaler.step(optimizer)
    scaler.update()
    return made
'''),
    Right("variant_sum_of_counts", "the number of overflowed parameters is added up; float64 flag; reciprocal", '''
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class DynamicLossScaler:
    """A loss scale that all ranks raise, lower and skip steps by together.

    Args:
        group: the ranks that make updates together.
        scale: the first scale.
        growth: what the scale is multiplied by after `interval` good updates in a row.
        backoff: what it is multiplied by after an overflow.
        interval: how many good updates it takes.
    """

    def __init__(
        self, group: Group, scale: float, growth: float, backoff: float, interval: int
    ) -> None:
        self.group, self.scale = group, scale
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good = 0  # updates in a row without an overflow
        self.overflow = False  # of this update, on any rank

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` of."""
        return loss * self.scale

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divides the gradients by the scale, in place; learns whether any rank overflowed."""
        flag = torch.zeros(1, dtype=torch.float64)
        for parameter in parameters:
            if parameter.grad is not None:
                if not parameter.grad.isfinite().all():
                    flag += 1
                parameter.grad.mul_(1.0 / self.scale)
        all_reduce(flag, self.group, "sum")
        self.overflow = flag.item() > 0

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Makes the step unless a rank overflowed; returns whether it was made."""
        if not self.overflow:
            optimizer.step()
        return not self.overflow

    def update(self) -> None:
        """Lowers the scale, or counts a good update, which may raise it."""
        self.good = 0 if self.overflow else self.good + 1
        if self.overflow:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale *= self.growth
            self.good = 0


def train_update(
    scaler: DynamicLossScaler,
    loss: torch.Tensor,
    parameters: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    clip: Callable[[], None],
) -> bool:
    """One update: backward of the scaled loss, clip, step.

    Args:
        scaler: of the ranks that make the update together.
        loss: this rank's, not scaled yet.
        parameters: this rank's.
        optimizer: of these parameters.
        clip: clips their gradients in place.

    Returns:
        Whether the step was made.
    """
    optimizer.zero_grad()
    scaler.scale_loss(loss).backward()
    scaler.unscale(parameters)
    clip()
    made = scaler.step(optimizer)
    scaler.update()
    return made
'''),
    Right("variant_times_zero", "finite if the gradients times zero add up to zero", '''
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class DynamicLossScaler:
    """A loss scale that all ranks raise, lower and skip steps by together.

    Args:
        group: the ranks that make updates together.
        scale: the first scale.
        growth: what the scale is multiplied by after `interval` good updates in a row.
        backoff: what it is multiplied by after an overflow.
        interval: how many good updates it takes.
    """

    def __init__(
        self, group: Group, scale: float, growth: float, backoff: float, interval: int
    ) -> None:
        self.group, self.scale = group, scale
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good = 0  # updates in a row without an overflow
        self.overflow = False  # of this update, on any rank

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` of."""
        return loss * self.scale

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divides the gradients by the scale, in place; learns whether any rank overflowed."""
        flag = torch.zeros(())
        for parameter in parameters:
            if parameter.grad is not None:
                flag += (parameter.grad * 0).sum()
                parameter.grad.div_(self.scale)
        all_reduce(flag, self.group)
        self.overflow = bool(flag.isnan())

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Makes the step unless a rank overflowed; returns whether it was made."""
        if not self.overflow:
            optimizer.step()
        return not self.overflow

    def update(self) -> None:
        """Lowers the scale, or counts a good update, which may raise it."""
        self.good = 0 if self.overflow else self.good + 1
        if self.overflow:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale *= self.growth
            self.good = 0


def train_update(
    scaler: DynamicLossScaler,
    loss: torch.Tensor,
    parameters: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    clip: Callable[[], None],
) -> bool:
    """One update: backward of the scaled loss, clip, step.

    Args:
        scaler: of the ranks that make the update together.
        loss: this rank's, not scaled yet.
        parameters: this rank's.
        optimizer: of these parameters.
        clip: clips their gradients in place.

    Returns:
        Whether the step was made.
    """
    optimizer.zero_grad()
    scaler.scale_loss(loss).backward()
    scaler.unscale(parameters)
    clip()
    made = scaler.step(optimizer)
    scaler.update()
    return made
'''),
]
