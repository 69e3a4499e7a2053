"""Wrong and right answers to `place_experts`: see `course dev show place_experts`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("no_slots", ["number of experts on GPU", "is too large"], '''
-        free = [gpu for gpu in range(gpus) if len(held[gpu]) < slots]
+        free = [*range(gpus)]
'''),
    Wrong("twice_on_one", ["twice"], '''
-                if mine in held[b] or other in held[a] or mine not in held[a]:
+                if mine not in held[a]:
'''),
    Wrong("cold_ones_left_out", ["no GPU holds expert"], '''
-    copies = [1] * len(total)
-    for _ in range(gpus * slots - len(total)):
+    copies = [int(load > min(total)) for load in total]
+    for _ in range(gpus * slots - sum(copies)):
@@
-            copies[max(more, key=lambda expert: total[expert] / copies[expert])] += 1
+            copies[max(more, key=lambda expert: total[expert] * copies[expert])] += 1
@@
-    counts = [sum(expert in mine for mine in held) for expert in range(len(loads[0]))]
+    counts = [sum(e in mine for mine in held) or 1 for e in range(len(loads[0]))]
'''),
    Wrong("one_list_for_each_expert", ["the number of lists, one for each GPU"], '''
-    return _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)
+    held = _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)
+    return [[g for g in range(gpus) if e in held[g]] for e in range(len(total))]
'''),
    Wrong("empty_lists_left_out", ["the number of lists, one for each GPU"], '''
-    return _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)
+    packed = [[*range(gpu * slots, (gpu + 1) * slots)] for gpu in range(gpus)]
+    packed = [[expert for expert in mine if expert < len(total)] for mine in packed]
+    return [mine for mine in packed if mine]
'''),
    Wrong("sets", ["not a list of experts for each GPU"], '''
-    return _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)
+    return [set(mine) for mine in _packed(total, _copies(total, gpus, slots), gpus, slots)]
'''),
    Wrong("counted_from_one", ["there is no expert"], '''
-    return _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)
+    held = _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)
+    return [[expert + 1 for expert in mine] for mine in held]
'''),
]

RIGHT = [
    Right("trivial", "dealt out in order, and from expert 0 again", '''
def place_experts(loads, gpus, slots):
    experts, slots = len(loads[0]), min(slots, len(loads[0]))
    return [[(gpu * slots + place) % experts for place in range(slots)] for gpu in range(gpus)]
'''),
    Right("full_first", "no copies, tuples, some of them empty", '''
from itertools import islice


def place_experts(loads, gpus, slots):
    rest = iter(range(len(loads[0])))
    return tuple(tuple(islice(rest, slots)) for _ in range(gpus))
'''),
    Right("no_copies", "each expert once, the heaviest first to the emptiest GPU", '''
def place_experts(loads, gpus, slots):
    total = [sum(step[expert] for step in loads) for expert in range(len(loads[0]))]
    held = [[] for _ in range(gpus)]
    for expert in sorted(range(len(total)), key=lambda expert: -total[expert]):
        free = [mine for mine in held if len(mine) < slots]
        min(free, key=lambda mine: sum(total[other] for other in mine)).append(expert)
    return held
'''),
]
