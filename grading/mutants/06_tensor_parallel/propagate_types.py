"""Wrong and right answers to `propagate_types`: see `course dev show propagate_types`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("nothing_to_copy_for", ["the result is `given` itself"], '''
-    types = dict(given)
+    types = dict(given) if program else given
'''),
    Wrong("gelu_keeps_a_partial_sum", ["gelu(a + b) is not gelu(a) + gelu(b)"], '''
-    return "" if x in ("P", other) else x  # gelu, softmax
+    return "" if x == other or (x == "P" and operation == "softmax") else x
'''),
    Wrong("softmax_of_the_own_piece", ["each rank divides by the sum over its own piece"], '''
-    return "" if x in ("P", other) else x  # gelu, softmax
+    return "" if x == "P" else x
'''),
    Wrong("softmax_refuses_every_shard", ["y = softmax(a, 0) with S(1)", "S(1) for y"], '''
-    return "" if x in ("P", other) else x  # gelu, softmax
+    return "" if x == "P" or (operation == "softmax" and x != "R") else x
'''),
    Wrong("replicated_summand", ["the sum counts it N times"], '''
-        return x if x == other else ""
+        return x if x == other else "P" if {x, other} == {"R", "P"} else ""
'''),
    Wrong("product_of_partial_sums", ["has four terms, and the ranks have two"], '''
-        return PRODUCTS.get((x, other), "")
+        return "P" if x == other == "P" else PRODUCTS.get((x, other), "")
'''),
    Wrong("no_summands_from_a_product", ["P for y", "the dim that the product sums over is sharded"], '''
-    ("S(1)", "S(0)"): "P",  # X A = X_0 A_0 + X_1 A_1
+    ("S(1)", "S(0)"): "R",
'''),
    Wrong("blocks_of_the_diagonal", ["one block of the diagonal"], '''
-    ("P", "R"): "P",  # linear in each factor
+    ("S(0)", "S(1)"): "S(0)",
+    ("P", "R"): "P",
'''),
    Wrong("sum_stays_sharded", ["if the sharded dim is summed over, each rank has a summand", "P for y"], '''
-        return "P" if x == other else x
+        return x
'''),
    Wrong("transposed_alike", ["rows become columns"], '''
-        return {"S(0)": "S(1)", "S(1)": "S(0)"}.get(x, x)
+        return x
'''),
    Wrong("part_of_a_summand", ["the sum is missing: reduce_scatter does both"], '''
-        return other if x == "R" else ""
+        return other if x in ("R", "P") else ""
'''),
    Wrong("reduces_anything", ["the sum of a replicated tensor is N times too large"], '''
-    return summed if x in ("P", "V") else ""
+    return summed
'''),
    Wrong("gathers_along_any_dim", ["gathers along the other dim"], '''
-        return "R" if x in (dim, "V") else ""
+        return "R" if x in ("S(0)", "S(1)", "V") else ""
'''),
    Wrong("varying_for_good", ["the sum is the same on every rank, whatever was added"], '''
-    if operation in COLLECTIVES:
-        return _collected(operation, x, other)
     if "V" in (x, other):
         return "V"
+    if operation in COLLECTIVES:
+        return _collected(operation, x, other)
'''),
    Wrong("lost_is_varying", ["Lost('y') for y", "V for y", "one block of the diagonal"], '''
-        if made == "":  # mutate: same
-            raise Lost(name)
-        types[name] = made
+        types[name] = made or "V"
'''),
    Wrong("names_what_was_read", ["Lost('a')", "Lost takes the name of the line's result"], '''
-            raise Lost(name)
+            raise Lost(arguments[0])
'''),
    Wrong("raises_after_the_last_line", ["no exception", "raise Lost here, whatever comes next"], '''
-    types = dict(given)
+    types, lost = dict(given), ""
@@
         if made == "":  # mutate: same
-            raise Lost(name)
+            made, lost = "V", name
+        elif lost == name:
+            lost = ""
         types[name] = made
+    if lost:
+        raise Lost(lost)
     return types
'''),
    Wrong("forgets_older_results", ["all others keep theirs"], '''
-        types[name] = made
+        types = {**types, **given, name: made}
'''),
    Wrong("first_tensor_of_a_name", ["is a new tensor with another type"], '''
-        types[name] = made
+        types.setdefault(name, made)
'''),
    Wrong("changes_what_was_given", ["`given`, after the call,", "begin with a copy"], '''
-    types = dict(given)
+    types: dict[str, str] = given  # type: ignore[assignment]
'''),
]

RIGHT = [
    Right("table_of_texts", "a line is looked up as a text, what is not there is lost", '''
class Lost(Exception):
    def __init__(self, name):
        super().__init__(name)
        self.name = name


TABLE = {}
for row in """
matmul R R R, matmul S(0) R S(0), matmul R S(1) S(1), matmul S(1) S(0) P, matmul P R P,
matmul R P P, add R R R, add S(0) S(0) S(0), add S(1) S(1) S(1), add P P P, t R R, t S(0) S(1),
t S(1) S(0), t P P, gelu R R, gelu S(0) S(0), gelu S(1) S(1), softmax R 0 R, softmax R 1 R,
softmax S(0) 1 S(0), softmax S(1) 0 S(1), sum R 0 R, sum R 1 R, sum S(0) 0 P, sum S(0) 1 S(0),
sum S(1) 0 S(1), sum S(1) 1 P, sum P 0 P, sum P 1 P, chunk R 0 S(0), chunk R 1 S(1),
all_reduce P R, all_reduce V R, all_gather S(0) 0 R, all_gather S(1) 1 R, all_gather V 0 R,
all_gather V 1 R, reduce_scatter P 0 S(0), reduce_scatter P 1 S(1), reduce_scatter V 0 S(0),
reduce_scatter V 1 S(1)""".replace("\\n", " ").split(","):
    *key, value = row.split()
    TABLE[" ".join(key)] = value


def propagate_types(given, program):
    types = {**given}
    for name, operation, *arguments in program:
        words = [types.get(each, each) for each in arguments]
        key = " ".join(map(str, (operation, *words)))
        if key not in TABLE and ("V" not in words or "_" in operation):
            raise Lost(name)
        types[name] = TABLE.get(key, "V")
    return types
'''),
    Right("short_names", "one letter for a type, a function for an operation", '''

class Lost(Exception):
    def __init__(self, name):
        self.name = name


def propagate_types(given, program):
    rules = {
        "matmul": lambda x, y: {"RR": "R", "0R": "0", "R1": "1", "10": "P", "PR": "P", "RP": "P"}.get(x + y),
        "add": lambda x, y: x if x == y else None,
        "t": lambda x: {"0": "1", "1": "0"}.get(x, x),
        "gelu": lambda x: x if x in "R01" else None,
        "softmax": lambda x, dim: x if x in "R01" and x != dim else None,
        "sum": lambda x, dim: "P" if x == dim else x,
        "chunk": lambda x, dim: dim if x == "R" else None,
    }
    collect = {
        "all_reduce": lambda x: "R" if x in "PV" else None,
        "all_gather": lambda x, dim: "R" if x in ("V", dim) else None,
        "reduce_scatter": lambda x, dim: dim if x in "PV" else None,
    }
    short = {name: kind.strip("S()") for name, kind in given.items()}
    for line in program:
        name, operation, arguments = line[0], line[1], line[2:]
        read = [short[a] if isinstance(a, str) else str(a) for a in arguments]
        if operation in collect:
            kind = collect[operation](*read)
        else:
            kind = "V" if "V" in read else rules[operation](*read)
        if kind is None:
            raise Lost(name)
        short[name] = kind
    return {name: f"S({kind})" if kind in "01" else kind for name, kind in short.items()}
'''),
    Right("by_recursion", "one line, then the rest", '''
class Lost(Exception):
    def __init__(self, name):
        Exception.__init__(self, name)
        self.name = name


LINEAR = {"t", "sum"}


def propagate_types(given, program):
    if not program:
        return dict(given)
    (name, operation, *arguments), *rest = program
    kinds = [given[a] for a in arguments if isinstance(a, str)]
    dims = [f"S({a})" for a in arguments if isinstance(a, int)]
    kind = follow(operation, kinds, dims)
    if kind is None:
        raise Lost(name)
    return propagate_types({**given, name: kind}, rest)


def follow(operation, kinds, dims):
    first, last = kinds[0], kinds[-1]
    if operation in ("all_reduce", "reduce_scatter"):
        return (dims or ["R"])[0] if first in "PV" else None
    if operation == "all_gather":
        return "R" if first in ("V", dims[0]) else None
    if "V" in kinds:
        return "V"
    if operation == "add":
        return first if first == last else None
    if operation == "matmul":
        if "P" in kinds:
            return "P" if "R" in kinds else None
        if first == "S(1)":
            return "P" if last == "S(0)" else None
        if last == "R":
            return first
        return last if first == "R" and last == "S(1)" else None
    if operation == "chunk":
        return dims[0] if first == "R" else None
    if operation == "sum" and first == dims[0]:
        return "P"
    if operation == "t" and first[0] == "S":
        return "S(1)" if first == "S(0)" else "S(0)"
    if operation not in LINEAR and (first == "P" or first in dims):
        return None
    return first
'''),
]
