"""Wrong and right answers to `accumulate`: see `course dev show accumulate`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("counts_before_it_ends", ["the call that found no micro-batch made one, too"], '''
-    if not window:  # mutate: same
-        return None
@@
     all_reduce(counted, group)  # mutate: same
+    if not window:
+        return None
'''),
    Wrong("scales_afterwards", ["what was there before was scaled"], '''
             loss = losses / counted
-            (loss * group.size).backward()  # the model's average divides by it again
+            losses.backward()
         part += loss.item()
+    for parameter in model.parameters():
+        if parameter.grad is not None:
+            parameter.grad.mul_(group.size / counted)
'''),
    Wrong("agrees_if_it_has_tokens", ["is not the same everywhere"], '''
-    all_reduce(counted, group)  # mutate: same
+    if counted > 0:
+        all_reduce(counted, group)
'''),
    Wrong("average_count_and_factor", ["N times too much"], '''
-    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
-    all_reduce(counted, group)  # mutate: same
+    counted = torch.tensor(float(sum(int((t != ignore_index).sum()) for _, t in window)))
+    all_reduce(counted, group, "avg")
'''),
    Wrong("counts_padding", ["targets that are ignored were counted"], '''
-    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
+    counted = torch.tensor(sum(targets.numel() for _, targets in window))
'''),
    Wrong("counts_past_comm", ["past course_lib.comm"], '''
-    all_reduce(counted, group)  # mutate: same
+    torch.distributed.all_reduce(counted, group=group.handle)
'''),
    Wrong("divides_by_k_as_well", ["divided by the number of micro-batches as well"], '''
-            loss = losses / counted
+            loss = losses / counted / k
'''),
    Wrong("divides_by_n", ["divided by the group's size twice"], '''
-            (loss * group.size).backward()  # the model's average divides by it again
+            (loss / group.size).backward()  # the model's average divides by it again
'''),
    Wrong("divides_by_the_window_as_well", ["divided by the number of micro-batches as well"], '''
-            loss = losses / counted
+            loss = losses / counted / len(window)
'''),
    Wrong("drops_the_last_window", ["fewer than k micro-batches", "is missing"], '''
-    if not window:  # mutate: same
+    if len(window) < k:
'''),
    Wrong("forward_outside_no_sync", ["one for each micro-batch", "forward and backward"], '''
     for number, (tokens, targets) in enumerate(window, 1):
+        losses = F.cross_entropy(
+            model(tokens).flatten(0, 1), targets.flatten(), ignore_index=ignore_index, reduction="sum"
+        )
@@
-            losses = F.cross_entropy(
-                model(tokens).flatten(0, 1),
-                targets.flatten(),
-                ignore_index=ignore_index,
-                reduction="sum",
-            )
'''),
    Wrong("ignores_minus_100_only", ["gradients before update 1 (4 micro-batches"], '''
-    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
+    counted = torch.tensor(sum(int((targets != -100).sum()) for _, targets in window))
@@
-                ignore_index=ignore_index,
+                ignore_index=-100,
'''),
    Wrong("keeps_the_graphs", ["the graphs of several micro-batches"], '''
-    part = 0.0
+    total = 0.0
@@
-            (loss * group.size).backward()  # the model's average divides by it again
-        part += loss.item()
-    return part
+            total = total + loss
+    (total * group.size).backward()
+    return total.item()
'''),
    Wrong("learns_padding", ["gradients before update 1 (4 micro-batches"], '''
-                ignore_index=ignore_index,
'''),
    Wrong("mean_of_means", ["a mean of the micro-batches' means"], '''
-    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
-    all_reduce(counted, group)  # mutate: same
+    all_reduce(torch.zeros(1), group)
@@
-                reduction="sum",
@@
-            loss = losses / counted
-            (loss * group.size).backward()  # the model's average divides by it again
+            loss = losses / len(window)
+            loss.backward()
'''),
    Wrong("mean_of_means_without_agreement", ["a mean of the micro-batches' means", "the ranks never agree"], '''
-    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
-    all_reduce(counted, group)  # mutate: same
@@
-                reduction="sum",
@@
-            loss = losses / counted
-            (loss * group.size).backward()  # the model's average divides by it again
+            loss = losses / len(window)
+            loss.backward()
'''),
    Wrong("mean_of_the_ranks", ["a mean of the ranks' means", "this rank's only"], '''
-    all_reduce(counted, group)  # mutate: same
+    counted = counted.clamp(min=1)
@@
-            (loss * group.size).backward()  # the model's average divides by it again
+            loss.backward()
'''),
    Wrong("nan_of_an_empty_micro_batch", ["is NaN", "the mean over a micro-batch without a counted token"], '''
-                reduction="sum",
@@
-            loss = losses / counted
+            loss = losses * (targets != ignore_index).sum() / counted
'''),
    Wrong("never_synchronises", ["this rank's own gradients"], '''
-        with nullcontext() if number == len(window) else model.no_sync():
+        with model.no_sync():
'''),
    Wrong("next_without_end", ["StopIteration"], '''
-    window = list(islice(micro, k))
+    window = [next(micro) for _ in range(k)]
'''),
    Wrong("no_division", ["the sum of the losses"], '''
-            loss = losses / counted
+            loss = losses
'''),
    Wrong("no_factor_n", ["1/N of it", "divides by the group's size once more"], '''
-            (loss * group.size).backward()  # the model's average divides by it again
+            loss.backward()
'''),
    Wrong("one_too_many", ["one more than k was taken"], '''
     window = list(islice(micro, k))
+    next(micro, None)
'''),
    Wrong("only_the_last_syncs_its_own", ["only the last micro-batch counts"], '''
             (loss * group.size).backward()  # the model's average divides by it again
+            if number < len(window):
+                model.zero_grad()
'''),
    Wrong("returns_a_graph", ["the loss that is returned holds a graph"], '''
-        part += loss.item()
+        part = part + loss
'''),
    Wrong("returns_n_times", ["that factor is only for the backward"], '''
-            loss = losses / counted
-            (loss * group.size).backward()  # the model's average divides by it again
+            loss = losses / counted * group.size
+            loss.backward()  # the model's average divides by it again
'''),
    Wrong("returns_the_whole_loss", ["two for each update"], '''
-    return part
+    whole = torch.tensor(part)
+    all_reduce(whole, group)
+    return whole.item()
'''),
    Wrong("sends_gradients_again", ["a collective is larger than 64 bytes"], '''
         part += loss.item()
+    for parameter in model.parameters():
+        all_reduce(parameter.grad, group, "avg")
'''),
    Wrong("sum_over_ranks_average", ["the sum of the losses: divide"], '''
-            loss = losses / counted
+            loss = losses / group.size
'''),
    Wrong("synchronises_every_time", ["one for each micro-batch", "model.no_sync()"], '''
-        with nullcontext() if number == len(window) else model.no_sync():
+        with nullcontext():
'''),
    Wrong("synchronises_when_k_is_reached", ["gradients before update 3"], '''
-        with nullcontext() if number == len(window) else model.no_sync():
+        with nullcontext() if number == k else model.no_sync():
'''),
    Wrong("tokens_of_each_micro_batch", ["each micro-batch is divided by its own tokens on all ranks", "the ranks agree on each micro-batch"], '''
-    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
-    all_reduce(counted, group)  # mutate: same
@@
-            loss = losses / counted
+            counted = (targets != ignore_index).sum().clamp(min=1)
+            all_reduce(counted, group)
+            loss = losses / counted / len(window)
'''),
    Wrong("two_ranks", ["0.666667 times what it should be"], '''
-            (loss * group.size).backward()  # the model's average divides by it again
+            (loss * 2).backward()  # the model's average divides by it again
'''),
    Wrong("trains_the_model", ["the caller has chosen it: leave it"], '''
     window = list(islice(micro, k))
+    model.train()
'''),
    Wrong("turns_targets_into_minus_100", ["tokens or targets of the micro-batches were changed"], '''
-    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
+    for _, targets in window:
+        targets[targets == ignore_index] = -100
+    counted = torch.tensor(sum(int((targets != -100).sum()) for _, targets in window))
@@
-                ignore_index=ignore_index,
'''),
    Wrong("window_of_k_minus_1", ["than k was taken"], '''
-    window = list(islice(micro, k))
+    window = list(islice(micro, max(1, k - 1)))
'''),
    Wrong("window_of_k_plus_1", ["one more than k was taken"], '''
-    window = list(islice(micro, k))
+    window = list(islice(micro, k + 1))
'''),
    Wrong("world_size_of_the_job", ["the size of the whole job"], '''
+import os
 from collections.abc import Iterator
@@
-            (loss * group.size).backward()  # the model's average divides by it again
+            (loss * int(os.environ["WORLD_SIZE"])).backward()  # the model's average divides by it again
'''),
    Wrong("zeroes_gradients_first", ["accumulate must not zero gradients: the training loop does"], '''
     window = list(islice(micro, k))
+    model.zero_grad()
'''),
]

RIGHT = [
    Right("variant_average_count", "the mean number of tokens over the ranks, so that no factor is needed", '''
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, all_reduce


def accumulate(
    model: nn.Module,
    micro: Iterator[tuple[torch.Tensor, torch.Tensor]],
    k: int,
    group: Group,
    ignore_index: int = -100,
) -> float | None:
    """Forward and backward of the next k micro-batches, as if they were one batch on one process.

    Args:
        model: tokens, int64 [B, T], to logits [B, T, V]; averages gradients, has `no_sync()`.
        micro: gives (tokens, targets), int64 [B, T] each; at most k are taken.
        k: micro-batches of an update.
        group: the data-parallel ranks; not always all ranks of the job.
        ignore_index: targets of this value do not count.

    Returns:
        This rank's part of the loss: the losses of its own counted tokens, divided by the number
        of all. (Added up over the ranks, that is the loss.) None if no micro-batch was left.
    """
    window = list(islice(micro, k))
    if not window:
        return None
    counted = torch.tensor(float(sum(int((t != ignore_index).sum()) for _, t in window)))
    all_reduce(counted, group, "avg")
    part = 0.0
    for number, (tokens, targets) in enumerate(window, 1):
        with nullcontext() if number == len(window) else model.no_sync():
            losses = F.cross_entropy(
                model(tokens).flatten(0, 1),
                targets.flatten(),
                ignore_index=ignore_index,
                reduction="sum",
            )
            loss = losses / counted
            loss.backward()
        part += loss.item() / group.size
    return part
'''),
    Right("variant_block", "one block of no_sync for all but the last", '''
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, all_reduce


def accumulate(
    model: nn.Module,
    micro: Iterator[tuple[torch.Tensor, torch.Tensor]],
    k: int,
    group: Group,
    ignore_index: int = -100,
) -> float | None:
    """Forward and backward of the next k micro-batches, as if they were one batch on one process.

    Args:
        model: tokens, int64 [B, T], to logits [B, T, V]; averages gradients, has `no_sync()`.
        micro: gives (tokens, targets), int64 [B, T] each; at most k are taken.
        k: micro-batches of an update.
        group: the data-parallel ranks; not always all ranks of the job.
        ignore_index: targets of this value do not count.

    Returns:
        This rank's part of the loss: the losses of its own counted tokens, divided by the number
        of all. (Added up over the ranks, that is the loss.) None if no micro-batch was left.
    """
    window = list(islice(micro, k))
    if not window:
        return None
    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
    all_reduce(counted, group)
    part = 0.0
    def run(tokens, targets):
        logits = model(tokens).flatten(0, 1)
        loss = F.cross_entropy(
            logits, targets.flatten(), ignore_index=ignore_index, reduction="sum"
        )
        (loss * (group.size / counted)).backward()
        return loss.detach() / counted

    with model.no_sync():
        for batch in window[:-1]:
            part += run(*batch)
    part += run(*window[-1])
    return part
'''),
    Right("variant_masks_by_hand", "token losses one by one, with a mask", '''
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, all_reduce


def accumulate(
    model: nn.Module,
    micro: Iterator[tuple[torch.Tensor, torch.Tensor]],
    k: int,
    group: Group,
    ignore_index: int = -100,
) -> float | None:
    """Forward and backward of the next k micro-batches, as if they were one batch on one process.

    Args:
        model: tokens, int64 [B, T], to logits [B, T, V]; averages gradients, has `no_sync()`.
        micro: gives (tokens, targets), int64 [B, T] each; at most k are taken.
        k: micro-batches of an update.
        group: the data-parallel ranks; not always all ranks of the job.
        ignore_index: targets of this value do not count.

    Returns:
        This rank's part of the loss: the losses of its own counted tokens, divided by the number
        of all. (Added up over the ranks, that is the loss.) None if no micro-batch was left.
    """
    window = list(islice(micro, k))
    if not window:
        return None
    counted = torch.tensor(sum(int((targets != ignore_index).sum()) for _, targets in window))
    all_reduce(counted, group)
    part = 0.0
    for number, (tokens, targets) in enumerate(window, 1):
        with nullcontext() if number == len(window) else model.no_sync():
            mask = targets != ignore_index
            safe = targets.where(mask, 0)
            logs = model(tokens).log_softmax(-1).gather(-1, safe[..., None])[..., 0]
            loss = -(logs * mask).sum() / counted
            (loss * group.size).backward()  # the model's average divides by it again
        part += loss.item()
    return part
'''),
]
