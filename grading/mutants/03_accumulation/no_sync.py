"""Wrong and right answers to `no_sync`: see `course dev show no_sync`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("forgets_the_forward_at_the_begin", ["what the forward has captured"], '''
-        before, self.synchronises = self.synchronises, False
+        before = self.synchronises
+        self.synchronises = self._captured = False
'''),
    Wrong("forgets_the_forward_at_the_end", ["what the forward has captured"], '''
-            self.synchronises = before
+            self.synchronises = self._captured = before
'''),
    Wrong("divides_by_k", ["the last window is shorter"], '''
-                loss = loss_fn(ddp(inputs), targets) / len(window)
+                loss = loss_fn(ddp(inputs), targets) / k
'''),
    Wrong("does_nothing", ["no_sync() does not change", "each micro-batch is synchronised"], '''
-        before, self.synchronises = self.synchronises, False
-        try:
-            yield
-        finally:
-            self.synchronises = before
+        yield
'''),
    Wrong("ends_in_a_barrier_of_torch", ["past course_lib.comm"], '''
                 loss.backward()
+        torch.distributed.barrier()
'''),
    Wrong("everything_inside_no_sync", ["this rank's own gradients", "nothing was synchronised"], '''
-            with nullcontext() if number == len(window) else ddp.no_sync():
+            with ddp.no_sync():
'''),
    Wrong("flag_around_backward_only", ["around the backward only", "captured"], '''
         for number, (inputs, targets) in enumerate(window, 1):
+            loss = loss_fn(ddp(inputs), targets) / len(window)
@@
-                loss = loss_fn(ddp(inputs), targets) / len(window)
'''),
    Wrong("last_window_dropped", ["fewer than k micro-batches", "was dropped"], '''
-    for begin in range(0, len(micro_batches), k):
+    for begin in range(0, len(micro_batches) - k + 1, k):
'''),
    Wrong("last_window_without_sync", ["only full windows synchronise"], '''
-            with nullcontext() if number == len(window) else ddp.no_sync():
+            with nullcontext() if number == k else ddp.no_sync():
'''),
    Wrong("never_put_back", ["the old value is not restored when the block ends"], '''
-        before, self.synchronises = self.synchronises, False
-        try:
-            yield
-        finally:
-            self.synchronises = before
+        self.synchronises = False
+        yield
'''),
    Wrong("never_zeroes", ["gradients from before the epoch are still in it"], '''
-        optimizer.zero_grad()
'''),
    Wrong("no_finally", ["an exception skipped the line"], '''
-        try:
-            yield
-        finally:
-            self.synchronises = before
+        yield
+        self.synchronises = before
'''),
    Wrong("off_by_one_window", ["windows are off by one"], '''
-    for begin in range(0, len(micro_batches), k):
-        window = micro_batches[begin : begin + k]  # mutate: same
-        optimizer.zero_grad()
-        for number, (inputs, targets) in enumerate(window, 1):
-            with nullcontext() if number == len(window) else ddp.no_sync():
-                loss = loss_fn(ddp(inputs), targets) / len(window)
-                loss.backward()
-        optimizer.step()
+    optimizer.zero_grad()
+    last = len(micro_batches) - 1
+    for number, (inputs, targets) in enumerate(micro_batches):
+        with nullcontext() if number % k == 0 or number == last else ddp.no_sync():
+            (loss_fn(ddp(inputs), targets) / k).backward()
+        if number % k == 0 or number == last:
+            optimizer.step()
+            optimizer.zero_grad()
'''),
    Wrong("one_graph", ["forwards and backwards do not alternate", "several micro-batches are held"], '''
-        for number, (inputs, targets) in enumerate(window, 1):
-            with nullcontext() if number == len(window) else ddp.no_sync():
-                loss = loss_fn(ddp(inputs), targets) / len(window)
-                loss.backward()
+        losses = [loss_fn(ddp(inputs), targets) / len(window) for inputs, targets in window]
+        torch.stack(losses).sum().backward()
'''),
    Wrong("puts_back_true", ["the inner no_sync() set it to True"], '''
-        before, self.synchronises = self.synchronises, False
+        self.synchronises = False
@@
-            self.synchronises = before
+            self.synchronises = True
'''),
    Wrong("sets_what_the_forward_captures", ["no_sync() does not change"], '''
-        before, self.synchronises = self.synchronises, False
+        before, self._captured = self._captured, False
@@
-            self.synchronises = before
+            self._captured = before
'''),
    Wrong("steps_every_micro_batch", ["an update after every micro-batch"], '''
-        optimizer.step()
+            optimizer.step()
'''),
    Wrong("steps_once_an_epoch", ["the number of updates"], '''
-        optimizer.step()
+    optimizer.step()
'''),
    Wrong("sum_over_the_window", ["the sum over the window"], '''
-                loss = loss_fn(ddp(inputs), targets) / len(window)
+                loss = loss_fn(ddp(inputs), targets)
'''),
    Wrong("swallows_exceptions", ["swallowed an exception"], '''
             yield
+        except KeyError:
+            pass
'''),
    Wrong("switches_gradients_off", ["does not require grad"], '''
-            yield
+            with torch.no_grad():
+                yield
'''),
    Wrong("synchronises_by_hand_as_well", ["the bytes given to collectives"], '''
                 loss.backward()
+        for parameter in ddp.module.parameters():
+            if parameter.requires_grad:
+                all_reduce(parameter.grad, ddp.group, "avg")
'''),
    Wrong("synchronises_every_micro_batch", ["each micro-batch is synchronised"], '''
-            with nullcontext() if number == len(window) else ddp.no_sync():
+            with nullcontext():
'''),
    Wrong("synchronises_the_first", ["gradients before update 1"], '''
-            with nullcontext() if number == len(window) else ddp.no_sync():
+            with nullcontext() if number == 1 else ddp.no_sync():
'''),
    Wrong("toggles", ["the inner no_sync()"], '''
-        before, self.synchronises = self.synchronises, False
+        self.synchronises = not self.synchronises
@@
-            self.synchronises = before
+            self.synchronises = not self.synchronises
'''),
    Wrong("zeroes_at_the_end_of_the_block", ["only the last micro-batch counts"], '''
             self.synchronises = before
+            for parameter in self._trained:
+                parameter.grad = None
'''),
    Wrong("zeroes_every_micro_batch", ["only the last micro-batch counts"], '''
-        optimizer.zero_grad()
@@
         for number, (inputs, targets) in enumerate(window, 1):
+            optimizer.zero_grad()
'''),
    Wrong("zeroes_last", ["gradients from before the epoch are still in it"], '''
-        optimizer.zero_grad()
@@
         optimizer.step()
+        optimizer.zero_grad()
'''),
]

RIGHT = [
    Right("variant_class", "a context manager as a class", '''
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DDP(nn.Module):
    """Replicas whose gradients are averaged when a backward ends.

    Args:
        module: the model.
        group: the ranks.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.synchronises = True
        self._captured = False  # what `synchronises` was in the last forward
        self._asked = False  # whether this backward will call `_average`
        self._trained = [p for p in module.parameters() if p.requires_grad]
        for parameter in module.parameters():
            broadcast(parameter.detach(), 0, group)
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The model's forward; remembers whether its backward is to synchronise."""
        self._captured = self.synchronises
        return self.module(*inputs)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """Called by autograd for each gradient; the first one asks it to call `_average`."""
        if self._captured and not self._asked:
            self._asked = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        """The backward has ended: all gradients, with all that was added up in them."""
        self._asked = False
        for parameter in self._trained:
            if parameter.grad is None:  # not used in any forward here
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, self.group, "avg")

    def no_sync(self):
        return NoSync(self)


