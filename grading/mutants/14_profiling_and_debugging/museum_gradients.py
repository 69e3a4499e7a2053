"""Wrong and right answers to `museum_gradients`: see `course dev show museum_gradients`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_divided", ["all squares were divided by the ranks"], '''
-        if name in CUT or tp.index == 0:
-            squares += parameter.grad.double().square().sum()
+        squares += parameter.grad.double().square().sum() / tp.size
'''),
    Wrong("all_reduce_instead", ["more than one pass over dp"], '''
-    mean = torch.empty_like(buffer.chunk(dp.size)[dp.index])
-    reduce_scatter(mean, buffer, dp, "avg")
-    return mean
+    all_reduce(buffer, dp, "avg")
+    return buffer.chunk(dp.size)[dp.index]
'''),
    Wrong("a_float64_block_is_its_own_copy", ["of the block that was given"], '''
-    engine = copy.deepcopy(block).double()
+    own = block.bias.dtype == torch.float64
+    engine = block if own else copy.deepcopy(block).double()
'''),
    Wrong("block_with_hooks_too", ["hooks on its parameters"], '''
     engine = copy.deepcopy(block).double()
+    for name, parameter in block.named_parameters():
+        if name not in CUT:
+            parameter.register_hook(lambda grad: summed(grad, tp))
'''),
    Wrong("block_without_gradients", ["the sum of its gradients"], '''
     engine = copy.deepcopy(block).double()
+    for parameter in block.parameters():
+        parameter.grad.zero_()
'''),
    Wrong("block_trains", ["whether it trains, of the block"], '''
     engine = copy.deepcopy(block).double()
+    block.train()
'''),
    Wrong("engine_as_it_was", ["whether the engine trains"], '''
-    return engine.train()  # mutate: same
+    return engine
'''),
    Wrong("by_way_of_float32", ["wrong value"], '''
-    engine = copy.deepcopy(block).double()
+    engine = copy.deepcopy(block).float().double()
'''),
    Wrong("ends_in_two_calls", ["the number of calls that send something"], '''
-        all_reduce(views["embedding"], ends)
+        for piece in views["embedding"].view(-1).tensor_split(2):
+            all_reduce(piece, ends)
'''),
    Wrong("zeros_for_none", ["that had no gradient and have one now"], '''
-    squares = torch.zeros((), dtype=torch.float64)  # mutate: same
+    squares = torch.zeros((), dtype=torch.float64)
+    for each in block.parameters():
+        if each.grad is None:
+            each.grad = torch.zeros_like(each)
'''),
    Wrong("another_line", ["this line of start_engine is not the one"], '''
-    "start_engine": ("parameter.register_hook(lambda grad: summed(grad, tp))", "all"),
+    "start_engine": ("engine.zero_grad()", "all"),
'''),
    Wrong("clips_by_the_old_norm", ["the one that clips is still the old one"], '''
     norm = float(squares.sqrt())
+    whole = sum(float(p.grad.double().square().sum()) for name, p in found if name not in CUT)
+    old = (norm * norm + (tp.size - 1) * whole) ** 0.5
@@
-        parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
+        parameter.grad.mul_(min(1.0, max_norm / (old + 1e-6)))
'''),
    Wrong("copies_before_but_hooks_before", ["the gradient of norm.weight after micro-batch 1 has the wrong value"], '''
-    engine = copy.deepcopy(block).double()
-    for name, parameter in engine.named_parameters():  # mutate: same
+    masters = copy.deepcopy(block)
+    for name, parameter in masters.named_parameters():
@@
-    engine.zero_grad()  # mutate: same
+    engine = copy.deepcopy(masters).double()
'''),
    Wrong("ends_averaged", ["this is the mean of both ends"], '''
-        all_reduce(views["embedding"], ends)
+        all_reduce(views["embedding"], ends, "avg")
'''),
    Wrong("ends_not_summed", ["this is what one end found"], '''
-    if ends is not None:  # mutate: same
-        all_reduce(views["embedding"], ends)
'''),
    Wrong("ends_summed_twice", ["both ends were added twice"], '''
-    return mean
+    buffer.chunk(dp.size)[dp.index].copy_(mean)
+    if ends is not None:
+        all_reduce(views["embedding"], ends)
+    return buffer.chunk(dp.size)[dp.index]
'''),
    Wrong("engine_in_float32", ["has the wrong dtype"], '''
-    engine = copy.deepcopy(block).double()
+    engine = copy.deepcopy(block)
'''),
    Wrong("engine_not_returned", ["start_engine returned no Block"], '''
-    return engine.train()  # mutate: same
+    engine.train()
'''),
    Wrong("experts_mixed", ["different experts were mixed"], '''
-        all_reduce(bucket, group)  # mutate: same
+        all_reduce(bucket, dp)
'''),
    Wrong("experts_not_divided", ["nothing is divided"], '''
-        bucket /= dp.size  # mutate: same
+        if not experts:
+            bucket /= dp.size
'''),
    Wrong("hooks_average", ["this is the mean over tp"], '''
-            parameter.register_hook(lambda grad: summed(grad, tp))
+            parameter.register_hook(lambda grad: summed(grad, tp) / tp.size)
'''),
    Wrong("hooks_on_all", ["a parameter in CUT differs from rank to rank"], '''
-    for name, parameter in engine.named_parameters():  # mutate: same
-        if name not in CUT:
-            parameter.register_hook(lambda grad: summed(grad, tp))
+    for parameter in engine.parameters():
+        parameter.register_hook(lambda grad: summed(grad, tp))
'''),
    Wrong("hooks_on_norms_alone", ["the output's bias is added to this rank's tokens alone"], '''
-    for name, parameter in engine.named_parameters():  # mutate: same
-        if name not in CUT:
-            parameter.register_hook(lambda grad: summed(grad, tp))
+    for parameter in engine.norm.parameters():
+        parameter.register_hook(lambda grad: summed(grad, tp))
'''),
    Wrong("index_0_calls_once_more", ["deadlock"], '''
-        if name in CUT or tp.index == 0:
+        if name in CUT:
@@
             squares += parameter.grad.double().square().sum()
+        elif tp.index == 0:
+            square = parameter.grad.double().square().sum()
+            all_reduce(square, tp)
+            squares += square
'''),
    Wrong("largest_of_all", ["the norm with tp 2 has the wrong value"], '''
-    all_reduce(squares, tp)
+    all_reduce(squares, tp, "max")
'''),
    Wrong("lengths_added", ["squares add up", "lengths do not"], '''
-        if name in CUT or tp.index == 0:
+        if True:
@@
-    all_reduce(squares, tp)
-    norm = float(squares.sqrt())
+    lengths = squares.sqrt()
+    all_reduce(lengths, tp)
+    norm = float(lengths)
'''),
    Wrong("literal_two", ["every value is 2 times"], '''
-        bucket /= dp.size  # mutate: same
+        bucket /= group.size * (2 if experts and group.size < dp.size else 1)
'''),
    Wrong("no_copy", ["the block that was given"], '''
-    engine = copy.deepcopy(block).double()
+    engine = block.double()
'''),
    Wrong("no_ranks", ["FAULT has no line with ranks for average_gradients"], '''
-    "average_gradients": ("bucket /= group.size", "all"),
+    "average_gradients": "bucket /= group.size",
'''),
    Wrong("not_named", ["FAULT names no line of this exhibit yet"], '''
-    "clip_gradients": ("squares += parameter.grad.double().square().sum()", "all"),
+    "clip_gradients": ("", ""),
'''),
    Wrong("one_exhibit_missing", ["FAULT has no line with ranks for clip_gradients"], '''
-    "clip_gradients": ("squares += parameter.grad.double().square().sum()", "all"),
'''),
    Wrong("only_norms_are_whole", ["the output's bias is whole on every rank as well"], '''
-        if name in CUT or tp.index == 0:
+        if not name.startswith("norm.") or tp.index == 0:
'''),
    Wrong("only_one_replica_sums", ["the gradient of embedding in the shard", "on dp 2 × pp 2"], '''
-    if ends is not None:  # mutate: same
+    if ends is not None and dp.index == 0:
'''),
    Wrong("only_the_first_stage_sums", ["deadlock"], '''
-    if ends is not None:  # mutate: same
+    if ends is not None and ends.index == 0:
'''),
    Wrong("own_norm", ["this is the length of this rank's gradients alone"], '''
-        if name in CUT or tp.index == 0:
+        if True:
@@
-    all_reduce(squares, tp)
'''),
    Wrong("ranks_not_found_out", ["the line of finish_gradients is right", "its ranks are not"], '''
-    "finish_gradients": ('all_reduce(views["embedding"], ends)', (1, 2)),
+    "finish_gradients": ('all_reduce(views["embedding"], ends)', "all"),
'''),
    Wrong("router_divided_as_well", ["the router is not dealt out"], '''
-        bucket /= dp.size  # mutate: same
+        bucket /= group.size * (dp.size // replicas.size)
'''),
    Wrong("router_stays_local", ["the gradient of the router"], '''
-    for experts, group in ((True, replicas), (False, dp)):
+    for experts, group in ((True, replicas), (False, replicas)):
'''),
    Wrong("shards_of_both_ends_summed", ["the gradient of layer 0.down in the shard"], '''
-    if ends is not None:  # mutate: same
-        all_reduce(views["embedding"], ends)
@@
     reduce_scatter(mean, buffer, dp, "avg")
+    if ends is not None:
+        all_reduce(mean, ends)
'''),
    Wrong("short_ones_made_longer", ["short gradients were made longer"], '''
-        parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
+        parameter.grad.mul_(max_norm / (norm + 1e-6))
'''),
    Wrong("squares_in_float32", ["the norm with tp 1"], '''
-            squares += parameter.grad.double().square().sum()
+            squares += parameter.grad.square().sum()
'''),
    Wrong("sums_what_has_accumulated", ["what the first micro-batch had left was summed over tp once more"], '''
-            parameter.register_hook(lambda grad: summed(grad, tp))
+            parameter.register_post_accumulate_grad_hook(
+                lambda parameter: all_reduce(parameter.grad, tp) and None
+            )
'''),
    Wrong("averages_into_new_tensors", ["another gradient than before", "in place"], '''
-        for grad, piece in zip(grads, pieces, strict=True):  # mutate: same
-            grad.copy_(piece.view(grad.shape))
+        for _, parameter in layer.named_parameters():
+            for place, grad in enumerate(grads):
+                if parameter.grad is grad:
+                    parameter.grad = pieces[place].view(grad.shape)
'''),
]

RIGHT = [
    Right("variant_before_the_buffer", "the embedding is summed before it is flattened; whole squares added after the sum", '''
import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import gelu

from course_lib.comm import (
    Group,
    all_gather,
    all_gather_to_group,
    all_reduce,
    reduce_scatter,
    reduce_scatter_in_group,
)
from course_lib.comm import summed

FAULT = {
    "start_engine": ("parameter.register_hook(lambda grad: summed(grad, tp))", "all"),
    "finish_gradients": ('all_reduce(views["embedding"], ends)', (1, 2)),
    "average_gradients": ("bucket /= group.size", "all"),
    "clip_gradients": ("squares += parameter.grad.double().square().sum()", "all"),
}

CUT = ("up.weight", "up.bias", "down.weight")  # of a Block: each rank of tp has its own part


class Block(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x_TD: torch.Tensor, tp: Group) -> torch.Tensor:
        all_TD = all_gather_to_group(self.norm(x_TD), 0, tp)
        y_TD = reduce_scatter_in_group(self.down(gelu(self.up(all_TD))), 0, tp)
        return x_TD + y_TD + self.bias


def start_engine(block: Block, tp: Group) -> Block:
    engine = copy.deepcopy(block).double()
    for name, parameter in engine.named_parameters():
        if name not in CUT:
            parameter.register_hook(lambda grad: summed(grad, tp))
    engine.zero_grad()
    return engine.train()


def flatten(
    grads: Mapping[str, torch.Tensor], parts: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    sizes = [grad.numel() for grad in grads.values()]
    buffer = torch.zeros(-(-sum(sizes) // parts) * parts, dtype=torch.float64)
    pieces = buffer[: sum(sizes)].split(sizes)
    views = {
        name: piece.view(grad.shape)
        for (name, grad), piece in zip(grads.items(), pieces, strict=True)
    }
    for name, grad in grads.items():
        views[name].copy_(grad)
    return buffer, views


def finish_gradients(
    grads: Mapping[str, torch.Tensor], dp: Group, ends: Group | None
) -> torch.Tensor:
    if ends is not None:
        grads = {**grads, "embedding": summed(grads["embedding"], ends)}
    buffer, _ = flatten(grads, dp.size)
    mean = torch.empty_like(buffer.chunk(dp.size)[dp.index])
    reduce_scatter(mean, buffer, dp, "avg")
    return mean


class MixtureLayer(nn.Module):
    def __init__(self, hidden: int, experts: int, ep: Group) -> None:
        super().__init__()
        own = experts // ep.size
        self.first = ep.index * own
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(own))

    def forward(self, x_TD: torch.Tensor, ep: Group) -> torch.Tensor:
        weight_T, chosen_T = self.router(x_TD).softmax(-1).max(-1)
        chosen = torch.empty(ep.size * len(chosen_T), dtype=torch.int64)
        all_gather(chosen, chosen_T, ep)
        x = all_gather_to_group(x_TD, 0, ep)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts, self.first):
            y = y + (chosen == number)[:, None] * expert(x)
        return x_TD + weight_T[:, None] * reduce_scatter_in_group(y, 0, ep)


def average_gradients(layer: MixtureLayer, dp: Group, replicas: Group) -> None:
    for experts, group in ((True, replicas), (False, dp)):
        grads = [
            parameter.grad
            for name, parameter in layer.named_parameters()
            if name.startswith("experts.") == experts
        ]
        bucket = torch.cat([grad.flatten() for grad in grads])
        all_reduce(bucket, group)
        bucket /= group.size
        if experts:
            bucket /= dp.size // group.size
        pieces = bucket.split([grad.numel() for grad in grads])
        for grad, piece in zip(grads, pieces, strict=True):
            grad.copy_(piece.view(grad.shape))


def clip_gradients(block: Block, tp: Group, max_norm: float) -> float:
    squares = torch.zeros((), dtype=torch.float64)
    found = [(name, each) for name, each in block.named_parameters() if each.grad is not None]
    for name, parameter in found:
        if name in CUT:
            squares += parameter.grad.double().square().sum()
    all_reduce(squares, tp)
    for name, parameter in found:
        if name not in CUT:
            squares += parameter.grad.double().square().sum()
    norm = float(squares.sqrt())
    for _, parameter in found:
        parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
'''),
    Right("variant_hooks_by_module", "hooks that reduce in place; one all-reduce for each parameter; a block made again", '''
import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import gelu

from course_lib.comm import (
    Group,
    all_gather,
    all_gather_to_group,
    all_reduce,
    reduce_scatter,
    reduce_scatter_in_group,
)
from course_lib.comm import summed

FAULT = {
    "start_engine": ("parameter.register_hook(lambda grad: summed(grad, tp))", "all"),
    "finish_gradients": ('all_reduce(views["embedding"], ends)', (1, 2)),
    "average_gradients": ("bucket /= group.size", "all"),
    "clip_gradients": ("squares += parameter.grad.double().square().sum()", "all"),
}

CUT = ("up.weight", "up.bias", "down.weight")  # of a Block: each rank of tp has its own part


class Block(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x_TD: torch.Tensor, tp: Group) -> torch.Tensor:
        all_TD = all_gather_to_group(self.norm(x_TD), 0, tp)
        y_TD = reduce_scatter_in_group(self.down(gelu(self.up(all_TD))), 0, tp)
        return x_TD + y_TD + self.bias


def _reduced(grad: torch.Tensor, tp: Group) -> torch.Tensor:
    grad = grad.clone()
    all_reduce(grad, tp)
    return grad


def start_engine(block: Block, tp: Group) -> Block:
    inner, hidden = block.up.weight.shape
    engine = Block(hidden, inner).double()
    engine.load_state_dict(block.state_dict())
    for parameter in (*engine.norm.parameters(), engine.bias):
        parameter.register_hook(lambda grad: _reduced(grad, tp))
    engine.zero_grad()
    return engine.train()


def flatten(
    grads: Mapping[str, torch.Tensor], parts: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    sizes = [grad.numel() for grad in grads.values()]
    buffer = torch.zeros(-(-sum(sizes) // parts) * parts, dtype=torch.float64)
    pieces = buffer[: sum(sizes)].split(sizes)
    views = {
        name: piece.view(grad.shape)
        for (name, grad), piece in zip(grads.items(), pieces, strict=True)
    }
    for name, grad in grads.items():
        views[name].copy_(grad)
    return buffer, views


def finish_gradients(
    grads: Mapping[str, torch.Tensor], dp: Group, ends: Group | None
) -> torch.Tensor:
    buffer, views = flatten(grads, dp.size)
    if ends is not None:
        all_reduce(views["embedding"], ends)
    mean = torch.empty_like(buffer.chunk(dp.size)[dp.index])
    reduce_scatter(mean, buffer, dp, "avg")
    return mean


class MixtureLayer(nn.Module):
    def __init__(self, hidden: int, experts: int, ep: Group) -> None:
        super().__init__()
        own = experts // ep.size
        self.first = ep.index * own
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(own))

    def forward(self, x_TD: torch.Tensor, ep: Group) -> torch.Tensor:
        weight_T, chosen_T = self.router(x_TD).softmax(-1).max(-1)
        chosen = torch.empty(ep.size * len(chosen_T), dtype=torch.int64)
        all_gather(chosen, chosen_T, ep)
        x = all_gather_to_group(x_TD, 0, ep)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts, self.first):
            y = y + (chosen == number)[:, None] * expert(x)
        return x_TD + weight_T[:, None] * reduce_scatter_in_group(y, 0, ep)


def average_gradients(layer: MixtureLayer, dp: Group, replicas: Group) -> None:
    for experts, group in ((True, replicas), (False, dp)):
        grads = [
            parameter.grad
            for name, parameter in layer.named_parameters()
            if name.startswith("experts.") == experts
        ]
        bucket = torch.cat([grad.flatten() for grad in grads])
        all_reduce(bucket, group)
        bucket /= dp.size
        pieces = bucket.split([grad.numel() for grad in grads])
        for grad, piece in zip(grads, pieces, strict=True):
            grad.copy_(piece.view(grad.shape))


def clip_gradients(block: Block, tp: Group, max_norm: float) -> float:
    squares = torch.zeros((), dtype=torch.float64)
    found = [(name, each) for name, each in block.named_parameters() if each.grad is not None]
    for name, parameter in found:
        if name in CUT or tp.index == 0:
            squares += parameter.grad.double().square().sum()
    all_reduce(squares, tp)
    norm = float(squares.sqrt())
    for _, parameter in found:
        parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
'''),
    Right("variant_other_lines_named", "other lines of the same faults, ranks in another order; squares of copies divided", '''
import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import gelu

from course_lib.comm import (
    Group,
    all_gather,
    all_gather_to_group,
    all_reduce,
    reduce_scatter,
    reduce_scatter_in_group,
)
from course_lib.comm import summed

FAULT = {
    "start_engine": ("engine = copy.deepcopy(block).double()", "all"),
    "finish_gradients": ("reduce_scatter( mean,buffer,dp, 'avg' )", [2, 1]),
    "average_gradients": ("bucket /= group.size", "all"),
    "clip_gradients": ("  all_reduce(squares,tp)", [0, 1, 2, 3]),
}

CUT = ("up.weight", "up.bias", "down.weight")  # of a Block: each rank of tp has its own part


class Block(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x_TD: torch.Tensor, tp: Group) -> torch.Tensor:
        all_TD = all_gather_to_group(self.norm(x_TD), 0, tp)
        y_TD = reduce_scatter_in_group(self.down(gelu(self.up(all_TD))), 0, tp)
        return x_TD + y_TD + self.bias


def start_engine(block: Block, tp: Group) -> Block:
    engine = copy.deepcopy(block).double()
    for name, parameter in engine.named_parameters():
        if name not in CUT:
            parameter.register_hook(lambda grad: summed(grad, tp))
    engine.zero_grad()
    return engine.train()


def flatten(
    grads: Mapping[str, torch.Tensor], parts: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    sizes = [grad.numel() for grad in grads.values()]
    buffer = torch.zeros(-(-sum(sizes) // parts) * parts, dtype=torch.float64)
    pieces = buffer[: sum(sizes)].split(sizes)
    views = {
        name: piece.view(grad.shape)
        for (name, grad), piece in zip(grads.items(), pieces, strict=True)
    }
    for name, grad in grads.items():
        views[name].copy_(grad)
    return buffer, views


def finish_gradients(
    grads: Mapping[str, torch.Tensor], dp: Group, ends: Group | None
) -> torch.Tensor:
    buffer, views = flatten(grads, dp.size)
    if ends is not None:
        all_reduce(views["embedding"], ends)
    mean = torch.empty_like(buffer.chunk(dp.size)[dp.index])
    reduce_scatter(mean, buffer, dp, "avg")
    return mean


class MixtureLayer(nn.Module):
    def __init__(self, hidden: int, experts: int, ep: Group) -> None:
        super().__init__()
        own = experts // ep.size
        self.first = ep.index * own
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(own))

    def forward(self, x_TD: torch.Tensor, ep: Group) -> torch.Tensor:
        weight_T, chosen_T = self.router(x_TD).softmax(-1).max(-1)
        chosen = torch.empty(ep.size * len(chosen_T), dtype=torch.int64)
        all_gather(chosen, chosen_T, ep)
        x = all_gather_to_group(x_TD, 0, ep)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts, self.first):
            y = y + (chosen == number)[:, None] * expert(x)
        return x_TD + weight_T[:, None] * reduce_scatter_in_group(y, 0, ep)


def average_gradients(layer: MixtureLayer, dp: Group, replicas: Group) -> None:
    for experts, group in ((True, replicas), (False, dp)):
        grads = [
            parameter.grad
            for name, parameter in layer.named_parameters()
            if name.startswith("experts.") == experts
        ]
        bucket = torch.cat([grad.flatten() for grad in grads])
        all_reduce(bucket, group)
        bucket /= dp.size
        pieces = bucket.split([grad.numel() for grad in grads])
        for grad, piece in zip(grads, pieces, strict=True):
            grad.copy_(piece.view(grad.shape))


def clip_gradients(block: Block, tp: Group, max_norm: float) -> float:
    squares = torch.zeros((), dtype=torch.float64)
    found = [(name, each) for name, each in block.named_parameters() if each.grad is not None]
    for name, parameter in found:
        copies = 1 if name in CUT else tp.size
        squares += parameter.grad.double().square().sum() / copies
    all_reduce(squares, tp)
    norm = float(squares.sqrt())
    for _, parameter in found:
        parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
'''),
]
