"""Wrong and right answers to `museum_state`: see `course dev show museum_state`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("epochs_by_rank", ["the ranks do not agree on the epoch"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-        sampler.set_epoch(epoch)
+        sampler.set_epoch(epoch * group.size + group.index)
'''),
    Wrong("epochs_counted_from_0", ["counted from 0"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    for epoch in epochs:
-        sampler.set_epoch(epoch)
+    for number, _ in enumerate(epochs):
+        sampler.set_epoch(number)
'''),
    Wrong("epochs_set_too_late", ["set too late"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-        sampler.set_epoch(epoch)
@@
             step(batch)
+        sampler.set_epoch(epoch)
'''),
    Wrong("epochs_share_shuffled", ["the order of epoch 0"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
     sampler = EpochSampler(count, group)
+    share = torch.tensor(list(sampler))
@@
-        sampler.set_epoch(epoch)
-        for batch in torch.tensor(list(sampler)).split(size):
+        generator = torch.Generator().manual_seed(epoch)
+        order = share[torch.randperm(len(share), generator=generator)]
+        for batch in order.split(size):
'''),
    Wrong("epochs_of_lists", ["the types of the batches"], '''
-            step(batch)
+            step(batch.tolist())
'''),
    Wrong("epochs_of_whole_batches", ["the sizes of the batches"], '''
-            step(batch)
+            if len(batch) == size:
+                step(batch)
'''),
    Wrong("evaluate_all_everywhere", ["share the work"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    mine = torch.arange(group.index, len(targets), group.size)
-    right = model(inputs[mine]).argmax(1) == targets[mine]
-    score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)  # mutate: same
-    comm.all_reduce(score, group)
-    return float(score[0] / score[1])
+    right = model(inputs).argmax(1) == targets
+    return float(right.double().mean())
'''),
    Wrong("evaluate_divides_by_n", ["counted twice", "but divided by their true number"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    mine = torch.arange(group.index, len(targets), group.size)
+    mine = shard_indices(len(targets), group.index, group.size, epoch)
@@
-    score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)  # mutate: same
+    score = right.double().sum()
@@
-    return float(score[0] / score[1])
+    return float(score) / len(targets)
'''),
    Wrong("evaluate_drops_the_rest", ["the rest that does not divide is left out"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    mine = torch.arange(group.index, len(targets), group.size)
+    mine = shard_indices(len(targets), group.index, group.size, epoch, drop_last=True)
'''),
    Wrong("evaluate_fixes_the_order", ["the accuracy has the wrong value"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    mine = torch.arange(group.index, len(targets), group.size)
+    mine = shard_indices(len(targets), group.index, group.size, 0)
'''),
    Wrong("evaluate_mean_of_means", ["a rank with fewer examples weighs as much"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)  # mutate: same
-    comm.all_reduce(score, group)
-    return float(score[0] / score[1])
+    score = right.double().mean() if len(mine) else torch.zeros((), dtype=torch.float64)
+    comm.all_reduce(score, group, "avg")
+    return float(score)
'''),
    Wrong("evaluate_on_rank_0", ["deadlock"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    mine = torch.arange(group.index, len(targets), group.size)
-    right = model(inputs[mine]).argmax(1) == targets[mine]
-    score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)  # mutate: same
-    comm.all_reduce(score, group)
-    return float(score[0] / score[1])
+    score = torch.zeros((), dtype=torch.float64)
+    if group.index == 0:
+        score = (model(inputs).argmax(1) == targets).double().mean()
+    comm.broadcast(score, 0, group)
+    return float(score)
'''),
    Wrong("evaluate_own_share", ["this rank's own accuracy"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)  # mutate: same
-    comm.all_reduce(score, group)
-    return float(score[0] / score[1])
+    return float(right.double().mean()) if len(mine) else 0.0
'''),
    Wrong("evaluate_skips_the_empty", ["deadlock"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    right = model(inputs[mine]).argmax(1) == targets[mine]
+    right = torch.zeros(0)
+    if len(mine):
+        right = model(inputs[mine]).argmax(1) == targets[mine]
'''),
    Wrong("name_missing", ["FAULT has no line with ranks"], '''
-    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (0, 1, 3)),
@@
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
'''),
    Wrong("name_of_one_rank", ["is right", "its ranks are not"], '''
-    "save_state": ('entries["random"] = generator.get_state()', (1, 2, 3)),
+    "save_state": ('entries["random"] = generator.get_state()', "all"),
@@
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
'''),
    Wrong("name_of_the_repaired", ["is not the one"], '''
-    "train_epochs": ("for batch in torch.tensor(list(sampler)).split(size):", "all"),
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "train_epochs": ("sampler.set_epoch(epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
'''),
    Wrong("name_of_the_symptom", ["is not the one"], '''
-    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (0, 1, 3)),
+    "sharded_step": ("comm.all_gather(weights, part, group)", (0, 1, 3)),
@@
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
'''),
    Wrong("name_overflowed", ["its ranks are not"], '''
-    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (0, 1, 3)),
+    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (2,)),
@@
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
'''),
    Wrong("state_begins_at_the_seed", ["begin again at the seed"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    entries[f"random/{group.index}"] = generator.get_state()
+    entries[f"seed/{group.index}"] = torch.tensor(generator.initial_seed())
@@
-    if f"random/{group.index}" in entries:
-        generator.set_state(entries[f"random/{group.index}"])
+    if f"seed/{group.index}" in entries:
+        generator.manual_seed(int(entries[f"seed/{group.index}"]))
'''),
    Wrong("state_kept_by_others", ["goes on with the generator of the new job"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    entries[f"random/{group.index}"] = generator.get_state()
+    entries["random"] = generator.get_state()
@@
-    if f"random/{group.index}" in entries:
-        generator.set_state(entries[f"random/{group.index}"])
+    if group.index == 0:
+        generator.set_state(entries["random"])
'''),
    Wrong("state_model_by_rank", ["one model a rank", "and all are the same"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    entries[f"random/{group.index}"] = generator.get_state()
-    return entries
+    entries["random"] = generator.get_state()
+    return {f"{group.index}/{name}": value for name, value in entries.items()}
@@
-    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
+    index = group.index if f"{group.index}/random" in entries else 0
+    own = {name: entries[f"{index}/model/{name}"] for name in model.state_dict()}
@@
-    if f"random/{group.index}" in entries:
-        generator.set_state(entries[f"random/{group.index}"])
+    if f"{group.index}/random" in entries:
+        generator.set_state(entries[f"{group.index}/random"])
'''),
    Wrong("state_moved_apart", ["the dropout of this rank after the resume is not what it should be"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    entries[f"random/{group.index}"] = generator.get_state()
+    entries["random"] = generator.get_state()
@@
-    if f"random/{group.index}" in entries:
-        generator.set_state(entries[f"random/{group.index}"])
+    generator.set_state(entries["random"])
+    torch.rand(1000 * group.index, generator=generator)
'''),
    Wrong("state_new_rank_fails", ["random/3"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    if f"random/{group.index}" in entries:
-        generator.set_state(entries[f"random/{group.index}"])
+    generator.set_state(entries[f"random/{group.index}"])
'''),
    Wrong("state_of_two_ranks", ["same dropout masks after the resume"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    entries[f"random/{group.index}"] = generator.get_state()
+    entries[f"random/{group.index % 2}"] = generator.get_state()
@@
-    if f"random/{group.index}" in entries:
-        generator.set_state(entries[f"random/{group.index}"])
+    generator.set_state(entries[f"random/{group.index % 2}"])
'''),
    Wrong("step_halves_to_whole_numbers", ["the scale after update"], '''
-    if overflow:  # mutate: same
-        return scale / 2
+    if overflow:
+        return scale // 2
'''),
    Wrong("step_looks_at_squares", ["the scale after update 5"], '''
-    overflow = (~gradient.isfinite()).any().to(torch.float32)
+    overflow = (~gradient.square().sum().isfinite()).to(torch.float32)
'''),
    Wrong("step_halves_for_each_rank", ["the scale after update 3"], '''
-    comm.all_reduce(overflow, group, "max")
+    comm.all_reduce(overflow, group)
@@
-        return scale / 2
+        return scale / 2 ** int(overflow)
'''),
    Wrong("step_asks_only_if_bad", ["deadlock"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    comm.all_reduce(overflow, group, "max")
+    if overflow:
+        comm.all_reduce(overflow, group, "max")
'''),
    Wrong("step_hears_rank_0", ["the scale after update 1 has the wrong value"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    comm.all_reduce(overflow, group, "max")
+    comm.broadcast(overflow, 0, group)
'''),
    Wrong("step_misses_nan", ["the scale after update 3"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    overflow = (~gradient.isfinite()).any().to(torch.float32)
+    overflow = gradient.isinf().any().to(torch.float32)
'''),
    Wrong("step_needs_all", ["the scale after update 1"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    comm.all_reduce(overflow, group, "max")
+    comm.all_reduce(overflow, group, "min")
'''),
    Wrong("step_replaces_numbers", ["were replaced", "and the step made"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    if overflow:  # mutate: same
-        return scale / 2
@@
-    part -= rate * gradient / scale
+    part -= rate * gradient.nan_to_num(0.0, 0.0, 0.0) / scale
@@
-    return scale
+    return scale / 2 if overflow else scale
'''),
    Wrong("step_scale_only_shared", ["half a step was made"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    overflow = (~gradient.isfinite()).any().to(torch.float32)
-    comm.all_reduce(overflow, group, "max")
-    if overflow:  # mutate: same
-        return scale / 2
+    overflow = not bool(gradient.isfinite().all())
@@
-    part -= rate * gradient / scale
+    if not overflow:
+        part -= rate * gradient / scale
@@
-    return scale
+    scales = torch.tensor(scale / 2 if overflow else scale)
+    comm.all_reduce(scales, group, "min")
+    return float(scales)
'''),
    Wrong("step_skips_alone", ["it has not heard of the others"], '''
-    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
+    "evaluate": (
+        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
+    ),
@@
-    overflow = (~gradient.isfinite()).any().to(torch.float32)
-    comm.all_reduce(overflow, group, "max")
-    if overflow:  # mutate: same
-        return scale / 2
+    overflow = not bool(gradient.isfinite().all())
@@
-    part -= rate * gradient / scale
+    if not overflow:
+        part -= rate * gradient / scale
@@
-    return scale
+    return scale / 2 if overflow else scale
'''),
]

RIGHT = [
    Right("variant_gathers", "the whole gradient gathered, the predictions gathered and cut", '''
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from course_lib import comm
from course_lib.comm import Group
from course_lib.data import shard_indices

FAULT: dict[str, tuple[str, str | tuple[int, ...]]] = {
    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (0, 1, 3)),
    "save_state": ('entries["random"] = generator.get_state()', (1, 2, 3)),
    "train_epochs": ("for batch in torch.tensor(list(sampler)).split(size):", "all"),
    "evaluate": (
        "score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)", (0, 1, 2, 3)
    ),
}


def sharded_step(
    weights: torch.Tensor, gradient: torch.Tensor, scale: float, rate: float, group: Group
) -> float:
    whole = torch.empty_like(weights)
    comm.all_gather(whole, gradient.contiguous(), group)
    if not whole.isfinite().all():
        return scale / 2
    weights -= rate * whole / scale
    return scale


def save_state(
    model: nn.Module, generator: torch.Generator, group: Group
) -> dict[str, torch.Tensor]:
    entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    entries[f"random/{group.index}"] = generator.get_state()
    return entries


def load_state(
    entries: Mapping[str, torch.Tensor], model: nn.Module, generator: torch.Generator, group: Group
) -> None:
    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    model.load_state_dict(own)
    if f"random/{group.index}" in entries:
        generator.set_state(entries[f"random/{group.index}"])


class EpochSampler:

    def __init__(self, count: int, group: Group) -> None:
        self.count, self.group, self.epoch = count, group, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = shard_indices(self.count, self.group.index, self.group.size, self.epoch)
        return iter(order.tolist())


def train_epochs(
    step: Callable[[torch.Tensor], None], count: int, size: int, epochs: range, group: Group
) -> None:
    sampler = EpochSampler(count, group)
    for epoch in epochs:
        sampler = EpochSampler(count, group)
        sampler.epoch = epoch
        order = list(sampler)
        while order:
            step(torch.tensor(order[:size]))
            order = order[size:]


def evaluate(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    epoch: int,
    group: Group,
) -> float:
    mine = shard_indices(len(targets), group.index, group.size, epoch)
    guessed = model(inputs[mine]).argmax(1)
    both = torch.stack([mine, guessed])
    every = torch.empty(group.size, *both.shape, dtype=torch.int64)
    comm.all_gather(every.view(-1), both.view(-1), group)
    guess = torch.empty_like(targets)
    guess[every[:, 0].flatten()] = every[:, 1].flatten()
    return float((guess == targets).double().mean())
'''),
    Right("variant_slices", "contiguous slices, counts in integers, the scale reduced instead of a flag", '''
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from course_lib import comm
from course_lib.comm import Group
from course_lib.data import shard_indices

FAULT: dict[str, tuple[str, str | tuple[int, ...]]] = {
    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (0, 1, 3)),
    "save_state": ('entries["random"] = generator.get_state()', (1, 2, 3)),
    "train_epochs": ("for batch in torch.tensor(list(sampler)).split(size):", "all"),
    "evaluate": (
        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
    ),
}


def sharded_step(
    weights: torch.Tensor, gradient: torch.Tensor, scale: float, rate: float, group: Group
) -> float:
    wanted = torch.tensor(scale if gradient.isfinite().all() else scale / 2, dtype=torch.float64)
    comm.all_reduce(wanted, group, "min")
    if wanted < scale:
        return float(wanted)
    part = weights.chunk(group.size)[group.index] - rate * gradient / scale
    comm.all_gather(weights, part, group)
    return scale


def save_state(
    model: nn.Module, generator: torch.Generator, group: Group
) -> dict[str, torch.Tensor]:
    entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    entries[f"random/{group.index}"] = generator.get_state()
    return entries


def load_state(
    entries: Mapping[str, torch.Tensor], model: nn.Module, generator: torch.Generator, group: Group
) -> None:
    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    model.load_state_dict(own)
    state = entries.get(f"random/{group.index}")
    if state is not None:
        generator.set_state(state)


class EpochSampler:

    def __init__(self, count: int, group: Group) -> None:
        self.count, self.group, self.epoch = count, group, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = shard_indices(self.count, self.group.index, self.group.size, self.epoch)
        return iter(order.tolist())


def train_epochs(
    step: Callable[[torch.Tensor], None], count: int, size: int, epochs: range, group: Group
) -> None:
    sampler = EpochSampler(count, group)
    for epoch in epochs:
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(size):
            step(batch)


def evaluate(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    epoch: int,
    group: Group,
) -> float:
    each = -(-len(targets) // group.size)
    begin = min(group.index * each, len(targets))
    mine = slice(begin, begin + each)
    right = (model(inputs[mine]).argmax(1) == targets[mine]).sum()
    comm.all_reduce(right, group)
    return int(right) / len(targets)
'''),
    Right("variant_sums_and_masks", "a sum as the flag, one gathered state, a masked padding; other names", '''
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from course_lib import comm
from course_lib.comm import Group
from course_lib.data import shard_indices

FAULT: dict[str, tuple[str, str | tuple[int, ...]]] = {
    "sharded_step": ("    if overflow:", [3, 1, 0]),
    "save_state": ('generator.set_state( entries["random"] )', (1, 2, 3)),
    "train_epochs": ("for _ in epochs:", (0, 1, 2, 3)),
    "evaluate": (
        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
    ),
}


def sharded_step(
    weights: torch.Tensor, gradient: torch.Tensor, scale: float, rate: float, group: Group
) -> float:
    skip = torch.tensor(float(not gradient.isfinite().all()))
    comm.all_reduce(skip, group)
    if skip > 0:
        return scale * 0.5
    mine = weights.view(group.size, -1)[group.index]
    comm.all_gather(weights, mine - rate / scale * gradient, group)
    return scale


def save_state(
    model: nn.Module, generator: torch.Generator, group: Group
) -> dict[str, torch.Tensor]:
    entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    state = generator.get_state()
    states = torch.empty(group.size, len(state), dtype=state.dtype)
    comm.all_gather(states.view(-1), state, group)
    entries["random"] = states
    return entries


def load_state(
    entries: Mapping[str, torch.Tensor], model: nn.Module, generator: torch.Generator, group: Group
) -> None:
    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    model.load_state_dict(own)
    if group.index < len(entries["random"]):
        generator.set_state(entries["random"][group.index].clone())


class EpochSampler:

    def __init__(self, count: int, group: Group) -> None:
        self.count, self.group, self.epoch = count, group, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = shard_indices(self.count, self.group.index, self.group.size, self.epoch)
        return iter(order.tolist())


def train_epochs(
    step: Callable[[torch.Tensor], None], count: int, size: int, epochs: range, group: Group
) -> None:
    sampler = EpochSampler(count, group)
    for epoch in epochs:
        order = shard_indices(count, group.index, group.size, epoch)
        for begin in range(0, len(order), size):
            step(order[begin : begin + size])


def evaluate(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    epoch: int,
    group: Group,
) -> float:
    mine = shard_indices(len(targets), group.index, group.size, epoch)
    places = torch.arange(len(mine)) * group.size + group.index
    right = model(inputs[mine]).argmax(1) == targets[mine]
    right = right & (places < len(targets))  # the rest is padding
    score = right.double().sum()
    comm.all_reduce(score, group)
    return float(score) / len(targets)
'''),
]
