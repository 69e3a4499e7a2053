"""Wrong and right answers to `fsdp_unit`: see `course dev show fsdp_unit`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("a_collective_for_each_weight", ["one for each weight: send the unit's flat tensor"], '''
-        all_gather(self.full, self.shard.detach(), self.group)  # mutate: same
+        step = -(-len(self.shard) // 3)
+        rows = self.full.view(self.group.size, -1)
+        for begin in range(0, len(self.shard), step):
+            part = self.shard.detach()[begin : begin + step]
+            whole = part.new_empty(self.group.size * len(part))
+            all_gather(whole, part, self.group)
+            rows[:, begin : begin + step] = whole.view(self.group.size, -1)
@@
-        reduce_scatter(mean, flat, self.group, "avg")
+        step = -(-len(mean) // 3)
+        rows = flat.view(self.group.size, -1)
+        for begin in range(0, len(mean), step):
+            part = mean[begin : begin + step]
+            reduce_scatter(part, rows[:, begin : begin + step].flatten(), self.group, "avg")
'''),
    Wrong("all_reduces_the_gradient", ["no reduce-scatter: if the gradients were all-reduced", "DDP in disguise"], '''
 from course_lib.comm import Group, all_gather, reduce_scatter
+from course_lib.comm import all_reduce
@@
-        mean = torch.empty_like(self.shard)
-        reduce_scatter(mean, flat, self.group, "avg")
+        all_reduce(flat, self.group, "avg")
+        mean = flat.chunk(self.group.size)[self.group.index].clone()
'''),
    Wrong("ddp_in_disguise", ["every rank keeps the whole unit: DDP in disguise"], '''
 from course_lib.comm import Group, all_gather, reduce_scatter
+from course_lib.comm import all_reduce
@@
-        self.shard = nn.Parameter(flat.chunk(group.size)[group.index].clone())
+        self.shard = nn.Parameter(flat.clone())
@@
-        all_gather(self.full, self.shard.detach(), self.group)  # mutate: same
+        self.full.copy_(self.shard.detach())
@@
-        mean = torch.empty_like(self.shard)
-        reduce_scatter(mean, flat, self.group, "avg")
-        self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
+        all_reduce(flat, self.group, "avg")
+        self.shard.grad = flat if self.shard.grad is None else self.shard.grad + flat
'''),
    Wrong("divided_twice", ["divided by N twice"], '''
         reduce_scatter(mean, flat, self.group, "avg")
+        mean /= self.group.size
'''),
    Wrong("drops_only_its_own_views", ["shrink the storage in `after_forward`, since autograd holds the views"], '''
-        self.full.untyped_storage().resize_(self.full.nbytes)
+        self.full = self.shard.new_empty(self.group.size * len(self.shard)).detach()
@@
         all_gather(self.full, self.shard.detach(), self.group)  # mutate: same
+        for weight, view in zip(self.weights, self.views(self.full), strict=True):
+            weight.data = view
@@
-        self.full.untyped_storage().resize_(0)
+        self.full = None
+        for weight in self.weights:
+            weight.data = weight.data.new_empty(0)
@@
-        flat = torch.zeros_like(self.full)
+        flat = self.shard.detach().new_zeros(self.group.size * len(self.shard))
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
-        mean = torch.empty_like(self.shard)
-        reduce_scatter(mean, flat, self.group, "avg")
+        mean = torch.empty_like(self.shard, dtype=torch.float32)
+        reduce_scatter(mean, flat.float(), self.group, "avg")
+        mean = mean.double()
'''),
    Wrong("frees_after_the_reduction", ["three blocks are there at once: free the weights before"], '''
-        self.free()  # first: the flat gradient takes its place
@@
         self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
+        self.free()
'''),
    Wrong("gathers_once", ["the shards after 3 steps of SGD", "has the wrong value"], '''
         self.weights = [view.data.requires_grad_() for view in self.views(flat)]
-        self.free()
+        self.full.untyped_storage().resize_(0)
@@
-        self.full.untyped_storage().resize_(self.full.nbytes)
-        all_gather(self.full, self.shard.detach(), self.group)  # mutate: same
+        if not self.full.untyped_storage().nbytes():
+            self.full.untyped_storage().resize_(self.full.nbytes)
+            all_gather(self.full, self.shard.detach(), self.group)
@@
-        self.full.untyped_storage().resize_(0)
+        pass
'''),
    Wrong("gradient_scaled_by_n", ["the gradient is multiplied by N"], '''
-        reduce_scatter(mean, flat, self.group, "avg")
+        reduce_scatter(mean, flat, self.group)
'''),
    Wrong("kept_until_backward", ["the weights are not gathered again for the backward", "the weights of earlier units are still there: shrink the storage"], '''
         # BEGIN SOLUTION: after forward
-        self.free()
+        pass
@@
         # BEGIN SOLUTION: before backward
-        self.gather()
+        pass
'''),
    Wrong("leaves_the_weights_after_backward", ["the weights are never freed", "weights or gradients of earlier units are still there"], '''
-        self.free()  # first: the flat gradient takes its place
'''),
    Wrong("never_freed", ["the weights are never freed", "the peak of the forward"], '''
-        self.full.untyped_storage().resize_(0)
+        pass
'''),
    Wrong("never_reshards", ["the weights are never freed", "no reduce-scatter: if the gradients were all-reduced"], '''
 from course_lib.comm import Group, all_gather, reduce_scatter
+from course_lib.comm import all_reduce
@@
-        self.full.untyped_storage().resize_(0)
+        pass
@@
-        mean = torch.empty_like(self.shard)
-        reduce_scatter(mean, flat, self.group, "avg")
+        all_reduce(flat, self.group, "avg")
+        mean = flat.chunk(self.group.size)[self.group.index].clone()
'''),
    Wrong("no_memory_before_the_gather", ["storage"], '''
-        self.full.untyped_storage().resize_(self.full.nbytes)
'''),
    Wrong("not_gathered_again", ["a block's backward begins without its weights: see before_backward"], '''
         # BEGIN SOLUTION: before backward
-        self.gather()
+        pass
'''),
    Wrong("nothing_used_nothing_sent", ["one whose block used no weight takes part with zeros"], '''
         self.free()  # first: the flat gradient takes its place
+        if all(weight.grad is None for weight in self.weights):
+            return
'''),
    Wrong("only_a_backward_frees", ["free them in `after_forward`, under no_grad, too"], '''
         # BEGIN SOLUTION: after forward
-        self.free()
+        if torch.is_grad_enabled():
+            self.free()
'''),
    Wrong("own_gradient", ["this rank's own gradient: nothing was reduced"], '''
-        reduce_scatter(mean, flat, self.group, "avg")
+        mean.copy_(flat.chunk(self.group.size)[self.group.index])
'''),
    Wrong("past_comm", ["past course_lib.comm"], '''
 from course_lib.comm import Group, all_gather, reduce_scatter
+import torch.distributed as dist
@@
-        all_gather(self.full, self.shard.detach(), self.group)  # mutate: same
+        dist.all_gather_into_tensor(self.full, self.shard.detach())
'''),
    Wrong("replaces_the_gradient", ["only the second one: add to `shard.grad`"], '''
-        self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
+        self.shard.grad = mean
'''),
    Wrong("steps_on_the_gradient_of_the_last_backward", ["only the first one: the second backward changed nothing"], '''
-        self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
+        if self.shard.grad is None:
+            self.shard.grad = mean
'''),
    Wrong("tensor_resize_keeps_the_storage", ["the weights are never freed"], '''
-        self.full.untyped_storage().resize_(0)
+        count = self.full.numel()
+        self.full.resize_(0)
+        self.full.resize_(count)
'''),
    Wrong("uninitialised_gradient", ["are NaN"], '''
-        flat = torch.zeros_like(self.full)
+        flat = torch.empty_like(self.full)
'''),
    Wrong("unused_weights_unknown", ["AttributeError", "exception"], '''
-            if weight.grad is not None:
-                view.copy_(weight.grad)
+            view.copy_(weight.grad.detach())
'''),
    Wrong("wider_than_the_gradient", ["it was converted to a wider dtype before it was sent"], '''
-        mean = torch.empty_like(self.shard)
-        reduce_scatter(mean, flat, self.group, "avg")
+        mean = torch.empty_like(self.shard, dtype=torch.float64)
+        reduce_scatter(mean, flat.double(), self.group, "avg")
+        mean = mean.to(self.shard.dtype)
'''),
    Wrong("weights_keep_their_gradient", ["the first one is counted twice: a weight has kept its `grad`", "gradients of earlier units are still there"], '''
-            weight.grad = None
'''),
]

RIGHT = [
    Right("variant_cat", "the flat gradient by cat, the weights freed at the last moment", '''
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_gather, reduce_scatter


class Moment(torch.autograd.Function):
    """Hands a tensor on unchanged; calls `call` when the backward comes by."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shard: torch.Tensor, call: Callable[[], None]) -> Any:
        """`x` itself."""
        ctx.call = call  # `shard` needs a gradient, so autograd comes by even if `x` needs none
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradient itself."""
        ctx.call()
        return grads[0], None, None


class FSDPUnit(nn.Module):
    """One block with sharded weights.

    Args:
        block: `block(x, *weights)` returns a tensor; `x` is a tensor of floats.
        weights: the same values on every rank, one dtype.
        group: the ranks.

    Attributes:
        shard: this rank's part of `full`, flat; the only parameter.
        full: all weights and the padding, flat; its storage is empty between uses.
        weights: what the block gets; leaves of autograd, views of `full`.
    """

    def __init__(
        self, block: Callable[..., torch.Tensor], weights: Sequence[torch.Tensor], group: Group
    ) -> None:
        super().__init__()
        self.block, self.group = block, group
        self.shapes = [weight.shape for weight in weights]
        flat = torch.cat([weight.detach().flatten() for weight in weights])
        flat = nn.functional.pad(flat, (0, -len(flat) % group.size))
        self.shard = nn.Parameter(flat.chunk(group.size)[group.index].clone())
        self.full = flat
        # `.data`: filling `full` again must not look like a change of what autograd has saved.
        self.weights = [view.data.requires_grad_() for view in self.views(flat)]
        self.free()

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The parts of a tensor like `full`, in the shapes of the weights."""
        counts = [shape.numel() for shape in self.shapes]
        parts = flat[: sum(counts)].split(counts)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output; around it, in both passes, the four moments."""
        x = Moment.apply(x, self.shard, self.after_backward)
        self.before_forward()
        y = self.block(x, *self.weights)
        self.after_forward()
        return Moment.apply(y, self.shard, self.before_backward)

    def gather(self) -> None:
        """Makes the weights whole: memory for `full`, then everybody's shard."""
        self.full.untyped_storage().resize_(self.full.nbytes)
        all_gather(self.full, self.shard.detach(), self.group)

    def free(self) -> None:
        """Gives the weights' memory back."""
        self.full.untyped_storage().resize_(0)

    def before_forward(self) -> None:
        """The block is about to compute."""
        self.gather()

    def after_forward(self) -> None:
        """The block has computed."""
        self.free()

    def before_backward(self) -> None:
        """The gradient of the block's output is there."""
        self.gather()

    def after_backward(self) -> None:
        """Every weight that was used has its `grad`: this rank's own gradient."""
        self.full.untyped_storage().resize_(0)
        grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
        padding = self.full.numel() - sum(grad.numel() for grad in grads)
        flat = torch.cat([*(grad.flatten() for grad in grads), self.shard.new_zeros(padding).detach()])
        del grads
        for weight in self.weights:
            weight.grad = None
        mean = torch.empty_like(self.shard)
        reduce_scatter(mean, flat, self.group, "avg")
        if self.shard.grad is not None:
            mean += self.shard.grad
        self.shard.grad = mean.detach()
