"""Wrong and right answers to `zero1`: see `course dev show zero1`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("the_first_groups_entries_for_all", ["a group got entries of the first one"], '''
-            self.inner.add_param_group(own)
+            first = {k: v for k, v in self.inner.param_groups[0].items() if k != "params"}
+            self.inner.add_param_group({**first, **own})
'''),
    Wrong("adds_to_the_shards_gradient", ["the weights after 4 steps"], '''
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            mine = ring_reduce_scatter(full, self.group, "avg")
+            shard.grad = mine if shard.grad is None else shard.grad + mine
'''),
    Wrong("collects_only_what_has_gradients", ["the weights after 4 steps"], '''
-        for _, flat in self.flats:
-            ring_all_gather(flat, self.group)
+        for params, flat in self.flats:
+            if any(p.grad is not None for p in params):
+                ring_all_gather(flat, self.group)
'''),
    Wrong("all_reduce_and_broadcast", ["1.5 times as many"], '''
 from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter
+from course_lib.comm import all_reduce
@@
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            all_reduce(full, self.group, "avg")
+            shard.grad = full.view(self.group.size, -1)[self.group.index]
@@
-            ring_all_gather(flat, self.group)
+            for source, part in enumerate(flat.view(self.group.size, -1)):
+                broadcast(part, source, self.group)
'''),
    Wrong("all_reduce_each_gradient", ["1.5 times as many: the gradients without padding"], '''
 from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter
+from course_lib.comm import all_reduce
@@
             rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
+            for each in rows:
+                all_reduce(each, self.group, "avg")
@@
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            shard.grad = full.view(self.group.size, -1)[self.group.index]
'''),
    Wrong("copies_of_the_groups", ["a changed learning rate was not used"], '''
-        return self.inner.param_groups
+        return [dict(each) for each in self.inner.param_groups]
'''),
    Wrong("first_group_only", ["wrong value"], '''
             shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            break
'''),
    Wrong("full_state_then_broadcast", ["that is plain AdamW", "1.5 times as many"], '''
 from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter
+from course_lib.comm import all_reduce
@@
-        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
+        shard = nn.Parameter(flat)
@@
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            all_reduce(full, self.group, "avg")
+            shard.grad = full
@@
-            ring_all_gather(flat, self.group)
+            for source, part in enumerate(flat.view(self.group.size, -1)):
+                broadcast(part, source, self.group)
'''),
    Wrong("gather_first", ["wrong value"], '''
-        self.inner.step()
@@
             ring_all_gather(flat, self.group)
+        self.inner.step()
'''),
    Wrong("leaves_out_missing_gradients", ["a parameter without a gradient on some ranks"], '''
-            rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
+            rows = [p.grad for p in params if p.grad is not None]
@@
-            row = torch.cat([row.reshape(-1) for row in rows])
+            row = torch.cat([flat[:0], *(row.reshape(-1) for row in rows)])
'''),
    Wrong("new_inner_each_time", ["list index out of range"], '''
-        if self.inner is None:
-            self.inner = self.optimizer([own], **self.options)
-        else:
-            self.inner.add_param_group(own)
+        self.inner = self.optimizer([own], **self.options)
'''),
    Wrong("no_gather", ["half as many", "the parameters not collected"], '''
-        for _, flat in self.flats:
-            ring_all_gather(flat, self.group)
'''),
    Wrong("options_lost", ["a group's own entries"], '''
-        own = {**param_group, "params": [shard]}
+        own = {"params": [shard]}
'''),
    Wrong("own_gradients", ["half as many: the gradients were not reduced"], '''
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            shard.grad = full.view(self.group.size, -1)[self.group.index]
'''),
    Wrong("plain_adamw", ["that is plain AdamW"], '''
 from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter
+from course_lib.comm import all_reduce
@@
-        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
+        shard = nn.Parameter(flat)
@@
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            all_reduce(full, self.group, "avg")
+            shard.grad = full
@@
-        for _, flat in self.flats:
-            ring_all_gather(flat, self.group)
'''),
    Wrong("shard_is_a_copy", ["no parameter has changed"], '''
-        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
+        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index].clone())
'''),
    Wrong("skips_on_one_side", ["a parameter without a gradient on some ranks"], '''
         for (params, flat), own in pairs:
+            if any(p.grad is None for p in params):
+                continue
'''),
    Wrong("sum_of_gradients", ["the sum of the ranks' gradients was used"], '''
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            shard.grad = ring_reduce_scatter(full, self.group)
'''),
    Wrong("the_next_shard", ["wrong value"], '''
-        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
+        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.next])
'''),
    Wrong("whole_gradients_kept", ["the whole state"], '''
             full[: row.numel()] = row
+            self.kept = [row, full]
@@
         self.inner.step()
+        self.whole = [torch.zeros_like(flat) for _, flat in self.flats]
'''),
    Wrong("wider_than_the_gradient", ["it was converted to a wider dtype before it was sent"], '''
-            shard.grad = ring_reduce_scatter(full, self.group, "avg")
+            wide = ring_reduce_scatter(full.double(), self.group, "avg")
+            shard.grad = wide.to(flat.dtype)
'''),
    Wrong("shard_is_a_clone", ["does not share memory with the parameters"], '''
-        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
+        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index].clone())
@@
-        for _, flat in self.flats:
+        for (_, flat), own in zip(self.flats, self.inner.param_groups, strict=True):
+            flat.view(self.group.size, -1)[self.group.index].copy_(own["params"][0])
'''),
]

RIGHT = [
    Right("variant_comm_calls", "the backend's own reduce-scatter and all-gather", '''
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_gather, broadcast, reduce_scatter


def flatten(params: list[nn.Parameter], group: Group) -> torch.Tensor:
    """Makes parameters views of one flat tensor, padded for `group`, the same on all ranks."""
    count = sum(p.numel() for p in params)
    flat = params[0].new_zeros(-(-count // group.size) * group.size)
    parts = flat[:count].split([p.numel() for p in params])
    for param, part in zip(params, parts, strict=True):
        part.copy_(param.detach().reshape(-1))
        param.data = part.view(param.shape)
    broadcast(flat, 0, group)
    return flat


class Zero1:
    """Wraps an optimizer class.

    Args:
        params: parameters, or parameter groups (dicts with "params"), as for any optimizer.
        optimizer: a class, `torch.optim.AdamW` for example.
        group: the ranks.
        options: for the optimizer.
    """

    def __init__(
        self, params: Iterable[Any], optimizer: Callable[..., Any], group: Group, **options: Any
    ) -> None:
        self.optimizer, self.group, self.options = optimizer, group, options
        self.inner: Any = None  # the optimizer of this rank's shards
        self.flats: list[tuple[list[nn.Parameter], torch.Tensor]] = []  # one for each group
        params = list(params)
        for each in params if isinstance(params[0], dict) else [{"params": params}]:
            self.add_param_group(each)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One for each group that was given; "params" holds its shard."""
        return self.inner.param_groups

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for params, _ in self.flats:
            for param in params:
                param.grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Takes care of more parameters."""
        params = [param for param in param_group["params"] if param.requires_grad]
        flat = flatten(params, self.group)
        self.flats.append((params, flat))
        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
        own = {**param_group, "params": [shard]}
        if self.inner is None:
            self.inner = self.optimizer([own], **self.options)
        else:
            self.inner.add_param_group(own)

    @torch.no_grad()
    def step(self) -> None:
        """Averages the gradients, updates this rank's shards, collects the parameters."""
        pairs = zip(self.flats, self.inner.param_groups, strict=True)  # mutate: same
        for (params, flat), own in pairs:
            rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
            full = torch.zeros_like(flat)
            row = torch.cat([row.reshape(-1) for row in rows])
            full[: row.numel()] = row
            (shard,) = own["params"]
            mine = torch.empty_like(shard)
            reduce_scatter(mine, full, self.group, "avg")
            shard.grad = mine
        self.inner.step()
        for _, flat in self.flats:
            part = flat.view(self.group.size, -1)[self.group.index].clone()
            all_gather(flat, part, self.group)
