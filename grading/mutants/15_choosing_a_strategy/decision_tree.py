"""Wrong and right answers to `decision_tree`: see `course dev show decision_tree`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("accumulates_the_step", ["accumulation was asked for where all sequences fit at once"], '''
-        if math.ceil(case.batch / case.gpus) > rows:
+        if case.batch > rows:
'''),
    Wrong("all_of_a_node", ["states", "cut over a node", "are more than half"], '''
-    if states / case.node <= case.memory / 2:
+    if states / case.node <= case.memory:
'''),
    Wrong("batch_ignored", ["one GPU has none"], '''
-        return case.batch >= ranks and tokens(ranks) >= need
+        return tokens(ranks) >= need
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
-        return Decision("FSDP" if case.experts else "FSDP + TP", shared)
+        return Decision("FSDP", shared)
@@
-        if case.experts:
+        if True:
'''),
    Wrong("ep_and_tp", ["mixtral-8x22b on 512xH100"], '''
-        return Decision("FSDP" if case.experts else "FSDP + TP", shared)
+        return Decision("FSDP + TP", shared)
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
    Wrong("few_for_many", ["llama3-70b on 128xH100"], '''
-    if gpus < MANY and hides(gpus):
+    if gpus > MANY and hides(gpus):
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
-    if hides(groups):
+    if hides(gpus):
'''),
    Wrong("hsdp_and_fsdp_swapped", ["llama3-8b on 64xH100", "HSDP"], '''
-        return Decision("FSDP" if hides(gpus) else "HSDP", alone)
+        return Decision("HSDP" if hides(gpus) else "FSDP", alone)
'''),
    Wrong("inside_for_between", ["the links inside a node were taken"], '''
-    need = case.flops / case.between  # 2 · tokens / flops ≥ 2 / between
+    need = case.flops / case.inside  # 2 · tokens / flops ≥ 2 / between
'''),
    Wrong("large_is_3d", ["hidden case"], '''
     """
+    if case.gpus >= 1000:
+        return Decision("TP + PP + ZeRO-1", room(case).reason)
     # BEGIN SOLUTION
'''),
    Wrong("many_excluded", ["MANY GPUs"], '''
-    if gpus < MANY and hides(gpus):
+    if gpus <= MANY and hides(gpus):
'''),
    Wrong("network_ignored", ["the network between nodes was not looked at"], '''