'''),
    Right("variant_rings", "the rings of lesson 01", '''
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, ring_all_gather, ring_reduce_scatter


class Moment(torch.autograd.Function):
    """Hands a tensor on unchanged; calls `call` when the backward comes by."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shard: torch.Tensor, call: Callable[[], None]) -> Any:
        """`x` itself."""
        ctx.call = call  # `shard` needs a gradient, so autograd comes by even if `x` needs none
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradient itself."""
        ctx.call()
        return grads[0], None, None


class FSDPUnit(nn.Module):
    """One block with sharded weights.

    Args:
        block: `block(x, *weights)` returns a tensor; `x` is a tensor of floats.
        weights: the same values on every rank, one dtype.
        group: the ranks.

    Attributes:
        shard: this rank's part of `full`, flat; the only parameter.
        full: all weights and the padding, flat; its storage is empty between uses.
        weights: what the block gets; leaves of autograd, views of `full`.
    """

    def __init__(
        self, block: Callable[..., torch.Tensor], weights: Sequence[torch.Tensor], group: Group
    ) -> None:
        super().__init__()
        self.block, self.group = block, group
        self.shapes = [weight.shape for weight in weights]
        flat = torch.cat([weight.detach().flatten() for weight in weights])
        flat = nn.functional.pad(flat, (0, -len(flat) % group.size))
        self.shard = nn.Parameter(flat.chunk(group.size)[group.index].clone())
        self.full = flat
        # `.data`: filling `full` again must not look like a change of what autograd has saved.
        self.weights = [view.data.requires_grad_() for view in self.views(flat)]
        self.free()

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The parts of a tensor like `full`, in the shapes of the weights."""
        counts = [shape.numel() for shape in self.shapes]
        parts = flat[: sum(counts)].split(counts)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output; around it, in both passes, the four moments."""
        x = Moment.apply(x, self.shard, self.after_backward)
        self.before_forward()
        y = self.block(x, *self.weights)
        self.after_forward()
        return Moment.apply(y, self.shard, self.before_backward)

    def gather(self) -> None:
        """Makes the weights whole: memory for `full`, then everybody's shard."""
        self.full.untyped_storage().resize_(self.full.nbytes)
        self.full.chunk(self.group.size)[self.group.index].copy_(self.shard.detach())
        ring_all_gather(self.full, self.group)

    def free(self) -> None:
        """Gives the weights' memory back."""
        self.full.untyped_storage().resize_(0)

    def before_forward(self) -> None:
        """The block is about to compute."""
        self.gather()

    def after_forward(self) -> None:
        """The block has computed."""
        self.free()

    def before_backward(self) -> None:
        """The gradient of the block's output is there."""
        self.gather()

    def after_backward(self) -> None:
        """Every weight that was used has its `grad`: this rank's own gradient."""
        self.free()  # first: the flat gradient takes its place
        flat = torch.zeros_like(self.full)
        pairs = zip(self.weights, self.views(flat), strict=True)
        for weight, view in pairs:
            if weight.grad is not None:
                view.copy_(weight.grad)
            weight.grad = None
        mean = ring_reduce_scatter(flat, self.group, "avg").clone()
        self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
