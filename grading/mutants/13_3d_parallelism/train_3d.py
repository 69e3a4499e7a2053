"""Wrong and right answers to `train_3d`: see `course dev show train_3d`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("averaged_too", ["divided by the size of dp"], '''
-            all_reduce(parameter.grad, dp)
+            all_reduce(parameter.grad, dp, "avg")
'''),
    Wrong("axes_in_another_order", ["in the order of `sizes`"], '''
-    mesh = Mesh(world, sizes)
+    mesh = Mesh(world, dict(reversed(sizes.items())))
'''),
    Wrong("clipped_before_the_sum", ["clipped before the sum over dp"], '''
         sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
+        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
@@
-        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
'''),
    Wrong("copies_forgotten", ["replicas count several times"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
+    copies = {p: 1 for p in parameters}
'''),
    Wrong("copies_on_dp_forgotten", ["replicas on dp count several times"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
+    copies = {p: tp.size if p.dim() == 1 else 1 for p in parameters}
'''),
    Wrong("copies_on_tp_forgotten", ["weights count tp times"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
+    copies = {p: dp.size for p in parameters}
'''),
    Wrong("gathers_gradients", ["bytes on the axis dp"], '''
 from course_lib.train import clip_grad_norm_nd, pipeline_stages, tensor_parallel
+from course_lib.comm import all_gather
@@
-            all_reduce(parameter.grad, dp)
+            every = parameter.grad.new_empty(dp.size * parameter.numel())
+            all_gather(every, parameter.grad.flatten(), dp)
+            parameter.grad = every.view(dp.size, *parameter.shape).sum(0)
'''),
    Wrong("gradients_over_the_world", ["on world [0, 1, 2, 3, 4, 5, 6, 7] is not the same"], '''
-            all_reduce(parameter.grad, dp)
+            all_reduce(parameter.grad, world)
'''),
    Wrong("literal_two", ["0.666667 times", "dp 3"], '''
-        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
+        sums = pipeline.step(batches, [2 / int(tokens)] * micro_batches)
@@
-            all_reduce(parameter.grad, dp)
+            all_reduce(parameter.grad, dp, "avg")
'''),
    Wrong("local_norm", ["the norm of this rank's part alone"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
@@
-        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
+        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
'''),
    Wrong("loss_in_float32", ["float32"], '''
-        total = torch.zeros((), dtype=torch.float64) + sum(sums)
+        total = torch.zeros(()) + float(sum(sums))
'''),
    Wrong("loss_of_own_rows", ["this rank's rows only"], '''
-        all_reduce(total, rows)
+        all_reduce(total, pp)
'''),
    Wrong("loss_on_the_last_stage", ["only the last stage hears of losses"], '''
-        all_reduce(total, rows)
+        all_reduce(total, dp)
'''),
    Wrong("loss_over_the_world", ["not to be summed over tp"], '''
-        all_reduce(total, rows)
+        all_reduce(total, world)
'''),
    Wrong("matrices_as_copies", ["matrices count once for all of tp"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
+    copies = {p: dp.size * tp.size for p in parameters}
'''),
    Wrong("mean_of_micro_batch_means", ["a mean of the micro-batches' means"], '''
-        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
+        sums = pipeline.step(batches, [1 / int((t != IGNORED).sum().clamp(min=1)) / micro_batches for _, t in batches])
@@
-            all_reduce(parameter.grad, dp)
+            all_reduce(parameter.grad, dp, "avg")
'''),
    Wrong("mean_of_rank_means", ["a mean of means"], '''
-        all_reduce(tokens, dp)
@@
-            all_reduce(parameter.grad, dp)
+            all_reduce(parameter.grad, dp, "avg")
'''),
    Wrong("multiplied_by_dp", ["multiplied by the size of dp"], '''
-        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
+        sums = pipeline.step(batches, [dp.size / int(tokens)] * micro_batches)
'''),
    Wrong("no_weights", ["losses are sums: weigh each by 1/tokens"], '''
-        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
+        sums = pipeline.step(batches)
'''),
    Wrong("norm_without_the_stages", ["without the other stages"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
+    copies = {p: tp.size if p.dim() == 1 else 1 for p in parameters}
@@
-        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
+        clip_grad_norm_nd(parameters, copies.__getitem__, tp, max_norm)
'''),
    Wrong("norm_without_tp", ["without the other parts of the matrices"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
+    copies = {p: 1 for p in parameters}
@@
-        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
+        clip_grad_norm_nd(parameters, copies.__getitem__, pp, max_norm)
'''),
    Wrong("norms_averaged_over_tp", ["bytes on the axis tp"], '''
             all_reduce(parameter.grad, dp)
+            if parameter.dim() == 1:
+                all_reduce(parameter.grad, tp, "avg")
'''),
    Wrong("norms_summed_over_tp", ["all ranks of tp have the same gradient"], '''
             all_reduce(parameter.grad, dp)
+            if parameter.dim() == 1:
+                all_reduce(parameter.grad, tp)
'''),
    Wrong("not_clipped", ["not clipped"], '''
-        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
'''),
    Wrong("not_cut", ["a loss over"], '''
-    tensor_parallel(model, tp)
'''),
    Wrong("not_summed", ["this rank's own rows alone"], '''
-        for parameter in parameters:  # mutate: same
-            all_reduce(parameter.grad, dp)
'''),
    Wrong("optimizer_before_the_cut", ["lacks", "cutting a model makes new ones"], '''
     schedule = one_f_one_b(pp.size, micro_batches)  # mutate: same
+    optimizer = make_optimizer(list(model.parameters()))
@@
-    optimizer, losses = make_optimizer(parameters), []  # mutate: same
+    losses = []
'''),
    Wrong("optimizer_of_all_stages", ["the list of parameters that the optimizer"], '''
-    optimizer, losses = make_optimizer(parameters), []  # mutate: same
+    optimizer, losses = make_optimizer(list(model.parameters())), []
'''),
    Wrong("others_stay_away", ["deadlock", "those without losses with 0"], '''
-        all_reduce(total, rows)
+        if sums:
+            all_reduce(total, rows)
'''),
    Wrong("own_tokens", ["each rank divided by its own tokens"], '''
-        all_reduce(tokens, dp)
'''),
    Wrong("past_comm", ["past course_lib.comm"], '''
-        all_reduce(total, rows)
+        torch.distributed.all_reduce(total, group=rows.handle)
'''),
    Wrong("rows_by_global_rank", ["not the global rank", "one tp line"], '''
-        batches = read(step, dp.index, dp.size)
+        batches = read(step, world.rank % dp.size, dp.size)
'''),
    Wrong("rows_by_place_on_pp", ["the place on pp"], '''
-        batches = read(step, dp.index, dp.size)
+        batches = read(step, pp.index % dp.size, dp.size)
'''),
    Wrong("rows_cut_over_all_ranks", ["the batch is cut over all ranks"], '''
-        batches = read(step, dp.index, dp.size)
+        batches = read(step, world.index, world.size)
'''),
    Wrong("steps_before_the_sum", ["own rows alone", "before the update"], '''
         sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
+        optimizer.step()
@@
-        optimizer.step()
'''),
    Wrong("tokens_over_the_world", ["counted on all ranks"], '''
-        all_reduce(tokens, dp)
+        all_reduce(tokens, world)
'''),
    Wrong("whole_batch", ["all ranks read the whole batch"], '''
-        batches = read(step, dp.index, dp.size)
+        batches = read(step, 0, 1)
'''),
    Wrong("zero_grad_forgotten", ["it still contains the previous step's"], '''
-        optimizer.zero_grad()  # mutate: same
'''),
    Wrong("copies_along_pp", ["the clipped gradient (pp 1 × dp 3 × tp 2", "the norms' weights count tp times"], '''
-    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
+    copies = {p: dp.size * (pp.size if p.dim() == 1 else 1) for p in parameters}
'''),
    Wrong("schedule_of_tp", ["the schedule 1F1B on 1 ranks", "a schedule for 2 ranks"], '''
-    schedule = one_f_one_b(pp.size, micro_batches)  # mutate: same
+    schedule = one_f_one_b(tp.size, micro_batches)
'''),
]

RIGHT = [
    Right("variant_averages", "the average over dp, of weights that are dp times as large", '''
from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import Pipeline
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import clip_grad_norm_nd, pipeline_stages, tensor_parallel

IGNORED = -100  # a target that is not counted
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, T]


def make_pipeline(
    stages: Mapping[int, nn.Module],
    schedule: Schedule,
    pp: Group,
    tp: Group,
    config: ModelConfig,
) -> Pipeline:
    """Runs this rank's stages; its losses are *sums* over the counted tokens of a micro-batch."""

    def loss(logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        losses_BT = vocab_parallel_cross_entropy(logits, targets_BT, config.vocabulary, tp)
        return losses_BT.masked_fill(targets_BT == IGNORED, 0).sum()

    def border(inputs_BT: torch.Tensor) -> torch.Tensor:
        return torch.empty(*inputs_BT.shape, config.hidden, dtype=torch.float64)

    return Pipeline(stages, schedule, pp, loss=loss, border=border)


def train_3d(
    model: Transformer,
    world: Group,
    sizes: Mapping[str, int],
    read: Callable[[int, int, int], list[Batch]],
    make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    steps: int,
    micro_batches: int,
    max_norm: float,
) -> list[float]:
    """Trains a model on a mesh; collective over the world.

    Args:
        model: the whole, the same on every rank, float64; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp` and `tp`, in this order; their product is the world's size.
        read: `read(step, index, count)` returns a list of micro-batches.
        make_optimizer: makes an optimizer for this rank's parameters.
        steps: 0, 1, ..., steps - 1.
        micro_batches: in each list that `read` returns.
        max_norm: of the whole gradient; `inf` does not clip.

    Returns:
        The loss of each step, before its update.
    """
    mesh = Mesh(world, sizes)
    pp, dp, tp, rows = mesh["pp"], mesh["dp"], mesh["tp"], mesh["pp", "dp"]
    schedule = one_f_one_b(pp.size, micro_batches)
    tensor_parallel(model, tp)
    stages = pipeline_stages(model, schedule, pp)
    pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    optimizer, losses = make_optimizer(parameters), []
    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
    for step in range(steps):
        optimizer.zero_grad()
        batches = read(step, dp.index, dp.size)
        tokens = torch.stack([(targets != IGNORED).sum() for _, targets in batches]).sum()
        all_reduce(tokens, dp)
        sums = pipeline.step(batches, [dp.size / int(tokens)] * micro_batches)
        for parameter in parameters:
            all_reduce(parameter.grad, dp, "avg")
        total = torch.zeros((), dtype=torch.float64) + sum(sums)
        all_reduce(total, rows)
        losses.append(float(total) / int(tokens))
        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
        optimizer.step()
    return losses
'''),
    Right("variant_flat", "one flat message for all gradients; the loss goes over pp, then over dp", '''
from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import Pipeline
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import clip_grad_norm_nd, pipeline_stages, tensor_parallel

IGNORED = -100  # a target that is not counted
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, T]


