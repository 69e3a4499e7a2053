"""Wrong and right answers to `divergence_bisect`: see `course dev show divergence_bisect`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("norm_of_the_suspect", ["not of the suspect's"], '''
-    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
+    limit = 4 * (step + 1) ** 0.5 * eps * other.norm()
'''),
    Wrong("absolute", ["an absolute tolerance"], '''
-    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
+    limit = 4 * (step + 1) ** 0.5 * eps
'''),
    Wrong("eps_of_the_suspect", ["the eps of the suspect's dtype"], '''
-    eps = max(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
+    eps = torch.finfo(suspect.dtype).eps
'''),
    Wrong("five_times", ["agree for", "is not what it should be"], '''
-    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
+    limit = 5 * (step + 1) ** 0.5 * eps * right.norm()
'''),
    Wrong("nan_is_zero", ["a suspect that is NaN where the reference is 0"], '''
-    right, other = reference.double(), suspect.double()
+    right, other = reference.double(), suspect.double().nan_to_num()
'''),
    Wrong("changes_the_reference", ["what was given to agree"], '''
-    return bool((other - right).norm() <= limit)  # with a NaN no comparison holds
+    return bool(right.sub_(other).norm() <= limit)  # with a NaN no comparison holds
'''),
    Wrong("flat_view", ["view size is not compatible"], '''
-    right, other = reference.double(), suspect.double()
+    right, other = reference.view(-1).double(), suspect.view(-1).double()
'''),
    Wrong("root_of_the_step", ["agree for"], '''
-    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
+    limit = 4 * max(step, 1) ** 0.5 * eps * right.norm()
'''),
    Wrong("bit_for_bit", ["every rounding counts as a fault"], '''
-    return bool((other - right).norm() <= limit)  # with a NaN no comparison holds
+    return bool(torch.equal(right, other))  # with a NaN no comparison holds
'''),
    Wrong("by_name", ["the first layer by name"], '''
-        apart = [name for name in layers if not agree(right[name], other[name], step)]
+        apart = [name for name in sorted(layers) if not agree(right[name], other[name], step)]
'''),
    Wrong("constant_tolerance", ["the tolerance must grow with the step"], '''
-    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
+    limit = 4 * eps * right.norm()
'''),
    Wrong("every_step", ["every step in turn"], '''
-    first = None
-    low, high = 0, steps  # before low the runs agree; high is bad, or the end
-    while low < high:
-        step = (low + high) // 2
+    for step in range(steps):
@@
-        apart = [name for name in layers if not agree(right[name], other[name], step)]
-        if apart:
-            high, first = step, (step, apart[0])
-        else:
-            low = step + 1
-    return first
+        for name in layers:
+            if not agree(right[name], other[name], step):
+                return step, name
+    return None
'''),
    Wrong("finer_dtype", ["the eps of the finer dtype"], '''
-    eps = max(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
+    eps = min(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
'''),
    Wrong("grows_too_fast", ["with the root of the step's number"], '''
-    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
+    limit = 4 * (step + 1) * eps * right.norm()
'''),
    Wrong("in_float32", ["the squares of small float32 numbers are 0"], '''
-    right, other = reference.double(), suspect.double()
+    right, other = reference.float(), suspect.float()
'''),
    Wrong("last_layer", ["where runs of", "part"], '''
-            high, first = step, (step, apart[0])
+            high, first = step, (step, apart[-1])
'''),
    Wrong("last_seen", ["where runs of"], '''
-            high, first = step, (step, apart[0])
+            high, first = step, first or (step, apart[0])
'''),
    Wrong("looks_twice", ["a step was replayed again"], '''
-            high, first = step, (step, apart[0])
+            high = step
@@
-    return first
+    if high == steps:
+        return None
+    right, other = reference(high), suspect(high)
+    return high, next(name for name in layers if not agree(right[name], other[name], high))
'''),
    Wrong("nan_passes", ["a NaN passed"], '''
-    return bool((other - right).norm() <= limit)  # with a NaN no comparison holds
+    return not bool((other - right).norm() > limit)  # with a NaN no comparison holds
'''),
    Wrong("never_ends_at_the_end", ["None for runs", "measured"], '''
-    low, high = 0, steps  # before low the runs agree; high is bad, or the end
+    low, high = 0, steps - 1  # before low the runs agree; high is bad, or the end
@@
-    return first
+    return first or (high, layers[0])
'''),
    Wrong("one_eps", ["float32's eps for every dtype"], '''
-    eps = max(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
+    eps = torch.finfo(torch.float32).eps
'''),
    Wrong("order_of_the_probe", ["the first layer by name"], '''
-        apart = [name for name in layers if not agree(right[name], other[name], step)]
+        apart = [name for name in right if not agree(right[name], other[name], step)]
'''),
]

RIGHT = [
    Right("variant_bisect_module", "Python's bisect with a key that remembers", '''
from collections.abc import Callable, Mapping, Sequence

import torch

from bisect import bisect_left


def agree(reference: torch.Tensor, suspect: torch.Tensor, step: int) -> bool:
    """Whether rounding alone explains the difference.

    Args:
        reference: finite floats.
        suspect: the same shape; the dtype may be another.
        step: from 0.
    """
    right, other = reference.double(), suspect.double()
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
    return bool((other - right).norm() <= limit)  # with a NaN no comparison holds


def divergence_bisect(
    reference: Callable[[int], Mapping[str, torch.Tensor]],
    suspect: Callable[[int], Mapping[str, torch.Tensor]],
    steps: int,
    layers: Sequence[str],
) -> tuple[int, str] | None:
    """The first step and layer at which two runs do not agree.

    Args:
        reference: replays the run that is right up to a step, from 0 to `steps` - 1; returns what
            every layer held there.
        suspect: the same for the other run.
        steps: how many there are, at least 1.
        layers: all names, in the order of execution.

    Returns:
        The step and the layer's name; None if the runs agree to the end.
    """
    known = {}

    def key(step):
        right, other = reference(step), suspect(step)
        known[step] = [name for name in layers if not agree(right[name], other[name], step)]
        return bool(known[step])

    step = bisect_left(range(steps), True, key=key)
    return None if step == steps else (step, known[step][0])
'''),
    Right("variant_end_first", "looks at the last step first, then bisects; keeps what it saw", '''
from collections.abc import Callable, Mapping, Sequence

import torch


def agree(reference: torch.Tensor, suspect: torch.Tensor, step: int) -> bool:
    """Whether rounding alone explains the difference.

    Args:
        reference: finite floats.
        suspect: the same shape; the dtype may be another.
        step: from 0.
    """
    right, other = reference.double(), suspect.double()
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (reference, suspect))
    limit = 4 * (step + 1) ** 0.5 * eps * right.norm()
    return bool((other - right).norm() <= limit)  # with a NaN no comparison holds


def divergence_bisect(
    reference: Callable[[int], Mapping[str, torch.Tensor]],
    suspect: Callable[[int], Mapping[str, torch.Tensor]],
    steps: int,
    layers: Sequence[str],
) -> tuple[int, str] | None:
    """The first step and layer at which two runs do not agree.

    Args:
        reference: replays the run that is right up to a step, from 0 to `steps` - 1; returns what
            every layer held there.
        suspect: the same for the other run.
        steps: how many there are, at least 1.
        layers: all names, in the order of execution.

    Returns:
        The step and the layer's name; None if the runs agree to the end.
    """
    def look(step):
        right, other = reference(step), suspect(step)
        return next((n for n in layers if not agree(right[n], other[n], step)), None)

    good, bad, layer = -1, steps - 1, look(steps - 1)
    if layer is None:
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        name = look(middle)
        good, bad, layer = (middle, bad, layer) if name is None else (good, middle, name)
    return bad, layer
'''),
]