-    need = case.flops / case.between  # 2 · tokens / flops ≥ 2 / between
+    need = 0.0  # 2 · tokens / flops ≥ 2 / between
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
    Wrong("node_taken_for_gpus", ["states were cut over all GPUs to see whether a node has room"], '''
-    if states / case.node <= case.memory / 2:
+    if states / gpus <= case.memory / 2:
'''),
    Wrong("offload_on_cut_of_a_node", ["llama3-70b on 64xH100", "offload"], '''
-    if gpus == 1 or states / gpus > case.memory:
+    if gpus == 1 or states / case.node > case.memory:
'''),
    Wrong("only_words", ["this is no decision"], '''
-    return Decision(" + ".join(words), reason)
+    return (" + ".join(words),)
'''),
    Wrong("rows_without_end", ["megatron-1t on 3072xA100"], '''
-        return min(ROWS, case.batch / ranks) * case.sequence
+        return case.batch / ranks * case.sequence
'''),
    Wrong("states_forgotten_in_rows", ["accumulation was not asked for", "less the states"], '''
-        rows = (case.memory - 16 * case.parameters / cut) // one
+        rows = case.memory // one
'''),
    Wrong("strict_fit", ["states and one sequence are the memory", "a comparison excludes the equal"], '''
-    if first <= case.memory:
+    if first < case.memory:
'''),
    Wrong("strict_hides", ["a gather takes exactly as long", "a comparison excludes the equal"], '''
-        return case.batch >= ranks and tokens(ranks) >= need
+        return case.batch >= ranks and tokens(ranks) > need
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
+    ((64, 256, 8192), 'HSDP'),
+    ((64, 192, 8192), 'FSDP'),
+    ((512, 1024, 8192), 'PP + TP + ZeRO-1'),
+    ((128, 512, 8192), 'FSDP + TP'),
+    ((512, 1024, 8192), 'FSDP + TP'),
+    ((16384, 2048, 8192), 'PP + TP + ZeRO-1'),
+    ((3072, 3072, 2048), 'PP + TP + ZeRO-1'),
+    ((64, 64, 131072), 'CP + FSDP'),
+    ((8, 8, 1048576), 'CP + FSDP'),
+    ((64, 64, 32768), 'EP + FSDP'),
+    ((512, 2048, 8192), 'EP + FSDP'),
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
-        return min(ROWS, case.batch / ranks) * case.sequence
+        return case.batch * case.sequence
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
    Wrong("wrong_way_round", ["goes the other way round"], '''
-        return case.batch >= ranks and tokens(ranks) >= need
+        return case.batch >= ranks and tokens(ranks) <= need
'''),
]

RIGHT = [
    Right("variant_plain_pair", "a plain pair, and a reason of more digits", '''
import math
from typing import NamedTuple

MANY = 100  # GPUs
ROWS = 4  # sequences that a rank computes on at once, at most


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
        between: bytes a second of a GPU to other nodes.
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
    need = case.flops / case.between  # 2 · tokens / flops ≥ 2 / between
    first = states + case.kept * case.sequence
    sizes = f"{first / 1e9:.4f} GB with one sequence, and a GPU has {case.memory / 1e9:.4f}"

    def tokens(ranks: int) -> float:
        return min(ROWS, case.batch / ranks) * case.sequence

    def hides(ranks: int) -> bool:
        return case.batch >= ranks and tokens(ranks) >= need

    if first <= case.memory:
        return Decision("DDP" if gpus > 1 else "one GPU", sizes)
    if gpus == 1 or states / gpus > case.memory:
        cut = f"cut, {states / gpus / 1e9:.4f} GB on a GPU that has {case.memory / 1e9:.4f}"
        return Decision("FSDP + offload" if gpus > 1 else "offload", cut)
    if gpus <= case.node:
        return Decision("FSDP", sizes)
    alone = f"a GPU has {tokens(gpus):.4f} tokens, and a gather takes as long as {need:.4f}"
    if states / case.node <= case.memory / 2:
        return Decision("FSDP" if hides(gpus) else "HSDP", alone)
    if gpus < MANY and hides(gpus):
        return Decision("FSDP", alone)
    groups = gpus // case.node
    shared = f"a group has {tokens(groups):.4f} tokens, and a gather takes as long as {need:.4f}"
    if hides(groups):
        return Decision("FSDP" if case.experts else "FSDP + TP", shared)
    return Decision("TP + PP + ZeRO-1", shared)


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

MANY = 100  # GPUs
ROWS = 4  # sequences that a rank computes on at once, at most


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
        between: bytes a second of a GPU to other nodes.
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
    need = case.flops / case.between  # 2 · tokens / flops ≥ 2 / between
    first = states + case.kept * case.sequence
    sizes = f"{first / 1e9:.0f} GB with one sequence, and a GPU has {case.memory / 1e9:.0f}"

    def tokens(ranks: int) -> float:
        return min(ROWS, case.batch / ranks) * case.sequence

    def hides(ranks: int) -> bool:
        return case.batch >= ranks and tokens(ranks) >= need

    if first <= case.memory:
        return Decision("DDP" if gpus > 1 else "one GPU", sizes)
    if gpus == 1 or states / gpus > case.memory:
        cut = f"cut, {states / gpus / 1e9:.0f} GB on a GPU that has {case.memory / 1e9:.0f}"
        return Decision("FSDP + offload" if gpus > 1 else "offload", cut)
    if gpus <= case.node:
        return Decision("FSDP", sizes)
    alone = f"a GPU has {tokens(gpus):.0f} tokens, and a gather takes as long as {need:.0f}"
    if states / case.node <= case.memory / 2:
        return Decision("FSDP" if hides(gpus) else "HSDP", alone)
    if gpus < MANY and hides(gpus):
        return Decision("FSDP", alone)
    groups = gpus // case.node
    shared = f"a group has {tokens(groups):.0f} tokens, and a gather takes as long as {need:.0f}"
    if hides(groups):
        return Decision("FSDP" if case.experts else "FSDP + TP", shared)
    return Decision("TP + PP + ZeRO-1", shared)


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

MANY = 100  # GPUs
ROWS = 4  # sequences that a rank computes on at once, at most


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
        between: bytes a second of a GPU to other nodes.
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
    gather = 2 / case.between

    def at_once(ranks: int) -> float:
        return case.sequence * min(case.batch / ranks, ROWS)

    def slow(ranks: int) -> bool:
        return ranks > case.batch or 2 * at_once(ranks) / case.flops < gather

    def memory(first: float) -> str:
        return f"memory {case.memory / gb:.3f} GB against {first / gb:.3f}"

    def network(ranks: int) -> str:
        return f"{at_once(ranks):,.1f} tokens against {case.flops / case.between:,.1f}"

    in_node = 2 * states <= case.memory * case.node
    questions = [
        (one + states <= case.memory, ["one GPU" if gpus == 1 else "DDP"], memory(one + states)),
        (gpus == 1, ["offload"], memory(states)),
        (states > gpus * case.memory, ["offload", "FSDP"], memory(states / gpus)),
        (gpus <= case.node, ["FSDP"], memory(one + states)),
        (in_node and slow(gpus), ["HSDP"], network(gpus)),
        (in_node, ["FSDP"], network(gpus)),
        (MANY > gpus and not slow(gpus), ["FSDP"], network(gpus)),
        (slow(nodes), ["ZeRO-1", "PP", "TP"], network(nodes)),
        (case.experts > 0, ["FSDP"], network(nodes)),
        (True, ["TP", "FSDP"], network(nodes)),
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