def make_pipeline(
    stages: Mapping[int, nn.Module],
    schedule: Schedule,
    pp: Group,
    tp: Group,
    config: ModelConfig,
) -> Pipeline:
    """Runs this rank's stages; its losses are *sums* over the counted tokens of a micro-batch."""

    def loss(logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        losses_BT = vocab_parallel_cross_entropy(logits, targets_BT, config.vocabulary, tp)
        return losses_BT.masked_fill(targets_BT == IGNORED, 0).sum()

    def border(inputs_BT: torch.Tensor) -> torch.Tensor:
        return torch.empty(*inputs_BT.shape, config.hidden, dtype=torch.float64)

    return Pipeline(stages, schedule, pp, loss=loss, border=border)


def train_3d(
    model: Transformer,
    world: Group,
    sizes: Mapping[str, int],
    read: Callable[[int, int, int], list[Batch]],
    make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    steps: int,
    micro_batches: int,
    max_norm: float,
) -> list[float]:
    """Trains a model on a mesh; collective over the world.

    Args:
        model: the whole, the same on every rank, float64; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp` and `tp`, in this order; their product is the world's size.
        read: `read(step, index, count)` returns a list of micro-batches.
        make_optimizer: makes an optimizer for this rank's parameters.
        steps: 0, 1, ..., steps - 1.
        micro_batches: in each list that `read` returns.
        max_norm: of the whole gradient; `inf` does not clip.

    Returns:
        The loss of each step, before its update.
    """
    mesh = Mesh(world, sizes)
    pp, dp, tp = mesh["pp"], mesh["dp"], mesh["tp"]
    schedule = one_f_one_b(pp.size, micro_batches)
    tensor_parallel(model, tp)
    stages = pipeline_stages(model, schedule, pp)
    pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    optimizer, losses = make_optimizer(parameters), []
    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
    for step in range(steps):
        optimizer.zero_grad()
        batches = read(step, dp.index, dp.size)
        tokens = torch.stack([(targets != IGNORED).sum() for _, targets in batches]).sum()
        all_reduce(tokens, dp)
        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
        flat = torch.cat([p.grad.flatten() for p in parameters])
        all_reduce(flat, dp)
        for p, grad in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            p.grad = grad.view_as(p)
        total = torch.zeros((), dtype=torch.float64) + sum(sums)
        all_reduce(total, pp)
        all_reduce(total, dp)
        losses.append(float(total) / int(tokens))
        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
        optimizer.step()
    return losses
'''),
    Right("variant_loss_last", "the loss is told at the end of the step, by a maximum over pp", '''
from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import Pipeline
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import clip_grad_norm_nd, pipeline_stages, tensor_parallel

IGNORED = -100  # a target that is not counted
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, T]


