"""Wrong and right answers to `hsdp`: see `course dev show hsdp`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("keeps_the_gradient_itself", ["`weights.grad` shares its memory"], '''
-        mean = torch.empty_like(self.weights)
+        if self.shard.size * self.replica.size == 1 and self.weights.grad is None:
+            self.weights.grad = gradient
+            return
+        mean = torch.empty_like(self.weights)
@@
-        self.weights.grad = mean if self.weights.grad is None else self.weights.grad + mean
+        if self.weights.grad is None:
+            self.weights.grad = torch.zeros_like(mean)
+        self.weights.grad += mean
'''),
    Wrong("place_in_the_node_from_the_rank", ["its number in the world does not tell it"], '''
-        mine = padded(flat, shard.size).chunk(shard.size)[shard.index]
+        mine = padded(flat, shard.size).chunk(shard.size)[shard.rank % shard.size]
'''),
    Wrong("all_reduces_on_both_axes", ["the gradient is all-reduced"], '''
-        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
+        whole = padded(gradient, self.shard.size).clone()
+        all_reduce(whole, self.shard, "avg")
+        mean.copy_(whole.chunk(self.shard.size)[self.shard.index])
'''),
    Wrong("changes_what_it_was_given", ["reduce has changed the gradient"], '''
         reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
+        gradient.zero_()
'''),
    Wrong("divides_again", ["divided by the number of ranks twice"], '''
         all_reduce(mean, self.replica, "avg")
+        mean /= self.shard.size * self.replica.size
'''),
    Wrong("every_rank_keeps_all", ["the shard", "has the wrong shape"], '''
-        mine = padded(flat, shard.size).chunk(shard.size)[shard.index]
+        mine = flat
@@
-        whole = mine.new_empty(len(mine) * self.shard.size)
-        all_gather(whole, mine, self.shard)
-        return whole[: self.size]
+        return mine.clone()
@@
-        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
+        mean.copy_(gradient)
+        all_reduce(mean, self.shard, "avg")
'''),
    Wrong("keeps_all_alive", ["bytes held", "keeps all of `flat` alive: clone it"], '''
-        self.weights = nn.Parameter(mine.clone())
+        self.weights = nn.Parameter(mine)
'''),
    Wrong("padding_comes_along", ["what gather returns", "has the wrong shape"], '''
-        return whole[: self.size]
+        return whole
'''),
    Wrong("replaces_the_gradient", ["only the second: `reduce` adds"], '''
-        self.weights.grad = mean if self.weights.grad is None else self.weights.grad + mean
+        self.weights.grad = mean
'''),
    Wrong("replicas_drift_apart", ["the all-reduce over `replica` is missing", "the replicas' gradients are never reduced"], '''
-        all_reduce(mean, self.replica, "avg")
'''),
    Wrong("shards_over_the_replicas", ["the shard (1 × 3 ranks) has the wrong shape"], '''
     def __init__(self, flat: torch.Tensor, shard: Group, replica: Group) -> None:
+        shard, replica = replica, shard
'''),
    Wrong("sizes_must_divide", ["exception"], '''
-        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
+        reduce_scatter(mean, gradient, self.shard, "avg")
'''),
    Wrong("sum_over_the_replicas", ["summed over `replica`: average over it"], '''
-        all_reduce(mean, self.replica, "avg")
+        all_reduce(mean, self.replica)
'''),
    Wrong("sum_over_the_shards", ["summed over `shard`: average over it"], '''
-        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
+        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard)
'''),
    Wrong("wider_than_the_gradient", ["it was converted to a wider dtype before it was sent"], '''
-        mean = torch.empty_like(self.weights)
-        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
+        mean = torch.empty_like(self.weights, dtype=torch.float64)
+        reduce_scatter(mean, padded(gradient.double(), self.shard.size), self.shard, "avg")
@@
         all_reduce(mean, self.replica, "avg")
+        mean = mean.to(self.weights.dtype)
'''),
    Wrong("whole_gradient_between_nodes", ["the whole gradient goes between the nodes: reduce-scatter over `shard` first"], '''
-        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
-        all_reduce(mean, self.replica, "avg")
+        whole = padded(gradient, self.shard.size).clone()
+        all_reduce(whole, self.replica, "avg")
+        reduce_scatter(mean, whole, self.shard, "avg")
'''),
]

RIGHT = [
    Right("variant_rings", "ring collectives, one division", '''
import torch
from torch import nn

from course_lib.comm import Group, ring_all_gather, ring_all_reduce, ring_reduce_scatter


def padded(row: torch.Tensor, parts: int) -> torch.Tensor:
    """The row, with zeros behind it up to a multiple of `parts` elements."""
    return nn.functional.pad(row, (0, -len(row) % parts))


class HSDP:
    """Weights that are sharded over one axis of a mesh, and replicated over the other.

    Args:
        flat: all weights, one row.
        shard: this rank's group along the axis `shard`: g ranks.
        replica: this rank's group along the axis `replica`: n ranks.

    Attributes:
        weights: this rank's shard, one row; what the optimizer gets.
    """

    def __init__(self, flat: torch.Tensor, shard: Group, replica: Group) -> None:
        self.shard, self.replica = shard, replica
        self.size = len(flat)
        mine = padded(flat, shard.size).chunk(shard.size)[shard.index]
        self.weights = nn.Parameter(mine.clone())

    def gather(self) -> torch.Tensor:
        """All weights, one row as long as `flat`."""
        mine = self.weights.detach()
        whole = mine.new_empty(len(mine) * self.shard.size)
        whole.chunk(self.shard.size)[self.shard.index].copy_(mine)
        ring_all_gather(whole, self.shard)
        return whole[: self.size]

    def reduce(self, gradient: torch.Tensor) -> None:
        """Adds the mean of all ranks' gradients to `weights.grad`.

        Args:
            gradient: of this rank's own loss, one row as long as `flat`.
        """
        mean = ring_reduce_scatter(padded(gradient, self.shard.size).clone(), self.shard).clone()
        ring_all_reduce(mean, self.replica)
        mean /= self.shard.size * self.replica.size
        self.weights.grad = mean if self.weights.grad is None else self.weights.grad + mean
'''),
    Right("variant_two_halves", "the all-reduce as two halves, the gradient added in place", '''
import torch
from torch import nn

from course_lib.comm import Group, all_gather, reduce_scatter


def padded(row: torch.Tensor, parts: int) -> torch.Tensor:
    """The row, with zeros behind it up to a multiple of `parts` elements."""
    return nn.functional.pad(row, (0, -len(row) % parts))


class HSDP:
    """Weights that are sharded over one axis of a mesh, and replicated over the other.

    Args:
        flat: all weights, one row.
        shard: this rank's group along the axis `shard`: g ranks.
        replica: this rank's group along the axis `replica`: n ranks.

    Attributes:
        weights: this rank's shard, one row; what the optimizer gets.
    """

    def __init__(self, flat: torch.Tensor, shard: Group, replica: Group) -> None:
        self.shard, self.replica = shard, replica
        self.size = len(flat)
        mine = padded(flat, shard.size).chunk(shard.size)[shard.index]
        self.weights = nn.Parameter(mine.clone())

    def gather(self) -> torch.Tensor:
        """All weights, one row as long as `flat`."""
        mine = self.weights.detach()
        whole = mine.new_empty(len(mine) * self.shard.size)
        all_gather(whole, mine, self.shard)
        return whole[: self.size]

    def reduce(self, gradient: torch.Tensor) -> None:
        """Adds the mean of all ranks' gradients to `weights.grad`.

        Args:
            gradient: of this rank's own loss, one row as long as `flat`.
        """
        mean = torch.empty_like(self.weights)
        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
        part = padded(mean, self.replica.size)
        own = part.new_empty(len(part) // self.replica.size)
        reduce_scatter(own, part, self.replica, "avg")
        part = torch.empty_like(part)
        all_gather(part, own, self.replica)
        mean = part[: len(mean)].clone()
        if self.weights.grad is None:
            self.weights.grad = torch.zeros_like(self.weights)
        self.weights.grad += mean
'''),
]
