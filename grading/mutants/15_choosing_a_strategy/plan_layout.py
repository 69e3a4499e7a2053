"""Wrong and right answers to `plan_layout`: see `course dev show plan_layout`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("a_pair", ["this is not a plan"], '''
-    return Plan(sorted(choices, key=lambda choice: choice.seconds), refused)
+    return (sorted(choices, key=lambda choice: choice.seconds), refused)
'''),
    Wrong("all_numbers", ["pp and tp are divisors of the GPUs"], '''
-    sizes = [n for n in range(1, cluster.count + 1) if cluster.count % n == 0]
+    sizes = range(1, cluster.count + 1)
'''),
    Wrong("all_of_the_memory", ["all of the GPU's memory was used"], '''
-    room = cluster.gpu.memory * USABLE
+    room = cluster.gpu.memory
'''),
    Wrong("always_recomputed", ["only layouts with full recomputation were tried"], '''
-            for recompute in RECOMPUTE:
+            for recompute in ("full",):
'''),
    Wrong("average_stage", ["the fullest one decides"], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if sum(stage.total for stage in memory(way)) / pp <= room:
'''),
    Wrong("batch_before_model", ["this is the wrong reason", "the batch does not divide"], '''
     pp, dp, tp = family
+    if not cluster.node % tp and batch % dp:
+        return BATCH
@@
-    if batch % dp:
-        return BATCH
'''),
    Wrong("batch_not_kept", ["the batch is not kept"], '''
-            m, left = divmod(batch // dp, size)
+            m, left = divmod(batch, size)
'''),
    Wrong("batch_rounded", ["its family cannot be used: the batch does not divide"], '''
-    if batch % dp:
-        return BATCH
'''),
    Wrong("best_only", ["neither chosen nor refused"], '''
-    return Plan(sorted(choices, key=lambda choice: choice.seconds), refused)
+    return Plan(sorted(choices, key=lambda choice: choice.seconds)[:1], refused)
'''),
    Wrong("every_layout", ["times", "one layout of a family"], '''
-            choices.append(
-                min((Choice(way, seconds(way)) for way in ways), key=lambda c: c.seconds)
-            )
+            choices += [Choice(way, seconds(way)) for way in ways]
'''),
    Wrong("few_is_memory", ["this is the wrong reason", "fewer micro-batches than stages"], '''
-    return FEW if batch // dp < pp else ""
+    return ""
'''),
    Wrong("first_stage", ["the last one has the logits"], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if memory(way)[0].total <= room:
'''),
    Wrong("first_that_fits", ["a family has a faster layout"], '''
-                min((Choice(way, seconds(way)) for way in ways), key=lambda c: c.seconds)
+                Choice(ways[0], seconds(ways[0]))
'''),
    Wrong("idle_families", ["fewer micro-batches than stages", "this is the wrong reason"], '''
-    return FEW if batch // dp < pp else ""
+    return ""
@@
-            if left or m < pp:
+            if left:
'''),
    Wrong("idle_stages", ["fewer micro-batches than stages", "longer micro-batches are fewer"], '''
-            if left or m < pp:
+            if left:
'''),
    Wrong("kv_heads_forgotten", ["its family cannot be used: the model does not divide"], '''
-    if config.layers % pp or config.heads % tp or config.kv_heads % tp:
+    if config.layers % pp or config.heads % tp:
'''),
    Wrong("largest_tp_first", ["the largest tp was taken: it sends most"], '''
-    return Plan(sorted(choices, key=lambda choice: choice.seconds), refused)
+    return Plan(sorted(choices, key=lambda choice: (-choice.layout.tp, choice.seconds)), refused)
'''),
    Wrong("largest_tp_only", ["neither chosen nor refused", "only the largest tp was tried"], '''
-    for pp, tp in product(sizes, sizes):
+    widest = max(n for n in sizes if cluster.node % n == 0 and config.kv_heads % n == 0)
+    for pp, tp in product(sizes, [widest]):
'''),
    Wrong("last_stage", ["the first one has the most micro-batches in flight"], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if memory(way)[-1].total <= room:
'''),
    Wrong("layers_left_over", ["pp divides the layers"], '''
-    if config.layers % pp or config.heads % tp or config.kv_heads % tp:
+    if config.heads % tp or config.kv_heads % tp:
'''),
    Wrong("memory_blamed", ["this is the wrong reason", "measured: too much memory"], '''
-            refused[pp, dp, tp] = why or MEMORY
+            refused[pp, dp, tp] = MEMORY
'''),
    Wrong("memory_ignored", ["memory was not looked at"], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if True:
'''),
    Wrong("no_master_weights", ["the optimizer's 12 bytes a parameter were left out: fp32 master weights"], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if max(stage.total - stage.optimizer for stage in memory(way)) <= room:
'''),
    Wrong("no_seconds", ["the seconds of"], '''
-                min((Choice(way, seconds(way)) for way in ways), key=lambda c: c.seconds)
+                min((Choice(way, 1000 * seconds(way)) for way in ways), key=lambda c: c.seconds)
'''),
    Wrong("one_sequence", ["only micro-batches of one sequence were tried"], '''
-        for size, zero in product(MICRO_BATCH_SIZES, ZERO):
+        for size, zero in product((1,), ZERO):
'''),
    Wrong("only_states", ["activations take memory too"], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if max(stage.states for stage in memory(way)) <= room:
'''),
    Wrong("only_zero_1", ["a layout that needs exactly the memory fits", "MICRO_BATCH_SIZES", "ZERO and RECOMPUTE"], '''
-        for size, zero in product(MICRO_BATCH_SIZES, ZERO):
+        for size, zero in product(MICRO_BATCH_SIZES, (1,)):
'''),
    Wrong("own_words", ["the reasons are the five constants"], '''
-MODEL = "the model does not divide"
+MODEL = "heads or layers are left over"
'''),
    Wrong("reasons_forgotten", ["neither chosen nor refused"], '''
-            refused[pp, dp, tp] = why or MEMORY
+            refused.update({} if why else {(pp, dp, tp): MEMORY})
'''),
    Wrong("recomputed_needlessly", ["full recomputation was timed where a layout fits without it"], '''
-                    break
'''),
    Wrong("sequences_left_over", ["the batch is not kept"], '''
-            if left or m < pp:
+            if m < pp:
'''),
    Wrong("slowest_first", ["the slowest is first"], '''
-    return Plan(sorted(choices, key=lambda choice: choice.seconds), refused)
+    return Plan(sorted(choices, key=lambda choice: -choice.seconds), refused)
'''),
    Wrong("strictly_below", ["needs exactly the memory that there is: <="], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if max(stage.total for stage in memory(way)) < room:
'''),
    Wrong("times_before_it_fits", ["first ask `memory`"], '''
-                if max(stage.total for stage in memory(way)) <= room:
+                if seconds(way) and max(stage.total for stage in memory(way)) <= room:
'''),
    Wrong("tp_beyond_a_node", ["its family cannot be used: tp is beyond a node"], '''
-    if cluster.node % tp:
-        return BEYOND_NODE
'''),
    Wrong("tp_over_two_nodes", ["its family cannot be used: tp is beyond a node: 4 of 6"], '''
-    if cluster.node % tp:
+    if tp > cluster.node:
'''),
]

RIGHT = [
    Right("variant_any_order", "all families first, reasons by a table, ways filtered by a generator", '''
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from course_lib.model import ModelConfig
from course_lib.layout import Layout
from course_lib.plan import Cluster, Memory

MICRO_BATCH_SIZES = (1, 2, 4, 8)
ZERO = (1, 3)
RECOMPUTE = ("none", "full")
USABLE = 0.9  # of a GPU's memory
CALLS = 8  # of `seconds`, for a family that can be used

BEYOND_NODE = "tp is beyond a node"
MODEL = "the model does not divide"
BATCH = "the batch does not divide"
FEW = "fewer micro-batches than stages"
MEMORY = "too much memory"

Family = tuple[int, int, int]  # pp, dp, tp


class Choice(NamedTuple):
    """A layout that can be used, and what `seconds` says of it."""

    layout: Layout
    seconds: float


class Plan(NamedTuple):
    """What a search finds.

    Attributes:
        choices: the fastest layout of each family that can be used, the fastest family first: the
            best, and the runners-up. Empty if there is none.
        refused: for every other family, by (pp, dp, tp), one of the five reasons above.
    """

    choices: list[Choice]
    refused: dict[Family, str]


def why_not(config: ModelConfig, cluster: Cluster, batch: int, family: Family) -> str:
    """The first of the reasons but `MEMORY` that holds for a family; empty if none does."""
    pp, dp, tp = family
    if cluster.node % tp:
        return BEYOND_NODE
    if config.layers % pp or config.heads % tp or config.kv_heads % tp:
        return MODEL
    if batch % dp:
        return BATCH
    return FEW if batch // dp < pp else ""


def plan(
    config: ModelConfig,
    cluster: Cluster,
    batch: int,
    memory: Callable[[Layout], list[Memory]],
    seconds: Callable[[Layout], float],
) -> Plan:
    """Searches all layouts of a model on a cluster.

    Args:
        config: the model: `layers`, `heads`, `kv_heads` are of use here.
        cluster: `count` GPUs, `node` of them in a node; `gpu.memory` in bytes.
        batch: sequences of a step, all ranks together.
        memory: what the ranks of each stage hold, the first stage first.
        seconds: how long a step takes.

    Returns:
        The fastest layouts, and the reasons.
    """
    room = cluster.gpu.memory * USABLE

    def fitting(pp: int, dp: int, tp: int) -> list[Layout]:
        found = []
        for size, zero in product(MICRO_BATCH_SIZES, ZERO):
            m, left = divmod(batch // dp, size)
            if left or m < pp:
                continue
            for recompute in RECOMPUTE:
                way = Layout(
                    pp, dp, tp=tp, micro_batch_size=size, micro_batches=m, zero=zero,
                    recompute=recompute,
                )
                if max(stage.total for stage in memory(way)) <= room:
                    found.append(way)
                    break
        return found

    choices, refused = [], {}
    sizes = [n for n in range(1, cluster.count + 1) if cluster.count % n == 0]
    there = [(pp, cluster.count // pp // tp, tp) for tp in sizes for pp in sizes if cluster.count % (pp * tp) == 0]
    for pp, dp, tp in reversed(there):
        why = why_not(config, cluster, batch, (pp, dp, tp))
        ways = [] if why else fitting(pp, dp, tp)
        if ways:
            choices.append(
                min((Choice(way, seconds(way)) for way in ways), key=lambda c: c.seconds)
            )
        else:
            refused[pp, dp, tp] = why or MEMORY
    return Plan(sorted(choices, key=lambda choice: choice.seconds), refused)
'''),
    Right("variant_namespace", "another kind of record, and integers of another order", '''
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from course_lib.model import ModelConfig
from course_lib.layout import Layout
from course_lib.plan import Cluster, Memory

MICRO_BATCH_SIZES = (1, 2, 4, 8)
ZERO = (1, 3)
RECOMPUTE = ("none", "full")
USABLE = 0.9  # of a GPU's memory
CALLS = 8  # of `seconds`, for a family that can be used

BEYOND_NODE = "tp is beyond a node"
MODEL = "the model does not divide"
BATCH = "the batch does not divide"
FEW = "fewer micro-batches than stages"
MEMORY = "too much memory"

Family = tuple[int, int, int]  # pp, dp, tp


class Choice(NamedTuple):
    """A layout that can be used, and what `seconds` says of it."""

    layout: Layout
    seconds: float


class Plan(NamedTuple):
    """What a search finds.

    Attributes:
        choices: the fastest layout of each family that can be used, the fastest family first: the
            best, and the runners-up. Empty if there is none.
        refused: for every other family, by (pp, dp, tp), one of the five reasons above.
    """

    choices: list[Choice]
    refused: dict[Family, str]


def why_not(config: ModelConfig, cluster: Cluster, batch: int, family: Family) -> str:
    """The first of the reasons but `MEMORY` that holds for a family; empty if none does."""
    pp, dp, tp = family
    if cluster.node % tp:
        return BEYOND_NODE
    if config.layers % pp or config.heads % tp or config.kv_heads % tp:
        return MODEL
    if batch % dp:
        return BATCH
    return FEW if batch // dp < pp else ""


def plan(
    config: ModelConfig,
    cluster: Cluster,
    batch: int,
    memory: Callable[[Layout], list[Memory]],
    seconds: Callable[[Layout], float],
) -> Plan:
    """Searches all layouts of a model on a cluster.

    Args:
        config: the model: `layers`, `heads`, `kv_heads` are of use here.
        cluster: `count` GPUs, `node` of them in a node; `gpu.memory` in bytes.
        batch: sequences of a step, all ranks together.
        memory: what the ranks of each stage hold, the first stage first.
        seconds: how long a step takes.

    Returns:
        The fastest layouts, and the reasons.
    """
    room = cluster.gpu.memory * USABLE

    def fitting(pp: int, dp: int, tp: int) -> list[Layout]:
        found = []
        for size, zero in product(MICRO_BATCH_SIZES, ZERO):
            m, left = divmod(batch // dp, size)
            if left or m < pp:
                continue
            for recompute in RECOMPUTE:
                way = Layout(
                    pp, dp, tp=tp, micro_batch_size=size, micro_batches=m, zero=zero,
                    recompute=recompute,
                )
                if max(stage.total for stage in memory(way)) <= room:
                    found.append(way)
                    break
        return found

    choices, refused = [], {}
    sizes = [n for n in range(1, cluster.count + 1) if cluster.count % n == 0]
    for pp, tp in product(sizes, sizes):
        dp, left = divmod(cluster.count, pp * tp)
        if left:
            continue
        why = why_not(config, cluster, batch, (pp, dp, tp))
        ways = [] if why else fitting(pp, dp, tp)
        if ways:
            choices.append(
                min((Choice(way, seconds(way)) for way in ways), key=lambda c: c.seconds)
            )
        else:
            refused[pp, dp, tp] = why or MEMORY
    from types import SimpleNamespace

    return SimpleNamespace(choices=sorted(choices, key=lambda choice: choice.seconds), refused=refused)
'''),
    Right("variant_own_shape", "no helper, dp and tp first, a try with recomputation only if the other fails", '''
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from course_lib.model import ModelConfig
from course_lib.layout import Layout
from course_lib.plan import Cluster, Memory

MICRO_BATCH_SIZES = (1, 2, 4, 8)
ZERO = (1, 3)
RECOMPUTE = ("none", "full")
USABLE = 0.9  # of a GPU's memory
CALLS = 8  # of `seconds`, for a family that can be used

BEYOND_NODE = "tp is beyond a node"
MODEL = "the model does not divide"
BATCH = "the batch does not divide"
FEW = "fewer micro-batches than stages"
MEMORY = "too much memory"

Family = tuple[int, int, int]  # pp, dp, tp


class Choice(NamedTuple):
    """A layout that can be used, and what `seconds` says of it."""

    layout: Layout
    seconds: float


class Plan(NamedTuple):
    """What a search finds.

    Attributes:
        choices: the fastest layout of each family that can be used, the fastest family first: the
            best, and the runners-up. Empty if there is none.
        refused: for every other family, by (pp, dp, tp), one of the five reasons above.
    """

    choices: list[Choice]
    refused: dict[Family, str]


def why_not(config: ModelConfig, cluster: Cluster, batch: int, family: Family) -> str:
    """The first of the reasons but `MEMORY` that holds for a family; empty if none does."""
    pp, dp, tp = family
    if cluster.node % tp:
        return BEYOND_NODE
    if config.layers % pp or config.heads % tp or config.kv_heads % tp:
        return MODEL
    if batch % dp:
        return BATCH
    return FEW if batch // dp < pp else ""


def plan(
    config: ModelConfig,
    cluster: Cluster,
    batch: int,
    memory: Callable[[Layout], list[Memory]],
    seconds: Callable[[Layout], float],
) -> Plan:
    """Searches all layouts of a model on a cluster.

    Args:
        config: the model: `layers`, `heads`, `kv_heads` are of use here.
        cluster: `count` GPUs, `node` of them in a node; `gpu.memory` in bytes.
        batch: sequences of a step, all ranks together.
        memory: what the ranks of each stage hold, the first stage first.
        seconds: how long a step takes.

    Returns:
        The fastest layouts, and the reasons.
    """
    count, answer = cluster.count, Plan([], {})
    for dp in (n for n in range(1, count + 1) if count % n == 0):
        for tp in (n for n in range(1, count // dp + 1) if count // dp % n == 0):
            pp = count // (dp * tp)
            reasons = {
                BEYOND_NODE: cluster.node % tp,
                MODEL: config.layers % pp or config.heads % tp or config.kv_heads % tp,
                BATCH: batch % dp,
                FEW: batch < pp * dp,
            }
            why = next((reason for reason, holds in reasons.items() if holds), MEMORY)
            best = None
            for size in MICRO_BATCH_SIZES if why == MEMORY else ():
                if batch // dp % size or batch // dp // size < pp:
                    continue
                for zero in ZERO:
                    way = Layout(
                        pp=pp, dp=dp, tp=tp, zero=zero,
                        micro_batch_size=size, micro_batches=batch // dp // size,
                    )
                    for again in (way, Layout(**{**vars(way), "recompute": "full"})):
                        if all(m.total <= USABLE * cluster.gpu.memory for m in memory(again)):
                            time = seconds(again)
                            if best is None or time < best.seconds:
                                best = Choice(again, time)
                            break
            if best is None:
                answer.refused[pp, dp, tp] = why
            else:
                answer.choices.append(best)
    answer.choices.sort(key=lambda choice: choice.seconds)
    return answer
'''),
]
