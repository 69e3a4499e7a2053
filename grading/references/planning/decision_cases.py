"""The questions of a decision tree, twenty cases that readers have heard of, and likely slips.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Zhao et al., "PyTorch FSDP" (2023),
section 3.2.2, for hybrid sharding; Grattafiori et al. (2024), section 3.3.2, for 3D at 16384 GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from course_lib.model import parameter_count
from course_lib.plan import model, parse_cluster

ROWS = 4
USABLE = 0.9
ETHERNET = 1.25e9  # 10 Gb/s for each GPU, in bytes


class Case(NamedTuple):
    """A question; see the exercise."""

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

    @property
    def states(self) -> float:
        """Bytes of parameters, gradients and optimizer."""
        return 16 * self.parameters

    @property
    def one(self) -> float:
        """Bytes of one sequence's activations."""
        return self.kept * self.sequence

    @property
    def ring(self) -> float:
        """Bytes/s of rings: a node sends through all its adapters, and each GPU inside."""
        return min(self.inside, self.node * self.between)

    @property
    def need(self) -> float:
        """Tokens that a gather takes as long as."""
        return self.flops / self.ring

    @property
    def tokens(self) -> float:
        """Those that a GPU computes on at once."""
        return min(ROWS, self.batch / self.gpus) * self.sequence

    @property
    def hides(self) -> bool:
        """Whether the gather does."""
        return self.tokens >= self.need

    @property
    def words(self) -> str:
        """It, for messages."""
        mixture = f", {self.experts} experts" if self.experts else ""
        return (
            f"{self.parameters / 1e9:.1f}e9 parameters{mixture}, {self.batch} sequences of "
            f"{self.sequence} tokens, {self.gpus} GPUs of {self.memory / 1e9:.0f} GB, "
            f"{self.node} a node, {self.between / 1e9:.3g} GB/s between them"
        )


class Answer(NamedTuple):
    """What is right.

    Attributes:
        words: the strategy.
        numbers: the two that decide how the model gets room.
        why: a sentence with them.
    """

    words: frozenset[str]
    numbers: tuple[float, float]
    why: str


def answer(case: Case) -> Answer:
    """All questions."""
    first, numbers, why = _room(case)
    words = set(first)
    if not words & {"one GPU", "DDP"} and case.gpus > 1:
        if case.one / (case.node if "TP" in words else 1) > case.memory / 2:
            words.add("CP")
        if case.experts:
            words.add("EP")
    if not words & {"offload", "TP", "CP"}:
        cut = case.gpus if "FSDP" in words else case.node if "HSDP" in words else 1
        if math.ceil(case.batch / case.gpus) > (case.memory - case.states / cut) // case.one:
            words.add("accumulation")
    return Answer(frozenset(words), numbers, why)


def _room(case: Case) -> tuple[list[str], tuple[float, float], str]:
    gpus, has = case.gpus, case.memory / 1e9
    first, cut = (case.states + case.one) / 1e9, case.states / gpus / 1e9
    said = f"states and a sequence take {first:.1f} GB, a GPU has {has:.1f}"
    if first <= has:
        return ["DDP" if gpus > 1 else "one GPU"], (first, has), said
    if gpus == 1 or cut > has:
        why = f"cut over all GPUs, states take {cut:.1f} GB, a GPU has {has:.1f}"
        return ["offload", "FSDP"][: min(2, gpus)], (cut, has), why
    if gpus <= case.node:
        return ["FSDP"], (first, has), f"{said}, and all are in one node"
    both = (case.tokens, case.need)
    why = "a GPU computes on {:.0f} tokens at once, a gather takes as long as {:.0f}".format(*both)
    full = case.batch >= gpus
    if full and case.hides:
        return ["FSDP"], both, why
    if full and case.states / case.node <= case.memory / 2:
        return ["HSDP"], both, f"states fit in a node, and {why}"
    few = f"{case.batch} sequences are fewer than {gpus} GPUs, and {why}"
    if case.batch >= gpus // case.node and case.hides:
        return ["FSDP", "TP"], both, few
    return ["TP", "PP", "ZeRO-1"], both, why if full else few


# --- cases ---------------------------------------------------------------------------------------
def known(name: str, gpus: str, batch: int, sequence: int = 0, between: float = 0.0) -> Case:
    """A case of a published model; sequence and network are the usual ones if 0."""
    config, cluster = model(name), parse_cluster(gpus)
    kept = 2 * config.hidden * (config.layers + 17) + 4 * config.vocabulary
    return Case(
        parameters=parameter_count(config),
        experts=config.moe.experts if config.moe else 0,
        kept=kept,
        sequence=sequence or config.sequence,
        batch=batch,
        gpus=cluster.count,
        node=cluster.node,
        memory=USABLE * cluster.gpu.memory,
        flops=cluster.gpu.reached["bf16"],
        inside=cluster.inside.bandwidth,
        between=between or cluster.between.bandwidth,
    )


