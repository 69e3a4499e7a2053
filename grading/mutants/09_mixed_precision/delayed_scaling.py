"""Wrong and right answers to `delayed_scaling`: see `course dev show delayed_scaling`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("scale_is_inverted", ["`scale('input')` and what `quantize` returns", "divided by"], '''
-        return max(self.history[name], default=0.0) / LARGEST or 1.0
+        return LARGEST / (max(self.history[name], default=0.0) or LARGEST)
@@
-        scale = self.scale(name)
+        scale = 1 / self.scale(name)
'''),
    Wrong("unused_is_skipped", ["in which no rank used the tensor was left out"], '''
-        self.seen = dict.fromkeys(names, 0.0)  # the amaxes of this step so far, on this rank
+        self.seen = dict.fromkeys(names, -1.0)
@@
-            if amax < float("inf"):
+            if 0 <= amax < float("inf"):
@@
-            self.seen[name] = 0.0
+            self.seen[name] = -1.0
'''),
    Wrong("leaves_out_zeros", ["a step whose amax is 0 was left out"], '''
-            if amax < float("inf"):
+            if 0 < amax < float("inf"):
                 self.history[name].append(amax)
'''),
    Wrong("in_the_order_of_use", ["scale"], '''
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        before = self.seen.pop(name)
+        self.seen[name] = max(before, amax if finite else float("inf"))
'''),
    Wrong("divides_in_bf16", ["divided in bf16: convert x to float32 first"], '''
-        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
+        return (x / scale).float().clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
'''),
    Wrong("smallest_scale", ["the scale of 'gradient'"], '''
-        return max(self.history[name], default=0.0) / LARGEST or 1.0
+        top = max(self.history[name], default=0.0) / LARGEST
+        return max(top, 1e-6) if top else 1.0
'''),
    Wrong("bypasses_comm", ["past course_lib.comm"], '''
 from course_lib.comm import Group, all_reduce
+import torch.distributed as dist
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        all_reduce(amaxes, self.group, "max")
+        dist.all_reduce(amaxes, dist.ReduceOp.MAX)
'''),
    Wrong("empty_fails", ["max()"], '''
-        amax = float(x.abs().max()) if x.numel() else 0.0
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        amax = float(x.abs().max())
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
'''),
    Wrong("float64", ["float64: float32 is enough"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        amaxes = torch.tensor([*self.seen.values()])
+        amaxes = torch.tensor([*self.seen.values()], dtype=torch.float64)
'''),
    Wrong("forever", ["amaxes older than"], '''
-        self.history: dict[str, deque[float]] = {name: deque(maxlen=length) for name in names}
+        self.history: dict[str, deque[float]] = {name: deque(maxlen=None) for name in names}
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
'''),
    Wrong("in_place", ["x was changed"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
+        return x.div_(scale).clamp_(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
'''),
    Wrong("infinity_in_the_history", ["expected"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-            if amax < float("inf"):
-                self.history[name].append(amax)
+            self.history[name].append(amax)
'''),
    Wrong("the scale is inverted", ["the scale is inverted"], '''
-        return max(self.history[name], default=0.0) / LARGEST or 1.0
+        top = max(self.history[name], default=0.0)
+        return LARGEST / top if top else 1.0
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
+        return (x.float() * scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
'''),
    Wrong("last_call", ["only the last call in a step counts"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = amax if amax < float("inf") else float("inf")
'''),
    Wrong("last_step", ["only the last step counts"], '''
-        self.history: dict[str, deque[float]] = {name: deque(maxlen=length) for name in names}
+        self.history: dict[str, deque[float]] = {name: deque(maxlen=1) for name in names}
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
'''),
    Wrong("local", ["this rank's own amax"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        all_reduce(amaxes, self.group, "max")
'''),
    Wrong("mean_over_ranks", ["the mean over ranks"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        all_reduce(amaxes, self.group, "max")
+        all_reduce(amaxes, self.group, "avg")
'''),
    Wrong("multiplies", ["multiplied by the scale", "not divided"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
+        return (x.float() * scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
'''),
    Wrong("nan_lost", ["NaN must not get lost"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax)
'''),
    Wrong("never_reset", ["in the history or in `seen`"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-            self.seen[name] = 0.0
'''),
    Wrong("of_this_step", ["the scale includes the amax of this step"], '''
-        return max(self.history[name], default=0.0) / LARGEST or 1.0
+        return max([*self.history[name], self.seen[name]]) / LARGEST or 1.0
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
'''),
    Wrong("one_each", ["one for each tensor: put all amaxes into one"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        amaxes = torch.tensor([*self.seen.values()])
-        all_reduce(amaxes, self.group, "max")
-        for name, amax in zip(self.history, amaxes.tolist(), strict=True):
-            if amax < float("inf"):
-                self.history[name].append(amax)
+        for name, own in self.seen.items():
+            amax = torch.tensor(own)
+            all_reduce(amax, self.group, "max")
+            if float(amax) < float("inf"):
+                self.history[name].append(float(amax))
'''),
    Wrong("one_too_short", ["one step too short"], '''
-        self.history: dict[str, deque[float]] = {name: deque(maxlen=length) for name in names}
+        self.history: dict[str, deque[float]] = {name: deque(maxlen=length - 1) for name in names}
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
'''),
    Wrong("overflow_decided_alone", ["the scale of"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        amaxes = torch.tensor([*self.seen.values()])
-        all_reduce(amaxes, self.group, "max")
-        for name, amax in zip(self.history, amaxes.tolist(), strict=True):
-            if amax < float("inf"):
+        known = torch.tensor([amax if amax < float("inf") else 0.0 for amax in self.seen.values()])
+        all_reduce(known, self.group, "max")
+        for name, amax in zip(self.history, known.tolist(), strict=True):
+            if self.seen[name] < float("inf"):
'''),
    Wrong("signed", ["the scale of"], '''
-        amax = float(x.abs().max()) if x.numel() else 0.0
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        amax = float(x.max()) if x.numel() else 0.0
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
'''),
    Wrong("unused_stays_away", ["deadlock"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        amaxes = torch.tensor([*self.seen.values()])
-        all_reduce(amaxes, self.group, "max")
-        for name, amax in zip(self.history, amaxes.tolist(), strict=True):
-            if amax < float("inf"):
-                self.history[name].append(amax)
-            self.seen[name] = 0.0
+        if all(self.seen.values()):
+            amaxes = torch.tensor([*self.seen.values()])
+            all_reduce(amaxes, self.group, "max")
+            for name, amax in zip(self.history, amaxes.tolist(), strict=True):
+                if amax < float("inf"):
+                    self.history[name].append(amax)
+                self.seen[name] = 0.0
'''),
    Wrong("used_tensors_only", ["deadlock"], '''
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        amaxes = torch.tensor([*self.seen.values()])
-        all_reduce(amaxes, self.group, "max")
-        for name, amax in zip(self.history, amaxes.tolist(), strict=True):
-            if amax < float("inf"):
-                self.history[name].append(amax)
+        for name, own in self.seen.items():
+            if not own:
+                continue
+            amax = torch.tensor(own)
+            all_reduce(amax, self.group, "max")
+            if float(amax) < float("inf"):
+                self.history[name].append(float(amax))
'''),
    Wrong("zero_scale", ["ZeroDivisionError"], '''
-        return max(self.history[name], default=0.0) / LARGEST or 1.0
+        return max(self.history[name], default=0.0) / LARGEST
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
@@
-        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
+        return (x.float() * (1.0 / scale)).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
'''),
    Wrong("zeros_give_a_zero_scale", ["the scale of 'input'"], '''
-        return max(self.history[name], default=0.0) / LARGEST or 1.0
+        return max(self.history[name], default=0.0) / LARGEST
@@
-        finite = amax < float("inf")  # false for NaN
-        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
+        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
'''),
]

RIGHT = [
    Right("lists", "lists, cut when they are read", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce

LARGEST = 448.0


class DelayedScaling:
    """Scales for tensors that are quantized in every step."""

    def __init__(self, names: Sequence[str], length: int, group: Group) -> None:
        self.group = group
        self.history: dict[str, list[float]] = {name: [] for name in names}
        self.length = length
        self.seen = dict.fromkeys(names, 0.0)

    def scale(self, name: str) -> float:
        """What a tensor is divided by in this step."""
        top = max([0.0, *self.history[name][-self.length :]])
        return 1.0 if top == 0.0 else top / LARGEST

    @torch.no_grad()
    def quantize(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A tensor in FP8, and its scale; remembers its amax."""
        amax = float(x.abs().max()) if x.numel() else 0.0
        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
        scale = self.scale(name)
        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale

    def step(self) -> None:
        """Ends a step: what was seen in it, on any rank, enters the histories."""
        amaxes = torch.tensor([*self.seen.values()])
        all_reduce(amaxes, self.group, "max")
        for name, amax in zip(self.history, amaxes.tolist(), strict=True):
            if amax < float("inf"):
                self.history[name].append(amax)
            self.seen[name] = 0.0
