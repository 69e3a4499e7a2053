"""Wrong and right answers to `decision_tree`: see `course dev show decision_tree`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("accumulates_the_step", ["accumulation was asked for where all sequences fit at once"], '''
-        if math.ceil(case.batch / case.gpus) > rows:
+        if case.batch > rows:
'''),
    Wrong("all_of_a_node", ["states", "cut over a node", "are more than half"], '''
-    if case.batch >= gpus and states / case.node <= case.memory / 2:
+    if case.batch >= gpus and states / case.node <= case.memory:
'''),
    Wrong("batch_ignored", ["one GPU has none"], '''
-    if case.batch >= gpus and tokens >= need:
+    if tokens >= need:
'''),
    Wrong("batch_rounded_down", ["accumulation was not asked for", "rounded up", "one sequence more than fit"], '''
-        if math.ceil(case.batch / case.gpus) > rows:
+        if case.batch // case.gpus > rows:
'''),
    Wrong("cp_alone", ["hidden case"], '''
-        if one / (case.node if "TP" in words else 1) > case.memory / 2:
+        if one > case.memory / 2:
'''),
    Wrong("cp_always", ["CP was taken for short sequences too"], '''
-        if one / (case.node if "TP" in words else 1) > case.memory / 2:
+        if "CP" not in words:
'''),
    Wrong("cp_never", ["CP was never asked for"], '''
-            words.append("CP")
+            pass
'''),
    Wrong("ep_always", ["EP was taken where there are no experts"], '''
-        if case.experts:
+        if True:
'''),
    Wrong("ep_for_tp", ["mixtral-8x22b on 512xH100"], '''
-        return Decision("FSDP + TP", why)
+        return Decision("FSDP" if case.experts else "FSDP + TP", why)
'''),
    Wrong("ep_for_what_fits", ["hidden case", "DDP"], '''
-        if case.experts:
-            words.append("EP")
+    if case.experts and case.gpus > 1:
+        words.append("EP")
'''),
    Wrong("ep_never", ["EP was left out"], '''
-            words.append("EP")
+            pass
'''),
    Wrong("few_for_many", ["TP was taken because there are many GPUs"], '''
             words.append("accumulation")
+    if words[0] == "FSDP" and case.gpus >= 100 and "TP" not in words:
+        words.append("TP")
'''),
    Wrong("fsdp_for_all", ["FSDP was taken however many GPUs there are"], '''
             words.append("accumulation")
+    if "PP" in words:
+        words = ["FSDP", *(word for word in words if word in ("CP", "EP"))]
'''),
    Wrong("gibibytes", ["GB are 10⁹ bytes", "the reason lacks a number"], '''
-    sizes = f"{first / 1e9:.0f} GB with one sequence, and a GPU has {case.memory / 1e9:.0f}"
+    sizes = f"{first / 2**30:.0f} GB with one sequence, and a GPU has {case.memory / 2**30:.0f}"
@@
-        cut = f"cut, {states / gpus / 1e9:.0f} GB on a GPU that has {case.memory / 1e9:.0f}"
+        cut = f"cut, {states / gpus / 2**30:.0f} GB on a GPU that has {case.memory / 2**30:.0f}"
'''),
    Wrong("groups_forgotten", ["llama3-70b on 512xH100"], '''
-    if case.batch >= gpus // case.node and tokens >= need:
+    if case.batch >= gpus and tokens >= need:
'''),
    Wrong("hsdp_and_fsdp_swapped", ["llama3-8b on 64xH100", "HSDP"], '''
-    if case.batch >= gpus and tokens >= need:
-        return Decision("FSDP", why)
+    if case.batch >= gpus and tokens < need:
+        return Decision("FSDP", why)
'''),
    Wrong("inside_for_between", ["the links inside a node were taken"], '''
-    ring = min(case.inside, case.node * case.between)
+    ring = case.inside
'''),
    Wrong("large_is_3d", ["hidden case"], '''
     """
+    if case.gpus >= 1000:
+        return Decision("TP + PP + ZeRO-1", room(case).reason)
     # BEGIN SOLUTION
'''),
    Wrong("nodes_without_sequences", ["one node has none"], '''
-    if case.batch >= gpus // case.node and tokens >= need:
+    if tokens >= need:
'''),
    Wrong("one_adapter_a_node", ["one adapter was taken for the whole node"], '''
