"""Wrong and right answers to `assemble`: see `course dev show assemble`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("auxiliary_by_ranks", ["auxiliary losses are divided by the ranks of dp × ep"], '''
-            stage.auxiliary_weight = 1 / micro_batches
+            stage.auxiliary_weight = 1 / micro_batches / self.rows.size
'''),
    Wrong("auxiliary_of_each_micro_batch", ["their weight is 1/m"], '''
-        for stage in stages.values():
-            stage.auxiliary_weight = 1 / micro_batches
'''),
    Wrong("averaged_before", ["do not average it before"], '''
     tied_pair,
 )
+from course_lib.parallel import average_over_replicas
@@
         for optimizer in self.optimizers:
+            average_over_replicas(optimizer._trained(), optimizer.group)
             optimizer.reduce_gradients()
'''),
    Wrong("biases_stay", ["did not move"], '''
-        update_router_bias(self.held)
'''),
    Wrong("chunks", ["the loss of step"], '''
-            parts = whole.tensor_split(self.micro_batches)
+            parts = whole.chunk(self.micro_batches)
'''),
    Wrong("copies_of_zero", ["ZeRO-1 has cut what the ranks had"], '''
-        self.copies = {piece: copies[whole] for piece, whole in pieces}
+        self.copies = {
+            p: copies[w] * (mesh["dp"].size if any(w is e for e in experts) else self.rows.size)
+            for p, w in pieces
+        }
'''),
    Wrong("copies_on_tp_forgotten", ["what all ranks of tp have counts tp times"], '''
-        copies, self.tied = tensor_copies(self.held, model.config, tp), None
+        copies, self.tied = dict.fromkeys(self.held.parameters(), 1), None
'''),
    Wrong("divided_by_the_ranks", ["once too often"], '''
-        weights = [self.rows.size / tokens] * self.micro_batches
+        weights = [1 / tokens] * self.micro_batches
'''),
    Wrong("experts_not_updated", ["the previous update differs"], '''
-        for optimizer in self.optimizers:
-            optimizer.step()
+        self.optimizers[0].step()
'''),
    Wrong("experts_over_dp_and_ep", ["those are the same over dp alone"], '''
-            Zero1(experts, AdamW, mesh["dp"], lr=lr),
+            Zero1(experts, AdamW, self.rows, lr=lr),
'''),
    Wrong("keeps_the_model", ["more than its part of the model is kept"], '''
         self.copies = {piece: copies[whole] for piece, whole in pieces}
+        self.model = model
'''),
    Wrong("lays_out", ["an import that this exercise does not allow: course_lib.train.lay_out"], '''
     tied_pair,
 )
+from course_lib.train import lay_out
@@
         mesh = Mesh(world, sizes)
+        lay_out(model, mesh)
'''),
    Wrong("literal_two", ["of step 0"], '''
-        weights = [self.rows.size / tokens] * self.micro_batches
+        weights = [2 / tokens] * self.micro_batches
'''),
    Wrong("loss_of_own_rows", ["of this rank's rows only"], '''
-        self.everywhere, self.world = mesh["pp", "dp", "ep"], world
+        self.everywhere, self.world = pp, world
'''),
    Wrong("loss_on_the_last_stage", ["only the last stage hears of losses"], '''
-        self.everywhere, self.world = mesh["pp", "dp", "ep"], world
+        self.everywhere, self.world = self.rows, world
'''),
    Wrong("loss_over_the_world", ["not to be summed over tp"], '''
-        all_reduce(loss, self.everywhere)
+        all_reduce(loss, self.world)
'''),
    Wrong("mean_of_micro_batch_means", ["a mean of the micro-batches' means"], '''
-        weights = [self.rows.size / tokens] * self.micro_batches
@@
         batches = list(zip(own(inputs), own(targets), strict=True))
+        counts = [max(1, int((right != IGNORED).sum())) for _, right in batches]
+        weights = [1 / self.micro_batches / count for count in counts]
'''),
    Wrong("mean_of_rank_means", ["each rank divides by its own tokens"], '''
-        weights = [self.rows.size / tokens] * self.micro_batches
+        mine = sum(int((part != IGNORED).sum()) for part in own(targets))
+        weights = [1 / mine] * self.micro_batches
'''),
    Wrong("no_auxiliary", ["auxiliary losses are left out"], '''
-            stage.auxiliary_weight = 1 / micro_batches
+            stage.auxiliary_weight = 0.0
'''),
    Wrong("not_clipped", ["the update before was not clipped"], '''
-        norm = clip_grad_norm_nd(self.copies, self.copies.get, self.world, self.max_norm)
+        norm = clip_grad_norm_nd(self.copies, self.copies.get, self.world, float("inf"))
'''),
    Wrong("others_over_dp", ["the norm of step 0"], '''
-            Zero1(others, AdamW, self.rows, lr=lr),
+            Zero1(others, AdamW, mesh["dp"], lr=lr),
'''),
    Wrong("others_stay_away", ["waits"], '''
-        all_reduce(loss, self.everywhere)
+        if losses:
+            all_reduce(loss, self.everywhere)
'''),
    Wrong("own_tokens", ["those of this rank's rows"], '''
-        tokens = int((targets != IGNORED).sum())
+        tokens = sum(int((part != IGNORED).sum()) for part in own(targets))
'''),
    Wrong("ranks_first", ["the batch is cut over the ranks first"], '''
-            parts = whole.tensor_split(self.micro_batches)
-            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]
+            mine = whole.tensor_split(self.rows.size)[self.rows.index]
+            return list(mine.tensor_split(self.micro_batches))
'''),
    Wrong("rows_by_global_rank", ["line have the same rows"], '''
-            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]
+            return [part.tensor_split(self.rows.size)[self.world.index % self.rows.size] for part in parts]
'''),
    Wrong("rows_by_place_on_dp", ["ranks of ep"], '''
         self.copies = {piece: copies[whole] for piece, whole in pieces}
+        self.dp = mesh["dp"]
@@
-            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]
+            return [part.tensor_split(self.dp.size)[self.dp.index] for part in parts]
'''),
    Wrong("state_is_not_copied", ["it must be a copy"], '''
-        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})
+        return {"held": self.held.state_dict(), "optimizers": optimizers}
'''),
    Wrong("state_without_biases", ["biases are not in the state"], '''
-        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})
+        weights = dict(self.held.named_parameters())
+        return deepcopy({"held": weights, "optimizers": optimizers})
@@
-        self.held.load_state_dict(state["held"])
+        self.held.load_state_dict(state["held"], strict=False)
'''),
    Wrong("state_without_moments", ["moments are not in the state"], '''
-        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
-            optimizer.load_state_dict(saved)
'''),
    Wrong("state_as_bytes", ["neither tensor nor number", "bytes"], '''
 from copy import deepcopy
+from io import BytesIO
@@
-        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})
+        file = BytesIO()
+        torch.save({"held": self.held.state_dict(), "optimizers": optimizers}, file)
+        return {"file": file.getvalue()}
@@
     def load(self, state: dict[str, Any]) -> None:
         """Continues from the `state` of the same rank on the same layout."""
+        state = torch.load(BytesIO(state["file"]))
'''),
    Wrong("state_saved_twice", ["each rank saves its own part, once"], '''
-        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})
+        held = self.held.state_dict()
+        return deepcopy({"held": held, "spare": deepcopy(held), "optimizers": optimizers})
'''),
    Wrong("tied_whatever_the_model_says", ["the norm of step 0"], '''
-        pair = tied_pair(schedule, pp) if model.config.tied else None
+        pair = tied_pair(schedule, pp)
'''),
    Wrong("tied_counts_twice", ["the tied embedding counts twice"], '''
-            copies[end.weight] *= 2
'''),
    Wrong("tied_not_summed", ["the norm of step 0"], '''
-        if self.tied is not None:
-            sum_tied_gradient(*self.tied)
'''),
    Wrong("whole_state", ["optimizer state is not cut"], '''
     tied_pair,
 )
+from course_lib.parallel import average_over_replicas
@@
-        self.optimizers = [
-            Zero1(others, AdamW, self.rows, lr=lr),
-            Zero1(experts, AdamW, mesh["dp"], lr=lr),
-        ]
+        self.parts = [(others, self.rows), (experts, mesh["dp"])]
+        self.optimizers = [AdamW(self.held.parameters(), lr=lr)]
@@
-        pieces = [pair for optimizer in self.optimizers for pair in own_pieces(optimizer)]
-        self.copies = {piece: copies[whole] for piece, whole in pieces}
+        self.copies = {p: copies[p] * r.size for part, r in self.parts for p in part}
@@
-        for optimizer in self.optimizers:
-            optimizer.reduce_gradients()
+        for part, replicas in self.parts:
+            average_over_replicas(part, replicas)
@@
         for optimizer in self.optimizers:
             optimizer.step()
+            optimizer.zero_grad()
'''),
]

RIGHT = [
    Right("variant_counts_over_the_ranks", "each rank counts its own tokens, and they are added up", '''
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import (
    AdamW,
    ModelConfig,
    Transformer,
    expert_parameters,
    update_router_bias,
)
from course_lib.parallel import Pipeline, Zero1, sum_tied_gradient
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import (
    clip_grad_norm_nd,
    expert_parallel,
    pipeline_stages,
    tensor_parallel,
)
from course_lib.train import tensor_copies
from course_lib.train import tied_pair

IGNORED = -100  # a target that is not counted


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


def own_pieces(optimizer: Zero1) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Pairs of a piece, which this rank updates, and the parameter that it is a piece of.

    After `reduce_gradients` a piece has its gradient. Each piece of a parameter is on one of the
    ranks of the optimizer's group.
    """
    return [
        (piece, bucket.parameters[place.parameter])
        for bucket in optimizer.buckets
        for piece, place in zip(bucket.pieces, bucket.places, strict=True)
    ]