class NoSync:
    def __init__(self, ddp):
        self.ddp = ddp

    def __enter__(self):
        self.before = self.ddp.synchronises
        self.ddp.synchronises = False

    def __exit__(self, *error):
        self.ddp.synchronises = self.before


def train_epoch(
    ddp: DDP,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    k: int,
) -> None:
    """One pass over the micro-batches, with an update for every k of them.

    Args:
        ddp: the model.
        optimizer: of its parameters.
        loss_fn: outputs and targets of one micro-batch to the mean loss of that micro-batch.
        micro_batches: (inputs, targets) each, all of one size; equally many on every rank.
        k: micro-batches of an update; the last update of the epoch may have fewer.
    """
    for begin in range(0, len(micro_batches), k):
        window = micro_batches[begin : begin + k]
        optimizer.zero_grad()
        for number, (inputs, targets) in enumerate(window, 1):
            with nullcontext() if number == len(window) else ddp.no_sync():
                loss = loss_fn(ddp(inputs), targets) / len(window)
                loss.backward()
        optimizer.step()
'''),
    Right("variant_counts_through", "one loop over the epoch, gradients divided at the end of a window", '''
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DDP(nn.Module):
    """Replicas whose gradients are averaged when a backward ends.

    Args:
        module: the model.
        group: the ranks.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.synchronises = True
        self._captured = False  # what `synchronises` was in the last forward
        self._asked = False  # whether this backward will call `_average`
        self._trained = [p for p in module.parameters() if p.requires_grad]
        for parameter in module.parameters():
            broadcast(parameter.detach(), 0, group)
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The model's forward; remembers whether its backward is to synchronise."""
        self._captured = self.synchronises
        return self.module(*inputs)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """Called by autograd for each gradient; the first one asks it to call `_average`."""
        if self._captured and not self._asked:
            self._asked = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        """The backward has ended: all gradients, with all that was added up in them."""
        self._asked = False
        for parameter in self._trained:
            if parameter.grad is None:  # not used in any forward here
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, self.group, "avg")

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards of forwards made inside do not synchronise."""
        before, self.synchronises = self.synchronises, False
        try:
            yield
        finally:
            self.synchronises = before


def train_epoch(
    ddp: DDP,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    k: int,
) -> None:
    """One pass over the micro-batches, with an update for every k of them.

    Args:
        ddp: the model.
        optimizer: of its parameters.
        loss_fn: outputs and targets of one micro-batch to the mean loss of that micro-batch.
        micro_batches: (inputs, targets) each, all of one size; equally many on every rank.
        k: micro-batches of an update; the last update of the epoch may have fewer.
    """
    optimizer.zero_grad()
    held = 0
    for number, (inputs, targets) in enumerate(micro_batches, 1):
        held += 1
        ends = number % k == 0 or number == len(micro_batches)
        with nullcontext() if ends else ddp.no_sync():
            loss_fn(ddp(inputs), targets).backward()
        if ends:
            for parameter in ddp.module.parameters():
                if parameter.grad is not None:
                    parameter.grad /= held
            optimizer.step()
            optimizer.zero_grad()
            held = 0
'''),
    Right("variant_first_and_last", "one no_sync block for all but the last of a window", '''
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DDP(nn.Module):
    """Replicas whose gradients are averaged when a backward ends.

    Args:
        module: the model.
        group: the ranks.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.synchronises = True
        self._captured = False  # what `synchronises` was in the last forward
        self._asked = False  # whether this backward will call `_average`
        self._trained = [p for p in module.parameters() if p.requires_grad]
        for parameter in module.parameters():
            broadcast(parameter.detach(), 0, group)
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The model's forward; remembers whether its backward is to synchronise."""
        self._captured = self.synchronises
        return self.module(*inputs)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """Called by autograd for each gradient; the first one asks it to call `_average`."""
        if self._captured and not self._asked:
            self._asked = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        """The backward has ended: all gradients, with all that was added up in them."""
        self._asked = False
        for parameter in self._trained:
            if parameter.grad is None:  # not used in any forward here
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, self.group, "avg")

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards of forwards made inside do not synchronise."""
        before, self.synchronises = self.synchronises, False
        try:
            yield
        finally:
            self.synchronises = before


def train_epoch(
    ddp: DDP,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    k: int,
) -> None:
    """One pass over the micro-batches, with an update for every k of them.

    Args:
        ddp: the model.
        optimizer: of its parameters.
        loss_fn: outputs and targets of one micro-batch to the mean loss of that micro-batch.
        micro_batches: (inputs, targets) each, all of one size; equally many on every rank.
        k: micro-batches of an update; the last update of the epoch may have fewer.
    """
    for begin in range(0, len(micro_batches), k):
        window = micro_batches[begin : begin + k]
        optimizer.zero_grad()
        with ddp.no_sync():
            for inputs, targets in window[:-1]:
                (loss_fn(ddp(inputs), targets) / len(window)).backward()
        inputs, targets = window[-1]
        (loss_fn(ddp(inputs), targets) / len(window)).backward()
        optimizer.step()
'''),
]
