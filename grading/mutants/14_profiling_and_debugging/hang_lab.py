"""Wrong and right answers to `hang_lab`: see `course dev show hang_lab`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("best_averages_every_epoch", ["keep_best", "bytes sent by keep_best", "the weights are averaged in every epoch"], '''
-    best = kept = losses.new_full((), float("inf"))
+    best = torch.full_like(losses[0], float("inf"))
+    kept = torch.empty_like(weights[0])
@@
-        mean = loss.clone()
+        mean, averaged = loss.clone(), weight.clone()
@@
         comm.all_reduce(mean, group, "avg")
+        comm.all_reduce(averaged, group, "avg")
@@
-            best, kept = mean, weight.clone()
-            comm.all_reduce(kept, group, "avg")
+            best, kept = mean, averaged
'''),
    Wrong("best_is_the_later_of_two_equal", ["keep_best", "wrong value"], '''
-        if mean < best:
+        if mean <= best:
'''),
    Wrong("norm_anywhere_in_the_name", ["sync_gradients", "normless_head"], '''
-        if name.endswith("norm"):  # mutate: same
+        if "norm" in name:
'''),
    Wrong("ring_backwards", ["ring_scores", "messages leave the ring", "on from there"], '''
-        scores[(group.index - step) % group.size] = keys @ queries.T
+        scores[(group.index + step) % group.size] = keys @ queries.T
@@
-            comm.exchange(keys, group.next, incoming, group.previous, group)
+            comm.exchange(keys, group.previous, incoming, group.next, group)
'''),
    Wrong("best_averages_once_at_the_end", ["keep_best", "bytes sent by keep_best", "the weights are averaged only once"], '''
-    best = kept = losses.new_full((), float("inf"))
+    best = torch.full_like(losses[0], float("inf"))
+    kept = torch.empty_like(weights[0])
@@
-            comm.all_reduce(kept, group, "avg")
+    comm.all_reduce(kept, group, "avg")
'''),
    Wrong("best_changes_what_it_is_given", ["keep_best", "what was given is not what it should be"], '''
-        mean = loss.clone()
-        comm.all_reduce(mean, group, "avg")
-        if mean < best:
-            best, kept = mean, weight.clone()
+        comm.all_reduce(loss, group, "avg")
+        if loss < best:
+            best, kept = loss, weight
'''),
    Wrong("best_if_any_rank_improves", ["keep_best", "has the wrong value"], '''
-    best = kept = losses.new_full((), float("inf"))
+    best = torch.full_like(losses[0], float("inf"))
+    kept = torch.empty_like(weights[0])
@@
-        mean = loss.clone()
-        comm.all_reduce(mean, group, "avg")
-        if mean < best:
-            best, kept = mean, weight.clone()
+        improves = (loss < best).double()
+        comm.all_reduce(improves, group, "max")
+        if improves:
+            best, kept = loss.clone(), weight.clone()
+            comm.all_reduce(best, group, "avg")
'''),
    Wrong("best_of_its_own", ["keep_best", "the best epoch by this rank's own loss"], '''
-    best = kept = losses.new_full((), float("inf"))
+    best = torch.full_like(losses[0], float("inf"))
+    found, kept = best, torch.empty_like(weights[0])
@@
-        mean = loss.clone()
+        mean, averaged = loss.clone(), weight.clone()
@@
-        if mean < best:
-            best, kept = mean, weight.clone()
-            comm.all_reduce(kept, group, "avg")
-        # END SOLUTION
-    return best, kept
+        comm.all_reduce(averaged, group, "avg")
+        if loss < best:
+            best, found, kept = loss, mean, averaged
+    return found, kept
'''),
    Wrong("best_takes_the_smallest", ["keep_best", "the smallest loss of any rank", "not of the average"], '''
-    best = kept = losses.new_full((), float("inf"))
+    best = torch.full_like(losses[0], float("inf"))
+    kept = torch.empty_like(weights[0])
@@
-        mean = loss.clone()
-        comm.all_reduce(mean, group, "avg")
-        if mean < best:
-            best, kept = mean, weight.clone()
+        least = loss.clone()
+        comm.all_reduce(least, group, "min")
+        if least < best:
+            best, kept = least, weight.clone()
'''),
    Wrong("best_with_a_barrier", ["keep_best", "deadlock", "The ranks are in different calls", "rank 1 in barrier"], '''
-    best = kept = losses.new_full((), float("inf"))
+    best = torch.full_like(losses[0], float("inf"))
+    kept = torch.empty_like(weights[0])
@@
-        mean = loss.clone()
-        comm.all_reduce(mean, group, "avg")
-        if mean < best:
-            best, kept = mean, weight.clone()
+        comm.barrier(group)
+        if loss < best:
+            best = loss.clone()
+            comm.all_reduce(best, group, "avg")
+            kept = weight.clone()
'''),
    Wrong("best_without_averaging_weights", ["keep_best", "these are this rank's own weights"], '''
-    best = kept = losses.new_full((), float("inf"))
+    best = torch.full_like(losses[0], float("inf"))
+    kept = torch.empty_like(weights[0])
@@
-            comm.all_reduce(kept, group, "avg")
'''),
    Wrong("gradients_all_at_once", ["sync_gradients", "wrong value", "gradients of different names are added up"], '''
-    for name in sorted(gradients):
-        if name.endswith("norm"):  # mutate: same
-            comm.all_reduce(gradients[name], tp)
-        comm.all_reduce(gradients[name], dp, "avg")
+    norms = [gradient for name, gradient in gradients.items() if name.endswith("norm")]
+    for work in [comm.all_reduce(norm, tp, async_op=True) for norm in norms]:
+        work.wait()
+    works = [comm.all_reduce(g, dp, "avg", async_op=True) for g in gradients.values()]
+    for work in works:
+        work.wait()
'''),
    Wrong("gradients_group_by_group", ["sync_gradients", "wrong value", "gradients of different names are added up"], '''
-    for name in sorted(gradients):
+    for name, gradient in gradients.items():
@@
-            comm.all_reduce(gradients[name], tp)
-        comm.all_reduce(gradients[name], dp, "avg")
+            comm.all_reduce(gradient, tp)
+    for gradient in gradients.values():
+        comm.all_reduce(gradient, dp, "avg")
'''),
    Wrong("gradients_sorted_by_size", ["sync_gradients", "deadlock", "The ranks wait in different groups"], '''
-    for name in sorted(gradients):
+    for name in sorted(gradients, key=lambda name: gradients[name].numel()):
'''),
    Wrong("gradients_with_a_barrier", ["sync_gradients", "deadlock", "The ranks wait in different groups"], '''
-    for name in sorted(gradients):
+    for name, gradient in gradients.items():
+        comm.barrier(dp)
@@
-            comm.all_reduce(gradients[name], tp)
-        comm.all_reduce(gradients[name], dp, "avg")
+            comm.all_reduce(gradient, tp)
+        comm.all_reduce(gradient, dp, "avg")
'''),
    Wrong("gradients_without_tp", ["sync_gradients", "not added up over tp"], '''
-        if name.endswith("norm"):  # mutate: same
-            comm.all_reduce(gradients[name], tp)
'''),
    Wrong("ring_by_all_gather", ["ring_scores", "a collective was used"], '''
-    scores = [queries] * group.size
-    for step in range(group.size):
-        scores[(group.index - step) % group.size] = keys @ queries.T
-        if step < group.size - 1:
-            incoming = torch.empty_like(keys)
-            # BEGIN SOLUTION
-            #: comm.recv(incoming, group.previous, group)
-            #: comm.send(keys, group.next, group)
-            comm.exchange(keys, group.next, incoming, group.previous, group)
-            # END SOLUTION
-            keys = incoming
-    return torch.cat(scores)
+    everybody = keys.new_empty(group.size * keys.shape[0], keys.shape[1])
+    comm.all_gather(everybody, keys, group)
+    return everybody @ queries.T
'''),
    Wrong("ring_never_sends", ["ring_scores", "deadlock", "waits for a message from"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-            comm.exchange(keys, group.next, incoming, group.previous, group)
+            comm.recv(incoming, group.previous, group)
'''),
    Wrong("ring_of_two", ["ring_scores", "index 3", "an index here is between 0 and 2"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-            comm.exchange(keys, group.next, incoming, group.previous, group)
+            comm.exchange(keys, group.index ^ 1, incoming, group.index ^ 1, group)
'''),
    Wrong("ring_one_rank_after_the_other", ["ring_scores", "the ranks send one after the other"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-            comm.exchange(keys, group.next, incoming, group.previous, group)
+            if group.index == 0:
+                comm.send(keys, group.next, group)
+            comm.recv(incoming, group.previous, group)
+            if group.index != 0:
+                comm.send(keys, group.next, group)
'''),
    Wrong("ring_one_step_too_many", ["ring_scores", "one step too many"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-        if step < group.size - 1:
-            incoming = torch.empty_like(keys)
-            # BEGIN SOLUTION
-            #: comm.recv(incoming, group.previous, group)
-            #: comm.send(keys, group.next, group)
-            comm.exchange(keys, group.next, incoming, group.previous, group)
-            # END SOLUTION
-            keys = incoming
+        incoming = torch.empty_like(keys)
+        comm.exchange(keys, group.next, incoming, group.previous, group)
+        keys = incoming
'''),
    Wrong("ring_overwrites_the_keys", ["ring_scores", "the keys that were given is not what it should be"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-            keys = incoming
+            keys.copy_(incoming)
'''),
    Wrong("ring_sends_first", ["ring_scores", "deadlock", "Everybody sends and nobody receives"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-            comm.exchange(keys, group.next, incoming, group.previous, group)
+            comm.send(keys, group.next, group)
+            comm.recv(incoming, group.previous, group)
'''),
    Wrong("ring_the_other_way", ["ring_scores", "the blocks stand in the wrong order"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-            comm.exchange(keys, group.next, incoming, group.previous, group)
+            comm.exchange(keys, group.previous, incoming, group.next, group)
'''),
    Wrong("ring_with_a_barrier", ["ring_scores", "deadlock", "Every send needs its receive"], '''
-    scores = [queries] * group.size
+    scores = [torch.empty(0)] * group.size
@@
-            comm.exchange(keys, group.next, incoming, group.previous, group)
+            comm.barrier(group)
+            comm.recv(incoming, group.previous, group)
+            comm.send(keys, group.next, group)
'''),
    Wrong("rows_last_batch_left_out", ["gather_predictions", "deadlock"], '''
-    counts = torch.empty(group.size, dtype=torch.int64)
-    comm.all_gather(counts, torch.tensor([mine.shape[0]]), group)
-    most = int(counts.max())
-    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))  # mutate: same
-    everybody = mine.new_empty(group.size * most, mine.shape[1])
-    comm.all_gather(everybody, padded, group)  # mutate: same
-    parts = everybody.view(group.size, most, mine.shape[1])
-    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]  # mutate: same
-    return torch.cat(cut)
+    if mine.shape[0] == 0:
+        return mine
+    everybody = mine.new_empty(group.size * mine.shape[0], mine.shape[1])
+    comm.all_gather(everybody, mine, group)
+    return everybody
'''),
    Wrong("rows_of_the_shortest", ["gather_predictions", "rows were left out"], '''
-    counts = torch.empty(group.size, dtype=torch.int64)
-    comm.all_gather(counts, torch.tensor([mine.shape[0]]), group)
-    most = int(counts.max())
-    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))  # mutate: same
-    everybody = mine.new_empty(group.size * most, mine.shape[1])
-    comm.all_gather(everybody, padded, group)  # mutate: same
-    parts = everybody.view(group.size, most, mine.shape[1])
-    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]  # mutate: same
-    return torch.cat(cut)
+    least = torch.tensor([mine.shape[0]])
+    comm.all_reduce(least, group, "min")
+    everybody = mine.new_empty(group.size * int(least), mine.shape[1])
+    comm.all_gather(everybody, mine[: int(least)], group)
+    return everybody
'''),
    Wrong("rows_only_ranks_with_none", ["gather_predictions", "is not the same everywhere", "the ranks gave tensors of different sizes"], '''
-    most = int(counts.max())
-    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))  # mutate: same
-    everybody = mine.new_empty(group.size * most, mine.shape[1])
-    comm.all_gather(everybody, padded, group)  # mutate: same
-    parts = everybody.view(group.size, most, mine.shape[1])
-    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]  # mutate: same
-    return torch.cat(cut)
+    full = int(counts[0])
+    if mine.shape[0] == 0:
+        mine = mine.new_zeros(full, mine.shape[1])
+    everybody = mine.new_empty(group.size * mine.shape[0], mine.shape[1])
+    comm.all_gather(everybody, mine, group)
+    parts = everybody.view(group.size, -1, mine.shape[1])
+    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
'''),
    Wrong("rows_padded_to_1024", ["gather_predictions", "is too large"], '''
-    most = int(counts.max())
-    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))  # mutate: same
-    everybody = mine.new_empty(group.size * most, mine.shape[1])
+    padded = mine.new_zeros(1024, mine.shape[1])
+    padded[: mine.shape[0]] = mine
+    everybody = mine.new_empty(group.size * 1024, mine.shape[1])
@@
-    parts = everybody.view(group.size, most, mine.shape[1])
-    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]  # mutate: same
-    return torch.cat(cut)
+    parts = everybody.view(group.size, 1024, mine.shape[1])
+    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
'''),
    Wrong("rows_with_padding", ["gather_predictions", "the padding is still there"], '''
-    counts = torch.empty(group.size, dtype=torch.int64)
-    comm.all_gather(counts, torch.tensor([mine.shape[0]]), group)
-    most = int(counts.max())
-    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))  # mutate: same
-    everybody = mine.new_empty(group.size * most, mine.shape[1])
+    most = torch.tensor([mine.shape[0]])
+    comm.all_reduce(most, group, "max")
+    padded = mine.new_zeros(int(most), mine.shape[1])
+    padded[: mine.shape[0]] = mine
+    everybody = mine.new_empty(group.size * int(most), mine.shape[1])
@@
-    parts = everybody.view(group.size, most, mine.shape[1])
-    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]  # mutate: same
-    return torch.cat(cut)
+    return everybody
'''),
    Wrong("tied_by_everybody", ["sync_tied", "AttributeError"], '''
-    if gradient is not None:
-        comm.all_reduce(gradient, ends)
+    comm.all_reduce(gradient, ends)
'''),
    Wrong("tied_by_nobody", ["sync_tied", "this is a rank's own part alone"], '''
-    if gradient is not None:
-        comm.all_reduce(gradient, ends)
+    return
'''),
    Wrong("tied_by_rank_for_index", ["sync_tied", "index 3", "an index here is between 0 and 1"], '''
-        comm.all_reduce(gradient, ends)
+        other = torch.empty_like(gradient)
+        peer = pp.size - 1 - pp.index
+        comm.exchange(gradient, peer, other, peer, ends)
+        gradient += other
'''),
    Wrong("tied_copied_from_the_first", ["sync_tied", "this is a rank's own part alone"], '''
-        comm.all_reduce(gradient, ends)
+        comm.broadcast(gradient, 0, ends)
'''),
    Wrong("tied_for_three_stages", ["sync_tied", "deadlock"], '''
-    if gradient is not None:
-        comm.all_reduce(gradient, ends)
+    if pp.index in (0, 2):
+        comm.all_reduce(gradient if gradient is not None else torch.zeros(5, 4).double(), ends)
'''),
    Wrong("tied_with_a_barrier", ["sync_tied", "deadlock", "in barrier"], '''
-        comm.all_reduce(gradient, ends)
+        comm.all_reduce(gradient, pp)
+    comm.barrier(pp)
'''),
    Wrong("tied_with_zeros", ["sync_tied", "bytes sent by sync_tied", "take part", "with zeros"], '''
-    if gradient is not None:
-        comm.all_reduce(gradient, ends)
+    mine = torch.zeros(5, 4, dtype=torch.float64) if gradient is None else gradient
+    comm.all_reduce(mine, pp)
'''),
    Wrong("train_all_raise", ["train", "every rank: ValueError"], '''
-            damaged = torch.ones(1)
+            damaged += 1
@@
-            left_out += 1
-            continue
+            raise ValueError("a damaged batch on some rank")
'''),
    Wrong("train_always_leaves_out", ["train", "the weight has not moved"], '''
-        damaged = torch.zeros(1)
-        try:
-            gradient = gradient_of(weight, batch)
-        except ValueError:
-            damaged = torch.ones(1)
+        damaged = torch.ones(1)
@@
-        comm.all_reduce(gradient, group, "avg")
+        gradient = gradient_of(weight, batch)
'''),
    Wrong("train_counts_its_own", ["train", "only this rank's own damaged batches were counted"], '''
-            damaged = torch.ones(1)
+            damaged += 1
+            left_out += 1
@@
-            left_out += 1
'''),
    Wrong("train_counts_zeros", ["train", "a damaged batch was counted as a gradient of zero"], '''
-        damaged = torch.zeros(1)
@@
-            damaged = torch.ones(1)
-        comm.all_reduce(damaged, group)
-        if damaged:
+            gradient = torch.zeros_like(weight)
@@
-            continue
'''),
    Wrong("train_one_damaged_rank_at_a_time", ["train"], '''
-            damaged = torch.ones(1)
+            damaged += 1
+            gradient = torch.zeros_like(weight)
@@
-        if damaged:
+        if damaged == 1:
'''),
    Wrong("train_reduces_what_is_left", ["train", "UnboundLocalError"], '''
         comm.all_reduce(damaged, group)
+        comm.all_reduce(gradient, group, "avg")
@@
-        comm.all_reduce(gradient, group, "avg")
'''),
    Wrong("train_stops_at_the_first", ["train", "training ended with the first damaged batch"], '''
-            damaged = torch.ones(1)
+            damaged += 1
@@
-            continue
+            break
'''),
    Wrong("train_with_a_barrier", ["train", "deadlock", "The ranks are in different calls"], '''
-        damaged = torch.zeros(1)
@@
-            damaged = torch.ones(1)
-        comm.all_reduce(damaged, group)
-        if damaged:
+            comm.barrier(group)
'''),
    Wrong("train_with_the_sound_ones", ["train", "the step was made with the sound batches alone"], '''
-        damaged = torch.zeros(1)
+        sound = torch.ones(1, dtype=weight.dtype)
@@
-            damaged = torch.ones(1)
-        comm.all_reduce(damaged, group)
-        if damaged:
-            left_out += 1
-            continue
-        comm.all_reduce(gradient, group, "avg")
+            sound, gradient = torch.zeros_like(sound), torch.zeros_like(weight)
+        package = torch.cat([gradient, sound])
+        comm.all_reduce(package, group)
+        gradient = package[:-1] / package[-1]
+        left_out += int(package[-1] < group.size)
'''),
]

RIGHT = [
    Right("variant_even_ranks_send_first", "even ranks send first, groups one after the other, nan as the flag", '''
from collections.abc import Sequence

import torch

from course_lib import comm
from course_lib.comm import Group


def keep_best(
    losses: torch.Tensor, weights: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    best = kept = losses.new_full((), float("inf"))
    for loss, weight in zip(losses, weights, strict=True):
        mean = loss.clone()
        comm.all_reduce(mean, group, "avg")
        if mean < best:
            best, kept = mean, weight.clone()
            comm.all_reduce(kept, group, "avg")
    return best, kept


def sync_gradients(gradients: dict[str, torch.Tensor], dp: Group, tp: Group) -> None:
    for name in sorted(gradients, reverse=True):
        if name.endswith("norm"):
            comm.all_reduce(gradients[name], tp)
    for name in sorted(gradients):
        comm.all_reduce(gradients[name], dp, "avg")


def sync_tied(gradient: torch.Tensor | None, pp: Group, ends: Group) -> None:
    if gradient is not None:
        comm.all_reduce(gradient, ends)


def gather_predictions(mine: torch.Tensor, group: Group) -> torch.Tensor:
    counts = torch.empty(group.size, dtype=torch.int64)
    comm.all_gather(counts, torch.tensor([mine.shape[0]]), group)
    most = int(counts.max())
    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))
    everybody = mine.new_empty(group.size * most, mine.shape[1])
    comm.all_gather(everybody, padded, group)
    parts = everybody.view(group.size, most, mine.shape[1])
    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]
    return torch.cat(cut)


def ring_scores(queries: torch.Tensor, keys: torch.Tensor, group: Group) -> torch.Tensor:
    scores = [torch.empty(0)] * group.size
    for step in range(group.size):
        scores[(group.index - step) % group.size] = keys @ queries.T
        if step < group.size - 1:
            incoming = torch.empty_like(keys)
            if group.index % 2 == 0:
                comm.send(keys, group.next, group)
                comm.recv(incoming, group.previous, group)
            else:
                comm.recv(incoming, group.previous, group)
                comm.send(keys, group.next, group)
            keys = incoming
    return torch.cat(scores)


def gradient_of(weight: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    if not batch.isfinite().all():
        raise ValueError("a damaged batch")
    inputs, targets = batch[:, :-1], batch[:, -1]
    return inputs.T @ (inputs @ weight - targets) / len(batch)


def train(
    weight: torch.Tensor, batches: Sequence[torch.Tensor], rate: float, group: Group
) -> tuple[torch.Tensor, int]:
    left_out = 0
    for batch in batches:
        try:
            gradient = gradient_of(weight, batch)
        except ValueError:
            gradient = torch.full_like(weight, float("nan"))
        comm.all_reduce(gradient, group, "avg")
        if gradient.isnan().any():
            left_out += 1
            continue
        weight = weight - rate * gradient
    return weight, left_out
'''),
    Right("variant_messages_between_the_ends", "messages, rows by all-to-all, one package a step", '''
from collections.abc import Sequence

import torch

from course_lib import comm
from course_lib.comm import Group


def keep_best(
    losses: torch.Tensor, weights: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    best = kept = losses.new_full((), float("inf"))
    for loss, weight in zip(losses, weights, strict=True):
        mean = loss.clone()
        comm.all_reduce(mean, group, "avg")
        if mean < best:
            best, kept = mean, weight.clone()
            comm.all_reduce(kept, group, "avg")
    return best, kept


def sync_gradients(gradients: dict[str, torch.Tensor], dp: Group, tp: Group) -> None:
    for name in sorted(gradients):
        if name.endswith("norm"):
            comm.all_reduce(gradients[name], tp)
        comm.all_reduce(gradients[name], dp, "avg")


def sync_tied(gradient: torch.Tensor | None, pp: Group, ends: Group) -> None:
    if gradient is not None:
        other = torch.empty_like(gradient)
        comm.exchange(gradient, ends.next, other, ends.previous, ends)
        gradient += other


def gather_predictions(mine: torch.Tensor, group: Group) -> torch.Tensor:
    counts = torch.empty(group.size, dtype=torch.int64)
    comm.all_gather(counts, torch.tensor([mine.shape[0]]), group)
    sizes = counts.tolist()
    everybody = mine.new_empty(sum(sizes), mine.shape[1])
    comm.all_to_all(everybody, mine.repeat(group.size, 1), group, sizes, [len(mine)] * group.size)
    return everybody


def ring_scores(queries: torch.Tensor, keys: torch.Tensor, group: Group) -> torch.Tensor:
    scores = [queries] * group.size
    for step in range(group.size):
        scores[(group.index - step) % group.size] = keys @ queries.T
        if step < group.size - 1:
            incoming = torch.empty_like(keys)
            comm.exchange(keys, group.next, incoming, group.previous, group)
            keys = incoming
    return torch.cat(scores)


def gradient_of(weight: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    if not batch.isfinite().all():
        raise ValueError("a damaged batch")
    inputs, targets = batch[:, :-1], batch[:, -1]
    return inputs.T @ (inputs @ weight - targets) / len(batch)


def train(
    weight: torch.Tensor, batches: Sequence[torch.Tensor], rate: float, group: Group
) -> tuple[torch.Tensor, int]:
    left_out = 0
    for batch in batches:
        package = weight.new_zeros(weight.numel() + 1)
        try:
            package[:-1] = gradient_of(weight, batch)
        except ValueError:
            package[-1] = 1
        comm.all_reduce(package, group)
        if package[-1] > 0:
            left_out += 1
            continue
        gradient = package[:-1] / group.size
        weight = weight - rate * gradient
    return weight, left_out
'''),
    Right("variant_one_flat_gradient", "flat gradients, losses averaged first, messages posted before any is waited for", '''
from collections.abc import Sequence

import torch

from course_lib import comm
from course_lib.comm import Group


def keep_best(
    losses: torch.Tensor, weights: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    means = losses.clone()
    for epoch in range(len(losses)):
        comm.all_reduce(means[epoch], group, "avg")
    best, kept = means[0], weights[0].clone()
    comm.all_reduce(kept, group, "avg")
    for mean, weight in zip(means[1:], weights[1:], strict=True):
        if mean < best:
            best, kept = mean, weight.clone()
            comm.all_reduce(kept, group, "avg")
    return best, kept


def sync_gradients(gradients: dict[str, torch.Tensor], dp: Group, tp: Group) -> None:
    names = sorted(gradients)
    norms = [name for name in names if name.endswith("norm")]
    for some, group, op in ((norms, tp, "sum"), (names, dp, "avg")):
        flat = torch.cat([gradients[name].flatten() for name in some])
        comm.all_reduce(flat, group, op)
        for name in some:
            piece, flat = flat.split([gradients[name].numel(), flat.numel() - gradients[name].numel()])
            gradients[name].copy_(piece.view_as(gradients[name]))


def sync_tied(gradient: torch.Tensor | None, pp: Group, ends: Group) -> None:
    if gradient is not None:
        comm.all_reduce(gradient, ends)


def gather_predictions(mine: torch.Tensor, group: Group) -> torch.Tensor:
    counts = torch.empty(group.size, dtype=torch.int64)
    comm.all_gather(counts, torch.tensor([mine.shape[0]]), group)
    most = int(counts.max())
    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))
    everybody = mine.new_empty(group.size * most, mine.shape[1])
    comm.all_gather(everybody, padded, group)
    parts = everybody.view(group.size, most, mine.shape[1])
    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]
    return torch.cat(cut)


def ring_scores(queries: torch.Tensor, keys: torch.Tensor, group: Group) -> torch.Tensor:
    scores = [torch.empty(0)] * group.size
    for step in range(group.size):
        scores[(group.index - step) % group.size] = keys @ queries.T
        if step < group.size - 1:
            incoming = torch.empty_like(keys)
            going = comm.isend(keys, group.next, group)
            comm.recv(incoming, group.previous, group)
            going.wait()
            keys = incoming
    return torch.cat(scores)


def gradient_of(weight: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    if not batch.isfinite().all():
        raise ValueError("a damaged batch")
    inputs, targets = batch[:, :-1], batch[:, -1]
    return inputs.T @ (inputs @ weight - targets) / len(batch)


def train(
    weight: torch.Tensor, batches: Sequence[torch.Tensor], rate: float, group: Group
) -> tuple[torch.Tensor, int]:
    left_out = 0
    for batch in batches:
        damaged = torch.zeros(1)
        try:
            gradient = gradient_of(weight, batch)
        except ValueError:
            damaged = torch.ones(1)
        comm.all_reduce(damaged, group)
        if damaged:
            left_out += 1
            continue
        comm.all_reduce(gradient, group, "avg")
        weight = weight - rate * gradient
    return weight, left_out
'''),
]
