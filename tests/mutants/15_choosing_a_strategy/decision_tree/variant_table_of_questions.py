"""variant: questions as a table, times instead of tokens, words in another order, in tokens with commas"""

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
