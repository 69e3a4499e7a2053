"""Wrong and right answers to `zero_token_experts`: see `course dev show zero_token_experts`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("by_expert_not_undone", ["the output", "has the wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done_RD = torch.cat(done)[route.by_expert.argsort()]  # as the rows came
+    done_RD = torch.cat(done)  # as the rows came
'''),
    Wrong("counts_sent_twice", ["the counts are sent twice"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
     """
+    plan(chosen_T, len(experts), group)
     route = plan(chosen_T, len(experts), group)
'''),
    Wrong("dummy_row_counts", ["a gradient of expert", "has the wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]  # mutate: same
+    done = []
+    for expert, part in zip(experts, parts, strict=True):
+        dummy = expert(rows_RD.new_zeros(1, rows_RD.shape[1]))
+        done.append(expert(part))
+        done[0] = done[0] + (dummy - dummy.detach()).sum() if len(part) == 0 else done[0]
'''),
    Wrong("float32_on_the_wire", ["wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
-    parts = rows_RD[route.by_expert].split(route.loads)
+    rows_RD = exchange_in_group(x_TD[route.order].float(), route.coming, route.going, group)
+    parts = rows_RD.double()[route.by_expert].split(route.loads)
'''),
    Wrong("mean_of_no_rows", ["a gradient of expert", "has the wrong value", "nan"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]  # mutate: same
+    done = []
+    for expert, part in zip(experts, parts, strict=True):
+        middle = part.mean(0) * 0
+        done.append(expert(torch.cat([part, middle[None]]))[: len(part)])
'''),
    Wrong("no_autograd", ["the gradient of the tokens", "is None", "no gradient flows through"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
+    rows_RD = x_TD.new_empty(sum(route.coming), x_TD.shape[1])
+    with torch.no_grad():
+        all_to_all(rows_RD, x_TD[route.order], group, route.coming, route.going)
'''),
    Wrong("no_exchange_without_rows", ["deadlock", "Every rank calls both exchanges in forward"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
     done_RD = torch.cat(done)[route.by_expert.argsort()]  # as the rows came
+    if not len(x_TD):
+        return x_TD * weight_T[:, None]
'''),
    Wrong("no_graph_when_idle", ["deadlock", "run every expert", "even on no rows"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]  # mutate: same
-    done_RD = torch.cat(done)[route.by_expert.argsort()]  # as the rows came
+    pairs = zip(experts, parts, strict=True)
+    done = [expert(part) for expert, part in pairs if len(part)]
+    done_RD = (torch.cat(done) if done else torch.zeros_like(rows_RD))[route.by_expert.argsort()]  # as the rows came
'''),
    Wrong("nothing_to_send_stays_away", ["deadlock", "even with no rows to send"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
+    rows_RD = x_TD[:0]
+    if len(x_TD) or sum(route.coming):
+        rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
@@
-    home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
+    home_TD = done_RD[:0]
+    if sum(route.coming) or len(x_TD):
+        home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
'''),
    Wrong("one_more_exchange", ["number of all-to-alls"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
     route = plan(chosen_T, len(experts), group)
+    exchange_in_group(x_TD[:0], [0] * group.size, [0] * group.size, group)
'''),
    Wrong("order_instead_of_inverse", ["the output", "has the wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    return home_TD[route.order.argsort()] * weight_T[:, None]
+    return home_TD[route.order] * weight_T[:, None]
'''),
    Wrong("order_not_undone", ["the output", "has the wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    return home_TD[route.order.argsort()] * weight_T[:, None]
+    return home_TD * weight_T[:, None]
'''),
    Wrong("past_comm", ["past course_lib.comm"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-            all_reduce(parameter.grad, group)
+            torch.distributed.all_reduce(parameter.grad, group=group.handle)
'''),
    Wrong("returns_without_tokens", ["deadlock", "Every rank calls both exchanges in forward"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
     """
+    if len(x_TD) == 0:
+        return x_TD * 1
     route = plan(chosen_T, len(experts), group)
'''),
    Wrong("skips_empty_experts", ["is None", "not zeros", "experts 1 and 4 have no token"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]  # mutate: same
+    pairs = zip(experts, parts, strict=True)
+    done = [expert(part) if len(part) else part for expert, part in pairs]
'''),
    Wrong("skips_when_idle", ["is None", "not zeros", "the experts of a rank have no token"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]  # mutate: same
+    pairs = zip(experts, parts, strict=True)
+    done = [expert(part) if len(rows_RD) else part for expert, part in pairs]
'''),
    Wrong("sum_averages", ["this is the mean over the group"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-            all_reduce(parameter.grad, group)
+            all_reduce(parameter.grad, group, "avg")
'''),
    Wrong("sum_divides_by_owners", ["divided by the number of ranks that have one"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
         if parameter.requires_grad:
+            there = torch.tensor(float(parameter.grad is not None))
+            all_reduce(there, group)
@@
             all_reduce(parameter.grad, group)
+            parameter.grad /= max(1.0, float(there))
'''),
    Wrong("sum_none_put_back", ["is None", "must take part with zeros"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-            if parameter.grad is None:
+            had = parameter.grad is not None
+            if not had:
@@
             all_reduce(parameter.grad, group)
+            if not had:
+                parameter.grad = None
'''),
    Wrong("sum_not_kept", ["the sum of a gradient", "is None"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
-            all_reduce(parameter.grad, group)
+            gradient = parameter.grad
+            if gradient is None:
+                gradient = torch.zeros_like(parameter)
+            all_reduce(gradient, group)
'''),
    Wrong("sum_of_the_frozen", ["a frozen parameter has a gradient"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-        if parameter.requires_grad:
+        if parameter is not None:
'''),
    Wrong("alone_needs_nothing", ["a gradient that 0 of 1 ranks have is None"], '''
-            if parameter.grad is None:
+            if parameter.grad is None and group.size > 1:
@@
-            all_reduce(parameter.grad, group)
+            if parameter.grad is not None:
+                all_reduce(parameter.grad, group)
'''),
    Wrong("sum_skips_none", ["deadlock", "must take part with zeros"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
-            all_reduce(parameter.grad, group)
+            if parameter.grad is not None:
+                all_reduce(parameter.grad, group)
'''),
    Wrong("weight_before_the_expert", ["the output", "has the wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
+    rows_RD = exchange_in_group((x_TD * weight_T[:, None])[route.order], route.coming, route.going, group)
@@
-    return home_TD[route.order.argsort()] * weight_T[:, None]
+    return home_TD[route.order.argsort()]
'''),
    Wrong("weight_forgotten", ["the output", "has the wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    return home_TD[route.order.argsort()] * weight_T[:, None]
+    return home_TD[route.order.argsort()] + 0 * weight_T[:, None]
'''),
    Wrong("zeros_by_hand", ["a gradient of expert 1", "batch 2", "wrong value"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]  # mutate: same
+    done = []
+    for expert, part in zip(experts, parts, strict=True):
+        if len(part):
+            done.append(expert(part))
+        else:
+            done.append(part)
+            for parameter in expert.parameters():
+                if parameter.requires_grad:
+                    parameter.grad = torch.zeros_like(parameter)
'''),
    Wrong("zeros_for_the_frozen", ["a frozen parameter has one"], '''
-        order=chosen_T.argsort(),
+        order=chosen_T.argsort(stable=True),
@@
-        by_expert=expert_R.argsort(),
+        by_expert=expert_R.argsort(stable=True),
@@
-    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]  # mutate: same
+    done = []
+    for expert, part in zip(experts, parts, strict=True):
+        done.append(expert(part))
+        for parameter in expert.parameters():
+            if parameter.grad is None:
+                parameter.grad = torch.zeros_like(parameter)
'''),
    Wrong("sum_of_what_has_a_gradient", ["before it was frozen"], '''
-        if parameter.requires_grad:
+        if parameter.requires_grad or parameter.grad is not None:
'''),
    Wrong("new_gradient", ["is another tensor", "sum in place"], '''
-            all_reduce(parameter.grad, group)
+            total = parameter.grad.clone()
+            all_reduce(total, group)
+            parameter.grad = total
'''),
    Wrong("rows_in_float64", ["the rows are sent in a wider dtype"], '''
-    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
-    parts = rows_RD[route.by_expert].split(route.loads)
+    rows_RD = exchange_in_group(x_TD[route.order].double(), route.coming, route.going, group)
+    parts = rows_RD[route.by_expert].to(x_TD.dtype).split(route.loads)
@@
-    home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
+    home_TD = exchange_in_group(done_RD.double(), route.going, route.coming, group).to(x_TD.dtype)
'''),
    Wrong("sums_a_copy", ["a copy of it was summed"], '''
-            all_reduce(parameter.grad, group)
+            all_reduce(parameter.grad.contiguous(), group)
'''),
]

RIGHT = [
    Right("variant_dummy_row", "every expert gets a row of zeros more, whose output is thrown away", '''
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, all_to_all
from course_lib.comm import exchange_in_group


class Route(NamedTuple):
    """How the tokens of one layer and one batch travel.

    Attributes:
        order: [T], this rank's tokens, sorted by their expert: so they are sent.
        going: how many go to each member.
        coming: how many come from each.
        by_expert: [R], the places of the rows among those that came, sorted by expert.
        loads: how many rows each expert of this rank has.
    """

    order: torch.Tensor
    going: list[int]
    coming: list[int]
    by_expert: torch.Tensor
    loads: list[int]


def plan(chosen_T: torch.Tensor, own: int, group: Group) -> Route:
    """Counts what goes where, and learns from the others what comes: one all-to-all.

    Args:
        chosen_T: number of each token's expert; may be empty.
        own: E/N, how many experts each rank has.
        group: the ranks.
    """
    going_NO = torch.bincount(chosen_T, minlength=own * group.size).view(group.size, own)
    coming_NO = torch.empty_like(going_NO)
    all_to_all(coming_NO, going_NO, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    return Route(
        order=chosen_T.argsort(stable=True),
        going=going_NO.sum(1).tolist(),
        coming=coming_NO.sum(1).tolist(),
        by_expert=expert_R.argsort(stable=True),
        loads=coming_NO.sum(0).tolist(),
    )


def moe_layer(
    x_TD: torch.Tensor,
    chosen_T: torch.Tensor,
    weight_T: torch.Tensor,
    experts: Sequence[nn.Module],
    group: Group,
) -> torch.Tensor:
    """Each token's expert, wherever it is, applied to the token, times its weight.

    Args:
        x_TD: this rank's tokens; T may be 0.
        chosen_T: number of each token's expert among the E of the group.
        weight_T: factors of the outputs.
        experts: those of this rank, which map [R, D] to [R, D].
        group: the ranks that share the experts.

    Returns:
        [T, D], in the order of `x_TD`, with gradients for tokens, weights and experts.
    """
    route = plan(chosen_T, len(experts), group)
    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
    parts = rows_RD[route.by_expert].split(route.loads)
    done = []
    for expert, part in zip(experts, parts, strict=True):
        padded = torch.cat([part, part.new_zeros(1, part.shape[1])])
        done.append(expert(padded)[:-1])
    done_RD = torch.cat(done)[route.by_expert.argsort()]  # as the rows came
    home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
    return home_TD[route.order.argsort()] * weight_T[:, None]


def sum_gradients(parameters: Iterable[nn.Parameter], group: Group) -> None:
    """Sums gradients over a group, in place; all members call it with the same parameters.

    Args:
        parameters: some may be frozen, some may have no gradient on this rank.
        group: the ranks that have the same parameters.
    """
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, group)
'''),
    Right("variant_index_copy", "copies rows to their places", '''
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, all_to_all
from course_lib.comm import exchange_in_group


class Route(NamedTuple):
    """How the tokens of one layer and one batch travel.

    Attributes:
        order: [T], this rank's tokens, sorted by their expert: so they are sent.
        going: how many go to each member.
        coming: how many come from each.
        by_expert: [R], the places of the rows among those that came, sorted by expert.
        loads: how many rows each expert of this rank has.
    """

    order: torch.Tensor
    going: list[int]
    coming: list[int]
    by_expert: torch.Tensor
    loads: list[int]


def plan(chosen_T: torch.Tensor, own: int, group: Group) -> Route:
    """Counts what goes where, and learns from the others what comes: one all-to-all.

    Args:
        chosen_T: number of each token's expert; may be empty.
        own: E/N, how many experts each rank has.
        group: the ranks.
    """
    going_NO = torch.bincount(chosen_T, minlength=own * group.size).view(group.size, own)
    coming_NO = torch.empty_like(going_NO)
    all_to_all(coming_NO, going_NO, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    return Route(
        order=chosen_T.argsort(stable=True),
        going=going_NO.sum(1).tolist(),
        coming=coming_NO.sum(1).tolist(),
        by_expert=expert_R.argsort(stable=True),
        loads=coming_NO.sum(0).tolist(),
    )


def moe_layer(
    x_TD: torch.Tensor,
    chosen_T: torch.Tensor,
    weight_T: torch.Tensor,
    experts: Sequence[nn.Module],
    group: Group,
) -> torch.Tensor:
    """Each token's expert, wherever it is, applied to the token, times its weight.

    Args:
        x_TD: this rank's tokens; T may be 0.
        chosen_T: number of each token's expert among the E of the group.
        weight_T: factors of the outputs.
        experts: those of this rank, which map [R, D] to [R, D].
        group: the ranks that share the experts.

    Returns:
        [T, D], in the order of `x_TD`, with gradients for tokens, weights and experts.
    """
    route = plan(chosen_T, len(experts), group)
    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
    parts = rows_RD[route.by_expert].split(route.loads)
    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]
    done_RD = torch.zeros_like(rows_RD).index_copy(0, route.by_expert, torch.cat(done))
    home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
    y_TD = torch.zeros_like(x_TD).index_copy(0, route.order, home_TD)
    return y_TD * weight_T[:, None]


def sum_gradients(parameters: Iterable[nn.Parameter], group: Group) -> None:
    """Sums gradients over a group, in place; all members call it with the same parameters.

    Args:
        parameters: some may be frozen, some may have no gradient on this rank.
        group: the ranks that have the same parameters.
    """
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, group)
'''),
    Right("variant_one_sum", "all gradients in one message", '''
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, all_to_all
from course_lib.comm import exchange_in_group


class Route(NamedTuple):
    """How the tokens of one layer and one batch travel.

    Attributes:
        order: [T], this rank's tokens, sorted by their expert: so they are sent.
        going: how many go to each member.
        coming: how many come from each.
        by_expert: [R], the places of the rows among those that came, sorted by expert.
        loads: how many rows each expert of this rank has.
    """

    order: torch.Tensor
    going: list[int]
    coming: list[int]
    by_expert: torch.Tensor
    loads: list[int]


def plan(chosen_T: torch.Tensor, own: int, group: Group) -> Route:
    """Counts what goes where, and learns from the others what comes: one all-to-all.

    Args:
        chosen_T: number of each token's expert; may be empty.
        own: E/N, how many experts each rank has.
        group: the ranks.
    """
    going_NO = torch.bincount(chosen_T, minlength=own * group.size).view(group.size, own)
    coming_NO = torch.empty_like(going_NO)
    all_to_all(coming_NO, going_NO, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    return Route(
        order=chosen_T.argsort(stable=True),
        going=going_NO.sum(1).tolist(),
        coming=coming_NO.sum(1).tolist(),
        by_expert=expert_R.argsort(stable=True),
        loads=coming_NO.sum(0).tolist(),
    )


def moe_layer(
    x_TD: torch.Tensor,
    chosen_T: torch.Tensor,
    weight_T: torch.Tensor,
    experts: Sequence[nn.Module],
    group: Group,
) -> torch.Tensor:
    """Each token's expert, wherever it is, applied to the token, times its weight.

    Args:
        x_TD: this rank's tokens; T may be 0.
        chosen_T: number of each token's expert among the E of the group.
        weight_T: factors of the outputs.
        experts: those of this rank, which map [R, D] to [R, D].
        group: the ranks that share the experts.

    Returns:
        [T, D], in the order of `x_TD`, with gradients for tokens, weights and experts.
    """
    route = plan(chosen_T, len(experts), group)
    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
    parts = rows_RD[route.by_expert].split(route.loads)
    done = [expert(part) for expert, part in zip(experts, parts, strict=True)]
    done_RD = torch.cat(done)[route.by_expert.argsort()]  # as the rows came
    home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
    return home_TD[route.order.argsort()] * weight_T[:, None]


def sum_gradients(parameters: Iterable[nn.Parameter], group: Group) -> None:
    """Sums gradients over a group, in place; all members call it with the same parameters.

    Args:
        parameters: some may be frozen, some may have no gradient on this rank.
        group: the ranks that have the same parameters.
    """
    own = [parameter for parameter in parameters if parameter.requires_grad]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
    flat = torch.cat([gradient.flatten() for gradient in grads])
    all_reduce(flat, group)
    for parameter, part in zip(own, flat.split([p.numel() for p in own]), strict=True):
        grad = parameter.grad
        parameter.grad = part.view_as(parameter) if grad is None else grad.copy_(part.view_as(grad))
'''),
    Right("variant_touches_parameters", "empty experts are not run, but their parameters are in the graph", '''
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, all_to_all
from course_lib.comm import exchange_in_group


class Route(NamedTuple):
    """How the tokens of one layer and one batch travel.

    Attributes:
        order: [T], this rank's tokens, sorted by their expert: so they are sent.
        going: how many go to each member.
        coming: how many come from each.
        by_expert: [R], the places of the rows among those that came, sorted by expert.
        loads: how many rows each expert of this rank has.
    """

    order: torch.Tensor
    going: list[int]
    coming: list[int]
    by_expert: torch.Tensor
    loads: list[int]


def plan(chosen_T: torch.Tensor, own: int, group: Group) -> Route:
    """Counts what goes where, and learns from the others what comes: one all-to-all.

    Args:
        chosen_T: number of each token's expert; may be empty.
        own: E/N, how many experts each rank has.
        group: the ranks.
    """
    going_NO = torch.bincount(chosen_T, minlength=own * group.size).view(group.size, own)
    coming_NO = torch.empty_like(going_NO)
    all_to_all(coming_NO, going_NO, group)
    expert_R = torch.arange(own).repeat(group.size).repeat_interleave(coming_NO.flatten())
    return Route(
        order=chosen_T.argsort(stable=True),
        going=going_NO.sum(1).tolist(),
        coming=coming_NO.sum(1).tolist(),
        by_expert=expert_R.argsort(stable=True),
        loads=coming_NO.sum(0).tolist(),
    )


def moe_layer(
    x_TD: torch.Tensor,
    chosen_T: torch.Tensor,
    weight_T: torch.Tensor,
    experts: Sequence[nn.Module],
    group: Group,
) -> torch.Tensor:
    """Each token's expert, wherever it is, applied to the token, times its weight.

    Args:
        x_TD: this rank's tokens; T may be 0.
        chosen_T: number of each token's expert among the E of the group.
        weight_T: factors of the outputs.
        experts: those of this rank, which map [R, D] to [R, D].
        group: the ranks that share the experts.

    Returns:
        [T, D], in the order of `x_TD`, with gradients for tokens, weights and experts.
    """
    route = plan(chosen_T, len(experts), group)
    rows_RD = exchange_in_group(x_TD[route.order], route.coming, route.going, group)
    parts = rows_RD[route.by_expert].split(route.loads)
    done, tied = [], rows_RD.new_zeros(())
    for expert, part in zip(experts, parts, strict=True):
        done.append(expert(part) if len(part) else part)
        tied = tied + sum(p.sum() for p in expert.parameters()) * 0
    done[0] = done[0] + tied
    done_RD = torch.cat(done)[route.by_expert.argsort()]  # as the rows came
    home_TD = exchange_in_group(done_RD, route.going, route.coming, group)
    return home_TD[route.order.argsort()] * weight_T[:, None]


def sum_gradients(parameters: Iterable[nn.Parameter], group: Group) -> None:
    """Sums gradients over a group, in place; all members call it with the same parameters.

    Args:
        parameters: some may be frozen, some may have no gradient on this rank.
        group: the ranks that have the same parameters.
    """
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, group)
'''),
]
