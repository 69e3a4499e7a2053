"""Wrong and right answers to `bias_balance`: see `course dev show bias_balance`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("at_the_mean_goes_up", ["at the mean load a bias must not change", "here it went up"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E += rate * (load_E.double().mean() >= load_E).double().mul(2).sub(1).to(bias_E.dtype)
'''),
    Wrong("at_the_mean_moves", ["at the mean load a bias must not change", "here it went down"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E += rate * (load_E.double().mean() > load_E).double().mul(2).sub(1).to(bias_E.dtype)
'''),
    Wrong("another_memory", ["the bias has moved to other memory"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E.data = bias_E.data + rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
'''),
    Wrong("numbers_in_order", ["in another order: best first"], '''
-    chosen_TK = (scores_TE + bias_E).topk(top_k, -1).indices
+    chosen_TK = (scores_TE + bias_E).topk(top_k, -1).indices.sort(-1).values
'''),
    Wrong("bias_in_the_weights", ["they contain the bias"], '''
-    weights_TK = scores_TE.gather(-1, chosen_TK)
+    weights_TK = (scores_TE + bias_E).gather(-1, chosen_TK)
'''),
    Wrong("by_the_error", ["by the size of the error"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E += rate * (load_E.double().mean() - load_E).to(bias_E.dtype)
'''),
    Wrong("choice_without_bias", ["the bias is missing"], '''
-    chosen_TK = (scores_TE + bias_E).topk(top_k, -1).indices
+    chosen_TK = scores_TE.topk(top_k, -1).indices
'''),
    Wrong("gathers", ["counts are gathered"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import all_gather
@@
-    all_reduce(load_E, group)
+    each = load_E.new_empty(group.size, len(load_E))
+    all_gather(each.view(-1), load_E, group)
+    load_E = each.sum(0)
'''),
    Wrong("gradient_for_the_bias", ["the bias has a gradient"], '''
-    weights_TK = scores_TE.gather(-1, chosen_TK)
+    weights_TK = (scores_TE + bias_E - bias_E.detach()).gather(-1, chosen_TK)
'''),
    Wrong("local_load", ["own load", "sum the loads over the ranks"], '''
-    all_reduce(load_E, group)
+    all_reduce(load_E.clone(), group)
'''),
    Wrong("not_in_place", ["it has not moved"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E = bias_E + rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
'''),
    Wrong("not_normalised", ["they are not divided by their sum"], '''
-    return chosen_TK, weights_TK / weights_TK.sum(-1, keepdim=True)
+    return chosen_TK, weights_TK
'''),
    Wrong("rank_without_tokens_stays_away", ["deadlock"], '''
     """
+    if not len(chosen_TK):
+        return
     # BEGIN SOLUTION: the move
'''),
    Wrong("two_messages", ["one all-reduce is enough"], '''
     all_reduce(load_E, group)
+    all_reduce(torch.zeros_like(load_E), group)
'''),
    Wrong("weights_detached", ["the scores have no gradient"], '''
-    weights_TK = scores_TE.gather(-1, chosen_TK)
+    weights_TK = scores_TE.detach().gather(-1, chosen_TK)
'''),
    Wrong("wrong_way", ["the wrong direction"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E += rate * (load_E - load_E.double().mean()).sign().to(bias_E.dtype)
'''),
    Wrong("expert_by_expert", ["E all-reduces of one number"], '''
-    all_reduce(load_E, group)
+    for load in load_E.split(1):
+        all_reduce(load, group)
'''),
    Wrong("mean_rounded_down", ["do not round it down"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E += rate * (load_E.sum() // len(load_E) - load_E).sign().to(bias_E.dtype)
'''),
    Wrong("mean_rounded_up", ["do not round it up"], '''
-    bias_E += rate * (load_E.double().mean() - load_E).sign().to(bias_E.dtype)
+    bias_E += rate * (load_E.double().mean().ceil() - load_E).sign().to(bias_E.dtype)
'''),
    Wrong("second_message_is_empty", ["a second all-reduce", "is one too many"], '''
     all_reduce(load_E, group)
+    all_reduce(load_E[:0], group)
'''),
]

RIGHT = [
    Right("variant_integers", "compares integers only", '''
import torch

from course_lib.comm import Group, all_reduce


def choose(
    scores_TE: torch.Tensor, bias_E: torch.Tensor, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    chosen_TK = (scores_TE + bias_E).topk(top_k, -1).indices
    weights_TK = scores_TE.gather(-1, chosen_TK)
    return chosen_TK, weights_TK / weights_TK.sum(-1, keepdim=True)


def update_bias(bias_E: torch.Tensor, chosen_TK: torch.Tensor, rate: float, group: Group) -> None:
    load_E = torch.bincount(chosen_TK.flatten(), minlength=len(bias_E))
    all_reduce(load_E, group)
    bias_E += rate * (load_E.sum() - load_E * len(load_E)).sign()
'''),
]
