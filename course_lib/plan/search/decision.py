"""Which parallelism for which case: the questions that an engineer asks, with numbers in them.

Notebook: 15 Choosing a strategy (decision_tree).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3 (takeaways); Zhao et al., "PyTorch FSDP"
(2023), section 3.2.2, for hybrid sharding; Grattafiori et al., "The Llama 3 Herd of Models" (2024),
section 3.3.2, for the order of the axes.
Costs nothing. It says what to begin with; `planner` finds the degrees.
The production version is a colleague who has done it before.

The questions, in order:
    Does it fit on one GPU?                          DDP, perhaps with recomputation
    Do its states not even fit on all, cut?          offload
    Are all GPUs in one node?                        FSDP
    Has every GPU a sequence, and do FSDP's
      gathers hide behind computation?               FSDP
    Has every GPU a sequence, and do the states
      fit in a node, cut?                            HSDP: it gathers inside nodes alone
    Has every node a sequence, and do the gathers
      hide?                                          FSDP with TP in the nodes
    No?                                              3D: TP in the nodes, PP between, ZeRO-1
    Do one sequence's activations still not fit?     CP, and recomputation
    Are there experts?                               EP
    Are there more sequences than fit at once?       accumulation

A gather's ring leaves each node through all of its adapters. TP does not make it cheaper: a GPU
then gathers its part of each matrix through its one adapter, and computes with that part alone.
What TP changes is the number of sequences that are needed, and of hops in the ring.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass, replace

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.model.formulas import block_parameters, parameter_count
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.memory.memory import memory
from course_lib.plan.time.cost import ring_bandwidth, seconds, span

SIZE = 4  # sequences in a micro-batch: longer ones seldom help


@dataclass(frozen=True)
class Case:
    """A question.

    Attributes:
        config: the model; its sequences are all as long as it says.
        cluster: GPUs, nodes and links.
        batch: sequences of a step.
        usable: part of a GPU's memory that tensors can have.
    """

    config: ModelConfig
    cluster: Cluster
    batch: int
    usable: float = 0.9


@dataclass(frozen=True)
class Advice:
    """A part of the answer.

    Attributes:
        word: `one GPU`, `DDP`, `FSDP`, `HSDP`, `ZeRO-1`, `TP`, `PP`, `CP`, `EP`, `offload`,
            `recomputation` or `accumulation`.
        why: in one sentence.
    """

    word: str
    why: str


@dataclass(frozen=True)
class Decision:
    """An answer.

    Attributes:
        advice: what to use and why, the most important first.
    """

    advice: tuple[Advice, ...]

    @property
    def strategy(self) -> str:
        """The words, with + between them."""
        return " + ".join(part.word for part in self.advice)


def decide(case: Case) -> Decision:
    """Goes through the questions."""
    held = _hold(case)
    words = {part.word for part in held}
    long = _long(case, words)
    batch = _more_sequences(case, words | {part.word for part in long})
    return Decision((*held, *long, *_experts(case), *batch))


# --- numbers -------------------------------------------------------------------------------------
def _room(case: Case) -> float:
    return case.cluster.gpu.memory * case.usable


def _bytes(case: Case, layout: Layout) -> float:
    return memory(case.config, layout).total


def _cut(case: Case, ranks: int) -> Layout:
    """Sharded over `ranks` ranks, with full recomputation."""
    return Layout(dp=ranks, zero=3, recompute="full")


def _inside(case: Case) -> int:
    """The largest tp that the heads allow in a node."""
    heads, node = case.config.heads, case.cluster.node
    return max(n for n in range(1, node + 1) if node % n == 0 and heads % n == 0)


def _enough_tokens(case: Case, tp: int = 1) -> float:
    """Tokens of a GPU behind whose computation the gather of a block's parameters hides.

    2 operations for each parameter that a token uses, against 2 bytes for each that is gathered:
    all but the experts', which EP does not move.

    Args:
        case: the question.
        tp: ranks that share each token, and gather as much less. Their tokens count in parts.
    """
    cluster, config = case.cluster, case.config
    group = span(cluster.count // tp, tp, cluster)
    used = gathered = block_parameters(config, active=True)
    if config.moe is not None:
        network = (3 if config.gated else 2) * config.hidden * config.ffn
        gathered -= config.moe.top_k * network
    rate = ring_bandwidth(group, cluster) * tp
    return cluster.gpu.reached["bf16"] / rate * gathered / used


def _tokens(case: Case) -> float:
    """Tokens that a GPU can compute with at once."""
    return min(SIZE, case.batch / case.cluster.count) * case.config.sequence


# --- questions -----------------------------------------------------------------------------------
def _hold(case: Case) -> list[Advice]:
    """How model, gradients and optimizer are made to fit."""
    room, gpus = _room(case), case.cluster.count
    whole, lean = (_bytes(case, Layout(recompute=how)) for how in ("none", "full"))
    states = memory(case.config, Layout()).states
    if states > room:
        return _shard(case, states)
    word = "DDP" if gpus > 1 else "one GPU"
    said = f"{min(whole, states) / 1e9:.0f} GB of parameters, gradients and optimizer fit on a GPU"
    if whole <= room:
        said = f"{whole / 1e9:.0f} GB, activations included, fit on a GPU"
        return [Advice(word, said)]
    why = f"with all activations it is {whole / 1e9:.0f} GB, computed again {lean / 1e9:.0f}"
    return [Advice(word, said), Advice("recomputation", why)]


def _shard(case: Case, states: float) -> list[Advice]:
    """What does not fit on one GPU is cut."""
    room, cluster = _room(case), case.cluster
    why = f"{states / 1e9:.0f} GB of parameters, gradients and optimizer are too much for a GPU"
    fsdp = Advice("FSDP", why)
    if (least := _states(case, _cut(case, cluster.count))) > room:
        off = (
            f"even sharded over {cluster.count} GPUs the states take {least / 1e9:.0f} GB on each, "
            "so they move to the CPU"
        )
        return [fsdp, Advice("offload", off)] if cluster.count > 1 else [Advice("offload", why)]
    if cluster.count <= cluster.node or not (alone := _exposed(case)):
        return [fsdp]
    in_node = _states(case, _cut(case, cluster.node)) <= room / 2  # the rest for activations
    if in_node and case.batch >= cluster.count:
        return [Advice("HSDP", f"{why}, but not for a node; between nodes {alone}")]
    if reason := _exposed(case, _inside(case)):
        return _three_d(case, reason)
    return [fsdp, Advice("TP", f"inside a node: {alone}")]


def _states(case: Case, layout: Layout) -> float:
    return memory(case.config, layout).states


def _exposed(case: Case, tp: int = 1) -> str:
    """Why FSDP over all groups of `tp` ranks would wait for its gathers; empty if it would not."""
    cluster = case.cluster
    ranks = max(1, cluster.count // tp)
    if case.batch < ranks:
        groups = f"{ranks} groups of TP" if tp > 1 else f"{ranks} GPUs"
        return f"{case.batch} sequences are fewer than {groups}"
    have, need = _tokens(case), _enough_tokens(case, tp)
    if have < need:
        return f"{need:.0f} tokens per GPU would hide a gather, and a GPU has {have:.0f}"
    once = 2 * block_parameters(case.config, active=True) * have / cluster.gpu.reached["bf16"]
    hops = seconds("all_gather", 0, span(ranks, tp, cluster), cluster)
    if hops > once:
        return f"a gather's {ranks} hops take {hops * 1e3:.0f} ms, a block {once * 1e3:.0f}"
    return ""


def _three_d(case: Case, reason: str) -> list[Advice]:
    tp, billions = _inside(case), parameter_count(case.config) / 1e9
    return [
        Advice(
            "TP",
            f"{billions:.0f} billion parameters; {tp} ranks, all inside one node, because TP "
            "sends most",
        ),
        Advice("PP", f"between nodes, because it sends least; FSDP is ruled out: {reason}"),
        Advice("ZeRO-1", "over the replicas that are left: it sends no more than DDP"),
    ]


def _long(case: Case, words: set[str]) -> list[Advice]:
    """Whether one sequence is too long for a rank, with blocks computed again."""
    cluster = case.cluster
    tp = _inside(case) if "TP" in words else 1
    even = case.config.moe is None and case.config.sequence % tp == 0
    sharded = bool(words & {"FSDP", "HSDP"})
    others = cluster.node if "HSDP" in words else max(1, cluster.count // tp)
    layout = Layout(
        dp=others if sharded else 1,
        tp=tp,
        zero=3 if sharded else 0,
        sequence=tp > 1 and even,
        recompute="full",
    )
    found = memory(case.config, layout)
    moving = found.total - found.states - found.buffers
    # A pipeline shares states, and its first rank holds as many micro-batches as it has ranks.
    limit = _room(case) / 2 if "PP" in words else _room(case) - found.states - found.buffers
    if moving <= limit or cluster.count == 1 or "offload" in words:
        return []
    taken = f"takes {moving / 1e9:.0f} GB, {found.logits / 1e9:.0f} of them logits in fp32"
    left = f"{limit / 1e9:.0f} GB are left" if limit > 0 else "nothing is left"
    why = f"one sequence of {case.config.sequence:,} tokens {taken}; {left}"
    again = Advice("recomputation", "the GB above already assume that every block is recomputed")
    return [Advice("CP", why)] + ([] if "recomputation" in words else [again])


def _experts(case: Case) -> list[Advice]:
    """Experts are spread before anything else is."""
    moe = case.config.moe
    if moe is None or case.cluster.count == 1:
        return []
    total, active = (parameter_count(case.config, active=a) / 1e9 for a in (False, True))
    why = f"of {total:.0f} billion parameters a token uses {active:.0f}"
    return [Advice("EP", f"{why}: spread the {moe.experts} experts, and send the tokens")]


def _more_sequences(case: Case, words: set[str]) -> list[Advice]:
    """Whether a rank has more sequences in a step than fit at once, or not even one fits."""
    if words & {"TP", "PP", "CP", "offload"}:
        return []  # the planner says how many ranks have other sequences
    each = case.batch / case.cluster.count
    again = "full" if "recomputation" in words else "none"
    rows, found = _rows(case, words, again), []
    if not rows:
        rows = _rows(case, words, "full")
        found = [Advice("recomputation", "with all its activations not even one sequence fits")]
    if rows < each:
        why = f"{each:.0f} sequences for each GPU in a step, of which {max(1, rows)} fit at once"
        found.append(Advice("accumulation", why))
    return found


def _rows(case: Case, words: set[str], recompute: str) -> int:
    """How many of the sequences that there are fit on a GPU at once."""
    gpus = case.cluster.count
    ranks = case.cluster.node if "HSDP" in words else gpus if "FSDP" in words else 1
    layout = Layout(dp=ranks, zero=3 if ranks > 1 else 0, recompute=recompute)
    counts = range(1, 1 + min(max(1, case.batch // gpus), sys.maxsize - 1))
    # More sequences never take less: it is enough to halve, however many are asked for.
    return bisect_right(
        counts, _room(case), key=lambda n: _bytes(case, replace(layout, micro_batch_size=n))
    )
