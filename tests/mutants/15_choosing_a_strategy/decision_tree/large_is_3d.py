"""mutant: hidden case"""

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
    if case.gpus >= 1000:
        return Decision("TP + PP + ZeRO-1", room(case).reason)
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
