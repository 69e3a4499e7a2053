"""Wrong and right answers to `capacity_and_drop`: see `course dev show capacity_and_drop`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("in_place", ["chosen_TK was changed"], '''
-    return room, chosen_TK.masked_fill(late_TK, experts)
+    return room, chosen_TK.masked_fill_(late_TK, experts)
'''),
    Wrong("last_first", ["the last tokens got places first"], '''
-    line = chosen_TK.T.flatten()
+    line = chosen_TK.T.flatten().flip(0)
@@
-    late_TK = (place >= room).view(top_k, tokens).T
+    late_TK = (place >= room).flip(0).view(top_k, tokens).T
'''),
    Wrong("minus_one", ["a dropped choice must be E", "not -1"], '''
-    return room, chosen_TK.masked_fill(late_TK, experts)
+    return room, chosen_TK.masked_fill(late_TK, -1)
'''),
    Wrong("no_tokens", ["no tokens", "exception"], '''
     tokens, top_k = chosen_TK.shape
+    line = chosen_TK.T.flatten()
+    assert int(line.max()) < experts
'''),
    Wrong("not_rounded", ["not an int"], '''
-    room = math.ceil(factor * top_k * tokens / experts)
+    room = factor * top_k * tokens / experts
'''),
    Wrong("nothing_dropped", ["nothing was dropped"], '''
-    return room, chosen_TK.masked_fill(late_TK, experts)
+    return room, chosen_TK.clone()
'''),
    Wrong("one_too_many", ["one more than its capacity"], '''
-    late_TK = (place >= room).view(top_k, tokens).T
+    late_TK = (place > room).view(top_k, tokens).T
'''),
    Wrong("rounded_down", ["rounded down"], '''
-    room = math.ceil(factor * top_k * tokens / experts)
+    room = int(factor * top_k * tokens / experts)
'''),
    Wrong("limited_to_the_tokens", ["limited to the number of tokens"], '''
-    room = math.ceil(factor * top_k * tokens / experts)
+    room = min(tokens, math.ceil(factor * top_k * tokens / experts))
'''),
    Wrong("token_by_token", ["places are given token by token"], '''
-    line = chosen_TK.T.flatten()
+    line = chosen_TK.flatten()
@@
-    late_TK = (place >= room).view(top_k, tokens).T
+    late_TK = (place >= room).view(tokens, top_k)
'''),
    Wrong("whole_token", ["a token that lost one choice lost all its choices"], '''
-    return room, chosen_TK.masked_fill(late_TK, experts)
+    return room, chosen_TK.masked_fill(late_TK.any(-1, keepdim=True), experts)
'''),
    Wrong("without_k", ["k is missing"], '''
-    room = math.ceil(factor * top_k * tokens / experts)
+    room = math.ceil(factor * tokens / experts)
'''),
]

RIGHT = [
    Right("variant_cumulated", "places counted by a running sum of one-hot rows", '''
import math

import torch


def capacity_and_drop(
    chosen_TK: torch.Tensor, experts: int, factor: float
) -> tuple[int, torch.Tensor]:
    """Takes back the choices that find no place."""
    tokens, top_k = chosen_TK.shape
    room = math.ceil(factor * top_k * tokens / experts)
    line = chosen_TK.T.flatten()
    hot = torch.nn.functional.one_hot(line, experts)
    place = (hot.cumsum(0) * hot).sum(-1)
    kept = torch.where(place <= room, line, experts)
    return room, kept.view(top_k, tokens).T
'''),
    Right("variant_loop", "a loop over the line", '''
import math

import torch


def capacity_and_drop(
    chosen_TK: torch.Tensor, experts: int, factor: float
) -> tuple[int, torch.Tensor]:
    """Takes back the choices that find no place."""
    tokens, top_k = chosen_TK.shape
    room = -int(-factor * top_k * tokens // experts)
    left, kept = [room] * experts, chosen_TK.clone()
    for choice in range(top_k):
        for token in range(tokens):
            expert = int(chosen_TK[token, choice])
            if left[expert]:
                left[expert] -= 1
            else:
                kept[token, choice] = experts
    return math.ceil(room), kept
'''),
]