Row = tuple[str, str, int, int, float]  # as in `known`
PUBLIC: Mapping[str, tuple[Row, ...]] = MappingProxyType(
    {
        "fits": (
            ("gpt2-xl", "1xH100", 8, 0, 0.0),
            ("gpt2-xl", "8xH100", 64, 0, 0.0),
            ("gpt2-xl", "8xH100", 2048, 0, 0.0),
            ("llama3-8b", "8xB200", 8, 0, 0.0),
        ),
        "does not fit": (
            ("llama3-8b", "1xH100", 8, 0, 0.0),
            ("llama3-70b", "8xH100", 64, 0, 0.0),
            ("llama3-8b", "8xH100", 8, 0, 0.0),
            ("llama3-8b", "8xH100", 256, 0, 0.0),
        ),
        "network": (
            ("llama3-8b", "64xH100", 256, 0, 0.0),
            ("llama3-8b", "64xH100", 1024, 0, ETHERNET),
            ("llama3-70b", "64xH100", 192, 0, 0.0),
            ("llama3-70b", "512xH100", 1024, 0, ETHERNET),
        ),
        "many": (
            ("llama3-70b", "128xH100", 512, 0, 0.0),
            ("llama3-70b", "512xH100", 256, 0, 0.0),
            ("llama3-405b", "16384xH100", 2048, 0, 0.0),
            ("megatron-1t", "3072xA100", 512, 0, 0.0),
        ),
        "long": (
            ("llama3-8b", "64xH100", 64, 131072, 0.0),
            ("llama3.2-1b", "8xH100", 8, 1 << 20, 0.0),
            ("mixtral-8x7b", "64xH100", 64, 0, 0.0),
            ("mixtral-8x22b", "512xH100", 256, 8192, 0.0),
        ),
    }
)

MORE = "accumulation was asked for where all sequences fit at once"
FEWER = "accumulation was not asked for where a GPU has more sequences than fit"
ROOM_LEFT = ": it has batch / gpus, rounded up, and its memory less the states that it holds"

# --- slips ---------------------------------------------------------------------------------------
Words = Callable[[Case], frozenset[str]]


def _with(change: Callable[[Case], Case]) -> Words:
    """The right answer to another case."""
    return lambda case: answer(change(case)).words


def _tp_first(case: Case) -> frozenset[str]:
    words = answer(case).words
    return words | {"TP"} if case.gpus > 1 else words


def _fsdp_always(case: Case) -> frozenset[str]:
    words = answer(case).words
    return (words - {"TP", "PP", "ZeRO-1"}) | {"FSDP"} if "PP" in words else words


def _cut_over_all(case: Case) -> frozenset[str]:
    words = answer(case).words
    small = case.states / case.gpus <= case.memory / 2
    slow = case.batch >= case.gpus > case.node and not case.hides
    return frozenset({"HSDP"}) if slow and small and "PP" in words else words


def _tp_from_100(case: Case) -> frozenset[str]:
    words = answer(case).words
    return words | {"TP"} if "FSDP" in words and case.gpus >= 100 else words


SLIPS: Mapping[str, Words] = MappingProxyType(
    {
        "2 bytes a parameter were counted: states are 16, with gradients, fp32 master weights and "
        "Adam's moments": _with(lambda case: case._replace(parameters=case.parameters / 8)),
        "one sequence's activations were left out": _with(lambda case: case._replace(kept=1e-9)),
        "TP was taken first: only where sequences are fewer than GPUs, or gathers do not hide":
            _tp_first,
        "TP was taken because there are many GPUs: it does not make gathers cheaper, since each "
        "GPU gathers its part through its one adapter, and computes with that part alone":
            _tp_from_100,
        "one adapter was taken for the whole node: all GPUs of a node have one, and rings leave it "
        "through all of them": _with(lambda case: case._replace(between=case.between / case.node)),
        "adapters were counted, and not that a ring passes every GPU inside the nodes, too":
            _with(lambda case: case._replace(inside=1e30)),
        "FSDP was taken however many GPUs there are: with so few tokens its gathers do not hide":
            _fsdp_always,
        "the network between nodes was not looked at": _with(
            lambda c: c._replace(between=1e30, inside=1e30)
        ),
        "the links inside a node were taken for those between nodes":
            _with(lambda case: case._replace(between=case.inside)),
        "states were cut over all GPUs to see whether a node has room": _cut_over_all,
        "PP was left out": lambda case: answer(case).words - {"PP"},
        "CP was taken for short sequences too": lambda case: answer(case).words | (
            {"CP"} if case.gpus > 1 and "DDP" not in answer(case).words else set()
        ),
        "CP was never asked for": lambda case: answer(case).words - {"CP"},
        "EP was taken where there are no experts": _with(lambda c: c._replace(experts=8)),
        "EP was left out: there are experts": lambda case: answer(case).words - {"EP"},
    }
)  # fmt: skip


def slips(asked: list[Case], given: list[frozenset[str]], edge: str = "") -> str:
    """Which slips explain all answers, or if none does all wrong ones; accumulation is one itself.

    Args:
        asked: the cases.
        given: the words of the answers, of which one at least is wrong.
        edge: what to say where no slip explains all of them.
    """
    last = {"accumulation"}
    right = [answer(case).words for case in asked]
    wrong = [n for n, words in enumerate(given) if words - last != right[n] - last]
    if not wrong:
        more = any(words > right[n] for n, words in enumerate(given))
        return (MORE if more else FEWER) + ROOM_LEFT
    for looked_at in (range(len(asked)), wrong):
        found = [
            why
            for why, slip in SLIPS.items()
            if all(slip(asked[n]) - last == given[n] - last for n in looked_at)
        ]
        if found:
            return "; or ".join(found)
        if edge:
            return edge
    return ""