-    ring = min(case.inside, case.node * case.between)
+    ring = case.between
'''),
    Wrong("only_adapters", ["a ring inside takes longer by a little"], '''
-    ring = min(case.inside, case.node * case.between)
+    ring = case.node * case.between
'''),
    Wrong("tokens_of_a_group", ["hidden case"], '''
-    if case.batch >= gpus // case.node and tokens >= need:
+    tokens = min(ROWS, case.batch * case.node / gpus) * case.sequence
+    if case.batch >= gpus // case.node and tokens >= need:
'''),
    Wrong("network_ignored", ["the network between nodes was not looked at"], '''
-    need = case.flops / ring  # 2 · tokens / flops ≥ 2 / ring
+    need = 0.0  # 2 · tokens / flops ≥ 2 / ring
'''),
    Wrong("no_accumulation", ["accumulation was not asked for where a GPU has more sequences than fit"], '''
-            words.append("accumulation")
+            pass
'''),
    Wrong("no_activations", ["one sequence's activations were left out"], '''
-    first = states + case.kept * case.sequence
+    first = states
'''),
    Wrong("no_master_weights", ["states and a sequence take", "GB"], '''
-    states, gpus = 16 * case.parameters, case.gpus
+    states, gpus = 4 * case.parameters, case.gpus
@@
-        rows = (case.memory - 16 * case.parameters / cut) // one
+        rows = (case.memory - 4 * case.parameters / cut) // one
'''),
    Wrong("no_numbers", ["the reason lacks a number that decides"], '''
-    return Decision(" + ".join(words), reason)
+    return Decision(" + ".join(words), "that is how it is done")
'''),
    Wrong("all_numbers", ["other numbers come before it"], '''
-    return Decision(" + ".join(words), reason)
+    ring = min(case.inside, case.node * case.between)
+    states, tokens = 16 * case.parameters, min(ROWS, case.batch / case.gpus) * case.sequence
+    sizes = (states + one, case.memory, states / case.gpus)
+    said = [*(size / 1e9 for size in sizes), tokens, case.flops / ring]
+    return Decision(" + ".join(words), " ".join(f"{number:.1f}" for number in said))
'''),
    Wrong("node_taken_for_gpus", ["states were cut over all GPUs to see whether a node has room"], '''
-    if case.batch >= gpus and states / case.node <= case.memory / 2:
+    if case.batch >= gpus and states / gpus <= case.memory / 2:
'''),
    Wrong("offload_on_cut_of_a_node", ["llama3-70b on 64xH100", "offload"], '''
-    if gpus == 1 or states / gpus > case.memory:
+    if gpus == 1 or states / case.node > case.memory:
'''),
    Wrong("only_words", ["this is not a decision"], '''
-    return Decision(" + ".join(words), reason)
+    return (" + ".join(words),)
'''),
    Wrong("rows_without_end", ["llama3-8b on 64xH100"], '''
-    tokens = min(ROWS, case.batch / gpus) * case.sequence
+    tokens = case.batch / gpus * case.sequence
'''),
    Wrong("states_forgotten_in_rows", ["accumulation was not asked for", "less the states"], '''
-        rows = (case.memory - 16 * case.parameters / cut) // one
+        rows = case.memory // one
'''),
    Wrong("strict_fit", ["states and one sequence are the memory", "a comparison excludes equality"], '''
-    if first <= case.memory:
+    if first < case.memory:
'''),
    Wrong("strict_hides", ["a gather takes exactly as long", "a comparison excludes equality"], '''
-    if case.batch >= gpus and tokens >= need:
+    if case.batch >= gpus and tokens > need:
@@
-    if case.batch >= gpus // case.node and tokens >= need:
+    if case.batch >= gpus // case.node and tokens > need:
'''),
    Wrong("table", ["hidden case"], '''
     reason: str
