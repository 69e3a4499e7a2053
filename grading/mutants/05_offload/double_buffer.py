"""Wrong and right answers to `double_buffer`: see `course dev show double_buffer`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("begins_before_the_loop", ["by a loop that never began", "start it inside"], '''
     # BEGIN SOLUTION
+    return rest(layers, pool, [pool.fetch(layer) for layer in layers[:1]])
+
+
+def rest(layers, pool, here):
-    here = [pool.fetch(layer) for layer in layers[:1]]
'''),
    Wrong("copies_all", ["no room for layer 2"], '''
-    here = [pool.fetch(layer) for layer in layers[:1]]
-    try:
-        for number in range(len(layers)):
-            here[0].wait()  # mutate: same
-            here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
-            yield here[0].weights
-            pool.free(here.pop(0))
-    finally:
-        for copy in here:
-            copy.wait()
-            pool.free(copy)
+    copies = [pool.fetch(layer) for layer in layers]
+    for copy in copies:
+        copy.wait()
+        yield copy.weights
+    for copy in copies:
+        pool.free(copy)
'''),
    Wrong("copies_of_weights", ["wrong value"], '''
-            yield here[0].weights
+            yield [w.float().to(w.dtype) for w in here[0].weights]
'''),
    Wrong("clones_of_weights", ["a copy of a layer takes room for a third one"], '''
-            yield here[0].weights
+            yield [weight.clone() for weight in here[0].weights]
'''),
    Wrong("empty_list", ["IndexError"], '''
-    here = [pool.fetch(layer) for layer in layers[:1]]
+    here = [pool.fetch(layers[0])]
'''),
    Wrong("fetches_after_the_body", ["nothing overlaps"], '''
             here[0].wait()  # mutate: same
+            yield here[0].weights
@@
-            yield here[0].weights
'''),
    Wrong("first_again", ["layers left on the device after"], '''
-            here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
+            here += [pool.fetch(layers[(number + 1) % len(layers)])]
@@
-        for copy in here:
+        for copy in here[1:]:
'''),
    Wrong("forgets_what_is_under_way", ["left on the device after a break"], '''
-        for copy in here:
-            copy.wait()
+        for copy in here[:1]:
'''),
    Wrong("frees_before_the_body", ["a race"], '''
-            yield here[0].weights
+            weights = here[0].weights
@@
             pool.free(here.pop(0))
+            yield weights
'''),
    Wrong("frees_under_way", ["was freed while its copy was under way"], '''
-            copy.wait()
'''),
    Wrong("last_is_missing", ["the last one is missing"], '''
-        for number in range(len(layers)):
+        for number in range(len(layers) - 1):
'''),
    Wrong("leaks_on_break", ["left on the device after a break"], '''
-    try:
-        for number in range(len(layers)):
-            here[0].wait()  # mutate: same
-            here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
-            yield here[0].weights
-            pool.free(here.pop(0))
-    finally:
-        for copy in here:
-            copy.wait()
-            pool.free(copy)
+    for number in range(len(layers)):
+        here[0].wait()
+        here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
+        yield here[0].weights
+        pool.free(here.pop(0))
'''),
    Wrong("missing_wait", ["a race"], '''
-            here[0].wait()  # mutate: same
'''),
    Wrong("never_frees", ["no room for layer 2"], '''
-            pool.free(here.pop(0))
+            here.pop(0)
'''),
    Wrong("one_buffer", ["nothing overlaps"], '''
-    here = [pool.fetch(layer) for layer in layers[:1]]
-    try:
-        for number in range(len(layers)):
-            here[0].wait()  # mutate: same
-            here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
-            yield here[0].weights
-            pool.free(here.pop(0))
-    finally:
-        for copy in here:
-            copy.wait()
+    for layer in layers:
+        copy = pool.fetch(layer)
+        copy.wait()
+        try:
+            yield copy.weights
+        finally:
'''),
    Wrong("three_buffers", ["no room for layer 2"], '''
-    here = [pool.fetch(layer) for layer in layers[:1]]
+    here = [pool.fetch(layer) for layer in layers[:2]]
@@
-            here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
+            here += [pool.fetch(layer) for layer in layers[number + 2 : number + 3]]
'''),
    Wrong("waits_at_once", ["nothing overlaps"], '''
             here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
+            here[-1].wait()
'''),
    Wrong("waits_for_the_first_only", ["a race"], '''
-            here[0].wait()  # mutate: same
+            if number == 0:
+                here[0].wait()
'''),
    Wrong("yields_the_next", ["wait for a copy before its weights are given out"], '''
-            yield here[0].weights
+            yield here[-1].weights
'''),
]

RIGHT = [
    Right("variant_fetches_first", "fetches the next before it waits for this one", '''
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    queue = []
    rest = iter(layers)

    def fetch() -> None:
        layer = next(rest, None)
        if layer is not None:
            queue.append(pool.fetch(layer))

    fetch()
    try:
        while queue:
            fetch()
            queue[0].wait()
            yield queue[0].weights
            pool.free(queue.pop(0))
    finally:
        while queue:
            copy = queue.pop()
            copy.wait()
            pool.free(copy)
'''),
    Right("variant_recursive", "a generator that hands over to itself", '''
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    layers = list(layers)
    if layers:
        yield from walk(pool.fetch(layers[0]), layers[1:], pool)


def walk(copy: Any, rest: list[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    coming = None
    try:
        copy.wait()
        if rest:
            coming = pool.fetch(rest[0])
        yield copy.weights
    except BaseException:
        if coming is not None:
            coming.wait()
            pool.free(coming)
        raise
    finally:
        pool.free(copy)
    if coming is not None:
        yield from walk(coming, rest[1:], pool)
'''),
    Right("variant_two_names", "two names instead of a list", '''
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    coming = pool.fetch(layers[0]) if layers else None
    for number in range(len(layers)):
        now, coming = coming, None
        try:
            now.wait()
            if number + 1 < len(layers):
                coming = pool.fetch(layers[number + 1])
            yield now.weights
        except GeneratorExit:
            if coming is not None:
                coming.wait()
                pool.free(coming)
            raise
        finally:
            pool.free(now)
'''),
]
