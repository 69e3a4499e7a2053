"""Wrong and right answers to `peer_checkpoint`: see `course dev show peer_checkpoint`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("slots_in_float32", ["both ends of a call must use the same dtype"], '''
-        self.own = [torch.empty_like(shard) for _ in range(2)]
-        self.kept = [torch.empty_like(shard) for _ in range(2)]
+        self.own = [torch.empty(shard.shape) for _ in range(2)]
+        self.kept = [torch.empty(shard.shape) for _ in range(2)]
'''),
    Wrong("all_in_float32", ["keep its own dtype"], '''
-        self.own = [torch.empty_like(shard) for _ in range(2)]
-        self.kept = [torch.empty_like(shard) for _ in range(2)]
+        self.own = [torch.empty(shard.shape) for _ in range(2)]
+        self.kept = [torch.empty(shard.shape) for _ in range(2)]
@@
-            recv(shard, self.to, self.group)
+            received = torch.empty(shard.shape)
+            recv(received, self.to, self.group)
+            shard.copy_(received)
'''),
    Wrong("shared_slots", ["the step"], '''
-        self.steps = [-1, -1]  # -1: not whole
+        type(self).steps = [-1, -1]
'''),
    Wrong("example_is_a_slot", ["the shard"], '''
-        self.own = [torch.empty_like(shard) for _ in range(2)]
+        self.own = [shard, torch.empty_like(shard)]
'''),
    Wrong("same_node", ["any one node may fail"], '''
-        self.to = (group.index + offset) % group.size
-        self.source = (group.index - offset) % group.size
+        self.to = (group.index + 1) % group.size
+        self.source = (group.index - 1) % group.size
'''),
    Wrong("other_direction", ["any one node may fail"], '''
-        self.to = (group.index + offset) % group.size
-        self.source = (group.index - offset) % group.size
+        self.to = (group.index - offset) % group.size
+        self.source = (group.index + offset) % group.size
@@
-            recv(shard, self.to, self.group)
+            recv(shard, self.source, self.group)
@@
-            if self.source in lost:
-                send(self.kept[slot], self.source, self.group)
+            if self.to in lost:
+                send(self.kept[slot], self.to, self.group)
'''),
    Wrong("all_the_other_way", ["it is the one `offset` before"], '''
-        self.to = (group.index + offset) % group.size
-        self.source = (group.index - offset) % group.size
+        self.to = (group.index - offset) % group.size
+        self.source = (group.index + offset) % group.size
'''),
    Wrong("given_up_but_newest", ["a save is cut short after a restore"], '''
-            self.steps = [step if place == slot else -1 for place in range(2)]
-        self.copy(step, shard)
-        self.seal(step)
+        if self.source in lost or self.to in lost or self.group.index in lost:
+            slot, newest = self.steps.index(step) if step in self.steps else 0, list(self.steps)
+            self.steps[slot] = -2
+            self.copy(step, shard)
+            self.seal(step)
+            if newest[1 - slot] > step:
+                self.steps = newest
'''),
    Wrong("not_copied", ["or `copy` kept the tensor itself"], '''
-        self.own[self.slot].copy_(shard)
+        self.own[self.slot] = shard
'''),
    Wrong("one_slot", ["a save that was interrupted"], '''
-        self.slot = self.steps.index(min(self.steps))
+        self.slot = 0
'''),
    Wrong("newest_overwritten", ["a save that was interrupted"], '''
-        self.slot = self.steps.index(min(self.steps))
+        self.slot = self.steps.index(max(self.steps))
'''),
    Wrong("whole_at_once", ["that save is not complete"], '''
-        self.steps[self.slot] = -1
         self.own[self.slot].copy_(shard)
         exchange(self.own[self.slot], self.to, self.kept[self.slot], self.source, self.group)
+        self.steps[self.slot] = step
'''),
    Wrong("torn_under_its_old_step", ["a save that was interrupted"], '''
-        self.slot = self.steps.index(min(self.steps))
-        self.steps[self.slot] = -1
+        self.slot = 0 if self.steps == [-1, -1] else self.steps.index(max(self.steps))
'''),
    Wrong("own_opinion", ["is not in list"], '''
-        step = max(set.intersection(*left))
+        step = max(set.union(*left))
'''),
    Wrong("asks_the_lost", ["any one node may fail"], '''
-        left = [set(both) for i, both in enumerate(said.view(-1, 2).tolist()) if i not in lost]
+        left = [set(both) for i, both in enumerate(said.view(-1, 2).tolist())]
'''),
    Wrong("older_save", ["the newest complete save was given up"], '''
-        step = max(set.intersection(*left))
+        step = min(set.intersection(*left) - {-1}, default=-1)
'''),
    Wrong("not_copied_again", ["another node fails afterwards"], '''
-        self.copy(step, shard)
-        self.seal(step)
+        if self.group.index not in lost:
+            self.steps = [step, -1] if slot == 0 else [-1, step]
+        else:
+            self.own[0].copy_(shard)
+            self.steps = [step, -1]
'''),
    Wrong("own_copy_sent_back", ["this is the shard of rank"], '''
-                send(self.kept[slot], self.source, self.group)
+                send(self.own[slot], self.source, self.group)
'''),
    Wrong("keeps_all", ["what is older is given up"], '''
         self.own[self.slot].copy_(shard)
+        self.all = [*getattr(self, "all", []), shard.clone()]
'''),
    Wrong("to_everybody", ["bytes sent"], '''
         exchange(self.own[self.slot], self.to, self.kept[self.slot], self.source, self.group)
+        every = torch.empty(self.group.size * shard.numel(), dtype=shard.dtype)
+        all_gather(every, shard.flatten(), self.group)
'''),
    Wrong("step_0_is_nothing", ["a save that was interrupted"], '''
-        self.steps = [-1, -1]  # -1: not whole
+        self.steps = [0, 0]
@@
-        self.steps[self.slot] = -1
+        self.steps[self.slot] = 0
@@
-            self.steps = [step if place == slot else -1 for place in range(2)]
+            self.steps = [step if place == slot else 0 for place in range(2)]
'''),
]

HEAD = '''
import torch

from course_lib.comm import all_gather, all_to_all, barrier, exchange, irecv, isend, recv, send

'''

RIGHT = [
    Right("dicts", "slots are dicts; the lower step is thrown away", HEAD + '''
class PeerCheckpoint:
    def __init__(self, group, offset, shard):
        self.group, self.offset = group, offset
        self.whole = {}  # step: own, kept
        self.new = None

    def copy(self, step, shard):
        self.whole = {s: v for s, v in self.whole.items() if s == max(self.whole)}
        n, i = self.group.size, self.group.index
        own, kept = shard.clone(), torch.empty_like(shard)
        sent = isend(own, (i + self.offset) % n, self.group)
        recv(kept, (i - self.offset) % n, self.group)
        sent.wait()
        self.new = own, kept

    def seal(self, step):
        self.whole[step] = self.new
        self.new = None

    def restore(self, shard, lost):
        n, i = self.group.size, self.group.index
        mine = torch.tensor((sorted(self.whole) + [-1, -1])[:2])
        every = torch.zeros(2 * n, dtype=torch.int64)
        all_gather(every, mine, self.group)
        votes = every.view(n, 2).tolist()
        good = [s for s in range(max(max(v) for v in votes) + 1)
                if all(s in votes[r] for r in range(n) if r not in lost)]
        step = good[-1]
        if i in lost:
            recv(shard, (i + self.offset) % n, self.group)
        else:
            own, kept = self.whole[step]
            shard.copy_(own)
            if (i - self.offset) % n in lost:
                send(kept, (i - self.offset) % n, self.group)
        self.whole = {s: v for s, v in self.whole.items() if s <= step}
        self.copy(step, shard)
        self.seal(step)
        return step
'''),
    Right("flip", "a flip between two slots, and a barrier after each copy", HEAD + '''
class PeerCheckpoint:
    def __init__(self, group, offset, shard):
        self.group, self.up, self.down = group, (group.index + offset) % group.size, (
            group.index - offset) % group.size
        self.memory = torch.empty(2, 2, *shard.shape, dtype=shard.dtype)
        self.steps, self.newest = torch.tensor([-1, -1]), 1

    def copy(self, step, shard):
        spare = 1 - self.newest
        self.steps[spare] = -1
        self.memory[spare, 0] = shard
        exchange(self.memory[spare, 0], self.up, self.memory[spare, 1], self.down, self.group)
        barrier(self.group)

    def seal(self, step):
        self.newest = 1 - self.newest
        self.steps[self.newest] = step

    def restore(self, shard, lost):
        votes = torch.empty(self.group.size * 2, dtype=torch.int64)
        all_gather(votes, self.steps, self.group)
        common = None
        for rank, pair in enumerate(votes.view(-1, 2).tolist()):
            if rank not in lost:
                common = set(pair) if common is None else common & set(pair)
        step = max(common)
        if self.group.index in lost:
            recv(shard, self.up, self.group)
        else:
            place = self.steps.tolist().index(step)
            shard.copy_(self.memory[place, 0])
            if self.down in lost:
                send(self.memory[place, 1], self.down, self.group)
            self.newest = place
        self.copy(step, shard)
        self.seal(step)
        return step
'''),
    Right("asks_first", "tells each other the steps with an all-to-all", HEAD + '''
class PeerCheckpoint:
    def __init__(self, group, offset, shard):
        self.group = group
        self.to = (group.index + offset) % group.size
        self.source = (group.index - offset) % group.size
        self.slots = [[-1, torch.zeros_like(shard), torch.zeros_like(shard)] for _ in range(2)]

    def copy(self, step, shard):
        self.slots.sort(key=lambda slot: slot[0])
        slot = self.slots[0]
        slot[0] = -1
        slot[1].copy_(shard)
        exchange(slot[1], self.to, slot[2], self.source, self.group)

    def seal(self, step):
        self.slots[0][0] = step

    def restore(self, shard, lost):
        n = self.group.size
        mine = torch.tensor([slot[0] for slot in self.slots]).repeat(n)
        heard = torch.empty_like(mine)
        all_to_all(heard, mine, self.group)
        kept = [set(heard[2 * r : 2 * r + 2].tolist()) for r in range(n) if r not in lost]
        step = max(s for s in kept[0] if all(s in other for other in kept))
        if self.group.index not in lost:
            for slot in self.slots:
                if slot[0] == step:
                    shard.copy_(slot[1])
                    if self.source in lost:
                        send(slot[2], self.source, self.group)
                    break
            for slot in self.slots:
                if slot[0] > step:
                    slot[0] = -1
        else:
            recv(shard, self.to, self.group)
        self.copy(step, shard)
        self.seal(step)
        return step
'''),
]