+ANSWERS = [
+    ((1, 8, 1024), 'one GPU'),
+    ((8, 64, 1024), 'DDP'),
+    ((8, 2048, 1024), 'DDP + accumulation'),
+    ((8, 8, 8192), 'DDP'),
+    ((1, 8, 8192), 'offload'),
+    ((8, 64, 8192), 'FSDP + offload'),
+    ((8, 8, 8192), 'FSDP'),
+    ((8, 256, 8192), 'FSDP + accumulation'),
+    ((64, 256, 8192), 'FSDP'),
+    ((64, 1024, 8192), 'HSDP + accumulation'),
+    ((64, 192, 8192), 'FSDP'),
+    ((512, 1024, 8192), 'PP + TP + ZeRO-1'),
+    ((128, 512, 8192), 'FSDP + accumulation'),
+    ((512, 256, 8192), 'FSDP + TP'),
+    ((16384, 2048, 8192), 'PP + TP + ZeRO-1'),
+    ((3072, 512, 2048), 'PP + TP + ZeRO-1'),
+    ((64, 64, 131072), 'CP + FSDP'),
+    ((8, 8, 1048576), 'CP + FSDP'),
+    ((64, 64, 32768), 'EP + FSDP'),
+    ((512, 256, 8192), 'EP + FSDP + TP'),
+]
@@
-    strategy, reason = room(case)
+    key = (case.gpus, case.batch, case.sequence)
+    known = [words for numbers, words in ANSWERS if numbers == key]
+    if known:
+        slow = case.between < 2e9
+        return Decision(known[slow and len(known) > 1], room(case).reason)
+    strategy, reason = room(case._replace(parameters=case.parameters / 2))
'''),
    Wrong("tokens_of_all", ["llama3-405b on 16384xH100"], '''
-    tokens = min(ROWS, case.batch / gpus) * case.sequence
+    tokens = case.batch * case.sequence
'''),
    Wrong("tp_first", ["TP was taken first"], '''
             words.append("accumulation")
+    if case.gpus > 1 and "TP" not in words:
+        words.insert(0, "TP")
'''),
    Wrong("two_bytes", ["2 bytes a parameter were counted"], '''
-    states, gpus = 16 * case.parameters, case.gpus
+    states, gpus = 2 * case.parameters, case.gpus
@@
-        rows = (case.memory - 16 * case.parameters / cut) // one
+        rows = (case.memory - 2 * case.parameters / cut) // one
'''),
    Wrong("wrong_way_round", ["is reversed"], '''
-    if case.batch >= gpus // case.node and tokens >= need:
+    if case.batch >= gpus // case.node and tokens <= need:
'''),
    Wrong("hsdp_rest_of_all", ["one sequence more than fit beside them"], '''
-        cut = {"FSDP": case.gpus, "HSDP": case.node}.get(words[0], 1)
+        cut = {"FSDP": case.gpus, "HSDP": case.gpus}.get(words[0], 1)
'''),
    Wrong("ep_on_one_gpu", ["one GPU, with experts"], '''
-    if words[0] not in ("one GPU", "DDP", "offload"):
+    if words[0] not in ("one GPU", "DDP"):
'''),
]

RIGHT = [
    Right("variant_plain_pair", "a plain pair, and a reason of more digits", '''
import math
from typing import NamedTuple

ROWS = 4  # sequences that a GPU computes on at once, at most


class Case(NamedTuple):
    """A question.

    Attributes:
        parameters: of the model, experts included.
        experts: in each layer; 0 without a mixture.
        kept: bytes of activations for each token, with blocks computed again in the backward.
        sequence: tokens of each sequence.
        batch: sequences in a step, all GPUs together.
        gpus: how many.
        node: how many share a node; the GPUs are full nodes, or a part of one.
        memory: bytes of a GPU that tensors can have.
        flops: operations a second that a GPU reaches.
        inside: bytes a second of a GPU to others in its node.
        between: bytes a second of one adapter to other nodes; each GPU has one.
    """

    parameters: float
    experts: int
    kept: float
    sequence: int
    batch: int
    gpus: int
    node: int
    memory: float
    flops: float
    inside: float
    between: float


class Decision(NamedTuple):
    """An answer.

    Attributes:
        strategy: words with ` + ` between them.
        reason: a sentence with the two numbers that decided.
    """

    strategy: str
    reason: str


