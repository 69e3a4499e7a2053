"""Which parallelism for which case: the questions that an engineer asks, with numbers in them.

Notebook 15. Given are a model, a cluster and a batch, as a `Case` of plain numbers. `decide` says
with which words to begin, and why. Ask these questions in this order; the first whose answer is yes
decides how the model gets room:

1. Do the states and one sequence's activations fit on one GPU?  `one GPU`, or `DDP` on several.
   States are parameters, gradients and Adam's state in mixed precision: 16 bytes a parameter.
2. Are the states more than a GPU's memory even if all GPUs cut them, or is there but one GPU?
   `FSDP + offload`, or `offload` alone on one GPU.
3. Are all GPUs in one node?  `FSDP`.
4. Has every GPU a sequence, and do FSDP's gathers hide?  `FSDP`.
5. Has every GPU a sequence, and do the states, cut over one node, take at most half of the memory
   there?  `HSDP`: parameters are gathered inside nodes alone, only gradients go between them.
6. Has every node a sequence, and do the gathers hide?  `FSDP + TP`, with TP inside the nodes, where
   all GPUs compute together on the same sequences.
7. If nothing of that: `TP + PP + ZeRO-1`, called 3D: TP inside nodes, pipeline stages between them.

"Every GPU has a sequence" if there are at least as many sequences in a step as GPUs; for nodes the
same.

When do gathers hide? FSDP gathers each parameter before it is used: 2 bytes, round a ring through
all GPUs. Each GPU has a network adapter of its own, and the library runs so many rings at once that
they leave a node through *all* of its adapters: a node sends `node · between` bytes a second. But
inside the nodes a ring passes every GPU, which sends no more than `inside`. A GPU computes 2
operations with the parameter for each of its tokens in a forward. Hidden is the gather if this
takes at least as long. A GPU computes on `batch / gpus` sequences at once, but at most `ROWS`. With
TP the same holds: a GPU gathers a part of each matrix, through its one adapter, and computes with
that part alone, for all sequences of its node; count its share of their tokens.

Then look at what is left, and add words:

8. `CP` if the sequence is too long: it was not question 1 that decided, there are several GPUs, and
   one sequence's activations are more than half of a GPU's memory; with `TP` its node shares them.
9. `EP` if there are experts, several GPUs, and it was not question 1 that decided.
10. `accumulation` if a GPU has more sequences in a step than fit at once. It has `batch / gpus`,
    rounded up. The states that it holds are whole with `one GPU` and `DDP`, cut over all GPUs with
    `FSDP`, over a node with `HSDP`; the rest of its memory is for whole sequences. Do not ask this
    with `offload`, `TP`, `PP` or `CP`.

"Fit", "at most" and "at least" include the equal. The words come with ` + ` between them, in any
order. The reason is a sentence of yours with the two numbers that were compared when the model got
room. For 1 and 3: states with one sequence, and the memory of a GPU, both in GB, 10⁹ bytes. For 2:
states on each GPU, if all cut them, and the memory, in GB. For 4 to 7: the tokens that a GPU
computes on at once, and those that a gather takes as long as. Round them to whole numbers, or say
more digits.

Your answer may use nothing of `course_lib`.
"""

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
    raise NotImplementedError("decision_tree: write your answer here")


def decide(case: Case) -> Decision:
    """Goes through all questions.

    Args:
        case: model, cluster and batch.

    Returns:
        The words of questions 1 to 10, and the numbers that decided 1 to 7.
    """
    raise NotImplementedError("decision_tree: write your answer here")
