"""Wrong and right answers to `museum_loss`: see `course dev show museum_loss`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("blames_the_frozen_rank", ["the line of clip_stages is right", "its ranks are not"], '''
-    "clip_stages": ("norm = square.sqrt()", (1, 2)),
+    "clip_stages": ("norm = square.sqrt()", "all"),
'''),
    Wrong("counted_over_dp", ["tokens were counted over dp"], '''
-    all_reduce(counted, mesh["cp"])  # mutate: same
+    all_reduce(counted, mesh["dp"])
+    counted = counted.clamp(min=1)
'''),
    Wrong("counted_over_everyone", ["a mean over the tokens of all replicas: each replica has a mean of its own"], '''
-    all_reduce(counted, mesh["cp"])  # mutate: same
-    loss = losses / counted * mesh["cp"].size  # the pieces of a mean add up, they are not averaged
+    all_reduce(counted, mesh["dp", "cp"])
+    loss = losses / counted * mesh["dp", "cp"].size
'''),
    Wrong("counts_padding", ["ignored targets were counted as tokens"], '''
-    counted = torch.tensor(sum(int((targets != IGNORED).sum()) for _, targets in window))
+    counted = torch.tensor(sum(targets.numel() for _, targets in window))
'''),
    Wrong("token_0_is_padding", ["the gradient (counted tokens"], '''
-    counted = torch.tensor(sum(int((targets != IGNORED).sum()) for _, targets in window))
+    counted = torch.tensor(sum(int((targets > 0).sum()) for _, targets in window))
'''),
    Wrong("one_token_at_least_for_each_rank", ["the gradient (counted tokens 0 | 1 | 0"], '''
     all_reduce(counted, group)
+    counted = counted.clamp(min=group.size)
'''),
    Wrong("divided_by_window_too", ["divided by the number of micro-batches as well"], '''
-            (losses * group.size / counted).backward()
+            (losses * group.size / counted / len(window)).backward()
'''),
    Wrong("empty_piece_is_a_token", ["a piece without a counted token was counted as one token"], '''
-    counted = (targets != IGNORED).sum()
+    counted = (targets != IGNORED).sum().clamp(min=1)
'''),
    Wrong("every_forward_outside", ["synchronisations of all gradients in an update of 3 micro-batches", "measured: 3"], '''
     model.zero_grad()
     for number, (tokens, targets) in enumerate(window, 1):
         last = number == len(window)
+        logits = model(tokens)
         with nullcontext() if last else model.no_sync():
-            logits = model(tokens)
             loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / len(window)
''', why="Both ends of the backward are guarded, but the forward has decided before."),
    Wrong("factor_before_the_sum", ["the norm returned is right", "but this rank's own norm was used to clip"], '''
         square += gradient.square().sum()
+    factor = (max_norm / (square.sqrt() + 1e-6)).clamp(max=1.0)
@@
-    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
'''),
    Wrong("first_instead_of_last", ["the first micro-batch of the window was synchronised", "what came after it is this rank's own", "FunASR"], '''
     model.zero_grad()
     for number, (tokens, targets) in enumerate(window, 1):
-        last = number == len(window)
+        last = (number - 1) % len(window) == 0
         with nullcontext() if last else model.no_sync():
''', why="The off-by-one of modelscope/FunASR #3472."),
    Wrong("frozen_rank_leaves", ["deadlock", "all_reduce"], '''
         square += gradient.square().sum()
+    if not gradients:
+        return square
''', why="A rank without gradients thinks that it has nothing to say."),
    Wrong("largest_norm", ["this is the largest norm of a rank"], '''
-    all_reduce(square, group)
+    all_reduce(square, group, "max")
'''),
    Wrong("names_another_line", ["this line of context_update is not the one"], '''
-    "context_update": ("loss = losses / counted", "all"),
+    "context_update": ("loss.backward()", "all"),
'''),
    Wrong("never_synchronised", ["this rank's own gradient: nothing was synchronised"], '''
     model.zero_grad()
     for number, (tokens, targets) in enumerate(window, 1):
-        last = number == len(window)
-        with nullcontext() if last else model.no_sync():
+        with model.no_sync():
             logits = model(tokens)
'''),
    Wrong("norms_added_up", ["norms were added up: add up their squares"], '''
-    all_reduce(square, group)
@@
     norm = square.sqrt()
+    all_reduce(norm, group)
'''),
    Wrong("own_tokens_only", ["the ranks' means are averaged", "weighs as much as one with many", "#34242"], '''
-    all_reduce(counted, group)
+    counted = counted.clamp(min=1)
@@
-            (losses * group.size / counted).backward()
+            (losses / counted).backward()
''', why="The first public repair: the window's tokens are counted, but on this rank alone."),
    Wrong("pieces_averaged", ["1/cp of it", "the pieces of a mean are averaged"], '''
-    loss = losses / counted * mesh["cp"].size  # the pieces of a mean add up, they are not averaged
+    loss = losses / counted
'''),
    Wrong("replica_divides_again", ["1/N of it: the replica divides by the group's size once more"], '''
-            (losses * group.size / counted).backward()
+            (losses / counted).backward()
'''),
    Wrong("sends_gradients", ["bytes given to one collective", "a number says all that the others need to know"], '''
-    all_reduce(square, group)
+    size = torch.tensor(float(sum(g.numel() for g in gradients)), dtype=torch.float64)
+    all_reduce(size, group, "max")
+    mine = torch.cat([g.flatten() for g in gradients] + [square.new_zeros(int(size))])[: int(size)]
+    everybody = torch.zeros(group.size, int(size), dtype=torch.float64)
+    everybody[group.index] = mine
+    all_reduce(everybody, group)
+    square = everybody.square().sum()
'''),
    Wrong("squares_averaged", ["the squares were averaged: they add up"], '''
-    all_reduce(square, group)
+    all_reduce(square, group, "avg")
'''),
    Wrong("clips_copies", ["another gradient than before", "in place"], '''
-    for gradient in gradients:
-        gradient.mul_(factor)
-    return norm
+    for parameter in parameters:
+        if parameter.grad is not None:
+            parameter.grad = parameter.grad * factor
+    return norm
'''),
    Wrong("world_size_in_one_update", ["in the group of ranks 3, 2, 1"], '''
+import os
 from collections.abc import Sequence
@@
-            (losses * group.size / counted).backward()
+            (losses * int(os.environ["WORLD_SIZE"]) / counted).backward()
'''),
]

RIGHT = [
    Right("v_divide_afterwards", "sums first, and the gradients are divided after the last backward", '''
from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

IGNORED = -100

Batch = tuple[torch.Tensor, torch.Tensor]

FAULT = {
    "finetune_update": ("(loss / len(window)).backward()", (0, 1)),
    "context_update": ("loss = losses / counted", "all"),
    "clip_stages": ("norm = square.sqrt()", (1, 2)),
    "replica_update": ("with nullcontext() if last else model.no_sync():", "none"),
}


def finetune_update(model: nn.Module, window: Sequence[Batch], group: Group) -> None:
    counted = torch.tensor(sum(int((targets != IGNORED).sum()) for _, targets in window))
    all_reduce(counted, group)
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            losses.backward()
    for parameter in model.parameters():
        parameter.grad.mul_(group.size / int(counted))


def context_update(
    model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, mesh: Mesh
) -> None:
    logits = model(tokens).flatten(0, 1)
    losses = F.cross_entropy(logits, targets.flatten(), reduction="sum")
    counted = (targets != IGNORED).sum()
    all_reduce(counted, mesh["cp"])
    loss = losses / counted
    loss.backward()
    for parameter in model.parameters():
        all_reduce(parameter.grad, mesh["cp"])
        all_reduce(parameter.grad, mesh["dp"], "avg")


def clip_stages(stages: Sequence[nn.Module], max_norm: float, group: Group) -> torch.Tensor:
    parameters = [p for stage in stages for p in stage.parameters()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    square = torch.zeros((), dtype=torch.float64)
    for gradient in gradients:
        square += gradient.square().sum()
    all_reduce(square, group)
    norm = square.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


def replica_update(model: nn.Module, window: Sequence[Batch]) -> float:
    total = 0.0
    model.zero_grad()
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / len(window)
            loss.backward()
        total += loss.item()
    return total
'''),
    Right("v_mean_count", "the count is a mean over cp; the norm is gathered by a one-hot sum; only the forward is under no_sync", '''
from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

IGNORED = -100

Batch = tuple[torch.Tensor, torch.Tensor]

FAULT = {
    "finetune_update": ("loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())", "all"),
    "context_update": ("loss = losses / counted", "all"),
    "clip_stages": ("norm = square.sqrt()", (1, 2)),
    "replica_update": ("logits=model(tokens)", ()),
}


def finetune_update(model: nn.Module, window: Sequence[Batch], group: Group) -> None:
    counted = torch.tensor(sum(int((targets != IGNORED).sum()) for _, targets in window))
    all_reduce(counted, group)
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            (losses * group.size / counted).backward()


def context_update(
    model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, mesh: Mesh
) -> None:
    logits = model(tokens).flatten(0, 1)
    losses = F.cross_entropy(logits, targets.flatten(), reduction="sum")
    counted = (targets != IGNORED).sum().double()
    all_reduce(counted, mesh["cp"], "avg")
    loss = losses / counted
    loss.backward()
    for parameter in model.parameters():
        all_reduce(parameter.grad, mesh["dp", "cp"], "avg")


def clip_stages(stages: Sequence[nn.Module], max_norm: float, group: Group) -> torch.Tensor:
    parameters = [p for stage in stages for p in stage.parameters()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    square = torch.zeros((), dtype=torch.float64)
    for gradient in gradients:
        square += gradient.square().sum()
    norms = torch.zeros(group.size, dtype=torch.float64)
    norms[group.index] = square.sqrt()
    all_reduce(norms, group)
    norm = torch.linalg.vector_norm(norms)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


def replica_update(model: nn.Module, window: Sequence[Batch]) -> float:
    total = 0.0
    model.zero_grad()
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / len(window)
        loss.backward()
        total += loss.item()
    return total
'''),
    Right("v_torch_clips", "mean times count; torch's norm and clip with the total; one no_sync block for all but the last; a list as ranks", '''
from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

IGNORED = -100

Batch = tuple[torch.Tensor, torch.Tensor]

FAULT = {
    "finetune_update": ("loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())", "all"),
    "context_update": ("loss = losses / counted", "all"),
    "clip_stages": ("norm = square.sqrt()", [2, 1]),
    "replica_update": ("with nullcontext() if last else model.no_sync():", "none"),
}


def finetune_update(model: nn.Module, window: Sequence[Batch], group: Group) -> None:
    counted = torch.tensor(float(torch.cat([targets for _, targets in window]).ne(IGNORED).sum()))
    all_reduce(counted, group)
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            losses = loss * (targets != IGNORED).sum()
            (losses * group.size / counted).backward()


def context_update(
    model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, mesh: Mesh
) -> None:
    logits = model(tokens).flatten(0, 1)
    losses = F.cross_entropy(logits, targets.flatten(), reduction="sum")
    counted = (targets != IGNORED).sum()
    all_reduce(counted, mesh["cp"])
    loss = losses / counted * mesh["cp"].size
    loss.backward()
    for parameter in model.parameters():
        all_reduce(parameter.grad, mesh["dp", "cp"], "avg")


def clip_stages(stages: Sequence[nn.Module], max_norm: float, group: Group) -> torch.Tensor:
    parameters = [p for stage in stages for p in stage.parameters()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients).double()
    square = norm**2
    all_reduce(square, group)
    nn.utils.clip_grads_with_norm_(parameters, max_norm, square.sqrt())
    return square.sqrt()


def replica_update(model: nn.Module, window: Sequence[Batch]) -> float:
    def work(batch: Batch) -> float:
        loss = F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()) / len(window)
        loss.backward()
        return loss.item()

    model.zero_grad()
    with model.no_sync():
        total = sum(work(batch) for batch in window[:-1])
    return total + work(window[-1])
'''),
]