'''),
    Right("variant_by_slices", "the shard is a slice of the flat tensor", '''
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter


def flatten(params: list[nn.Parameter], group: Group) -> torch.Tensor:
    """Makes parameters views of one flat tensor, padded for `group`, the same on all ranks."""
    count = sum(p.numel() for p in params)
    flat = params[0].new_zeros(-(-count // group.size) * group.size)
    parts = flat[:count].split([p.numel() for p in params])
    for param, part in zip(params, parts, strict=True):
        part.copy_(param.detach().reshape(-1))
        param.data = part.view(param.shape)
    broadcast(flat, 0, group)
    return flat


class Zero1:
    """Wraps an optimizer class.

    Args:
        params: parameters, or parameter groups (dicts with "params"), as for any optimizer.
        optimizer: a class, `torch.optim.AdamW` for example.
        group: the ranks.
        options: for the optimizer.
    """

    def __init__(
        self, params: Iterable[Any], optimizer: Callable[..., Any], group: Group, **options: Any
    ) -> None:
        self.optimizer, self.group, self.options = optimizer, group, options
        self.inner: Any = None  # the optimizer of this rank's shards
        self.flats: list[tuple[list[nn.Parameter], torch.Tensor]] = []  # one for each group
        params = list(params)
        for each in params if isinstance(params[0], dict) else [{"params": params}]:
            self.add_param_group(each)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One for each group that was given; "params" holds its shard."""
        return self.inner.param_groups

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for params, _ in self.flats:
            for param in params:
                param.grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Takes care of more parameters."""
        params = [param for param in param_group["params"] if param.requires_grad]
        flat = flatten(params, self.group)
        self.flats.append((params, flat))
        each = len(flat) // self.group.size
        shard = nn.Parameter(flat[self.group.index * each :][:each])
        own = {**param_group, "params": [shard]}
        if self.inner is None:
            self.inner = self.optimizer([own], **self.options)
        else:
            self.inner.add_param_group(own)

    @torch.no_grad()
    def step(self) -> None:
        """Averages the gradients, updates this rank's shards, collects the parameters."""
        pairs = zip(self.flats, self.inner.param_groups, strict=True)  # mutate: same
        for (params, flat), own in pairs:
            rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
            full = torch.zeros_like(flat)
            row = torch.cat([row.reshape(-1) for row in rows])
            full[: row.numel()] = row
            (shard,) = own["params"]
            shard.grad = ring_reduce_scatter(full, self.group, "avg")
        self.inner.step()
        for _, flat in self.flats:
            ring_all_gather(flat, self.group)
'''),
    Right("variant_views", "one tensor of gradients, filled in views; divided before sending", '''
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter


def flatten(params: list[nn.Parameter], group: Group) -> torch.Tensor:
    """Makes parameters views of one flat tensor, padded for `group`, the same on all ranks."""
    count = sum(p.numel() for p in params)
    flat = params[0].new_zeros(-(-count // group.size) * group.size)
    parts = flat[:count].split([p.numel() for p in params])
    for param, part in zip(params, parts, strict=True):
        part.copy_(param.detach().reshape(-1))
        param.data = part.view(param.shape)
    broadcast(flat, 0, group)
    return flat


class Zero1:
    """Wraps an optimizer class.

    Args:
        params: parameters, or parameter groups (dicts with "params"), as for any optimizer.
        optimizer: a class, `torch.optim.AdamW` for example.
        group: the ranks.
        options: for the optimizer.
    """

    def __init__(
        self, params: Iterable[Any], optimizer: Callable[..., Any], group: Group, **options: Any
    ) -> None:
        self.optimizer, self.group, self.options = optimizer, group, options
        self.inner: Any = None  # the optimizer of this rank's shards
        self.flats: list[tuple[list[nn.Parameter], torch.Tensor]] = []  # one for each group
        params = list(params)
        for each in params if isinstance(params[0], dict) else [{"params": params}]:
            self.add_param_group(each)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One for each group that was given; "params" holds its shard."""
        return self.inner.param_groups

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for params, _ in self.flats:
            for param in params:
                param.grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Takes care of more parameters."""
        params = [param for param in param_group["params"] if param.requires_grad]
        flat = flatten(params, self.group)
        self.flats.append((params, flat))
        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
        own = {**param_group, "params": [shard]}
        if self.inner is None:
            self.inner = self.optimizer([own], **self.options)
        else:
            self.inner.add_param_group(own)

    @torch.no_grad()
    def step(self) -> None:
        """Averages the gradients, updates this rank's shards, collects the parameters."""
        pairs = zip(self.flats, self.inner.param_groups, strict=True)  # mutate: same
        for (params, flat), own in pairs:
            full = torch.zeros_like(flat)
            at = 0
            for param in params:
                if param.grad is not None:
                    full[at : at + param.numel()].view(param.shape).add_(param.grad)
                at += param.numel()
            full /= self.group.size
            (shard,) = own["params"]
            shard.grad = ring_reduce_scatter(full, self.group)
        self.inner.step()
        for _, flat in self.flats:
            ring_all_gather(flat, self.group)
'''),
]
