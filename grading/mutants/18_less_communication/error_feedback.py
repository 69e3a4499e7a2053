"""Wrong and right answers to `error_feedback`: see `course dev show error_feedback`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("in_float64", ["the wrong dtype", "compress in the gradient's dtype"], '''
-        owed = gradient if self.error is None else gradient + self.error
+        owed = gradient.double() + (0 if self.error is None else self.error)
'''),
    Wrong("emptied_before_it_is_sent", ["the mean of step 1 with Window"], '''
-        owed = gradient if self.error is None else gradient + self.error
+        owed = gradient.clone() if self.error is None else gradient + self.error
@@
-        self.error = owed - self.compressor.decompress(parts, owed)
+        self.error = owed.sub_(self.compressor.decompress(parts, owed))
'''),
    Wrong("compresses_twice", ["with Window"], '''
-        self.error = owed - self.compressor.decompress(parts, owed)
+        self.error = owed - self.compressor.decompress(self.compressor.compress(owed), owed)
'''),
    Wrong("no_feedback", ["nothing is fed back"], '''
-        self.error = owed - self.compressor.decompress(parts, owed)
+        self.error = torch.zeros_like(owed)
'''),
    Wrong("sum_not_mean", ["this is the sum over the ranks"], '''
-        return total / group.size
+        return total
'''),
    Wrong("feedback_of_the_mean", ["the error was computed from the mean"], '''
-        self.error = owed - self.compressor.decompress(parts, owed)
@@
-        return total / group.size
+        self.error = owed - total / group.size
+        return total / group.size
'''),
    Wrong("older_errors_are_lost", ["so older errors are lost"], '''
-        self.error = owed - self.compressor.decompress(parts, owed)
+        self.error = gradient - self.compressor.decompress(parts, owed)
'''),
    Wrong("keeps_what_was_sent", ["so that is sent twice"], '''
-        self.error = owed - self.compressor.decompress(parts, owed)
+        self.error = owed.clone()
'''),
    Wrong("subtracts_the_error", ["the error is subtracted"], '''
-        owed = gradient if self.error is None else gradient + self.error
+        owed = gradient if self.error is None else gradient - self.error
'''),
    Wrong("compresses_the_mean", ["averaged first and then compressed"], '''
-from course_lib.comm import Group, all_gather
+from course_lib.comm import Group, all_gather, all_reduce
@@
-        parts = self.compressor.compress(owed)
+        owed = owed.clone()
+        all_reduce(owed, group, "avg")
+        parts = self.compressor.compress(owed)
'''),
    Wrong("sends_whole_vectors", ["whole vectors are gathered"], '''
-        everyone = [part.new_empty(group.size, *part.shape) for part in parts]
-        for whole, part in zip(everyone, parts, strict=True):
-            all_gather(whole, part, group)
-        total = torch.zeros_like(owed)
-        for index in range(group.size):
-            total += self.compressor.decompress([whole[index] for whole in everyone], owed)
-        return total / group.size
+        arrives = self.compressor.decompress(parts, owed)
+        everyone = owed.new_empty(group.size, len(owed))
+        all_gather(everyone, arrives, group)
+        total = torch.zeros_like(owed)
+        for each in everyone:
+            total += each
+        return total / group.size
'''),
    Wrong("sends_errors", ["errors are sent"], '''
-        everyone = [part.new_empty(group.size, *part.shape) for part in parts]
+        all_gather(owed.new_empty(group.size, len(owed)), self.error, group)
+        everyone = [part.new_empty(group.size, *part.shape) for part in parts]
'''),
    Wrong("changes_the_gradient", ["the gradient was changed"], '''
-        owed = gradient if self.error is None else gradient + self.error
+        owed = gradient if self.error is None else gradient.add_(self.error)
'''),
    Wrong("changes_the_first_gradient", ["also in the first step"], '''
-        self.error = owed - self.compressor.decompress(parts, owed)
+        self.error = owed.sub_(self.compressor.decompress(parts, owed))
'''),
    Wrong("own_message_first", ["last bits"], '''
-        for index in range(group.size):
+        for index in sorted(range(group.size), key=lambda i: (i - group.index) % group.size):
'''),
    Wrong("halves_the_error", ["the error after step 1"], '''
-        self.error = owed - self.compressor.decompress(parts, owed)
+        self.error = (owed - self.compressor.decompress(parts, owed)) / 2
'''),
]

RIGHT = [
    Right("one_message", "all parts in one message of bytes", '''
from typing import Any

import torch

from course_lib.comm import Group, all_gather


class ErrorFeedback:
    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        if self.error is None:
            self.error = torch.zeros_like(gradient)
        owed = self.error + gradient
        parts = self.compressor.compress(owed)
        flat = torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in parts])
        whole = flat.new_empty(group.size * len(flat))
        all_gather(whole, flat, group)
        arrived = []
        for message in whole.chunk(group.size):
            pieces = message.split([part.nbytes for part in parts])
            read = [
                piece.clone().view(part.dtype).view(part.shape)
                for piece, part in zip(pieces, parts)
            ]
            arrived.append(self.compressor.decompress(read, owed))
        self.error = owed - arrived[group.index]
        return sum(arrived[1:], arrived[0]) / group.size
'''),
    Right("in_place", "keeps one memory, and changes it in place", '''
from typing import Any

import torch

from course_lib.comm import Group, all_gather


class ErrorFeedback:
    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.error: torch.Tensor | None = None

    @torch.no_grad()
    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        if self.error is None:
            self.error = torch.zeros_like(gradient)
        self.error += gradient
        parts = self.compressor.compress(self.error.clone())
        self.error -= self.compressor.decompress(parts, gradient)
        gathered = []
        for part in parts:
            gathered.append(part.new_empty(group.size, *part.shape))
            all_gather(gathered[-1], part, group)
        rows = zip(*gathered)
        return torch.stack([self.compressor.decompress(list(r), gradient) for r in rows]).mean(0)
'''),
    Right("by_messages", "every rank sends its parts round a ring", '''
from typing import Any

import torch

from course_lib.comm import Group, ring_all_gather


class ErrorFeedback:
    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.error: Any = 0

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        owed = gradient + self.error
        parts = self.compressor.compress(owed)
        self.error = owed - self.compressor.decompress(parts, owed)
        everyone = []
        for part in parts:
            whole = part.new_empty(group.size, *part.shape)
            whole[group.index] = part
            ring_all_gather(whole.view(-1), group)
            everyone.append(whole)
        total = torch.zeros_like(owed)
        for index in range(group.size):
            total = total + self.compressor.decompress([each[index] for each in everyone], owed)
        return total / group.size
'''),
]
