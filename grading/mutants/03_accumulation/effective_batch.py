"""Wrong and right answers to `effective_batch`: see `course dev show effective_batch`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("a_sample_for_each_rank", ["2 samples cannot be shared equally"], '''
-    if global_batch % ranks:
+    if global_batch > ranks and global_batch % ranks:
@@
-    mine = global_batch // ranks
+    mine = max(1, global_batch // ranks)
'''),
    Wrong("activations_over_k", ["is already the size of one micro-batch"], '''
-        "activations": micro_batch * activation_bytes,
+        "activations": micro_batch * activation_bytes / k,
'''),
    Wrong("any_k", ["k must divide"], '''
-        if mine % k == 0:
+        if True:
'''),
    Wrong("below_the_budget", ["a plan that fits to the byte fits"], '''
-            if sum(held.values()) <= budget:
+            if sum(held.values()) < budget:
'''),
    Wrong("gradients_over_k", ["every gradient stays until the update"], '''
-        "gradients": 4 * parameters,
+        "gradients": 4 * parameters / k,
'''),
    Wrong("gradients_times_k", ["gradients are added up in one place"], '''
-        "gradients": 4 * parameters,
+        "gradients": 4 * parameters * k,
'''),
    Wrong("k_graphs", ["one graph is alive at a time"], '''
-        "activations": micro_batch * activation_bytes,
+        "activations": micro_batch * k * activation_bytes,
'''),
    Wrong("largest_k", ["try k from 1 up"], '''
-    for k in range(1, mine + 1):
+    for k in range(mine, 0, -1):
'''),
    Wrong("up_to_64", ["are not too many"], '''
-    for k in range(1, mine + 1):
+    for k in range(1, min(mine, 64) + 1):
'''),
    Wrong("rounded_up", ["k must divide"], '''
-        if mine % k == 0:
-            held = peak_bytes(parameters, activation_bytes, mine // k, k)
+        if True:
+            held = peak_bytes(parameters, activation_bytes, -(-mine // k), k)
'''),
    Wrong("no_error", ["one sample does not fit: raise"], '''
-    raise ValueError(f"one sample does not fit into {budget} bytes")
+    return None
'''),
    Wrong("no_ranks", ["the ranks are missing"], '''
-    return micro_batch * k * ranks
+    return micro_batch * k
'''),
    Wrong("one_moment", ["Adam has two moments"], '''
-        "optimizer state": 8 * parameters,
+        "optimizer state": 4 * parameters,
'''),
    Wrong("one_overhead", ["each micro-batch has its overhead"], '''
-    computing = k * (overhead + micro_batch * sample_seconds)
+    computing = overhead + k * micro_batch * sample_seconds
'''),
    Wrong("stops_before_one_sample", ["a micro-batch may have one sample"], '''
-    for k in range(1, mine + 1):
+    for k in range(1, mine):
'''),
    Wrong("without_by_default", ["if no_sync is not given, it is True"], '''
-    no_sync: bool = True,
+    no_sync: bool = False,
'''),
    Wrong("synchronises_k_times", ["with no_sync there is one synchronisation"], '''
-    return computing + (1 if no_sync else k) * sent / bandwidth
+    return computing + k * sent / bandwidth
'''),
    Wrong("synchronises_once", ["without no_sync every micro-batch"], '''
-    return computing + (1 if no_sync else k) * sent / bandwidth
+    return computing + sent / bandwidth
'''),
    Wrong("twice_all", ["a ring sends 2(N-1)/N"], '''
-    sent = 2 * (ranks - 1) / ranks * 4 * parameters
+    sent = 2 * 4 * parameters
'''),
    Wrong("unequal_ranks", ["cannot be shared equally"], '''
-    if global_batch % ranks:
-        raise ValueError(f"{global_batch} samples cannot be shared equally by {ranks} ranks")
'''),
]

RIGHT = [
    Right("variant_from_the_room", "the room for samples first", '''
def effective_batch(micro_batch: int, k: int, ranks: int) -> int:
    """Samples that one update has seen."""
    # BEGIN SOLUTION: the samples
    return micro_batch * k * ranks


def peak_bytes(
    parameters: int, activation_bytes: int, micro_batch: int, k: int
) -> dict[str, int]:
    """The most that a rank holds of each kind during an update.

    Args:
        parameters: how many numbers the model has.
        activation_bytes: bytes of the graph of one sample.
        micro_batch: samples of a micro-batch.
        k: micro-batches of an update.

    Returns:
        Bytes of `parameters`, `gradients`, `optimizer state` and `activations`.
    """
    # BEGIN SOLUTION: the peaks
    return {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer state": 8 * parameters,
        "activations": micro_batch * activation_bytes,
    }


def update_seconds(
    parameters: int,
    micro_batch: int,
    k: int,
    ranks: int,
    sample_seconds: float,
    overhead: float,
    bandwidth: float,
    no_sync: bool = True,
) -> float:
    """Seconds of one update.

    Args:
        parameters: how many numbers the model has.
        micro_batch: samples of a micro-batch.
        k: micro-batches of an update.
        ranks: N.
        sample_seconds: forward and backward of one sample.
        overhead: of each micro-batch.
        bandwidth: bytes a second that a rank can send.
        no_sync: whether gradients are synchronised once an update only.
    """
    # BEGIN SOLUTION: the time
    computing = k * (overhead + micro_batch * sample_seconds)
    sent = 2 * (ranks - 1) / ranks * 4 * parameters
    return computing + (1 if no_sync else k) * sent / bandwidth


def smallest_k(
    parameters: int, activation_bytes: int, global_batch: int, ranks: int, budget: int
) -> int:
    """The fewest micro-batches of equal size with which an update fits into a rank's memory.

    It fits if the peaks of all kinds, added up, are not above the budget.

    Args:
        parameters: how many numbers the model has.
        activation_bytes: bytes of the graph of one sample.
        global_batch: samples of an update over all ranks.
        ranks: N.
        budget: bytes of a rank's memory.

    Raises:
        ValueError: `global_batch` does not divide by the ranks, or one sample does not fit.
    """
    # BEGIN SOLUTION: the smallest k
    if global_batch % ranks:
        raise ValueError(f"{global_batch} samples cannot be shared equally by {ranks} ranks")
    mine = global_batch // ranks
    room = (budget - 16 * parameters) // activation_bytes
    fitting = [size for size in range(1, mine + 1) if mine % size == 0 and size <= room]
    if not fitting:
        raise ValueError("not even one sample fits")
    return mine // max(fitting)
'''),
]
