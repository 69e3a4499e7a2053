"""Wrong and right answers to `recompute_plan`: see `course dev show recompute_plan`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("nothing_dropped", ["the number of bytes in memory is too large"], '''
-        while sum(self.sizes[each] for each in self.there) + self.sizes[node] > self.budget:
+        while False:
'''),
    Wrong("budget_without_the_new", ["the number of bytes in memory is too large"], '''
-        while sum(self.sizes[each] for each in self.there) + self.sizes[node] > self.budget:
+        while sum(self.sizes[each] for each in self.there) > self.budget:
'''),
    Wrong("inputs_not_held", ["is not in memory"], '''
-        held = held | set(self.inputs[node])
+        held = held | {node}
'''),
    Wrong("inputs_forgotten_in_backward", ["is not in memory"], '''
-            needed = {node, *self.inputs[node]} if backward else {node}
+            needed = {node}
'''),
    Wrong("first_node_first", ["it is not this node's turn"], '''
-        for self.now, node in enumerate([*nodes, *reversed(nodes)]):
+        for self.now, node in enumerate([*nodes, *nodes]):
'''),
    Wrong("made_twice", ["is in memory already"], '''
-        if node in self.there:
+        if node in self.there and len(self.plan) != 2 * len(self.costs):
'''),
    Wrong("no_backward_of_the_first", ["the list of nodes without a backward"], '''
-    return best or _from_nothing(inputs)
+    return [text for text in best or _from_nothing(inputs) if text != "B0"]
'''),
    Wrong("steps_as_pairs", ["not a list of texts"], '''
-    return best or _from_nothing(inputs)
+    return [(text[0], int(text[1:])) for text in best or _from_nothing(inputs)]
'''),
]

RIGHT = [
    Right("trivial", "all that a backward needs from nothing, and nothing kept", '''
def recompute_plan(costs, sizes, inputs, budget):
    plan = []
    for node in reversed(range(len(costs))):
        needed = {node} | set(inputs[node])
        made, there = set(needed), set()
        for each in range(node, -1, -1):
            if each in made:
                made |= set(inputs[each])
        for each in sorted(made):
            plan.append(f"F{each}")
            there.add(each)
            later = needed.union(*(inputs[other] for other in made if other > each))
            plan += [f"D{other}" for other in there - later]
            there &= later
        plan += [f"B{node}"] + [f"D{each}" for each in there]
    return plan
'''),
    Right("oldest_first", "drops what was made first; a tuple", '''
def recompute_plan(costs, sizes, inputs, budget):
    plan, there = [], []

    def make(node, held):
        if node in there:
            return True
        held = held | set(inputs[node])
        if not all(make(each, held) for each in inputs[node]):
            return False
        while sum(sizes[each] for each in there) + sizes[node] > budget:
            free = [each for each in there if each not in held]
            if not free:
                return False
            plan.append(f"D{free[0]}")
            there.remove(free[0])
        plan.append(f"F{node}")
        there.append(node)
        return True

    for node in reversed(range(len(costs))):
        needed = {node} | set(inputs[node])
        if not all(make(each, needed) for each in sorted(needed)):
            for each in list(there):  # once more, from nothing
                plan.append(f"D{each}")
            there.clear()
            made = set(needed)
            for each in range(node, -1, -1):
                made |= set(inputs[each]) if each in made else set()
            for each in sorted(made):
                plan.append(f"F{each}")
                there.append(each)
                later = needed.union(*(inputs[other] for other in made if other > each))
                for other in [other for other in there if other not in later]:
                    plan.append(f"D{other}")
                    there.remove(other)
        plan.append(f"B{node}")
    return tuple(plan)
'''),
]