def room(case: Case) -> Decision:
    """Questions 1 to 7: how the model gets room. Only `decide` is graded."""
    states, gpus = 16 * case.parameters, case.gpus
    ring = min(case.inside, case.node * case.between)
    need = case.flops / ring  # 2 · tokens / flops ≥ 2 / ring
    tokens = min(ROWS, case.batch / gpus) * case.sequence
    first = states + case.kept * case.sequence
    sizes = f"{first / 1e9:.4f} GB with one sequence, and a GPU has {case.memory / 1e9:.4f}"

    if first <= case.memory:
        return Decision("DDP" if gpus > 1 else "one GPU", sizes)
    if gpus == 1 or states / gpus > case.memory:
        cut = f"cut, {states / gpus / 1e9:.4f} GB on a GPU that has {case.memory / 1e9:.4f}"
        return Decision("FSDP + offload" if gpus > 1 else "offload", cut)
    if gpus <= case.node:
        return Decision("FSDP", sizes)
    why = f"a GPU has {tokens:.4f} tokens at once, and a gather takes as long as {need:.4f}"
    if case.batch >= gpus and tokens >= need:
        return Decision("FSDP", why)
    if case.batch >= gpus and states / case.node <= case.memory / 2:
        return Decision("HSDP", why)
    if case.batch >= gpus // case.node and tokens >= need:
        return Decision("FSDP + TP", why)
    return Decision("TP + PP + ZeRO-1", why)


def decide(case: Case) -> Decision:
    """Goes through all questions.

    Args:
        case: model, cluster and batch.

    Returns:
        The words of questions 1 to 10, and the numbers that decided 1 to 7.
    """
    strategy, reason = room(case)
    words, one = strategy.split(" + "), case.kept * case.sequence
    if words[0] not in ("one GPU", "DDP", "offload"):
        if one / (case.node if "TP" in words else 1) > case.memory / 2:
            words.append("CP")
        if case.experts:
            words.append("EP")
    if not {"offload", "TP", "CP"} & set(words):
        cut = {"FSDP": case.gpus, "HSDP": case.node}.get(words[0], 1)
        rows = (case.memory - 16 * case.parameters / cut) // one
        if math.ceil(case.batch / case.gpus) > rows:
            words.append("accumulation")
    return " + ".join(reversed(words)), reason
'''),
    Right("variant_sums", "sequences counted one after the other, TP from the words", '''
import math
from typing import NamedTuple

ROWS = 4  # sequences that a GPU computes on at once, at most


class Case(NamedTuple):
    """A question.

    Attributes:
        parameters: of the model, experts included.
        experts: in each layer; 0 without a mixture.
        kept: bytes of activations for each token, with blocks computed again in the backward.
        sequence: tokens of each sequence.
        batch: sequences in a step, all GPUs together.
        gpus: how many.
        node: how many share a node; the GPUs are full nodes, or a part of one.
        memory: bytes of a GPU that tensors can have.
        flops: operations a second that a GPU reaches.
        inside: bytes a second of a GPU to others in its node.
        between: bytes a second of one adapter to other nodes; each GPU has one.
    """

    parameters: float
    experts: int
    kept: float
    sequence: int
    batch: int
    gpus: int
    node: int
    memory: float
    flops: float
    inside: float
    between: float


class Decision(NamedTuple):
    """An answer.

    Attributes:
        strategy: words with ` + ` between them.
        reason: a sentence with the two numbers that decided.
    """

    strategy: str
    reason: str


def room(case: Case) -> Decision:
    """Questions 1 to 7: how the model gets room. Only `decide` is graded."""
    states, gpus = 16 * case.parameters, case.gpus
    ring = min(case.inside, case.node * case.between)
    need = case.flops / ring  # 2 · tokens / flops ≥ 2 / ring
    tokens = min(ROWS, case.batch / gpus) * case.sequence
    first = states + case.kept * case.sequence
    sizes = f"{first / 1e9:.0f} GB with one sequence, and a GPU has {case.memory / 1e9:.0f}"

    if first <= case.memory:
        return Decision("DDP" if gpus > 1 else "one GPU", sizes)
    if gpus == 1 or states / gpus > case.memory:
        cut = f"cut, {states / gpus / 1e9:.0f} GB on a GPU that has {case.memory / 1e9:.0f}"
        return Decision("FSDP + offload" if gpus > 1 else "offload", cut)
    if gpus <= case.node:
        return Decision("FSDP", sizes)
    why = f"a GPU has {tokens:.0f} tokens at once, and a gather takes as long as {need:.0f}"
    if case.batch >= gpus and tokens >= need:
        return Decision("FSDP", why)
    if case.batch >= gpus and states / case.node <= case.memory / 2:
        return Decision("HSDP", why)
    if case.batch >= gpus // case.node and tokens >= need:
        return Decision("FSDP + TP", why)
    return Decision("TP + PP + ZeRO-1", why)


