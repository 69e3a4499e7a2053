"""Wrong and right answers to `gc_together`: see `course dev show gc_together`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("asks_in_every_step", ["although its number alone decides"], '''
-        if (number + 1) % self.every:
-            full = torch.tensor([held > self.most], dtype=torch.int64)
-            all_reduce(full, self.group, "max")
-            if not full:
-                return False
+        full = torch.tensor([held > self.most], dtype=torch.int64)
+        all_reduce(full, self.group, "max")
+        if (number + 1) % self.every and not full:
+            return False
'''),
    Wrong("bytes_as_float32", ["(step, generation) of the collections"], '''
-            full = torch.tensor([held > self.most], dtype=torch.int64)
+            full = torch.tensor([held], dtype=torch.float32)
@@
-            if not full:
+            if not full.item() > self.most:
'''),
    Wrong("changes_the_begins", ["what was given to saved"], '''
-    return begins.max(0).values - (begins - own).max(0).values
+    return begins.max(0).values - begins.sub_(own).max(0).values
'''),
    Wrong("collects_twice_at_first", ["when it is entered"], '''
         gc.collect()  # before the freeze, or garbage would be frozen too
+        gc.collect()
'''),
    Wrong("state_when_it_was_made", ["whether it runs by itself"], '''
         self.group, self.every, self.most = group, every, most
+        self.ran_by_itself = gc.isenabled()
@@
-        self.ran_by_itself = gc.isenabled()
'''),
    Wrong("thawed_only_without_an_exception", ["an exception: True", "stays frozen"], '''
-        gc.unfreeze()  # mutate: same
+        if error[0] is None:
+            gc.unfreeze()
'''),
    Wrong("freezes_again", ["only entering freezes"], '''
-        gc.collect()
-        return True
+        gc.collect()
+        gc.freeze()
+        return True
'''),
    Wrong("threshold_for_good", ["whether it runs by itself"], '''
-        gc.disable()  # mutate: same
+        gc.set_threshold(0)
'''),
    Wrong("pauses_in_float32", ["the gain of each"], '''
-    own = torch.zeros_like(begins)
+    own = torch.zeros(begins.shape)
'''),
    Wrong("one_rank_asks_nobody", ["(step, generation)"], '''
-        if (number + 1) % self.every:
+        if (number + 1) % self.every and self.group.size == 1:
+            return False
+        if (number + 1) % self.every:
'''),
    Wrong("counter_of_its_own", ["(step, generation) of the collections"], '''
-        if (number + 1) % self.every:
+        self.steps = getattr(self, "steps", 0) + 1
+        if self.steps % self.every:
'''),
    Wrong("freezes_garbage", ["frozen before it was collected"], '''
-        gc.collect()  # before the freeze, or garbage would be frozen too
-        gc.freeze()
+        gc.freeze()
+        gc.collect()
'''),
    Wrong("full_ranks_collect_alone", ["(step, generation) of the collections"], '''
-            full = torch.tensor([held > self.most], dtype=torch.int64)
-            all_reduce(full, self.group, "max")
-            if not full:
+            if held <= self.most:
'''),
    Wrong("longest_pause", ["a rank that waits anyway may pause"], '''
-    return begins.max(0).values - (begins - own).max(0).values
+    return own.max(0).values
'''),
    Wrong("not_frozen", ["is looked at in each collection"], '''
-        gc.freeze()
'''),
    Wrong("not_thawed", ["stays frozen"], '''
-        gc.unfreeze()  # mutate: same
         if self.ran_by_itself:
'''),
    Wrong("only_if_all_are_full", ["(step, generation) of the collections"], '''
-            all_reduce(full, self.group, "max")
+            all_reduce(full, self.group, "min")
'''),
    Wrong("pause_of_the_last", ["another may come last without them"], '''
-    return begins.max(0).values - (begins - own).max(0).values
+    return own.gather(0, begins.argmax(0, keepdim=True))[0]
'''),
    Wrong("pauses_add_up", ["have been paid for there"], '''
-    return begins.max(0).values - (begins - own).max(0).values
+    return begins.max(0).values - (begins - own.cumsum(1)).max(0).values
'''),
    Wrong("runs_by_itself", ["the collector ran by itself between two steps"], '''
-        gc.disable()  # mutate: same
         gc.collect()  # before the freeze, or garbage would be frozen too
'''),
    Wrong("runs_by_itself_afterwards", ["whether it runs by itself"], '''
-        if self.ran_by_itself:
-            gc.enable()
+        gc.enable()
'''),
    Wrong("swallows_the_exception", ["whether the exception came out"], '''
-    def __exit__(self, *error: Any) -> None:
+    def __exit__(self, *error: Any) -> bool:
@@
             gc.enable()
+        return True
'''),
    Wrong("young_objects_alone", ["circles grow old"], '''
-                return False
-        gc.collect()
+                return False
+        gc.collect(0)
'''),
]

RIGHT = [
    Right("variant_a_exit_stack", "an ExitStack undoes what was done; pauses call by call", '''
import gc
from contextlib import ExitStack

import torch

from course_lib.comm import Group, all_reduce


def saved(begins, pauses):
    gains = []
    for call in range(begins.shape[1]):
        came, would = [], []
        for rank, stops in enumerate(pauses):
            here = begins[rank, call].item()
            before = begins[rank, call - 1].item() if call else float("-inf")
            came.append(here)
            would.append(here - sum(end - begin for begin, end in stops if before <= begin < here))
        gains.append(max(came) - max(would))
    return torch.tensor(gains, dtype=torch.float64)


class Together:
    def __init__(self, group: Group, every: int, most: int) -> None:
        self.group, self.every, self.most = group, every, most
        self.undo = ExitStack()

    def __enter__(self):
        if gc.isenabled():
            self.undo.callback(gc.enable)
            gc.disable()
        gc.collect()
        gc.freeze()
        self.undo.callback(gc.unfreeze)
        return self

    def step(self, number, held):
        due = number % self.every == self.every - 1
        if not due:
            over = torch.tensor(float(held > self.most))
            all_reduce(over, self.group)
            due = bool(over > 0)
        if due:
            gc.collect()
        return due

    def __exit__(self, *error):
        self.undo.close()
'''),
]
