"""Which parallelism for which case: the questions that an engineer asks, with numbers in them.

Notebook 15. You get a model, a cluster and a batch, as a `Case` of plain numbers. `decide` returns
the words for a first strategy, and the reason. Ask these questions in this order; the first one
with the answer yes decides how the model is made to fit:

1. Do the states and one sequence's activations fit on one GPU? `one GPU`, or `DDP` on several. The
   states are parameters, gradients and Adam's state in mixed precision: 16 bytes per parameter.
2. Are the states larger than a GPU's memory even if they are cut over all GPUs, or is there only
   one GPU? `FSDP + offload`, or `offload` alone on one GPU.
3. Are all GPUs in one node? `FSDP`.
4. Does every GPU have a sequence, and are FSDP's gathers hidden? `FSDP`.
5. Does every GPU have a sequence, and do the states, cut over one node, take at most half of the
   memory? `HSDP`: parameters are gathered only inside nodes, and only gradients are sent between
   them.
6. Does every node have a sequence, and are the gathers hidden? `FSDP + TP`, with TP inside the
   nodes, where all GPUs compute together on the same sequences.
7. Otherwise `TP + PP + ZeRO-1`, called 3D: TP inside nodes, pipeline stages between them.

"Every GPU has a sequence" means that a step has at least as many sequences as there are GPUs; the
same holds for nodes.

When are gathers hidden? FSDP gathers each parameter before it is used: 2 bytes, round a ring
through all GPUs. Each GPU has its own network adapter, and the library runs so many rings at once
that they leave a node through *all* of its adapters: a node sends `node · between` bytes per
second. But inside a node, each ring passes every GPU, and a GPU sends at most `inside`. In a
forward, a GPU computes 2 operations with each parameter for each of its tokens. The gather is
hidden if this takes at least as long as the gather. A GPU computes on `batch / gpus` sequences at
once, but at most `ROWS`. TP changes neither number: a GPU gathers its part of each matrix through
its one adapter, and computes with only that part, for all sequences of its node; so count the GPU's
share of their tokens.

Then add words where they apply:

8. `CP` if the sequence is too long: question 1 did not decide, there are several GPUs, and one
   sequence's activations (with `TP`, divided by the GPUs of a node) are more than half of a GPU's
   memory.
9. `EP` if there are experts and several GPUs, and question 1 did not decide.
10. `accumulation` if a GPU has more sequences in a step than fit at once. It has `batch / gpus`
    sequences, rounded up. It holds all states with `one GPU` and `DDP`; the states are cut over all
    GPUs with `FSDP`, and over a node with `HSDP`. The rest of its memory is for whole sequences.
    Skip this question with `offload`, `TP`, `PP` or `CP`.

"Fit", "at most" and "at least" include equality. Join the words with ` + `, in any order. The
reason is a sentence of your own, and the first two numbers in it are those that decided questions 1
to 7. For 1 and 3: states plus one sequence, and the memory of a GPU, both in GB, 10⁹ bytes. For 2:
the states on each GPU, if cut over all, and the memory, in GB. For 4 to 7: the tokens that a GPU
computes on at once, and the tokens whose computation takes as long as a gather. Round the numbers
to whole ones, or give more digits.
"""

import math
from typing import NamedTuple

ROWS = 4  # sequences that a GPU computes on at once, at most


class Case(NamedTuple):
    """A question.

    Attributes:
        parameters: of the model, experts included.
        experts: in each layer; 0 without a mixture.
        kept: bytes of activations per token, if the blocks are recomputed in the backward.
        sequence: tokens of each sequence.
        batch: sequences in a step, all GPUs together.
        gpus: number of GPUs.
        node: GPUs in a node; the GPUs fill whole nodes, or a part of one.
        memory: bytes of a GPU that tensors can use.
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
    """Answers questions 1 to 7: how the model is made to fit. Only `decide` is graded."""
    # BEGIN SOLUTION
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
    # END SOLUTION


def decide(case: Case) -> Decision:
    """Answers all questions.

    Args:
        case: model, cluster and batch.

    Returns:
        The words of questions 1 to 10, and the numbers that decided 1 to 7.
    """
    # BEGIN SOLUTION
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
    return Decision(" + ".join(words), reason)
    # END SOLUTION