'''),
    Right("variant_sum_then_divide", "a sum that is divided; asynchronous calls; accumulates in place", '''
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_gather, reduce_scatter


class Moment(torch.autograd.Function):
    """Hands a tensor on unchanged; calls `call` when the backward comes by."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shard: torch.Tensor, call: Callable[[], None]) -> Any:
        """`x` itself."""
        ctx.call = call  # `shard` needs a gradient, so autograd comes by even if `x` needs none
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradient itself."""
        ctx.call()
        return grads[0], None, None


class FSDPUnit(nn.Module):
    """One block with sharded weights.

    Args:
        block: `block(x, *weights)` returns a tensor; `x` is a tensor of floats.
        weights: the same values on every rank, one dtype.
        group: the ranks.

    Attributes:
        shard: this rank's part of `full`, flat; the only parameter.
        full: all weights and the padding, flat; its storage is empty between uses.
        weights: what the block gets; leaves of autograd, views of `full`.
    """

    def __init__(
        self, block: Callable[..., torch.Tensor], weights: Sequence[torch.Tensor], group: Group
    ) -> None:
        super().__init__()
        self.block, self.group = block, group
        self.shapes = [weight.shape for weight in weights]
        flat = torch.cat([weight.detach().flatten() for weight in weights])
        flat = nn.functional.pad(flat, (0, -len(flat) % group.size))
        self.shard = nn.Parameter(flat.chunk(group.size)[group.index].clone())
        self.full = flat
        # `.data`: filling `full` again must not look like a change of what autograd has saved.
        self.weights = [view.data.requires_grad_() for view in self.views(flat)]
        self.free()

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The parts of a tensor like `full`, in the shapes of the weights."""
        counts = [shape.numel() for shape in self.shapes]
        parts = flat[: sum(counts)].split(counts)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output; around it, in both passes, the four moments."""
        x = Moment.apply(x, self.shard, self.after_backward)
        self.before_forward()
        y = self.block(x, *self.weights)
        self.after_forward()
        return Moment.apply(y, self.shard, self.before_backward)

    def gather(self) -> None:
        """Makes the weights whole: memory for `full`, then everybody's shard."""
        self.full.untyped_storage().resize_(self.full.nbytes)
        all_gather(self.full, self.shard.data, self.group, async_op=True).wait()

    def free(self) -> None:
        """Gives the weights' memory back."""
        self.full.untyped_storage().resize_(0)

    def before_forward(self) -> None:
        """The block is about to compute."""
        self.gather()

    def after_forward(self) -> None:
        """The block has computed."""
        self.free()

    def before_backward(self) -> None:
        """The gradient of the block's output is there."""
        self.gather()

    def after_backward(self) -> None:
        """Every weight that was used has its `grad`: this rank's own gradient."""
        self.free()  # first: the flat gradient takes its place
        flat = torch.zeros_like(self.full)
        pairs = zip(self.weights, self.views(flat), strict=True)
        for weight, view in pairs:
            if weight.grad is not None:
                view.copy_(weight.grad)
            weight.grad = None
        mean = torch.empty_like(self.shard)
        reduce_scatter(mean, flat, self.group, async_op=True).wait()
        mean /= self.group.size
        if self.shard.grad is None:
            self.shard.grad = torch.zeros_like(self.shard)
        self.shard.grad += mean
'''),
]
