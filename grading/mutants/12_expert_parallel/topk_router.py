"""Wrong and right answers to `topk_router`: see `course dev show topk_router`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("forgets_a_wide_matrix", ["a bfloat16 token, a float64 matrix", "wrong dtype"], '''
-    wide = torch.promote_types(torch.promote_types(x_TD.dtype, weight_ED.dtype), torch.float32)
+    wide = torch.promote_types(x_TD.dtype, torch.float32)
'''),
    Wrong("forgets_a_wide_token", ["a float64 token, a float32 matrix", "wrong dtype"], '''
-    wide = torch.promote_types(torch.promote_types(x_TD.dtype, weight_ED.dtype), torch.float32)
+    wide = torch.promote_types(weight_ED.dtype, torch.float32)
'''),
    Wrong("always_float32", ["weights (", "has the wrong dtype"], '''
-    wide = torch.promote_types(torch.promote_types(x_TD.dtype, weight_ED.dtype), torch.float32)
+    wide = torch.float32
'''),
    Wrong("always_normalised", ["for k = 1 it is the score"], '''
-    if top_k > 1:
-        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
+    weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
'''),
    Wrong("balance_detached", ["no gradient flows through balance"], '''
-    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
+    balance = experts * (share_E * scores_TE.detach().sum(0) / tokens).sum()
'''),
    Wrong("counts_in_float32", ["as large as float32's rounding"], '''
-    share_E = counts_E.to(wide) / (tokens * top_k)
+    share_E = counts_E / (tokens * top_k)
'''),
    Wrong("first_choices_only", ["f counts only first choices"], '''
-    counts_E = torch.bincount(chosen_TK.flatten(), minlength=experts)
-    share_E = counts_E.to(wide) / (tokens * top_k)
+    counts_E = torch.bincount(chosen_TK[:, 0], minlength=experts)
+    share_E = counts_E.to(wide) / tokens
'''),
    Wrong("gradient_through_counts", ["f has a gradient"], '''
-    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
+    mean_E = scores_TE.sum(0) / tokens
+    share_E = share_E + mean_E - mean_E.detach()
+    balance = experts * (share_E * mean_E).sum()
'''),
    Wrong("logits_as_weights", ["logits in place of scores"], '''
-    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
-    if top_k > 1:
-        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
+    weights_TK, chosen_TK = logits_TE.topk(top_k, -1)
'''),
    Wrong("lowest_chosen", ["the lowest scores were chosen"], '''
-    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
+    weights_TK, chosen_TK = scores_TE.topk(top_k, -1, largest=False)
'''),
    Wrong("mean_of_weights", ["P is the mean of the weights"], '''
-    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
+    kept_TE = torch.zeros_like(scores_TE).scatter(-1, chosen_TK, weights_TK)
+    balance = experts * (share_E * kept_TE.sum(0) / tokens).sum()
'''),
    Wrong("multiplied_in_bf16", ["chosen (a bfloat16 token", "has the wrong value"], '''
-    logits_TE = x_TD.to(wide) @ weight_ED.to(wide).T
+    logits_TE = (x_TD @ weight_ED.to(x_TD.dtype).T).to(wide)
'''),
    Wrong("no_tokens_constant", ["the zeros must come from the graph"], '''
         weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
+    if len(x_TD) == 0:
+        nothing = logits_TE.new_zeros(())
+        return Routing(chosen_TK, weights_TK, nothing, nothing)
'''),
    Wrong("no_tokens_nan", ["0/0: divide by max(1", "T)"], '''
-    tokens, experts = max(1, len(x_TD)), len(weight_ED)
+    tokens, experts = len(x_TD), len(weight_ED)
'''),
    Wrong("not_normalised", ["not divided by their sum"], '''
-    if top_k > 1:
-        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
'''),
    Wrong("random_choice", ["chosen (", "has the wrong value"], '''
-    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
+    chosen_TK = scores_TE.detach().clamp(min=1e-300).multinomial(top_k) if len(x_TD) else torch.zeros(0, top_k).long()
+    weights_TK = scores_TE.gather(-1, chosen_TK)
'''),
    Wrong("share_of_tokens", ["f is divided by T"], '''
-    share_E = counts_E.to(wide) / (tokens * top_k)
+    share_E = counts_E.to(wide) / tokens
'''),
    Wrong("sigmoid", ["a sigmoid in place of the softmax"], '''
-    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
+    weights_TK, chosen_TK = logits_TE.sigmoid().topk(top_k, -1)
'''),
    Wrong("soft_counts", ["f is the mean score"], '''
-    share_E = counts_E.to(wide) / (tokens * top_k)
+    share_E = scores_TE.mean(0)
'''),
    Wrong("softmax_of_the_chosen", ["a single weight is always 1"], '''
-    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
-    if top_k > 1:
-        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
+    weights_TK, chosen_TK = logits_TE.topk(top_k, -1)
+    weights_TK = weights_TK.softmax(-1)
'''),
    Wrong("softmax_over_tokens", ["chosen (", "has the wrong value"], '''
-    scores_TE = logits_TE.softmax(-1)
+    scores_TE = logits_TE.softmax(0)
'''),
    Wrong("softmax_twice", ["a softmax of a softmax"], '''
-    if top_k > 1:
-        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
+    weights_TK = weights_TK.softmax(-1)
'''),
    Wrong("square_of_the_mean", ["the square of the mean"], '''
-    z = logits_TE.logsumexp(-1).square().sum() / tokens
+    z = (logits_TE.logsumexp(-1).sum() / tokens).square()
'''),
    Wrong("sum_of_scores", ["P is the sum of the scores"], '''
-    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
+    balance = experts * (share_E * scores_TE.sum(0)).sum()
'''),
    Wrong("ties_masked", ["an expert is chosen twice by one token"], '''
-    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
+    left_TE, picks = scores_TE.detach(), []
+    for _ in range(top_k):
+        best_T1 = left_TE.amax(-1, keepdim=True)
+        picks.append(left_TE.argmax(-1))
+        left_TE = left_TE.masked_fill(left_TE == best_T1, 0.0)
+    chosen_TK = torch.stack(picks, -1)
+    weights_TK = scores_TE.gather(-1, chosen_TK)
'''),
    Wrong("weights_detached", ["no gradient flows through weights"], '''
-    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
+    weights_TK, chosen_TK = scores_TE.detach().topk(top_k, -1)
'''),
    Wrong("weights_in_bf16", ["weights (a bfloat16 token", "has the wrong dtype"], '''
-    return Routing(chosen_TK, weights_TK, balance, z)
+    return Routing(chosen_TK, weights_TK.to(x_TD.dtype), balance, z)
'''),
    Wrong("without_factor_e", ["the factor E is missing"], '''
-    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
+    balance = (share_E * scores_TE.sum(0) / tokens).sum()
'''),
    Wrong("worst_first", ["best first"], '''
     weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
+    weights_TK, chosen_TK = weights_TK.flip(-1), chosen_TK.flip(-1)
'''),
    Wrong("z_detached", ["no gradient flows through z"], '''
-    z = logits_TE.logsumexp(-1).square().sum() / tokens
+    z = logits_TE.detach().logsumexp(-1).square().sum() / tokens
'''),
    Wrong("z_of_logits", ["log-sum-exp is missing"], '''
-    z = logits_TE.logsumexp(-1).square().sum() / tokens
+    z = logits_TE.square().mean(-1).sum() / tokens
'''),
    Wrong("z_of_scores", ["scores were taken in place of logits"], '''
-    z = logits_TE.logsumexp(-1).square().sum() / tokens
+    z = scores_TE.logsumexp(-1).square().sum() / tokens
'''),
    Wrong("z_overflows", ["exp(1000) overflows"], '''
-    z = logits_TE.logsumexp(-1).square().sum() / tokens
+    z = logits_TE.exp().sum(-1).log().square().sum() / tokens
'''),
    Wrong("z_summed", ["the sum over tokens", "not the mean"], '''
-    z = logits_TE.logsumexp(-1).square().sum() / tokens
+    z = logits_TE.logsumexp(-1).square().sum()
'''),
    Wrong("z_without_square", ["the square is missing"], '''
-    z = logits_TE.logsumexp(-1).square().sum() / tokens
+    z = logits_TE.logsumexp(-1).sum() / tokens
'''),
]

RIGHT = [
    Right("variant_argsort_one_hot", "sorted, and counted with one-hot rows", '''
from typing import NamedTuple

import torch


class Routing(NamedTuple):
    """What the router says of T tokens."""

    chosen: torch.Tensor
    weights: torch.Tensor
    balance: torch.Tensor
    z: torch.Tensor


def topk_router(x_TD: torch.Tensor, weight_ED: torch.Tensor, top_k: int) -> Routing:
    """Chooses experts for T tokens."""
    wide = torch.promote_types(torch.promote_types(x_TD.dtype, weight_ED.dtype), torch.float32)
    logits_TE = x_TD.to(wide) @ weight_ED.to(wide).T
    scores_TE = logits_TE.softmax(-1)
    chosen_TK = scores_TE.argsort(dim=-1, descending=True, stable=True)[:, :top_k]
    weights_TK = scores_TE.take_along_dim(chosen_TK, -1)
    if top_k > 1:
        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
    tokens, experts = max(1, len(x_TD)), len(weight_ED)
    counts_E = torch.nn.functional.one_hot(chosen_TK, experts).sum((0, 1))
    share_E = counts_E.to(wide) / (tokens * top_k)
    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
    z = logits_TE.logsumexp(-1).square().sum() / tokens
    return Routing(chosen_TK, weights_TK, balance, z)
'''),
    Right("variant_scaled_softmax", "log_softmax, its maximum taken out by hand", '''
from typing import NamedTuple

import torch


class Routing(NamedTuple):
    """What the router says of T tokens."""

    chosen: torch.Tensor
    weights: torch.Tensor
    balance: torch.Tensor
    z: torch.Tensor


def topk_router(x_TD: torch.Tensor, weight_ED: torch.Tensor, top_k: int) -> Routing:
    """Chooses experts for T tokens."""
    wide = torch.promote_types(torch.promote_types(x_TD.dtype, weight_ED.dtype), torch.float32)
    logits_TE = x_TD.to(wide) @ weight_ED.to(wide).T
    high_T1 = logits_TE.amax(-1, keepdim=True).detach()
    total_T1 = (logits_TE - high_T1).exp().sum(-1, keepdim=True)
    scores_TE = (logits_TE - high_T1).exp() / total_T1
    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
    if top_k > 1:
        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
    tokens, experts = max(1, len(x_TD)), len(weight_ED)
    counts_E = torch.bincount(chosen_TK.flatten(), minlength=experts)
    share_E = counts_E.to(wide) / (tokens * top_k)
    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
    z = (high_T1 + total_T1.log()).square().sum() / tokens
    return Routing(chosen_TK, weights_TK, balance, z)
'''),
    Right("variant_softmax_after_topk", "the softmax of the chosen logits, which is the same for k > 1", '''
from typing import NamedTuple

import torch


class Routing(NamedTuple):
    """What the router says of T tokens."""

    chosen: torch.Tensor
    weights: torch.Tensor
    balance: torch.Tensor
    z: torch.Tensor


def topk_router(x_TD: torch.Tensor, weight_ED: torch.Tensor, top_k: int) -> Routing:
    """Chooses experts for T tokens."""
    wide = torch.promote_types(torch.promote_types(x_TD.dtype, weight_ED.dtype), torch.float32)
    logits_TE = x_TD.to(wide) @ weight_ED.to(wide).T
    scores_TE = logits_TE.softmax(-1)
    weights_TK, chosen_TK = scores_TE.topk(top_k, -1)
    if top_k > 1:
        weights_TK = logits_TE.gather(-1, chosen_TK).softmax(-1)
    tokens, experts = max(1, len(x_TD)), len(weight_ED)
    counts_E = torch.bincount(chosen_TK.flatten(), minlength=experts)
    share_E = counts_E.to(wide) / (tokens * top_k)
    balance = experts * (share_E * scores_TE.sum(0) / tokens).sum()
    z = logits_TE.logsumexp(-1).square().sum() / tokens
    return Routing(chosen_TK, weights_TK, balance, z)
'''),
]