class Trainer:
    """Trains a model on a mesh; making one is collective over the world, and so is a step.

    Args:
        model: the whole, the same on every rank, float64, with experts; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`, in this order; their product is the world's
            size.
        micro_batches: in a step.
        lr: of AdamW, whose other options stay as they are.
        max_norm: gradients are clipped to; `inf` does not clip.
    """

    def __init__(
        self,
        model: Transformer,
        world: Group,
        sizes: Mapping[str, int],
        *,
        micro_batches: int,
        lr: float,
        max_norm: float,
    ) -> None:
        mesh = Mesh(world, sizes)
        tp, pp, self.rows = mesh["tp"], mesh["pp"], mesh["dp", "ep"]
        schedule = one_f_one_b(pp.size, micro_batches)
        tensor_parallel(model, tp)
        expert_parallel(model, mesh["ep"], self.rows)
        stages = pipeline_stages(model, schedule, pp)
        for stage in stages.values():
            stage.auxiliary_weight = 1 / micro_batches
        self.pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
        self.held = nn.ModuleList(stages.values())
        experts = expert_parameters(self.held)
        others = [p for p in self.held.parameters() if all(p is not e for e in experts)]
        self.optimizers = [
            Zero1(others, AdamW, self.rows, lr=lr),
            Zero1(experts, AdamW, mesh["dp"], lr=lr),
        ]
        copies, self.tied = tensor_copies(self.held, model.config, tp), None
        pair = tied_pair(schedule, pp) if model.config.tied else None
        if pair is not None:
            first = next(iter(stages.values()))
            end = first.head if first.embedding is None else first.embedding
            self.tied = end.weight, pair
            copies[end.weight] *= 2
        pieces = [pair for optimizer in self.optimizers for pair in own_pieces(optimizer)]
        self.copies = {piece: copies[whole] for piece, whole in pieces}
        self.everywhere, self.world = mesh["pp", "dp", "ep"], world
        self.micro_batches, self.max_norm = micro_batches, max_norm

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int, float]:
        """Makes the update that one process would make.

        Args:
            inputs: of the whole batch, int64 [B, T], the same on every rank.
            targets: the same shape; `IGNORED` is not counted.

        Returns:
            The loss before the update, without auxiliary losses; the counted tokens of the whole
            batch; the norm of the gradient before clipping. The same on every rank.
        """

        def own(whole: torch.Tensor) -> list[torch.Tensor]:
            parts = whole.tensor_split(self.micro_batches)
            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]

        counted = torch.stack([(part != IGNORED).sum() for part in own(targets)]).sum()
        all_reduce(counted, self.rows)
        tokens = int(counted)
        weights = [self.rows.size / tokens] * self.micro_batches
        batches = list(zip(own(inputs), own(targets), strict=True))
        losses = self.pipeline.step(batches, weights)
        loss = torch.zeros((), dtype=torch.float64) + sum(losses)
        all_reduce(loss, self.everywhere)
        if self.tied is not None:
            sum_tied_gradient(*self.tied)
        for optimizer in self.optimizers:
            optimizer.reduce_gradients()
        norm = clip_grad_norm_nd(self.copies, self.copies.get, self.world, self.max_norm)
        for optimizer in self.optimizers:
            optimizer.step()
        update_router_bias(self.held)
        return float(loss) / tokens, tokens, float(norm)

    def state(self) -> dict[str, Any]:
        """What this rank needs to go on from here in another process, as tensors and numbers."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from the `state` of the same rank on the same layout."""
        self.held.load_state_dict(state["held"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
'''),
    Right("variant_gpipe", "another schedule", '''
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import (
    AdamW,
    ModelConfig,
    Transformer,
    expert_parameters,
    update_router_bias,
)
from course_lib.parallel import Pipeline, Zero1, sum_tied_gradient
from course_lib.schedule import Schedule, gpipe
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import (
    clip_grad_norm_nd,
    expert_parallel,
    pipeline_stages,
    tensor_parallel,
)
from course_lib.train import tensor_copies
from course_lib.train import tied_pair

IGNORED = -100  # a target that is not counted


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


def own_pieces(optimizer: Zero1) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Pairs of a piece, which this rank updates, and the parameter that it is a piece of.

    After `reduce_gradients` a piece has its gradient. Each piece of a parameter is on one of the
    ranks of the optimizer's group.
    """
    return [
        (piece, bucket.parameters[place.parameter])
        for bucket in optimizer.buckets
        for piece, place in zip(bucket.pieces, bucket.places, strict=True)
    ]


class Trainer:
    """Trains a model on a mesh; making one is collective over the world, and so is a step.

    Args:
        model: the whole, the same on every rank, float64, with experts; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`, in this order; their product is the world's
            size.
        micro_batches: in a step.
        lr: of AdamW, whose other options stay as they are.
        max_norm: gradients are clipped to; `inf` does not clip.
    """

    def __init__(
        self,
        model: Transformer,
        world: Group,
        sizes: Mapping[str, int],
        *,
        micro_batches: int,
        lr: float,
        max_norm: float,
    ) -> None:
        mesh = Mesh(world, sizes)
        tp, pp, self.rows = mesh["tp"], mesh["pp"], mesh["dp", "ep"]
        schedule = gpipe(pp.size, micro_batches)
        tensor_parallel(model, tp)
        expert_parallel(model, mesh["ep"], self.rows)
        stages = pipeline_stages(model, schedule, pp)
        for stage in stages.values():
            stage.auxiliary_weight = 1 / micro_batches
        self.pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
        self.held = nn.ModuleList(stages.values())
        experts = expert_parameters(self.held)
        others = [p for p in self.held.parameters() if all(p is not e for e in experts)]
        self.optimizers = [
            Zero1(others, AdamW, self.rows, lr=lr),
            Zero1(experts, AdamW, mesh["dp"], lr=lr),
        ]
        copies, self.tied = tensor_copies(self.held, model.config, tp), None
        pair = tied_pair(schedule, pp) if model.config.tied else None
        if pair is not None:
            first = next(iter(stages.values()))
            end = first.head if first.embedding is None else first.embedding
            self.tied = end.weight, pair
            copies[end.weight] *= 2
        pieces = [pair for optimizer in self.optimizers for pair in own_pieces(optimizer)]
        self.copies = {piece: copies[whole] for piece, whole in pieces}
        self.everywhere, self.world = mesh["pp", "dp", "ep"], world
        self.micro_batches, self.max_norm = micro_batches, max_norm

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int, float]:
        """Makes the update that one process would make.

        Args:
            inputs: of the whole batch, int64 [B, T], the same on every rank.
            targets: the same shape; `IGNORED` is not counted.

        Returns:
            The loss before the update, without auxiliary losses; the counted tokens of the whole
            batch; the norm of the gradient before clipping. The same on every rank.
        """

        def own(whole: torch.Tensor) -> list[torch.Tensor]:
            parts = whole.tensor_split(self.micro_batches)
            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]

        tokens = int((targets != IGNORED).sum())
        weights = [self.rows.size / tokens] * self.micro_batches
        batches = list(zip(own(inputs), own(targets), strict=True))
        losses = self.pipeline.step(batches, weights)
        loss = torch.zeros((), dtype=torch.float64) + sum(losses)
        all_reduce(loss, self.everywhere)
        if self.tied is not None:
            sum_tied_gradient(*self.tied)
        for optimizer in self.optimizers:
            optimizer.reduce_gradients()
        norm = clip_grad_norm_nd(self.copies, self.copies.get, self.world, self.max_norm)
        for optimizer in self.optimizers:
            optimizer.step()
        update_router_bias(self.held)
        return float(loss) / tokens, tokens, float(norm)

    def state(self) -> dict[str, Any]:
        """What this rank needs to go on from here in another process, as tensors and numbers."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from the `state` of the same rank on the same layout."""
        self.held.load_state_dict(state["held"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
'''),
    Right("variant_own_norm", "the norm by hand", '''
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import (
    AdamW,
    ModelConfig,
    Transformer,
    expert_parameters,
    update_router_bias,
)
from course_lib.parallel import Pipeline, Zero1, sum_tied_gradient
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import (
    clip_grad_norm_nd,
    expert_parallel,
    pipeline_stages,
    tensor_parallel,
)
from course_lib.train import tensor_copies
from course_lib.train import tied_pair

IGNORED = -100  # a target that is not counted


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


def own_pieces(optimizer: Zero1) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Pairs of a piece, which this rank updates, and the parameter that it is a piece of.

    After `reduce_gradients` a piece has its gradient. Each piece of a parameter is on one of the
    ranks of the optimizer's group.
    """
    return [
        (piece, bucket.parameters[place.parameter])
        for bucket in optimizer.buckets
        for piece, place in zip(bucket.pieces, bucket.places, strict=True)
    ]


class Trainer:
    """Trains a model on a mesh; making one is collective over the world, and so is a step.

    Args:
        model: the whole, the same on every rank, float64, with experts; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`, in this order; their product is the world's
            size.
        micro_batches: in a step.
        lr: of AdamW, whose other options stay as they are.
        max_norm: gradients are clipped to; `inf` does not clip.
    """

    def __init__(
        self,
        model: Transformer,
        world: Group,
        sizes: Mapping[str, int],
        *,
        micro_batches: int,
        lr: float,
        max_norm: float,
    ) -> None:
        mesh = Mesh(world, sizes)
        tp, pp, self.rows = mesh["tp"], mesh["pp"], mesh["dp", "ep"]
        schedule = one_f_one_b(pp.size, micro_batches)
        tensor_parallel(model, tp)
        expert_parallel(model, mesh["ep"], self.rows)
        stages = pipeline_stages(model, schedule, pp)
        for stage in stages.values():
            stage.auxiliary_weight = 1 / micro_batches
        self.pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
        self.held = nn.ModuleList(stages.values())
        experts = expert_parameters(self.held)
        others = [p for p in self.held.parameters() if all(p is not e for e in experts)]
        self.optimizers = [
            Zero1(others, AdamW, self.rows, lr=lr),
            Zero1(experts, AdamW, mesh["dp"], lr=lr),
        ]
        copies, self.tied = tensor_copies(self.held, model.config, tp), None
        pair = tied_pair(schedule, pp) if model.config.tied else None
        if pair is not None:
            first = next(iter(stages.values()))
            end = first.head if first.embedding is None else first.embedding
            self.tied = end.weight, pair
            copies[end.weight] *= 2
        pieces = [pair for optimizer in self.optimizers for pair in own_pieces(optimizer)]
        self.copies = {piece: copies[whole] for piece, whole in pieces}
        self.everywhere, self.world = mesh["pp", "dp", "ep"], world
        self.micro_batches, self.max_norm = micro_batches, max_norm

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int, float]:
        """Makes the update that one process would make.

        Args:
            inputs: of the whole batch, int64 [B, T], the same on every rank.
            targets: the same shape; `IGNORED` is not counted.

        Returns:
            The loss before the update, without auxiliary losses; the counted tokens of the whole
            batch; the norm of the gradient before clipping. The same on every rank.
        """

        def own(whole: torch.Tensor) -> list[torch.Tensor]:
            parts = whole.tensor_split(self.micro_batches)
            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]

        tokens = int((targets != IGNORED).sum())
        weights = [self.rows.size / tokens] * self.micro_batches
        batches = list(zip(own(inputs), own(targets), strict=True))
        losses = self.pipeline.step(batches, weights)
        loss = torch.zeros((), dtype=torch.float64) + sum(losses)
        all_reduce(loss, self.everywhere)
        if self.tied is not None:
            sum_tied_gradient(*self.tied)
        for optimizer in self.optimizers:
            optimizer.reduce_gradients()
        square = torch.zeros((), dtype=torch.float64)
        for piece, copies in self.copies.items():
            square += piece.grad.square().sum() / copies
        all_reduce(square, self.world)
        norm = square.sqrt()
        for piece in self.copies:
            piece.grad *= min(1.0, self.max_norm / (float(norm) + 1e-6))
        for optimizer in self.optimizers:
            optimizer.step()
        update_router_bias(self.held)
        return float(loss) / tokens, tokens, float(norm)

    def state(self) -> dict[str, Any]:
        """What this rank needs to go on from here in another process, as tensors and numbers."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from the `state` of the same rank on the same layout."""
        self.held.load_state_dict(state["held"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
'''),
    Right("variant_sums", "losses are weighed by the tokens alone; gradients are multiplied where they were averaged", '''
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import (
    AdamW,
    ModelConfig,
    Transformer,
    expert_parameters,
    update_router_bias,
)
from course_lib.parallel import Pipeline, Zero1, sum_tied_gradient
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.parallel import vocab_parallel_cross_entropy
from course_lib.train import (
    clip_grad_norm_nd,
    expert_parallel,
    pipeline_stages,
    tensor_parallel,
)
from course_lib.train import tensor_copies
from course_lib.train import tied_pair

IGNORED = -100  # a target that is not counted


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


def own_pieces(optimizer: Zero1) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Pairs of a piece, which this rank updates, and the parameter that it is a piece of.

    After `reduce_gradients` a piece has its gradient. Each piece of a parameter is on one of the
    ranks of the optimizer's group.
    """
    return [
        (piece, bucket.parameters[place.parameter])
        for bucket in optimizer.buckets
        for piece, place in zip(bucket.pieces, bucket.places, strict=True)
    ]


class Trainer:
    """Trains a model on a mesh; making one is collective over the world, and so is a step.

    Args:
        model: the whole, the same on every rank, float64, with experts; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`, in this order; their product is the world's
            size.
        micro_batches: in a step.
        lr: of AdamW, whose other options stay as they are.
        max_norm: gradients are clipped to; `inf` does not clip.
    """

    def __init__(
        self,
        model: Transformer,
        world: Group,
        sizes: Mapping[str, int],
        *,
        micro_batches: int,
        lr: float,
        max_norm: float,
    ) -> None:
        mesh = Mesh(world, sizes)
        tp, pp, self.rows = mesh["tp"], mesh["pp"], mesh["dp", "ep"]
        schedule = one_f_one_b(pp.size, micro_batches)
        tensor_parallel(model, tp)
        expert_parallel(model, mesh["ep"], self.rows)
        stages = pipeline_stages(model, schedule, pp)
        for stage in stages.values():
            stage.auxiliary_weight = 1 / micro_batches / self.rows.size
        self.pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
        self.held = nn.ModuleList(stages.values())
        experts = expert_parameters(self.held)
        others = [p for p in self.held.parameters() if all(p is not e for e in experts)]
        self.optimizers = [
            Zero1(others, AdamW, self.rows, lr=lr),
            Zero1(experts, AdamW, mesh["dp"], lr=lr),
        ]
        copies, self.tied = tensor_copies(self.held, model.config, tp), None
        pair = tied_pair(schedule, pp) if model.config.tied else None
        if pair is not None:
            first = next(iter(stages.values()))
            end = first.head if first.embedding is None else first.embedding
            self.tied = end.weight, pair
            copies[end.weight] *= 2
        pieces = [pair for optimizer in self.optimizers for pair in own_pieces(optimizer)]
        self.copies = {piece: copies[whole] for piece, whole in pieces}
        self.everywhere, self.world = mesh["pp", "dp", "ep"], world
        self.micro_batches, self.max_norm = micro_batches, max_norm

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int, float]:
        """Makes the update that one process would make.

        Args:
            inputs: of the whole batch, int64 [B, T], the same on every rank.
            targets: the same shape; `IGNORED` is not counted.

        Returns:
            The loss before the update, without auxiliary losses; the counted tokens of the whole
            batch; the norm of the gradient before clipping. The same on every rank.
        """

        def own(whole: torch.Tensor) -> list[torch.Tensor]:
            parts = whole.tensor_split(self.micro_batches)
            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]

        tokens = int((targets != IGNORED).sum())
        weights = [1 / tokens] * self.micro_batches
        batches = list(zip(own(inputs), own(targets), strict=True))
        losses = self.pipeline.step(batches, weights)
        loss = torch.zeros((), dtype=torch.float64) + sum(losses)
        all_reduce(loss, self.everywhere)
        if self.tied is not None:
            sum_tied_gradient(*self.tied)
        for optimizer in self.optimizers:
            optimizer.reduce_gradients()
        for piece in self.copies:
            if piece.grad is not None:
                piece.grad *= self.rows.size
        norm = clip_grad_norm_nd(self.copies, self.copies.get, self.world, self.max_norm)
        for optimizer in self.optimizers:
            optimizer.step()
        update_router_bias(self.held)
        return float(loss) / tokens, tokens, float(norm)

    def state(self) -> dict[str, Any]:
        """What this rank needs to go on from here in another process, as tensors and numbers."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return deepcopy({"held": self.held.state_dict(), "optimizers": optimizers})

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from the `state` of the same rank on the same layout."""
        self.held.load_state_dict(state["held"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
'''),
]