def decide(case: Case) -> Decision:
    """Goes through all questions.

    Args:
        case: model, cluster and batch.

    Returns:
        The words of questions 1 to 10, and the numbers that decided 1 to 7.
    """
    strategy, reason = room(case)
    words, one = strategy.split(" + "), case.kept * case.sequence
    if words[0] not in ("one GPU", "DDP", "offload"):
        if one / (case.node if "TP" in words else 1) > case.memory / 2:
            words.append("CP")
        if case.experts:
            words.append("EP")
    if not {"offload", "TP", "CP"} & set(words):
        cut = case.gpus if words[0] == "FSDP" else case.node if words[0] == "HSDP" else 1
        rows = int((case.memory - 16 * case.parameters / cut) / one)
        if math.ceil(case.batch / case.gpus) > rows:
            words.append("accumulation")
    return Decision(" + ".join(words), reason)
'''),
    Right("variant_table_of_questions", "questions as a table, times instead of tokens, words in another order, in tokens with commas", '''
import math
from typing import NamedTuple

ROWS = 4  # sequences that a GPU computes on at once, at most


class Case(NamedTuple):
    """A question.

    Attributes:
        parameters: of the model, experts included.
        experts: in each layer; 0 without a mixture.
        kept: bytes of activations for each token, with blocks computed again in the backward.
        sequence: tokens of each sequence.
        batch: sequences in a step, all GPUs together.
        gpus: how many.
        node: how many share a node; the GPUs are full nodes, or a part of one.
        memory: bytes of a GPU that tensors can have.
        flops: operations a second that a GPU reaches.
        inside: bytes a second of a GPU to others in its node.
        between: bytes a second of one adapter to other nodes; each GPU has one.
    """

    parameters: float
    experts: int
    kept: float
    sequence: int
    batch: int
    gpus: int
    node: int
    memory: float
    flops: float
    inside: float
    between: float


class Decision(NamedTuple):
    """An answer.

    Attributes:
        strategy: words with ` + ` between them.
        reason: a sentence with the two numbers that decided.
    """

    strategy: str
    reason: str


def decide(case: Case) -> Decision:
    """Goes through a table."""
    nodes, one = max(1, case.gpus // case.node), case.sequence * case.kept
    states, gpus, gb = 16 * case.parameters, case.gpus, 1e9
    through = [case.inside, case.between * case.node]
    at_once = case.sequence * min(case.batch / gpus, ROWS)
    slow = 2 * at_once / case.flops < 2 / min(through)
    network = f"{at_once:,.1f} tokens against {case.flops / min(through):,.1f}"

    def memory(first: float) -> str:
        return f"memory {case.memory / gb:.3f} GB against {first / gb:.3f}"

    questions = [
        (one + states <= case.memory, ["one GPU" if gpus == 1 else "DDP"], memory(one + states)),
        (gpus == 1, ["offload"], memory(states)),
        (states > gpus * case.memory, ["offload", "FSDP"], memory(states / gpus)),
        (gpus <= case.node, ["FSDP"], memory(one + states)),
        (not slow and gpus <= case.batch, ["FSDP"], network),
        (gpus <= case.batch and 2 * states <= case.memory * case.node, ["HSDP"], network),
        (slow or nodes > case.batch, ["ZeRO-1", "PP", "TP"], network),
        (True, ["TP", "FSDP"], network),
    ]
    words, reason = next((words, reason) for holds, words, reason in questions if holds)
    whole = questions[0][0]
    if case.experts and gpus > 1 and not whole:
        words.insert(0, "EP")
    if gpus > 1 and not whole and 2 * one > case.memory * (case.node if "TP" in words else 1):
        words.insert(0, "CP")
    held = states / (gpus if "FSDP" in words else case.node if "HSDP" in words else 1)
    if not any(word in words for word in ("offload", "TP", "CP")):
        if -(-case.batch // gpus) > (case.memory - held) // one:
            words.insert(0, "accumulation")
    return Decision(" + ".join(words), reason)
'''),
]