def make_pipeline(
    stages: Mapping[int, nn.Module],
    schedule: Schedule,
    pp: Group,
    tp: Group,
    config: ModelConfig,
) -> Pipeline:
    """Runs this rank's stages; its losses are *sums* over the counted tokens of a micro-batch."""

    def loss(logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        losses_BT = vocab_parallel_cross_entropy(logits, targets_BT, config.vocabulary, tp)
        return losses_BT.masked_fill(targets_BT == IGNORED, 0).sum()

    def border(inputs_BT: torch.Tensor) -> torch.Tensor:
        return torch.empty(*inputs_BT.shape, config.hidden, dtype=torch.float64)

    return Pipeline(stages, schedule, pp, loss=loss, border=border)


def train_3d(
    model: Transformer,
    world: Group,
    sizes: Mapping[str, int],
    read: Callable[[int, int, int], list[Batch]],
    make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    steps: int,
    micro_batches: int,
    max_norm: float,
) -> list[float]:
    """Trains a model on a mesh; collective over the world.

    Args:
        model: the whole, the same on every rank, float64; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp` and `tp`, in this order; their product is the world's size.
        read: `read(step, index, count)` returns a list of micro-batches.
        make_optimizer: makes an optimizer for this rank's parameters.
        steps: 0, 1, ..., steps - 1.
        micro_batches: in each list that `read` returns.
        max_norm: of the whole gradient; `inf` does not clip.

    Returns:
        The loss of each step, before its update.
    """
    mesh = Mesh(world, sizes)
    pp, dp, tp, rows = mesh["pp"], mesh["dp"], mesh["tp"], mesh["pp", "dp"]
    schedule = one_f_one_b(pp.size, micro_batches)
    tensor_parallel(model, tp)
    stages = pipeline_stages(model, schedule, pp)
    pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    optimizer, losses = make_optimizer(parameters), []
    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
    for step in range(steps):
        optimizer.zero_grad()
        batches = read(step, dp.index, dp.size)
        tokens = torch.stack([(targets != IGNORED).sum() for _, targets in batches]).sum()
        all_reduce(tokens, dp)
        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
        for parameter in parameters:
            all_reduce(parameter.grad, dp)
        total = torch.zeros((), dtype=torch.float64) + sum(sums)
        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
        optimizer.step()
        all_reduce(total, dp)
        all_reduce(total, pp, "max")
        losses.append(total.item() / tokens.item())
    return losses
'''),
    Right("variant_own_norm", "GPipe, and a norm added up axis by axis", '''
from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import Pipeline
from course_lib.schedule import Schedule, gpipe
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import pipeline_stages, tensor_parallel

IGNORED = -100  # a target that is not counted
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, T]