'''),
    Right("tensors", "histories are one tensor, overflows are found by a sum with infinity", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce

LARGEST = 448.0


class DelayedScaling:
    """Scales for tensors that are quantized in every step."""

    def __init__(self, names: Sequence[str], length: int, group: Group) -> None:
        self.group, self.names = group, list(names)
        self.past = torch.zeros(len(self.names), length)
        self.seen = torch.zeros(len(self.names))

    def scale(self, name: str) -> float:
        """What a tensor is divided by in this step."""
        row = self.past[self.names.index(name)]
        return float(row.max()) / LARGEST or 1.0

    @torch.no_grad()
    def quantize(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A tensor in FP8, and its scale; remembers its amax."""
        wide, row = x.to(torch.float32), self.names.index(name)
        if wide.numel():
            amax = torch.where(wide.isfinite(), wide.abs(), torch.inf).amax()
            self.seen[row] = torch.maximum(self.seen[row], amax)
        scale = self.scale(name)
        return (wide * (1 / scale)).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale

    def step(self) -> None:
        """Ends a step: what was seen in it, on any rank, enters the histories."""
        all_reduce(self.seen, self.group, "max")
        rolled = torch.cat([self.past[:, 1:], self.seen[:, None]], 1)
        self.past = torch.where(self.seen.isfinite()[:, None], rolled, self.past)
        self.seen = torch.zeros(len(self.names))
'''),
]