def make_pipeline(
    stages: Mapping[int, nn.Module],
    schedule: Schedule,
    pp: Group,
    tp: Group,
    config: ModelConfig,
) -> Pipeline:
    """Runs this rank's stages; its losses are *sums* over the counted tokens of a micro-batch."""

    def loss(logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        losses_BT = vocab_parallel_cross_entropy(logits, targets_BT, config.vocabulary, tp)
        return losses_BT.masked_fill(targets_BT == IGNORED, 0).sum()

    def border(inputs_BT: torch.Tensor) -> torch.Tensor:
        return torch.empty(*inputs_BT.shape, config.hidden, dtype=torch.float64)

    return Pipeline(stages, schedule, pp, loss=loss, border=border)


def train_3d(
    model: Transformer,
    world: Group,
    sizes: Mapping[str, int],
    read: Callable[[int, int, int], list[Batch]],
    make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    steps: int,
    micro_batches: int,
    max_norm: float,
) -> list[float]:
    """Trains a model on a mesh; collective over the world.

    Args:
        model: the whole, the same on every rank, float64; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp` and `tp`, in this order; their product is the world's size.
        read: `read(step, index, count)` returns a list of micro-batches.
        make_optimizer: makes an optimizer for this rank's parameters.
        steps: 0, 1, ..., steps - 1.
        micro_batches: in each list that `read` returns.
        max_norm: of the whole gradient; `inf` does not clip.

    Returns:
        The loss of each step, before its update.
    """
    mesh = Mesh(world, sizes)
    pp, dp, tp, rows = mesh["pp"], mesh["dp"], mesh["tp"], mesh["pp", "dp"]
    schedule = gpipe(pp.size, micro_batches)
    tensor_parallel(model, tp)
    stages = pipeline_stages(model, schedule, pp)
    pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    optimizer, losses = make_optimizer(parameters), []
    for step in range(steps):
        optimizer.zero_grad()
        batches = read(step, dp.index, dp.size)
        tokens = torch.stack([(targets != IGNORED).sum() for _, targets in batches]).sum()
        all_reduce(tokens, dp)
        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
        for parameter in parameters:
            all_reduce(parameter.grad, dp)
        total = torch.zeros((), dtype=torch.float64) + sum(sums)
        all_reduce(total, rows)
        losses.append(float(total) / int(tokens))
        squares = torch.zeros((), dtype=torch.float64)
        for p in parameters:
            squares += p.grad.square().sum() / (tp.size if p.dim() == 1 else 1)
        all_reduce(squares, tp)
        all_reduce(squares, pp)
        for p in parameters:
            p.grad *= min(1.0, max_norm / (float(squares) ** 0.5 + 1e-6))
        optimizer.step()
    return losses
'''),
]
